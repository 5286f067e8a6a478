//! Finds a program on `$PATH`, as a shell does.

use std::ffi::OsStr;
use std::fs::metadata;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{CliError, CliResult, Exit};

/// A name with a slash is a path; others are looked for in `PATH`.
pub(super) fn find(name: &OsStr) -> CliResult<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 || path.is_absolute() {
        return usable(path).map(|()| path.to_owned());
    }
    let places = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&places).map(|place| place.join(path));
    all.find(|path| usable(path).is_ok()).ok_or_else(|| {
        CliError::new(Exit::NoProgram, format!("there is no program {}", path.display()))
            .at("run")
            .because("it is in no directory of PATH")
            .hint("give its path, or install it: `scripts/setup` knows the usual verbs programs")
    })
}

fn usable(path: &Path) -> CliResult<()> {
    let failed =
        |exit, why: &str| Err(CliError::new(exit, format!("{}: {why}", path.display())).at("run"));
    match metadata(path) {
        Err(error) => failed(Exit::NoProgram, &error.to_string()),
        Ok(found) if found.is_dir() => failed(Exit::NotStarted, "it is a directory"),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            failed(Exit::NotStarted, "it is not executable")
        }
        Ok(_) => Ok(()),
    }
}
