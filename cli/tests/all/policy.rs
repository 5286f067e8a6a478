//! Tests of `warpline policy`, and that a program that a rule refuses reports which rule.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use verbs_programs::process::{free_port, waits_for_a_client};
use verbs_programs::{Libraries, libraries};
use warpline_skip::skip;
use warpline_tests::c::{Kit, Language};

use crate::support::{Running, line_with, run, text, warpline};

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

/// A program with this configuration.
fn with_rules(mut command: Command, rules: &str) -> Running {
    command.env("WARPLINE_CONFIG", file(&format!("rules-{}.toml", rules.len()), rules));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Running::new(command.spawn().unwrap())
}

fn deny(role: &str) -> String {
    format!("[[rule]]\nmatch = {{ role = \"{role}\" }}\naction = {{ deny = \"not from here\" }}\n")
}

const REFUSES: &str = "refuses the connection: not from here";

#[test]
fn a_program_in_c_gets_the_rule_that_refuses_it() {
    let kit = match Kit::install("c-denied") {
        Ok(kit) => kit,
        Err(why) => return skip("a rule that refuses a C program", &why),
    };
    let program = kit.program("ping", &["ping.c", "check.c"], Language::C99, &[]);
    let mut command = Command::new(program);
    // Nothing listens at port 1.
    command.args(["connect", "1"]).env("LD_LIBRARY_PATH", kit.home().join("lib"));
    let mut program = with_rules(command, &deny("connect"));
    line_with(&mut program.stderr(), |line| line.contains(REFUSES));
    assert_ne!(program.code(), Some(0));
}

#[test]
fn rping_and_its_user_get_the_rule_that_refuses_it() {
    let Some(rping) = libraries::find("rping") else {
        return skip("a rule that refuses rping", warpline_skip::missing("rdmacm-utils"));
    };
    let (libraries, port) = (Libraries::build(), free_port());
    let start = |side: &str, rules: &str| {
        let mut command = libraries.command(&rping);
        command.args([side, "-a", "127.0.0.1", "-p", &port.to_string(), "-C", "1"]);
        with_rules(command, rules)
    };
    let mut client = start("-c", &deny("connect"));
    let mut errors = client.stderr();
    line_with(&mut errors, |line| line.contains(REFUSES));
    line_with(&mut errors, |line| line.contains("RDMA_CM_EVENT_REJECTED, error -13"));
    assert_ne!(client.code(), Some(0));
    let mut server = start("-s", &deny("accept"));
    warpline_patience::until("rping to listen", || waits_for_a_client(port));
    let mut client = start("-c", "");
    line_with(&mut client.stderr(), |line| line.contains("RDMA_CM_EVENT_REJECTED"));
    assert_ne!(client.code(), Some(0));
    line_with(&mut server.stderr(), |line| line.contains(REFUSES));
}
