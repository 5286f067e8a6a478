//! Tests that valgrind's memcheck finds no errors in unmodified verbs programs on the libraries: short runs,
//! both sides. `WARPLINE_MEMCHECK=all` runs more of them. `valgrind.supp` has errors of the programs.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::process::{Command, ExitStatus};

use verbs_programs::process::{Process, free_port, is_listening};
use verbs_programs::run::Seen;
use verbs_programs::survivor::BOUND;
use verbs_programs::{Libraries, libraries, programs, run, skip};

/// valgrind's exit status if it found an error.
const FOUND: i32 = 99;

/// Package, server, client.
const PROGRAMS: [[&str; 3]; 4] = [
    [
        "rdmacm-utils",
        "rping -s -a 127.0.0.1 -p {port} -C 5",
        "rping -c -a 127.0.0.1 -p {port} -C 5",
    ],
    ["perftest", "ib_send_bw -R -p {port} -n 5", "ib_send_bw -R -p {port} -n 5 127.0.0.1"],
    [
        "libfabric-bin",
        "fi_pingpong -p verbs -e msg -I 5 -S 64 -B {port}",
        "fi_pingpong -p verbs -e msg -I 5 -S 64 -P {port} 127.0.0.1",
    ],
    [
        "ibverbs-utils",
        "ibv_rc_pingpong -p {port} -g 1 -n 5",
        "ibv_rc_pingpong -p {port} -g 1 -n 5 127.0.0.1",
    ],
];

/// With `WARPLINE_MEMCHECK=all` also these.
const FURTHER: [[&str; 3]; 3] = [
    [
        "rdmacm-utils",
        "ucmatose -b 127.0.0.1 -p {port} -c 2 -C 2",
        "ucmatose -s 127.0.0.1 -p {port} -c 2 -C 2",
    ],
    ["perftest", "ib_read_lat -R -e -p {port} -n 5", "ib_read_lat -R -e -p {port} -n 5 127.0.0.1"],
    [
        "libfabric-bin",
        "fi_pingpong -p verbs;ofi_rxm -e rdm -I 5 -S 64 -B {port}",
        "fi_pingpong -p verbs;ofi_rxm -e rdm -I 5 -S 64 -P {port} 127.0.0.1",
    ],
];

/// On RoCE.
const ON_ROCE: [[&str; 3]; 4] = [
    PROGRAMS[0],
    PROGRAMS[1],
    [
        "ibverbs-utils",
        "ibv_rc_pingpong -p {port} -g 0 -n 5",
        "ibv_rc_pingpong -p {port} -g 0 -n 5 127.0.0.1",
    ],
    [
        "ibverbs-utils",
        "ibv_ud_pingpong -p {port} -g 0 -n 5",
        "ibv_ud_pingpong -p {port} -g 0 -n 5 127.0.0.1",
    ],
];

/// On RoCE, with `WARPLINE_MEMCHECK=all`.
const FURTHER_ON_ROCE: [[&str; 3]; 5] = [
    FURTHER[0],
    FURTHER[1],
    ["rdmacm-utils", "udaddy -b 127.0.0.1 -c 2 -C 2", "udaddy -s 127.0.0.1 -c 2 -C 2"],
    [
        "perftest",
        "ib_send_lat -c UD -x 0 -p {port} -n 5",
        "ib_send_lat -c UD -x 0 -p {port} -n 5 127.0.0.1",
    ],
    [
        "rdmacm-utils",
        "rping -s -a 127.0.0.1 -p {port} -C 5 -S 60000 -V",
        "rping -c -a 127.0.0.1 -p {port} -C 5 -S 60000 -V",
    ],
];

#[test]
fn programs_run_under_memcheck() {
    all(&PROGRAMS, &FURTHER, false);
}

#[test]
fn programs_run_on_roce_under_memcheck() {
    all(&ON_ROCE, &FURTHER_ON_ROCE, true);
}

fn all(programs: &[[&str; 3]], further: &[[&str; 3]], on_roce: bool) {
    let libraries = Libraries::build();
    let further = if wants_all() { further } else { &[] };
    for [package, server, client] in programs.iter().chain(further) {
        let name = client.split(' ').next().unwrap();
        for (program, package) in [("valgrind", "valgrind"), (name, *package)] {
            if libraries::find(program).is_none() {
                return skip(&format!("{name} under memcheck"), warpline_skip::missing(package));
            }
        }
        pair(&libraries, server, client, on_roce);
    }
}

/// Each rank of Open MPI under its own memcheck.
#[test]
fn ranks_run_under_memcheck() {
    if !wants_all() {
        return;
    }
    if libraries::find("valgrind").is_none() {
        return skip("Open MPI under memcheck", warpline_skip::missing("valgrind"));
    }
    let two = |program: &programs::Program| program.name == "Open MPI over libfabric, 2 ranks";
    let mut mpi = programs::all().into_iter().find(two).unwrap();
    let checked = format!("valgrind {} {{program}}", options("mpi").join(" "));
    mpi.client = mpi.client.replace("{program}", &checked);
    match run::once(&Libraries::build(), &mpi) {
        Seen::Works => {}
        Seen::Fails(why) => panic!("{why}"),
        Seen::Missing(why) => skip("Open MPI under memcheck", why),
    }
}

fn wants_all() -> bool {
    std::env::var_os("WARPLINE_MEMCHECK").is_some_and(|text| text == "all")
}

/// Programs that free all that they create, so that a leak is one of the libraries. Others end with objects.
const FREES_ALL: [&str; 3] = ["rping", "ibv_rc_pingpong", "ibv_ud_pingpong"];

/// Of valgrind, for this program.
fn options(program: &str) -> Vec<String> {
    let known = libraries::root().join("tests/verbs/valgrind.supp");
    let mut options = vec![
        "-q".into(),
        // The provider's thread replies to other processes while the program polls.
        "--fair-sched=yes".into(),
        format!("--error-exitcode={FOUND}"),
        format!("--suppressions={}", known.display()),
    ];
    // Debug builds never free handles, to detect their use after destruction.
    if !cfg!(debug_assertions) && FREES_ALL.contains(&program) {
        let leaks =
            ["leak-check=full", "show-leak-kinds=definite", "errors-for-leak-kinds=definite"];
        options.extend(leaks.map(|option| format!("--{option}")));
    }
    options
}

fn pair(libraries: &Libraries, server: &str, client: &str, on_roce: bool) {
    let mut runs = (0..TRIES).map(|_| pair_once(libraries, server, client, on_roce));
    let is_unjoined = |ends: &[End; 2]| {
        ends.iter().any(|(ended, printed)| {
            printed.contains(UNJOINED) && ended.is_some_and(|status| status.code() != Some(FOUND))
        })
    };
    let [client, server] = runs.find(|ends| !is_unjoined(ends)).expect("a run without the race");
    for (who, (ended, printed)) in [("client", client), ("server", server)] {
        assert!(ended.is_some_and(|status| status.success()), "the {who}: {ended:?}\n{printed}");
    }
}

/// How the client and the server ended, and what they printed.
fn pair_once(libraries: &Libraries, server: &str, client: &str, on_roce: bool) -> [End; 2] {
    let port = free_port();
    let start = |line: &str| {
        let mut command = checked(libraries, line, port);
        if on_roce {
            run::on_roce(&mut command);
        }
        Process::start(command).unwrap()
    };
    let end = |process: &mut Process| (process.wait(BOUND * 4), process.printed());
    // A server of rdma_cm on RoCE opens no TCP port.
    let is_unseen = on_roce && !run::is_by_tcp(client);
    let mut server = start(server);
    warpline_patience::until("a server to listen", || {
        is_unseen || is_listening(port) || server.ended().is_some()
    });
    let mut clients = (0..TRIES).map(|_| end(&mut start(client)));
    // A request before the server listens is refused, by the client's own process.
    let mut is_early =
        |printed: &str| is_unseen && run::is_early(printed) && server.ended().is_none();
    let client = clients.find(|(_, printed)| !is_early(printed)).expect("a server that listens");
    [client, end(&mut server)]
}

type End = (Option<ExitStatus>, String);

/// Starts of a client, at most, until its server listens, and of a pair until it ends without [`UNJOINED`].
const TRIES: usize = 10;

/// Printed last by rping of rdma-core 44, whose thread of events may still run, and read freed memory, after `main` destroyed its
/// channel: `main` does not join it. Later versions do. `valgrind.supp` has the read.
const UNJOINED: &str = "DISCONNECT EVENT...\nrdma_get_cm_event: Invalid argument";

fn checked(libraries: &Libraries, line: &str, port: u16) -> Command {
    let program = run::command(libraries, line, port, None);
    let mut command = libraries.command("valgrind");
    command.env("WARPLINE_CONFIG", libraries::root().join("tests/verbs/slow.toml"));
    command.args(options(line.split(' ').next().unwrap()));
    command.arg(program.get_program()).args(program.get_args());
    command
}
