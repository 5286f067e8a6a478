//! Responses to requests on the process's socket ([`super::questions`]).
//!
//! Runs in a connection thread, under its lock: it takes the locks of queue pairs, one at a time.

use std::os::fd::AsFd;

use kal_shim::questions::Question as Asked;
use serde::Serialize;
use vp_api::{Qp, QpId, QpInfo, Rnic, TcpInfo, VpError, VpResult, VpStatus};

use super::process::Process;
use super::questions::{
    AdapterVerbs, Capture, CaptureEnded, Counters, Question, QueuePair, QueuePairs, Refused,
    RoundTrip, Tcp, Verb, Verbs,
};

/// Most queue pairs in one response.
const MOST: usize = 256;

/// The response.
pub(super) fn answer(process: &Process, asked: &Asked) -> String {
    match serde_json::from_str(&asked.line) {
        Ok(Question::QueuePairs { device, after }) => line(Ok(queue_pairs(process, device, after))),
        Ok(Question::QueuePair { device, qp }) => line(queue_pair(process, device, QpId(qp))),
        Ok(Question::Verbs {}) => line(Ok(verbs())),
        Ok(Question::Capture { payload }) => line(capture(process, asked, payload)),
        Ok(Question::EndCapture { number }) => line(end_capture(process, number)),
        Err(error) => line::<()>(Err(format!("invalid request: {error}"))),
    }
}

fn line<T: Serialize>(response: Result<T, String>) -> String {
    let line = match response {
        Ok(response) => serde_json::to_string(&response),
        Err(error) => serde_json::to_string(&Refused { error }),
    };
    // Impossible: their fields are numbers and texts. The line is empty then, which is no response.
    line.unwrap_or_default()
}

/// By the first provider that can.
fn capture(process: &Process, asked: &Asked, payload: u32) -> Result<Capture, String> {
    let Some(socket) = &asked.descriptor else {
        return Err("a capture needs a socket beside the request".to_owned());
    };
    let adapters = process.adapters();
    let begun = adapters.iter().map(|adapter| adapter.capture(socket.as_fd(), payload));
    Ok(Capture { capture: of_the_first(begun)? })
}

fn end_capture(process: &Process, number: u32) -> Result<CaptureEnded, String> {
    let adapters = process.adapters();
    let ended = adapters.iter().map(|adapter| adapter.end_capture(number));
    Ok(CaptureEnded { dropped: of_the_first(ended)? })
}

/// The result of the first provider that supports it.
fn of_the_first<T>(mut results: impl Iterator<Item = VpResult<T>>) -> Result<T, String> {
    let is_unsupported = |error: &VpError| error.status == VpStatus::Unsupported;
    match results.find(|result| !result.as_ref().is_err_and(is_unsupported)) {
        Some(result) => result.map_err(|error| error.to_string()),
        None => Err("no provider of this process copies FPDUs".to_owned()),
    }
}

/// The queue pairs from this device and queue pair on.
fn queue_pairs(process: &Process, device: u32, after: Option<u32>) -> QueuePairs {
    let mut all = Vec::new();
    let mut adapters = process.adapters();
    adapters.sort_by_key(|adapter| adapter.index());
    for adapter in adapters.iter().filter(|adapter| adapter.index() >= device) {
        let after = after.filter(|_| adapter.index() == device).map(QpId);
        // One more, to know whether there are more.
        let found = adapter.queue_pairs(after, MOST + 1 - all.len());
        all.extend(found.into_iter().map(|qp| (adapter.index(), qp)));
        if all.len() > MOST {
            break;
        }
    }
    let more = all.len() > MOST;
    let known = all.iter().take(MOST).filter_map(|(device, qp)| described(*device, &**qp));
    QueuePairs { queue_pairs: known.collect(), more }
}

fn queue_pair(process: &Process, device: u32, id: QpId) -> Result<QueuePairs, String> {
    let adapters = process.adapters();
    let adapter = adapters.iter().find(|adapter| adapter.index() == device);
    match adapter.and_then(|adapter| described(device, &*adapter.queue_pair(id)?)) {
        Some(known) => Ok(QueuePairs { queue_pairs: vec![known], more: false }),
        None => Err(format!("adapter {device} has no queue pair {}", id.0)),
    }
}

/// `None`: it was destroyed meanwhile.
fn described(device: u32, qp: &dyn Qp) -> Option<QueuePair> {
    let info = qp.query().ok()?;
    Some(QueuePair {
        device,
        qp: info.id.0,
        state: format!("{:?}", info.state),
        sends_outstanding: info.sends_outstanding,
        recvs_outstanding: info.recvs_outstanding,
        send_depth: info.send_depth,
        recv_depth: info.recv_depth,
        ird: info.ird,
        ord: info.ord,
        local: info.local.map(|address| address.to_string()),
        remote: info.remote.map(|address| address.to_string()),
        ended: info.ended.map(|event| format!("{event:?}")),
        terminate: info.terminate.map(|terminate| terminate.to_string()),
        counters: counters(&info),
        tcp: info.tcp.as_ref().map(tcp),
        round_trip: info.round_trip.map(|of| RoundTrip {
            recent_us: of.recent.as_micros() as u64,
            shortest_us: of.shortest.as_micros() as u64,
        }),
    })
}

fn counters(info: &QpInfo) -> Counters {
    let counters = &info.counters;
    Counters {
        fpdus_sent: counters.fpdus_sent,
        fpdus_received: counters.fpdus_received,
        octets_sent: counters.octets_sent,
        octets_received: counters.octets_received,
        send_calls: counters.send_calls,
        recv_calls: counters.recv_calls,
        send_stalls: counters.send_stalls,
        ord_stalls: counters.ord_stalls,
    }
}

fn tcp(tcp: &TcpInfo) -> Tcp {
    Tcp {
        mss: tcp.mss.into(),
        rtt_us: tcp.rtt.as_micros() as u64,
        rtt_variation_us: tcp.rtt_variation.as_micros() as u64,
        congestion_window: tcp.congestion_window.into(),
        retransmitted: tcp.retransmitted.into(),
        busy_us: tcp.busy.as_micros() as u64,
        rwnd_limited_us: tcp.rwnd_limited.as_micros() as u64,
        sndbuf_limited_us: tcp.sndbuf_limited.as_micros() as u64,
        min_rtt_us: tcp.min_rtt.as_micros() as u64,
        delivery_rate: tcp.delivery_rate,
        unsent: tcp.unsent.into(),
    }
}

fn verbs() -> Verbs {
    let of = |snapshot: vp_hooks::stats::Snapshot| {
        let verb = |stats: &vp_hooks::stats::VerbStats| Verb {
            verb: stats.verb.to_owned(),
            calls: stats.calls,
            timed: stats.timed,
            total_ns: stats.total_ns,
        };
        let verbs = snapshot.verbs.iter().map(verb).collect();
        AdapterVerbs { provider: snapshot.provider, device: snapshot.device, verbs }
    };
    Verbs { verbs: vp_hooks::stats::snapshots().into_iter().map(of).collect() }
}
