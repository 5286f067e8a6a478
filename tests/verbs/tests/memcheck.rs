//! Tests that valgrind's memcheck finds no errors in unmodified verbs programs on the libraries: short runs,
//! both sides. `WARPLINE_MEMCHECK=all` runs more of them. `valgrind.supp` has errors of the programs.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::process::Command;

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

#[test]
fn programs_run_under_memcheck() {
    let libraries = Libraries::build();
    let further = if wants_all() { &FURTHER[..] } else { &[] };
    for [package, server, client] in PROGRAMS.iter().chain(further) {
        let name = client.split(' ').next().unwrap();
        for (program, package) in [("valgrind", "valgrind"), (name, *package)] {
            if libraries::find(program).is_none() {
                let why = format!("package {package} is not installed");
                return skip(&format!("{name} under memcheck"), &why);
            }
        }
        pair(&libraries, server, client);
    }
}

/// Each rank of Open MPI under its own memcheck.
#[test]
fn ranks_run_under_memcheck() {
    if !wants_all() {
        return;
    }
    if libraries::find("valgrind").is_none() {
        return skip("Open MPI under memcheck", "package valgrind is not installed");
    }
    let two = |program: &programs::Program| program.name == "Open MPI over libfabric, 2 ranks";
    let mut mpi = programs::all().into_iter().find(two).unwrap();
    let checked = format!("valgrind {} {{program}}", options().join(" "));
    mpi.client = mpi.client.replace("{program}", &checked);
    match run::once(&Libraries::build(), &mpi) {
        Seen::Works => {}
        Seen::Fails(why) => panic!("{why}"),
        Seen::Missing(why) => skip("Open MPI under memcheck", &why),
    }
}

fn wants_all() -> bool {
    std::env::var_os("WARPLINE_MEMCHECK").is_some_and(|text| text == "all")
}

/// Of valgrind.
fn options() -> [String; 3] {
    let known = libraries::root().join("tests/verbs/valgrind.supp");
    [
        "-q".into(),
        format!("--error-exitcode={FOUND}"),
        format!("--suppressions={}", known.display()),
    ]
}

fn pair(libraries: &Libraries, server: &str, client: &str) {
    let port = free_port();
    let start = |line: &str| Process::start(checked(libraries, line, port)).unwrap();
    let mut server = start(server);
    warpline_patience::until("a server to listen", || {
        is_listening(port) || server.ended().is_some()
    });
    let mut client = start(client);
    for (who, process) in [("client", &mut client), ("server", &mut server)] {
        let ended = process.wait(BOUND * 4);
        let printed = process.printed();
        assert!(ended.is_some_and(|status| status.success()), "the {who}: {ended:?}\n{printed}");
    }
}

fn checked(libraries: &Libraries, line: &str, port: u16) -> Command {
    let program = run::command(libraries, line, port, None);
    let mut command = libraries.command("valgrind");
    command.args(options());
    command.arg(program.get_program()).args(program.get_args());
    command
}
