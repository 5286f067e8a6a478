//! Programs on several hosts, which are network namespaces, and the page that says how to run them there.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use verbs_programs::process::Process;
use verbs_programs::{Libraries, libraries};
use warpline_skip::{NO_NAMESPACES, missing, skip};

use crate::support::text;

/// The status of a script that cannot run here.
const CANNOT: i32 = 77;

/// Runs a script of `tests/verbs` with the built command; returns how many of its programs worked, all of them. `None`:
/// it is reported that the test is skipped.
pub(crate) fn script(test: &str, name: &str, arguments: &[&str]) -> Option<usize> {
    // One at a time: ranks of MPI poll without a pause, and there may be more of them than processors.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    Libraries::build();
    let built = Path::new(env!("CARGO_BIN_EXE_warpline")).parent().unwrap();
    let mut script = Command::new(libraries::root().join("tests/verbs").join(name));
    script.arg("--from").arg(built).args(arguments).stdin(Stdio::null());
    let output = script.output().unwrap();
    let [said, errors] = [output.stdout, output.stderr].map(|octets| text(&octets));
    if output.status.code() == Some(CANNOT) {
        eprintln!("{errors}");
        skip(test, NO_NAMESPACES);
        return None;
    }
    assert!(output.status.success(), "{said}{errors}");
    Some(said.matches(": works").count())
}

/// Whether all of these are installed, with the packages that have them; otherwise the test is reported as skipped.
pub(crate) fn are_installed(test: &str, programs: &[(&str, &str)]) -> bool {
    let absent = programs.iter().find(|(program, _)| libraries::find(program).is_none());
    if let Some((_, package)) = absent {
        skip(test, missing(package));
    }
    absent.is_none()
}

pub(crate) const HOSTS: [(&str, &str); 2] = [("ip", "iproute2"), ("nft", "nftables")];
const PAIRS: [(&str, &str); 3] =
    [("rping", "rdmacm-utils"), ("ib_send_lat", "perftest"), ("ucx_perftest", "ucx-utils")];
pub(crate) const MPIS: [(&str, &str); 4] = [
    ("mpicc.mpich", "libmpich-dev"),
    ("mpiexec.mpich", "mpich"),
    ("mpicc.openmpi", "libopenmpi-dev"),
    ("mpirun.openmpi", "openmpi-bin"),
];

/// Each of them behind the packet filter of the page.
#[test]
fn the_lines_of_the_page_run() {
    const TEST: &str = "the_lines_of_the_page_run";
    if !are_installed(TEST, &[&HOSTS[..], &PAIRS[..], &MPIS[..]].concat()) {
        return;
    }
    let page = page();
    let blocks = page.matches("```console\n").count();
    if let Some(worked) = script(TEST, "hosts", &["hosts.md"]) {
        assert_eq!(worked, blocks);
    }
}

/// By rdma_cm and by path on both devices, and UCX, on a network that loses packets.
#[test]
fn programs_run_where_packets_are_lost() {
    const TEST: &str = "programs_run_where_packets_are_lost";
    if !are_installed(TEST, &[&HOSTS[..], &PAIRS[..]].concat()) {
        return;
    }
    let lossy = ["--mtu", "9000", "--loss", "debian"];
    for (some, count) in [("rping", 2), ("ib_send_bw", 4), ("ucp_put_bw", 1)] {
        let Some(worked) = script(TEST, "hosts", &[&lossy[..], &[some]].concat()) else { return };
        assert_eq!(worked, count, "{some}");
    }
}

fn page() -> String {
    std::fs::read_to_string(libraries::root().join("docs/hosts.md")).unwrap()
}

/// Kinds, names and types of the fields that their definitions require, by a parser of YAML. The operator's launcher
/// starts ranks as a line of the page does.
#[test]
fn the_manifests_of_the_page_have_their_form() {
    const TEST: &str = "the_manifests_of_the_page_have_their_form";
    // Debian's: another one in PATH does not have its packages.
    const PYTHON: &str = "/usr/bin/python3";
    let has_yaml = Command::new(PYTHON).args(["-c", "import yaml"]).output();
    if !has_yaml.is_ok_and(|output| output.status.success()) {
        return skip(TEST, missing("python3-yaml"));
    }
    let root = libraries::root();
    let mut check = Command::new(PYTHON);
    check.arg(root.join("tests/verbs/manifests.py")).arg(root.join("docs/hosts.md"));
    let mut check = Process::start(check).unwrap();
    let status = check.wait(warpline_patience::HANG);
    assert!(status.is_some_and(|status| status.success()), "{}", check.printed());
}
