//! Tests of `warpline explain`: for each cause two processes that produce it, where it must be the first, and a control
//! where it must not be named. Network namespaces act as two hosts, with the rate, loss, delay and MTU of a network.

mod ends;
pub(crate) mod load;
mod operator;
mod peers;

use ends::{Ends, Net, Path};
use load::{FLOW, Load, Manner, Op, STREAM, Serve};
use warpline_patience::until;

const POLLS: Serve = Serve { receives: 64, manner: Manner::Poll };
const PARKS: Serve = Serve { receives: 0, manner: Manner::Park };
/// A connection with a stopped peer does not end.
const PATIENT: &str = "[policy]\nuser_timeout_ms = 0\nprobe_ms = 0\n";
/// One request in 20 ms.
const SELDOM: Load = Load { size: 4096, at_once: 1, rest_us: 20_000, ..STREAM };

/// Asserts that the cause is the first of one client, and not among those of the other.
fn both(cause: &str, makes: impl FnOnce() -> Option<Ends>, control: impl FnOnce() -> Option<Ends>) {
    if let Some(ends) = makes() {
        ends.is(cause);
    }
    if let Some(ends) = control() {
        ends.is_not(cause);
    }
}

fn ends(test: &str, path: Path, config: &str, serve: Serve, load: Load) -> Option<Ends> {
    let net = Net::two(test, 9000, path)?;
    Some(Ends::start(net, config, &[], serve, load))
}

#[test]
fn nothing_to_send() {
    let test = "explain nothing to send";
    both(
        "nothing to send",
        || ends(test, Path::Plain, "", PARKS, SELDOM),
        || ends(test, Path::Narrow, "", PARKS, FLOW),
    );
}

#[test]
fn depth() {
    let test = "explain depth";
    let shallow = Load { op: Op::Read, size: 4096, depth: 2, at_once: 8, ..FLOW };
    let deep = Load { op: Op::Read, depth: 16, at_once: 16, ..FLOW };
    both(
        "depth",
        // A round trip takes far longer than a thread waits for a processor.
        || ends(test, Path::Long, "", PARKS, shallow),
        // As full, but the network limits.
        || ends(test, Path::Narrow, "", PARKS, deep),
    );
}

#[test]
fn small_messages() {
    let test = "explain small messages";
    let single = Load { size: 8, depth: 256, at_once: 1, ..STREAM };
    both(
        "small messages",
        || ends(test, Path::Plain, "", PARKS, single),
        || ends(test, Path::Plain, "", PARKS, Load { list: 64, at_once: 256, ..single }),
    );
}

#[test]
fn outbound_reads() {
    let test = "explain ORD";
    let one = Load { op: Op::Read, size: 4096, ord: 1, ..STREAM };
    both(
        "ORD",
        || ends(test, Path::Plain, "", PARKS, one),
        || ends(test, Path::Plain, "", PARKS, Load { ord: 16, ..one }),
    );
}

#[test]
fn no_receive_posted() {
    let test = "explain receiver's application";
    let sends = Load { op: Op::Send, size: 64, ..SELDOM };
    both(
        "receiver's application",
        || ends(test, Path::Plain, "", Serve { receives: 1, manner: Manner::Park }, sends),
        || ends(test, Path::Plain, "", POLLS, sends),
    );
}

#[test]
fn a_stopped_receiver() {
    let test = "explain receiver's processor";
    let stopped = || {
        let ends = ends(test, Path::Plain, PATIENT, PARKS, FLOW)?;
        Ends::stop(&ends.server);
        Some(ends)
    };
    both("receiver's processor", stopped, || ends(test, Path::Narrow, "", PARKS, FLOW));
}

#[test]
fn loss() {
    let test = "explain network";
    both(
        "network",
        || ends(test, Path::Lossy, "", PARKS, FLOW),
        || ends(test, Path::Plain, "", PARKS, FLOW),
    );
}

#[test]
fn a_small_send_buffer_on_a_long_path() {
    let test = "explain socket";
    let start = |client: &str| {
        let net = Net::two(test, 1500, Path::Long)?;
        Some(Ends::start_each(net, [client, ""], &[], PARKS, FLOW))
    };
    both("socket", || start("[softrdma]\nsocket_buffer = 65536\n"), || start(""));
}

#[test]
fn small_fpdus_with_crc_and_markers() {
    let test = "explain CRC or FPDU size";
    let config = "[policy]\ncrc = \"require\"\nmarkers = \"require\"\n";
    let small =
        || Some(Ends::start(Net::two(test, 1500, Path::Plain)?, config, &[], PARKS, STREAM));
    both("CRC or FPDU size", small, || ends(test, Path::Plain, "", PARKS, STREAM));
}

#[test]
fn sleeps() {
    let test = "explain sleeping";
    let config = "[softrdma]\nspin_us = 0\n";
    let waits = Load { op: Op::Echo, size: 8, at_once: 1, wait: true, ..STREAM };
    let echo = Serve { receives: 16, manner: Manner::Echo };
    both(
        "sleeping",
        || ends(test, Path::Plain, config, echo, waits),
        || ends(test, Path::Plain, config, echo, Load { wait: false, ..waits }),
    );
}

#[test]
fn a_program_that_never_polls() {
    let test = "explain engine only";
    let reads = Load { op: Op::Read, size: 4096, at_once: 1, ..STREAM };
    // The server only responds.
    if let Some(ends) = ends(test, Path::Plain, "", PARKS, reads) {
        let (causes, all) = ends.explain(ends.server.id());
        assert_eq!(causes.first().map(String::as_str), Some("engine only"), "{all:#}");
    }
    if let Some(ends) = ends(test, Path::Plain, "", POLLS, reads) {
        let (causes, all) = ends.explain(ends.server.id());
        assert!(!causes.iter().any(|of| of == "engine only"), "{all:#}");
    }
}

#[test]
fn one_host_over_tcp() {
    let start = |local| Ends::start(Net::Host, "", &[("WARPLINE_LOCAL", local)], PARKS, STREAM);
    let shows = start("off").is("same host over TCP");
    assert!(shows.contains("`policy`"), "{shows}");
    start("auto").is_not("same host over TCP");
}

#[test]
fn the_program_and_not_the_library() {
    let start =
        |load| Ends::start(Net::Host, "", &[("WARPLINE_WRAP", "stats:every=1")], PARKS, load);
    let works = Load { size: 4096, at_once: 1, work_us: 10_000, ..STREAM };
    start(works).is("the program");
    start(Load { work_us: 0, wait: true, op: Op::Read, ..works }).is_not("the program");
}

#[test]
fn figures_are_beside_the_causes() {
    let test = "explain with its figures";
    let reads = Load { op: Op::Read, ..STREAM };
    let Some(ends) = ends(test, Path::Narrow, "", PARKS, reads) else { return };
    let (_, all) = ends.explain(ends.client.id());
    assert!(all["figures"]["round trip"].is_string(), "{all:#}");
    assert!(all["figures"]["polls in vain"].is_string(), "{all:#}");
    assert_eq!(all["peer"], ends.server.id(), "{all:#}");
}

#[test]
fn a_connection_that_has_ended_is_called_so() {
    let mut ends = Ends::start(Net::Host, "", &[], PARKS, SELDOM);
    let is_over = |ends: &Ends| {
        let (_, all) = ends.explain(ends.client.id());
        all["notes"].to_string().contains("the connection has ended, its state is ")
    };
    assert!(!is_over(&ends));
    ends.server.kill();
    until("the end of the connection", || is_over(&ends));
}

#[test]
fn wrong_calls_are_explained() {
    let mut ends = Ends::start(Net::Host, "", &[], PARKS, SELDOM);
    let fails = |what: &str, status: i32, says: &str| {
        let (found, out, error) = ends.run(&["explain", what]);
        assert_eq!((found, out.as_str()), (Some(status), ""), "{what}: {error}");
        assert!(error.contains(says), "{what}: {error}");
    };
    let pid = ends.client.id();
    fails("x", 2, "`x` is not the number of a process");
    fails(&format!("{pid}:"), 2, "`` is not the number of a queue pair");
    fails("4194305", 1, "there is no process 4194305");
    fails(&std::process::id().to_string(), 1, "publishes nothing");
    fails(&format!("{pid}:4711"), 1, "has no queue pair 4711");
    // An empty page, and that of a process that was killed.
    let page = |pid: u32| ends.directory().join(format!("{pid}.state"));
    let (server, client) = (page(ends.server.id()), page(pid));
    // Stopped, because its next access to the page would end it.
    Ends::stop(&ends.server);
    std::fs::write(&server, "").unwrap();
    let (_, _, error) = ends.run(&["explain", &ends.server.id().to_string()]);
    assert!(error.contains("cannot be used") && error.contains("state page"), "{error}");
    ends.client.kill();
    ends.client.code();
    let (_, _, error) = ends.run(&["explain", &pid.to_string()]);
    assert!(error.contains("it was killed") && !client.exists(), "{error}");
}
