//! Tests of `scripts/runner` with programs that print what Rust's test harness prints.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RUNNER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/runner");

/// Directories of results as cargo makes them, and of what a run skips.
struct Target(PathBuf);

impl Target {
    fn new(name: &str) -> Self {
        let home = std::env::temp_dir().join(format!("warpline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(home.join("debug/deps")).unwrap();
        Self(home)
    }

    /// Runs a program of the shell as a test program of one run of cargo.
    fn run(&self, program: &str, script: &str) -> Output {
        let program = self.0.join("debug").join(program);
        std::fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir_all(self.skips()).unwrap();
        let mut runner = Command::new(RUNNER);
        runner.env("WARPLINE_SKIPS", self.skips()).env_remove("WARPLINE_SKIPPED");
        runner.arg(program).output().unwrap()
    }

    fn summary(&self) -> String {
        text(&Command::new(RUNNER).arg("--summary").arg(self.skips()).output().unwrap())
    }

    fn skips(&self) -> PathBuf {
        self.0.join("skips")
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SKIPS: &str = r"
printf 'a::one\tsocat is not installed\tscripts/setup\n' >>$WARPLINE_SKIPPED
printf 'a::one\tsocat is not installed\tscripts/setup\n' >>$WARPLINE_SKIPPED
echo 'test a::one ... ok'
echo 'test a::two ... ok'
printf 'a::three\tnot root\t\n' >>$WARPLINE_SKIPPED
echo 'test a::three ... ok'
echo 'test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s'
";

/// As with `--test-threads=1`.
const ALONE: &str = r"
printf '?this\tnot root\t\n?that\tnot root\t\n' >>$WARPLINE_SKIPPED
printf 'test a::one ... SKIPPED\tnot root\nSKIPPED\tnot root\nok\n'
printf 'test a::two ... ok\n'
printf 'test a::three ... SKIPPED\tnot root\nFAILED\n'
echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s'
";

const FAILS: &str = r"
printf 'b\tsocat is not installed\tscripts/setup\n' >>$WARPLINE_SKIPPED
echo 'test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s'
exit 101
";

#[test]
fn a_skipped_test_is_not_counted_as_passed_with_one_thread() {
    let target = Target::new("alone");
    let expected = [
        "test a::one ... ignored, not root",
        "test a::two ... ok",
        "test a::three ... FAILED",
        "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.00s",
    ];
    assert_eq!(text(&target.run("deps/first", ALONE)).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_skipped_test_is_not_counted_as_passed() {
    let target = Target::new("skips");
    let output = target.run("deps/first", SKIPS);
    assert!(output.status.success());
    let expected = [
        "test a::one ... ignored, socat is not installed",
        "test a::two ... ok",
        "test a::three ... ignored, not root",
        "test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 4 filtered out; finished in 0.00s",
    ];
    assert_eq!(text(&output).lines().collect::<Vec<_>>(), expected);
    let output = target.run("deps/second", FAILS);
    assert_eq!(output.status.code(), Some(101));
    assert!(text(&output).contains("4 passed; 2 failed; 1 ignored;"), "{}", text(&output));
    let expected = [
        "  not root: 1 test",
        "  socat is not installed: 2 tests; scripts/setup",
        "5 passed, 2 failed, 3 skipped",
    ];
    assert_eq!(target.summary().lines().collect::<Vec<_>>(), expected);
}

/// `cargo run` starts its program so, too.
#[test]
fn a_program_that_is_no_test_replaces_the_runner() {
    let target = Target::new("program");
    let output = target.run("program", "echo $PPID ${WARPLINE_SKIPPED-none}; exit 3");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output), format!("{} none\n", std::process::id()));
    assert!(Path::new(&target.skips()).read_dir().unwrap().next().is_none());
}
