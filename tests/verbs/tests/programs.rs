//! Tests of unmodified programs on the verbs libraries: the short ones of `programs.toml`, once each.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use verbs_programs::run::{self, Seen};
use verbs_programs::{Libraries, programs, skip, table};

fn row(number: u32) {
    let libraries = Libraries::build();
    let mut failed = Vec::new();
    let programs = programs::all().into_iter();
    for program in programs.filter(|program| program.row == number && program.is_short) {
        match run::once(&libraries, &program) {
            Seen::Works => {}
            Seen::Missing(why) => skip(&format!("{} on the verbs libraries", program.name), &why),
            Seen::Fails(why) => failed.push(format!("{}: {why}", program.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn devices_are_listed() {
    row(1);
}

#[test]
fn programs_of_rdma_cm_run() {
    row(2);
}

#[test]
fn performance_tests_run() {
    row(3);
}

#[test]
fn libfabric_runs() {
    row(4);
}

#[test]
fn programs_without_rdma_cm_run() {
    row(5);
}

#[test]
fn programs_of_third_parties_libraries_run() {
    row(6);
}

#[test]
fn programs_of_rdma_cm_run_on_roce() {
    row(7);
}

#[test]
fn programs_without_rdma_cm_run_on_roce() {
    row(8);
}

#[test]
fn programs_of_datagrams_run_on_roce() {
    row(9);
}

#[test]
fn the_documentation_lists_each_program_as_it_is_run() {
    let missing = table::missing();
    assert!(missing.is_empty(), "cargo run --release -p verbs-programs -- --write\n{missing:#?}");
}
