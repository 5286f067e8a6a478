//! Tests of a C program over the bridge to rdma-core, with the test double of its libraries: IT-API reports
//! what a device can do, and refuses what it cannot.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpline_tests::c::{Kit, Language, root, run};
use warpline_tests::skip;

/// A directory with the test double under the names of rdma-core.
fn stand_in(name: &str) -> PathBuf {
    let fake = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
    let dir = fake.with_file_name(format!("stand-in-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for soname in ["libibverbs.so.1", "librdmacm.so.1"] {
        symlink(&fake, dir.join(soname)).unwrap();
    }
    dir
}

#[test]
fn it_api_reports_what_the_device_can_do() {
    let kit = match Kit::install("c-hardware") {
        Ok(kit) => kit,
        Err(reason) => return skip("C over hardware", &reason),
    };
    let files = ["hardware.c", "check.c"];
    let program = kit.program("hardware", &files, Language::C99, &["ITAPI_ENABLE_V21_BINDINGS"]);
    let dir = stand_in("c-hardware");
    let libraries = std::env::join_paths([kit.home().join("lib"), dir.clone()]).unwrap();
    // Limits of private data: InfiniBand's, less the octet that removes the padding, and iWARP's.
    for arguments in
        [["fakeib0", "ib", "53", "193", "145"], ["fakeiw0", "iwarp", "251", "251", "251"]]
    {
        run(kit.command(&program).args(arguments).env("LD_LIBRARY_PATH", &libraries));
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn datagrams_go_both_ways_from_c() {
    let kit = match Kit::install("c-datagrams") {
        Ok(kit) => kit,
        Err(reason) => return skip("datagrams from C", &reason),
    };
    let dir = stand_in("c-datagrams");
    let libraries = std::env::join_paths([kit.home().join("lib"), dir.clone()]).unwrap();
    for bindings in ["ITAPI_ENABLE_V21_BINDINGS", "ITAPI_ZRL_EXTENSIONS"] {
        let program = kit.program("ud", &["ud.c", "check.c"], Language::C99, &[bindings]);
        run(kit.command(&program).arg("fakeib0").env("LD_LIBRARY_PATH", &libraries));
        over_roce(&kit, &program);
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// Runs the program with RoCE over UDP, in a network of its own.
fn over_roce(kit: &Kit, program: &Path) {
    let alone = ["--map-root-user", "--net"];
    let can = Command::new("unshare").args(alone).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skip("datagrams from C over RoCE", warpline_skip::NO_NAMESPACES);
    }
    let mut command = kit.command(Path::new("unshare"));
    command.args(alone).args(["sh", "-c", "ip link set lo up && exec \"$0\" vp_roce"]).arg(program);
    run(&mut command);
}

/// A provider can be built with only the installed header and a C compiler.
#[test]
fn the_installed_header_builds_a_provider() {
    let kit = match Kit::install("c-provider") {
        Ok(kit) => kit,
        Err(reason) => return skip("a provider from the installed header", &reason),
    };
    let sources = root().join("examples/vendor-provider-c");
    let names = ["provider.c", "memory.c", "cq.c", "qp.c", "cm.c", "calls.c"];
    let library = kit.home().join("libvendor_loop.so");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fPIC", "-shared"]);
    gcc.arg("-fvisibility=hidden").arg("-I").arg(kit.home().join("include"));
    gcc.arg("-o").arg(&library).args(names.map(|name| sources.join(name))).arg("-pthread");
    run(&mut gcc);
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    assert_eq!(symbols.lines().count(), 2, "{symbols}");
}
