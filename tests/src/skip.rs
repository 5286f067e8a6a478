//! Tests that cannot run here say so.

use std::io::Write;
use std::path::PathBuf;

/// Where skips are collected so that the end of a test run can list them: the file that
/// `WARPLINE_SKIPS` names, else `warpline-skips.txt` in the target directory.
pub fn file() -> PathBuf {
    std::env::var_os("WARPLINE_SKIPS").map_or_else(
        || {
            let exe = std::env::current_exe().unwrap_or_default();
            // target/PROFILE/deps/test-HASH -> target
            let target = exe.ancestors().nth(3).map(PathBuf::from).unwrap_or_default();
            target.join("warpline-skips.txt")
        },
        PathBuf::from,
    )
}

/// Reports that `test` cannot run here and why; the caller returns right after.
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED: {test}: {reason}");
    let line = format!("{test}: {reason}\n");
    if let Ok(mut f) = std::fs::OpenOptions::new().create(true).append(true).open(file()) {
        // A lost line only shortens the summary; the line above is already out.
        let _ = f.write_all(line.as_bytes());
    }
}
