//! Tests of vendor calls: applications in C and Rust use those of provider libraries in C and Rust; the
//! built-in provider has none.

#![allow(clippy::unwrap_used)] // a test fails loudly

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;

use itapi::{Config, Error, Ia, VendorCalls, VpStatus};
use warpline_tests::c::{Kit, Language, root, run};
use warpline_tests::skip;

/// The library of the example in C; `None`: no compiler.
fn of_c(dir: &Path) -> Option<PathBuf> {
    let library = dir.join("libvendor_loop.so");
    let sources = root().join("examples/vendor-provider-c");
    let names = ["provider.c", "memory.c", "cq.c", "qp.c", "cm.c", "calls.c"];
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-I"]);
    cc.arg(root().join("vp-api/include")).arg("-o").arg(&library);
    let built = cc.args(names.map(|name| sources.join(name))).status().ok()?;
    assert!(built.success(), "{cc:?}");
    Some(library)
}

/// The library of the example in Rust.
fn of_rust() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap().join("vendor-provider-rust");
    let manifest = root().join("examples/vendor-provider-rust/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline", "--manifest-path"]).arg(manifest);
    run(cargo.arg("--target-dir").arg(&target));
    target.join("debug/libvendor_mirror.so")
}

/// A new directory for a test, beside the test programs.
fn scratch(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let dir = test.with_file_name(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// The table of `vendor_loop_calls.h`.
#[repr(C)]
struct Counters {
    made: unsafe extern "C" fn(*mut c_void) -> u32,
    queue_pairs: unsafe extern "C" fn(*mut c_void) -> u32,
}

fn counts(calls: &VendorCalls) -> (u32, u32) {
    // SAFETY: the table of this name is `Counters`, and `calls` keeps the adapter open.
    let counters = unsafe { calls.table().cast::<Counters>().as_ref() };
    // SAFETY: the context came with the table.
    let made = unsafe { (counters.made)(calls.context()) };
    // SAFETY: the same.
    (made, unsafe { (counters.queue_pairs)(calls.context()) })
}

fn used_from_rust(library: &Path, device: &str, wrap: &str) {
    let text = format!(
        "[providers]\nlibraries = {{ {device} = {:?} }}\n{wrap}\n",
        library.display().to_string()
    );
    let ia = Ia::builder()
        .config(Config::parse(&text, Path::new("test")).unwrap())
        .device(device)
        .open()
        .unwrap();
    let name = format!("{device}.counters/1");
    let calls = ia.vendor_calls(&name).unwrap();
    let (before, _) = counts(&calls);
    let pz = ia.pz().unwrap();
    let evd = ia.evd(8).unwrap();
    let ep = pz.ep(&evd).build().unwrap();
    assert_eq!(counts(&calls).1, 1, "{device}");
    let why = ia.vendor_calls("nobody.has/7").unwrap_err();
    let Error::Access(refusal) = &why else { panic!("{why:?}") };
    assert_eq!(refusal.verb_status(), Some(VpStatus::Unsupported));
    assert!(why.to_string().contains("`nobody.has/7`"), "{why}");
    assert!(why.to_string().contains(&name), "{why}");
    // The table keeps the adapter open, and any thread may use it.
    drop((ep, evd, pz, ia));
    let after = std::thread::scope(|scope| scope.spawn(|| counts(&calls)).join().unwrap());
    assert!(after.0 > before && after.1 == 0, "{device}: {before} {after:?}");
}

#[test]
fn an_application_in_rust_uses_vendor_calls() {
    let dir = scratch("vendor-calls");
    match of_c(&dir) {
        Some(library) => {
            used_from_rust(&library, "vendor_loop", "");
            used_from_rust(&library, "vendor_loop", "wrap = [\"trace\", \"stats\"]");
        }
        None => skip("vendor calls of a provider in C", warpline_skip::missing("gcc")),
    }
    used_from_rust(&of_rust(), "vendor_mirror", "");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn an_application_in_c_uses_vendor_calls() {
    let kit = match Kit::install("c-vendor-calls") {
        Ok(kit) => kit,
        Err(reason) => return skip("vendor calls from C", &reason),
    };
    let bindings = &["ITAPI_ENABLE_V21_BINDINGS"];
    let files = ["vendor_calls.c", "check.c"];
    let program = kit.program("vendor_calls", &files, Language::C99, bindings);
    let libraries = [(of_c(kit.home()).unwrap(), "vendor_loop"), (of_rust(), "vendor_mirror")];
    for (library, device) in libraries {
        let mut command = kit.command(&program);
        command.args([device, &format!("{device}.counters/1")]);
        run(command.env("WARPLINE_PROVIDER_PATH", library));
    }
    // Built in.
    run(kit.command(&program).arg("vp_softrdma"));
}
