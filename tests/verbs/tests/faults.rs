//! Tests of unmodified verbs programs whose provider calls fail by `warpline run --fault`: both sides exit in
//! bounded time, with success or an error, and never by a signal. `WARPLINE_FAULTS=all` tries each rule with
//! each program on each side; else each rule is tried once.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use verbs_programs::process::{Process, free_port, is_listening};
use verbs_programs::survivor::{ends, ends_or_is_ended, server_ends_on_roce};
use verbs_programs::{Libraries, libraries, run};
use warpline_patience::side_by_side;

/// Package, server, client.
type Program = [&'static str; 3];

/// On SoftRDMA.
const PROGRAMS: [Program; 4] = [
    [
        "rdmacm-utils",
        "rping -s -a 127.0.0.1 -p {port} -C 20",
        "rping -c -a 127.0.0.1 -p {port} -C 20",
    ],
    ["perftest", "ib_send_bw -R -p {port} -n 20", "ib_send_bw -R -p {port} -n 20 127.0.0.1"],
    ["perftest", "ib_write_bw -p {port} -n 20", "ib_write_bw -p {port} -n 20 127.0.0.1"],
    [
        "perftest",
        "ib_send_lat -R -e -p {port} -n 20",
        "ib_send_lat -R -e -p {port} -n 20 127.0.0.1",
    ],
];

/// On RoCE.
const ON_ROCE: [Program; 5] = [
    [
        "rdmacm-utils",
        "rping -s -a 127.0.0.1 -p {port} -C 20",
        "rping -c -a 127.0.0.1 -p {port} -C 20",
    ],
    ["perftest", "ib_send_bw -R -p {port} -n 20", "ib_send_bw -R -p {port} -n 20 127.0.0.1"],
    ["perftest", "ib_write_bw -p {port} -x 0 -n 20", "ib_write_bw -p {port} -x 0 -n 20 127.0.0.1"],
    [
        "rdmacm-utils",
        "ucmatose -b 127.0.0.1 -p {port} -c 2 -C 2",
        "ucmatose -s 127.0.0.1 -p {port} -c 2 -C 2",
    ],
    [
        "perftest",
        "ib_send_lat -R -e -p {port} -n 20",
        "ib_send_lat -R -e -p {port} -n 20 127.0.0.1",
    ],
];

/// Of datagrams, on RoCE.
const OF_DATAGRAMS: [Program; 2] = [
    [
        "ibverbs-utils",
        "ibv_ud_pingpong -p {port} -g 0 -n 20",
        "ibv_ud_pingpong -p {port} -g 0 -n 20 127.0.0.1",
    ],
    ["rdmacm-utils", "udaddy -b 127.0.0.1 -c 2 -C 2", "udaddy -s 127.0.0.1 -c 2 -C 2"],
];

/// Without `arm`: the thread of rping in which it fails ends, and the others wait for it. Without `modify_qp`:
/// rping ignores a failed disconnect, and waits for its receives to be flushed.
const RULES: [&str; 13] = [
    "lead@1..=Os",
    "post_send@1=QueueFull",
    "post_send@3=InvalidStag",
    "post_send@*2=Os",
    "post_recv@1=QueueFull",
    "post_recv@3=InvalidState",
    "poll@1=CqOverrun",
    "poll@4=Os",
    "connect@1=InsufficientResources",
    "connect@1..=InvalidStream",
    "create_qp@1=InsufficientResources",
    "create_cq@1=Os",
    "register_mr@1=InsufficientResources",
];

/// Of datagrams: without `poll`, after which udaddy goes on. In this order each fails at a side that makes the call.
const RULES_OF_DATAGRAMS: [&str; 10] = [
    "create_ah@1=Os",
    "listen_service@1=Os",
    "create_cq@1=Os",
    "resolve_service@1=Os",
    "create_qp@1=InsufficientResources",
    "accept_service@1=InsufficientResources",
    "register_mr@1=InsufficientResources",
    "post_send@1=QueueFull",
    "post_send@*2=Os",
    "post_recv@1=QueueFull",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Server,
    Client,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fabric {
    SoftRdma,
    Roce,
    /// RoCE, with datagrams: a side does not notice that no more will come.
    RoceDatagrams,
}

#[test]
fn both_sides_end_when_calls_fail() {
    all(&PROGRAMS, &RULES, Fabric::SoftRdma);
}

#[test]
fn both_sides_end_when_calls_fail_on_roce() {
    all(&ON_ROCE, &RULES, Fabric::Roce);
}

#[test]
fn the_side_ends_whose_calls_of_datagrams_fail() {
    all(&OF_DATAGRAMS, &RULES_OF_DATAGRAMS, Fabric::RoceDatagrams);
}

fn all(programs: &[Program], rules: &[&str], fabric: Fabric) {
    let all = std::env::var_os("WARPLINE_FAULTS").is_some_and(|text| text == "all");
    let libraries = Libraries::build();
    let mut due = Vec::new();
    for (number, rule) in rules.iter().enumerate() {
        for (at, program) in programs.iter().enumerate() {
            for side in [Side::Server, Side::Client] {
                let chosen = (number % programs.len(), number / programs.len() % 2);
                if (all || (at, side as usize) == chosen) && is_due(program, rule, side) {
                    due.push((rule, program, side));
                }
            }
        }
    }
    // The programs wait most of the time. Those of datagrams have one port number each, whatever they are told.
    let at_once = if fabric == Fabric::RoceDatagrams { 1 } else { 4 };
    let results = side_by_side(at_once, &due, |(rule, program, side)| {
        one(&libraries, program, rule, *side, fabric)
            .map_err(|why| format!("{rule} at the {side:?} of {}: {why}", program[1]))
    });
    let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{}:\n{}", failed.len(), failed.join("\n\n"));
}

/// Calls after whose failure a program of rdma-core fails by itself: the begin of its client's line, and of the rule.
///
/// ucmatose's client then waits for its server to disconnect, which waits for the client's messages. Without a region
/// it frees its buffer twice, and so does udaddy.
const FATAL: [[&str; 2]; 4] = [
    ["ucmatose -s", "post_send"],
    ["ucmatose -s", "poll"],
    ["ucmatose -s", "register_mr"],
    ["udaddy -s", "register_mr"],
];

/// Whether the side can make the call, and can end after it. Where it never makes it, a lost datagram would have it
/// wait for ever.
fn is_due([_, _, client]: &Program, rule: &str, side: Side) -> bool {
    let is_fatal =
        |[program, call]: &[&str; 2]| client.starts_with(program) && rule.starts_with(call);
    match side {
        Side::Server => !rule.starts_with("resolve_service"),
        Side::Client => {
            let serves = ["listen_service", "accept_service"];
            !serves.iter().any(|call| rule.starts_with(call)) && !FATAL.iter().any(is_fatal)
        }
    }
}

fn one(
    libraries: &Libraries,
    program: &Program,
    rule: &str,
    side: Side,
    fabric: Fabric,
) -> Result<(), String> {
    let [package, server, client] = program;
    if !libraries::is_installed(client, package, &format!("{rule} beneath")) {
        return Ok(());
    }
    let port = free_port();
    let start = |line: &str, this: Side| {
        let mut command = run::command(libraries, line, port, None);
        if fabric != Fabric::SoftRdma {
            run::on_roce(&mut command);
        }
        if this == side {
            command.env("WARPLINE_WRAP", format!("fault:{rule}"));
        }
        Process::start(command)
    };
    let mut server = start(server, Side::Server)?;
    // A client of rdma_cm on RoCE tries until its server listens, which opens no TCP port.
    let is_unseen = fabric != Fabric::SoftRdma && !run::is_by_tcp(client);
    warpline_patience::until("a server to listen or to end", || {
        is_unseen || is_listening(port) || server.ended().is_some()
    });
    let mut running = start(client, Side::Client)?;
    if side == Side::Server && fabric == Fabric::RoceDatagrams {
        // A client that asked before the server listened was refused, and has ended.
        warpline_patience::until("a server to end", || {
            if server.ended().is_none() && running.ended().is_some() {
                running = start(client, Side::Client).unwrap();
            }
            server.ended().is_some()
        });
    }
    let mut both = [("client", &mut running), ("server", &mut server)];
    if side == Side::Server {
        both.reverse();
    }
    for (place, (who, process)) in both.into_iter().enumerate() {
        let ended = match (fabric, place) {
            (Fabric::RoceDatagrams, 1) => ends_or_is_ended(process),
            (Fabric::Roce, _) if who == "server" => server_ends_on_roce(process, port),
            _ => ends(process, port),
        };
        ended.map_err(|why| format!("the {who} {why}\nIt printed:\n{}", process.printed()))?;
    }
    Ok(())
}
