//! Tests of commands that are stopped and continued, get a signal whose handler does nothing, or are ended by SIGINT or
//! SIGTERM.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use warpline_patience::until;

use crate::stat::Runtime;
use crate::support::{Running, TempFile, line_with, rest, warpline};
use crate::top::terminal::both_sides;

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

/// Stops and continues a process and lets a handler run, several times. The command handles SIGXFSZ in each of its
/// processes, and does nothing.
pub(crate) fn disturb(process: u32) {
    until("the handler", || handles(process, Signal::XFSZ));
    for _ in 0..3 {
        stop_and_continue(process);
    }
}

fn stop_and_continue(process: u32) {
    send(process, Signal::STOP);
    until("the process to be stopped", || kal_os::is_stopped(process as i32));
    send(process, Signal::CONT);
    until("the process to be continued", || !kal_os::is_stopped(process as i32));
    send(process, Signal::XFSZ);
}

/// Whether the process has a handler of this signal.
fn handles(process: u32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    mask & 1 << (signal.as_raw() - 1) != 0
}

/// The second process, once it and the first handle signals.
fn second(process: &Running) -> u32 {
    let arguments = |of: u32| std::fs::read(format!("/proc/{of}/cmdline")).unwrap_or_default();
    let ready = |of| handles(of, Signal::TERM) && handles(of, Signal::XFSZ);
    // Before its exec a child has the handlers and the arguments of its parent.
    let begun = |of| arguments(of) != arguments(process.id()) && ready(of);
    until("the second process", || {
        let all = children(process.id());
        ready(process.id()) && !all.is_empty() && all.into_iter().all(begun)
    });
    children(process.id())[0]
}

/// Disturbs a process and its second one again each time that they have run for a moment: a process that is stopped all
/// the time does little, and is stopped at few places.
fn disturb_until_the_end(process: &mut Running) {
    let second = second(process);
    let both = [process.id(), second];
    while process.is_alive() && std::path::Path::new(&format!("/proc/{second}/exe")).exists() {
        for signal in [Signal::STOP, Signal::CONT, Signal::XFSZ] {
            for of in both {
                // It may end meanwhile.
                let _ = kill_process(Pid::from_raw(of as i32).unwrap(), signal);
                std::thread::yield_now();
            }
        }
        let before = both.map(used);
        until("the processes to run", || !process.is_alive() || both.map(used) != before);
    }
}

/// Processor time of a process, in clock ticks; 0 if it has ended.
fn used(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let mut words = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let mut next = || words.next().map_or(0, |word| word.parse::<u64>().unwrap());
    next() + next()
}

/// The processes that a process started.
fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let all = std::fs::read_to_string(path).unwrap_or_default();
    all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

type Started = (Running, BufReader<ChildStdout>);

fn start(arguments: &[&str]) -> Started {
    start_with(arguments, Stdio::inherit())
}

fn start_with(arguments: &[&str], error: Stdio) -> Started {
    let mut command = warpline();
    command.args(arguments).stdout(Stdio::piped()).stderr(error);
    let mut process = Running::new(command.spawn().unwrap());
    let out = process.stdout();
    (process, out)
}

/// A server with these arguments, and its address, which is behind the last blank of its first line.
fn serve(arguments: &[&str]) -> (Running, BufReader<ChildStdout>, String) {
    let (process, mut out) = start(arguments);
    let line = line_with(&mut out, |line| line.contains(" at "));
    (process, out, line.rsplit(' ').next().unwrap().to_owned())
}

fn lines(out: &mut impl BufRead, containing: &str, count: usize) {
    (0..count).for_each(|_| drop(line_with(out, |line| line.contains(containing))));
}

/// `127.X.Y.Z:0`: another process may have RoCE's port at 127.0.0.1.
fn loopback(number: u8) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.{number}.{high}.{low}:0")
}

fn pings_go_on(device: &str, address: &str) {
    let serving = format!("--serve={address}");
    let (mut server, _, address) = serve(&["ping", &serving, "--device", device]);
    // Between two round trips both ends sleep; octets that arrive would hide that a wait has ended.
    let (mut client, mut out) =
        start(&["ping", &address, "-c", "0", "-i", "0.5", "--device", device]);
    for process in [server.id(), client.id()] {
        lines(&mut out, "time=", 1);
        disturb(process);
        lines(&mut out, "time=", 2);
    }
    assert!(server.is_alive());
    send(client.id(), Signal::INT);
    lines(&mut out, ", 0 % lost", 1);
    assert_eq!(client.code(), Some(0));
}

#[test]
fn pings_go_on_after_a_stop() {
    pings_go_on("vp_softrdma", "127.0.0.1:0");
}

#[test]
fn pings_on_roce_go_on_after_a_stop() {
    pings_go_on("vp_roce", &loopback(81));
}

/// The measuring process and the second one wait in calls, in epoll, and poll.
#[test]
fn measurements_go_on_after_a_stop() {
    for wait in ["--wait=call", "--wait=fd", "--poll"] {
        let what = ["perf", "local", "--op=send", "--size=64", "--rounds=1", "--json", "--crc=on"];
        let (mut process, out) =
            start(&[&what[..], &["--mode=lat,bw,connect", "--duration=0.2", wait]].concat());
        disturb_until_the_end(&mut process);
        let report: Value = serde_json::from_str(&rest(out)).unwrap();
        assert_eq!(process.code(), Some(0), "{wait}");
        assert_eq!(report["results"].as_array().unwrap().len(), 3, "{wait}: {report:#}");
    }
}

#[test]
fn a_demo_goes_on_after_a_stop() {
    let file = TempFile::sparse("demo", 8 << 20);
    let (mut process, out) = start(&["demo", file.path(), "--json", "--chunk=4k"]);
    disturb_until_the_end(&mut process);
    let report: Value = serde_json::from_str(&rest(out)).unwrap();
    assert_eq!((process.code(), &report["verified"]), (Some(0), &true.into()));
}

#[test]
fn observers_go_on_after_a_stop() {
    let runtime = Runtime::new();
    let (server, _client, _) = runtime.pair();
    let mut watch = runtime.start(&["stat", "--watch", "0.05", "--json"]);
    let mut out = watch.stdout();
    lines(&mut out, "processes", 1);
    disturb(watch.id());
    lines(&mut out, "processes", 5);
    let pid = server.id().to_string();
    let file = TempFile::new("capture", b"");
    let mut capture = runtime.start(&["capture", &pid, "-o", file.path(), "--seconds", "4"]);
    let written = || std::fs::metadata(&file.0).unwrap().len() > 0;
    let mut explain = runtime.start(&["explain", &pid, "--seconds", "4", "--json"]);
    disturb(explain.id());
    disturb(capture.id());
    disturb(server.id());
    assert_eq!((capture.code(), explain.code()), (Some(0), Some(0)));
    assert!(written());
    let found: Value = serde_json::from_str(&rest(explain.stdout())).unwrap();
    assert!(found["figures"]["round trip"].is_string(), "{found:#}");
    let mut metrics = runtime.start(&["stat", "--listen", "127.0.0.1:0"]);
    let mut out = metrics.stdout();
    let line = line_with(&mut out, |line| line.contains("http"));
    let address = line.trim_start_matches("listening on http://").trim_end_matches("/metrics");
    // It waits for the rest of the request meanwhile.
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.1\r\n").unwrap();
    stop_and_continue(metrics.id());
    std::io::Write::write_all(&mut stream, b"\r\n").unwrap();
    assert!(rest(stream).ends_with("# EOF\n"));
}

#[test]
fn a_tester_and_its_target_go_on_after_a_stop() {
    let (mut target, _, address) = serve(&["conform", "--serve", "127.0.0.1:0"]);
    let (mut tester, mut out) = start(&["conform", &address, "--only", "CONN-07", "-W", "20"]);
    let mut line = String::new();
    while out.read_line(&mut line).unwrap() > 0 && tester.is_alive() {
        disturb(target.id());
        send(tester.id(), Signal::STOP);
        send(tester.id(), Signal::CONT);
    }
    assert_eq!(tester.code(), Some(0), "{line}");
    assert!(target.is_alive());
    let (mut waiting, mut out) = start(&["conform", "--listen", "127.0.0.1:0", "--wait", "60"]);
    lines(&mut out, "waiting", 1);
    disturb(waiting.id());
    assert!(waiting.is_alive());
}

/// The JSON that a command prints which a signal ends once `ready`.
fn ended(
    arguments: &[&str],
    signal: Signal,
    ready: impl FnOnce(&mut Running, &mut BufReader<ChildStdout>),
) -> (Value, Option<i32>) {
    ended_of(start(arguments), signal, ready)
}

fn ended_of(
    (mut process, mut out): Started,
    signal: Signal,
    ready: impl FnOnce(&mut Running, &mut BufReader<ChildStdout>),
) -> (Value, Option<i32>) {
    ready(&mut process, &mut out);
    send(process.id(), signal);
    let printed = rest(out);
    // The last object: servers print several.
    let all = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    let all: Vec<Value> = all.map(|one| one.unwrap_or_else(|_| panic!("{printed}"))).collect();
    (all.last().expect("something printed").clone(), process.code())
}

const BOTH: [Signal; 2] = [Signal::INT, Signal::TERM];

#[test]
fn an_ended_ping_reports_at_both_ends() {
    for signal in BOTH {
        let (server, mut printed) = start(&["ping", "--serve=127.0.0.1:0", "--json"]);
        let line = line_with(&mut printed, |line| line.contains("serving"));
        let line: Value = serde_json::from_str(&line).unwrap();
        let address = line["serving"].as_str().unwrap();
        let (mut other, mut out) = start(&["ping", address, "-c", "0", "-i", "0.01"]);
        lines(&mut out, "time=", 5);
        let (all, code) =
            ended(&["ping", address, "-c", "0", "-i", "0.01", "--json"], signal, |client, _| {
                let has_begun = || {
                    let fds = std::fs::read_dir(format!("/proc/{}/fd", client.id())).unwrap();
                    fds.count() > 8
                };
                until("its connection", has_begun);
                lines(&mut out, "time=", 20);
            });
        assert!(all["returned"].is_u64() && code.is_some(), "{all}");
        let mut server = server;
        send(server.id(), signal);
        let client = line_with(&mut printed, |line| line.contains("round_trips"));
        assert!(client.contains("127.0.0.1"), "{client}");
        assert!(rest(printed).contains("round_trips"), "one for each client");
        assert_eq!(server.code(), Some(0));
        other.kill();
    }
}

/// Waits until a terminal shows these words.
fn shows(terminal: &mut File, words: &str) {
    let (mut shown, mut octets) = (String::new(), [0; 256]);
    while !shown.contains(words) {
        let read = terminal.read(&mut octets).unwrap_or_else(|error| panic!("{error}: {shown}"));
        shown.push_str(&String::from_utf8_lossy(&octets[..read]));
    }
}

#[test]
fn an_ended_measurement_reports_what_was_measured() {
    let local = [
        "perf",
        "local",
        "--op=send",
        "--size=64",
        "--mode=lat",
        "--rounds=1000",
        "--duration=0.05",
    ];
    let local = [&local[..], &["--json", "--no-raw", "--wait"]].concat();
    let long =
        ["perf", "local", "--op=write", "--size=64", "--mode=bw", "--rounds=1", "--duration=600"];
    let long = [&long[..], &["--json", "--no-raw", "--local=off"]].concat();
    let costs = ["perf", "costs", "--slice=0.05", "--json"].to_vec();
    let scale = [
        "perf",
        "scale",
        "--connections=4",
        "--idle=10",
        "--slice=0.02",
        "--rounds=1000",
        "--json",
    ];
    for (arguments, list) in
        [(local, "results"), (long, "results"), (costs, "memory"), (scale.to_vec(), "results")]
    {
        for signal in BOTH {
            let (terminal, error) = both_sides();
            let (mut terminal, started) = (terminal.into(), start_with(&arguments, error.into()));
            let (all, code) = ended_of(started, signal, |process, _| {
                match arguments.contains(&"--rounds=1000") {
                    // A round has four measurements at most.
                    true => shows(&mut terminal, "5 of "),
                    // In the warm-up of a long measurement, a fifth of it, after which there is nothing to report; and
                    // in one of the measurements of costs.
                    false => until("it to begin", || used(process.id()) > 40),
                }
                // To the second process, too, as a terminal does.
                for second in children(process.id()) {
                    send(second, signal);
                }
            });
            assert_eq!(code, Some(1), "{arguments:?}");
            let measured = all[list].as_array().unwrap().len();
            assert!(measured > 0 || arguments.contains(&"--duration=600"), "{arguments:?}: {all}");
        }
    }
}

#[test]
fn an_ended_test_of_a_peer_reports_its_cases() {
    for signal in BOTH {
        let runtime = Runtime::new();
        let mut target = runtime.start(&["conform", "--serve", "127.0.0.1:0"]);
        let line = line_with(&mut target.stdout(), |line| line.contains(" at "));
        let address = line.rsplit(' ').next().unwrap();
        let (all, code) = ended(&["conform", address, "--json", "-W", "60"], signal, |_, _| {
            let pid = target.id().to_string();
            until("some cases", || {
                let all = runtime.json(&["stat", &pid, "--json"]);
                let counts = &all["processes"][0]["devices"][0]["connection_management"];
                counts["incoming"].as_u64().unwrap() > 5
            });
            // A case is under way for a minute, unless the signal ends it.
            send(target.id(), Signal::STOP);
        });
        assert_eq!(code, Some(1));
        assert!(!all["cases"].as_array().unwrap().is_empty(), "{all:#}");
    }
}

#[test]
fn an_ended_demo_reports_its_operations() {
    let file = TempFile::sparse("demo", 256 << 20);
    for signal in BOTH {
        let (all, code) =
            ended(&["demo", file.path(), "--json", "--chunk=4k"], signal, |process, _| {
                send(second(process), signal);
            });
        assert_eq!(code, Some(1));
        assert!(all["operations"].as_array().unwrap().len() < 3, "{all:#}");
    }
}

#[test]
fn ended_observers_report() {
    let runtime = Runtime::new();
    let (server, _client, _) = runtime.pair();
    let pid = server.id().to_string();
    for signal in BOTH {
        let mut explain = runtime.start(&["explain", &pid, "--seconds", "600", "--json"]);
        let mut watch = runtime.start(&["stat", "--watch", "600", "--json"]);
        let file = TempFile::new("capture", b"");
        let mut capture = runtime.start(&["capture", &pid, "-o", file.path()]);
        let mut out = watch.stdout();
        let printed = line_with(&mut out, |line| line.contains("processes"));
        serde_json::from_str::<Value>(&printed).unwrap();
        until("the capture", || std::fs::metadata(&file.0).unwrap().len() > 0);
        until("the handler", || handles(explain.id(), signal));
        for of in [&explain, &watch, &capture] {
            send(of.id(), signal);
        }
        assert_eq!((explain.code(), watch.code(), capture.code()), (Some(0), Some(0), Some(0)));
        let found: Value = serde_json::from_str(&rest(explain.stdout())).unwrap();
        assert!(found["figures"].is_object(), "{found:#}");
        assert!(rest(out).is_empty());
    }
}
