//! Tests of `warpline capture` on processes that ping each other: another decoder reads the captures, and the
//! observer does not disturb the processes, however it ends.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use warpline_tests::netns::have;
use warpline_tests::skip;

use crate::stat::Runtime;
use crate::support::{Running, line_with, rest, text, warpline};

/// Two processes that ping each other without a pause, with messages of this size: Sends, Reads and Writes.
struct Pair<'a> {
    runtime: &'a Runtime,
    client: Running,
    pid: String,
    _server: Running,
}

impl<'a> Pair<'a> {
    fn start(runtime: &'a Runtime, octets: &str, local: &str) -> Self {
        let start = |arguments: &[&str]| {
            let mut command = warpline();
            command.args(arguments).env("XDG_RUNTIME_DIR", &runtime.0).env("WARPLINE_LOCAL", local);
            Running::new(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
        };
        let mut server = start(&["ping", "--serve=127.0.0.1:0"]);
        let line = line_with(&mut server.stdout(), |line| line.contains(" at "));
        let address = line.rsplit(' ').next().unwrap();
        let client = start(&["ping", address, "-i", "0", "-c", "0", "-s", octets, "-q"]);
        let pid = client.id().to_string();
        let pair = Self { runtime, client, pid, _server: server };
        pair.goes_on();
        pair
    }

    fn messages(&self) -> Option<u64> {
        let (_, out, _) = self.runtime.run(&["stat", &self.pid, "--json"]);
        let all: Value = serde_json::from_str(&out).ok()?;
        all["processes"][0]["connections"][0]["messages_sent"].as_u64()
    }

    /// Waits for messages that are still to come.
    fn goes_on(&self) {
        let before = self.messages().unwrap_or(0);
        warpline_patience::until("round trips", || self.messages() > Some(before + 300));
    }
}

fn begin(runtime: &Runtime, arguments: &[&str], stdout: Stdio) -> Running {
    let mut command = warpline();
    command.arg("capture").args(arguments).env("XDG_RUNTIME_DIR", &runtime.0);
    Running::new(command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap())
}

/// A completed capture: its file.
fn captured(runtime: &Runtime, pair: &Pair<'_>, name: &str, more: &[&str]) -> (PathBuf, String) {
    let file = runtime.0.join(name);
    let all = [&[&pair.pid, "-o", file.to_str().unwrap()][..], more].concat();
    let (status, out, error) = runtime.run(&[&["capture"], &all[..]].concat());
    assert_eq!(status, Some(0), "{out}{error}");
    (file, error)
}

fn contains(file: &Path, octets: &[u8]) -> bool {
    std::fs::read(file).unwrap().windows(octets.len()).any(|window| window == octets)
}

/// The fields that tshark prints of a frame with payload.
struct Frame {
    protocols: String,
    opcode: String,
    /// This frame, or one before it, is incomplete.
    malformed: bool,
    gap: bool,
}

/// Runs tshark without the dissectors that guess the content of Sends.
fn frames(file: &Path) -> Vec<Frame> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file).args(["--disable-protocol", "rpcordma"]);
    tshark.args(["--disable-protocol", "smb_direct", "-Y", "tcp.len > 0", "-T", "fields"]);
    for field in ["frame.protocols", "iwarp_rdma.opcode", "_ws.malformed"] {
        tshark.args(["-e", field]);
    }
    tshark.args(["-e", "tcp.analysis.lost_segment", "-e", "tcp.analysis.ack_lost_segment"]);
    let output = tshark.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let frame = |line: &str| {
        let fields: Vec<_> = line.split('\t').collect();
        Frame {
            protocols: fields[0].to_owned(),
            opcode: fields[1].to_owned(),
            malformed: !fields[2].is_empty(),
            gap: fields[3..].iter().any(|field| !field.is_empty()),
        }
    };
    text(&output.stdout).lines().map(frame).collect()
}

#[test]
fn tshark_dissects_captures_of_both_carriers() {
    if !have("tshark") {
        return skip("captures of processes", warpline_skip::missing("tshark"));
    }
    let runtime = Runtime::new();
    for local in ["off", "require"] {
        let pair = Pair::start(&runtime, "65535", local);
        for (name, more) in
            [("headers", &["--fill"][..]), ("cut", &[]), ("all", &["--payload", "65535"])]
        {
            let more = [&["--count", "100"], more].concat();
            let (file, printed) = captured(&runtime, &pair, name, &more);
            let frames = frames(&file);
            // Two of them start up.
            assert_eq!(frames.len(), 102, "{printed}");
            assert!(frames.iter().all(|frame| frame.protocols.contains("iwarp_mpa")));
            assert!(!frames.iter().any(|frame| frame.malformed));
            assert!(!printed.contains("none dropped") || !frames.iter().any(|frame| frame.gap));
            if name != "cut" {
                let is_rdmap = |frame: &&Frame| frame.protocols.contains("iwarp_ddp_rdmap");
                assert_eq!(frames.iter().filter(is_rdmap).count(), 100);
                for opcode in ["0x00", "0x01", "0x02", "0x03"] {
                    let has = frames.iter().any(|frame| frame.opcode == opcode);
                    assert!(has, "no RDMAP opcode {opcode}");
                }
            }
            // The messages of rping.
            assert_eq!(contains(&file, b"ABCDEFGHIJKL"), name == "all", "{name}");
        }
    }
}

#[test]
fn a_reader_that_is_killed_is_not_noticed_and_another_may_follow() {
    let runtime = Runtime::new();
    let pair = Pair::start(&runtime, "64", "off");
    let file = runtime.0.join("first");
    let arguments = [&pair.pid, "-o", file.to_str().unwrap()];
    let mut first = begin(&runtime, &arguments, Stdio::null());
    let mut says = first.stderr();
    line_with(&mut says, |line| line.starts_with("capturing"));
    // Two at once would not have the same drops.
    let other = runtime.0.join("other");
    let other = other.to_str().unwrap();
    let (status, _, error) = runtime.run(&["capture", &pair.pid, "--count", "1", "-o", other]);
    assert_eq!(status, Some(1));
    assert!(error.contains("captured already"), "{error}");
    first.kill();
    drop(first);
    // The process finds out when the memory between them is full.
    let maps = format!("/proc/{}/maps", pair.pid);
    let is_mapped = || std::fs::read_to_string(&maps).unwrap().contains("memfd:warpline-ring");
    warpline_patience::until("the end of the capture", || !is_mapped());
    pair.goes_on();
    captured(&runtime, &pair, "second", &["--count", "10"]);
    captured(&runtime, &pair, "third", &["--count", "10"]);
    pair.goes_on();
}

#[test]
fn a_process_does_not_wait_for_a_reader_that_does_not_read() {
    let runtime = Runtime::new();
    let mut pair = Pair::start(&runtime, "65535", "off");
    let arguments = [&pair.pid, "--payload", "65535"];
    // Its output is a pipe that is not read.
    let mut slow = begin(&runtime, &arguments, Stdio::piped());
    let mut says = slow.stderr();
    line_with(&mut says, |line| line.starts_with("capturing"));
    pair.goes_on();
    pair.goes_on();
    let mut out = slow.stdout();
    let reads = std::thread::spawn(move || {
        let mut octets = Vec::new();
        out.read_to_end(&mut octets).unwrap();
    });
    pair.goes_on();
    pair.client.kill();
    reads.join().unwrap();
    let printed = rest(says);
    assert_eq!(slow.code(), Some(0), "{printed}");
    assert!(
        printed.contains("the process ended") && printed.contains("FPDUs dropped"),
        "{printed}"
    );
}

/// Beyond `ulimit -f` the kernel ends a process that allocates shared memory, unless the process checks first.
#[test]
fn a_limit_of_file_sizes_is_an_error_and_local_streams_are_not_used() {
    let runtime = Runtime::new();
    let limited = |blocks: &str, arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_warpline")).args(arguments);
        command.env("XDG_RUNTIME_DIR", &runtime.0).output().unwrap()
    };
    let local = ["perf", "local", "--op", "send", "--mode", "lat", "--size", "8", "--no-raw"];
    let output = limited("1", &[&local[..], &["--duration", "0.02", "--rounds", "1"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pair = Pair::start(&runtime, "64", "off");
    let file = runtime.0.join("limited");
    let output = limited("100", &["capture", &pair.pid, "-o", file.to_str().unwrap()]);
    let why = text(&output.stderr);
    assert!(output.status.code() == Some(1) && why.contains("ulimit -f"), "{why}");
}

#[test]
fn a_capture_that_cannot_begin_reports_why() {
    let runtime = Runtime::new();
    let file = runtime.0.join("none");
    let this = std::process::id().to_string();
    for (pid, says) in
        [(this.as_str(), "publishes nothing"), ("99999999", "there is no process 99999999")]
    {
        let (status, _, error) = runtime.run(&["capture", pid, "-o", file.to_str().unwrap()]);
        assert_eq!(status, Some(1));
        assert!(!file.exists());
        assert!(error.contains(says), "{error}");
    }
}
