//! Sends requests to a process's socket. A process that hangs or is stopped does not respond: the wait for it ends
//! after [`PATIENCE`].

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// How long a response may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bound of a response, in octets.
const LONGEST: u64 = 4 << 20;

/// The response, or why there is none.
pub(super) fn ask(socket: &Path, question: &Value) -> Result<Value, String> {
    let said = |error: std::io::Error| {
        match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            "the process does not respond: it is stopped, or its connection thread hangs; TCP is not judged".to_owned()
        }
        _ => format!("the process's socket cannot be used, and TCP is not judged: {error}"),
    }
    };
    let mut stream = connect(socket).map_err(said)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(said)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(said)?;
    writeln!(stream, "{question}").map_err(said)?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).map_err(said)?;
    let answer: Value =
        serde_json::from_str(&line).map_err(|_| "the process closed its socket".to_owned())?;
    match answer["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(answer),
    }
}

/// What the process reports of a queue pair.
pub(super) fn queue_pair(socket: &Path, device: u32, qp: u32) -> Result<Value, String> {
    let question = json!({ "ask": "queue_pair", "device": device, "qp": qp });
    ask(socket, &question).map(|mut answer| answer["queue_pairs"][0].take())
}

/// What a `stats` wrapper has counted of each verb so far, over all adapters.
#[derive(Clone, Debug, Default)]
pub(super) struct VerbCounts(BTreeMap<String, Counted>);

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    calls: u64,
    /// Calls that were timed, and their nanoseconds.
    timed: u64,
    total_ns: u64,
}

/// `None`: there is no such wrapper.
pub(super) fn verbs(socket: &Path) -> Option<VerbCounts> {
    let answer = ask(socket, &json!({ "ask": "verbs" })).ok()?;
    let adapters = answer["verbs"].as_array().filter(|all| !all.is_empty())?;
    let mut counts = VerbCounts::default();
    for verb in adapters.iter().flat_map(|of| of["verbs"].as_array().into_iter().flatten()) {
        let number = |key: &str| verb[key].as_u64().unwrap_or(0);
        let of = counts.0.entry(verb["verb"].as_str().unwrap_or_default().to_owned()).or_default();
        of.calls += number("calls");
        of.timed += number("timed");
        of.total_ns += number("total_ns");
    }
    Some(counts)
}

impl VerbCounts {
    /// Seconds in verbs since `before`, and seconds in those that wait for completions.
    pub(super) fn since(&self, before: &Self) -> (f64, f64) {
        let (mut called, mut waited) = (0.0, 0.0);
        for (verb, now) in &self.0 {
            let before = before.0.get(verb).copied().unwrap_or_default();
            let more = |now: u64, before: u64| now.saturating_sub(before) as f64;
            // Only some calls are timed.
            let mean = more(now.total_ns, before.total_ns) / more(now.timed, before.timed).max(1.0);
            let spent = mean * more(now.calls, before.calls) / 1e9;
            *if verb == "wait" { &mut waited } else { &mut called } += spent;
        }
        (called, waited)
    }
}

/// Through the directory's descriptor: the name of a socket may have 108 octets only.
fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let directory = std::fs::File::open(socket.parent().unwrap_or(Path::new("/")))?;
    let name = socket.file_name().unwrap_or_default();
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    UnixStream::connect(short)
}
