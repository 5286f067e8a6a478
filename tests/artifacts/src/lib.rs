//! Builds libraries of this tree by cargo, in the profile of the running test and beside it.
//!
//! Owner of the state: cargo, which locks the directory; several tests may build at once.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the tree, from wherever in it this is compiled.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().find(|dir| dir.join("vp-api/include").is_dir()).expect("within the tree")
}

/// Where the running test or program was built: `target/PROFILE`.
pub fn directory() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a path");
    // target/PROFILE/deps/TEST or target/PROFILE/PROGRAM
    let mut above = program.ancestors();
    above.find(|path| path.join(".fingerprint").exists()).expect("cargo built it").to_owned()
}

/// Builds the library of each package; returns [`directory`].
///
/// # Panics
/// If a package does not build, with the compiler's output.
pub fn libraries(packages: &[&str]) -> PathBuf {
    build(&[], packages)
}

/// Builds the command `warpline`, too.
///
/// # Panics
/// As [`libraries`].
pub fn command_and(packages: &[&str]) -> PathBuf {
    build(&["--bin", "warpline"], packages)
}

fn build(further: &[&str], packages: &[&str]) -> PathBuf {
    let directory = directory();
    let mut cargo = Command::new(env!("CARGO"));
    // With the features that the command's dependencies have, whatever is built: nothing is compiled twice.
    cargo.args(["build", "--quiet", "--offline", "--lib", "--package", "warpline"]);
    cargo.args(further);
    cargo.args(packages.iter().flat_map(|package| ["--package", package]));
    cargo.arg("--target-dir").arg(directory.parent().expect("target/PROFILE")).current_dir(root());
    cargo.args(directory.ends_with("release").then_some("--release"));
    let built = cargo.output().unwrap_or_else(|e| panic!("{cargo:?}: {e}"));
    assert!(built.status.success(), "{cargo:?}: {}", String::from_utf8_lossy(&built.stderr));
    directory
}
