//! Building provider libraries for tests: by cargo, and by the C compiler alone.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use warpline_artifacts::{directory, root};

/// The library of a crate, built beside this test.
pub(crate) fn cargo(package: &str, library: &str) -> PathBuf {
    warpline_artifacts::libraries(&[package]).join(format!("lib{library}.so"))
}

/// Flags of the vendor's Makefile.
const FLAGS: &[&str] =
    &["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fPIC", "-shared", "-pthread"];

/// Compiles the C sources of `dir`, with `headers` for rnicpi.h, to `library`; `None` if there is no
/// compiler.
pub(crate) fn c(dir: &Path, headers: &Path, library: &Path) -> Option<()> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|e| e == "c"));
    let mut command = Command::new("cc");
    command.args(FLAGS).arg("-fvisibility=hidden").arg("-I").arg(headers);
    command.arg("-o").arg(library).args(sources);
    let status = command.status().ok()?;
    assert!(status.success(), "{command:?}");
    Some(())
}

/// The vendor's provider of C.
pub(crate) fn vendor_c() -> PathBuf {
    root().join("examples/vendor-provider-c")
}

/// The header as it is.
pub(crate) fn headers() -> PathBuf {
    root().join("vp-api/include")
}

/// A new empty directory for this test, beside the test programs.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = directory().join("provider-tests").join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
