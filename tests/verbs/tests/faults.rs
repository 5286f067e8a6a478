//! Tests of unmodified verbs programs whose provider calls fail by `warpline run --fault`: both sides exit in
//! bounded time, with success or an error, and never by a signal. `WARPLINE_FAULTS=all` tries each rule with
//! each program on each side; else each rule is tried once.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use verbs_programs::process::{Process, free_port, is_listening};
use verbs_programs::survivor::ends;
use verbs_programs::{Libraries, libraries, run, skip};

/// Package, server, client.
const PROGRAMS: [[&str; 3]; 4] = [
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Server,
    Client,
}

#[test]
fn both_sides_end_when_calls_fail() {
    let all = std::env::var_os("WARPLINE_FAULTS").is_some_and(|text| text == "all");
    let libraries = Libraries::build();
    let mut failed = Vec::new();
    for (number, rule) in RULES.iter().enumerate() {
        for (at, program) in PROGRAMS.iter().enumerate() {
            for side in [Side::Server, Side::Client] {
                let chosen = (number % PROGRAMS.len(), number / PROGRAMS.len() % 2);
                if !all && (at, side as usize) != chosen {
                    continue;
                }
                if let Err(why) = one(&libraries, program, rule, side) {
                    let why = format!("{rule} at the {side:?} of {}: {why}", program[1]);
                    eprintln!("{why}");
                    failed.push(why);
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}:\n{}", failed.len(), failed.join("\n\n"));
}

fn one(libraries: &Libraries, program: &[&str; 3], rule: &str, side: Side) -> Result<(), String> {
    let [package, server, client] = program;
    let name = client.split(' ').next().unwrap();
    if libraries::find(name).is_none() {
        skip(&format!("{rule} beneath {name}"), &format!("{package} is not installed"));
        return Ok(());
    }
    let port = free_port();
    let start = |line: &str, this: Side| {
        let mut command = run::command(libraries, line, port, None);
        if this == side {
            command.env("WARPLINE_WRAP", format!("fault:{rule}"));
        }
        Process::start(command)
    };
    let mut server = start(server, Side::Server)?;
    warpline_patience::until("a server to listen or to end", || {
        is_listening(port) || server.ended().is_some()
    });
    let mut client = start(client, Side::Client)?;
    for (who, process) in [("client", &mut client), ("server", &mut server)] {
        ends(process, port)
            .map_err(|why| format!("the {who} {why}\nIt printed:\n{}", process.printed()))?;
    }
    Ok(())
}
