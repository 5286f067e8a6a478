//! Two processes that poll and send through shared memory make no system call, as strace shows.
//!
//! Some windows may have system calls: when other programs use the processors, an end may find the other asleep.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use warpline_tests::netns::have;
use warpline_tests::skip;

const TEST: &str = "pollers make no system call";

/// The program under strace, which writes to `trace`; killed when the test ends before it.
struct Traced(Child);

impl Traced {
    fn start(trace: &Path, args: &[&str]) -> Self {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o"]).arg(trace).arg(env!("CARGO_BIN_EXE_poller")).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().expect("strace starts"))
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// System calls of the thread that writes the marks, in each window between two of them; and of all other threads.
fn windows(trace: &str) -> (Vec<u32>, u32) {
    let marks: Vec<_> = trace.lines().filter(|line| line.contains("write(2, \"mark ")).collect();
    let thread = marks.first().and_then(|mark| mark.split(' ').next()).unwrap_or_default();
    let (mut windows, mut others) = (BTreeMap::new(), 0);
    let mut window = None;
    for line in trace.lines() {
        let own = line.split(' ').next() == Some(thread);
        if own && line.contains("write(2, \"mark ") {
            window = Some(window.map_or(0, |window| window + 1));
            windows.entry(window).or_insert(0);
        } else if own && window.is_some() {
            *windows.entry(window).or_insert(0) += 1;
        } else if window.is_some() {
            others += 1;
        }
    }
    // After the last mark the program ends.
    windows.pop_last();
    (windows.into_values().collect(), others)
}

#[test]
fn pollers_make_no_system_call() {
    if !have("strace") {
        return skip(TEST, warpline_skip::missing("strace"));
    }
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        return skip(TEST, "one processor: each message takes a time slice of both pollers");
    }
    // Where ptrace is forbidden strace starts all the same.
    let tried = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).output().unwrap();
    if !tried.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&tried.stderr));
        return skip(TEST, "strace may not trace here");
    }
    let directory = std::env::temp_dir();
    let file = |end: &str| directory.join(format!("warpline-calls-{}-{end}", std::process::id()));
    let traces = ["serve", "connect"].map(file);
    let mut server = Traced::start(&traces[0], &["serve"]);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("listening ").unwrap();
    let mut client = Traced::start(&traces[1], &["connect", address]);
    assert!(client.0.wait().unwrap().success());
    assert!(server.0.wait().unwrap().success());
    for trace in traces {
        let text = std::fs::read_to_string(&trace).unwrap();
        std::fs::remove_file(&trace).unwrap();
        let (windows, others) = windows(&text);
        println!("of the thread that polls, by windows: {windows:?}; of others in all: {others}");
        assert!(windows.len() > 2, "{text}");
        assert!(windows.contains(&0), "{windows:?}");
    }
}

#[test]
fn calls_are_counted_between_marks() {
    let trace = "7 open() = 1\n7 write(2, \"mark 0\\n\", 7) = 7\n8 poll() = 1\n7 read() = 1\n\
        7 write(2, \"mark 1\\n\", 7) = 7\n7 write(2, \"mark 2\\n\", 7) = 7\n7 close() = 0\n";
    assert_eq!(windows(trace), (vec![1, 0], 1));
}
