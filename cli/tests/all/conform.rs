//! Tests of `warpline conform` against its own target in both roles, against peers with deliberate faults, and
//! of its listings.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::support::{Running, line_with, rest, run, text, warpline};

/// A process that prints the address at which it listens.
pub(crate) struct Server {
    pub(crate) process: Running,
    pub(crate) output: BufReader<ChildStdout>,
    pub(crate) address: String,
}

pub(crate) fn start(arguments: &[&str], greeting: &str) -> Server {
    let mut command = warpline();
    let child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut process = Running::new(child.unwrap());
    let mut output = process.stdout();
    let line = line_with(&mut output, |line| line.starts_with(greeting));
    let address = line.rsplit(' ').next().unwrap().to_owned();
    Server { process, output, address }
}

fn target() -> Server {
    start(&["conform", "--serve", "127.0.0.1:0"], "serving")
}

fn with_verdict(report: &Value, verdict: &str) -> BTreeSet<String> {
    let all = report["requirements"].as_array().unwrap().iter();
    let of = all.filter(|row| row["verdict"] == verdict);
    of.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// Asserts that nothing fails and that these pass.
fn assert_passes(report: &Value, ids: &[&str]) {
    let failed: Vec<_> =
        report["cases"].as_array().unwrap().iter().filter(|c| c["octets"].is_array()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let passed = with_verdict(report, "pass");
    for id in ids {
        assert!(passed.contains(*id), "{id} is not among what passed: {passed:?}");
    }
}

/// Requirements of framing, DDP and RDMAP that show in both roles.
const BOTH: &[&str] = &[
    "MPA-01", "MPA-02", "MPA-03", "MPA-04", "MPA-05", "MPA-07", "MPA-08", "MPA-09", "MPA-13",
    "MPA-15", "MPA-22", "MPA-24", "MPA-28", "MPA-31", "MPA-33", "MPA-38", "MPA-39", "DDP-01",
    "DDP-02", "DDP-03", "DDP-04", "DDP-06", "DDP-07", "DDP-08", "DDP-10", "DDP-14", "DDP-15",
    "DDP-16", "DDP-24", "RDMAP-01", "RDMAP-02", "RDMAP-04", "RDMAP-05", "RDMAP-06", "RDMAP-07",
    "RDMAP-20", "RDMAP-21", "RDMAP-22", "RDMAP-24", "RDMAP-25", "RDMAP-26", "RDMAP-27", "RDMAP-32",
    "SEC-03", "SEC-18", "ERR-01", "ERR-02", "ERR-04", "ERR-05", "ERR-06", "ERR-07", "ERR-08",
    "ERR-10", "ERR-11", "ERR-12", "ERR-13", "ERR-14", "ERR-16", "ERR-18", "ERR-19", "ERR-21",
    "ERR-22", "ERR-23", "ERR-24", "ERR-25", "ERR-26", "ERR-28",
];

/// Requirements that only a listening peer shows.
const TARGET: &[&str] = &[
    "MPA-06", "MPA-14", "MPA-23", "MPA-25", "MPA-42", "CONN-01", "CONN-02", "CONN-03", "CONN-04",
    "CONN-05", "CONN-06", "CONN-07", "CONN-08", "CONN-11", "CONN-12", "CONN-13", "CONN-16",
    "CONN-17", "CONN-20", "CONN-21", "CONN-26", "CONN-27", "CONN-28", "CONN-29", "CONN-30",
    "DDP-09", "DDP-11", "DDP-12", "DDP-13", "DDP-20", "DDP-21", "RDMAP-08", "RDMAP-09", "RDMAP-10",
    "RDMAP-11", "RDMAP-12", "RDMAP-13", "RDMAP-16", "EXT-01", "EXT-02", "EXT-03", "EXT-04",
    "EXT-05", "EXT-06", "EXT-07", "EXT-08", "EXT-10", "EXT-11", "EXT-14", "EXT-15", "SEC-01",
    "SEC-06", "SEC-14", "VERBS-05", "VERBS-07", "VERBS-08", "VERBS-09", "VERBS-23", "VERBS-27",
    "ERR-09", "ERR-15", "ERR-17", "ERR-29", "ERR-30",
];

/// Requirements that only a connecting peer shows.
const INITIATOR: &[&str] = &[
    "MPA-12", "CONN-01", "CONN-07", "CONN-10", "CONN-12", "CONN-13", "CONN-16", "CONN-17",
    "CONN-24", "CONN-26", "CONN-27", "CONN-28", "CONN-29",
];

// [MPA-01, MPA-02, MPA-03, MPA-04, MPA-05, MPA-06, MPA-07, MPA-08, MPA-09, MPA-13, MPA-14, MPA-15]
// [MPA-22, MPA-23, MPA-24, MPA-25, MPA-28, MPA-31, MPA-33, MPA-38, MPA-39, MPA-42, CONN-01, CONN-02]
// [CONN-03, CONN-04, CONN-05, CONN-06, CONN-07, CONN-08, CONN-11, CONN-12, CONN-13, CONN-16]
// [CONN-17, CONN-20, CONN-21, CONN-26, CONN-27, CONN-28, CONN-29, CONN-30, DDP-01, DDP-02, DDP-03]
// [DDP-04, DDP-06, DDP-07, DDP-08, DDP-09, DDP-10, DDP-11, DDP-12, DDP-13, DDP-14, DDP-15, DDP-16]
// [DDP-20, DDP-21, DDP-24, RDMAP-01, RDMAP-02, RDMAP-04, RDMAP-05, RDMAP-06, RDMAP-07, RDMAP-08]
// [RDMAP-09, RDMAP-10, RDMAP-11, RDMAP-12, RDMAP-13, RDMAP-16, RDMAP-20, RDMAP-21, RDMAP-22]
// [RDMAP-24, RDMAP-25, RDMAP-26, RDMAP-27, RDMAP-32, EXT-01, EXT-02, EXT-03, EXT-04, EXT-05]
// [EXT-06, EXT-07, EXT-08, EXT-10, EXT-11, EXT-14, EXT-15, SEC-01, SEC-03, SEC-06, SEC-14, SEC-18]
// [VERBS-05, VERBS-07, VERBS-08, VERBS-09, VERBS-23, VERBS-27, ERR-01, ERR-02, ERR-04, ERR-05]
// [ERR-06, ERR-07, ERR-08, ERR-09, ERR-10, ERR-11, ERR-12, ERR-13, ERR-14, ERR-15, ERR-16, ERR-17]
// [ERR-18, ERR-19, ERR-21, ERR-22, ERR-23, ERR-24, ERR-25, ERR-26, ERR-28, ERR-29, ERR-30]
#[test]
fn we_listen_and_nothing_fails() {
    let target = target();
    let output = run(&["conform", &target.address, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["peer"]["kind"], "warpline's target");
    assert_passes(&report, &[BOTH, TARGET].concat());
}

/// Connects `warpline ping` to the tester until the tester is done.
fn initiator(options: &'static [&'static str]) -> Value {
    let mut tester = start(&["conform", "--listen", "127.0.0.1:0"], "waiting");
    let address = tester.address.clone();
    let done = Arc::new(AtomicBool::new(false));
    let calling = std::thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(Ordering::Relaxed) {
                let ping = ["ping", &address, "-c", "2", "-i", "0", "-q"];
                run(&[&ping, options].concat());
            }
        }
    });
    let report = rest(&mut tester.output);
    let code = tester.process.code();
    done.store(true, Ordering::Relaxed);
    calling.join().unwrap();
    assert_eq!(code, Some(0), "{report}");
    serde_json::json!({ "text": report })
}

fn main_line<'a>(report: &'a Value, word: &str) -> BTreeSet<&'a str> {
    let lines = report["text"].as_str().unwrap().lines();
    lines.filter(|line| line.starts_with(word)).flat_map(str::split_whitespace).collect()
}

// [MPA-12, CONN-01, CONN-07, CONN-10, CONN-12, CONN-13, CONN-16, CONN-17, CONN-24, CONN-26, CONN-27]
// [CONN-28, CONN-29]
#[test]
fn we_connect_and_nothing_fails() {
    let report = initiator(&["--peer-to-peer"]);
    let passed = main_line(&report, "pass");
    for id in [BOTH, INITIATOR].concat() {
        assert!(passed.contains(id), "{id} is not among what passed: {report}");
    }
}

/// A peer that accepts everything, echoes the flags and sends nothing more.
fn wrong_peer() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || echo_flags(stream.unwrap()));
        }
    });
    address
}

fn echo_flags(mut stream: TcpStream) {
    let mut head = [0; 20];
    if stream.read_exact(&mut head).is_err() {
        return;
    }
    let mut data = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
    if stream.read_exact(&mut data).is_err() {
        return;
    }
    head[10] = b'p';
    head[..16].copy_from_slice(b"MPA ID Rep Frame");
    head[18..].copy_from_slice(&[0, 4]);
    // The tester may have disconnected.
    let _ = stream.write_all(&head).and_then(|()| stream.write_all(&[0; 4]));
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn a_faulty_peer_fails_and_its_octets_are_shown() {
    let address = wrong_peer();
    let only = ["--only", "CONN-04,CONN-05,ERR-02", "-W", "0.5"];
    let output = run(&[&["conform", &address], &only[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let report = text(&output.stdout);
    for printed in ["FAIL  reserved bits of a request", "FAIL  R=1 in a request", "CRC: zero"] {
        assert!(report.contains(printed), "{printed}: {report}");
    }
    let sent = "> 4d504120494420526571204672616d655f";
    let received = "< 4d504120494420526570204672616d655f";
    assert!(report.contains(sent) && report.contains(received), "{report}");
    assert!(report.contains("fail          CONN-05"), "{report}");
}

/// A peer that receives a request, changes it to a reply by `answer` and sends it. When octets arrive, it sends `last` and
/// closes.
fn peer_that_ends_with(last: &'static [u8], answer: fn(&mut [u8; 20])) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 20];
            if stream.read_exact(&mut head).is_err() {
                continue;
            }
            let length = usize::from(u16::from_be_bytes([head[18], head[19]]));
            // The tester may disconnect at any time.
            let _ = stream.read_exact(&mut vec![0; length]);
            let mut reply = *b"MPA ID Rep Frame\x40\x01\0\0";
            answer(&mut reply);
            let _ = stream.write_all(&reply);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(last);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    address
}

/// A peer that replies to C=1 with C=0, and responds to Reads of no octets. It passes on whether the CRC of
/// each FPDU is correct.
fn peer_without_c() -> (String, std::sync::mpsc::Receiver<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, tell) = (stream.unwrap(), tell.clone());
            // The tester may disconnect at any time.
            std::thread::spawn(move || serve_without_c(&mut stream, &tell));
        }
    });
    (address, told)
}

fn serve_without_c(
    stream: &mut TcpStream,
    tell: &std::sync::mpsc::Sender<bool>,
) -> std::io::Result<()> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))])?;
    stream.write_all(b"MPA ID Rep Frame\0\x01\0\0")?;
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let padded = (usize::from(u16::from_be_bytes(length)) + 2).next_multiple_of(4) - 2;
        let mut rest = vec![0; padded + 4];
        stream.read_exact(&mut rest)?;
        let (ulpdu, crc) = rest.split_at(padded);
        let value = crc32c::crc32c(&[&length[..], ulpdu].concat()).to_le_bytes();
        let right = head[16] & 0x40 == 0 || value == crc;
        let _ = tell.send(right);
        match ulpdu[1] {
            // RDMA Write, RDMA Read Request.
            0x40 if right => continue,
            0x41 if right => {}
            _ => return Ok(()),
        }
        // A Read Response of no octets, with the sink's STag and TO.
        let response = [&[0, 14, 0xc1, 0x42], &ulpdu[18..30]].concat();
        stream.write_all(&[&response[..], &crc32c::crc32c(&response).to_le_bytes()].concat())?;
    }
}

// RFC 5044 7.1.1: C in either frame puts CRC in force, and a reply with C=0 breaks nothing [MPA-13, CONN-03].
#[test]
fn a_reply_without_c_breaks_no_requirement() {
    let (address, told) = peer_without_c();
    let output = run(&["conform", &address, "--only", "MPA-13,CONN-03", "-W", "2", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_passes(&report, &["MPA-13", "CONN-03"]);
    assert!(told.try_iter().all(|right| right));
    let output = run(&["ping", &address, "-c", "1", "-W", "2"]);
    let error = text(&output.stderr);
    assert!(error.contains("the round trip under way is lost"), "{error}");
    assert_eq!(told.recv(), Ok(true), "the first FPDU has a CRC");
}

// RFC 5040 4.8: a Terminate is one segment [RDMAP-20]
#[test]
fn a_terminate_without_its_l_bit_fails() {
    // 2/0/2, bare, with a correct CRC; L is 0.
    const NOT_LAST: &[u8] = b"\0\x16\x01\x47\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0\0\x20\x02\0\0";
    static FRAME: std::sync::LazyLock<Vec<u8>> =
        std::sync::LazyLock::new(|| [NOT_LAST, &crc32c::crc32c(NOT_LAST).to_le_bytes()].concat());
    let address = peer_that_ends_with(&FRAME, |_| {});
    let output = run(&["conform", &address, "--case", "CRC: zero", "-W", "1"]);
    let report = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report.contains("fail          RDMAP-20"), "{report}");
    assert!(report.contains("a terminate is one segment, but its l bit is 0"), "{report}");
    // Its code is correct.
    assert!(!report.contains("fail          ERR-02"), "{report}");
}

// A wrong start-up frame fails its own requirement and no other.
#[test]
fn a_reply_with_a_wrong_key_is_reported_by_requirement() {
    let address = peer_that_ends_with(b"", |reply| reply[15] = b'x');
    let output = run(&["conform", &address, "-W", "1", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(with_verdict(&report, "fail"), BTreeSet::from(["CONN-01".to_owned()]));
    assert!(report["cases"][0]["octets"].is_array(), "{report}");
    let unplayed = report["counts"]["cases not played"].as_u64().unwrap();
    assert!(unplayed > 50, "{unplayed}");
    let error = text(&output.stderr);
    let printed = format!(
        "{unplayed} cases not played: the peer accepted no connection after \"first contact\""
    );
    assert!(error.contains(&printed), "{error}");
}

#[test]
fn one_case_is_played_and_reported() {
    let target = target();
    let name = "CRC: zero";
    let output = run(&["conform", &target.address, "--case", name]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let described = text(&output.stdout);
    let first = described.lines().next().unwrap_or_default();
    assert_eq!(first.trim_start(), format!("1/1 pass {name}"), "{described}");
    assert!(described.contains("\n1 case, "), "{described}");
}

#[test]
fn asking_for_no_case_is_refused() {
    let none: [&[&str]; 4] = [
        &["--case", "CRC: zero", "--skip", "CRC: zero"],
        &["--case", "CRC: zero", "--only", "DDP-10"],
        // A requirement that the wire does not show.
        &["--only", "MPA-29"],
        // A case for a peer that connects.
        &["--only", "MPA-12"],
    ];
    for arguments in none {
        let output = run(&[&["conform", "127.0.0.1:1"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error = text(&output.stderr);
        assert!(error.contains("no case for a peer that listens is selected"), "{error}");
    }
}

// A peer that stops in the middle: each case is reported as it is played, and the run fails because of the
// others.
#[test]
fn cases_that_were_not_played_are_a_failure() {
    let mut tester = start(&["conform", "--listen", "127.0.0.1:0", "--wait", "2"], "waiting");
    let stopped = Arc::new(AtomicBool::new(false));
    let calling = std::thread::spawn({
        let (address, stopped) = (tester.address.clone(), stopped.clone());
        move || {
            while !stopped.load(Ordering::Relaxed) {
                run(&["ping", &address, "-c", "1", "-i", "0", "-q", "--peer-to-peer"]);
            }
        }
    });
    let third = line_with(&mut tester.output, |line| line.trim_start().starts_with("3/"));
    stopped.store(true, Ordering::Relaxed);
    let report = rest(&mut tester.output);
    calling.join().unwrap();
    assert_eq!(tester.process.code(), Some(1), "{third}\n{report}");
    let last = report.lines().last().unwrap_or_default();
    assert!(last.contains(" cases not played: the peer no longer connected after \""), "{last}");
    let count = last.split(' ').next().unwrap().parse::<usize>().unwrap();
    let of = third.trim_start().split(['/', ' ']).nth(1).unwrap().parse::<usize>().unwrap();
    let played = report.lines().filter(|l| l.contains(&format!("/{of} "))).count() + 3;
    assert_eq!(played + count, of, "{report}");
}

#[test]
fn a_peer_that_does_not_listen_is_reported() {
    // Bound, not listening: connections are refused as long as it lives.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = run(&["conform", &closed.to_string()]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    let output = run(&["conform", "--listen", "127.0.0.1:0", "--wait", "0.1"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
}

/// A peer that accepts connections and sends nothing.
#[test]
fn a_silent_peer_times_out() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let output = run(&["conform", &address, "-W", "0.1"]);
    let why = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{why}");
    assert!(why.contains("replied to the request with nothing") && why.contains(&address), "{why}");

    let mut command = warpline();
    command.args(["conform", "--listen", "127.0.0.1:0", "-W", "0.1"]);
    let mut tester =
        Running::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let (mut output, mut why) = (tester.stdout(), String::new());
    let line = line_with(&mut output, |line| line.starts_with("waiting"));
    let _silent = TcpStream::connect(line.rsplit(' ').next().unwrap()).unwrap();
    tester.stderr().read_to_string(&mut why).unwrap();
    assert_eq!(tester.code(), Some(4), "{why}");
    assert!(why.contains("nothing"), "{why}");
}

#[test]
fn listings_and_bad_arguments() {
    let listing = text(&run(&["conform", "--list"]).stdout);
    for printed in ["CONN-07", "not shown SEC-17", "listens", "connects"] {
        assert!(listing.contains(printed), "{printed}: {listing}");
    }
    for wrong in [&["conform"][..], &["conform", "127.0.0.1:1", "--only", "MPA-99"]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
