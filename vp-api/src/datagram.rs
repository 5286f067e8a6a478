//! Unreliable datagrams: queue pairs that send each message by itself to any other one, over transports
//! that support it (InfiniBand, RoCE). iWARP does not.
//!
//! A datagram names the number of a queue pair and that queue pair's key, and takes a path, which an
//! address handle represents. A program gets all three from a *service* (InfiniBand's SIDR), or from a
//! datagram that it received: [`crate::Cq::poll_from`].
//!
//! A receive holds [`GRH_OCTETS`] octets more than the message: a global route header, or undefined
//! octets, and then the message. [`crate::WorkCompletion::octets`] counts both. A datagram that finds no
//! receive posted, or has the wrong key, is dropped without notice. One that is too long for its receive
//! is dropped, too, or ends the receiving queue pair.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::{CqId, Data, PdId, PostFailure, QpId, RecvWr, SendFlags, VpResult, WcOpcode};

/// Octets of a receive before the message.
pub const GRH_OCTETS: usize = 40;

/// The datagrams of an open RNIC: [`crate::Rnic::datagrams`].
pub trait Datagrams: Send + Sync {
    /// Limits.
    fn attrs(&self) -> &DatagramAttrs;
    /// Octets of the longest message that a port, named by its index, can carry now.
    fn max_payload(&self, port: u32) -> VpResult<u32>;

    /// Creates a queue pair, operational at once. Its id is of the same kind as those of connected
    /// queue pairs, and so are its completions and events.
    fn create_qp(&self, init: &UdQpInit) -> VpResult<Arc<dyn UdQp>>;
    /// Destroys a queue pair; no completion of it is queued afterwards.
    fn destroy_qp(&self, qp: QpId) -> VpResult<()>;

    /// Creates an address handle: a path that sends can name.
    fn create_ah(&self, pd: PdId, path: &DatagramPath) -> VpResult<AhId>;
    /// Query: the PD, and the path as given with what the provider filled in.
    fn query_ah(&self, ah: AhId) -> VpResult<AhInfo>;
    /// Destroys an address handle. Sends already posted with it are transmitted or complete in error;
    /// later ones are refused ([`crate::VpStatus::InvalidHandle`]).
    fn destroy_ah(&self, ah: AhId) -> VpResult<()>;

    /// Sets or clears the handler of service events; events before that are lost.
    fn set_service_handler(&self, handler: Option<Arc<dyn ServiceHandler>>);
    /// Offers a service: requests carry `token`, which must be new ([`crate::VpStatus::InUse`]). Returns
    /// the address with the real port.
    fn listen(&self, token: u64, address: SocketAddr, backlog: u32) -> VpResult<SocketAddr>;
    /// Stops offering it. Requests that arrived can still be replied to.
    fn unlisten(&self, token: u64) -> VpResult<()>;
    /// Requests a queue pair from the service at `peer`: exactly one event other than a request follows,
    /// and carries `token`, which must be new. The provider bounds the time.
    fn resolve(&self, token: u64, peer: SocketAddr, private_data: &[u8]) -> VpResult<()>;
    /// Cancels such a request: no event follows.
    fn cancel(&self, token: u64) -> VpResult<()>;
    /// Replies to a request with a queue pair, of this RNIC or another one.
    fn accept(&self, request: u64, answer: UdAddress, private_data: &[u8]) -> VpResult<()>;
    /// Refuses a request. To peers of another provider every reason may be `Rejected`.
    fn reject(&self, request: u64, why: ServiceRefusal, private_data: &[u8]) -> VpResult<()>;
}

/// A queue pair for datagrams.
pub trait UdQp: Send + Sync {
    /// Its id.
    fn id(&self) -> QpId;
    /// What peers need to send to it.
    fn address(&self) -> UdAddress;
    /// Posts sends. One that is too long for the port is refused ([`crate::VpStatus::InvalidSgl`]). A
    /// completion says that it was transmitted, not that it arrived. In Error they complete as flushed.
    fn post_send(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostFailure>;
    /// Posts receives: [`GRH_OCTETS`] octets and the message. In Error they complete as flushed.
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure>;
    /// To Error: flushes. To Operational: from Error, once what was posted is flushed
    /// ([`crate::VpStatus::StillFlushing`]); [`UdQp::address`] may differ afterwards.
    fn modify(&self, to: UdState) -> VpResult<()>;
    /// Query.
    fn query(&self) -> VpResult<UdQpInfo>;
}

/// Receiver of service events: called from any thread, without locks held; must not block and must
/// not call verbs.
pub trait ServiceHandler: Send + Sync {
    /// One event.
    fn on_service(&self, event: ServiceEvent);
}

/// Limits of datagrams, besides those of [`crate::RnicAttrs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DatagramAttrs {
    /// Address handles.
    pub max_ah: u32,
    /// Octets of private data of [`Datagrams::resolve`].
    pub max_private_request: u32,
    /// Octets of private data of [`Datagrams::accept`] and [`Datagrams::reject`].
    pub max_private_reply: u32,
    /// The key of a queue pair for which none was chosen; peers of other providers may know no
    /// other.
    pub usual_qkey: u32,
}

/// Name of an address handle; as the other ids, not reused soon.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AhId(pub u32);

/// Names a queue pair to peers, together with the path.
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
    /// The local port, as an index into the RNIC's ports.
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
    /// Within the subnet: packets need no global route header. Never on RoCE.
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

/// For creating a queue pair for datagrams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdQpInit {
    /// Its protection domain.
    pub pd: PdId,
    /// CQ of the send queue.
    pub send_cq: CqId,
    /// CQ of the receive queue.
    pub recv_cq: CqId,
    /// Send work requests outstanding.
    pub send_depth: u32,
    /// Receive work requests outstanding.
    pub recv_depth: u32,
    /// SGEs per send.
    pub max_send_sge: u32,
    /// SGEs per receive.
    pub max_recv_sge: u32,
    /// Octets inline.
    pub max_inline: u32,
    /// The port, as an index into the RNIC's ports.
    pub port: u32,
    /// Its key; `None`: [`DatagramAttrs::usual_qkey`].
    pub qkey: Option<u32>,
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
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The message.
    pub data: Data<'a>,
    /// Modifiers; there is nothing to fence.
    pub flags: SendFlags,
    /// Solicited event at the peer.
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
    /// The receive begins with a global route header.
    pub grh: bool,
    /// The path back, for [`Datagrams::create_ah`]; `None`: the memory of the receive, and the header in
    /// it, was deregistered before the completion was polled.
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
    /// Another address offers the service; the private data may say which.
    Redirected = 4,
}

/// An event of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ServiceEvent {
    /// A peer requests a queue pair; to be replied to by [`Datagrams::accept`] or [`Datagrams::reject`].
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
    /// The service, or the machine there, refused.
    Refused { token: u64, why: ServiceRefusal, private_data: Vec<u8> },
    /// No reply.
    Failed { token: u64, reason: String },
}
