//! The examples in the documentation of all crates, those that must not compile included.
//!
//! Cargo would run them after every other test, behind the list of what was skipped, so the
//! libraries switch them off (`doctest = false`) and this test asks for them.

#![forbid(unsafe_code)]

use std::process::{Command, Stdio};

#[test]
fn documentation_examples_do_what_they_say() {
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
