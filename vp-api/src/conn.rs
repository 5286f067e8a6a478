//! The two connection models: taking over a TCP stream (LLP stream), and a provider's own connection manager.

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

/// Kind of ready-to-receive message (RFC 6581).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Rtr {
    Send,
    Write,
    Read,
}

/// The largest FPDU that this end builds.
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
    /// Whether CRCs are used, in both directions.
    pub crc: bool,
    /// Whether this end inserts markers.
    pub markers_tx: bool,
    /// Whether the peer inserts markers.
    pub markers_rx: bool,
    /// Maximum outstanding inbound reads and atomics.
    pub ird: u16,
    /// Maximum outstanding outbound reads and atomics.
    pub ord: u16,
    /// The agreed RTR, if peer-to-peer.
    pub rtr: Option<Rtr>,
    /// Largest FPDU.
    pub fpdu: FpduSize,
    /// Whether to offer and accept RFC 7306 operations.
    pub extensions: bool,
    /// With [`crate::Capabilities::SEND_IMMEDIATE`]: both ends agreed on Sends with Immediate, which no RFC
    /// defines. A peer that did not agree ends the stream when it receives one.
    pub send_immediates: bool,
    /// For an initiator: if nothing has arrived this long after its first FPDU, it sends a zero-length RDMA Write
    /// to wake a peer that missed the FPDU (kernel siw), and repeats it after twice as long, a few times. `None`
    /// means never.
    pub kick_after: Option<Duration>,
    /// While work is posted: if nothing has arrived for this long, the provider probes the peer with a zero-length
    /// RDMA Read. It gives up after as long again, not counting time in which this process did not run. `None`:
    /// only TCP keep-alive decides. While only receives are posted, a provider may probe a peer that responds less
    /// and less often, down to a sixteenth of the rate.
    pub probe_after: Option<Duration>,
    /// Bound on the time of an orderly close and of the Terminate state.
    pub close_timeout: Duration,
}

impl StreamParams {
    /// CRC on, no markers, client-server, 16 reads in each direction, EMSS-sized FPDUs.
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

/// An established TCP stream, to be turned into an RDMA stream.
#[derive(Debug)]
pub struct LlpStream {
    /// A connected, nonblocking TCP socket; the provider owns it from here on.
    pub socket: OwnedFd,
    /// Octets that arrived after the start-up frame and belong to full operation.
    pub received: Vec<u8>,
    /// Octets to send in streaming mode before anything else (RDMAC "last streaming message").
    pub last_message: Vec<u8>,
    /// Parameters.
    pub params: StreamParams,
    /// With [`crate::Capabilities::LOCAL_STREAM`]: the shared memory that carries the octets in place of TCP, in
    /// both directions, from the first FPDU on. Then `received` is empty, and only `last_message` still uses TCP.
    /// The socket stays open and is watched: if it ends, the stream ends. A provider without the capability gets
    /// `None`.
    pub local: Option<LocalStream>,
}

/// Shared memory that carries the octets of a stream whose ends are on one host, and the descriptors by which each
/// end wakes the other. Both ends get the same [`StreamParams::crc`] and markers.
#[derive(Debug)]
pub struct LocalStream {
    /// The memory that `shm_ring::create` returned, verified by the end that did not create it.
    pub memory: OwnedFd,
    /// Which of the two sides this end is.
    pub side: LocalSide,
    /// The eventfd on which this end sleeps: the same as the peer's `peer_doorbell`. It is of semaphore kind, with a
    /// counter near its maximum. A wake-up takes 1 by a read with `RWF_NOWAIT`, which cannot block and triggers an edge of
    /// `EPOLLOUT` for the end that watches. A write could block, and so could any call that depends on flags of the file,
    /// which the peer shares.
    pub doorbell: OwnedFd,
    /// The eventfd on which the peer sleeps.
    pub peer_doorbell: OwnedFd,
}

/// The sides of a [`LocalStream`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalSide {
    /// The end that created the memory.
    Maker,
    /// The end that it was passed to.
    Other,
}

/// The carrier of a stream's octets: TCP or shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Carrier {
    /// TCP.
    #[default]
    Tcp,
    /// A [`LocalStream`].
    Local,
    /// A [`LocalStream`] whose peer broke the rules of the shared memory. This ended the stream: its event is
    /// [`AsyncEvent::ConnectionReset`], its cause `local-ring-corrupt`.
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
    /// RTS -> Closing: orderly. With outstanding work: Error, after [`AsyncEvent::BadClose`]; data of completed
    /// requests still arrives, followed by a reset.
    Closing,
    /// As [`QpChange::Closing`], but only when no work is outstanding or the stream's `close_timeout` has passed.
    /// Until then the state is RTS, and posts to the send queue are refused ([`crate::VpStatus::InvalidState`]). A
    /// provider that does not support it returns [`crate::VpStatus::Unsupported`].
    Drain,
    /// With [`crate::Capabilities::ALLOW`], in every state: from now on peers may use these rights through the QP,
    /// in place of those of [`crate::QpInit::allow`]. The right to bind does not change.
    Allow(Access),
    /// RTS -> Terminate: Terminate 0/0/0, then close.
    Terminate,
    /// Idle or RTS -> Error: resets at once and flushes. Closing and Terminate end by themselves, in bounded time
    /// (RDMAC 6.2.3, 6.2.5).
    Error,
    /// Error -> Idle, once everything is flushed and all events are delivered: no event of the earlier stream
    /// follows. Until then the call waits, or is refused ([`crate::VpStatus::StillFlushing`]).
    Idle,
    /// With [`crate::Capabilities::DISCARD`], in Idle: the QP's completions leave its CQs, as when it is destroyed
    /// ([`crate::Rnic::destroy_qp`]), and occupy no slots of its queues. Receives that are posted stay.
    Discard,
    /// Changes limits, as far as the present state allows; `None` leaves a limit unchanged.
    Limits {
        /// Maximum outstanding outbound reads (Idle: up to the value at creation; RTS: only down).
        ord: Option<u16>,
        /// Maximum outstanding inbound reads (Idle only).
        ird: Option<u16>,
        /// Send depth (Idle, empty queue only).
        send_depth: Option<u32>,
        /// Receive depth (Idle, empty queue only).
        recv_depth: Option<u32>,
        /// Arms the receive limit event (again), in any state in which limits can change; 0 disarms it.
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
    /// Armed receive limit; 0 if not armed.
    pub recv_limit: u32,
    pub ird: u16,
    pub ord: u16,
    /// Last Terminate sent or received.
    pub terminate: Option<Terminate>,
    /// How the last stream ended, as its asynchronous event reports. `None` if it continues, if this end ended it,
    /// or if the provider does not report it.
    pub ended: Option<AsyncEvent>,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    /// TCP's view of the stream, while there is one.
    pub tcp: Option<TcpInfo>,
    /// Round trips of a connection that is not over TCP, if the provider times them.
    pub round_trip: Option<RoundTrip>,
    /// What carries the octets of the stream, or carried those of the last stream.
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
            round_trip: None,
            carrier: Carrier::Tcp,
            counters: QpCounters::default(),
        }
    }
}

/// How long round trips take, with the time that the peer's stack takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundTrip {
    /// Smoothed.
    pub recent: Duration,
    /// The shortest of the connection, which includes least queueing.
    pub shortest: Duration,
}

/// TCP's view of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Octets that one segment carries (RFC 5044 section 3: EMSS).
    pub mss: u32,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Variation of the round-trip time.
    pub rtt_variation: Duration,
    /// Segments that may be in flight.
    pub congestion_window: u32,
    /// Segments retransmitted so far.
    pub retransmitted: u32,
    /// Total time in which data was unacknowledged or waited to be sent.
    pub busy: Duration,
    /// The part of it that was limited by the peer's window.
    pub rwnd_limited: Duration,
    /// The part of it that was limited by this end's send buffer.
    pub sndbuf_limited: Duration,
    /// The shortest recent round-trip time, which includes no queueing; zero if the kernel does not report it.
    pub min_rtt: Duration,
    /// Recent rate of delivery to the peer, in octets per second.
    pub delivery_rate: u64,
    /// Octets in the socket that have not been sent yet.
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
    /// How often the socket was full.
    pub send_stalls: u64,
    /// How often the SQ waited for ORD.
    pub ord_stalls: u64,
}

/// Connection request, or parameters, of a native CM.
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
    /// `local`: the local address of this connection, to which the peer connected; `None` if the provider does not
    /// report it.
    Request {
        listener: u64,
        request: u64,
        peer: SocketAddr,
        local: Option<SocketAddr>,
        params: NativeParams,
    },
    /// `local`: the address of this end; `None` if the provider does not report it.
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
