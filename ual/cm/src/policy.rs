//! Connection policy: what may differ between sites and peers, with defaults that need no configuration.
//!
//! A [`Policy`] is plain data; the code that connects or listens clones the one that applies.

mod peers;
mod profiles;
mod rules;

pub use peers::{Network, Policies};
pub use rules::{Action, Match, Mismatch, Program, Question, Rule, RuleRole, Rules, ports};

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use vp_api::FpduSize;

/// MPA CRC. It is used as soon as one side asks for it (RFC 5044 section 7.1 [MPA-13]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Crc {
    /// Ask for it, through shared memory, too.
    Require,
    /// Ask for it over TCP.
    Prefer,
    /// Do not ask, but use it if the peer asks.
    Off,
    /// Do not ask, and refuse a peer that asks.
    Refuse,
}

/// MPA markers (RFC 5044 section 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Markers {
    /// Ask for none; insert them if the peer asks.
    Off,
    /// Ask for none, and refuse peers that ask.
    Refuse,
    /// Ask for them; a peer that refuses (IOP-01) is tried again without.
    Prefer,
    /// Ask for them; a peer that refuses is an error.
    Require,
}

/// Kinds of ready-to-receive message to offer (RFC 6581 section 9.2 [CONN-28]); none: client-server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PeerToPeer {
    pub send: bool,
    pub write: bool,
    pub read: bool,
}

/// Local streams: FPDUs through shared memory where both ends are on one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalStreams {
    /// Where the peer has them, too; else TCP.
    #[default]
    Auto,
    /// TCP.
    Off,
    /// No connection without one.
    Require,
}

/// Connection policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// CRC.
    pub crc: Crc,
    /// Markers.
    pub markers: Markers,
    /// MPA revision: 1, or 2 for the enhanced start-up of RFC 6581.
    pub revision: u8,
    /// Exchange IRD and ORD (needs revision 2).
    pub negotiate_ird_ord: bool,
    /// Ready-to-receive kinds (needs revision 2).
    pub peer_to_peer: PeerToPeer,
    /// Try once more without the enhanced form, or without markers, when the peer does not know
    /// them (RFC 6581 section 10 [CONN-18]).
    pub fall_back: bool,
    /// Largest FPDU to send.
    pub fpdu: FpduSize,
    /// Offer and accept RFC 7306 operations.
    pub extensions: bool,
    /// For the TCP connection, and again for the reply (CONN-13).
    pub connect_timeout: Duration,
    /// For how long a connection that is refused, because there is no listener, is tried again; zero:
    /// not at all.
    pub refused_for: Duration,
    /// For a whole request to arrive (CONN-13), at a listener or a converted socket.
    pub request_timeout: Duration,
    /// For the application to accept or reject; also for the peer's application to send the first FPDU
    /// to a socket that was converted without start-up.
    pub answer_timeout: Duration,
    /// Start-ups per listener without a whole request, and refused ones that the peer has not closed.
    /// Beyond this one is dropped, at random from a source that has many. A source is an IPv4 address,
    /// or the first 64 bits of an IPv6 address.
    pub half_open: u32,
    /// Connections from one source (as for `half_open`) that may end for an invalid STag; beyond, its
    /// start-ups wait until a minute after the first of them.
    pub invalid_stag_ends: u32,
    /// Bound on an orderly close.
    pub close_timeout: Duration,
    /// TCP keep-alive: idle time before the first probe; `None`: off (CONN-14).
    pub keep_alive: Option<Duration>,
    /// Time between keep-alive probes.
    pub keep_alive_interval: Duration,
    /// Keep-alive probes without a response before the peer counts as gone.
    pub keep_alive_count: u32,
    /// How long sent octets may stay unacknowledged (TCP_USER_TIMEOUT).
    pub user_timeout: Option<Duration>,
    /// See [`vp_api::StreamParams::kick_after`].
    pub kick_after: Option<Duration>,
    /// See [`vp_api::StreamParams::probe_after`].
    pub probe_after: Option<Duration>,
    /// TCP congestion control; `None`: `cubic` on loopback, or `reno` where that is not
    /// allowed; else the system's.
    pub congestion: Option<String>,
    /// Socket buffers in octets; `None`: the system's.
    pub socket_buffer: Option<u32>,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Octets a second that the kernel sends of this connection, at most; it then stays on TCP.
    pub rate: Option<u64>,
    /// How long a waiting thread spins before it sleeps; for connection events four times as long.
    pub spin: Duration,
    /// Local streams.
    pub local: LocalStreams,
    /// Octets of a local stream's ring, each way: one of [`Policy::LOCAL_RINGS`]. That of the side that
    /// accepts counts.
    pub local_ring: u32,
    /// Ends of local streams in this process at once; beyond, TCP.
    pub local_streams: u32,
    /// A directory of this user that both ends see, to meet peers of other network namespaces in;
    /// `None`: only peers of this one are met.
    pub local_dir: Option<PathBuf>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            crc: Crc::Prefer,
            markers: Markers::Off,
            revision: 2,
            negotiate_ird_ord: true,
            peer_to_peer: PeerToPeer { send: false, write: true, read: true },
            fall_back: true,
            fpdu: FpduSize::Emss,
            extensions: true,
            connect_timeout: Duration::from_secs(10),
            refused_for: Duration::ZERO,
            request_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            half_open: 256,
            invalid_stag_ends: 60,
            close_timeout: Duration::from_secs(2),
            keep_alive: Some(Duration::from_secs(10)),
            keep_alive_interval: Duration::from_secs(2),
            keep_alive_count: 5,
            user_timeout: Some(Duration::from_secs(20)),
            kick_after: Some(Duration::from_millis(20)),
            probe_after: Some(Duration::from_secs(10)),
            congestion: None,
            socket_buffer: None,
            dscp: 0,
            rate: None,
            spin: Duration::from_micros(50),
            local: LocalStreams::Auto,
            local_ring: 256 << 10,
            local_streams: 1024,
            local_dir: None,
        }
    }
}

impl Policy {
    /// What [`Policy::local_ring`] may be.
    pub const LOCAL_RINGS: [u32; 7] =
        [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];

    /// Octets of private data that a start-up frame of this policy carries: the enhanced block
    /// takes 4 of the 512 (RFC 6581 section 9 [CONN-07]).
    pub fn max_private_data(&self) -> usize {
        if self.enhanced() { 508 } else { 512 }
    }

    /// The enhanced form is used only when a feature of it is wanted (CONN-19).
    pub(crate) fn enhanced(&self) -> bool {
        self.revision >= 2 && (self.negotiate_ird_ord || self.peer_to_peer != PeerToPeer::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // [CONN-19]
    #[test]
    fn the_enhanced_form_is_used_only_when_wanted() {
        let mut policy = Policy::default();
        assert_eq!(policy.max_private_data(), 508);
        policy.negotiate_ird_ord = false;
        assert!(policy.enhanced());
        policy.peer_to_peer = PeerToPeer::default();
        assert_eq!(policy.max_private_data(), 512);
        policy = Policy { revision: 1, ..Policy::default() };
        assert!(!policy.enhanced());
    }
}
