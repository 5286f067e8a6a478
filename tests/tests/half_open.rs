//! Tests of half-open connections: stopped processes and firewalls that drop. Each ends by the policy's
//! time-outs, every posted work request completes, and the message names the peer. [CONN-14, MPA-37, VERBS-11]
//!
//! Two hosts in network namespaces; the policy is shortened by a configuration file.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use warpline_tests::netns::{Netns, have};
use warpline_tests::skip;
use warpline_tests::target::Target;

/// A policy with short time-outs, for which [`Caller::end`] waits.
const CONFIG: &str = "[policy]
probe_ms = 300
keep_alive_ms = 1000
keep_alive_interval_ms = 1000
keep_alive_count = 2
user_timeout_ms = 1000
";

struct Lab {
    client: Netns,
    server: Netns,
    target: Target,
    config: PathBuf,
}

impl Lab {
    /// Two hosts and a server on the second; `None` after a visible skip.
    fn new(test: &str) -> Option<Self> {
        for (tool, package) in [("ip", "iproute2"), ("nft", "nftables")] {
            if !have(tool) {
                skip(test, warpline_skip::missing(package));
                return None;
            }
        }
        let Ok((client, server)) = Netns::pair(1500) else {
            skip(test, warpline_skip::NO_NAMESPACES);
            return None;
        };
        let name = format!("warpline-half-open-{}-{test}.toml", std::process::id());
        let config = std::env::temp_dir().join(name);
        std::fs::write(&config, CONFIG).expect("temporary file");
        let mut command = server.command(env!("CARGO_BIN_EXE_target"));
        command.arg("10.77.0.2:0").env("WARPLINE_CONFIG", &config);
        let target = Target::start(command);
        Some(Self { client, server, target, config })
    }

    fn call(&self, args: &[&str]) -> Caller {
        let mut command = self.client.command(env!("CARGO_BIN_EXE_caller"));
        command.arg(self.target.address.to_string()).args(args);
        command.env("WARPLINE_CONFIG", &self.config);
        Caller::start(command)
    }

    /// Drops all packets in both directions.
    fn drop_packets(&self) {
        for rule in [
            "add table inet deaf",
            "add chain inet deaf input { type filter hook input priority 0; policy drop; }",
            "add chain inet deaf output { type filter hook output priority 0; policy drop; }",
        ] {
            self.server.exec(&["nft", rule]).expect("nft takes the rule");
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Ignored: a file left in the temporary directory does no harm.
        let _ = std::fs::remove_file(&self.config);
    }
}

struct Caller {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Caller {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("caller starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut caller = Self { child, stdout };
        assert_eq!(caller.line(), "connected");
        caller
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("caller speaks");
        line.trim_end().into()
    }

    /// Waits until everything posted has completed; returns how the connection ended.
    fn end(mut self) -> String {
        let flushed = self.line();
        assert!(flushed.starts_with("flushed ") && flushed != "flushed 0", "{flushed}");
        let ended = self.line();
        assert!(self.child.wait().expect("caller ends").success());
        let ended = ended.strip_prefix("ended: ").unwrap_or_else(|| panic!("{ended}"));
        assert!(ended.contains("10.77.0.2"), "the peer is not named: {ended}");
        ended.into()
    }
}

fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// A stopped peer: its kernel still acknowledges, so only a probe of the RDMA stack detects it.
#[test]
fn a_stopped_peer_is_detected_while_receives_are_posted() {
    let Some(lab) = Lab::new("stopped-receive") else { return };
    let caller = lab.call(&[]);
    signal(lab.target.pid(), "-STOP");
    let ended = caller.end();
    signal(lab.target.pid(), "-CONT");
    println!("{ended}");
}

/// A stopped peer whose window closes under a stream of writes.
#[test]
fn a_stopped_peer_is_detected_while_writes_are_posted() {
    let Some(lab) = Lab::new("stopped-write") else { return };
    let caller = lab.call(&["--write"]);
    signal(lab.target.pid(), "-STOP");
    let ended = caller.end();
    signal(lab.target.pid(), "-CONT");
    println!("{ended}");
}

/// A firewall that drops everything, while only receives are posted.
#[test]
fn a_firewall_is_detected_while_receives_are_posted() {
    let Some(lab) = Lab::new("firewall-receive") else { return };
    let caller = lab.call(&[]);
    lab.drop_packets();
    println!("{}", caller.end());
}

/// A firewall that drops everything, in the middle of a stream of writes.
#[test]
fn a_firewall_is_detected_while_writes_are_posted() {
    let Some(lab) = Lab::new("firewall-write") else { return };
    let caller = lab.call(&["--write"]);
    lab.drop_packets();
    println!("{}", caller.end());
}
