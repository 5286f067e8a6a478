//! Tests of `warpline provider check`, and of libraries in `warpline devices`: the example vendor's provider in
//! C as it is, and broken in many ways, each of which must be named.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

// Serves two test programs; each uses its part.
#[path = "../../../vp-api/suite/tests/all/build.rs"]
mod build;

use warpline_patience::side_by_side;

use crate::support::{Running, line_with, rest};
pub(crate) use build::cargo;
use build::{c, headers, scratch, vendor_c};

fn warpline(args: &[&str], path: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    command.args(args).env("WARPLINE_PROVIDER_PATH", path).env("HOME", "/nonexistent");
    command.env_remove("WARPLINE_CONFIG").output().unwrap()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8(octets.to_vec()).unwrap()
}

/// A copy of the vendor's sources with every `from` replaced, compiled; `None` without a compiler.
fn variant(name: &str, changes: &[(&str, &str)]) -> Option<PathBuf> {
    let dir = scratch(name);
    for file in std::fs::read_dir(vendor_c()).unwrap() {
        let file = file.unwrap();
        let mut source = std::fs::read_to_string(file.path()).unwrap();
        for (from, to) in changes {
            source = source.replace(from, to);
        }
        std::fs::write(dir.join(file.file_name()), source).unwrap();
    }
    let library = dir.join("libvendor_loop.so");
    c(&dir, &headers(), &library)?;
    Some(library)
}

fn remove(library: &Path) {
    std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
}

#[test]
fn the_example_vendors_provider_passes() {
    let Some(library) = variant("good", &[]) else {
        return warpline_skip::skip(
            "the_example_vendors_provider_passes",
            warpline_skip::missing("gcc"),
        );
    };
    let path = library.to_str().unwrap();
    let output = warpline(&["provider", "check", path], "");
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("provider  vendor_loop 1.0"));
    let output = warpline(&["provider", "check", "--json", path], "");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["good"], true);
    assert!(report["cases"].as_array().unwrap().len() > 50);
    let output = warpline(&["devices"], path);
    assert!(text(&output.stdout).contains("Example Vendor memory copy"));
    remove(&library);
}

/// Changes to the sources, the exit status, and a text that must be reported.
type Broken = (&'static [(&'static str, &'static str)], i32, &'static str);

const BROKEN: &[Broken] = &[
    (&[(".magic = RI_MAGIC", ".magic = 7")], 3, "magic is 0x00000007 and not RI_MAGIC"),
    (&[(".major = RI_MAJOR", ".major = 9")], 3, "speaks ABI 9.x, this host 1.x"),
    (&[("sizeof warpline_provider,", "16,")], 3, "descriptor's size is 16 octets"),
    (&[(".reserved = 0", ".reserved = 3")], 3, "reserved field is 0x3 and must be zero"),
    (&[(".name = \"vendor_loop\"", ".name = \"Vendor!\"")], 3, "name is not a word of a-z"),
    (&[(".version = \"1.0\"", ".version = NULL")], 3, "version is missing"),
    // Without this the two symbols stay hidden.
    (&[("#define RI_BUILDING_PROVIDER", "")], 3, "does not export `warpline_provider`"),
    (
        &[(
            "const ri_provider_ops *warpline_provider_get_ops(uint32_t host_minor)\n{",
            "const ri_provider_ops *other(uint32_t);\n\
             const ri_provider_ops *other(uint32_t host_minor)\n{",
        )],
        3,
        "does not export `warpline_provider_get_ops`",
    ),
    (&[("    return &ops;", "    return host_minor > 99 ? &ops : NULL;")], 3, "returned NULL"),
    (
        &[(".size = sizeof ops,\n    .devices", ".size = 16,\n    .devices")],
        3,
        "ri_provider_ops is too short: 16 octets",
    ),
    (
        &[("    .open = open_device,", "    .open = sizeof ops ? NULL : open_device,")],
        3,
        "ri_provider_ops lacks `open`",
    ),
    (&[(ONCE, DIES)], 3, "killed by signal 6 (abort) while loading the library"),
    (
        &[(
            ONCE,
            "void nowhere(void);\nvoid use(void);\nvoid use(void) { nowhere(); }\nstatic pthread_once_t once",
        )],
        3,
        "undefined symbol: nowhere",
    ),
    (&[("    .create_qp = qp_create,\n", "")], 1, "ri_rnic_ops lacks create_qp, which is required"),
    (&[("    .native_cm = cm_make,\n", "")], 1, "ri_rnic_ops lacks native_cm"),
    (&[("a.capabilities = 0", "a.capabilities = RI_CAP_SRQ")], 1, "the descriptor does not"),
    (&[("model = RI_MODEL_NATIVE", "model = 5")], 1, "ri_rnic_attrs.connection_model is neither"),
    (&[("memmove(to, from, sink->len)", "memmove(to, from, sink->len - 1)")], 1, "differs"),
    (&[("0, 0, RI_WC_READ}", "0, 0, 77}")], 1, "a completion is of operation 77, which is none"),
    (&[("wc.status = status;", "wc.status = status + 500;")], 1, "has status 500, which is none"),
    (&[("wc.octets = len;", "wc.octets = len + 4000000000u;")], 1, "octets, more than max_message"),
    // Each entry of the connection manager is required, and checked before anything is connected.
    (
        &[("    .listen = cm_listen,\n", "    .listen = sizeof ops ? NULL : cm_listen,\n")],
        1,
        "open: defect in the provider: the provider's ri_cm_ops lacks listen, ",
    ),
    (
        &[(
            "    .poll_event = poll_event,\n",
            "    .poll_event = sizeof ops ? NULL : poll_event,\n",
        )],
        1,
        "ri_cm_ops lacks poll_event, which is required",
    ),
    (
        &[(
            "    GIVE(out, made);\n    return RI_OK;\n}\n\nstatic const ri_provider",
            "    GIVE(out, made);\n    return 9999;\n}\n\nstatic const ri_provider",
        )],
        1,
        "open: defect in the provider: it returned 9999, which is no status",
    ),
    (
        &[(
            "    fn(receiver, &device);\n    return RI_OK;",
            "    fn(receiver, &device);\n    return 9999;",
        )],
        1,
        "it returned 9999, which is no status",
    ),
    (
        &[("    cq->armed = solicited_only", "    status = -22;\n    cq->armed = solicited_only")],
        1,
        "it returned -22, a negative errno?, which is no status",
    ),
    (
        &[(
            "a.max_cq = a.max_pd = a.max_mr = MAX_OBJECTS - 1",
            "a.max_cq = a.max_pd = a.max_mr = 300",
        )],
        1,
        "number 255 of 300 that max_pd says: ",
    ),
    (
        &[("    cq->armed = solicited_only", "    status = 9999;\n    cq->armed = solicited_only")],
        1,
        "it returned 9999, which is no status",
    ),
    (
        &[("    return qp->sends == ", "    return qp->sends < 99 ? 9999u : qp->sends == ")],
        1,
        "it returned 9999, which is no status",
    ),
    (
        &[(
            "    *count = n;\n    return status;",
            "    *count = n;\n    return status == RI_OK ? 9999 : status;",
        )],
        1,
        "it returned 9999, which is no status",
    ),
    (
        &[(
            "    event->params.private_data = event->data;",
            "    event->params.private_data = event->data;\n    event->params.private_len = 5000;",
        )],
        1,
        "5000 octets of private data, and the device declares 256",
    ),
    (
        &[("{\"vendor_loop\", 11}", "{\"vendor\\033loop\", 11}")],
        1,
        "has control characters: \"vendor\\u{1b}loop\"",
    ),
    (
        &[(
            "    fn(receiver, &device);\n",
            "    fn(receiver, &device);\n    fn(receiver, &device);\n",
        )],
        1,
        "it lists the device vendor_loop twice",
    ),
    (
        &[(
            "    uint32_t n = cq->count",
            "    if (max == 1)\n        abort();\n    uint32_t n = cq->count",
        )],
        1,
        "killed by signal 6 (abort); under way in the provider: poll",
    ),
    (
        &[("static void release(ri_qp *qp)\n{", "static void release(ri_qp *qp)\n{\n    abort();")],
        1,
        "killed by signal 6 (abort); under way in the provider: release of a QP",
    ),
    (
        &[(
            "    if (qp->destroyed)\n        return RI_INVALID_HANDLE;\n    if (qp->state == RI_QP_IDLE)",
            "    if (qp->destroyed)\n        return (ri_status)-22;\n    if (qp->state == RI_QP_IDLE)",
        )],
        1,
        "returned -22, a negative errno?, which is no status\" where \"invalid handle\" is expected",
    ),
];

#[test]
fn a_verb_that_does_not_return_is_named() {
    let post = "static ri_status post_send(ri_qp *qp, const ri_send_wr *wrs, uint32_t count, uint32_t *posted)\n{\n";
    let hangs =
        format!("{post}    pthread_mutex_lock(&big);\n    pthread_cond_wait(&bell, &big);\n");
    let Some(library) = variant("hangs", &[(post, &hangs)]) else {
        let test = "a_verb_that_does_not_return_is_named";
        return warpline_skip::skip(test, warpline_skip::missing("gcc"));
    };
    let case = ["--case", "a destroyed QP refuses posts", "--wait", "1"];
    let words = ["provider", "check", library.to_str().unwrap()];
    let printed = text(&warpline(&[&words[..], &case].concat(), "").stdout);
    assert!(printed.contains("does not return; under way in the provider: post_send"), "{printed}");
    remove(&library);
}

/// The place in the source where code is inserted.
const ONCE: &str = "static pthread_once_t once";
/// Code that crashes when the library is loaded.
const DIES: &str = "__attribute__((constructor)) static void die(void) { abort(); }\n\
                    static pthread_once_t once";

#[test]
fn each_broken_variant_is_named() {
    let variants: Vec<_> = BROKEN.iter().enumerate().collect();
    // Some wait long for what never comes.
    side_by_side(4, &variants, |(n, (changes, exit, expected))| {
        let Some(library) = variant(&format!("broken-{n}"), changes) else {
            return warpline_skip::skip(
                "each_broken_variant_is_named",
                warpline_skip::missing("gcc"),
            );
        };
        let output = warpline(&["provider", "check", library.to_str().unwrap()], "");
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(printed.contains(expected), "variant {n}: {expected}: {printed}");
        assert_eq!(output.status.code(), Some(*exit), "variant {n}: {printed}");
        // A listing skips it with its reason and lists the others.
        if *exit == 3 {
            let output = warpline(&["devices"], library.to_str().unwrap());
            let printed = text(&output.stdout);
            let others = printed.contains("device vp_softrdma");
            assert!(printed.contains(expected) && others, "{printed}");
        }
        remove(&library);
    });
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let dir = scratch("no-library");
    let own = std::fs::read(env!("CARGO_BIN_EXE_warpline")).unwrap();
    let mut foreign = own[..4096].to_vec();
    // A processor that does not exist.
    foreign[18..20].copy_from_slice(&9999u16.to_le_bytes());
    let file = |name: &str, octets: &[u8]| std::fs::write(dir.join(name), octets).unwrap();
    file("libtext.so", b"not a library");
    file("libempty.so", b"");
    file("libforeign.so", &foreign);
    file("libcut.so", &own[..20]);
    std::fs::create_dir(dir.join("libdir.so")).unwrap();
    std::os::unix::fs::symlink("/nonexistent", dir.join("libdangling.so")).unwrap();
    for (name, expected) in [
        ("libtext.so", "it does not begin as ELF files do"),
        ("libempty.so", "the file is empty"),
        ("libforeign.so", "it is for processor 9999 of ELF, this machine is"),
        ("libcut.so", "cannot be loaded: file too short"),
        ("libdir.so", "it is a directory, not a file"),
        ("libdangling.so", "cannot be loaded"),
    ] {
        let library = dir.join(name);
        let output = warpline(&["provider", "check", library.to_str().unwrap()], "");
        assert_eq!(output.status.code(), Some(3), "{name}");
        if name != "libdangling.so" {
            assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
        }
        let output = warpline(&["devices"], library.to_str().unwrap());
        let printed = text(&output.stdout);
        assert!(printed.contains(expected) && printed.contains("device vp_softrdma"), "{printed}");
    }
    let output = warpline(&["provider", "check", "/nonexistent/lib.so"], "");
    assert!(text(&output.stderr).contains("cannot read /nonexistent/lib.so"));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn manifests_name_libraries() {
    let Some(library) = variant("manifest", &[]) else {
        return warpline_skip::skip("manifests_name_libraries", warpline_skip::missing("gcc"));
    };
    let dir = scratch("manifests");
    let manifest = |file: &str, name: &str, place: &str| {
        let text = format!("name = \"{name}\"\nlibrary = \"{place}\"\n");
        std::fs::write(dir.join(file), text).unwrap();
    };
    manifest("1.toml", "vendor_loop", library.to_str().unwrap());
    manifest("2.toml", "other", library.to_str().unwrap());
    manifest("3.toml", "near", "near.so");
    let output = warpline(&["devices", "--json"], dir.to_str().unwrap());
    let listing: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name: &str| {
        let all = listing["providers"].as_array().unwrap();
        all.iter().find(|p| p["name"] == name).unwrap().clone()
    };
    assert_eq!(of("vendor_loop")["devices"][0]["vendor"], "Example Vendor");
    let reason = |name: &str| of(name)["unavailable"]["reason"].as_str().unwrap().to_owned();
    assert!(reason("other").contains("its name is vendor_loop, not other"));
    assert!(reason("near").contains("not absolute"));
    remove(&library);
    std::fs::remove_dir_all(dir).unwrap();
}

/// Output of `program devices` as the user nobody; `None` if it cannot be run so.
fn devices_as_nobody(program: &Path, path: &Path) -> Option<String> {
    const NOBODY: u32 = 65534;
    let mut command = Command::new(program);
    command.arg("devices").env("WARPLINE_PROVIDER_PATH", path).env("HOME", "/nonexistent");
    let output = command.env_remove("WARPLINE_CONFIG").uid(NOBODY).gid(NOBODY).output().ok()?;
    Some(text(&output.stdout))
}

/// A program with more rights than its user loads no code that the environment names.
#[test]
fn a_setuid_program_ignores_libraries_of_its_environment() {
    const TEST: &str = "a_setuid_program_ignores_libraries_of_its_environment";
    let Some(library) = variant("setuid", &[]) else {
        return warpline_skip::skip(TEST, warpline_skip::missing("gcc"));
    };
    let program = library.with_file_name("warpline");
    warpline_patience::copy_program(env!("CARGO_BIN_EXE_warpline"), &program);
    let mode = |bits| std::fs::set_permissions(&program, PermissionsExt::from_mode(bits)).unwrap();
    mode(0o755);
    let names_it = |printed: String| printed.contains("vendor_loop");
    let plain = devices_as_nobody(&program, &library).map(names_it);
    mode(0o4755);
    let more_rights = devices_as_nobody(&program, &library).map(names_it);
    remove(&library);
    match plain {
        Some(true) => assert_eq!(more_rights, Some(false)),
        _ => warpline_skip::skip(TEST, warpline_skip::NOT_ROOT),
    }
}

/// The layer of the tests, built; `None` without a compiler.
fn layer(name: &str) -> Option<PathBuf> {
    let library = scratch(name).join("libpass_on.so");
    c(&build::root().join("vp-api/suite/fixtures/layer"), &headers(), &library)?;
    Some(library)
}

/// Output of `warpline devices` with wrappers around every provider.
fn devices_wrapped(dir: &Path, wrap: &[&str]) -> String {
    let file = dir.join("warpline.toml");
    std::fs::write(&file, format!("[providers]\nwrap = {wrap:?}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    let output = command.arg("devices").env("WARPLINE_CONFIG", &file).output().unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn layers_wrap_by_policy() {
    let Some(library) = layer("layer") else {
        return warpline_skip::skip("layers_wrap_by_policy", warpline_skip::missing("gcc"));
    };
    let dir = library.parent().unwrap();
    let layer = |arguments: &str| format!("layer:{}{arguments}", library.display());
    let printed =
        devices_wrapped(dir, &["trace", &layer(""), "fault:max_qp=7", &layer(":x"), "stats"]);
    let is_limit = |line: &str| line.split_whitespace().eq(["max", "qp", "7"]);
    assert!(printed.contains("device vp_softrdma") && printed.lines().any(is_limit), "{printed}");
    // Devices that a layer hides are gone, and the reason is given why a layer cannot be used.
    let printed = devices_wrapped(dir, &[&layer(":hide")]);
    assert!(printed.contains("not usable: the layer hides them"), "{printed}");
    let printed = devices_wrapped(dir, &["stats", &layer(":refuse")]);
    let refusal = format!("the layer {}: the layer refuses: as it was told", library.display());
    assert!(printed.contains(&refusal), "{printed}");
    let printed = devices_wrapped(dir, &["layer:/nonexistent/liblayer.so"]);
    assert!(
        printed.contains("not usable: the layer /nonexistent/liblayer.so: cannot be"),
        "{printed}"
    );
    let printed = devices_wrapped(dir, &["layer:near.so"]);
    assert!(printed.contains("`near.so` is not absolute"), "{printed}");
    remove(&library);
}

#[test]
fn a_layer_is_checked_around_a_provider() {
    let Some(library) = layer("checked-layer") else {
        return warpline_skip::skip(
            "a_layer_is_checked_around_a_provider",
            warpline_skip::missing("gcc"),
        );
    };
    let output = warpline(&["provider", "check", library.to_str().unwrap()], "");
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(
        output.status.success() && printed.contains("provider  pass-on (a layer) 1"),
        "{printed}"
    );
    remove(&library);
}

/// The layer by itself, and around a provider that is built in, and one in a library.
#[test]
fn a_layer_is_checked_around_the_provider_that_is_named() {
    const TEST: &str = "a_layer_is_checked_around_the_provider_that_is_named";
    let (Some(layer), Some(inner)) = (layer("over-layer"), variant("over-inner", &[])) else {
        return warpline_skip::skip(TEST, warpline_skip::missing("gcc"));
    };
    let check = |library: &Path, over: &str, path: &str| {
        let library = library.to_str().unwrap();
        let output = warpline(&["provider", "check", library, "--over", over], path);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let place = inner.to_str().unwrap();
    let plain = text(&warpline(&["provider", "check", place], "").stdout);
    // The same cases as without the layer, by name and by path.
    for (over, path) in [(place, ""), ("vendor_loop", place)] {
        let (code, printed) = check(&layer, over, path);
        assert_eq!(code, Some(0), "{printed}");
        assert_eq!(printed.lines().last(), plain.lines().last(), "{printed}");
        assert!(printed.contains("provider  pass-on (a layer) 1"), "{printed}");
    }
    for (library, over, expected) in [
        (&layer, "nobody", "--over: there is no provider nobody; there are vp_softrdma"),
        (&layer, "/nonexistent/lib.so", "--over /nonexistent/lib.so: No such file"),
        (&inner, "vp_softrdma", "it is no layer; --over is for layers"),
    ] {
        let (code, printed) = check(library, over, "");
        assert_eq!(code, Some(3), "{printed}");
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    remove(&layer);
    remove(&inner);
}

/// Each case is shown when it has ended, and the whole run has a time-out.
#[test]
fn a_check_prints_each_case_and_ends_at_its_limit() {
    let hang = "    if (max == 1)\n        for (;;)\n            ;\n    uint32_t n = cq->count";
    let changes = [("    uint32_t n = cq->count", hang)];
    let Some(library) = variant("limit", &changes) else {
        return warpline_skip::skip(
            "a_check_prints_each_case_and_ends_at_its_limit",
            warpline_skip::missing("gcc"),
        );
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    command.args(["provider", "check", "--limit", "20"]).arg(&library);
    let mut running = Running::new(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut out = running.stdout();
    line_with(&mut out, |line| line == "provider  vendor_loop 1.0");
    line_with(&mut out, |line| line == "  passed  listing: devices have names and ports");
    // It hangs in a later case, so this line was printed before the end.
    assert!(running.is_alive());
    let printed = rest(out);
    assert!(printed.contains("it is not done after 20 s, the limit for all"), "{printed}");
    assert_eq!(running.code(), Some(1), "{printed}");
    remove(&library);
}

#[test]
fn cases_are_selected_and_those_after_a_crash_are_counted() {
    let test = "cases_are_selected_and_those_after_a_crash_are_counted";
    let crash = "    if (max == 1)\n        abort();\n    uint32_t n = cq->count";
    let Some(library) = variant("cases", &[("    uint32_t n = cq->count", crash)]) else {
        return warpline_skip::skip(test, warpline_skip::missing("gcc"));
    };
    let path = library.to_str().unwrap();
    let check = |words: &[&str]| {
        let output = warpline(&[&["provider", "check", path], words].concat(), "");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, out, _) = check(&["--case", "largest QP", "--case=largest CQ"]);
    assert_eq!(status, Some(0), "{out}");
    assert!(out.ends_with("3 passed, 0 skipped, 0 failed\n"), "{out}");
    let (status, _, error) = check(&["--case", "no such"]);
    assert_eq!(status, Some(3), "{error}");
    assert!(error.contains("no case has `no such` in its name"), "{error}");
    let (status, out, _) = check(&[]);
    assert_eq!(status, Some(1), "{out}");
    assert!(out.contains("the process is killed by signal 6 (abort)"), "{out}");
    assert!(out.lines().last().unwrap().ends_with(" not run"), "{out}");
    remove(&library);
}

/// A provider that the configuration disables is listed as disabled, and not loaded.
#[test]
fn a_disabled_provider_is_listed_as_such() {
    let Some(library) = variant("disabled", &[(ONCE, DIES)]) else {
        return warpline_skip::skip(
            "a_disabled_provider_is_listed_as_such",
            warpline_skip::missing("gcc"),
        );
    };
    let file = library.with_file_name("warpline.toml");
    std::fs::write(&file, "[providers]\ndisabled = [\"vendor_loop\"]\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    command.env("WARPLINE_CONFIG", &file).env("WARPLINE_PROVIDER_PATH", &library);
    let printed = text(&command.arg("devices").output().unwrap().stdout);
    let expected = format!(
        "vendor_loop\n  library     {}\n  not usable: the configuration disables it\n  try         \
         take it out of `[providers]` `disabled`\n",
        library.display()
    );
    assert!(printed.contains(&expected) && printed.contains("device vp_softrdma"), "{printed}");
    remove(&library);
}

/// `[providers.vendor_loop]`: the provider gets its own keys, and its wrappers apply to no other.
#[test]
fn a_provider_is_configured_by_its_own_table() {
    let Some(library) = variant("settings", &[]) else {
        return warpline_skip::skip(
            "a_provider_is_configured_by_its_own_table",
            warpline_skip::missing("gcc"),
        );
    };
    let file = library.with_file_name("warpline.toml");
    let devices = |keys: &str| {
        std::fs::write(&file, format!("[providers.vendor_loop]\n{keys}\n")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
        command.env("WARPLINE_CONFIG", &file).env("WARPLINE_PROVIDER_PATH", &library);
        let output = command.args(["devices", "--json"]).output().unwrap();
        let listing: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = listing["providers"].as_array().unwrap();
        let of = |name: &str| all.iter().find(|p| p["name"] == name).unwrap()["devices"][0].clone();
        (of("vendor_loop"), of("vp_softrdma"))
    };
    let (plain, other) = devices("");
    assert_eq!(plain["limits"]["max_qp"], 255, "{plain:#}");
    assert_eq!(devices("max_qp = 7").0["limits"]["max_qp"], 7);
    for (keys, expected) in [
        ("max_qp = \"many\"", "max_qp is a number from 1 to 255"),
        ("depth = 7", "the only key of vendor_loop is max_qp"),
    ] {
        let printed = devices(keys).0.to_string();
        assert!(printed.contains(expected), "{printed}");
    }
    let (wrapped, beside) = devices("wrap = [\"fault:max_cq=3\"]");
    assert_eq!(wrapped["limits"]["max_cq"], 3, "{wrapped:#}");
    assert_eq!(beside["limits"], other["limits"]);
    remove(&library);
}

/// A layer that crashes does not end the command.
#[test]
fn a_layer_that_crashes_is_named() {
    let dir = scratch("crashing-layer");
    let source = "#define RI_BUILDING_PROVIDER\n#include <rnicpi.h>\n#include <stdlib.h>\n\
                  __attribute__((constructor)) static void die(void) { abort(); }\n";
    std::fs::write(dir.join("crash.c"), source).unwrap();
    let library = dir.join("libcrash.so");
    if c(&dir, &headers(), &library).is_none() {
        return warpline_skip::skip("a_layer_that_crashes_is_named", warpline_skip::missing("gcc"));
    }
    let printed = devices_wrapped(&dir, &[&format!("layer:{}", library.display())]);
    assert!(printed.contains("killed by signal 6 (abort) while loading the library"), "{printed}");
    remove(&library);
}

/// Where a provider may crash or hang, besides loading, and the step that is reported.
const PLACES: &[(&str, &str)] = &[
    ("    (void)context;\n    (void)error;\n    fn(receiver, &device);", "listing its devices"),
    ("    if (name.len != device.name.len", "opening it"),
    ("    ri_error error;\n    memset(&error, 0, sizeof error);\n    /* The host", "closing it"),
];

/// The listing with a provider that does `what` in each of the places: it names the provider and the
/// step, and lists the others.
fn each_place(test: &str, what: &str, expected: &str) {
    for (number, (place, step)) in PLACES.iter().enumerate() {
        let (first, rest) = place.split_at(4);
        let changed = format!("{first}{what}\n{first}{rest}");
        let Some(library) = variant(&format!("{test}-{number}"), &[(place, &changed)]) else {
            return warpline_skip::skip(test, warpline_skip::missing("gcc"));
        };
        let path = library.to_str().unwrap();
        let output = warpline(&["devices", "--limit", "5"], path);
        let printed = text(&output.stdout);
        assert!(printed.contains(&format!("{expected} while {step}")), "{step}: {printed}");
        assert!(printed.contains("vendor_loop"), "{step}: {printed}");
        assert!(
            printed.contains("device vp_softrdma\n") && printed.contains("max qp"),
            "{printed}"
        );
        assert_eq!(output.status.code(), Some(0), "{step}: {printed}");
        let output = warpline(&["devices", "--json", "--limit", "5"], path);
        let listing: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = listing["providers"].as_array().unwrap();
        let of = |name: &str| all.iter().find(|p| p["name"] == name).unwrap();
        assert!(of("vp_softrdma")["devices"][0]["limits"]["max_qp"].is_u64(), "{listing:#}");
        assert!(of("vendor_loop").to_string().contains(expected), "{listing:#}");
        remove(&library);
    }
}

#[test]
fn a_provider_that_crashes_does_not_end_the_listing() {
    let abort = "if (rand() >= 0)\n        abort();";
    each_place("crashes", abort, "the process is killed by signal 6 (abort)");
}

#[test]
fn a_provider_that_hangs_does_not_end_the_listing() {
    let hang = "for (;;)\n        sleep(1000);";
    each_place("hangs", &format!("extern unsigned sleep(unsigned);\n    {hang}"), "it hangs");
}

/// Nor does a provider that exits with success.
#[test]
fn a_provider_that_exits_does_not_end_the_listing() {
    each_place("exits", "if (rand() >= 0)\n        exit(0);", "the process ends with status 0");
}

/// Connections, events and data over a provider that was loaded from a library.
#[test]
fn the_demo_moves_a_file_over_a_library() {
    let library = cargo("vp-softrdma-dylib", "vp_softrdma");
    let library = library.to_str().unwrap();
    let listing = text(&warpline(&["devices"], library).stdout);
    assert!(listing.contains(&format!("library     {library}")), "{listing}");
    let file = env!("CARGO_MANIFEST_PATH");
    let output = warpline(&["demo", file, "--progress", "never"], library);
    assert!(text(&output.stdout).contains("verified"), "{}", text(&output.stderr));
}

/// A vendor's first minutes: the skeleton copied elsewhere, built and checked.
fn skeleton(name: &str, build: impl FnOnce(&Path) -> Option<PathBuf>) {
    let from = build::root().join("examples").join(name);
    let dir = scratch(name);
    for entry in ["", "src"] {
        let Ok(files) = std::fs::read_dir(from.join(entry)) else { continue };
        std::fs::create_dir_all(dir.join(entry)).unwrap();
        for file in files.map(Result::unwrap).filter(|file| file.path().is_file()) {
            std::fs::copy(file.path(), dir.join(entry).join(file.file_name())).unwrap();
        }
    }
    if let Some(library) = build(&dir) {
        let library = library.to_str().unwrap();
        let output = warpline(&["provider", "check", library], "");
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{printed}");
        assert!(printed.contains("provider  acme 0.1"), "{printed}");
        assert!(printed.contains("it has no device here: there is no ACME adapter"), "{printed}");
        assert!(printed.contains("0 passed, 1 skipped, 0 failed"), "{printed}");
        let listed = text(&warpline(&["devices"], library).stdout);
        assert!(listed.contains("insert one, and load its driver"), "{listed}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_skeleton_in_c_builds_elsewhere_and_is_skipped() {
    skeleton("provider-skeleton-c", |dir| {
        let mut make = Command::new("make");
        make.arg("-C").arg(dir).arg(format!("INCLUDE={}", headers().display()));
        let Ok(made) = make.stdout(Stdio::null()).status() else {
            let test = "the_skeleton_in_c_builds_elsewhere_and_is_skipped";
            warpline_skip::skip(test, warpline_skip::missing("make"));
            return None;
        };
        assert!(made.success(), "{make:?}");
        Some(dir.join("libacme.so"))
    });
}

#[test]
fn the_skeleton_in_rust_builds_elsewhere_and_is_skipped() {
    skeleton("provider-skeleton-rust", |dir| {
        let sources = build::root().join("vp-api");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "--config"]);
        cargo.arg(format!("patch.crates-io.vp-api.path={:?}", sources.to_str().unwrap()));
        // The versions that this tree uses are there.
        std::fs::copy(build::root().join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
        cargo.current_dir(dir).arg("--target-dir").arg(dir.join("target"));
        assert!(cargo.status().unwrap().success(), "{cargo:?}");
        Some(dir.join("target/debug/libacme.so"))
    });
}

/// No completion is ever found, so that nearly every case waits in vain.
#[test]
fn a_provider_that_completes_nothing_is_told_so_for_each_case() {
    let changes = [("cq->count < max ? cq->count : max", "0 * (cq->count + max)")];
    let Some(library) = variant("silent", &changes) else {
        let test = "a_provider_that_completes_nothing_is_told_so_for_each_case";
        return warpline_skip::skip(test, warpline_skip::missing("gcc"));
    };
    let output = warpline(&["provider", "check", "--json", library.to_str().unwrap()], "");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed = report["cases"].as_array().unwrap().iter().filter(|of| of["verdict"] == "failed");
    assert!(failed.count() > 20, "{report:#}");
    assert_eq!((&report["not_run"], &report["good"]), (&0.into(), &false.into()), "{report:#}");
    remove(&library);
}
