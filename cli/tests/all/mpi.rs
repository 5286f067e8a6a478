//! MPI on three hosts, which are network namespaces.

use crate::hosts::{HOSTS, MPIS, are_installed, script};

/// Debian's MPICH and Open MPI, over libfabric on both devices and over UCX: `tests/verbs/mpi` verifies that what
/// arrives is what was sent. Each rank has a host name of its own, so no library takes the memory of one host.
#[test]
fn mpi_runs_on_three_hosts() {
    const TEST: &str = "mpi_runs_on_three_hosts";
    if !are_installed(TEST, &[&HOSTS[..], &MPIS[..]].concat()) {
        return;
    }
    if let Some(worked) = script(TEST, "mpi", &["debian"]) {
        assert_eq!(worked, 6);
    }
}
