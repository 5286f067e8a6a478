//! Prints what was skipped, and why, at the end of `cargo test --workspace`.
//!
//! Not a test but the last program that cargo runs in a test run, see `warpline_skip`.

#![forbid(unsafe_code)]

use std::process::Command;

fn main() {
    // List no test if the runner only lists tests.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    // Absent: it was not started by cargo.
    let Some(run) = std::env::var_os("WARPLINE_SKIPS") else { return };
    let mut summary = Command::new(warpline_artifacts::root().join("scripts/runner"));
    let status = summary.arg("--summary").arg(run).status();
    assert!(status.is_ok_and(|status| status.success()), "{summary:?}");
}
