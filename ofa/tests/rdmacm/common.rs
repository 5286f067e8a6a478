//! Test fixtures for librdmacm's functions: short forms of the calls, and two ends in one process.
//!
//! Each end has a channel of its own. Everything is awaited; nothing here sleeps.

use std::ffi::{c_int, c_void};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::ptr::{null, null_mut};

use ibv_sys::*;
pub(crate) use ofa::rdmacm::calls::address::*;
pub(crate) use ofa::rdmacm::calls::channel::*;
pub(crate) use ofa::rdmacm::calls::connect::*;
pub(crate) use ofa::rdmacm::calls::id::*;
pub(crate) use ofa::rdmacm::calls::queue_pair::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use warpline_patience::HANG;

/// Calls a function of the library.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the test passes what it made with the library and has not destroyed.
        unsafe { $function($($argument),*) }
    }};
}

/// The same, which must succeed.
macro_rules! done {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let result = call!($function($($argument),*));
        assert_eq!(result, 0, "{}: {}", stringify!($function), std::io::Error::last_os_error());
    }};
}

/// The same, which must fail with an error number.
macro_rules! refused {
    ($errno:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let result = call!($function($($argument),*));
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((result, errno), (-1, Some($errno)), "{}", stringify!($function));
    }};
}

pub(crate) use {call, done, refused};

pub(crate) fn channel() -> *mut rdma_event_channel {
    let channel = warpline_rdma_create_event_channel();
    assert!(!channel.is_null(), "{}", std::io::Error::last_os_error());
    channel
}

/// An identifier for RDMA_PS_TCP.
pub(crate) fn id_on(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let mut id = null_mut();
    done!(warpline_rdma_create_id(channel, &raw mut id, null_mut(), RDMA_PS_TCP));
    id
}

/// Its structure.
pub(crate) fn shown(id: *mut rdma_cm_id) -> &'static mut rdma_cm_id {
    // SAFETY: the test's identifier; no two references live at once.
    unsafe { &mut *id }
}

/// A C address; never freed.
pub(crate) fn c_address(address: &str) -> *mut libc::sockaddr {
    match address.parse().unwrap() {
        SocketAddr::V4(address) => Box::into_raw(Box::new(libc::sockaddr_in {
            sin_family: libc::AF_INET as _,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
            sin_zero: [0; 8],
        }))
        .cast(),
        SocketAddr::V6(address) => Box::into_raw(Box::new(libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as _,
            sin6_port: address.port().to_be(),
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
            sin6_scope_id: address.scope_id(),
        }))
        .cast(),
    }
}

/// An IPv4 address of C's.
pub(crate) fn address_in(storage: &libc::sockaddr_storage) -> SocketAddrV4 {
    assert_eq!(i32::from(storage.ss_family), libc::AF_INET);
    // SAFETY: the family is AF_INET, and the structure fits.
    let address = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
    let ip = address.sin_addr.s_addr.to_ne_bytes().into();
    SocketAddrV4::new(ip, u16::from_be(address.sin_port))
}

/// Whether an event is queued, now.
pub(crate) fn has_event(channel: *mut rdma_event_channel) -> bool {
    is_ready(channel, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
}

fn is_ready(channel: *mut rdma_event_channel, timeout: Option<&Timespec>) -> bool {
    poll(&mut [PollFd::new(&descriptor(channel), PollFlags::IN)], timeout).unwrap() == 1
}

/// The descriptor that programs poll.
pub(crate) fn descriptor(channel: *mut rdma_event_channel) -> BorrowedFd<'static> {
    // SAFETY: the test's channel.
    let fd = unsafe { (*channel).fd };
    // SAFETY: it is open as long as the channel.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// The operations that the headers' inline functions call.
pub(crate) fn operations(context: *mut ibv_context) -> &'static ibv_context_ops {
    // SAFETY: an open context.
    unsafe { &(*context).ops }
}

/// The next event of a channel, not acknowledged.
pub(crate) fn fetch(channel: *mut rdma_event_channel) -> &'static mut rdma_cm_event {
    let hang = Timespec { tv_sec: HANG.as_secs() as i64, tv_nsec: 0 };
    assert!(is_ready(channel, Some(&hang)), "no event came");
    let mut event = null_mut();
    done!(warpline_rdma_get_cm_event(channel, &raw mut event));
    // SAFETY: given to the test, until it acknowledges it.
    unsafe { &mut *event }
}

/// The part of an event that tests check.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) data: Vec<u8>,
    pub(crate) id: *mut rdma_cm_id,
}

/// The next event of a channel, acknowledged.
pub(crate) fn next(channel: *mut rdma_event_channel) -> Seen {
    let event = fetch(channel);
    let seen = Seen { kind: event.event, status: event.status, data: data_of(event), id: event.id };
    done!(warpline_rdma_ack_cm_event(event));
    seen
}

pub(crate) fn conn_of(event: &rdma_cm_event) -> rdma_conn_param {
    // SAFETY: connections have this member.
    unsafe { event.param.conn }
}

pub(crate) fn data_of(event: &rdma_cm_event) -> Vec<u8> {
    let conn = conn_of(event);
    if conn.private_data.is_null() {
        return Vec::new();
    }
    let len = conn.private_data_len.into();
    // SAFETY: the event's own octets, while it is not acknowledged.
    unsafe { std::slice::from_raw_parts(conn.private_data.cast::<u8>(), len) }.to_vec()
}

/// Checks that the next event is this one, with status 0; returns its identifier.
pub(crate) fn expect(channel: *mut rdma_event_channel, kind: u32) -> *mut rdma_cm_id {
    let seen = next(channel);
    assert_eq!((seen.kind, seen.status), (kind, 0));
    seen.id
}

/// Connection parameters with private data.
pub(crate) fn params(data: &[u8]) -> rdma_conn_param {
    let private_data = if data.is_empty() { null() } else { data.as_ptr().cast::<c_void>() };
    rdma_conn_param {
        private_data,
        private_data_len: data.len() as u8,
        responder_resources: 4,
        initiator_depth: 2,
        flow_control: 0,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

/// Attributes of a small queue pair, with queues of the identifier's.
pub(crate) fn attr() -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        cap: ibv_qp_cap {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        qp_type: IBV_QPT_RC,
        sq_sig_all: 1,
    }
}

pub(crate) fn create_qp(id: *mut rdma_cm_id) {
    done!(warpline_rdma_create_qp(id, null_mut(), &mut attr()));
}

/// A listener on loopback, and its address.
pub(crate) fn listener(channel: *mut rdma_event_channel) -> (*mut rdma_cm_id, String) {
    let id = id_on(channel);
    done!(warpline_rdma_bind_addr(id, c_address("127.0.0.1:0")));
    let at = address_of(id);
    done!(warpline_rdma_listen(id, 0));
    (id, at)
}

/// The address to which an identifier is bound.
pub(crate) fn address_of(id: *mut rdma_cm_id) -> String {
    let local = address_in(&shown(id).route.addr.src_storage);
    assert_ne!(local.port(), 0);
    assert_eq!(call!(warpline_rdma_get_src_port(id)), local.port().to_be());
    local.to_string()
}

/// An identifier that can connect to this address, with a queue pair.
pub(crate) fn resolved(channel: *mut rdma_event_channel, to: &str) -> *mut rdma_cm_id {
    let id = id_on(channel);
    resolve(id, channel, to);
    create_qp(id);
    id
}

/// Resolves address and route of an identifier on this channel.
pub(crate) fn resolve(id: *mut rdma_cm_id, channel: *mut rdma_event_channel, to: &str) {
    done!(warpline_rdma_resolve_addr(id, null_mut(), c_address(to), 1000));
    assert_eq!(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED), id);
    done!(warpline_rdma_resolve_route(id, 1000));
    assert_eq!(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), id);
}

/// The identifier of the next request, with a queue pair.
pub(crate) fn requested(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    create_qp(id);
    id
}

/// Two ends that are connected.
pub(crate) struct Pair {
    pub(crate) near: *mut rdma_event_channel,
    pub(crate) far: *mut rdma_event_channel,
    pub(crate) listener: *mut rdma_cm_id,
    pub(crate) active: *mut rdma_cm_id,
    pub(crate) passive: *mut rdma_cm_id,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let (near, far) = (channel(), channel());
        let (listener, at) = listener(far);
        let active = resolved(near, &at);
        done!(warpline_rdma_connect(active, &mut params(&[])));
        let passive = requested(far);
        done!(warpline_rdma_accept(passive, &mut params(&[])));
        assert_eq!(expect(near, RDMA_CM_EVENT_ESTABLISHED), active);
        assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), passive);
        Self { near, far, listener, active, passive }
    }

    /// Destroys both ends, and checks that no further event comes.
    pub(crate) fn end(self) {
        for id in [self.active, self.passive, self.listener] {
            call!(warpline_rdma_destroy_qp(id));
            done!(warpline_rdma_destroy_id(id));
        }
        for channel in [self.near, self.far] {
            assert!(!has_event(channel));
            call!(warpline_rdma_destroy_event_channel(channel));
        }
    }
}
