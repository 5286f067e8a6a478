//! Runs rdma-core's own tests, which Debian's package python3-pyverbs has, on SoftRDMA and on RoCE.
//!
//! They are for adapters with InfiniBand's semantics; tests for devices of one vendor skip. Each test that fails here
//! is named below with its reason, and no other may fail.

use std::path::{Path, PathBuf};
use std::process::Command;

use verbs_programs::Libraries;
use warpline_skip::skip;

use crate::support::{run, text};

/// Where Debian installs them, some compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";
/// Debian's, for which pyverbs is compiled.
const PYTHON: &str = "/usr/bin/python3";

/// A process cannot use another's context: there is no kernel that has it.
const NO_SHARED_CONTEXTS: &[&str] = &["test_imported_"];

/// By a part of the name, what fails or may fail on iWARP.
const NOT_ON_IWARP: &[&str] = &[
    "test_imported_",
    // A Write completes when it is sent, not when it is placed or refused (RFC 5040 section 5.1). These read the
    // peer's memory after the completion, or expect the refusal in it.
    "_write",
    "_mw",
    "test_mr_rereg_access",
    // Nor does a Send report that the peer's receive was of no use.
    "test_mr_rereg_addr",
    "test_mr_rereg_pd",
    // The connection manager of iWARP has no response before the establishment, and no datagrams.
    "test_rdmacm_async_traffic_external_qp",
    "test_rdmacm_async_udp_traffic",
];

/// A copy of the tests, in a directory of its own.
struct Unpacked(PathBuf);

impl Unpacked {
    /// `None`, after saying why: they are not here.
    fn new(test: &str) -> Option<Self> {
        let has_module = Command::new(PYTHON).args(["-c", "import pyverbs.device"]).output();
        if !has_module.is_ok_and(|output| output.status.success()) {
            skip(test, warpline_skip::missing("python3-pyverbs"));
            return None;
        }
        if !Path::new(TESTS).is_dir() {
            skip(test, "python3-pyverbs was installed without its documents, which have the tests");
            return None;
        }
        let name = format!("rdma-core-{test}-{}", std::process::id());
        let copy = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        std::fs::create_dir_all(copy.0.join("tests")).unwrap();
        let entries = std::fs::read_dir(TESTS).unwrap().map(Result::unwrap);
        // Python may have added a directory of compiled files.
        for file in entries.filter(|entry| entry.path().is_file()) {
            std::fs::copy(file.path(), copy.0.join("tests").join(file.file_name())).unwrap();
        }
        let unpacked = Command::new("gzip").args(["-d", "-r", "-f"]).arg(&copy.0).output().unwrap();
        assert!(unpacked.status.success(), "{}", text(&unpacked.stderr));
        Some(copy)
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs all tests on a device; at least `works` pass, and only tests with such names fail.
fn all_pass(options: &[&str], device: &str, works: usize, but: &[&str]) {
    let Some(copy) = Unpacked::new(&format!("on_{device}")) else { return };
    Libraries::build();
    let program = copy.0.join("tests/run_tests.py");
    let command = ["--", PYTHON, program.to_str().unwrap(), "--dev", device, "-v"];
    let output = run(&[&["run"], options, &command].concat());
    let shown = text(&output.stderr);
    let named = |kind: &str| {
        let names = shown.lines().filter_map(|line| line.strip_prefix(kind)?.split(' ').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let failed = [named("ERROR: "), named("FAIL: ")].concat();
    let unexpected: Vec<_> =
        failed.iter().filter(|name| !but.iter().any(|part| name.contains(part))).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}\n{shown}");
    let passed = shown.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(passed >= works, "{passed} tests of rdma-core passed\n{shown}");
}

#[test]
fn tests_of_rdma_core_pass_on_roce() {
    all_pass(&["--roce"], "roce0", 78, NO_SHARED_CONTEXTS);
}

#[test]
fn tests_of_rdma_core_pass_on_iwarp() {
    all_pass(&["--iwarp"], "softrdma0", 45, NOT_ON_IWARP);
}
