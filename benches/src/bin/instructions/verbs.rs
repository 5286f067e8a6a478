//! Steps of libibverbs' functions on top of the provider's: a small program on `ofa`.
//!
//! For posts its queue pair is in RTS and its peer never connects, so that a post is kept and transmits
//! nothing. All objects are made once and live until the process ends.
#![allow(clippy::multiple_unsafe_ops_per_block)]

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use ibv_sys::*;
use ofa::verbs::cq::warpline_ibv_create_cq;
use ofa::verbs::device::{warpline_ibv_get_device_list, warpline_ibv_open_device};
use ofa::verbs::mr::warpline_ibv_reg_mr;
use ofa::verbs::pd::warpline_ibv_alloc_pd;
use ofa::verbs::qp::{warpline_ibv_create_qp, warpline_ibv_modify_qp};
use ofa::verbs::query::warpline_ibv_query_gid;
use vp_api::{CqInit, MrInit, Provider, Qp, QpInit, Rnic, Sge};
use vp_softrdma::SoftRdma;
use warpline_benches::{Error, Result};

use crate::end::{MESSAGE, Still, region};

/// Completions per poll.
pub(crate) const BATCH: usize = 16;
/// Work requests in a queue.
const DEPTH: u32 = 2048;

/// A queue pair of the provider in Idle, which keeps its Sends.
pub(crate) struct Early {
    pub(crate) qp: Arc<dyn Qp>,
    pub(crate) message: Sge,
    _rnic: Arc<dyn Rnic>,
    _memory: kal_shim::mem::Region,
}

impl Early {
    pub(crate) fn new() -> Result<Self> {
        let provider = SoftRdma;
        let device = provider.devices().map_err(|none| none.reason)?.remove(0);
        let rnic = provider.open(&device.name, Arc::new(Still))?;
        let pd = rnic.alloc_pd()?;
        let (memory, init) = region()?;
        let mr = rnic.register_mr(&MrInit { pd, ..init })?;
        let cq = rnic.create_cq(&CqInit { depth: 2 * DEPTH, handler: None })?;
        let init =
            QpInit { send_depth: DEPTH, recv_depth: DEPTH, ..QpInit::new(pd, cq.id(), cq.id()) };
        let message = Sge { stag: mr, len: MESSAGE, to: 0 };
        Ok(Self { qp: rnic.create_qp(&init)?, message, _rnic: rnic, _memory: memory })
    }
}

/// The same by libibverbs.
pub(crate) struct Verbs {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    sge: ibv_sge,
    gid: ibv_gid,
}

impl Verbs {
    fn new() -> Result<Self> {
        let memory = Box::leak(vec![0_u8; 4096].into_boxed_slice());
        let (at, octets) = (memory.as_mut_ptr(), memory.len());
        let access = IBV_ACCESS_LOCAL_WRITE as c_int;
        // SAFETY: the arguments are those of the man pages; the memory is never freed.
        unsafe {
            let list = warpline_ibv_get_device_list(null_mut());
            let context = made(warpline_ibv_open_device(*made(list)?))?;
            let pd = made(warpline_ibv_alloc_pd(context))?;
            let mr = made(warpline_ibv_reg_mr(pd, at.cast(), octets, access))?;
            let cq = made(warpline_ibv_create_cq(
                context,
                2 * DEPTH as c_int,
                null_mut(),
                null_mut(),
                0,
            ))?;
            let qp = made(warpline_ibv_create_qp(pd, &mut init(cq)))?;
            let mut gid = ibv_gid::default();
            done(warpline_ibv_query_gid(context, 1, 1, &mut gid))?;
            let lkey = (*mr).lkey;
            let sge = ibv_sge { addr: at.expose_provenance() as u64, length: MESSAGE, lkey };
            Ok(Self { qp, cq, sge, gid })
        }
    }

    /// One whose peer never connects.
    pub(crate) fn alone() -> Result<Self> {
        let (verbs, absent) = (Self::new()?, Self::new()?);
        verbs.connect(&absent)?;
        Ok(verbs)
    }

    /// Two that connect to each other.
    pub(crate) fn pair() -> Result<(Self, Self)> {
        let (near, far) = (Self::new()?, Self::new()?);
        near.connect(&far)?;
        far.connect(&near)?;
        Ok((near, far))
    }

    fn connect(&self, peer: &Self) -> Result<()> {
        // SAFETY: the queue pair is live.
        let dest_qp_num = unsafe { (*peer.qp).qp_num };
        let mut attr =
            ibv_qp_attr { port_num: 1, dest_qp_num, path_mtu: 3, ..ibv_qp_attr::default() };
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid = peer.gid;
        let init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        let rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        let rtr = rtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        let rts = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
        let rts = rts | IBV_QP_MAX_QP_RD_ATOMIC;
        for (state, mask) in [(IBV_QPS_INIT, init), (IBV_QPS_RTR, rtr), (IBV_QPS_RTS, rts)] {
            attr.qp_state = state;
            // SAFETY: a queue pair, and its attributes.
            done(unsafe { warpline_ibv_modify_qp(self.qp, &mut attr, IBV_QP_STATE | mask) })?;
        }
        Ok(())
    }

    /// Posts a Send.
    pub(crate) fn send(&self) -> Result<()> {
        let rdma = wr_rdma { remote_addr: 0, rkey: 0 };
        let bind_info = ibv_mw_bind_info { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
        let mut wr = ibv_send_wr {
            wr_id: 1,
            next: null_mut(),
            sg_list: &raw const self.sge as *mut ibv_sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_SIGNALED,
            imm_or_rkey: 0,
            wr: wr_union { rdma },
            xrc_remote_srqn: 0,
            bind_mw: wr_bind_mw { mw: null_mut(), rkey: 0, bind_info },
        };
        // SAFETY: the context's function, as `ibv_post_send` calls it.
        unsafe {
            let post = (*(*self.qp).context).ops.post_send.ok_or("no post_send")?;
            done(post(self.qp, &mut wr, &mut null_mut()))
        }
    }

    /// Posts a receive.
    pub(crate) fn recv(&self) -> Result<()> {
        let mut wr = ibv_recv_wr {
            wr_id: 1,
            next: null_mut(),
            sg_list: &raw const self.sge as *mut ibv_sge,
            num_sge: 1,
        };
        // SAFETY: as above.
        unsafe {
            let post = (*(*self.qp).context).ops.post_recv.ok_or("no post_recv")?;
            done(post(self.qp, &mut wr, &mut null_mut()))
        }
    }

    /// Polls for up to 16 completions, and at most `most`; returns their number.
    pub(crate) fn poll(&self, most: usize) -> Result<usize> {
        let mut list = [ibv_wc::default(); BATCH];
        let most = most.min(BATCH) as c_int;
        // SAFETY: as above.
        let found = unsafe {
            let poll = (*(*self.cq).context).ops.poll_cq.ok_or("no poll_cq")?;
            poll(self.cq, most, list.as_mut_ptr())
        };
        let found = list.get(..usize::try_from(found)?).ok_or("poll_cq returned too many")?;
        match found.iter().find(|wc| wc.status != IBV_WC_SUCCESS) {
            Some(wc) => Err(format!("a completion failed with status {}", wc.status).into()),
            None => Ok(found.len()),
        }
    }
}

fn init(cq: *mut ibv_cq) -> ibv_qp_init_attr {
    let cap = ibv_qp_cap {
        max_send_wr: DEPTH,
        max_recv_wr: DEPTH,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: cq,
        recv_cq: cq,
        srq: null_mut(),
        cap,
        qp_type: IBV_QPT_RC,
        sq_sig_all: 0,
    }
}

fn made<T>(object: *mut T) -> Result<*mut T> {
    if object.is_null() { Err(std::io::Error::last_os_error().into()) } else { Ok(object) }
}

fn done(errno: c_int) -> Result<()> {
    if errno == 0 { Ok(()) } else { Err(Error::from(std::io::Error::from_raw_os_error(errno))) }
}
