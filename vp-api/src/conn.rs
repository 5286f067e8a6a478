//! The two models of connections: taking over an LLP stream, and a provider's own connection manager.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::{Access, AsyncEvent, QpId, Terminate};

/// The role of this end in the MPA start-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Role {
    Initiator,
    Responder,
}

/// Ready-to-receive kind (RFC 6581).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Rtr {
    Send,
    Write,
    Read,
}

/// Largest FPDU to build.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FpduSize {
    /// One FPDU per TCP segment: MULPDU from the EMSS (RFC 5044 section 4.5). Every peer accepts it.
    #[default]
    Emss,
    /// At most this many octets of ULPDU, whatever the EMSS; for peers known to accept them.
    Octets(u16),
}

/// The parameters negotiated by the MPA start-up, and the policy for the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamParams {
    /// Role in the start-up.
    pub role: Role,
    /// CRC used, both ways.
    pub crc: bool,
    /// We insert markers.
    pub markers_tx: bool,
    /// The peer inserts markers.
    pub markers_rx: bool,
    /// Inbound reads and atomics at once.
    pub ird: u16,
    /// Outbound reads and atomics at once.
    pub ord: u16,
    /// Agreed RTR, if peer-to-peer.
    pub rtr: Option<Rtr>,
    /// Largest FPDU.
    pub fpdu: FpduSize,
    /// Offer and accept RFC 7306 operations.
    pub extensions: bool,
    /// With [`crate::Capabilities::SEND_IMMEDIATE`]: both ends agreed on Sends with Immediate, which no
    /// RFC defines; a peer that did not agree ends the stream when it gets one.
    pub send_immediates: bool,
    /// Initiator: if nothing has arrived this long after our first FPDU, send a zero-length RDMA Write
    /// to wake a peer that missed it (kernel siw), and again after twice as long, a few times; `None`:
    /// never.
    pub kick_after: Option<Duration>,
    /// While work is posted: if nothing has arrived for this long, probe the peer with a zero-length
    /// RDMA Read, and give up after as long again, not counting time in which this process did not run;
    /// `None`: only TCP keep-alive decides. While only receives wait, a provider may probe a peer that
    /// responds less and less often, down to a sixteenth.
    pub probe_after: Option<Duration>,
    /// Bound on an orderly close and on the Terminate state.
    pub close_timeout: Duration,
}

impl StreamParams {
    /// CRC on, no markers, client-server, 16 reads each way, EMSS-sized FPDUs.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            crc: true,
            markers_tx: false,
            markers_rx: false,
            ird: 16,
            ord: 16,
            rtr: None,
            fpdu: FpduSize::Emss,
            extensions: true,
            send_immediates: false,
            kick_after: Some(Duration::from_millis(20)),
            probe_after: Some(Duration::from_secs(10)),
            close_timeout: Duration::from_secs(2),
        }
    }
}

/// An established TCP stream to turn into an RDMA stream.
#[derive(Debug)]
pub struct LlpStream {
    /// Connected, nonblocking TCP socket; the provider owns it from here.
    pub socket: OwnedFd,
    /// Octets that arrived after the start-up frame and belong to full operation.
    pub received: Vec<u8>,
    /// Octets to send in streaming mode before anything else (RDMAC "last streaming message").
    pub last_message: Vec<u8>,
    /// Parameters.
    pub params: StreamParams,
    /// With [`crate::Capabilities::LOCAL_STREAM`]: what carries the octets in place of TCP, both ways and
    /// from the first FPDU on. `received` is empty then; `last_message` still goes by TCP, and nothing
    /// else does. The socket stays, and is watched: an end of it ends the stream. A provider without the
    /// capability is given none.
    pub local: Option<LocalStream>,
}

/// Shared memory that carries the octets of a stream whose ends are on one host, and the descriptors by
/// which either end wakes the other. Both ends are given the same [`StreamParams::crc`] and markers.
#[derive(Debug)]
pub struct LocalStream {
    /// What `shm_ring::create` made, verified by the end that did not make it.
    pub memory: OwnedFd,
    /// Which of its two sides this end is.
    pub side: LocalSide,
    /// The eventfd on which this end sleeps: the same one as the peer's `peer_doorbell`. Its counter was 1 when
    /// it was made, and stays: ringing adds 0, which is an edge, and cannot block.
    pub doorbell: OwnedFd,
    /// The one on which the peer sleeps.
    pub peer_doorbell: OwnedFd,
}

/// The sides of a [`LocalStream`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalSide {
    /// The end that made the memory.
    Maker,
    /// The end that it was passed to.
    Other,
}

/// What carries the octets of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Carrier {
    /// TCP.
    #[default]
    Tcp,
    /// A [`LocalStream`].
    Local,
    /// A [`LocalStream`] whose peer broke the rules of the shared memory, which ended the stream: its
    /// event is [`AsyncEvent::ConnectionReset`], its cause `local-ring-corrupt`.
    LocalCorrupt,
}

/// QP state (RDMAC 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum QpState {
    Idle,
    Rts,
    Closing,
    Terminate,
    Error,
}

/// Modify QP. A change happens completely or not at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum QpChange {
    /// Idle -> RTS over a stream, which is closed on an error.
    Rts(Box<LlpStream>),
    /// RTS -> Closing: orderly. With outstanding work: Error, after [`AsyncEvent::BadClose`]; what
    /// completed before still arrives, followed by a reset.
    Closing,
    /// As [`QpChange::Closing`], once no work is outstanding or the stream's `close_timeout` is over.
    /// Until then the state is RTS, and posts to the send queue are refused
    /// ([`crate::VpStatus::InvalidState`]). Providers without it return
    /// [`crate::VpStatus::Unsupported`].
    Drain,
    /// With [`crate::Capabilities::ALLOW`], in every state: peers may use these rights through the QP from now
    /// on, in place of those of [`crate::QpInit::allow`]; that to bind is as it was.
    Allow(Access),
    /// RTS -> Terminate: Terminate 0/0/0, then close.
    Terminate,
    /// Idle or RTS -> Error: reset at once, flush. Closing and Terminate end by themselves, bounded
    /// (RDMAC 6.2.3, 6.2.5).
    Error,
    /// Error -> Idle, once all is flushed and all events are delivered: no event of the earlier stream
    /// follows. Until then it waits, or is refused ([`crate::VpStatus::StillFlushing`]).
    Idle,
    /// Change limits, as far as the present state allows; `None` leaves one unchanged.
    Limits {
        /// Outbound reads at once (Idle: up to the created one; RTS: only down).
        ord: Option<u16>,
        /// Inbound reads at once (Idle only).
        ird: Option<u16>,
        /// Send depth (Idle, empty queue only).
        send_depth: Option<u32>,
        /// Receive depth (Idle, empty queue only).
        recv_depth: Option<u32>,
        /// (Re-)arm the receive limit event, in any state that takes limits; 0 disarms it.
        recv_limit: Option<u32>,
    },
}

/// The attributes of a QP (RDMAC Query QP).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct QpInfo {
    pub id: QpId,
    pub state: QpState,
    pub send_depth: u32,
    pub recv_depth: u32,
    pub sends_outstanding: u32,
    pub recvs_outstanding: u32,
    /// Sends of the last stream that were flushed or failed.
    pub sends_lost: u32,
    /// Receives of the last stream that were flushed or failed.
    pub recvs_lost: u32,
    /// Armed receive limit, 0 if not armed.
    pub recv_limit: u32,
    pub ird: u16,
    pub ord: u16,
    /// Last Terminate sent or received.
    pub terminate: Option<Terminate>,
    /// How the last stream ended, as its asynchronous event reports. `None`: it continues, or this end
    /// ended it, or the provider does not report it.
    pub ended: Option<AsyncEvent>,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    /// TCP's view of the stream, while there is one.
    pub tcp: Option<TcpInfo>,
    /// What carries the octets of the stream, or carried those of the last one.
    pub carrier: Carrier,
    pub counters: QpCounters,
}

impl QpInfo {
    /// A QP in Idle, everything else unknown.
    pub fn new(id: QpId) -> Self {
        Self {
            id,
            state: QpState::Idle,
            send_depth: 0,
            recv_depth: 0,
            sends_outstanding: 0,
            recvs_outstanding: 0,
            sends_lost: 0,
            recvs_lost: 0,
            recv_limit: 0,
            ird: 0,
            ord: 0,
            terminate: None,
            ended: None,
            local: None,
            remote: None,
            tcp: None,
            carrier: Carrier::Tcp,
            counters: QpCounters::default(),
        }
    }
}

/// TCP's view of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Octets that one segment carries (RFC 5044 section 3: EMSS).
    pub mss: u32,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Its variation.
    pub rtt_variation: Duration,
    /// Segments that may be in flight.
    pub congestion_window: u32,
    /// Segments retransmitted so far.
    pub retransmitted: u32,
    /// Time so far with something sent and not acknowledged, or waiting to be sent.
    pub busy: Duration,
    /// Of it: limited by the peer's window.
    pub rwnd_limited: Duration,
    /// Of it: limited by this end's send buffer.
    pub sndbuf_limited: Duration,
    /// The shortest round trip of late, which has no queue in it; zero: the kernel does not report it.
    pub min_rtt: Duration,
    /// Octets per second that arrived at the peer of late.
    pub delivery_rate: u64,
    /// Octets in the socket that are not sent yet.
    pub unsent: u32,
}

/// Counters of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct QpCounters {
    pub fpdus_sent: u64,
    pub fpdus_received: u64,
    pub octets_sent: u64,
    pub octets_received: u64,
    pub send_calls: u64,
    pub recv_calls: u64,
    /// Times the socket was full.
    pub send_stalls: u64,
    /// Times the SQ waited for ORD.
    pub ord_stalls: u64,
}

/// Connection request or parameters of a native CM.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct NativeParams {
    pub private_data: Vec<u8>,
    pub ird: u16,
    pub ord: u16,
}

/// Event of a native CM.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum NativeEvent {
    /// `local`: the address of this very connection that the peer connected to; `None`: the provider
    /// does not report it.
    Request {
        listener: u64,
        request: u64,
        peer: SocketAddr,
        local: Option<SocketAddr>,
        params: NativeParams,
    },
    /// `local`: the address of this end; `None`: the provider does not report it.
    Established {
        qp: QpId,
        local: Option<SocketAddr>,
        params: NativeParams,
    },
    Rejected {
        qp: QpId,
        private_data: Vec<u8>,
    },
    Failed {
        qp: QpId,
        reason: String,
    },
    Disconnected {
        qp: QpId,
    },
}
