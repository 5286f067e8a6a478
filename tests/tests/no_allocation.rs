//! Test that posting and dequeuing in the C library allocate nothing: a C program counts its thread's
//! allocations, alone and on busy processors.

#![forbid(unsafe_code)]

use warpline_tests::c::{Kit, Language, run};
use warpline_tests::skip;

#[test]
fn posting_and_dequeuing_allocate_nothing() {
    let kit = match Kit::install("c-no-allocation") {
        Ok(kit) => kit,
        Err(reason) => return skip("posting and dequeuing allocate nothing", &reason),
    };
    let files = ["no_allocation.c", "check.c"];
    let program =
        kit.program("no_allocation", &files, Language::C99, &["ITAPI_ENABLE_V21_BINDINGS"]);
    run(&mut kit.command(&program));
}
