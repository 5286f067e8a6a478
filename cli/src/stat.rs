//! `warpline stat`: shows the state of each process that publishes a state page, and of its connections. It
//! only reads files.

pub(crate) mod absent;
mod args;
pub(crate) mod id;
mod openmetrics;
pub(crate) mod pages;
mod program;
pub(crate) mod rates;
mod serve;
pub(crate) mod table;

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use state_page::layout::{DROP_REASONS, end, flag, state};
use state_page::read::QueuePair;
use ual::CmCounters;

pub(crate) use args::StatArgs;

use crate::error::CliResult;
use crate::signals;
use pages::{Seen, Snapshot};

/// Prints once, repeatedly, or for each HTTP request.
pub(crate) fn run(args: &StatArgs, out: &mut dyn Write) -> CliResult<()> {
    if let Some(address) = args.listen {
        return serve::run(args, address, out);
    }
    if args.watch.is_some() {
        signals::catch()?;
    }
    let mut before = None;
    loop {
        let snapshot = Snapshot::take(args.pid, args.all)?;
        match args.pid {
            _ if !snapshot.processes.is_empty() || args.watch.is_some() => {}
            Some(pid) => return Err(absent::of(pid, &snapshot)),
            // For programs, no process is an empty list.
            None if args.json || args.openmetrics => {}
            None => return Err(absent::of_all(&snapshot)),
        }
        print(args, before.as_ref(), &snapshot, out)?;
        let Some(seconds) = args.watch else { return Ok(()) };
        out.flush()?;
        signals::sleep(seconds);
        if signals::caught() {
            return Ok(());
        }
        before = Some(snapshot);
    }
}

fn print(
    args: &StatArgs,
    before: Option<&Snapshot>,
    snapshot: &Snapshot,
    out: &mut dyn Write,
) -> CliResult<()> {
    if args.openmetrics {
        return Ok(out.write_all(openmetrics::text(snapshot, args.per_connection).as_bytes())?);
    }
    if args.json {
        return Ok(writeln!(out, "{}", json(snapshot))?);
    }
    // Rates need two snapshots, so take the first a short time before.
    let (first, second);
    let (before, snapshot) = match before {
        Some(before) => (before, snapshot),
        None => {
            std::thread::sleep(Duration::from_millis(250));
            (first, second) = (snapshot, Snapshot::take(args.pid, args.all)?);
            (first, &second)
        }
    };
    out.write_all(table::text(before, snapshot).as_bytes())?;
    Ok(())
}

/// The JSON, with everything. Names of fields are a contract.
fn json(snapshot: &Snapshot) -> Value {
    let processes: Vec<_> = snapshot.processes.iter().map(process).collect();
    let troubles: Vec<_> =
        snapshot.troubles.iter().map(|t| json!({ "file": t.0, "trouble": t.1 })).collect();
    json!({ "processes": processes, "troubles": troubles })
}

fn process(seen: &Seen) -> Value {
    let of = &seen.page.process;
    let devices = seen.page.devices.iter().map(|(index, device)| {
        let cm = CmCounters::NAMES
            .iter()
            .zip(device.cm)
            .map(|(name, count)| (name.to_string(), count.into()));
        let dropped = DROP_REASONS
            .iter()
            .zip(device.dropped)
            .map(|(reason, count)| (reason.to_string(), count.into()));
        json!({
            "index": index,
            "name": device.name,
            "provider": device.provider,
            "face": pages::face(device.face),
            "regions": device.regions,
            "region_octets": device.region_octets,
            "completion_queues": device.cqs,
            "queue_pairs": device.qps,
            "sleeps": device.sleeps,
            "engine_served": device.engine_served,
            "dropped": dropped.collect::<serde_json::Map<String, Value>>(),
            "connection_management": cm.collect::<serde_json::Map<String, Value>>(),
        })
    });
    json!({
        "pid": of.pid,
        "socket": seen.socket.display().to_string(),
        "uid": of.uid,
        "exe": of.exe,
        "arguments": seen.arguments,
        "library": of.library,
        "unpublished": of.unpublished,
        "devices": devices.collect::<Vec<_>>(),
        "connections": seen.page.queue_pairs.iter().map(connection).collect::<Vec<_>>(),
    })
}

fn connection(qp: &QueuePair) -> Value {
    json!({
        "device": qp.device,
        "qp": qp.qp,
        "published": qp.is_written(),
        "transport": transport(qp),
        "state": state::name(qp.state),
        "local": qp.local.map(|address| address.to_string()),
        "remote": qp.remote.map(|address| address.to_string()),
        "send_depth": qp.send_depth,
        "recv_depth": qp.recv_depth,
        "ird": qp.ird(),
        "ord": qp.ord(),
        "mulpdu": qp.mulpdu,
        "crc": qp.has(flag::CRC),
        "markers_sent": qp.has(flag::MARKERS_SENT),
        "markers_received": qp.has(flag::MARKERS_RECEIVED),
        "initiator": initiator(qp),
        "local_stream": qp.has(flag::LOCAL_STREAM),
        "why_tcp": qp.why_tcp,
        "note": qp.note,
        "qpn": qp.is_roce().then_some(qp.numbers().0),
        "remote_qpn": qp.is_roce().then_some(qp.numbers().1),
        "ended": end::name(qp.terminate),
        "repeats": qp.is_roce().then_some(qp.repeats),
        "rnr_naks": qp.is_roce().then_some(qp.not_ready),
        "sends_outstanding": qp.sends_outstanding,
        "receives_posted": qp.recvs_posted,
        "posts_refused": qp.posts_refused,
        "fpdus_sent": qp.fpdus_sent,
        "fpdus_received": qp.fpdus_received,
        "octets_sent": qp.octets_sent,
        "octets_received": qp.octets_received,
        "messages_sent": qp.messages_sent,
        "messages_received": qp.messages_received,
        "responses_sent": qp.responses_sent,
        "ord_stalls": qp.ord_stalls,
        "send_calls": qp.send_calls,
        "receive_calls": qp.recv_calls,
        "send_stalls": qp.send_stalls,
        "waited_for_receive": qp.waited_for_receive,
        "visits": qp.visits,
    })
}

/// Whether this end initiated the connection; `None`: it is not known, or neither end did, as with bring-up by path.
fn initiator(qp: &QueuePair) -> Option<bool> {
    match (qp.has(flag::INITIATOR), qp.has(flag::RESPONDER)) {
        (false, false) => None,
        (is, _) => Some(is),
    }
}

/// Its name for people.
pub(crate) fn role(qp: &QueuePair) -> &'static str {
    match initiator(qp) {
        Some(true) => "client",
        Some(false) => "server",
        None => "-",
    }
}

/// `None`: the provider does not publish it.
fn transport(qp: &QueuePair) -> Option<&'static str> {
    qp.is_written().then_some(if qp.is_roce() { "RoCE" } else { "iWARP" })
}

/// The time between two snapshots.
pub(crate) fn between(before: &Snapshot, snapshot: &Snapshot) -> Duration {
    snapshot.at.saturating_duration_since(before.at).max(Duration::from_micros(1))
}
