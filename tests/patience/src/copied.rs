//! Copies of programs that tests run.

use std::path::Path;
use std::process::Command;

/// Copies a program, for another user or with other rights, so that the copy can be run at once.
///
/// By cp(1): this process never has the copy open for writing. Otherwise a child that another thread has just forked
/// could have inherited that, and `exec` of the copy would fail with `ETXTBSY`.
///
/// # Panics
/// If there is no cp(1), or it fails.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").args([from.as_ref(), to.as_ref()]).status();
    assert!(copied.is_ok_and(|status| status.success()), "cp to {}", to.as_ref().display());
}
