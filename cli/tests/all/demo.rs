//! Tests of `warpline demo`: files of all kinds, and the death of either process at several points.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use warpline_patience::within;

use crate::stat::Runtime;
use crate::support::{Running, TempFile, line_with, noise, rest, run, text, warpline};
use crate::top::terminal::Terminal;

/// The line after the figures, and behind it what was shown and what to try.
fn is_verified(out: &str) -> bool {
    out.split_once("\nverified\n\n").is_some_and(|(_, rest)| rest.contains("\nNext:\n"))
}

#[test]
fn files_come_back_and_are_verified() {
    let odd = TempFile::new("odd", &noise(1_000_003));
    for options in [&["--chunk", "64k"][..], &["--crc", "off"], &["--chunk", "1000"], &[]] {
        let output = run(&[&["demo", odd.path()], options].concat());
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{options:?}: {out}{err}");
        assert!(is_verified(&out), "{out}");
        assert!(
            ["Send/Recv", "RDMA Write", "RDMA Read"].iter().all(|op| out.contains(op)),
            "{out}"
        );
        assert_eq!(out.matches("2000006").count(), 3, "{out}");
        // No terminal, no progress.
        assert_eq!(err, "");
    }
}

#[test]
fn a_device_and_an_address_can_be_named() {
    let file = TempFile::new("device", &noise(1000));
    let options =
        |address, device| run(&["demo", file.path(), "--address", address, "--device", device]);
    for address in ["127.0.0.1", "::1"] {
        let output = options(address, "vp_softrdma");
        assert!(is_verified(&text(&output.stdout)), "{}", text(&output.stderr));
    }
    // An address for documentation (RFC 5737), at which no machine listens.
    for (address, device) in [("127.0.0.1", "nowhere0"), ("192.0.2.1", "vp_softrdma")] {
        let output = options(address, device);
        let err = text(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code > 0), "{address}, {device}: {err}");
        assert!(err.contains(if device == "nowhere0" { device } else { address }), "{err}");
    }
}

/// Two processes, by RoCE's own connection manager, in a network of their own, because its port is unique in one.
#[test]
fn a_file_goes_by_roce() {
    let namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net"]);
        command
    };
    let try_it = namespace().args(["ip", "link", "set", "lo", "up"]).output();
    if !try_it.is_ok_and(|output| output.status.success()) {
        return warpline_skip::skip("a_file_goes_by_roce", warpline_skip::NO_NAMESPACES);
    }
    let file = TempFile::new("roce", &noise(1_000_003));
    let (script, program) = ("ip link set lo up && exec \"$@\"", env!("CARGO_BIN_EXE_warpline"));
    let mut command = namespace();
    command.args(["sh", "-c", script, "sh", program, "demo", file.path(), "--device", "vp_roce"]);
    let output = command.output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(is_verified(&out), "{out}{err}");
    assert!(["Send/Recv", "RDMA Write", "RDMA Read"].iter().all(|op| out.contains(op)), "{out}");
}

#[test]
fn the_smallest_files_are_moved() {
    for len in [0, 1, 2, 15, 16, 17] {
        let file = TempFile::new(&format!("small{len}"), &noise(len));
        let output = run(&["demo", file.path(), "--chunk", "7"]);
        assert!(is_verified(&text(&output.stdout)), "{len}: {}", text(&output.stderr));
    }
}

#[test]
fn a_file_that_cannot_be_moved_is_refused() {
    for (path, expected) in [
        ("/nowhere/x", "No such file"),
        ("/", "not a regular file"),
        ("/dev/null", "not a regular file"),
    ] {
        let output = run(&["demo", path]);
        assert_eq!(output.status.code(), Some(3), "{path}");
        let err = text(&output.stderr);
        assert!(err.contains(path) && err.contains(expected) && err.contains("try"), "{err}");
    }
}

/// Each operation leaves its full bar; what is piped has none.
#[test]
fn a_terminal_shows_a_bar_for_each_operation() {
    let file = TempFile::new("bar", &noise(300_000));
    let demo = ["demo", file.path(), "--chunk", "1k"];
    let runtime = Runtime::new();
    let mut terminal = Terminal::start_all(80, 24, &demo, &runtime.0);
    assert_eq!(within("the demo to end", || terminal.process.code()), Some(0));
    let shown = ["Send/Recv", "RDMA Write", "RDMA Read"]
        .map(|name| format!("{name:<12} [{}] 100 %  293/293\n", "#".repeat(30)));
    terminal.until("the bars, then the figures", |screen| {
        let figures = screen.find("checksum").unwrap_or(0);
        shown.iter().all(|bar| screen.find(bar).is_some_and(|at| at < figures))
            && screen.contains("verified")
            && screen.contains("Next:")
    });
}

/// Points at which a process is killed: after this line of progress.
const POINTS: [&str; 7] = [
    "process ",
    "Send/Recv 1/",
    "Send/Recv 2000/",
    "RDMA Write 1/",
    "RDMA Write 2000/",
    "RDMA Read 0/",
    "RDMA Read 2000/",
];

/// A demo that blocks when its progress is not read: its output fills three pipes.
struct Staged {
    demo: Running,
    _file: TempFile,
}

fn staged(point: &str) -> (Staged, impl std::io::BufRead, Pid) {
    let file = TempFile::sparse(&format!("big{}", point.replace(['/', ' '], "")), 6144 * 4096);
    let mut command = warpline();
    command.args(["demo", file.path(), "--chunk", "4k", "--progress", "lines"]);
    let mut demo =
        Running::new(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = demo.stderr();
    let first = line_with(&mut lines, |line| line.starts_with("process "));
    let peer = first.rsplit(' ').next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    if !point.starts_with("process") {
        line_with(&mut lines, |line| line.starts_with(point));
    }
    (Staged { demo, _file: file }, lines, peer.unwrap())
}

fn operation(point: &str) -> &str {
    point.trim_end_matches(|c: char| c.is_ascii_digit() || c == '/' || c == ' ')
}

#[test]
fn the_first_process_reports_the_death_of_the_second() {
    for point in POINTS {
        let (mut staged, lines, peer) = staged(point);
        kill_process(peer, Signal::KILL).unwrap();
        let text = rest(lines);
        let message = text.split_once("warpline: ").unwrap_or_else(|| panic!("{point}: {text}")).1;
        assert_eq!(staged.demo.code(), Some(1), "{point}: {message}");
        assert!(message.contains("signal: 9"), "{point}: {message}");
        assert!(message.contains(&peer.to_string()), "{point}: {message}");
        if operation(point) != "process" {
            assert!(message.contains(operation(point)), "{point}: {message}");
            assert!(message.contains("the rest is lost"), "{point}: {message}");
        }
    }
}

#[test]
fn the_second_process_reports_the_death_of_the_first() {
    for point in POINTS {
        let (mut staged, lines, _peer) = staged(point);
        let first = staged.demo.id();
        staged.demo.kill();
        // The pipe ends only when both processes have ended.
        let text = rest(lines);
        let message = text.split_once("warpline: ").unwrap_or_else(|| panic!("{point}: {text}")).1;
        assert!(message.contains(&format!("process {first}")), "{point}: {message}");
        // Killed after its first line, it may still have sent something.
        let none = operation(point) == "process" && message.contains("nothing was received");
        assert!(none || message.contains("is lost"), "{point}: {message}");
    }
}

#[test]
fn the_output_can_be_json() {
    let file = TempFile::new("json", &noise(100_000));
    let output = run(&["demo", file.path(), "--chunk", "64k", "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&all["octets"], &all["chunks"], &all["verified"]),
        (&100_000.into(), &2.into(), &true.into())
    );
    let operations = all["operations"].as_array().unwrap();
    assert_eq!(operations.len(), 3);
    assert!(
        operations
            .iter()
            .all(|o| o["octets"] == 200_000 && o["checksum"] == operations[0]["checksum"])
    );
}
