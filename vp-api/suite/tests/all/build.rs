//! Building provider libraries for tests: by cargo, and by the C compiler alone.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the tree, from wherever in it this is compiled.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().find(|dir| dir.join("vp-api/include").is_dir()).unwrap()
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
    let dir = target().join("provider-tests").join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
