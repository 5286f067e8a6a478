//! Responses to requests on the process's socket: a line of JSON for a line of JSON.
//!
//! | request | response |
//! |---|---|
//! | `{"ask":"queue_pairs"}`, with `device` and `after` for more | `queue_pairs`: the result of [`vp_api::Qp::query`], 256 at most; `more`: there are more |
//! | `{"ask":"queue_pair","device":D,"qp":N}` | `queue_pairs`: of this one |
//! | `{"ask":"capture","payload":N}`, with a socket | `capture`: the number of the capture that began ([`vp_api::capture`]) |
//! | `{"ask":"end_capture","number":N}` | `dropped`: how many FPDUs it lost |
//! | `{"ask":"verbs"}` | `verbs`: calls and times, if a `stats` wrapper is there |
//!
//! The response to an invalid request is `error`. Runs in a connection thread, under its lock: it takes the
//! locks of queue pairs, one at a time.

use std::os::fd::AsFd;

use kal_shim::questions::Question;
use serde::Deserialize;
use serde_json::{Value, json};
use vp_api::{Qp, QpId, QpInfo, Rnic, TcpInfo, VpError, VpResult, VpStatus};

use super::process::Process;

/// Most queue pairs in one response.
const MOST: usize = 256;

#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
enum Asked {
    QueuePairs {
        #[serde(default)]
        device: u32,
        after: Option<u32>,
    },
    QueuePair {
        device: u32,
        qp: u32,
    },
    Verbs {},
    Capture {
        #[serde(default)]
        payload: u32,
    },
    EndCapture {
        number: u32,
    },
}

/// The response.
pub(super) fn answer(process: &Process, question: &Question) -> String {
    let answer = match serde_json::from_str(&question.line) {
        Ok(Asked::QueuePairs { device, after }) => queue_pairs(process, device, after),
        Ok(Asked::QueuePair { device, qp }) => queue_pair(process, device, QpId(qp)),
        Ok(Asked::Verbs {}) => verbs(),
        Ok(Asked::Capture { payload }) => capture(process, question, payload),
        Ok(Asked::EndCapture { number }) => end_capture(process, number),
        Err(error) => json!({ "error": format!("invalid request: {error}") }),
    };
    answer.to_string()
}

/// By the first provider that can.
fn capture(process: &Process, question: &Question, payload: u32) -> Value {
    let Some(socket) = &question.descriptor else {
        return json!({ "error": "a capture needs a socket beside the request" });
    };
    let adapters = process.adapters();
    let begun = adapters.iter().map(|adapter| adapter.capture(socket.as_fd(), payload));
    match first_supported(begun) {
        Some(Ok(number)) => json!({ "capture": number }),
        Some(Err(error)) => json!({ "error": error.to_string() }),
        None => json!({ "error": "no provider of this process copies FPDUs" }),
    }
}

fn end_capture(process: &Process, number: u32) -> Value {
    let adapters = process.adapters();
    match first_supported(adapters.iter().map(|adapter| adapter.end_capture(number))) {
        Some(Ok(dropped)) => json!({ "dropped": dropped }),
        Some(Err(error)) => json!({ "error": error.to_string() }),
        None => json!({ "error": "no provider of this process copies FPDUs" }),
    }
}

fn first_supported<T>(mut results: impl Iterator<Item = VpResult<T>>) -> Option<VpResult<T>> {
    let is_unsupported = |error: &VpError| error.status == VpStatus::Unsupported;
    results.find(|result| !result.as_ref().is_err_and(is_unsupported))
}

/// The queue pairs from this device and queue pair on.
fn queue_pairs(process: &Process, device: u32, after: Option<u32>) -> Value {
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
    json!({ "queue_pairs": known.collect::<Vec<_>>(), "more": more })
}

fn queue_pair(process: &Process, device: u32, id: QpId) -> Value {
    let adapters = process.adapters();
    let adapter = adapters.iter().find(|adapter| adapter.index() == device);
    match adapter.and_then(|adapter| described(device, &*adapter.queue_pair(id)?)) {
        Some(known) => json!({ "queue_pairs": [known], "more": false }),
        None => json!({ "error": format!("adapter {device} has no queue pair {}", id.0) }),
    }
}

/// `None`: it was destroyed meanwhile.
fn described(device: u32, qp: &dyn Qp) -> Option<Value> {
    let info = qp.query().ok()?;
    Some(json!({
        "device": device,
        "qp": info.id.0,
        "state": format!("{:?}", info.state),
        "sends_outstanding": info.sends_outstanding,
        "recvs_outstanding": info.recvs_outstanding,
        "send_depth": info.send_depth,
        "recv_depth": info.recv_depth,
        "ird": info.ird,
        "ord": info.ord,
        "local": info.local.map(|address| address.to_string()),
        "remote": info.remote.map(|address| address.to_string()),
        "ended": info.ended.map(|event| format!("{event:?}")),
        "terminate": info.terminate.map(|terminate| terminate.to_string()),
        "counters": counters(&info),
        "tcp": info.tcp.as_ref().map(tcp),
    }))
}

fn counters(info: &QpInfo) -> Value {
    let counters = &info.counters;
    json!({
        "fpdus_sent": counters.fpdus_sent,
        "fpdus_received": counters.fpdus_received,
        "octets_sent": counters.octets_sent,
        "octets_received": counters.octets_received,
        "send_calls": counters.send_calls,
        "recv_calls": counters.recv_calls,
        "send_stalls": counters.send_stalls,
        "ord_stalls": counters.ord_stalls,
    })
}

fn tcp(tcp: &TcpInfo) -> Value {
    json!({
        "mss": tcp.mss,
        "rtt_us": tcp.rtt.as_micros() as u64,
        "rtt_variation_us": tcp.rtt_variation.as_micros() as u64,
        "congestion_window": tcp.congestion_window,
        "retransmitted": tcp.retransmitted,
        "busy_us": tcp.busy.as_micros() as u64,
        "rwnd_limited_us": tcp.rwnd_limited.as_micros() as u64,
        "sndbuf_limited_us": tcp.sndbuf_limited.as_micros() as u64,
        "min_rtt_us": tcp.min_rtt.as_micros() as u64,
        "delivery_rate": tcp.delivery_rate,
        "unsent": tcp.unsent,
    })
}

fn verbs() -> Value {
    let of = |snapshot: vp_hooks::stats::Snapshot| {
        let verb = |stats: &vp_hooks::stats::VerbStats| {
            json!({
                "verb": stats.verb,
                "calls": stats.calls,
                "timed": stats.timed,
                "total_ns": stats.total_ns,
            })
        };
        json!({
            "provider": snapshot.provider,
            "device": snapshot.device,
            "verbs": snapshot.verbs.iter().map(verb).collect::<Vec<_>>(),
        })
    };
    json!({ "verbs": vp_hooks::stats::snapshots().into_iter().map(of).collect::<Vec<_>>() })
}
