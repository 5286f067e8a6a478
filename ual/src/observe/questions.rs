//! What the socket of a process takes and returns: a line of JSON for a line of JSON. This is the one definition for the
//! process ([`super`]) and for those who ask it, as `warpline explain`; a response that lacks a field is not read.
//!
//! | request | response |
//! |---|---|
//! | [`Question::QueuePairs`] | [`QueuePairs`]: the result of [`vp_api::Qp::query`], 256 at most |
//! | [`Question::QueuePair`] | [`QueuePairs`]: this one |
//! | [`Question::Verbs`] | [`Verbs`]: empty without a `stats` wrapper |
//! | [`Question::Capture`], with a socket | [`Capture`] |
//! | [`Question::EndCapture`] | [`CaptureEnded`] |
//!
//! The response to a request that cannot be served is [`Refused`].

use serde::{Deserialize, Serialize};

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// About all queue pairs, from this one on.
    QueuePairs {
        /// Index of the first adapter.
        #[serde(default)]
        device: u32,
        /// The id behind which those of the first adapter begin.
        after: Option<u32>,
    },
    /// About one queue pair.
    QueuePair {
        /// Index of its adapter.
        device: u32,
        /// Its id.
        qp: u32,
    },
    /// About calls of verbs.
    Verbs {},
    /// Begin a capture of FPDUs ([`vp_api::capture`]) over the socket beside the request.
    Capture {
        /// Octets of payload of each.
        #[serde(default)]
        payload: u32,
    },
    /// End a capture.
    EndCapture {
        /// [`Capture::capture`].
        number: u32,
    },
}

/// The request cannot be served.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// Why.
    pub error: String,
}

/// Queue pairs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueuePairs {
    /// By adapter, then by id.
    pub queue_pairs: Vec<QueuePair>,
    /// There are more.
    pub more: bool,
}

/// A queue pair ([`vp_api::QpInfo`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // As in `QpInfo`.
pub struct QueuePair {
    /// Index of its adapter in the state page.
    pub device: u32,
    /// Its id.
    pub qp: u32,
    pub state: String,
    pub sends_outstanding: u32,
    pub recvs_outstanding: u32,
    pub send_depth: u32,
    pub recv_depth: u32,
    pub ird: u16,
    pub ord: u16,
    pub local: Option<String>,
    pub remote: Option<String>,
    pub ended: Option<String>,
    pub terminate: Option<String>,
    pub counters: Counters,
    /// Only of a connection over TCP.
    pub tcp: Option<Tcp>,
    /// Of a connection that is not over TCP, if its provider times it.
    #[serde(default)]
    pub round_trip: Option<RoundTrip>,
}

/// Round trips ([`vp_api::RoundTrip`]), in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // As in `vp_api::RoundTrip`.
pub struct RoundTrip {
    pub recent_us: u64,
    pub shortest_us: u64,
}

/// Counts of a queue pair ([`vp_api::QpCounters`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // As in `QpCounters`.
pub struct Counters {
    pub fpdus_sent: u64,
    pub fpdus_received: u64,
    pub octets_sent: u64,
    pub octets_received: u64,
    pub send_calls: u64,
    pub recv_calls: u64,
    pub send_stalls: u64,
    pub ord_stalls: u64,
}

/// What TCP reports of a connection ([`vp_api::TcpInfo`]); times in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // As in `TcpInfo`.
pub struct Tcp {
    pub mss: u64,
    pub rtt_us: u64,
    pub rtt_variation_us: u64,
    /// The shortest one; it has no queue in it.
    pub min_rtt_us: u64,
    /// In segments.
    pub congestion_window: u64,
    /// Segments.
    pub retransmitted: u64,
    /// Time with octets under way, or waiting.
    pub busy_us: u64,
    /// Time limited by the peer's window.
    pub rwnd_limited_us: u64,
    /// Time limited by the send buffer.
    pub sndbuf_limited_us: u64,
    /// Octets per second.
    pub delivery_rate: u64,
    /// Octets.
    pub unsent: u64,
}

/// Calls of verbs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verbs {
    /// By adapter.
    pub verbs: Vec<AdapterVerbs>,
}

/// Calls of an adapter's verbs ([`vp_hooks::stats::Snapshot`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AdapterVerbs {
    /// Name of its provider.
    pub provider: String,
    /// Name of its device.
    pub device: String,
    /// The verbs.
    pub verbs: Vec<Verb>,
}

/// Calls of a verb.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verb {
    /// Its name.
    pub verb: String,
    /// Calls.
    pub calls: u64,
    /// Those that were timed.
    pub timed: u64,
    /// The time of these, in nanoseconds.
    pub total_ns: u64,
}

/// A capture has begun.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Capture {
    /// Its number.
    pub capture: u32,
}

/// A capture has ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CaptureEnded {
    /// FPDUs that it lost.
    pub dropped: u64,
}
