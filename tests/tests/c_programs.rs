//! Tests of C and C++ programs on the installed library: the header in every language and binding, two
//! processes, and a program for each area of functions, plain and under valgrind.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use warpline_skip::missing;
use warpline_tests::c::{Kit, Language, check, root, run};
use warpline_tests::skip;

const BINDINGS: [&[&str]; 4] = [
    &[],
    &["ITAPI_ENABLE_V20_BINDINGS"],
    &["ITAPI_ENABLE_V21_BINDINGS"],
    &["ITAPI_ENABLE_V10_BINDINGS"],
];
const ZURICH: &str = "ITAPI_ZRL_EXTENSIONS";
const HOST_ORDER: &str = "ITAPI_IANA_PORT_HOST_BYTE_ORDER";

/// The installation, or `None` after reporting what is missing.
fn kit(test: &str) -> Option<&'static Kit> {
    static KIT: OnceLock<Result<Kit, warpline_tests::Reason>> = OnceLock::new();
    let kit = KIT.get_or_init(|| Kit::install("c-programs"));
    kit.as_ref().map_err(|reason| skip(test, reason)).ok()
}

/// The log file of a program that connects two of its endpoints, with the environment and configuration given.
fn log_of(kit: &Kit, name: &str, filter: Option<&str>, config: &str) -> Vec<String> {
    let program = kit.program(name, &["short_of_memory.c"], Language::C99, BINDINGS[2]);
    let path = |end| kit.home().join(format!("{name}.{end}"));
    std::fs::write(path("toml"), config).expect("the directory can be written");
    let log = std::fs::File::create(path("log")).expect("the directory can be written");
    let mut command = kit.command(&program);
    command.env_remove("WARPLINE_LOG").envs(filter.map(|filter| ("WARPLINE_LOG", filter)));
    let status = command.env("WARPLINE_CONFIG", path("toml")).stderr(log).status();
    assert!(status.expect("timeout is there").code().is_some_and(|code| code != 124));
    let log = std::fs::read_to_string(path("log")).expect("it was just made");
    assert!(!log.contains('\x1b'), "colours in a file: {log}");
    log.lines().map(str::to_owned).collect()
}

#[test]
fn logs_have_one_line_per_connection_made_and_one_per_end() {
    let Some(kit) = kit("logs of C programs") else { return };
    for format in ["text", "json"] {
        let config = format!("[log]\nformat = \"{format}\"\n");
        let lines = log_of(kit, &format!("log_{format}"), Some("info"), &config);
        let of = |what: &str| lines.iter().filter(|line| line.contains(what)).collect::<Vec<_>>();
        // Both ends of the connection are in this process.
        let (made, ended) = (of("connected: "), of("disconnected: "));
        let made: Vec<_> = made.into_iter().filter(|line| !ended.contains(line)).collect();
        assert_eq!((made.len(), ended.len()), (2, 2), "{lines:#?}");
        for (role, line) in ["initiator", "responder"].into_iter().zip(&made) {
            assert!(made.iter().any(|line| line.contains(role)), "{role}: {made:#?}");
            for part in ["127.0.0.1:", " <-> ", "IRD 4", "ORD 4", "MPA revision 2", "CRC o"] {
                assert!(line.contains(part), "{part}: {line}");
            }
            assert!(line.contains("markers ") && line.contains("; FPDUs of up to "), "{line}");
        }
        assert!(ended.iter().all(|line| line.contains("127.0.0.1:")), "{ended:#?}");
        let json = |line: &String| line.starts_with('{') && line.ends_with('}');
        assert!(lines.iter().all(|line| json(line) == (format == "json")), "{lines:#?}");
    }
}

#[test]
fn logs_show_warnings_by_default() {
    let Some(kit) = kit("warnings of C programs") else { return };
    let config = "[softrdma]\ncongestion = \"none-such\"\n";
    let has = |lines: &[String], level: &str| lines.iter().any(|line| line.contains(level));
    // Its connection fails for the same reason, and the program prints that.
    let lines = log_of(kit, "log_default", None, config);
    assert!(has(&lines, " WARN ") && !has(&lines, " INFO "), "{lines:#?}");
    let lines = log_of(kit, "log_error", Some("error"), config);
    assert!(!has(&lines, " WARN "), "{lines:#?}");
}

#[test]
fn sizes_offsets_and_values_hold_in_every_language_binding_and_layout() {
    let Some(kit) = kit("the header in C and C++") else { return };
    for file in ["layout.c", "values.c"] {
        for language in Language::ALL {
            for binding in BINDINGS {
                for zurich in [&[][..], &[ZURICH], &[ZURICH, HOST_ORDER]] {
                    let defines = [binding, zurich].concat();
                    kit.accept(file, language, &defines);
                }
            }
        }
    }
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let Some(kit) = kit("exports of libitapi.so") else { return };
    let library = kit.home().join("lib/libitapi.so.2");
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let symbols = listed.lines().filter_map(|line| line.rsplit_once(" T ")).map(|(_, name)| name);
    let mut versions = BTreeMap::new();
    for symbol in symbols {
        let (name, version) = symbol.split_once("@@").expect("every symbol has a version");
        versions.insert(name.to_owned(), version.to_owned());
    }
    // The linker may define symbols for the versions themselves.
    assert!(listed.lines().all(|line| line.contains(" T ") || line.contains(" A ")), "{listed}");
    let declared = declared();
    assert_eq!(versions.keys().collect::<Vec<_>>(), declared.iter().collect::<Vec<_>>());
    for (name, version) in [
        ("it_post_send", "ITAPI_1.0"),
        ("it_srq_create", "ITAPI_2.0"),
        ("it_lmr_create21", "ITAPI_2.1"),
        ("it_post_send_zrl", "ITAPI_ZRL_1"),
        ("itx_aevd_wait", "ITAPI_ZRL_1"),
        ("itw_strerror", "WARPLINE_1"),
    ] {
        assert_eq!(versions[name], version, "{name}");
    }
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libitapi.so.2]"), "{dynamic}");
}

/// Functions declared in the preprocessed header, in the standard layout and in that of the Zurich stack: names
/// that follow a type at the beginning of a line.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for layout in [None, Some("-DITAPI_ZRL_EXTENSIONS")] {
        let header = root().join("itapi/c/include/it_api.h");
        let text = run(Command::new("gcc").args(["-E", "-P"]).args(layout).arg(header));
        let starts = text.split([';', '}']).map(str::trim).filter(|s| !s.starts_with("typedef"));
        let before = starts.filter_map(|s| s.split_once('(')).map(|(before, _)| before);
        let found = before.filter_map(|before| before.trim().rsplit([' ', '*']).next());
        let ours = |name: &&str| ["it_", "itx_", "itw_"].iter().any(|p| name.starts_with(p));
        names.extend(found.filter(ours).map(str::to_owned));
    }
    names
}

/// Every C name in the documentation's table is declared in the header.
#[test]
fn the_table_from_verbs_names_declared_functions() {
    let table = root().join("docs/verbs-to-it-api.md");
    let table = std::fs::read_to_string(table).expect("it is in the tree");
    let declared = root().join("itapi/c/include/itapi");
    let headers = std::fs::read_dir(declared).expect("it is in the tree");
    let headers = headers.map(|entry| std::fs::read_to_string(entry.expect("an entry").path()));
    let headers: String = headers.map(|text| text.expect("headers are text")).collect();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known: BTreeSet<_> = headers.split(|c| !is_word(c)).collect();
    let starts = ["it_", "itw_", "IT_"];
    let words =
        table.split(|c| !is_word(c)).filter(|word| starts.iter().any(|s| word.starts_with(s)));
    let words: BTreeSet<_> = words.filter(|word| *word != "it_api").collect();
    assert!(words.len() > 60, "{words:?}");
    let strange: Vec<_> = words.difference(&known).collect();
    assert!(strange.is_empty(), "not in the header: {strange:?}");
}

#[test]
fn a_program_links_the_archive() {
    let Some(kit) = kit("a program with libitapi.a") else { return };
    let program = kit.static_program("warpline-static", &["warpline.c", "check.c"], BINDINGS[2]);
    run(&mut Command::new(program));
}

#[test]
fn installed_files_are_stripped_with_debug_information_beside_them() {
    let Some(kit) = kit("debug information of libitapi") else { return };
    let sections = |file: &str| {
        run(Command::new("readelf").args(["-S", "-W"]).arg(kit.home().join("lib").join(file)))
    };
    let library = sections("libitapi.so.2.1");
    assert!(!library.contains(".debug_info"), "{library}");
    assert!(library.contains(".gnu_debuglink"), "{library}");
    assert!(sections("libitapi.so.2.1.debug").contains(".debug_info"));
    assert!(!sections("libitapi.a").contains(".debug_info"));
}

#[test]
fn files_for_another_processor_are_installed_as_for_this_one() {
    let gcc = "aarch64-linux-gnu-gcc";
    if Command::new(gcc).arg("--version").output().is_err() {
        return skip("installing for aarch64", missing("gcc-aarch64-linux-gnu"));
    }
    let home = warpline_artifacts::directory().join("c-aarch64");
    std::fs::create_dir_all(&home).expect("the target directory can be written");
    let source = home.join("some.c");
    std::fs::write(&source, "void *malloc(unsigned long); void *some(void) { return malloc(1); }")
        .expect("it was just made");
    let [object, archive, library] =
        ["some.o", "libitapi.a", "libitapi.so"].map(|file| home.join(file));
    run(Command::new(gcc).args(["-g", "-fPIC", "-c", "-o"]).args([&object, &source]));
    run(Command::new("ar").arg("rcs").args([&archive, &object]));
    run(Command::new(gcc).args(["-shared", "-nostdlib", "-o"]).args([&library, &object]));
    let install = root().join("scripts/install");
    run(Command::new(install).arg("--prefix").arg(&home).arg("--from").arg(&home));
    let of = |option: &str, file: &str| {
        run(Command::new("readelf").args([option, "-W"]).arg(home.join("lib").join(file)))
    };
    let symbols = of("-s", "libitapi.a");
    assert!(symbols.contains(" itapi_wrapped_malloc"), "{symbols}");
    assert!(!of("-S", "libitapi.so.2.1").contains(".debug_info"));
    assert!(of("-S", "libitapi.so.2.1.debug").contains(".debug_info"));
}

#[test]
fn uninstalling_removes_what_was_installed() {
    let kit = match Kit::install("c-uninstall") {
        Ok(kit) => kit,
        Err(reason) => return skip("uninstalling the C library", &reason),
    };
    let uninstall = root().join("scripts/install");
    run(Command::new(uninstall).arg("--prefix").arg(kit.home()).arg("--uninstall"));
    let left = run(Command::new("find").arg(kit.home()).args(["-not", "-type", "d"]));
    assert_eq!(left, "");
}

#[test]
fn two_processes_communicate_whatever_they_were_compiled_with() {
    let Some(kit) = kit("ping between C programs") else { return };
    let build = |name: &str, language, defines: &[&str]| {
        kit.program(name, &["ping.c", "check.c"], language, defines)
    };
    let programs = [
        build("ping-c99", Language::C99, BINDINGS[0]),
        build("ping-cpp98", Language::Cpp98, BINDINGS[1]),
        build("ping-cpp17", Language::Cpp17, BINDINGS[2]),
        build("ping-zurich", Language::C99, &[ZURICH]),
        build("ping-zurich-cpp98", Language::Cpp98, &[ZURICH, BINDINGS[2][0]]),
    ];
    for (n, server) in programs.iter().enumerate() {
        let client = &programs[(n + 1) % programs.len()];
        ping(kit.command(server), kit.command(client));
    }
    let [server, client] = [&programs[0], &programs[3]].map(|program| kit.checked_command(program));
    match (server, client) {
        (Ok(server), Ok(client)) => ping(server, client),
        (Err(reason), _) | (_, Err(reason)) => skip("ping under valgrind", &reason),
    }
}

fn ping(mut server: Command, mut client: Command) {
    server.arg("serve").stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut serving = server.spawn().expect("a compiled program starts");
    let mut shown = BufReader::new(serving.stdout.take().expect("it was asked for"));
    let mut port = String::new();
    shown.read_line(&mut port).expect("the server speaks");
    run(client.args(["connect", port.trim()]));
    let mut rest = Vec::new();
    shown.read_to_end(&mut rest).expect("the server ends");
    let status = serving.wait().expect("it is ours");
    check(&format!("{server:?}"), &Output { status, stdout: rest, stderr: Vec::new() });
}

#[test]
fn dtos_complete_exactly_once_while_endpoints_reconnect() {
    let Some(kit) = kit("exactly once") else { return };
    let program = kit.program("exactly_once", &["exactly_once.c"], Language::C99, &[]);
    let seconds = std::env::var("WARPLINE_STRESS_SECONDS").unwrap_or_else(|_| "3".into());
    let seconds = seconds.parse().expect("WARPLINE_STRESS_SECONDS is a number of seconds");
    print!("{}", run(kit.lasting(&program, seconds).arg(seconds.to_string())));
}

/// Compiles and runs the program of an area in a layout, plain and under valgrind.
fn area(name: &str, suffix: &str, language: Language, defines: &[&str]) {
    let Some(kit) = kit(name) else { return };
    let sources = [&format!("{name}.{suffix}"), "check.c"];
    let program = kit.program(name, &sources, language, defines);
    run(&mut kit.command(&program));
    match kit.checked_command(&program) {
        Ok(mut command) => drop(run(&mut command)),
        Err(reason) => skip(&format!("{name} under valgrind"), &reason),
    }
}

#[test]
fn objects_of_cpp_free_themselves_in_every_language() {
    let Some(kit) = kit("itapi.hpp") else { return };
    let header = root().join("itapi/c/include/itapi.hpp");
    let lines = std::fs::read_to_string(header).expect("it is in the tree").lines().count();
    assert!(lines < 400, "itapi.hpp has {lines} lines: it is to be a thin layer");
    for language in Language::CPP {
        let name = format!("raii-{language:?}");
        let program = kit.program(&name, &["raii.cpp", "check.c"], language, &[]);
        run(&mut kit.command(&program));
    }
    kit.accept("raii.cpp", Language::Cpp11, BINDINGS[1]);
    area("raii", "cpp", Language::Cpp17, BINDINGS[2]);
}

/// A test for each area, named after its file in `tests/c`.
macro_rules! areas {
    ($($name:ident: $($define:literal),*;)*) => {$(
        #[test]
        fn $name() {
            area(stringify!($name), "c", Language::C99, &[$($define),*]);
        }
    )*};
}

areas! {
    adapter: "ITAPI_ENABLE_V21_BINDINGS";
    dispatcher: "ITAPI_ENABLE_V21_BINDINGS";
    connection: "ITAPI_ENABLE_V21_BINDINGS";
    convert: "ITAPI_ENABLE_V21_BINDINGS";
    endpoint: "ITAPI_ENABLE_V21_BINDINGS";
    memory: "ITAPI_ENABLE_V21_BINDINGS";
    version10: ;
    post: "ITAPI_ENABLE_V21_BINDINGS";
    datagram: "ITAPI_ENABLE_V21_BINDINGS";
    callers: "ITAPI_ENABLE_V21_BINDINGS";
    host_order: "ITAPI_IANA_PORT_HOST_BYTE_ORDER", "ITAPI_SERVICE_ID_HOST_BYTE_ORDER";
    address: "ITAPI_ENABLE_V21_BINDINGS";
    warpline: "ITAPI_ENABLE_V21_BINDINGS";
    zurich: "ITAPI_ENABLE_V21_BINDINGS", "ITAPI_ZRL_EXTENSIONS";
    application: "ITAPI_ENABLE_V20_BINDINGS", "ITAPI_ZRL_EXTENSIONS";
}
