//! The texts of connection errors: both ends, the error, the probable cause, what to do. No state.
//!
//! They are written for a reader who has neither the source nor the peer's log.

use std::fmt;

use vp_api::Role;

use crate::types::{
    BrokenCause, ConnEvent, ConnectError, ConnectionEnd, Established, FailReason, Lost,
};

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
            Self::Host { .. } => "cm-host",
            Self::Native(_) => "cm-native",
            Self::NoLocalStream(_) => "cm-no-local-stream",
            Self::Denied(_) => "cm-denied",
            Self::Cancelled => "cm-cancelled",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Refused => "start the server, or check the port",
            Self::Unreachable(_) => {
                "check the address, the route (`ip route get`) and the firewall"
            }
            Self::ConnectTimeout(_) => {
                "check that the peer runs and that no firewall drops packets"
            }
            Self::ReplyTimeout(_) => {
                "check that an RDMA server, and not another service, listens on this port, and that it replies"
            }
            Self::RequestTimeout(_) => {
                "check that the peer converts its end too, as the side that begins, and with the same choice of start-up"
            }
            Self::PeerClosed { .. } => {
                "see the peer's log; it may not know this MPA revision or private data of this length"
            }
            Self::NotMpa(_) => "check the port: it must be that of an iWARP server",
            Self::Malformed(_) => "capture the start-up and report it to the peer's vendor",
            Self::Revision { got: 1 } => "set `revision = 1` in the policy for this peer",
            Self::Revision { got: 2 } => "set `revision = 2` in the policy for this peer",
            Self::Revision { .. } => {
                "update the peer, or its configuration, to MPA revision 1 (RFC 5044) or 2 (RFC 6581); no other is supported"
            }
            Self::CrcPolicy => "set `crc = \"off\"` or `prefer` in the policy of this end",
            Self::Markers => "set the marker policy of this end to `off`",
            Self::InsufficientIrd { .. } => "raise the endpoint's IRD, or lower the peer's ORD",
            Self::NoCommonRtr => "allow `write` and `read` as ready-to-receive kinds on both ends",
            Self::Resources(_) => "free or raise the resource named (descriptors: `ulimit -n`)",
            Self::Host { remedy, .. } => remedy,
            Self::Native(_) => "see the message of the device's connection manager",
            Self::NoLocalStream(_) => {
                "set `local = \"auto\"` in the policy for this peer, or correct the cause named; see docs/same-host.md"
            }
            Self::Denied(_) => {
                "change the rule named; `warpline policy why` explains which one applies"
            }
            Self::Cancelled => "none needed",
        }
    }
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused: nothing listens there"),
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
            Self::ConnectTimeout(after) => {
                write!(f, "no reply to the TCP connection request within {after:?}")
            }
            Self::ReplyTimeout(after) => {
                write!(
                    f,
                    "the TCP connection is established, but no whole MPA reply came within {after:?}"
                )
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
            Self::CrcPolicy => {
                f.write_str("the peer asks for CRC, which the policy of this end refuses")
            }
            Self::Markers => f.write_str("the two ends' marker policies conflict"),
            Self::InsufficientIrd { need, have } => {
                write!(f, "the peer wants {need} reads at once at this end, which takes {have}")
            }
            Self::NoCommonRtr => f.write_str("no ready-to-receive kind that both ends support"),
            Self::Resources(what) | Self::Native(what) => f.write_str(what),
            Self::Host { why, .. } => write!(f, "this host refuses it: {why}"),
            Self::NoLocalStream(why) => {
                write!(
                    f,
                    "the policy demands a local stream, and there is none ({}): {why}",
                    why.code()
                )
            }
            Self::Denied(denied) => denied.fmt(f),
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

impl fmt::Display for BrokenCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TerminatedByPeer(t) => write!(f, "the peer terminated it: {t}"),
            Self::Terminated(t) => write!(f, "this end terminated it: {t}"),
            Self::Reset => f.write_str("the peer reset the connection; its process probably died"),
            Self::Lost => f.write_str(
                "the peer did not respond in time; its machine is down or stopped, or the path is interrupted",
            ),
            Self::ClosedInWork => f.write_str(
                "the connection was closed with work outstanding; the peer's process probably ended early",
            ),
            Self::Catastrophic => f.write_str("the device was removed, or failed; see the log"),
        }
    }
}

/// Both ends and the negotiated parameters.
impl fmt::Display for Established {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ends, role, ird, ord, revision, crc, markers_tx, markers_rx, rtr, local, ..
        } = self;
        let role = match role {
            Role::Initiator => "initiator",
            Role::Responder => "responder",
        };
        write!(f, "{ends} ({role}, IRD {ird}, ORD {ord}")?;
        // The device's own connection manager does not report it.
        if *revision != 0 {
            let markers = match (markers_tx, markers_rx) {
                (false, false) => "no",
                (true, false) => "sent",
                (false, true) => "received",
                (true, true) => "both ways",
            };
            let crc = if *crc { "on" } else { "off" };
            write!(f, ", MPA revision {revision}, CRC {crc}, markers {markers}")?;
            match local {
                Ok(()) => f.write_str(", local stream")?,
                Err(why) => write!(f, ", TCP ({})", why.code())?,
            }
        }
        match rtr {
            Some(rtr) => write!(f, ", peer-to-peer by {rtr:?})"),
            None => f.write_str(")"),
        }
    }
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { ends, cause } => write!(
                f,
                "{}: the connection of {} with {} broke: {cause}",
                cause.code(),
                ends.local,
                ends.remote
            ),
            Self::Closed { ends, by_peer } => {
                let whom = if *by_peer { "the peer" } else { "this end" };
                write!(
                    f,
                    "the connection of {} with {} was closed by {whom}",
                    ends.local, ends.remote
                )
            }
            Self::Refused(event) => event.fmt(f),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sends, recvs, octets_sent, octets_received } = self;
        write!(f, "{octets_sent} octets of payload had been sent and {octets_received} received")?;
        match (sends, recvs) {
            (0, 0) => f.write_str("; work that was posted completes as flushed"),
            _ => write!(f, "; {sends} sends and {recvs} receives were outstanding"),
        }
    }
}

/// What to do about a rejection.
const REJECTED: &str = "see that application's log, and the private data of this event";

impl ConnEvent {
    /// What to do about it; `None`: nothing, or it is not known.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Failed(error) => Some(error.reason.remedy()),
            Self::Rejected { .. } => Some(REJECTED),
            _ => None,
        }
    }
}

impl fmt::Display for ConnEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Established(established) => write!(f, "connected: {established}"),
            Self::Rejected { ends, .. } => {
                write!(
                    f,
                    "cm-rejected: the application at {} rejected the connection from {}; to do: {REJECTED}",
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
    use crate::node::{Ends, Node};

    fn ends() -> Ends {
        let node = |port| Node { name: None, address: ([192, 0, 2, 7], port).into() };
        Ends { local: node(1), remote: node(2) }
    }

    #[test]
    fn each_cause_of_an_end_has_its_own_text_and_code() {
        let of = |sent| vp_api::Terminate::new(sent, 2, 0, 2);
        let causes = [
            (BrokenCause::TerminatedByPeer(of(false)), "the peer terminated it: "),
            (BrokenCause::Terminated(of(true)), "this end terminated it: "),
            (BrokenCause::Reset, "the peer reset"),
            (BrokenCause::Lost, "did not respond in time"),
            (BrokenCause::ClosedInWork, "work outstanding"),
            (BrokenCause::Catastrophic, "the device was removed"),
        ];
        for (cause, words) in &causes {
            assert!(cause.to_string().contains(words), "{cause}");
            assert!(cause.code().starts_with("cm-"), "{cause}");
        }
        let codes: std::collections::BTreeSet<_> = causes.iter().map(|(c, _)| c.code()).collect();
        assert_eq!(codes.len(), causes.len());
    }

    #[test]
    fn a_rejection_has_a_remedy() {
        let event =
            ConnEvent::Rejected { ends: ends(), private_data: Vec::new(), peer_ird_ord: None };
        let text = event.to_string();
        assert!(text.starts_with("cm-rejected: the application at 192.0.2.7:2 rejected"), "{text}");
        assert!(text.contains("; to do: "), "{text}");
    }

    #[test]
    fn moved_octets_are_counted_as_payload() {
        let (cause, lost) = (BrokenCause::Reset, Lost::default());
        let text = ConnEvent::Broken { ends: ends(), cause, lost }.to_string();
        assert!(text.contains("0 octets of payload had been sent and 0 received"), "{text}");
    }
}
