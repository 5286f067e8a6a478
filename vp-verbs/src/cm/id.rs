//! Ids and events of librdmacm: safe wrappers of its C calls.
//!
//! An id belongs to one entry of the connection manager's table. An event is copied and acknowledged at once,
//! because destroying its id waits for the acknowledgement.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::addr;
use crate::device::Context;
use crate::events::set_nonblocking;
use crate::owned::{Owned, done};
use ibv_sys::*;

/// An event channel of librdmacm, nonblocking.
pub(crate) struct EventChannel {
    raw: NonNull<rdma_event_channel>,
    context: Arc<Context>,
}

// SAFETY: librdmacm is thread safe: a channel belongs to no thread.
unsafe impl Send for EventChannel {}
// SAFETY: as for `Send`.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: no preconditions.
        let raw = unsafe { (context.api.cm.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { raw, context: context.clone() };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: alive until the drop.
        let fd = unsafe { self.raw.as_ref().fd };
        // SAFETY: the channel keeps it open.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// A copy of the next event; `None` if there is none.
    pub(crate) fn next(&self) -> Option<Seen> {
        let cm = &self.context.api.cm;
        let mut raw: *mut rdma_cm_event = std::ptr::null_mut();
        // SAFETY: the channel is alive, the result may be written.
        done(unsafe { (cm.rdma_get_cm_event)(self.raw.as_ptr(), &mut raw) }).ok()?;
        // SAFETY: the event and its ids belong to the library until it is acknowledged below.
        let seen = Seen::of(unsafe { &*raw });
        // SAFETY: received and not yet acknowledged; not used afterwards.
        unsafe { (cm.rdma_ack_cm_event)(raw) };
        Some(seen)
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: its ids are gone: the table is dropped before it.
        unsafe { (self.context.api.cm.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// A copy of an event.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) kind: c_uint,
    pub(crate) status: c_int,
    /// The token of the id; for a request, the token of the listener.
    pub(crate) token: u64,
    /// The new id of a request.
    pub(crate) born: *mut rdma_cm_id,
    pub(crate) private_data: Vec<u8>,
    /// Inbound reads that this end serves.
    pub(crate) ird: u8,
    /// Outbound reads that this end issues.
    pub(crate) ord: u8,
    /// Of a reply of a datagram service.
    pub(crate) ud: Option<rdma_ud_param>,
}

impl Seen {
    fn of(event: &rdma_cm_event) -> Self {
        let is_request = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
        let named = if is_request { event.listen_id } else { event.id };
        // SAFETY: ids of an event live until it is acknowledged.
        let context = NonNull::new(named).map(|id| unsafe { (*id.as_ptr()).context });
        // SAFETY: as above.
        let space = NonNull::new(named).map(|id| unsafe { (*id.as_ptr()).ps });
        // SAFETY: numbers and a pointer that both members begin with; the library clears an event
        // before it fills in either.
        let conn = unsafe { event.param.conn };
        // SAFETY: as above.
        let ud = unsafe { event.param.ud };
        let is_ud = space == Some(RDMA_PS_UDP);
        let (data, len) = match is_ud {
            true => (ud.private_data, ud.private_data_len),
            false => (conn.private_data, conn.private_data_len),
        };
        Self {
            kind: event.event,
            status: event.status,
            token: context.map_or(0, |context| context.addr() as u64),
            born: if is_request { event.id } else { std::ptr::null_mut() },
            private_data: octets(data, len),
            ird: conn.responder_resources,
            ord: conn.initiator_depth,
            ud: is_ud.then_some(ud),
        }
    }
}

fn octets(at: *const c_void, len: u8) -> Vec<u8> {
    if at.is_null() {
        return Vec::new();
    }
    // SAFETY: the library's copy has this many octets, and stays until the acknowledgement.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), usize::from(len)) }.to_vec()
}

/// The connection parameters of both ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) ird: u8,
    pub(crate) ord: u8,
    pub(crate) qp_num: u32,
    pub(crate) srq: bool,
}

/// An id of librdmacm.
pub(crate) struct CmId {
    raw: Owned<rdma_cm_id>,
    context: Arc<Context>,
}

impl CmId {
    pub(crate) fn new(
        context: &Arc<Context>,
        channel: &EventChannel,
        token: u64,
        space: c_uint,
    ) -> io::Result<Self> {
        let cm = &context.api.cm;
        let mut raw: *mut rdma_cm_id = std::ptr::null_mut();
        let mark = mark(token);
        // SAFETY: the channel is alive, the result may be written; the mark is only compared.
        done(unsafe { (cm.rdma_create_id)(channel.raw.as_ptr(), &mut raw, mark, space) })?;
        Self::adopt(context, raw)
    }

    /// Takes ownership of the id of a request.
    pub(crate) fn born(
        context: &Arc<Context>,
        raw: *mut rdma_cm_id,
        token: u64,
    ) -> io::Result<Self> {
        let id = Self::adopt(context, raw)?;
        // SAFETY: alive, and owned by this value; the field is the consumer's.
        unsafe { (*raw).context = mark(token) };
        Ok(id)
    }

    fn adopt(context: &Arc<Context>, raw: *mut rdma_cm_id) -> io::Result<Self> {
        // SAFETY: just created; destroyed by its counterpart.
        let raw = unsafe { Owned::new(raw, context.api.cm.rdma_destroy_id, context)? };
        Ok(Self { raw, context: context.clone() })
    }

    fn view(&self) -> &rdma_cm_id {
        // SAFETY: alive; the library changes it only in calls for this id.
        unsafe { &*self.raw.as_ptr() }
    }

    /// Whether the id is bound to this device.
    pub(crate) fn is_here(&self) -> bool {
        self.context.is(self.view().verbs)
    }

    /// Whether the id is bound to any device.
    pub(crate) fn is_somewhere(&self) -> bool {
        !self.view().verbs.is_null()
    }

    pub(crate) fn port(&self) -> u8 {
        self.view().port_num.max(1)
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        addr::from_c(&self.view().route.addr.src_storage)
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        addr::from_c(&self.view().route.addr.dst_storage)
    }

    pub(crate) fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let mut to = addr::to_c(address);
        let to = (&raw mut to).cast();
        // SAFETY: id and address are alive.
        done(unsafe { (self.context.api.cm.rdma_bind_addr)(self.raw.as_ptr(), to) })
    }

    /// The local port to which the id is bound.
    pub(crate) fn source_port(&self) -> u16 {
        // SAFETY: alive.
        u16::from_be(unsafe { (self.context.api.cm.rdma_get_src_port)(self.raw.as_ptr()) })
    }

    pub(crate) fn listen(&self, backlog: u32) -> io::Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: alive.
        done(unsafe { (self.context.api.cm.rdma_listen)(self.raw.as_ptr(), backlog) })
    }

    pub(crate) fn resolve_address(&self, peer: SocketAddr, patience_ms: c_int) -> io::Result<()> {
        let mut to = addr::to_c(peer);
        let (from, to) = (std::ptr::null_mut(), (&raw mut to).cast());
        let resolve = self.context.api.cm.rdma_resolve_addr;
        // SAFETY: id and address are alive; no source address is allowed.
        done(unsafe { resolve(self.raw.as_ptr(), from, to, patience_ms) })
    }

    pub(crate) fn resolve_route(&self, patience_ms: c_int) -> io::Result<()> {
        // SAFETY: alive.
        done(unsafe { (self.context.api.cm.rdma_resolve_route)(self.raw.as_ptr(), patience_ms) })
    }

    pub(crate) fn connect(&self, terms: Terms, private_data: &[u8]) -> io::Result<()> {
        let mut param = param(terms, private_data);
        // SAFETY: id, parameters and private data are alive.
        done(unsafe { (self.context.api.cm.rdma_connect)(self.raw.as_ptr(), &mut param) })
    }

    pub(crate) fn accept(&self, terms: Terms, private_data: &[u8]) -> io::Result<()> {
        let mut param = param(terms, private_data);
        // SAFETY: as for `connect`.
        done(unsafe { (self.context.api.cm.rdma_accept)(self.raw.as_ptr(), &mut param) })
    }

    /// Sends a request to a datagram service; private data is its only parameter.
    pub(crate) fn request(&self, private_data: &[u8]) -> io::Result<()> {
        self.connect(Terms::default(), private_data)
    }

    /// Replies, as a datagram service, with the number of a queue pair.
    pub(crate) fn reply(&self, qp_num: u32, private_data: &[u8]) -> io::Result<()> {
        self.accept(Terms { qp_num, ..Terms::default() }, private_data)
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let (at, len) = (private_data.as_ptr().cast(), private_data.len() as u8);
        // SAFETY: id and private data are alive.
        done(unsafe { (self.context.api.cm.rdma_reject)(self.raw.as_ptr(), at, len) })
    }

    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: alive.
        done(unsafe { (self.context.api.cm.rdma_establish)(self.raw.as_ptr()) })
    }

    /// Tells librdmacm that a message arrived before the peer's last message of the handshake.
    pub(crate) fn notify_comm_est(&self) -> io::Result<()> {
        // SAFETY: alive.
        done(unsafe { (self.context.api.cm.rdma_notify)(self.raw.as_ptr(), IBV_EVENT_COMM_EST) })
    }

    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: alive.
        done(unsafe { (self.context.api.cm.rdma_disconnect)(self.raw.as_ptr()) })
    }

    /// Attributes that bring a queue pair to `state`.
    pub(crate) fn attributes(&self, state: c_uint) -> io::Result<(ibv_qp_attr, c_int)> {
        let mut attr = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
        let mut mask = 0;
        let init = self.context.api.cm.rdma_init_qp_attr;
        // SAFETY: id and results are alive.
        done(unsafe { init(self.raw.as_ptr(), &mut attr, &mut mask) })?;
        // For RoCE the kernel returns mask bits that its modify call refuses.
        Ok((attr, mask & !0x00e0_0000))
    }
}

fn mark(token: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(token as usize)
}

fn param(terms: Terms, private_data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: private_data.len() as u8,
        responder_resources: terms.ird,
        initiator_depth: terms.ord,
        flow_control: 1,
        // The maxima: 7 retries, and unlimited ones if no receive is posted, as TCP would wait.
        retry_count: 7,
        rnr_retry_count: 7,
        srq: u8::from(terms.srq),
        qp_num: terms.qp_num,
    }
}
