//! The table of what librdmacm's calls return and what events report where something is refused, and a test of each
//! row on both devices: by a program in C, which prints a line per row.
//!
//! The columns are what the kernel's siw (iWARP) and rxe (RoCE) do, as the same program with rdma-core 44 on Linux 6.1
//! prints it; [`DIFFERS`] has the rows in which we differ, with the reasons.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use verbs_programs::process::Process;
use verbs_programs::{Libraries, libraries, run, skip};
use warpline_tests::netns::Netns;

/// Case, result on siw, result on rxe; `-` where the program does not get there.
const ROWS: &[(&str, &str, &str)] = &[
    ("bind: same address", "EADDRINUSE", "EADDRINUSE"),
    ("bind: wildcard twice", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("bind: wildcard after an address", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("bind: an address after the wildcard", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("bind: IPv6 wildcard twice", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("bind: loopback twice", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("bind: wildcards of both families", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("bind: an address of no machine", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("bind: link-local without an interface", "EINVAL", "EINVAL"),
    ("bind: another family", "EINVAL", "EINVAL"),
    ("bind: after refusals", "ok", "ok"),
    ("bind: bound already", "EINVAL", "EINVAL"),
    ("listen: bound", "ok", "ok"),
    ("listen: listens already", "EINVAL", "EINVAL"),
    ("bind: listens", "EINVAL", "EINVAL"),
    ("resolve_addr: listens", "EINVAL", "EINVAL"),
    ("connect: listens", "EINVAL", "EINVAL"),
    ("bind: its listener is destroyed", "ok", "ok"),
    ("listen: not bound", "ok", "ok"),
    ("bind: loopback", "no device", "no device"),
    ("bind: IPv6 loopback", "no device", "no device"),
    ("bind: its address", "a device", "a device"),
    ("resolve_route: no address", "EINVAL", "EINVAL"),
    ("connect: no address", "EINVAL", "EINVAL"),
    ("accept: no request", "EINVAL", "EINVAL"),
    ("reject: no request", "EINVAL", "EINVAL"),
    ("disconnect: no connection", "EINVAL", "EINVAL"),
    ("notify: no connection", "EINVAL", "EINVAL"),
    ("resolve_addr: event", "ADDR_RESOLVED 0", "ADDR_RESOLVED 0"),
    ("resolve_addr: resolved", "EINVAL", "EINVAL"),
    ("bind: resolved", "EINVAL", "EINVAL"),
    ("listen: resolved", "EINVAL", "EINVAL"),
    ("connect: no route", "EINVAL", "EINVAL"),
    ("resolve_route: no time", "EINVAL", "EINVAL"),
    ("resolve_route: once", "ok", "ok"),
    ("resolve_route: event", "ROUTE_RESOLVED 0", "ROUTE_RESOLVED 0"),
    ("resolve_route: twice", "EINVAL", "EINVAL"),
    ("resolve_addr: of the other family", "EINVAL", "EINVAL"),
    ("resolve_addr: bound", "ok", "ok"),
    ("resolve_addr: bound, event", "ADDR_RESOLVED 0", "ADDR_RESOLVED 0"),
    ("connect: first", "ok", "ok"),
    ("connect: again", "EINVAL", "EINVAL"),
    ("reject: a request", "ok", "ok"),
    ("rejected: event", "REJECTED -ECONNRESET because", "REJECTED 28 because"),
    ("connect: rejected", "EINVAL", "EINVAL"),
    ("disconnect: rejected", "ok", "ok"),
    ("accept: rejected", "EINVAL", "EINVAL"),
    ("reject: rejected", "EINVAL", "EINVAL"),
    ("request destroyed: event", "REJECTED -ECONNRESET", "REJECTED 28"),
    ("accept: once", "ok", "ok"),
    ("connected: event", "ESTABLISHED 0", "ESTABLISHED 0"),
    ("accepted: event", "ESTABLISHED 0", "ESTABLISHED 0"),
    ("accept: twice", "EINVAL", "EINVAL"),
    ("reject: accepted", "EINVAL", "EINVAL"),
    ("connect: connected", "EINVAL", "EINVAL"),
    ("disconnect: once", "ok", "ok"),
    ("disconnected: event", "DISCONNECTED 0", "nothing"),
    ("disconnected: peer's event", "DISCONNECTED 0", "DISCONNECTED 0"),
    ("disconnect: twice", "ok", "ok"),
    ("disconnect: after the peer", "ok", "ok"),
    ("connect: no listener", "ECONNREFUSED", "ok"),
    ("no listener: event", "nothing", "REJECTED 8"),
    ("connect: bound only", "ECONNREFUSED", "ok"),
    ("bound only: event", "nothing", "REJECTED 8"),
    ("connect: 255 octets", "ok", "EINVAL"),
    ("connect: 57 octets", "ok", "EINVAL"),
    ("connect: 53 octets", "ok", "ok"),
    ("accept: 197 octets", "ok", "EINVAL"),
    ("reject: 149 octets", "ok", "EINVAL"),
    ("connect: too many reads in", "EINVAL", "EINVAL"),
    ("connect: too many reads out", "EINVAL", "EINVAL"),
    ("option: unknown level", "ENOSYS", "ENOSYS"),
    ("option: unknown name", "ENOSYS", "ENOSYS"),
    ("option: type of service", "ok", "ok"),
    ("option: type of service of 4 octets", "EINVAL", "EINVAL"),
    ("option: acknowledgement", "ok", "ok"),
    ("option: acknowledgement of 32", "ok", "ok"),
    ("option: shared address of 1 octet", "EINVAL", "EINVAL"),
    ("option: one family of 1 octet", "EINVAL", "EINVAL"),
    ("option: path, no address", "EINVAL", "EINVAL"),
    ("option: shared address, bound", "ok", "ok"),
    ("option: one family, bound", "ok", "ok"),
    ("option: shared address, listens", "EINVAL", "EINVAL"),
    ("option: one family, listens", "EINVAL", "EINVAL"),
    ("option: type of service, connected", "ok", "ok"),
    ("option: acknowledgement, connected", "ok", "ok"),
    ("option: shared address, connected", "ok", "ok"),
    ("migrate: connected", "ok", "ok"),
    ("establish: no connection", "EINVAL", "EINVAL"),
    ("connect: a number of no queue pair", "EINVAL", "ok"),
    ("request", "none", "number 0x4321"),
    ("accept: a number of no queue pair", "-", "ok"),
    ("response", "-", "CONNECT_RESPONSE, number 0x8765"),
    ("accepted, not established", "-", "nothing"),
    ("establish: response", "-", "ok"),
    ("established: event", "-", "ESTABLISHED 0"),
    ("establish: twice", "-", "EINVAL"),
    ("disconnect: no queue pair", "-", "ok"),
    ("disconnected, no queue pair: event", "-", "nothing"),
    ("disconnected, no queue pair: peer's event", "-", "DISCONNECTED 0"),
    ("join: an identifier for connections", "EINVAL", "EINVAL"),
    ("leave: an identifier for connections", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("an identifier for datagrams", "ok", "ok"),
];

/// The same of multicast groups, where an identifier for datagrams can be made: on SoftRDMA it cannot.
const GROUPS: &[(&str, &str, &str)] = &[
    ("join: not bound", "EINVAL", "EINVAL"),
    ("leave: not bound", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("join: no device", "EINVAL", "EINVAL"),
    ("join: another family", "EINVAL", "EINVAL"),
    ("join: no flags", "EINVAL", "EINVAL"),
    ("join: unknown flags", "EINVAL", "EINVAL"),
    ("join: no queue pair", "ENOSYS", "ok"),
    ("join: no queue pair, event", "-", "MULTICAST_JOIN 0"),
    ("a queue pair for datagrams", "EOPNOTSUPP", "ok"),
    ("join: the wildcard", "ENOSYS", "EINVAL"),
    ("join: an address of one machine", "ENOSYS", "ok"),
    ("join: an address of one machine, event", "-", "MULTICAST_ERROR -EPERM"),
    ("join: of IPv6", "ENOSYS", "524"),
    ("join: once", "ENOSYS", "ok"),
    ("join: once, event", "-", "MULTICAST_JOIN 0"),
    ("join: twice", "ENOSYS", "ok"),
    ("join: twice, event", "-", "MULTICAST_JOIN 0"),
    ("leave: a group of nobody", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("leave: another identifier's group", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("leave: once", "EADDRNOTAVAIL", "ok"),
    ("leave: twice", "EADDRNOTAVAIL", "ok"),
    ("leave: once more", "EADDRNOTAVAIL", "EADDRNOTAVAIL"),
    ("leave: without a queue pair", "EADDRNOTAVAIL", "ok"),
    ("join: listens", "EINVAL", "EINVAL"),
    ("join: address resolved", "ENOSYS", "ok"),
    ("join: address resolved, event", "-", "MULTICAST_JOIN 0"),
    ("join: route resolved", "EINVAL", "EINVAL"),
];

/// Case, result on SoftRDMA, result on RoCE, reason.
const DIFFERS: &[(&str, &str, &str, &str)] = &[
    (
        "bind: loopback twice",
        "EADDRINUSE",
        "EADDRINUSE",
        "the kernel takes loopback for a wildcard",
    ),
    ("disconnected: event", "DISCONNECTED 0", "DISCONNECTED 0", WAITS),
    ("disconnected, no queue pair: event", "DISCONNECTED 0", "DISCONNECTED 0", WAITS),
    ("connect: no listener", "ok", "ok", RETRIES),
    ("no listener: event", "REJECTED -ECONNREFUSED", "REJECTED 8", RETRIES),
    ("connect: bound only", "ok", "ok", RETRIES),
    ("bound only: event", "REJECTED -ECONNREFUSED", "REJECTED 8", RETRIES),
    ("option: acknowledgement of 32", "EINVAL", "EINVAL", "the field has five bits"),
    ("option: path, no address", "EOPNOTSUPP", "EOPNOTSUPP", "paths are not set here"),
    ("option: shared address, bound", "EINVAL", "EINVAL", LATE),
    ("option: one family, bound", "EINVAL", "EINVAL", LATE),
    ("option: shared address, connected", "EINVAL", "EINVAL", LATE),
    ("connect: a number of no queue pair", "ok", "ok", CARRIED),
    ("request", "number 0", "number 0x4321", CARRIED),
    ("accept: a number of no queue pair", "ok", "ok", CARRIED),
    ("response", "CONNECT_RESPONSE, number 0", "CONNECT_RESPONSE, number 0x8765", CARRIED),
    ("accepted, not established", "nothing", "nothing", CARRIED),
    ("establish: response", "ok", "ok", CARRIED),
    ("established: event", "ESTABLISHED 0", "ESTABLISHED 0", CARRIED),
    ("establish: twice", "EINVAL", "EINVAL", CARRIED),
    ("disconnect: no queue pair", "ok", "ok", CARRIED),
    ("disconnected, no queue pair: peer's event", "DISCONNECTED 0", "DISCONNECTED 0", CARRIED),
    ("join: an identifier for connections", "EOPNOTSUPP", "EINVAL", NONE),
    ("leave: an identifier for connections", "EOPNOTSUPP", "EADDRNOTAVAIL", NONE),
    ("an identifier for datagrams", "EOPNOTSUPP", "ok", NONE),
    ("join: an address of one machine", "-", "EINVAL", EARLY),
    ("join: an address of one machine, event", "-", "-", EARLY),
    ("join: of IPv6", "-", "EINVAL", "the kernel's number has no name"),
];

const WAITS: &str = "rxe waits until the peer disconnects, too";
const RETRIES: &str = "siw alone connects within the call; iWARP adapters report an event, and ours tries for a second";
const LATE: &str = "the address is shared from its binding on, so that it has no effect later";
const NONE: &str = "siw's machine may have adapters with datagrams, too; this process has none";
const EARLY: &str =
    "the kernel sees only when it attaches a queue pair that the address is of no group";
const CARRIED: &str = "siw connects queue pairs only; iWARP's messages have no field for a number";

/// The address of the namespace's device.
const ADDRESS: &str = "10.77.0.1";

#[test]
fn calls_and_events_are_the_kernels() {
    refusals(false);
}

#[test]
fn calls_and_events_are_the_kernels_on_roce() {
    refusals(true);
}

fn refusals(on_roce: bool) {
    let name = "refusals of rdma_cm";
    if libraries::find("cc").is_none() {
        return skip(name, "package gcc is not installed");
    }
    let (host, _peer) = match Netns::pair(1500) {
        Ok(pair) => pair,
        Err(why) => return skip(name, &why),
    };
    let libraries = Libraries::build();
    // Once for both tests, which run at once.
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let links = ["-lrdmacm".to_owned(), "-libverbs".to_owned()];
    let program = match PROGRAM.get_or_init(|| run::compile("cc", "cm_refusals.c", &links)) {
        Ok(program) => program,
        Err(why) if why.contains("rdma_cma.h") => {
            return skip(name, "package librdmacm-dev is not installed");
        }
        Err(why) => panic!("{why}"),
    };
    let mut command = host.command(program.to_str().unwrap());
    command.arg(ADDRESS).env("LD_LIBRARY_PATH", libraries.directory());
    match on_roce {
        true => run::on_roce(&mut command),
        false => drop(command.env("WARPLINE_VERBS_ROCE", "0")),
    }
    let mut process = Process::start(command).unwrap();
    let ended = process.wait(warpline_patience::HANG);
    let printed = process.printed();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {printed}");
    let found: BTreeMap<_, _> = printed.lines().filter_map(|line| line.rsplit_once(": ")).collect();
    let mut wrong = Vec::new();
    let groups = if on_roce { GROUPS } else { &[] };
    for (case, siw, rxe) in ROWS.iter().chain(groups) {
        let differs = DIFFERS.iter().find(|(differs, ..)| differs == case);
        let (iwarp, roce) = differs.map_or((siw, rxe), |(_, iwarp, roce, _)| (iwarp, roce));
        let expected = if on_roce { roce } else { iwarp };
        let seen = found.get(case).map_or("-", |seen| seen.trim_end());
        if seen != *expected {
            wrong.push(format!("{case}: {seen}, expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}\nThe program:\n{printed}", wrong.join("\n"));
}
