//! Rules of the house that a compiler cannot check: where `unsafe` may stand, how long a file
//! may be, what must never be in the tree.

use crate::source::{Language, Source};

/// Files and directories that may contain `unsafe`.
const UNSAFE: &[&str] = &[
    "state-page/src/record_ref.rs",
    "vp-api/src/abi/",
    "vp-api/src/mem.rs",
    "vp-api/src/vendor.rs",
    "kal-shim/src/",
    "kal-shim/os/src/discard.rs",
    "kal-shim/os/src/exit.rs",
    "kal-shim/os/src/fork.rs",
    "kal-shim/os/src/fork/",
    "kal-shim/os/src/thread.rs",
    "kal-shim/os/src/udp.rs",
    "kal-shim/os/src/udp/segments.rs",
    "shm-ring/src/memory.rs",
    "shm-ring/src/octets.rs",
    "shm-ring/src/copy.rs",
    "shm-ring/src/companion.rs",
    "shm-ring/src/end.rs",
    "vp-soft/src/memory/place.rs",
    "vp-soft/src/memory/segments.rs",
    "vp-soft/src/memory/stag_table.rs",
    "vp-soft/src/memory/unmapped.rs",
    "vp-soft/src/memory/unmapped/handler.rs",
    "vp-soft/src/memory/unmapped/tables.rs",
    "vp-soft/src/queue/cq_ring.rs",
    "vp-soft/src/queue/ring.rs",
    // Fixtures: memory that an application would hand out.
    "vp-soft/src/testing.rs",
    "vp-softrdma/src/qp/combining.rs",
    "vp-softrdma/src/stream/crc/copier.rs",
    "vp-softrdma/src/stream/crc/fold.rs",
    "vp-softrdma/src/stream/local.rs",
    "vp-softrdma/src/stream/registered.rs",
    "vp-softrdma/src/stream/socket.rs",
    "vp-verbs/src/",
    // Types of C functions.
    "vp-verbs/sys/src/lib.rs",
    "vp-verbs/sys/src/whole.rs",
    // Plays what a provider in C gets wrong.
    "vp-api/suite/seeded/src/border.rs",
    // Plays a C library.
    "tests/fake-verbs/src/",
    "itapi/c/src/",
    // Functions that C calls, and what it hands over.
    "ofa/src/",
    // Takes the place of functions of the C library.
    "ofa/view/src/",
    "sockets/src/calls/",
    "sockets/src/discard.rs",
    "sockets/src/kernel.rs",
    "sockets/src/next.rs",
    "sockets/src/process.rs",
    "sockets/src/ring/",
    "sockets/src/record.rs",
    // Calls of a ring, which takes raw pointers.
    "fuzz/bodies/src/ring_peer/ends.rs",
    // A program that plays an application, as tests do.
    "benches/src/bin/micro.rs",
    "benches/src/bin/instructions/verbs.rs",
    "benches/src/bin/ring_copy.rs",
    // A provider touches registered memory.
    "examples/vendor-provider-rust/src/copy.rs",
    // Functions that C calls.
    "examples/vendor-provider-rust/src/counters.rs",
];

/// Crates whose tests may contain `unsafe`: they play an application that hands out memory.
const UNSAFE_TESTS: &[&str] = &[
    "kal-shim/",
    "ofa/",
    "shm-ring/",
    "sockets/",
    "tests/",
    "ual/",
    "vp-api/",
    "vp-soft/",
    "vp-softrdma/",
    "vp-verbs/",
];

/// Crate roots that must have `forbid(unsafe_code)`.
const SAFE: &[&str] = &[
    "vp-softrdma/proto/src/lib.rs",
    "vp-roce/src/lib.rs",
    "vp-roce/proto/src/lib.rs",
    "vp-hooks/src/lib.rs",
    "ual/src/lib.rs",
    "ual/cm/src/lib.rs",
    "itapi/src/lib.rs",
    "channel/src/lib.rs",
    "cli/src/main.rs",
    "examples/src/lib.rs",
    "spec/src/lib.rs",
    "spec/src/main.rs",
    "ofa/symbols/src/lib.rs",
    "tests/verbs/src/lib.rs",
    "tests/src/lib.rs",
    "vp-api/suite/src/lib.rs",
    "tests/skip/src/lib.rs",
];

/// Text that must not be in any file, and why.
const UNWANTED: &[(&str, &str)] = &[
    ("TODO", "unfinished work does not belong into the tree"),
    ("FIXME", "unfinished work does not belong into the tree"),
    ("XXX", "unfinished work does not belong into the tree"),
    ("#[ignore", "a test runs, or skips visibly with a reason"),
    ("allow(dead_code)", "code that nobody calls is removed"),
    ("todo!(", "unfinished work does not belong into the tree"),
    ("unimplemented!(", "unfinished work does not belong into the tree"),
    ("/work/", "paths of one machine"),
    ("/tmp/", "paths of one machine; ask the system for a temporary directory"),
    ("/root/", "paths of one machine"),
    ("/home/", "paths of one machine"),
];

/// Lines of a file without its tests.
const LONGEST: usize = 800;

/// This file quotes what it forbids.
const OWN: &str = "spec/src/lints/house.rs";

/// One line per broken rule.
pub fn findings(sources: &[Source]) -> Vec<String> {
    let ours = || sources.iter().filter(|s| s.path != OWN);
    let mut out: Vec<String> = ours().flat_map(unwanted).collect();
    out.extend(ours().flat_map(misplaced_unsafe));
    out.extend(ours().filter_map(too_long));
    out.extend(SAFE.iter().filter_map(|root| unguarded(sources, root)));
    out
}

fn unwanted(source: &Source) -> Vec<String> {
    let mut out = Vec::new();
    for (n, line) in source.lines.iter().enumerate() {
        let found = UNWANTED.iter().filter(|(text, _)| line.contains(text));
        out.extend(found.map(|(text, why)| format!("{}:{}: {text}: {why}", source.path, n + 1)));
    }
    out
}

fn misplaced_unsafe(source: &Source) -> Vec<String> {
    let under = |list: &[&str]| list.iter().any(|at| source.path.starts_with(at));
    if under(UNSAFE) || source.language != Language::Rust {
        return Vec::new();
    }
    let (tests, may_test) = (source.test_lines(), under(UNSAFE_TESTS));
    let is_word = |n: &usize| !(may_test && tests[*n]) && has_word(source.split(*n).0, "unsafe");
    let lines = (0..source.lines.len()).filter(is_word);
    lines.map(|n| format!("{}:{}: unsafe outside of its few files", source.path, n + 1)).collect()
}

/// Whether `word` stands in `code` by itself and outside of a string on that line.
fn has_word(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        let quoted = before.matches('"').count() % 2 == 1;
        !quoted && !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

fn too_long(source: &Source) -> Option<String> {
    let lines = source.test_lines().iter().filter(|&&test| !test).count();
    let what = || format!("{}: {lines} lines; {LONGEST} at most", source.path);
    (lines > LONGEST).then(what)
}

fn unguarded(sources: &[Source], root: &str) -> Option<String> {
    let file = sources.iter().find(|s| s.path == root)?;
    let guarded = file.lines.iter().any(|l| l.starts_with("#![forbid(unsafe_code)]"));
    (!guarded).then(|| format!("{root}: must say #![forbid(unsafe_code)]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(path: &str, text: &str) -> Source {
        Source::new(path, Language::Rust, text)
    }

    #[test]
    fn unsafe_stands_only_where_it_may() {
        let code = "let a = unsafe { b() }; // unsafe\nlet c = unsafe_code; let d = \"unsafe\";";
        assert!(misplaced_unsafe(&rust("vp-soft/src/memory/place.rs", code)).is_empty());
        let found = misplaced_unsafe(&rust("vp-softrdma/src/qp.rs", code));
        assert_eq!(found, ["vp-softrdma/src/qp.rs:1: unsafe outside of its few files"]);
        assert!(misplaced_unsafe(&rust("vp-softrdma/src/qp/tests.rs", code)).is_empty());
        assert!(!misplaced_unsafe(&rust("cli/src/tests.rs", code)).is_empty());
    }

    #[test]
    fn unfinished_work_is_found_in_any_language() {
        let sh = Source::new("x/run", Language::Shell, "# TODO later");
        assert_eq!(unwanted(&sh).len(), 1);
        assert!(unwanted(&rust("a.rs", "// all done")).is_empty());
    }

    #[test]
    fn tests_do_not_make_a_file_long() {
        let long = "fn a() {}\n".repeat(LONGEST);
        let tests = "#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        assert!(too_long(&rust("a.rs", &(long.clone() + tests))).is_none());
        assert!(too_long(&rust("a.rs", &(long + "fn c() {}\n"))).is_some());
    }

    #[test]
    fn safe_crates_say_so() {
        let root = "ual/src/lib.rs";
        assert!(unguarded(&[rust(root, "//! x\n\n#![forbid(unsafe_code)]")], root).is_none());
        assert!(unguarded(&[rust(root, "//! x")], root).is_some());
    }
}
