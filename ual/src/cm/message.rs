//! The text of connection errors: which ends, what, the probable cause, what to do. No state.
//!
//! The reader has neither the source nor the peer's log.

use std::fmt;

use vp_api::Terminate;

use super::types::{BrokenCause, ConnEvent, ConnectError, FailReason, Lost};

impl FailReason {
    /// A stable code for programs and for searching.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused => "cm-refused",
            Self::Unreachable(_) => "cm-unreachable",
            Self::ConnectTimeout(_) => "cm-connect-timeout",
            Self::ReplyTimeout(_) => "cm-reply-timeout",
            Self::RequestTimeout(_) => "cm-request-timeout",
            Self::PeerClosed { .. } => "cm-peer-closed",
            Self::NotMpa(_) => "cm-not-mpa",
            Self::Malformed(_) => "cm-malformed",
            Self::Revision { .. } => "cm-revision",
            Self::CrcPolicy => "cm-crc-policy",
            Self::Markers => "cm-markers",
            Self::InsufficientIrd { .. } => "cm-ird",
            Self::NoCommonRtr => "cm-rtr",
            Self::Resources(_) => "cm-resources",
            Self::Native(_) => "cm-native",
            Self::Cancelled => "cm-cancelled",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Refused => "start the server, or check the port",
            Self::Unreachable(_) => "check the address, the route and the firewall",
            Self::ConnectTimeout(_) => {
                "check that the peer is up and that no firewall drops packets"
            }
            Self::ReplyTimeout(_) => {
                "check that an RDMA server, and not another service, listens on this port, and that it answers"
            }
            Self::RequestTimeout(_) => {
                "check that the peer converts its end too, as the side that begins, and with the same choice of start-up"
            }
            Self::PeerClosed { .. } => {
                "see the peer's log; it may not know this MPA revision or private data of this length"
            }
            Self::NotMpa(_) => "check the port: it must be that of an iWARP server",
            Self::Malformed(_) => "capture the start-up and report it to the peer's vendor",
            Self::Revision { .. } => "set the MPA revision in the policy to the peer's",
            Self::CrcPolicy => "set the CRC policy of both ends to `prefer`",
            Self::Markers => "set the marker policy of this end to `off`",
            Self::InsufficientIrd { .. } => "raise the endpoint's IRD, or lower the peer's ORD",
            Self::NoCommonRtr => "allow `write` and `read` as ready-to-receive kinds on both ends",
            Self::Resources(_) => "free or raise the resource named (descriptors: `ulimit -n`)",
            Self::Native(_) => "see the message of the device's connection manager",
            Self::Cancelled => "none needed",
        }
    }
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused: nobody listens there"),
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
            Self::ConnectTimeout(after) => {
                write!(f, "no answer to the TCP connection request within {after:?}")
            }
            Self::ReplyTimeout(after) => {
                write!(f, "the TCP connection stands, but no whole MPA reply came within {after:?}")
            }
            Self::RequestTimeout(after) => {
                write!(f, "the peer did not begin its side of RDMA within {after:?}")
            }
            Self::PeerClosed { have: 0 } => {
                f.write_str("the peer closed the TCP connection without an MPA frame")
            }
            Self::PeerClosed { have } => {
                write!(f, "the peer closed the TCP connection {have} octets into its MPA frame")
            }
            Self::NotMpa(what) => write!(f, "the peer does not speak MPA as expected: {what}"),
            Self::Malformed(what) => write!(f, "the peer's MPA frame is malformed: {what}"),
            Self::Revision { got } => write!(f, "the peer speaks MPA revision {got}"),
            Self::CrcPolicy => f.write_str("the two ends' CRC policies do not go together"),
            Self::Markers => f.write_str("the two ends' marker policies do not go together"),
            Self::InsufficientIrd { need, have } => {
                write!(f, "the peer wants {need} reads at once at this end, which takes {have}")
            }
            Self::NoCommonRtr => f.write_str("no ready-to-receive kind that both ends know"),
            Self::Resources(what) | Self::Native(what) => f.write_str(what),
            Self::Cancelled => f.write_str("cancelled by this end"),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ends, reason } = self;
        let (code, remedy) = (reason.code(), reason.remedy());
        write!(
            f,
            "{code}: no RDMA connection from {} to {}: {reason}; to do: {remedy}",
            ends.local, ends.remote
        )
    }
}

impl std::error::Error for ConnectError {}

impl BrokenCause {
    /// A stable code for programs and for searching.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TerminatedByPeer(_) => "cm-terminated-by-peer",
            Self::Terminated(_) => "cm-terminated",
            Self::Reset => "cm-reset",
            Self::Lost => "cm-lost",
            Self::ClosedInWork => "cm-closed-in-work",
            Self::Catastrophic => "cm-catastrophic",
        }
    }
}

/// RFC 5040 4.8: a local error, or one that ends this stream or all of them; no fault of the peer.
fn is_own(terminate: Terminate) -> bool {
    matches!((terminate.layer, terminate.etype, terminate.code), (0 | 1, 0, _) | (0, 2, 7 | 8))
}

impl fmt::Display for BrokenCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TerminatedByPeer(t) => write!(
                f,
                "the peer found an error and terminated (layer {}, type {}, code {:#04x}); see its log",
                t.layer, t.etype, t.code
            ),
            Self::Terminated(t) => {
                let why = if is_own(*t) { "could not go on" } else { "found an error of the peer" };
                write!(
                    f,
                    "this end {why} and terminated (layer {}, type {}, code {:#04x})",
                    t.layer, t.etype, t.code
                )
            }
            Self::Reset => f.write_str("the peer reset the connection; its process probably died"),
            Self::Lost => f.write_str(
                "nothing came back from the peer in time; its machine is down or stopped, or the path is cut",
            ),
            Self::ClosedInWork => f.write_str(
                "the connection was closed with work outstanding; the peer's process probably ended early",
            ),
            Self::Catastrophic => f.write_str("the provider failed; see the log"),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sends, recvs, octets_sent, octets_received } = self;
        write!(f, "{octets_sent} octets had been sent and {octets_received} received")?;
        match (sends, recvs) {
            (0, 0) => f.write_str("; work that was posted completes as flushed"),
            _ => write!(f, "; {sends} sends and {recvs} receives were outstanding"),
        }
    }
}

impl fmt::Display for ConnEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Established(e) => write!(f, "connected: {}", e.ends),
            Self::Rejected { ends, .. } => {
                write!(
                    f,
                    "cm-rejected: {} rejected the connection from {}",
                    ends.remote, ends.local
                )
            }
            Self::Failed(error) => error.fmt(f),
            Self::Disconnected { ends, by_peer: true } => {
                write!(f, "{} closed the connection with {}", ends.remote, ends.local)
            }
            Self::Disconnected { ends, by_peer: false } => write!(f, "disconnected: {ends}"),
            Self::Broken { ends, cause, lost } => write!(
                f,
                "{}: the connection of {} with {} broke: {cause}; {lost}",
                cause.code(),
                ends.local,
                ends.remote
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminate_of_ours_blames_whoever_it_was() {
        let text = |layer, etype, code| {
            BrokenCause::Terminated(Terminate { sent: true, layer, etype, code }).to_string()
        };
        for (layer, etype, code) in [(0, 0, 0), (1, 0, 0), (0, 2, 7), (0, 2, 8)] {
            let text = text(layer, etype, code);
            assert!(text.contains("could not go on"), "{text}");
        }
        for (layer, etype, code) in [(0, 1, 0), (0, 2, 6), (1, 1, 0), (1, 2, 7), (2, 0, 2)] {
            let text = text(layer, etype, code);
            assert!(text.contains("an error of the peer"), "{text}");
        }
    }
}
