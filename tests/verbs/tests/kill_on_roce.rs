//! Tests of `kill -9` of either side of unmodified verbs programs on RoCE at random moments: the other side exits in
//! bounded time where it can know, and never by a signal; the next pair of programs shares the port with it.
//! `WARPLINE_KILLS` is the number of kills, by default one for each pair of programs.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use verbs_programs::process::{Process, free_port, is_listening};
use verbs_programs::survivor::{BOUND, ends, ends_or_is_ended, server_ends_on_roce};
use verbs_programs::{Libraries, libraries, run};
use warpline_patience::Bound;

/// Two sides.
struct Pair {
    package: &'static str,
    server: &'static str,
    client: &'static str,
    /// Whether each notices the other's end. The receiver of a connection by path does not, nor that of datagrams,
    /// as on every InfiniBand network.
    notices: bool,
}

const fn by_cm(package: &'static str, server: &'static str, client: &'static str) -> Pair {
    Pair { package, server, client, notices: true }
}

const fn by_tcp(server: &'static str, client: &'static str) -> Pair {
    Pair { package: "ibverbs-utils", server, client, notices: false }
}

const PAIRS: [Pair; 8] = [
    by_cm(
        "perftest",
        "ib_send_bw -R -p {port} -n 5000000",
        "ib_send_bw -R -p {port} -n 5000000 127.0.0.1",
    ),
    by_cm("rdmacm-utils", "rping -s -a 127.0.0.1 -p {port}", "rping -c -a 127.0.0.1 -p {port}"),
    by_cm(
        "rdmacm-utils",
        "ucmatose -b 127.0.0.1 -p {port} -c 100 -C 100",
        "ucmatose -s 127.0.0.1 -p {port} -c 100 -C 100",
    ),
    Pair {
        notices: false,
        ..by_cm(
            "rdmacm-utils",
            "udaddy -b 127.0.0.1 -c 100 -C 100",
            "udaddy -s 127.0.0.1 -c 100 -C 100",
        )
    },
    Pair {
        package: "perftest",
        notices: true,
        ..by_tcp(
            "ib_write_bw -p {port} -x 0 -n 5000000",
            "ib_write_bw -p {port} -x 0 -n 5000000 127.0.0.1",
        )
    },
    Pair {
        package: "perftest",
        ..by_tcp(
            "ib_send_bw -c UD -p {port} -x 0 -n 5000000",
            "ib_send_bw -c UD -p {port} -x 0 -n 5000000 127.0.0.1",
        )
    },
    by_tcp(
        "ibv_rc_pingpong -p {port} -g 0 -n 10000000",
        "ibv_rc_pingpong -p {port} -g 0 -n 10000000 127.0.0.1",
    ),
    by_tcp(
        "ibv_ud_pingpong -p {port} -g 0 -n 10000000",
        "ibv_ud_pingpong -p {port} -g 0 -n 10000000 127.0.0.1",
    ),
];

/// What runs after a kill, beside the one that is left.
const NEXT: [&str; 2] =
    ["rping -s -a 127.0.0.1 -p {port} -C 5 -V", "rping -c -a 127.0.0.1 -p {port} -C 5 -V"];

/// The latest moment of a kill, in milliseconds; messages flow long before.
const LATEST: u64 = 1500;

#[test]
fn the_other_side_ends_after_a_kill() {
    let times = std::env::var("WARPLINE_KILLS").map_or(PAIRS.len(), |text| text.parse().unwrap());
    let libraries = Libraries::build();
    let random = RandomState::new();
    let mut failed = Vec::new();
    for number in 0..times {
        let pair = &PAIRS[number % PAIRS.len()];
        if !is_installed(pair) {
            continue;
        }
        if let Err(why) = one(&libraries, pair, random.hash_one(number)) {
            let why = format!("{number}. {}: {why}", pair.client);
            eprintln!("{why}");
            failed.push(why);
        }
    }
    assert!(failed.is_empty(), "{} of {times}:\n{}", failed.len(), failed.join("\n\n"));
}

fn is_installed(pair: &Pair) -> bool {
    [(pair.client, pair.package), (NEXT[0], "rdmacm-utils")]
        .iter()
        .all(|(line, package)| libraries::is_installed(line, package, "kill -9 on RoCE of"))
}

fn start(libraries: &Libraries, line: &str, port: u16) -> Result<Process, String> {
    let mut command = run::command(libraries, line, port, None);
    run::on_roce(&mut command);
    Process::start(command)
}

fn one(libraries: &Libraries, pair: &Pair, chance: u64) -> Result<(), String> {
    let (of_the_server, mut point) = (chance.is_multiple_of(2), chance / 2 % LATEST);
    let port = free_port();
    let bound = Bound::new("a server to listen");
    let (mut server, mut client) = loop {
        let (server, mut client) = both(libraries, pair, port)?;
        match client.wait(Duration::from_millis(point)) {
            None => break (server, client),
            // Some programs end by themselves.
            Some(status) if status.success() && point > 0 => point /= 2,
            // A service is found once it listens, which the server does not tell.
            Some(_) if run::is_early(&client.printed()) => bound.check(),
            Some(_) => return Err(format!("the client ended by itself: {}", client.printed())),
        }
    };
    let (who, left) = if of_the_server {
        server.kill();
        ("client", &mut client)
    } else {
        client.kill();
        ("server", &mut server)
    };
    let judged = next(libraries).and_then(|()| match pair.notices {
        false => ends_or_is_ended(left),
        true if of_the_server => ends(left, port),
        true => server_ends_on_roce(left, port),
    });
    judged.map_err(|why| {
        let when = format!("{point} ms after the start the other was killed; the {who}");
        format!("{when} {why}\n{}", left.printed())
    })
}

fn both(libraries: &Libraries, pair: &Pair, port: u16) -> Result<(Process, Process), String> {
    let mut server = start(libraries, pair.server, port)?;
    warpline_patience::until("a server to listen", || {
        !run::is_by_tcp(pair.client) || is_listening(port) || server.ended().is_some()
    });
    Ok((server, start(libraries, pair.client, port)?))
}

/// Another pair runs at the same address, beside the process that is left.
fn next(libraries: &Libraries) -> Result<(), String> {
    let port = free_port();
    let [mut server, mut client] =
        [start(libraries, NEXT[0], port)?, start(libraries, NEXT[1], port)?];
    for process in [&mut client, &mut server] {
        let status = process.wait(BOUND);
        if !status.is_some_and(|status| status.success()) {
            return Err(format!("hinders the next pair: {status:?} {}", process.printed()));
        }
    }
    Ok(())
}

/// A program with a connection says why it ended.
#[test]
fn the_cause_is_named_after_a_kill() {
    let pair = by_cm(
        "rdmacm-utils",
        "rping -v -s -a 127.0.0.1 -p {port}",
        "rping -v -c -a 127.0.0.1 -p {port}",
    );
    if !is_installed(&pair) {
        return;
    }
    let libraries = Libraries::build();
    for of_the_server in [false, true] {
        let (mut server, mut client) = both(&libraries, &pair, free_port()).unwrap();
        let (killed, left) =
            if of_the_server { (&mut server, &mut client) } else { (&mut client, &mut server) };
        // The C library writes a file when its buffer is full.
        warpline_patience::until("messages", || left.printed().contains("ping data"));
        killed.kill();
        let ended = left.wait(BOUND);
        let printed = left.printed();
        assert!(ended.is_some_and(|status| status.signal().is_none()), "{ended:?}: {printed}");
        // Its request is repeated in vain; or it has none, and the provider probes.
        let causes = ["status 12", "DISCONNECT EVENT"];
        assert!(causes.iter().any(|cause| printed.contains(cause)), "{printed}");
    }
}
