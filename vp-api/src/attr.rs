//! Attributes, limits and capabilities of verbs objects.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bitflags::bitflags;

use crate::event::CqHandler;
use crate::{Access, CqId, MemRange, MwId, PdId, SrqId, Stag, VpError, VpStatus};

/// How connections are made, see the crate documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionModel {
    /// The provider takes over an established TCP stream.
    LlpStream,
    /// The provider has its own connection manager.
    Native,
}

/// The transport of a device, as IT-API reports it to applications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Vendor-specific, or not reported.
    Other,
    /// iWARP over TCP.
    Iwarp,
    /// InfiniBand's, over its own links or over Ethernet (RoCE).
    InfiniBand,
}

bitflags! {
    /// What a provider supports beyond Send, Receive, RDMA Write and RDMA Read.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Capabilities: u64 {
        /// Shared receive queues.
        const SRQ = 1 << 0;
        /// SRQ size can be changed.
        const SRQ_RESIZE = 1 << 1;
        /// Memory windows; see [`Self::NARROW_MW`] and [`Self::WIDE_MW`].
        const MW = 1 << 2;
        /// Send with Invalidate, local invalidate.
        const INVALIDATE = 1 << 3;
        /// Fast registration through the send queue.
        const FAST_REGISTER = 1 << 4;
        /// Regions that share memory under a second STag.
        const SHARED_MR = 1 << 5;
        /// Zero-based addressing.
        const ZERO_BASED = 1 << 6;
        /// STag 0 for privileged consumers.
        const PRIVILEGED_STAG = 1 << 7;
        /// 64-bit FetchAdd and CmpSwap.
        const ATOMICS = 1 << 8;
        /// Masked atomics (RFC 7306).
        const MASKED_ATOMICS = 1 << 9;
        /// Immediate Data, alone and after an RDMA Write.
        const IMMEDIATE = 1 << 10;
        /// CQ overrun is detected and reported.
        const CQ_OVERRUN_EVENT = 1 << 11;
        /// CQ size can be changed.
        const CQ_RESIZE = 1 << 12;
        /// SQ and RQ sizes can be changed in Idle.
        const QP_RESIZE = 1 << 13;
        /// The sink of an RDMA Read needs no remote-write right.
        const READ_SINK_LOCAL_WRITE = 1 << 14;
        /// Unreliable datagrams: [`crate::Rnic::datagrams`].
        const UD = 1 << 15;
        /// Windows of [`MwKind::Narrow`].
        const NARROW_MW = 1 << 16;
        /// Windows of [`MwKind::Wide`].
        const WIDE_MW = 1 << 17;
        /// The sink of an RDMA Read can be a window, and can be invalidated by the Read.
        const READ_SINK_STAG = 1 << 18;
        /// A QP's own receive queue has a limit event.
        const RECV_LIMIT = 1 << 19;
        /// The device chooses the key of a wide window; Query MW returns it once the bind is posted.
        const PICKS_WIDE_KEY = 1 << 20;
        /// [`Addressing::Based`].
        const BASED = 1 << 21;
        /// A Send can wait for its receive: [`Unready::Hold`].
        const HOLD = 1 << 22;
        /// [`crate::SendOp::SendImmediate`]. With [`ConnectionModel::Native`] on all streams, otherwise on streams
        /// whose ends agreed on it: [`crate::StreamParams::send_immediates`].
        const SEND_IMMEDIATE = 1 << 23;
        /// The rights of peers through a QP can be changed: [`crate::QpChange::Allow`].
        const ALLOW = 1 << 25;
        /// The completions of a QP can be removed: [`crate::QpChange::Discard`].
        const DISCARD = 1 << 26;
        /// [`crate::LlpStream::local`]: shared memory in place of TCP, where both ends are on one host.
        const LOCAL_STREAM = 1 << 27;
    }
}

/// Limits and capabilities of an RNIC (RDMAC Query RNIC). All limits are real: asking for the maximum works if
/// there is memory.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs)] // each says what it is
pub struct RnicAttrs {
    pub vendor: String,
    pub model: String,
    pub firmware: String,
    pub connection_model: ConnectionModel,
    pub capabilities: Capabilities,
    pub max_qp: u32,
    pub max_wr_per_qp: u32,
    pub max_wr_per_srq: u32,
    pub max_sge_send: u32,
    pub max_sge_recv: u32,
    pub max_sge_write: u32,
    pub max_sge_read: u32,
    /// Octets that a work request may carry inline.
    pub max_inline: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_srq: u32,
    pub max_pd: u32,
    pub max_mr: u32,
    pub max_mr_octets: u64,
    pub max_mw: u32,
    pub max_ird: u16,
    pub max_ord: u16,
    /// Largest message in octets.
    pub max_message: u32,
    /// Octets of private data that [`crate::NativeCm::connect`] takes. 0 means MPA's limit, which also holds for
    /// [`ConnectionModel::LlpStream`].
    pub max_private_connect: u32,
    /// As above, for [`crate::NativeCm::accept`].
    pub max_private_accept: u32,
    /// As above, for [`crate::NativeCm::reject`].
    pub max_private_reject: u32,
}

impl RnicAttrs {
    /// Attributes with every limit 0 and no capability; the provider sets its own.
    pub fn new(vendor: &str, model: &str, connection_model: ConnectionModel) -> Self {
        Self {
            vendor: vendor.into(),
            model: model.into(),
            firmware: String::new(),
            connection_model,
            capabilities: Capabilities::empty(),
            max_qp: 0,
            max_wr_per_qp: 0,
            max_wr_per_srq: 0,
            max_sge_send: 0,
            max_sge_recv: 0,
            max_sge_write: 0,
            max_sge_read: 0,
            max_inline: 0,
            max_cq: 0,
            max_cqe: 0,
            max_srq: 0,
            max_pd: 0,
            max_mr: 0,
            max_mr_octets: 0,
            max_mw: 0,
            max_ird: 0,
            max_ord: 0,
            max_message: 0,
            max_private_connect: 0,
            max_private_accept: 0,
            max_private_reject: 0,
        }
    }
}

/// A device as listed before it is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// The name by which it is opened, e.g. `vp_softrdma`.
    pub name: String,
    /// Its transport.
    pub transport: Transport,
    /// Its ports, at least one.
    pub ports: Vec<PortInfo>,
}

/// A port (IT-API: spigot).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// Interface name, e.g. `eth0`.
    pub interface: String,
    /// Usable now: the link is up, and it has an address.
    pub online: bool,
    /// Link MTU in octets.
    pub mtu: u32,
    /// Addresses to listen on or connect from.
    pub addresses: Vec<IpAddr>,
}

/// Parameters for creating a CQ.
#[derive(Clone, Default)]
pub struct CqInit {
    /// Requested entries; the CQ gets at least this many.
    pub depth: u32,
    /// Called once per armed notification, from any thread, with no lock held; must not block.
    pub handler: Option<Arc<dyn CqHandler>>,
}

/// Parameters for creating an SRQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqInit {
    /// The PD that its buffers are checked against.
    pub pd: PdId,
    /// Work requests.
    pub depth: u32,
    /// SGEs per work request.
    pub max_sge: u32,
    /// The one-shot limit event is raised when fewer than this many receives remain; 0 means not armed.
    pub limit: u32,
}

/// The attributes of an SRQ (Query S-RQ).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct SrqInfo {
    pub pd: PdId,
    pub depth: u32,
    pub max_sge: u32,
    /// Armed limit; 0 if not armed.
    pub limit: u32,
    pub posted: u32,
}

/// What happens to a Send (of any kind, or Immediate Data) that finds no receive posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unready {
    /// The stream ends, with the Terminate 1/2/2 (RFC 5041 section 7.1).
    #[default]
    Terminate,
    /// With [`Capabilities::HOLD`]: the Send and the Sends after it wait for receives, which they take in order.
    /// Other operations of the peer continue meanwhile, so that the consumer's Reads complete. An STag that a Send
    /// invalidates stays valid until that Send is delivered. Sends that wait are lost when the stream ends; a close
    /// by the peer takes effect after they are delivered, a close by the consumer is a Bad Close.
    Hold {
        /// The maximum number of octets of the stream to buffer, with headers, not counting those that were read
        /// before the first Send had to wait; at least 1. When the buffer is full, nothing is read from the stream,
        /// and TCP stops the peer, which may give up by its own time-outs. 256 KiB is a good value.
        octets: u32,
        /// The longest time that the oldest Send waits, exceeded by at most an eighth; not zero. Afterwards it is
        /// treated as by [`Unready::Terminate`].
        time: Duration,
    },
}

impl Unready {
    /// The error of a device without [`Capabilities::HOLD`].
    pub fn unsupported(self) -> VpError {
        let detail =
            format!("this device ends the stream at a Send without a receive: no {self:?}");
        VpError::new(VpStatus::Unsupported, detail)
    }
}

/// Parameters for creating a QP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Its protection domain.
    pub pd: PdId,
    /// CQ of the send queue.
    pub send_cq: CqId,
    /// CQ of the receive queue.
    pub recv_cq: CqId,
    /// The SRQ from which receives are taken, instead of the QP's own RQ.
    pub srq: Option<SrqId>,
    /// Maximum outstanding send work requests.
    pub send_depth: u32,
    /// Maximum outstanding receive work requests; ignored with an SRQ.
    pub recv_depth: u32,
    /// SGEs per send.
    pub max_send_sge: u32,
    /// SGEs per receive.
    pub max_recv_sge: u32,
    /// Maximum octets inline.
    pub max_inline: u32,
    /// Maximum outstanding inbound reads and atomics.
    pub ird: u16,
    /// Maximum outstanding outbound reads and atomics.
    pub ord: u16,
    /// Rights that peers may use through this QP: `REMOTE_READ` (inbound reads), `REMOTE_WRITE`
    /// (inbound writes), `REMOTE_ATOMIC`, `BIND` (bind windows).
    pub allow: Access,
    /// Whether STag 0 and fast registration are allowed (RDMAC "privileged").
    pub privileged: bool,
    /// A one-shot event is raised when more than this many receives, from the QP's own queue or an SRQ, were taken
    /// and their completions not yet polled; 0 means never.
    pub recv_limit: u32,
    /// What happens to a Send without a receive.
    pub unready: Unready,
}

impl QpInit {
    /// A small RC QP: 64 sends, 64 receives, 4 SGEs, 16 reads in each direction, all remote rights.
    pub fn new(pd: PdId, send_cq: CqId, recv_cq: CqId) -> Self {
        Self {
            pd,
            send_cq,
            recv_cq,
            srq: None,
            send_depth: 64,
            recv_depth: 64,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
            ird: 16,
            ord: 16,
            allow: Access::REMOTE.union(Access::BIND),
            privileged: false,
            recv_limit: 0,
            unready: Unready::Terminate,
        }
    }
}

/// How a region's octets are addressed on the wire and in SGEs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Addressing {
    /// TO = virtual address of the octet.
    #[default]
    Absolute,
    /// TO = offset from the region's first octet.
    ZeroBased,
    /// TO of the first octet = this number, chosen by the consumer (`ibv_reg_mr_iova(3)`); the sum with
    /// the length must stay below 2^64. Needs [`Capabilities::BASED`].
    Based(u64),
}

impl Addressing {
    /// TO of the first octet of memory at `addr`.
    pub const fn base(self, addr: u64) -> u64 {
        match self {
            Self::Absolute => addr,
            Self::ZeroBased => 0,
            Self::Based(base) => base,
        }
    }
}

/// Parameters for registering a region.
#[derive(Clone, Debug)]
pub struct MrInit {
    /// Its protection domain.
    pub pd: PdId,
    /// The memory. The provider keeps a clone while the region is valid.
    pub range: MemRange,
    /// TO of the first octet.
    pub addressing: Addressing,
    /// Rights; see [`Access::valid_for_region`].
    pub access: Access,
    /// The key octet, chosen by the consumer.
    pub key: u8,
    /// Whether to pin the pages (mlock), accounted against the process's limit.
    pub pin: bool,
}

/// The attributes of a region (RDMAC Query MR).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrInfo {
    /// The STag, key included if valid.
    pub stag: Stag,
    /// Its PD.
    pub pd: PdId,
    /// True if the region is usable; false if it is only allocated or was invalidated.
    pub valid: bool,
    /// Whether it is shared with another region: then it is never invalid, and a peer cannot invalidate it.
    pub shared: bool,
    /// Address of the first octet; 0 if invalid.
    pub addr: u64,
    /// Octets; 0 if invalid.
    pub len: u64,
    /// How its octets are addressed.
    pub addressing: Addressing,
    /// Rights.
    pub access: Access,
    /// Memory windows bound to it.
    pub bound_windows: u32,
}

/// Kind of memory window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MwKind {
    /// Usable by every QP of the PD while bound ("wide", IB type 1).
    Wide,
    /// Usable only by the QP that bound it ("narrow", IB type 2, RDMAC).
    Narrow,
}

/// The attributes of a window (RDMAC Query MW).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct MwInfo {
    pub id: MwId,
    pub kind: MwKind,
    pub pd: PdId,
    /// The STag to give to peers, if bound.
    pub stag: Option<Stag>,
    /// Rights of peers; none if unbound.
    pub access: Access,
    /// The region that it is bound to, with the key at the bind.
    pub region: Option<Stag>,
    /// The first octet, as a TO of the region; 0 if unbound.
    pub to: u64,
    /// Octets; 0 if unbound.
    pub len: u64,
    /// How peers address it.
    pub addressing: Addressing,
}
