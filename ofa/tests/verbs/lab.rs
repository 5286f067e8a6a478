//! Test fixture: a small libibverbs application with a device, a domain, a queue, a region, and queue
//! pairs that connect by GID and number. Failures panic.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use ibv_sys::*;
use ofa::verbs::ah::*;
use ofa::verbs::channel::*;
use ofa::verbs::cq::*;
use ofa::verbs::device::*;
use ofa::verbs::mr::*;
use ofa::verbs::pd::*;
use ofa::verbs::qp::*;
use ofa::verbs::query::*;
use ofa::verbs::srq::*;

/// Octets of the region.
pub(crate) const ROOM: usize = 1 << 16;
pub(crate) const ALL: c_int = (IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND) as c_int;

pub(crate) struct Lab {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) mr: *mut ibv_mr,
    pub(crate) memory: *mut u8,
}

/// Opens the first device.
pub(crate) fn open() -> *mut ibv_context {
    let mut count = 0;
    unsafe {
        let list = warpline_ibv_get_device_list(&mut count);
        assert!(count >= 1 && !list.is_null());
        let context = warpline_ibv_open_device(*list);
        warpline_ibv_free_device_list(list);
        assert!(!context.is_null());
        context
    }
}

impl Lab {
    pub(crate) fn new() -> Self {
        let context = open();
        let memory = Box::leak(vec![0u8; ROOM].into_boxed_slice()).as_mut_ptr();
        unsafe {
            let pd = warpline_ibv_alloc_pd(context);
            let channel = warpline_ibv_create_comp_channel(context);
            let cq = warpline_ibv_create_cq(context, 256, null_mut(), channel, 0);
            let mr = warpline_ibv_reg_mr(pd, memory.cast(), ROOM, ALL);
            assert!(!pd.is_null() && !channel.is_null() && !cq.is_null() && !mr.is_null());
            Self { context, pd, channel, cq, mr, memory }
        }
    }

    pub(crate) fn ops(&self) -> &ibv_context_ops {
        unsafe { &(*self.context).ops }
    }

    pub(crate) fn init(&self) -> ibv_qp_init_attr {
        let cap = ibv_qp_cap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 64,
        };
        ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: null_mut(),
            cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        }
    }

    /// A queue pair in RESET.
    pub(crate) fn qp(&self) -> *mut ibv_qp {
        let qp = unsafe { warpline_ibv_create_qp(self.pd, &mut self.init()) };
        assert!(!qp.is_null());
        qp
    }

    pub(crate) fn is_roce(&self) -> bool {
        unsafe { (*(*self.context).device).transport_type == IBV_TRANSPORT_IB }
    }

    pub(crate) fn gid(&self) -> ibv_gid {
        // Of SoftRDMA the first is no address.
        let index = i32::from(!self.is_roce());
        let mut gid = ibv_gid::default();
        assert_eq!(unsafe { warpline_ibv_query_gid(self.context, 1, index, &mut gid) }, 0);
        gid
    }

    /// An element of the region.
    pub(crate) fn sge(&self, at: usize, length: u32) -> ibv_sge {
        let lkey = unsafe { (*self.mr).lkey };
        ibv_sge { addr: self.at(at), length, lkey }
    }

    /// An address in the region.
    pub(crate) fn at(&self, at: usize) -> u64 {
        self.memory.expose_provenance() as u64 + at as u64
    }

    pub(crate) fn rkey(&self) -> u32 {
        unsafe { (*self.mr).rkey }
    }

    pub(crate) fn fill(&self, at: usize, octets: &[u8]) {
        unsafe { std::ptr::copy(octets.as_ptr(), self.memory.add(at), octets.len()) }
    }

    pub(crate) fn read(&self, at: usize, octets: usize) -> Vec<u8> {
        (0..octets).map(|n| unsafe { self.memory.add(at + n).read_volatile() }).collect()
    }

    pub(crate) fn recv(&self, qp: *mut ibv_qp, wr_id: u64, sge: &mut ibv_sge) -> c_int {
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: sge, num_sge: 1 };
        let mut bad = null_mut();
        unsafe { self.ops().post_recv.unwrap()(qp, &mut wr, &mut bad) }
    }

    pub(crate) fn send(&self, qp: *mut ibv_qp, wr: &mut ibv_send_wr) -> c_int {
        let mut bad = null_mut();
        unsafe { self.ops().post_send.unwrap()(qp, wr, &mut bad) }
    }

    /// A shared receive queue of 16 requests with one element.
    pub(crate) fn srq(&self) -> *mut ibv_srq {
        let attr = ibv_srq_attr { max_wr: 16, max_sge: 1, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
        let srq = unsafe { warpline_ibv_create_srq(self.pd, &mut init) };
        assert!(!srq.is_null());
        srq
    }

    /// Posts a receive to a shared queue.
    pub(crate) fn recv_shared(&self, srq: *mut ibv_srq, wr_id: u64, sge: &mut ibv_sge) -> c_int {
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: sge, num_sge: 1 };
        unsafe { self.ops().post_srq_recv.unwrap()(srq, &mut wr, &mut null_mut()) }
    }

    /// What polling returns.
    pub(crate) fn poll_raw(&self) -> c_int {
        let mut wc = ibv_wc::default();
        unsafe { self.ops().poll_cq.unwrap()(self.cq, 1, &mut wc) }
    }

    /// A completion, if there is one.
    pub(crate) fn poll(&self) -> Option<ibv_wc> {
        let mut wc = ibv_wc::default();
        match unsafe { self.ops().poll_cq.unwrap()(self.cq, 1, &mut wc) } {
            0 => None,
            found => {
                assert_eq!(found, 1);
                Some(wc)
            }
        }
    }

    /// The next completion.
    pub(crate) fn completion(&self) -> ibv_wc {
        let mut found = None;
        warpline_patience::until("a completion", || {
            found = self.poll();
            found.is_some()
        });
        found.unwrap()
    }

    /// The next completion, which must be a success.
    pub(crate) fn success(&self, wr_id: u64) -> ibv_wc {
        let wc = self.completion();
        assert_eq!((wc.wr_id, wc.status), (wr_id, IBV_WC_SUCCESS));
        wc
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        unsafe {
            assert_eq!(warpline_ibv_dereg_mr(self.mr), 0);
            assert_eq!(warpline_ibv_destroy_cq(self.cq), 0);
            assert_eq!(warpline_ibv_destroy_comp_channel(self.channel), 0);
            assert_eq!(warpline_ibv_dealloc_pd(self.pd), 0);
            assert_eq!(warpline_ibv_close_device(self.context), 0);
            let memory = std::ptr::slice_from_raw_parts_mut(self.memory, ROOM);
            drop(Box::from_raw(memory));
        }
    }
}

/// The attribute masks of the transitions.
pub(crate) const INIT: c_int = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
pub(crate) const RTR: c_int = IBV_QP_STATE
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
pub(crate) const RTS: c_int = IBV_QP_STATE
    | IBV_QP_SQ_PSN
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_MAX_QP_RD_ATOMIC;

pub(crate) fn modify(qp: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: c_int) -> c_int {
    unsafe { warpline_ibv_modify_qp(qp, attr, mask) }
}

/// What ibv_query_qp returns.
pub(crate) fn query(qp: *mut ibv_qp) -> ibv_qp_attr {
    let (mut attr, mut init) = (ibv_qp_attr::default(), unsafe { std::mem::zeroed() });
    assert_eq!(unsafe { warpline_ibv_query_qp(qp, &mut attr, c_int::MAX, &mut init) }, 0);
    attr
}

pub(crate) fn to_init(qp: *mut ibv_qp) {
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        port_num: 1,
        qp_access_flags: ALL as u32,
        ..ibv_qp_attr::default()
    };
    assert_eq!(modify(qp, &mut attr, INIT), 0);
}

pub(crate) fn rtr(gid: ibv_gid, dest_qp_num: u32) -> ibv_qp_attr {
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTR,
        path_mtu: 3,
        dest_qp_num,
        max_dest_rd_atomic: 8,
        ..ibv_qp_attr::default()
    };
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid;
    attr
}

pub(crate) fn rts() -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: IBV_QPS_RTS,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic: 8,
        ..ibv_qp_attr::default()
    }
}

/// Brings a queue pair in INIT to RTS, with this peer.
pub(crate) fn meet(qp: *mut ibv_qp, gid: ibv_gid, dest_qp_num: u32) {
    assert_eq!(modify(qp, &mut rtr(gid, dest_qp_num), RTR), 0);
    assert_eq!(modify(qp, &mut rts(), RTS), 0);
}

/// Brings both queue pairs from RESET to RTS, and sends a message from `a` to `b`.
pub(crate) fn meet_and_send(near: &Lab, far: &Lab, (a, b): (*mut ibv_qp, *mut ibv_qp), id: u64) {
    to_init(a);
    to_init(b);
    assert_eq!(far.recv(b, id, &mut far.sge(0, 8)), 0);
    meet(a, far.gid(), number(b));
    meet(b, near.gid(), number(a));
    assert_eq!(near.send(a, &mut wr(id, IBV_WR_SEND, &mut near.sge(0, 8))), 0);
    near.success(id);
    far.success(id);
}

/// Brings a queue pair to RESET, from any state.
pub(crate) fn reset(qp: *mut ibv_qp) {
    let mut reset = ibv_qp_attr { qp_state: IBV_QPS_RESET, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut reset, IBV_QP_STATE), 0);
}

pub(crate) fn number(qp: *mut ibv_qp) -> u32 {
    unsafe { (*qp).qp_num }
}

pub(crate) fn state(qp: *mut ibv_qp) -> u32 {
    unsafe { (&raw const (*qp).state).read_volatile() }
}

/// Two connected queue pairs.
pub(crate) fn pair(near: &Lab, far: &Lab) -> (*mut ibv_qp, *mut ibv_qp) {
    let (a, b) = (near.qp(), far.qp());
    to_init(a);
    to_init(b);
    meet(a, far.gid(), number(b));
    meet(b, near.gid(), number(a));
    (a, b)
}

pub(crate) fn destroy(qp: *mut ibv_qp) {
    assert_eq!(unsafe { warpline_ibv_destroy_qp(qp) }, 0);
}

/// A request of this kind, signalled, with one element.
pub(crate) fn wr(wr_id: u64, opcode: u32, sge: &mut ibv_sge) -> ibv_send_wr {
    let rdma = wr_rdma { remote_addr: 0, rkey: 0 };
    let bind_info = ibv_mw_bind_info { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
    ibv_send_wr {
        wr_id,
        next: null_mut(),
        sg_list: sge,
        num_sge: 1,
        opcode,
        send_flags: IBV_SEND_SIGNALED,
        imm_or_rkey: 0,
        wr: wr_union { rdma },
        xrc_remote_srqn: 0,
        bind_mw: wr_bind_mw { mw: null_mut(), rkey: 0, bind_info },
    }
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// A pointer from an event, as a number that identifies the handle.
pub(crate) fn handle<T>(address: usize) -> *mut T {
    with_exposed_provenance_mut(address)
}

/// Registers new memory of its own, whole pages that can be unmapped. It is where the kernel maps nothing else unasked.
pub(crate) fn mapped(lab: &Lab, size: usize) -> (*mut c_void, *mut ibv_mr) {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let apart = with_exposed_provenance_mut(1 << 40);
    let at = unsafe { libc::mmap(apart, size, access, flags, -1, 0) };
    assert_eq!(at, apart);
    let mr = unsafe { warpline_ibv_reg_mr(lab.pd, at, size, ALL) };
    assert!(!mr.is_null());
    (at, mr)
}

/// The first GID of a device, of whichever kind.
pub(crate) fn first_gid(lab: &Lab) -> ibv_gid {
    let mut gid = ibv_gid::default();
    assert_eq!(unsafe { warpline_ibv_query_gid(lab.context, 1, 0, &mut gid) }, 0);
    gid
}

/// A queue pair for datagrams in RESET, and an address handle for this device.
pub(crate) fn datagrams(lab: &Lab) -> (*mut ibv_qp, *mut ibv_ah) {
    let mut init = ibv_qp_init_attr { qp_type: IBV_QPT_UD, ..lab.init() };
    let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
    assert!(!qp.is_null());
    (qp, address_handle(lab))
}

/// An address handle for this device.
pub(crate) fn address_handle(lab: &Lab) -> *mut ibv_ah {
    let mut address = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
    address.grh.dgid = first_gid(lab);
    let ah = unsafe { warpline_ibv_create_ah(lab.pd, &mut address) };
    assert!(!ah.is_null());
    ah
}

pub(crate) const QKEY: u32 = 7;

/// Brings a queue pair for datagrams from RESET to RTS.
pub(crate) fn ready_for_datagrams(qp: *mut ibv_qp) {
    let with_key = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    let mut attr = ibv_qp_attr { port_num: 1, qkey: QKEY, ..ibv_qp_attr::default() };
    for (state, mask) in [
        (IBV_QPS_INIT, with_key),
        (IBV_QPS_RTR, IBV_QP_STATE),
        (IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN),
    ] {
        attr.qp_state = state;
        assert_eq!(modify(qp, &mut attr, mask), 0);
    }
}

/// Sends a datagram from a queue pair to itself.
pub(crate) fn send_datagram(lab: &Lab, qp: *mut ibv_qp, ah: *mut ibv_ah, id: u64) {
    let mut sge = lab.sge(8192, 16);
    let mut send = wr(id, IBV_WR_SEND, &mut sge);
    send.wr = wr_union { ud: wr_ud { ah, remote_qpn: number(qp), remote_qkey: QKEY } };
    assert_eq!(lab.send(qp, &mut send), 0);
}
