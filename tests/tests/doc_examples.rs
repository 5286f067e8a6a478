//! Runs the documentation examples of all crates, including those that must not compile.
//!
//! Cargo would run them after the list of skipped tests, so the libraries switch them off (`doctest = false`)
//! and this test runs them.

#![forbid(unsafe_code)]

use std::process::{Command, Stdio};

#[test]
fn documentation_examples_run() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--doc", "--workspace", "--features", "itapi/tokio", "--quiet"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).output();
    let output = output.expect("cargo starts: it started this test");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
