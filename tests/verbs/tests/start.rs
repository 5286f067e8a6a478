//! Tests that programs of Debian start with the verbs libraries when all symbols are bound at once: perftest,
//! rdmacm-utils, ibverbs-utils, qperf, fio, libfabric, UCX, iSER; also a program that loads them itself.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ofa_symbols::Library;
use verbs_programs::{Libraries, libraries, skip};
use vp_api::Provider;
use vp_verbs::{Machine, Verbs};

/// Messages of the loader about a missing symbol or version.
const LOADER: [&str; 4] =
    ["symbol lookup error", "version `", "undefined symbol", "error while loading"];

/// Programs of a package, which print their usage.
fn all_start(package: &str, programs: &[&str]) {
    let libraries = Libraries::build();
    for program in programs {
        let Some(path) = libraries::find(program) else {
            return skip(&format!("{program} starts"), warpline_skip::missing(package));
        };
        starts(&libraries, &path);
    }
}

macro_rules! start {
    ($($name:ident: $package:literal $programs:expr,)*) => {
        $(#[test]
        fn $name() {
            all_start($package, &$programs);
        })*
    };
}

start! {
    utilities_of_libibverbs_start: "ibverbs-utils" ["ibv_devinfo", "ibv_rc_pingpong", "ibv_srq_pingpong",
        "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_xsrq_pingpong", "ibv_devices", "ibv_asyncwatch"],
    utilities_of_librdmacm_start: "rdmacm-utils" ["rping", "ucmatose", "cmtime", "udaddy", "udpong", "mckey",
        "rdma_client", "rdma_server", "rdma_xclient", "rdma_xserver", "rstream", "riostream", "rcopy"],
    perftest_starts: "perftest" ["ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw",
        "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat", "raw_ethernet_bw", "raw_ethernet_lat",
        "raw_ethernet_burst_lat", "raw_ethernet_fs_rate"],
    qperf_starts: "qperf" ["qperf"],
    fio_starts: "fio" ["fio"],
    libfabric_starts: "libfabric-bin" ["fi_info", "fi_pingpong"],
    ucx_starts: "ucx-utils" ["ucx_info", "ucx_perftest"],
    an_iscsi_target_starts: "tgt" ["tgtd"],
    iscsi_initiators_start: "libiscsi-bin" ["iscsi-inq", "iscsi-ls", "iscsi-perf", "iscsi-readcapacity16",
        "iscsi-swp"],
}

fn starts(libraries: &Libraries, program: &Path) {
    // Debian's utilities accept -h or --help; others report an error, after the loader has finished.
    let mut command = libraries.command(program);
    command.arg("--help").env("LD_BIND_NOW", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let shown = [output.stdout, output.stderr].concat();
    let shown = String::from_utf8_lossy(&shown);
    assert!(output.status.code().is_some_and(|code| code != 127), "{command:?}: {shown}");
    assert!(!LOADER.iter().any(|words| shown.contains(words)), "{command:?}: {shown}");
    assert!(shown.to_lowercase().contains("usage") || shown.contains('-'), "{command:?}: {shown}");
}

/// A program in C, compiled; `None`: no compiler.
fn compiled(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let program = test.with_file_name(format!("{name}-{}", std::process::id()));
    let source = libraries::root().join("tests/verbs/c").join(name).with_extension("c");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    let built = cc.arg("-ldl").status().ok()?;
    assert!(built.success(), "{cc:?}");
    Some(program)
}

#[test]
fn a_program_that_loads_the_libraries_finds_each_version() {
    let Some(program) = compiled("dlvsym") else {
        return skip("dlopen and dlvsym of the verbs libraries", warpline_skip::missing("gcc"));
    };
    let libraries = Libraries::build();
    let output = libraries.command(&program).output().unwrap();
    std::fs::remove_file(program).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn devices_of_several_providers_are_in_one_list() {
    if libraries::find("ibv_devices").is_none() {
        return skip("devices of several providers", warpline_skip::missing("ibverbs-utils"));
    }
    let home = std::env::current_exe().unwrap();
    let home = home.with_file_name(format!("providers-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let library = home.join("libvendor_loop.so");
    let sources = libraries::root().join("examples/vendor-provider-c");
    let sources = std::fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.extension().is_some_and(|kind| kind == "c"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-I"]);
    cc.arg(libraries::root().join("vp-api/include")).arg("-o").arg(&library).args(sources);
    match cc.status() {
        Ok(status) => assert!(status.success(), "{cc:?}"),
        Err(_) => return skip("devices of several providers", warpline_skip::missing("gcc")),
    }
    let libraries = Libraries::build();
    let listed = |library: &Path| {
        let mut list = libraries.command("ibv_devices");
        let output = list.env("WARPLINE_PROVIDER_PATH", library).output().unwrap();
        let [said, errors] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let names = said.lines().skip(2).filter_map(|line| line.split_whitespace().next());
        (names.map(str::to_owned).collect::<Vec<_>>(), errors)
    };
    assert_eq!(listed(&library).0, ["softrdma0", "roce0", "vendor_loop"]);
    // One that cannot be used is named, with the reason.
    let other = home.join("libother.so");
    std::fs::rename(&library, &other).unwrap();
    let (devices, errors) = listed(&other);
    std::fs::remove_dir_all(home).unwrap();
    assert_eq!(devices, ["softrdma0", "roce0"]);
    assert!(errors.contains("its name is vendor_loop, not other"), "{errors}");
}

#[test]
fn the_bridge_to_rdma_core_refuses_them() {
    let libraries = Libraries::build();
    let (verbs, rdmacm) = (libraries.file(Library::Ibverbs), libraries.file(Library::Rdmacm));
    let bridge = Verbs::with(vp_verbs::Libraries { verbs, rdmacm }, Machine::default());
    let why = bridge.devices().unwrap_err().to_string();
    assert!(why.contains("Warpline's own library"), "{why}");
}
