//! Unreliable datagrams (UD): queue pairs that can send each message to a different peer, over transports that
//! support it (InfiniBand, RoCE). iWARP does not.
//!
//! A datagram is addressed by the number of a queue pair and that queue pair's key. It takes a path, which an
//! address handle represents. A program gets all three from a *service* (InfiniBand's SIDR), or from a datagram
//! that it received: [`crate::Cq::poll_from`].
//!
//! A receive needs [`GRH_OCTETS`] octets more than the message: first a global route header, or undefined octets,
//! and then the message. [`crate::WorkCompletion::octets`] counts both. A datagram that finds no receive posted, or
//! has the wrong key, is dropped without notice. A datagram that is too long for its receive is dropped, too, or
//! ends the receiving queue pair.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::{
    CqId, Data, PdId, PostFailure, QpId, RecvWr, SendFlags, SrqId, VpError, VpResult, VpStatus,
    WcOpcode,
};

/// Octets of a receive that precede the message.
pub const GRH_OCTETS: usize = 40;

/// In place of a port: for a queue pair, every port, where the provider supports it ([`crate::VpStatus::InvalidModifier`]
/// otherwise); for a path, the port of its local GID.
pub const ANY_PORT: u32 = u32::MAX;

/// In place of the number of a queue pair: all that are attached to the group ([`UdQp::attach`]).
pub const MULTICAST_QPN: u32 = 0x00ff_ffff;

/// The datagrams of an open RNIC: [`crate::Rnic::datagrams`].
pub trait Datagrams: Send + Sync {
    /// Limits.
    fn attrs(&self) -> &DatagramAttrs;
    /// Octets of the longest message that a port can carry now; the port is named by its index.
    fn max_payload(&self, port: u32) -> VpResult<u32>;

    /// Creates a queue pair, which is operational at once. Its id is of the same kind as those of connected queue
    /// pairs, and so are its completions and events.
    fn create_qp(&self, init: &UdQpInit) -> VpResult<Arc<dyn UdQp>>;
    /// Destroys a queue pair; no completion of it is queued afterwards.
    fn destroy_qp(&self, qp: QpId) -> VpResult<()>;

    /// Creates an address handle: a path that sends can name.
    fn create_ah(&self, pd: PdId, path: &DatagramPath) -> VpResult<AhId>;
    /// Query: the PD, and the given path with the values that the provider filled in.
    fn query_ah(&self, ah: AhId) -> VpResult<AhInfo>;
    /// Destroys an address handle. Sends already posted with it are transmitted or complete in error;
    /// later ones are refused ([`crate::VpStatus::InvalidHandle`]).
    fn destroy_ah(&self, ah: AhId) -> VpResult<()>;

    /// Sets or clears the handler of service events. Events before the first call are lost.
    fn set_service_handler(&self, handler: Option<Arc<dyn ServiceHandler>>);
    /// Offers a service. Its requests carry `token`, which must be new ([`crate::VpStatus::InUse`]). Returns the
    /// address with the actual port.
    fn listen(&self, token: u64, address: SocketAddr, backlog: u32) -> VpResult<SocketAddr>;
    /// Stops offering it. Requests that have arrived can still be replied to.
    fn unlisten(&self, token: u64) -> VpResult<()>;
    /// Requests a queue pair from the service at `peer`. Exactly one event follows that carries `token` and is not
    /// a request; `token` must be new. The provider bounds the time.
    fn resolve(&self, token: u64, peer: SocketAddr, private_data: &[u8]) -> VpResult<()>;
    /// Cancels such a request: no event follows.
    fn cancel(&self, token: u64) -> VpResult<()>;
    /// Replies to a request with a queue pair, of this RNIC or of another one.
    fn accept(&self, request: u64, answer: UdAddress, private_data: &[u8]) -> VpResult<()>;
    /// Refuses a request. A peer of another provider may see every reason as `Rejected`.
    fn reject(&self, request: u64, why: ServiceRefusal, private_data: &[u8]) -> VpResult<()>;
}

/// A queue pair for datagrams.
pub trait UdQp: Send + Sync {
    /// Its id.
    fn id(&self) -> QpId;
    /// The address that peers need to send to it.
    fn address(&self) -> UdAddress;
    /// Posts sends. A send that is too long for the port is refused ([`crate::VpStatus::InvalidSgl`]). A completion
    /// means that the datagram was transmitted, not that it arrived. In Error, sends complete as flushed.
    fn post_send(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostFailure>;
    /// Posts receives: [`GRH_OCTETS`] octets and the message. In Error, receives complete as flushed.
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure>;
    /// To Error: flushes. From Error to Operational, once everything posted is flushed
    /// ([`crate::VpStatus::StillFlushing`]); [`UdQp::address`] may differ afterwards.
    fn modify(&self, to: UdState) -> VpResult<()>;
    /// Changes its key. [`crate::VpStatus::Unsupported`] if the key cannot change after creation.
    fn set_qkey(&self, _qkey: u32) -> VpResult<()> {
        let detail = "this provider's queue pairs keep the key with which they are created";
        Err(VpError::new(VpStatus::Unsupported, detail))
    }
    /// Delivers the datagrams for a multicast group, which are sent to queue pair [`MULTICAST_QPN`] at the group's GID,
    /// to this queue pair, too, from now on, also those that it sends itself. Attached again, nothing changes.
    /// [`crate::VpStatus::Unsupported`] if the transport has no groups: [`DatagramAttrs::max_groups`].
    fn attach(&self, _group: [u8; 16]) -> VpResult<()> {
        Err(no_groups())
    }
    /// The inverse of [`UdQp::attach`], as is destroying the queue pair. [`crate::VpStatus::InvalidModifier`] if it is
    /// not attached.
    fn detach(&self, _group: [u8; 16]) -> VpResult<()> {
        Err(no_groups())
    }
    /// As after creation, in any state: what is posted is gone, its completions and those that were not polled leave
    /// the CQs, and the state is Operational. [`UdQp::address`] may differ afterwards.
    /// [`crate::VpStatus::Unsupported`] if the provider cannot do that: then through Error.
    fn reset(&self) -> VpResult<()> {
        let detail = "this provider's queue pairs leave Error when their completions were polled";
        Err(VpError::new(VpStatus::Unsupported, detail))
    }
    /// Query.
    fn query(&self) -> VpResult<UdQpInfo>;
}

fn no_groups() -> VpError {
    VpError::new(VpStatus::Unsupported, "this device has no multicast groups")
}

/// Receiver of service events: called from any thread, with no lock held; must not block and must not call verbs.
pub trait ServiceHandler: Send + Sync {
    /// One event.
    fn on_service(&self, event: ServiceEvent);
}

/// Limits of datagrams, in addition to those of [`crate::RnicAttrs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DatagramAttrs {
    /// Address handles.
    pub max_ah: u32,
    /// Octets of private data of [`Datagrams::resolve`].
    pub max_private_request: u32,
    /// Octets of private data of [`Datagrams::accept`] and [`Datagrams::reject`].
    pub max_private_reply: u32,
    /// The key of a queue pair if none was chosen. Peers of other providers may know no other key.
    pub usual_qkey: u32,
    /// Multicast groups of a process; 0: the transport has none.
    pub max_groups: u32,
    /// Queue pairs attached to one of them.
    pub max_members: u32,
}

/// Id of an address handle; like other ids, it is not reused soon.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AhId(pub u32);

/// Identifies a queue pair to peers, together with the path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UdAddress {
    /// Its number.
    pub qpn: u32,
    /// Its key: datagrams with another key are dropped.
    pub qkey: u32,
}

/// A path to a port, in InfiniBand's terms (which RoCE shares).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DatagramPath {
    /// The local port, as an index into the RNIC's ports, or [`ANY_PORT`].
    pub port: u32,
    /// GID of the local port; all zeros: the port's first.
    pub local_gid: [u8; 16],
    /// GID of the peer's port.
    pub remote_gid: [u8; 16],
    /// LID of the local port; RoCE: 0.
    pub local_lid: u16,
    /// LID of the peer's port; RoCE: 0.
    pub remote_lid: u16,
    /// Partition key; 0: the port's first.
    pub partition_key: u16,
    /// Largest packet, in InfiniBand's code (1: 256 octets, 5: 4096); 0: not known.
    pub mtu_code: u8,
    /// Rate, in InfiniBand's code; 0: that of the port.
    pub rate: u8,
    /// Life time of packets, in InfiniBand's code.
    pub packet_lifetime: u8,
    /// Service level.
    pub service_level: u8,
    /// The peer is in the same subnet: packets need no global route header. Never on RoCE.
    pub subnet_local: bool,
    /// Flow label of the global route header.
    pub flow_label: u32,
    /// Traffic class of the global route header.
    pub traffic_class: u8,
    /// Hop limit of the global route header; 0: the provider's choice.
    pub hop_limit: u8,
}

/// The attributes of an address handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct AhInfo {
    pub pd: PdId,
    pub path: DatagramPath,
}

/// Parameters for creating a queue pair for datagrams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdQpInit {
    /// Its protection domain.
    pub pd: PdId,
    /// CQ of the send queue.
    pub send_cq: CqId,
    /// CQ of the receive queue.
    pub recv_cq: CqId,
    /// Maximum outstanding send work requests.
    pub send_depth: u32,
    /// Maximum outstanding receive work requests.
    pub recv_depth: u32,
    /// SGEs per send.
    pub max_send_sge: u32,
    /// SGEs per receive.
    pub max_recv_sge: u32,
    /// Maximum octets inline.
    pub max_inline: u32,
    /// The port, as an index into the RNIC's ports, or [`ANY_PORT`].
    pub port: u32,
    /// Its key; `None`: [`DatagramAttrs::usual_qkey`].
    pub qkey: Option<u32>,
    /// The SRQ from which it takes receives; [`VpStatus::Unsupported`] where only connected queue pairs can.
    pub srq: Option<SrqId>,
}

impl UdQpInit {
    /// A small queue pair on the first port: 64 sends, 64 receives, 4 SGEs.
    pub fn new(pd: PdId, send_cq: CqId, recv_cq: CqId) -> Self {
        Self {
            pd,
            send_cq,
            recv_cq,
            send_depth: 64,
            recv_depth: 64,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 0,
            port: 0,
            qkey: None,
            srq: None,
        }
    }
}

/// State of a queue pair for datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum UdState {
    Operational,
    Error,
}

/// The attributes of a queue pair for datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct UdQpInfo {
    pub id: QpId,
    pub state: UdState,
    pub address: UdAddress,
    pub port: u32,
    pub send_depth: u32,
    pub recv_depth: u32,
    pub sends_outstanding: u32,
    pub recvs_outstanding: u32,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct UdSendWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The message.
    pub data: Data<'a>,
    /// Flags; there is nothing to fence.
    pub flags: SendFlags,
    /// Whether to raise a solicited event at the peer.
    pub solicited: bool,
    /// Immediate Data.
    pub immediate: Option<u32>,
    /// The path.
    pub ah: AhId,
    /// The peer's queue pair.
    pub to: UdAddress,
}

impl UdSendWr<'_> {
    /// The opcode of its completion.
    pub const fn completion(&self) -> WcOpcode {
        match self.immediate {
            None => WcOpcode::Send,
            Some(_) => WcOpcode::Immediate,
        }
    }
}

/// Where a received datagram came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramSource {
    /// Number of the sender's queue pair; the key is not in a datagram.
    pub qpn: u32,
    /// Whether the receive begins with a global route header.
    pub grh: bool,
    /// The path back, for [`Datagrams::create_ah`]. `None` if the memory of the receive, with the header in it, was
    /// deregistered before the completion was polled.
    pub path: Option<DatagramPath>,
}

/// Why a service request is refused; InfiniBand's numbers (table 134).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ServiceRefusal {
    /// There is no such service.
    NotSupported = 1,
    /// The application rejected it.
    Rejected = 2,
    /// No queue pair is available.
    NoQueuePair = 3,
    /// Another address offers the service; the private data may name it.
    Redirected = 4,
}

/// An event of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ServiceEvent {
    /// A peer requests a queue pair; reply with [`Datagrams::accept`] or [`Datagrams::reject`].
    Request {
        listener: u64,
        request: u64,
        peer: SocketAddr,
        /// The local port, as an index into the RNIC's ports.
        port: u32,
        private_data: Vec<u8>,
    },
    /// The service returned a queue pair.
    Resolved { token: u64, address: UdAddress, path: DatagramPath, private_data: Vec<u8> },
    /// The service, or the system there, refused.
    Refused { token: u64, why: ServiceRefusal, private_data: Vec<u8> },
    /// No reply arrived.
    Failed { token: u64, reason: String },
}
