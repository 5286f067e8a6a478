//! The traits that a provider implements. They are object safe: built-in providers implement them directly, shared
//! libraries through an adapter.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use state_page::{DeviceRef, SlotRef};

use crate::vendor::no_vendor_calls;
use crate::*;

/// A verbs provider.
pub trait Provider: Send + Sync {
    /// Stable name, e.g. `vp_softrdma`.
    fn name(&self) -> &str;
    /// Version or build id, for listings.
    fn version(&self) -> &str;
    /// Usable devices, or the reason why there are none.
    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable>;
    /// Opens a device by name (RDMAC Open RNIC). An RNIC closes when its last reference is dropped.
    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>>;
}

/// An open RNIC: the privileged verbs.
pub trait Rnic: Send + Sync {
    /// Limits and capabilities (Query RNIC).
    fn attrs(&self) -> &RnicAttrs;
    /// The ports as they are now.
    fn ports(&self) -> VpResult<Vec<PortInfo>>;
    /// Sets or clears the handler of asynchronous events. Events before the first call are lost.
    fn set_async_handler(&self, handler: Option<Arc<dyn AsyncHandler>>);

    /// Allocate PD.
    fn alloc_pd(&self) -> VpResult<PdId>;
    /// Deallocate PD; [`VpStatus::InUse`] while QPs, regions, windows or SRQs are in it.
    fn dealloc_pd(&self, pd: PdId) -> VpResult<()>;

    /// Create CQ.
    fn create_cq(&self, init: &CqInit) -> VpResult<Arc<dyn Cq>>;
    /// Destroy CQ; [`VpStatus::InUse`] while QPs use it.
    fn destroy_cq(&self, cq: CqId) -> VpResult<()>;

    /// Create S-RQ.
    fn create_srq(&self, init: &SrqInit) -> VpResult<Arc<dyn Srq>>;
    /// Destroy S-RQ; [`VpStatus::InUse`] while QPs use it. Unused receives are dropped.
    fn destroy_srq(&self, srq: SrqId) -> VpResult<()>;

    /// Create QP, in Idle.
    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn Qp>>;
    /// Destroy QP, in any state. Afterwards no completion of it is queued, and none of the consumer's memory is
    /// accessed. [`VpStatus::InUse`] while windows are bound to it.
    ///
    /// Its completions leave its CQs: a poll that begins afterwards finds none, and they use no room. Those of
    /// other QPs stay, in order. The receives that it took from an SRQ are freed once the completions before them
    /// were polled.
    ///
    /// Data of sends that completed with success still arrives at a peer that reads it, for as long as
    /// `close_timeout` allows; the caller does not wait for that. In RTS without outstanding work the stream is
    /// then closed. If work requests or the peer's reads are lost, it is reset instead. Only [`QpChange::Error`]
    /// discards data of completed sends.
    fn destroy_qp(&self, qp: QpId) -> VpResult<()>;

    /// Register Non-Shared MR: O(1) in the size, unless pinned.
    fn register_mr(&self, init: &MrInit) -> VpResult<Stag>;
    /// Reregister: replaces range, rights, PD and key. While windows are bound, it is refused and the region is
    /// unchanged; any other error destroys the region (RDMAC 9.2.6). The index may change.
    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag>;
    /// Register Shared MR: a second STag for the same memory; the original becomes shared permanently.
    fn register_shared_mr(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag>;
    /// Allocate Non-Shared MR STag in the Invalid state, for fast registration.
    fn alloc_stag(&self, pd: PdId, remote: bool) -> VpResult<Stag>;
    /// Query MR, by index; the key is ignored.
    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo>;
    /// Deallocates the STag of a region. When it returns, the provider accesses no octet of the region any more and
    /// holds no clone of its [`MemRange`]. Takes bounded time. [`VpStatus::StagInUse`] while windows are bound to
    /// it. [`VpStatus::InvalidStag`] if the key is not the one that a verb gave, where the provider checks it; fast
    /// registration changes the key.
    fn dealloc_stag(&self, stag: Stag) -> VpResult<()>;

    /// Allocate MW.
    fn alloc_mw(&self, pd: PdId, kind: MwKind) -> VpResult<MwId>;
    /// Query MW.
    fn query_mw(&self, mw: MwId) -> VpResult<MwInfo>;
    /// Deallocate MW, bound or not.
    fn dealloc_mw(&self, mw: MwId) -> VpResult<()>;

    /// The provider's own connection manager, with [`ConnectionModel::Native`].
    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        None
    }

    /// The messages of the provider's own connection manager. `None` if it does not show them.
    fn cm_messages(&self) -> Option<Arc<dyn CmMessages>> {
        None
    }

    /// Bringing up queue pairs by path, without a connection manager. `None` if the provider does not support it.
    fn paths(&self) -> Option<Arc<dyn Paths>> {
        None
    }

    /// Unreliable datagrams, with [`Capabilities::UD`].
    fn datagrams(&self) -> Option<Arc<dyn Datagrams>> {
        None
    }

    /// The table of functions with this name, e.g. `acme.telemetry/1`. [`VpStatus::Unsupported`] if there is none,
    /// with a list of the names that exist.
    fn vendor_calls(&self, _name: &str) -> VpResult<VendorCalls> {
        Err(no_vendor_calls())
    }

    /// Serves the device's connections in the calling thread until `until` is readable, for at most `timeout`
    /// (`None`: no limit); returns whether it is readable. For a thread that would otherwise sleep on the
    /// descriptor until a handler of one or more CQs makes it readable. If the provider's own thread would have to
    /// serve the connections, this saves a switch between threads. `until` is not kept. [`VpStatus::Interrupted`]
    /// if a signal handler ran in the thread. [`VpStatus::Unsupported`], at once, if there is nothing to serve:
    /// then the caller sleeps on the descriptor itself.
    fn lead(&self, _until: BorrowedFd<'_>, _timeout: Option<Duration>) -> Result<bool, VpStatus> {
        Err(VpStatus::Unsupported)
    }

    /// From now on counts sleeps and similar events in this record of the process's state page. A provider that
    /// does not support it leaves these counters at 0.
    fn publish(&self, _record: DeviceRef) {}

    /// Begins to copy the FPDUs of all streams of this process to the memory that waits in this socket
    /// ([`crate::capture`]), with at most `payload` octets of each payload; returns the number of the capture. It ends
    /// by [`Rnic::end_capture`], or after the other end of the socket was closed. [`VpStatus::InUse`] if there is a capture already;
    /// [`VpStatus::Unsupported`] if the provider does not support captures.
    fn capture(&self, _to: BorrowedFd<'_>, _payload: u32) -> VpResult<u32> {
        Err(VpError::new(VpStatus::Unsupported, "this provider does not copy FPDUs"))
    }

    /// Ends a capture; returns how many FPDUs were dropped because they were not read in time.
    fn end_capture(&self, _number: u32) -> VpResult<u64> {
        Err(VpError::new(VpStatus::Unsupported, "this provider does not copy FPDUs"))
    }
}

/// A completion queue.
pub trait Cq: Send + Sync {
    /// Its id.
    fn id(&self) -> CqId;
    /// The number of entries it can hold.
    fn depth(&self) -> u32;
    /// The approximate number of completions that wait to be polled; other threads push and poll meanwhile. Makes
    /// no progress.
    fn queued(&self) -> usize;
    /// Moves up to `out.len()` completions to `out`, oldest first; returns how many. If there is none, makes
    /// progress on the QPs of this CQ. [`VpStatus::CqOverrun`] after an overrun, once the ring is drained.
    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus>;
    /// As [`Cq::poll`], but also stores the source of each received datagram in `from`, at the index of its
    /// completion. Moves no more completions than fit into the shorter of the two.
    fn poll_from(
        &self,
        out: &mut [WorkCompletion],
        from: &mut [Option<DatagramSource>],
    ) -> Result<usize, VpStatus> {
        let most = out.len().min(from.len());
        from.fill(None);
        self.poll(&mut out[..most])
    }
    /// Request Completion Notification: one shot, for the next completion or the next solicited one (which includes
    /// errors). Completions that are already there do not trigger it: poll, arm, poll.
    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus>;
    /// Waits until `poll` may find a completion, and makes progress in the calling thread. First spins for `spin`
    /// without sleeping, then sleeps, until `timeout` (`None`: no limit) has passed in all. Returns true if there
    /// may be a completion, false after the time-out or if [`Cq::interrupt`] was called. [`VpStatus::Interrupted`]
    /// if a signal handler ran in the thread while it slept and there is nothing to poll.
    fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus>;
    /// Makes every `wait` in progress return false soon.
    fn interrupt(&self);
    /// Modify CQ: changes the depth and keeps all completions.
    fn resize(&self, depth: u32) -> VpResult<u32>;
}

/// A shared receive queue.
pub trait Srq: Send + Sync {
    /// Its id.
    fn id(&self) -> SrqId;
    /// Posts receives. A receive occupies its slot until its completion was polled, from whichever CQ. A queue
    /// accepts as many receives as its depth and refuses more ([`VpStatus::TooManyWrs`]).
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure>;
    /// Changes depth and/or (re-)arms the limit event.
    fn modify(&self, depth: Option<u32>, limit: Option<u32>) -> VpResult<SrqInfo>;
    /// Query S-RQ.
    fn query(&self) -> VpResult<SrqInfo>;
}

/// A queue pair.
pub trait Qp: Send + Sync {
    /// Its id.
    fn id(&self) -> QpId;
    /// PostSQ. In Closing, Terminate and Error the requests complete as flushed.
    ///
    /// In every state a queue accepts as many requests as its depth and refuses more ([`VpStatus::TooManyWrs`]). A
    /// request occupies its slot until its completion was polled, flushed or not. An unsignalled request that
    /// succeeded occupies it until a later completion of its queue was polled, or until the QP is in Idle again. So
    /// a CQ as deep as the sum of its queues never overruns.
    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure>;
    /// As [`Qp::post_send`], but if a request is refused, none is posted ([`PostFailure::posted`] is 0). A provider
    /// that does not support this posts the requests before the refused one.
    fn post_send_whole(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.post_send(wrs)
    }
    /// PostRQ; refused ([`VpStatus::InvalidWr`]) on a QP with an SRQ. Slots as with
    /// [`Qp::post_send`].
    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure>;
    /// Modify QP. A change happens completely or not at all. The state has changed when the call returns; the
    /// consequences (the peer's FIN, flushes) follow as events.
    fn modify(&self, change: QpChange) -> VpResult<()>;
    /// Query QP.
    fn query(&self) -> VpResult<QpInfo>;
    /// From now on writes the QP's counters and its state to this record of the process's state page, as plain
    /// relaxed stores, whenever a thread that served the QP leaves it. When the QP is destroyed, it releases the
    /// record. Called once, before the QP is used. A provider that does not support it is queried ([`Qp::query`])
    /// for each request of an observer.
    fn publish(&self, _record: SlotRef) {}
}

/// A provider's own connection manager (such as rdma_cm).
pub trait NativeCm: Send + Sync {
    /// Listens; returns the listener's id and the address with the actual port.
    fn listen(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)>;
    /// Listens in case a peer comes by this device, while the consumer serves the same address by another one: refused
    /// where that takes what others may need more.
    fn listen_aside(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)> {
        self.listen(address, backlog)
    }
    /// Stops listening.
    fn unlisten(&self, listener: u64) -> VpResult<()>;
    /// Connects a QP.
    fn connect(&self, qp: QpId, peer: SocketAddr, params: NativeParams) -> VpResult<()>;
    /// Accepts a request with a QP.
    fn accept(&self, request: u64, qp: QpId, params: NativeParams) -> VpResult<()>;
    /// Rejects a request.
    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()>;
    /// Disconnects.
    fn disconnect(&self, qp: QpId) -> VpResult<()>;
    /// The next event, if any.
    fn poll_event(&self) -> Option<NativeEvent>;
    /// Waits for an event; false after the time-out.
    fn wait_event(&self, timeout: Option<Duration>) -> VpResult<bool>;
}
