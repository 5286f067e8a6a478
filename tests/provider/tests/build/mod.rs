//! Building provider libraries for tests: by cargo, and by the C compiler alone.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the tree.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// Where this test program was built: `target/PROFILE`.
pub(crate) fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

/// Builds the library of a crate beside this test.
pub(crate) fn cargo(package: &str, library: &str) -> PathBuf {
    let target = target();
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--offline", "--package", package, "--target-dir"]);
    command.arg(target.parent().unwrap()).current_dir(root());
    if target.ends_with("release") {
        command.arg("--release");
    }
    assert!(command.status().unwrap().success(), "{package}");
    target.join(format!("lib{library}.so"))
}
