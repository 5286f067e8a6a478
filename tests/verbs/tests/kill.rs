//! Tests of `kill -9` of either side of unmodified verbs programs at random moments: the other side exits in
//! bounded time, or serves the next client, and never ends by a signal. `WARPLINE_KILLS` is the number of
//! kills, by default six.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use verbs_programs::process::{Process, free_port, is_listening};
use verbs_programs::survivor::{BOUND, ends, is_connected};
use verbs_programs::{Libraries, libraries, run, skip};

/// Two sides that would run until one is killed.
struct Pair {
    package: &'static str,
    server: &'static str,
    client: &'static str,
    /// The next client of a server that goes on.
    next: Option<&'static str>,
    /// The server waits for a request of this client without end, also once the client is gone.
    is_patient: bool,
}

const PAIRS: [Pair; 5] = [
    Pair {
        package: "perftest",
        // On iWARP its sender waits for credits that the receiver writes, with no request outstanding: without
        // end if the receiver is gone. With so many receives it always has a request outstanding.
        server: "ib_send_bw -R -p {port} -r 4096 -n 5000000",
        client: "ib_send_bw -R -p {port} -r 4096 -n 5000000 127.0.0.1",
        next: None,
        is_patient: false,
    },
    Pair {
        package: "perftest",
        server: "ib_write_bw -p {port} -n 5000000",
        client: "ib_write_bw -p {port} -n 5000000 127.0.0.1",
        next: None,
        is_patient: false,
    },
    Pair {
        package: "rdmacm-utils",
        server: "rping -s -a 127.0.0.1 -p {port}",
        client: "rping -c -a 127.0.0.1 -p {port}",
        next: None,
        is_patient: false,
    },
    Pair {
        package: "qperf",
        server: "qperf -lp {port}",
        // A receiver without rdma_cm does not notice the sender's end, as on InfiniBand: it times out.
        client: "qperf -lp {port} -t 3 127.0.0.1 rc_bw",
        next: Some("qperf -lp {port} -t 1 127.0.0.1 rc_lat"),
        is_patient: false,
    },
    Pair {
        package: "qperf",
        server: "qperf -lp {port}",
        client: "qperf -lp {port} -cm1 -t 600 127.0.0.1 rc_rdma_write_bw",
        next: Some("qperf -lp {port} -cm1 -t 1 127.0.0.1 rc_lat"),
        is_patient: true,
    },
];

/// The latest moment of a kill, in milliseconds; messages flow long before.
const LATEST: u64 = 1500;

#[test]
fn the_other_side_ends_after_a_kill() {
    let times = std::env::var("WARPLINE_KILLS").map_or(6, |text| text.parse().unwrap());
    let libraries = Libraries::build();
    let random = RandomState::new();
    let mut failed = Vec::new();
    for number in 0..times {
        let pair = &PAIRS[number % PAIRS.len()];
        if !libraries::is_installed(pair.client, pair.package, "kill -9 of") {
            continue;
        }
        let chance = random.hash_one(number);
        if let Err(why) = one(&libraries, pair, chance) {
            failed.push(format!("{number}. {}: {why}", pair.client));
        }
    }
    assert!(failed.is_empty(), "{} of {times}:\n{}", failed.len(), failed.join("\n\n"));
}

fn one(libraries: &Libraries, pair: &Pair, chance: u64) -> Result<(), String> {
    let port = free_port();
    let start = |line: &str| Process::start(run::command(libraries, line, port, None));
    let mut server = start(pair.server)?;
    warpline_patience::until("a server to listen", || is_listening(port));
    let mut client = start(pair.client)?;
    if pair.is_patient {
        warpline_patience::until("a connection", || {
            is_connected(&client) == Some(true) || client.ended().is_some()
        });
    }
    let (point, of_the_server) =
        (Duration::from_millis(chance / 2 % LATEST), chance.is_multiple_of(2));
    if client.wait(point).is_some() {
        return Err(format!("the client ended before a side was killed: {}", client.printed()));
    }
    let (who, left) = if of_the_server {
        server.kill();
        ("client", &mut client)
    } else {
        client.kill();
        ("server", &mut server)
    };
    let when = format!("{point:?} after the start the other was killed; the {who}");
    let judged = match pair.next {
        Some(next) if !of_the_server => serves(left, || start(next)),
        _ => ends(left, port),
    };
    judged.map_err(|why| format!("{when} {why}\n{}", left.printed()))
}

/// Asserts that it serves the next client, perhaps later: qperf's clients wait some seconds for a busy server.
fn serves(left: &mut Process, next: impl Fn() -> Result<Process, String>) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let mut client = next()?;
        let status = client.wait(BOUND);
        if let Some(status) = left.ended() {
            return Err(format!("ended: {status}"));
        }
        if status.is_some_and(|status| status.success()) {
            return Ok(());
        }
        if begun.elapsed() > BOUND {
            let (printed, threads) = (client.printed(), left.threads());
            return Err(format!("does not serve: {status:?} {printed}\n{threads}"));
        }
    }
}

/// After a kill, the port is free and the devices can be listed.
#[test]
fn devices_and_port_are_free_after_a_kill() {
    for (name, package) in [("rping", "rdmacm-utils"), ("ibv_devices", "ibverbs-utils")] {
        if libraries::find(name).is_none() {
            return skip("what a killed process leaves", warpline_skip::missing(package));
        }
    }
    let libraries = Libraries::build();
    let port = free_port();
    let start = |line: &str| Process::start(run::command(&libraries, line, port, None)).unwrap();
    for _ in 0..5 {
        let mut server = start("rping -s -a 127.0.0.1 -p {port}");
        warpline_patience::until("a server to listen, or to end", || {
            is_listening(port) || server.ended().is_some()
        });
        assert!(server.ended().is_none(), "{}", server.printed());
        let mut client = start("rping -c -a 127.0.0.1 -p {port}");
        let mut lists = [(); 2].map(|()| start("ibv_devices"));
        server.kill();
        for list in &mut lists {
            let status = list.wait(BOUND);
            assert!(status.is_some_and(|status| status.success()), "{}", list.printed());
            assert!(list.printed().contains("softrdma0"), "{}", list.printed());
        }
        client.kill();
    }
}
