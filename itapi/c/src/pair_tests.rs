//! Two endpoints of one process, through the entry points: connections, memory, work requests.

mod causes;
mod connections;
mod logs;
mod memory;
mod misuse;
mod model;
mod once;
mod rings;
mod traffic;

use std::ptr::{null, null_mut};

use super::any_ep::*;
use super::connect::*;
use super::dequeue::*;
use super::dto::*;
use super::ep::*;
use super::evd::*;
use super::ia::{it_ia_create, it_ia_free};
use super::listen::*;
use super::lmr::*;
use super::object;
use super::ptr::Plain;
use super::pz::{it_pz_create, it_pz_free};
use super::region::*;
use super::status::*;
use super::types::*;
use std_abi::it_event_t;

/// Long enough for anything, in microseconds; a test that needs it fails.
const HANG: u64 = 30_000_000;
/// An event that wakes waiters.
const NOTIFY: it_dto_flags_t = IT_COMPLETION_FLAG | IT_NOTIFY_FLAG;

/// An entry point with pointers.
macro_rules! c {
    ($call:expr) => {{
        #[allow(unused_unsafe)]
        // SAFETY: the tests pass NULL, or pointers to live locals of the right type.
        unsafe {
            $call
        }
    }};
}
use c;

/// An entry point that creates an object; its last argument receives the handle.
macro_rules! make {
    ($function:ident($($arg:expr),* $(,)?)) => {{
        let mut made = null_mut();
        let status = c!($function($($arg,)* &raw mut made));
        assert_eq!(status, IT_SUCCESS, "{}: {}", stringify!($function), last());
        made
    }};
}
use make;

/// The explanation of the last failure.
fn last() -> String {
    super::boundary::with_last(str::to_owned).unwrap_or_default()
}

/// An adapter with what every endpoint needs.
struct Side {
    ia: it_ia_handle_t,
    pz: it_pz_handle_t,
    dto: it_evd_handle_t,
    conn: it_evd_handle_t,
    requests: it_evd_handle_t,
}

fn dispatcher(ia: it_ia_handle_t, stream: it_event_type_t, depth: usize) -> it_evd_handle_t {
    let mut evd = null_mut();
    let made = c!(it_evd_create(ia, stream, 0, depth, 1, null_mut(), &raw mut evd, null_mut()));
    assert_eq!(made, IT_SUCCESS, "{}", last());
    evd
}

impl Side {
    fn new() -> Self {
        let ia = make!(it_ia_create(c"vp_softrdma".as_ptr(), 2, 0));
        Self {
            ia,
            pz: make!(it_pz_create(ia)),
            dto: dispatcher(ia, IT_DTO_EVENT_STREAM, 4096),
            conn: dispatcher(ia, IT_CM_MSG_EVENT_STREAM, 64),
            requests: dispatcher(ia, IT_CM_REQ_EVENT_STREAM, 64),
        }
    }

    fn ep_with(&self, attributes: &it_ep_attributes_t, flags: u32) -> it_ep_handle_t {
        let (pz, dto, conn) = (self.pz, self.dto, self.conn);
        make!(it_ep_rc_create(pz, dto, dto, conn, flags, attributes))
    }

    fn ep(&self) -> it_ep_handle_t {
        self.ep_with(&attributes(), 0)
    }

    /// A listener on a free port, and the port in network order.
    fn listen(&self) -> (it_listen_handle_t, u16) {
        let mut qualifier = it_conn_qual_t::zeroed();
        let listen = make!(it_listen_create(self.ia, 0, self.requests, 0, &raw mut qualifier));
        assert_eq!(qualifier.r#type, IT_IANA_PORT);
        // SAFETY: plain data.
        (listen, unsafe { qualifier.conn_qual.port })
    }

    fn connect(&self, ep: it_ep_handle_t, port: u16) {
        let (path, qualifier) = (path(), qualifier(port));
        let flags = IT_CONNECT_FLAG_TWO_WAY;
        let asked =
            c!(it_ep_connect(ep, &path, null(), &qualifier, flags, c"hello".as_ptr().cast(), 5));
        assert_eq!(asked, IT_SUCCESS, "{}", last());
    }

    /// The next connection request.
    fn request(&self) -> it_cn_est_identifier_t {
        let event = wait(self.requests);
        // SAFETY: plain data.
        let request = unsafe { event.conn_req };
        assert_eq!(request.event_number, IT_CM_REQ_CONN_REQUEST_EVENT);
        assert_eq!(&request.private_data[..5], b"hello");
        request.cn_est_id
    }

    /// The next connection event: which endpoint, which event.
    fn next_event(&self) -> (it_ep_handle_t, it_event_type_t) {
        // SAFETY: plain data.
        let conn = unsafe { wait(self.conn).conn };
        (conn.ep, conn.event_number)
    }

    /// Connects `active` to `passive`.
    fn join(&self, active: it_ep_handle_t, passive: it_ep_handle_t) {
        let (listen, port) = self.listen();
        self.connect(active, port);
        let request = self.request();
        assert_eq!(c!(it_ep_accept(passive, request, null(), 0)), IT_SUCCESS, "{}", last());
        for _ in 0..2 {
            assert_eq!(self.next_event().1, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
        }
        assert_eq!(it_listen_free(listen), IT_SUCCESS);
    }

    /// Two connected endpoints.
    fn pair(&self, attributes: &it_ep_attributes_t) -> [it_ep_handle_t; 2] {
        let both = [self.ep_with(attributes, 0), self.ep_with(attributes, 0)];
        self.join(both[0], both[1]);
        both
    }

    /// The next completion.
    fn done(&self) -> Dto {
        Dto::of(&wait(self.dto))
    }

    /// The next completion, of a request that succeeds.
    fn good(&self) -> Dto {
        let dto = self.done();
        assert_eq!(dto.status, IT_DTO_SUCCESS);
        dto
    }

    /// The completion that is there, if there is one.
    fn poll(&self) -> Option<Dto> {
        let mut event = it_event_t::zeroed();
        match c!(it_evd_dequeue(self.dto, &raw mut event)) {
            IT_SUCCESS => Some(Dto::of(&event)),
            status => {
                assert_eq!(status, IT_ERR_QUEUE_EMPTY);
                None
            }
        }
    }

    fn memory(&self, len: usize, privs: it_mem_priv_t) -> Memory {
        Memory::new(self.pz, len, IT_ADDR_MODE_ABSOLUTE, privs)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        it_ia_free(self.ia);
    }
}

fn wait(evd: it_evd_handle_t) -> it_event_t {
    let mut event = it_event_t::zeroed();
    let waited = c!(it_evd_wait(evd, HANG, &raw mut event, null_mut()));
    assert_eq!(waited, IT_SUCCESS, "{}", last());
    event
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Dto {
    event: it_event_type_t,
    ep: it_ep_handle_t,
    cookie: u64,
    status: it_dto_status_t,
    length: u32,
    unlinked: it_handle_t,
}

impl Dto {
    fn of(event: &it_event_t) -> Self {
        // SAFETY: plain data.
        let dto = unsafe { event.dto_cmpl };
        Self {
            event: dto.event_number,
            ep: dto.ep,
            cookie: dto.cookie,
            status: dto.dto_status,
            length: dto.transferred_length,
            unlinked: dto.unlinked_mr_handle,
        }
    }
}

/// Registered memory of a test; read and written through its address only.
struct Memory {
    lmr: it_lmr_handle_t,
    context: it_rmr_context_t,
    first: *mut u8,
    len: usize,
    relative: bool,
}

impl Memory {
    fn new(pz: it_pz_handle_t, len: usize, mode: it_addr_mode_t, privs: it_mem_priv_t) -> Self {
        let first = Box::into_raw(vec![0u8; len].into_boxed_slice()).cast::<u8>();
        let (mut lmr, mut context) = (null_mut(), 0);
        let (flags, out) = (IT_LMR_FLAG_NONE, &raw mut lmr);
        let length = len as u64;
        let made =
            c!(it_lmr_create20(pz, first, length, mode, privs, flags, 0, out, &raw mut context));
        assert_eq!(made, IT_SUCCESS, "{}", last());
        Self { lmr, context, first, len, relative: mode == IT_ADDR_MODE_RELATIVE }
    }

    fn to(&self, offset: usize) -> u64 {
        if self.relative { offset as u64 } else { (self.first.addr() + offset) as u64 }
    }

    fn part(&self, offset: usize, length: usize) -> it_lmr_triplet_t {
        let addr = it_lmr_addr_u { rel: self.to(offset) };
        it_lmr_triplet_t { lmr: self.lmr, addr, length: length as u64 }
    }

    fn whole(&self) -> it_lmr_triplet_t {
        self.part(0, self.len)
    }

    fn fill(&self, octet: u8) {
        c!(self.first.write_bytes(octet, self.len));
    }

    fn octet(&self, offset: usize) -> u8 {
        assert!(offset < self.len);
        c!(self.first.add(offset).read_volatile())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Freed already in some tests. After this nothing uses the memory any more.
        it_lmr_free(self.lmr);
        let octets = std::ptr::slice_from_raw_parts_mut(self.first, self.len);
        drop(c!(Box::from_raw(octets)));
    }
}

fn attributes() -> it_ep_attributes_t {
    let rc = it_rc_only_attributes_t {
        rdma_read_enable: IT_TRUE,
        rdma_write_enable: IT_TRUE,
        max_rdma_read_segments: 4,
        max_rdma_write_segments: 4,
        rdma_read_ird: 8,
        rdma_read_ord: 8,
        atomics_enable: IT_TRUE,
        ..it_rc_only_attributes_t::zeroed()
    };
    it_ep_attributes_t {
        max_dto_payload_size: 1 << 20,
        max_request_dtos: 16,
        max_recv_dtos: 16,
        max_send_segments: 2,
        max_recv_segments: 2,
        srv: it_service_attributes_t { rc },
        priv_ops_enable: IT_TRUE,
    }
}

/// To this machine, the rest uninitialised as applications leave it.
fn path() -> it_path_t {
    let mut path =
        it_path_t { spigot_id: 0xCDCD_CDCD, timeout: u64::MAX / 3, ..it_path_t::zeroed() };
    let mut ends = it_iwarp_net_endpoint_t { ip_vers: IT_IP_VERS_IPV4, ..Plain::zeroed() };
    ends.raddr.ipv4.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    // INADDR_LOOPBACK without htonl.
    ends.laddr.ipv4.s_addr = 0x7f00_0001;
    path.u.iwarp = ends;
    path
}

/// `port` in network order.
fn qualifier(port: u16) -> it_conn_qual_t {
    let mut qualifier = it_conn_qual_t { r#type: IT_IANA_LR_PORT, ..it_conn_qual_t::zeroed() };
    qualifier.conn_qual.lr_port = it_iana_lr_port_t { local: 0, remote: port };
    qualifier
}

fn send(ep: it_ep_handle_t, segments: &[it_lmr_triplet_t], cookie: u64, flags: u32) -> Status {
    c!(it_post_send(ep, segments.as_ptr(), segments.len(), cookie, flags))
}

fn receive(handle: it_handle_t, segments: &[it_lmr_triplet_t], cookie: u64) -> Status {
    c!(it_post_recv(handle, segments.as_ptr(), segments.len(), cookie, NOTIFY))
}
