//! Parameters and events of connection management. Plain data.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kal_shim::same_host::NotLocal;
use vp_api::{AsyncEvent, DatagramPath, Role, Rtr, ServiceRefusal, Terminate, UdAddress};

use crate::handle::Handle;
use crate::node::Ends;
use crate::policy::Policy;
use crate::ruled::Denied;

/// Names a connection request in this process until it is accepted, rejected or handed off, or its peer
/// gives up (IT-API `cn_est_id`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(pub(crate) Handle);

impl RequestId {
    /// As a number, for languages without types.
    pub const fn to_raw(self) -> u64 {
        self.0.to_raw()
    }

    /// From a number; a stale one is an error when used.
    pub const fn from_raw(raw: u64) -> Self {
        Self(Handle::from_raw(raw))
    }
}

/// Names a listener in the requests that arrive at it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListenerId(pub(crate) u64);

/// How to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectParams {
    /// The peer.
    pub remote: SocketAddr,
    /// Further addresses of it, tried in turn while TCP cannot connect. Providers with their own
    /// connection manager use the first address only.
    pub alternatives: Vec<SocketAddr>,
    /// The peer's name as the user typed it, for messages.
    pub remote_name: Option<String>,
    /// Local address to connect from; `None`: the system chooses.
    pub local: Option<IpAddr>,
    /// Local port to connect from; 0: any. One in use is [`crate::Error::AddressInUse`].
    pub local_port: u16,
    /// For the whole attempt, retries included; `None`: the policy's time-out for each step.
    pub timeout: Option<Duration>,
    /// Leave IRD and ORD out of the start-up: the applications agree on them otherwise.
    pub suppress_ird_ord: bool,
    /// For the peer's application, see [`crate::PrivateData`].
    pub private_data: Vec<u8>,
    /// Policy for this connection; `None`: the adapter's for the peer.
    pub policy: Option<Policy>,
}

impl ConnectParams {
    /// No other address, no name, any local address and port, the policy's time-outs, IRD and ORD negotiated, no
    /// private data, the adapter's policy.
    pub fn new(remote: SocketAddr) -> Self {
        Self {
            remote,
            alternatives: Vec::new(),
            remote_name: None,
            local: None,
            local_port: 0,
            timeout: None,
            suppress_ird_ord: false,
            private_data: Vec::new(),
            policy: None,
        }
    }
}

/// How to accept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AcceptParams {
    /// For the peer's application: 508 octets, or 512 if the request was not enhanced.
    pub private_data: Vec<u8>,
    /// Inbound reads at once; `None`: the endpoint's.
    pub ird: Option<u16>,
    /// Outbound reads at once; `None`: the endpoint's.
    pub ord: Option<u16>,
}

/// How to end a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disconnect {
    /// Send what was posted, then close; the peer sees an orderly end.
    Graceful,
    /// The same, once no work is outstanding or the policy's close time-out is over; until then nothing
    /// more may be posted to the send queue. As [`Disconnect::Graceful`] where the provider has no
    /// [`vp_api::QpChange::Drain`].
    Drained,
    /// Reset; the peer sees a broken connection.
    Abrupt,
}

/// The listener to hand a request to (IT-API `it_handoff`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handoff {
    /// Port of a listener of this process.
    pub port: u16,
    /// Address that it listens on; `None`: the request's own if possible, else any.
    pub address: Option<IpAddr>,
}

impl Handoff {
    /// To the listener of a port.
    pub const fn new(port: u16) -> Self {
        Self { port, address: None }
    }
}

impl fmt::Display for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(ip) => SocketAddr::new(ip, self.port).fmt(f),
            None => write!(f, "port {}", self.port),
        }
    }
}

/// A connection request (IT-API `IT_CM_REQ_CONN_REQUEST_EVENT`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnRequest {
    /// Id to accept or reject it by.
    pub request: RequestId,
    /// The listener's name.
    pub listener: ListenerId,
    /// The listener's port (IT-API: the connection qualifier). After a hand-off it differs from the port
    /// of `ends.local`.
    pub port: u16,
    /// Both ends; `remote` is where the request came from.
    pub ends: Ends,
    /// The peer's private data.
    pub private_data: Vec<u8>,
    /// The peer's IRD and ORD, if it sent any (RFC 6581 9.1 [CONN-25]).
    pub peer_ird_ord: Option<(u16, u16)>,
    /// Octets of private data that its acceptance may carry.
    pub max_private_data: usize,
}

/// The result or the end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnEvent {
    /// Connected: work may be posted.
    Established(Established),
    /// The peer's application rejected the request.
    Rejected {
        /// Both ends.
        ends: Ends,
        /// Its private data.
        private_data: Vec<u8>,
        /// The IRD and ORD that it would have accepted, if it said so (RFC 6581 9.1 [CONN-25]).
        peer_ird_ord: Option<(u16, u16)>,
    },
    /// No connection was established.
    Failed(ConnectError),
    /// The connection ended in an orderly way.
    Disconnected {
        /// Both ends.
        ends: Ends,
        /// The peer closed first.
        by_peer: bool,
    },
    /// The connection broke.
    Broken {
        /// Both ends.
        ends: Ends,
        /// Why.
        cause: BrokenCause,
        /// What was lost with it.
        lost: Lost,
    },
}

/// A new connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Established {
    /// Both ends.
    pub ends: Ends,
    /// Which end connected.
    pub role: Role,
    /// The peer's private data; empty if it came with a [`ConnRequest`] before.
    pub private_data: Vec<u8>,
    /// Inbound reads at once.
    pub ird: u16,
    /// Outbound reads at once.
    pub ord: u16,
    /// The peer's IRD and ORD as it sent them (RFC 6581 9.1 [CONN-25]).
    pub peer_ird_ord: Option<(u16, u16)>,
    /// MPA revision, 1 for sockets converted without start-up; 0 if the provider has its own connection
    /// manager: then the fields below have no meaning.
    pub revision: u8,
    /// CRC is used.
    pub crc: bool,
    /// We insert markers.
    pub markers_tx: bool,
    /// The peer inserts markers.
    pub markers_rx: bool,
    /// Ready-to-receive kind, if peer-to-peer.
    pub rtr: Option<Rtr>,
    /// Whether FPDUs go through shared memory; if not, why.
    pub local: Result<(), NotLocal>,
}

/// No connection was established: the ends, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConnectError {
    /// Both ends.
    pub ends: Ends,
    /// Why.
    pub reason: FailReason,
}

/// Why no connection was established.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FailReason {
    /// There is no listener.
    Refused,
    /// No route, or no response.
    Unreachable(String),
    /// The TCP connection was not accepted in time.
    ConnectTimeout(Duration),
    /// The MPA reply did not arrive (CONN-13).
    ReplyTimeout(Duration),
    /// A converted socket's peer did not begin: no MPA request, or no first FPDU (CONN-13).
    RequestTimeout(Duration),
    /// The peer closed or reset without a (whole) MPA frame.
    PeerClosed {
        /// Octets of a frame that had arrived.
        have: usize,
    },
    /// The peer does not speak MPA, or plays the same role (CONN-01, CONN-12).
    NotMpa(&'static str),
    /// The peer's frame is malformed.
    Malformed(String),
    /// No common MPA revision (CONN-06).
    Revision {
        /// The peer's.
        got: u8,
    },
    /// The CRC policies are incompatible.
    CrcPolicy,
    /// The marker policies are incompatible.
    Markers,
    /// IRD and ORD are incompatible (CONN-24).
    InsufficientIrd {
        /// What the peer needs.
        need: u16,
        /// What this end has.
        have: u16,
    },
    /// No common ready-to-receive kind (CONN-29).
    NoCommonRtr,
    /// This end lacked resources: descriptors, memory, or the provider refused.
    Resources(String),
    /// This host refuses the address: it lacks its interface, or its family, or is not permitted.
    Host {
        /// The system's error.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Reported by the provider's own connection manager.
    Native(String),
    /// The policy demands a local stream, and there can be none.
    NoLocalStream(NotLocal),
    /// A rule of the configuration refuses the connection.
    Denied(Denied),
    /// The application cancelled it.
    Cancelled,
}

/// Why a connection broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BrokenCause {
    /// The peer sent a Terminate.
    TerminatedByPeer(Terminate),
    /// This end found an error and sent a Terminate.
    Terminated(Terminate),
    /// The peer's machine or process reset the connection.
    Reset,
    /// The peer or the path is gone: there was no response in time.
    Lost,
    /// The peer closed while work was outstanding.
    ClosedInWork,
    /// The provider failed.
    Catastrophic,
}

impl BrokenCause {
    /// The cause that an asynchronous event of a queue pair reports; `None`: an orderly end, or none.
    pub fn of(event: AsyncEvent) -> Option<Self> {
        Some(match event {
            AsyncEvent::TerminateReceived(terminate) => Self::TerminatedByPeer(terminate),
            AsyncEvent::TerminateSent(terminate) => Self::Terminated(terminate),
            AsyncEvent::ConnectionReset => Self::Reset,
            AsyncEvent::ConnectionLost => Self::Lost,
            AsyncEvent::BadClose => Self::ClosedInWork,
            AsyncEvent::Catastrophic => Self::Catastrophic,
            _ => return None,
        })
    }
}

/// How a connection ended, for the errors of its work requests.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectionEnd {
    /// It was closed in an orderly way, or by this end.
    Closed {
        /// Both ends.
        ends: Ends,
        /// The peer began it.
        by_peer: bool,
    },
    /// It broke.
    Broken {
        /// Both ends.
        ends: Ends,
        /// Why.
        cause: BrokenCause,
    },
    /// It was not established: [`ConnEvent::Rejected`] or [`ConnEvent::Failed`].
    Refused(ConnEvent),
}

/// What was lost with a broken connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct Lost {
    /// Sends, writes and reads that had not completed or been flushed when this event was made.
    pub sends: u32,
    /// Receives that were posted.
    pub recvs: u32,
    /// Octets sent and received before.
    pub octets_sent: u64,
    pub octets_received: u64,
}

/// A peer asks for a queue pair that takes datagrams (IT-API `IT_CM_REQ_UD_SERVICE_REQUEST_EVENT`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceRequest {
    /// Id to reply to it by: [`crate::reply`].
    pub request: RequestId,
    /// The listener's name.
    pub listener: ListenerId,
    /// The listener's port (IT-API: the connection qualifier).
    pub port: u16,
    /// Both ends; `remote` is the requester.
    pub ends: Ends,
    /// The local port, as an index into the ports of the adapter.
    pub spigot: u32,
    /// The peer's private data.
    pub private_data: Vec<u8>,
}

/// The result of a service request (IT-API `IT_CM_MSG_UD_SERVICE_REPLY_EVENT`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ServiceReply {
    /// A queue pair that takes datagrams, and the path to it.
    Resolved {
        /// Its number and key.
        address: UdAddress,
        /// For an address handle.
        path: DatagramPath,
        /// From the application there.
        private_data: Vec<u8>,
    },
    /// The service, or the machine there, refused.
    Refused {
        /// Why.
        why: ServiceRefusal,
        /// From the application there.
        private_data: Vec<u8>,
    },
    /// No reply.
    Failed(String),
}

impl fmt::Display for ServiceReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolved { address, .. } => {
                write!(f, "the service gave queue pair {:#x}", address.qpn)
            }
            Self::Refused { why, .. } => f.write_str(match why {
                ServiceRefusal::NotSupported => "that machine has no such service",
                ServiceRefusal::Rejected => "the service refused",
                ServiceRefusal::NoQueuePair => "the service has no queue pair to give",
                ServiceRefusal::Redirected => "the service is at another address",
            }),
            Self::Failed(reason) => write!(f, "no reply from the service: {reason}"),
        }
    }
}
