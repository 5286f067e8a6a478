//! Programs of PyPI, which `tests/verbs/wheels/install` installs below the target directory, once for all tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use warpline_skip::Reason;

use crate::libraries::root;

/// The exit status of a script that cannot do its work here.
const CANNOT: i32 = 77;

/// The Python environment with the packages of a list.
///
/// # Errors
/// Why they cannot be installed here, as without a network.
pub fn install(list: &str) -> Result<PathBuf, Reason> {
    // One at a time: several tests may need a list.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let script = root().join("tests/verbs/wheels/install");
    let output = Command::new(&script).arg(list).output().expect("a script of the tree");
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end())),
        Some(CANNOT) => Err(said.lines().last().unwrap_or_default().to_owned().into()),
        _ => panic!("{}: {said}", script.display()),
    }
}
