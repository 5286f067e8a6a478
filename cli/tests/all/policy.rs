//! Tests of `warpline policy`, and that a program that a rule refuses reports which rule.

use std::path::PathBuf;
use std::process::Output;

use crate::support::{run, text, warpline};

const RULES: &str = r#"
[policy]
crc = "off"
[[rule]]
match = { peer = "10.1.0.0/16", port = "7000-7099", exe = "*/mpirun" }
action = { rate = "1.5Gbit", dscp = 46, connections = 64 }
[[rule]]
match = { peer = "127.0.0.0/8", role = "connect", class = "batch*" }
action = { deny = "batch stays off this machine" }
"#;

fn file(name: &str, content: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn printed(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn check_lists_the_rules_or_says_where_the_file_is_wrong() {
    let good = file("rules-good.toml", RULES);
    let (status, out, error) = printed(&run(&["policy", "check", good.to_str().unwrap()]));
    assert_eq!(status, Some(0), "{error}");
    assert!(out.contains("2 rules") && out.contains("rules-good.toml:5"), "{out}");
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("rate 1.5 Gbit/s, dscp 46, connections 64"), "{out}");
    let bad = file("rules-bad.toml", &RULES.replace("dscp", "dcsp"));
    let (status, _, error) = printed(&run(&["policy", "check", bad.to_str().unwrap()]));
    assert_eq!(status, Some(3), "{error}");
    let flat = error.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("rules-bad.toml:6:30") && flat.contains("`connections`"), "{error}");
}

#[test]
fn why_names_the_rule_and_what_kept_the_others_away() {
    let rules = file("rules-why.toml", RULES);
    let rules = rules.to_str().unwrap();
    let why = |arguments: &[&str]| {
        let all = [&["policy", "why", "--file", rules], arguments].concat();
        let (status, out, error) = printed(&run(&all));
        assert_eq!(status, Some(0), "{error}");
        out
    };
    let out = why(&["--peer", "10.1.2.3", "--port", "7001", "--exe", "/usr/bin/mpirun"]);
    assert!(out.contains("yes  ") && out.contains("rate: 1.5 Gbit/s"), "{out}");
    assert!(out.contains("local off, as only TCP keeps a rate"), "{out}");
    let out = why(&["--peer", "127.0.0.1", "--port", "7001", "--class", "batch-3"]);
    assert!(out.contains("`peer` is 10.1.0.0/16, and the connection's is 127.0.0.1"), "{out}");
    assert!(out.contains("deny: batch stays off this machine"), "{out}");
    let out = why(&["--peer", "127.0.0.1", "--port", "7001", "--role", "accept"]);
    assert!(out.contains("no rule of") && out.contains("crc off, local auto"), "{out}");
}

/// A program that matches a rule is refused, and the error names the rule; a program of another class is not.
#[test]
fn a_program_gets_the_rule_that_refuses_it() {
    let rules = file("rules-run.toml", RULES);
    let ping = |class: &str| {
        let mut command = warpline();
        // Nothing listens at port 1.
        command.args(["ping", "127.0.0.1:1", "-c", "1"]);
        printed(
            &command.env("WARPLINE_CONFIG", &rules).env("WARPLINE_CLASS", class).output().unwrap(),
        )
    };
    let flat = |error: &str| error.split_whitespace().collect::<Vec<_>>().join(" ");
    let (status, _, error) = ping("batch-1");
    assert_ne!(status, Some(0));
    assert!(flat(&error).contains("rules-run.toml:8 refuses"), "{error}");
    let (_, _, error) = ping("web");
    assert!(flat(&error).contains("nothing listens"), "{error}");
}
