//! Queue pairs that the consumer connects itself: both ends exchange numbers, GIDs and first packet sequence numbers
//! (PSN) in a way of their own, and no connection manager takes part. InfiniBand and RoCE have this; iWARP does not.
//!
//! An end first receives ([`Paths::receive`], InfiniBand's Ready to Receive) and then also sends ([`Paths::send`],
//! Ready to Send). In between it serves the peer's requests, so that the ends need not do these steps at the same time.
//! There is no orderly close: each end changes its queue pair to Error, and the peer notices when a request of its own
//! is not acknowledged.

use std::ops::RangeInclusive;

use crate::{QpId, VpError, VpResult, VpStatus};

/// Numbers of queue pairs and packets have 24 bits.
pub(crate) const NUMBERS: RangeInclusive<u32> = 0..=0x00ff_ffff;
/// Codes of path MTUs, of 256 to 4096 octets.
const MTU_CODES: RangeInclusive<u32> = 1..=5;
/// Codes of times have 5 bits.
const TIMES: RangeInclusive<u32> = 0..=31;
/// Counts of repetitions have 3 bits.
const COUNTS: RangeInclusive<u32> = 0..=7;

/// The bring-up of queue pairs by path, of an open RNIC: [`crate::Rnic::paths`].
pub trait Paths: Send + Sync {
    /// The number by which peers address a queue pair, from the first call until the queue pair is destroyed.
    fn number(&self, qp: QpId) -> VpResult<u32>;
    /// Idle, and not being connected: serves the requests of this peer from now on. The queue pair stays Idle.
    fn receive(&self, qp: QpId, peer: &PeerPath) -> VpResult<()>;
    /// After [`Paths::receive`]: to RTS. No event follows.
    fn send(&self, qp: QpId, sender: &PathSender) -> VpResult<()>;
    /// Before [`Paths::receive`]: from now on the queue pair's connections are unreliable (InfiniBand's UC). Sends and
    /// Writes complete when they are transmitted, messages are lost whole and without notice, and Reads and atomics
    /// fail. Of [`PeerPath`] and [`PathSender`] what concerns acknowledgements and reads has no meaning.
    fn set_unreliable(&self, qp: QpId) -> VpResult<()> {
        Err(unable("make unreliable connections", qp))
    }
    /// What is in force on a connection, also on one that the connection manager made; `None` before it begins. The
    /// provider may have raised times and counts that were asked for.
    fn in_force(&self, qp: QpId) -> VpResult<Option<(PeerPath, PathSender)>> {
        Err(unable("report what is in force", qp))
    }
    /// As [`PathSender::ack_timeout`], for a connection that the connection manager will make.
    fn set_ack_timeout(&self, qp: QpId, code: u8) -> VpResult<()> {
        let _ = code;
        Err(unable("set the acknowledge timeout", qp))
    }
    /// As [`PeerPath::min_rnr_timer`], on a connection.
    fn set_min_rnr_timer(&self, qp: QpId, code: u8) -> VpResult<()> {
        let _ = code;
        Err(unable("set the RNR timer", qp))
    }
}

fn unable(what: &str, qp: QpId) -> VpError {
    VpError::new(VpStatus::Unsupported, format!("this device cannot {what} of queue pair {}", qp.0))
}

/// The peer of a queue pair, and how its requests are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerPath {
    /// GID of the local port.
    pub local_gid: [u8; 16],
    /// GID of the peer's port.
    pub remote_gid: [u8; 16],
    /// Number of the peer's queue pair.
    pub qpn: u32,
    /// PSN of the peer's first request.
    pub psn: u32,
    /// Largest packet, in InfiniBand's code (1: 256 octets, 5: 4096); the same at both ends.
    pub mtu_code: u8,
    /// Maximum outstanding inbound reads and atomics, up to the value at creation.
    pub ird: u16,
    /// Code of the time after which the peer repeats a Send that found no receive, 0 to 31.
    pub min_rnr_timer: u8,
}

impl PeerPath {
    /// [`VpStatus::InvalidModifier`] if a number does not fit into the field that a packet has for it. For providers.
    pub fn check(&self) -> VpResult<()> {
        within("number of the peer's queue pair", self.qpn, NUMBERS)?;
        within("PSN of the peer's first request", self.psn, NUMBERS)?;
        within("code of the path MTU", self.mtu_code.into(), MTU_CODES)?;
        within("code of the RNR timer", self.min_rnr_timer.into(), TIMES)
    }
}

/// How a queue pair sends its own requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathSender {
    /// PSN of the first request.
    pub psn: u32,
    /// Code of the least time after which unacknowledged packets are repeated, up to 31; 0: never. A provider may wait
    /// longer.
    pub ack_timeout: u8,
    /// How often they are repeated without progress, 0 to 7.
    pub retry_count: u8,
    /// How often a Send that found no receive is repeated, 0 to 7; 7: as long as the provider allows.
    pub rnr_retry: u8,
    /// Maximum outstanding outbound reads and atomics, up to the value at creation.
    pub ord: u16,
}

impl PathSender {
    /// [`VpStatus::InvalidModifier`] if a number does not fit into the field that a packet has for it, or is no code.
    /// For providers.
    pub fn check(&self) -> VpResult<()> {
        within("PSN of the first request", self.psn, NUMBERS)?;
        within("code of the acknowledge timeout", self.ack_timeout.into(), TIMES)?;
        within("retry count", self.retry_count.into(), COUNTS)?;
        within("RNR retry count", self.rnr_retry.into(), COUNTS)
    }
}

fn within(what: &str, number: u32, range: RangeInclusive<u32>) -> VpResult<()> {
    if range.contains(&number) {
        return Ok(());
    }
    let detail = format!("the {what} is {number}, not within {} to {}", range.start(), range.end());
    Err(VpError::new(VpStatus::InvalidModifier, detail))
}
