//! Reports tests that cannot run here, at once and again at the end of the whole run.
//!
//! Test programs are separate processes, so the list is a file: `WARPLINE_SKIPS`, or `warpline-skips.txt` in
//! the target directory. Each line has the process id of the runner (the parent of every test program), so that
//! lists of earlier or concurrent runs do not mix. The test target `zz_skips` of `warpline-tests` prints it and
//! is the last that cargo runs, by package name and then by target name. Documentation examples would come
//! later, so they run as the test `doc_examples` instead; `spec arrows` asserts both.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::process::parent_id;
use std::path::PathBuf;

/// Environment variable with the runner's process id, for a child of a test program.
pub const RUN: &str = "WARPLINE_SKIPS_RUN";

/// Path of the list of skipped tests.
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
    let reason = reason.trim().replace('\n', "; ");
    let line = format!("{}\t{test}: {reason}\n", run());
    if let Ok(mut f) = std::fs::OpenOptions::new().create(true).append(true).open(file()) {
        // A lost line only shortens the summary; the line above was printed.
        let _ = f.write_all(line.as_bytes());
    }
}

/// The skipped tests of this run, sorted: `test: reason`.
pub fn of_this_run() -> BTreeSet<String> {
    let text = std::fs::read_to_string(file()).unwrap_or_default();
    of_run(run(), &text)
}

/// The runner's process id. A test program that runs itself again passes it to that child.
pub fn run() -> u32 {
    let named = std::env::var(RUN).ok().and_then(|id| id.parse().ok());
    named.unwrap_or_else(parent_id)
}

fn of_run(run: u32, text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|l| l.split_once('\t'));
    lines.filter(|(id, _)| *id == run.to_string()).map(|(_, skip)| skip.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_runs_are_separate_and_lines_do_not_repeat() {
        let text = "7\ta: no tool\n8\tb: no root\n7\ta: no tool\nbroken line\n77\tc: x\n";
        assert_eq!(of_run(7, text).into_iter().collect::<Vec<_>>(), ["a: no tool"]);
        assert!(of_run(9, text).is_empty());
    }
}
