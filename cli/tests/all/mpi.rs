//! MPI on three hosts, which are network namespaces.

use std::path::Path;
use std::process::{Command, Stdio};

use verbs_programs::{Libraries, libraries};
use warpline_skip::{NO_NAMESPACES, missing, skip};

/// The status of a script that cannot run here.
const CANNOT: i32 = 77;

/// Debian's MPICH and Open MPI, over libfabric on both devices and over UCX: `tests/verbs/mpi` verifies that what
/// arrives is what was sent. Each rank has a host name of its own, so no library takes the memory of one host.
#[test]
fn mpi_runs_on_three_hosts() {
    const TEST: &str = "mpi_runs_on_three_hosts";
    let tools = [("ip", "iproute2"), ("mpicc.mpich", "libmpich-dev"), ("mpiexec.mpich", "mpich")];
    let further = [("mpicc.openmpi", "libopenmpi-dev"), ("mpirun.openmpi", "openmpi-bin")];
    for (tool, package) in tools.into_iter().chain(further) {
        if libraries::find(tool).is_none() {
            return skip(TEST, missing(package));
        }
    }
    Libraries::build();
    let built = Path::new(env!("CARGO_BIN_EXE_warpline")).parent().unwrap();
    let mut script = Command::new(libraries::root().join("tests/verbs/mpi"));
    script.arg("--from").arg(built).arg("debian").stdin(Stdio::null());
    let output = script.output().unwrap();
    let [said, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    if output.status.code() == Some(CANNOT) {
        eprintln!("{errors}");
        return skip(TEST, NO_NAMESPACES);
    }
    assert!(output.status.success(), "{said}{errors}");
    assert_eq!(said.matches(": works").count(), 6, "{said}");
}
