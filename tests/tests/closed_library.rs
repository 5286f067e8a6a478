//! Test that `dlclose` of the C library leaves it mapped, because its threads continue to run.

#![forbid(unsafe_code)]

use warpline_tests::c::{Kit, Language, run};
use warpline_tests::skip;

#[test]
fn a_closed_library_stays_mapped_while_its_threads_run() {
    let kit = match Kit::install("c-closed") {
        Ok(kit) => kit,
        Err(reason) => return skip("closing the C library", &reason),
    };
    let binding = &["ITAPI_ENABLE_V21_BINDINGS"];
    let program = kit.program("closed_library", &["closed_library.c"], Language::C99, binding);
    run(kit.command(&program).arg(kit.home().join("lib/libitapi.so.2")));
}
