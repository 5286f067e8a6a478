//! Queue pairs for datagrams (UD) over libibverbs. Operational from the start: there is no connection.
//!
//! Owner: the device's table; completions are routed by the device's queue pair number. Any thread posts. A peer's
//! end is not noticed. A failed request ends the queue pair, and the remaining requests are flushed.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use vp_api::{
    Data, DatagramSource, PostFailure, QpId, RecvWr, Sge, UdAddress, UdQp, UdQpInfo, UdQpInit,
    UdSendWr, UdState, VpError, VpResult, VpStatus, WcOpcode, WcStatus, WorkCompletion,
};

use super::ah::{Ah, Ahs};
use super::path::Port;
use crate::completed::{Completed, flushed};
use crate::cq::VerbsCq;
use crate::device::Context;
use crate::hardware::{Hardware, MARK, RECV, Slot};
use crate::map;
use crate::mw::Memory;
use crate::object_table::{InUse, destroyed, lock};
use crate::owned::{Owned, done, refused};
use crate::qp::{Routes, each, mark};
use crate::queue::Queue;
use crate::ring::{Posted, Taken, Untaken};
use crate::srq::SERIAL;
use crate::wire;
use ibv_sys::*;

/// The parts of a queue pair, apart from its sizes.
pub(super) struct Parts {
    pub(super) context: Arc<Context>,
    pub(super) routes: Arc<Routes>,
    pub(super) memory: Arc<Memory>,
    pub(super) ahs: Arc<Ahs>,
    pub(super) port: Port,
    pub(super) pd: *mut ibv_pd,
    pub(super) send_cq: Arc<VerbsCq>,
    pub(super) recv_cq: Arc<VerbsCq>,
}

/// A queue pair for datagrams.
pub(crate) struct VerbsUdQp {
    pub(super) id: QpId,
    pub(super) init: UdQpInit,
    pub(super) parts: Parts,
    qkey: u32,
    pub(super) hardware: Slot,
    failed: AtomicBool,
    /// Requests with their address handles, which live until the send is done.
    pub(super) send: Queue<(Posted, Arc<Ah>)>,
    pub(super) recv: Queue<Receive>,
    /// Holds on everything in `parts`, until the queue pair is destroyed.
    holds: Mutex<Vec<InUse>>,
}

// SAFETY: the only pointer is the domain's. A hold keeps the domain alive, and any thread may use it.
unsafe impl Send for VerbsUdQp {}
// SAFETY: as for `Send`.
unsafe impl Sync for VerbsUdQp {}

/// A posted receive.
pub(super) struct Receive {
    pub(super) wr_id: u64,
    /// Where the header is placed.
    pub(super) front: Sge,
}

impl VerbsUdQp {
    pub(super) fn create(
        parts: Parts,
        holds: Vec<InUse>,
        id: u32,
        init: &UdQpInit,
    ) -> VpResult<Arc<Self>> {
        let qp = Arc::new(Self {
            id: QpId(id),
            init: init.clone(),
            parts,
            qkey: init.qkey.unwrap_or(RDMA_UDP_QKEY),
            hardware: Slot::default(),
            failed: AtomicBool::new(false),
            send: Queue::new(init.send_depth)?,
            recv: Queue::new(init.recv_depth)?,
            holds: Mutex::new(holds),
        });
        qp.begin()?;
        Ok(qp)
    }

    /// Creates the device's queue pair, ready to send and receive.
    fn begin(self: &Arc<Self>) -> VpResult<()> {
        let serial = self.parts.routes.serials.fetch_add(1, Ordering::Relaxed) & SERIAL;
        let raw = self.make(serial).map_err(refused("create the queue pair for datagrams"))?;
        // SAFETY: just made; the number never changes.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        self.ready(raw.as_ptr()).map_err(refused("initialise the queue pair for datagrams"))?;
        self.hardware.put(Hardware { raw, number, serial });
        self.parts.routes.add_ud(number, self.clone());
        Ok(())
    }

    fn make(&self, serial: u32) -> io::Result<Owned<ibv_qp>> {
        let (parts, init) = (&self.parts, &self.init);
        let raw = |cq: &VerbsCq| cq.with_raw(|raw| raw).map_err(io::Error::other);
        let mut attr = ibv_qp_init_attr {
            qp_context: mark(self.id, serial),
            send_cq: raw(&parts.send_cq)?,
            recv_cq: raw(&parts.recv_cq)?,
            srq: std::ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: init.send_depth,
                max_recv_wr: init.recv_depth,
                max_send_sge: init.max_send_sge,
                max_recv_sge: init.max_recv_sge,
                max_inline_data: init.max_inline,
            },
            qp_type: IBV_QPT_UD,
            sq_sig_all: 0,
        };
        let ibv = &parts.context.api.ibv;
        // SAFETY: holds keep the domain and the CQs; the attributes may be written.
        let raw = unsafe { (ibv.ibv_create_qp)(parts.pd, &mut attr) };
        // SAFETY: just created; destroyed by its counterpart.
        unsafe { Owned::new(raw, ibv.ibv_destroy_qp, &parts.context) }
    }

    fn ready(&self, raw: *mut ibv_qp) -> io::Result<()> {
        let attr = ibv_qp_attr {
            qkey: self.qkey,
            port_num: self.parts.port.number,
            ..ibv_qp_attr::default()
        };
        let init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        for (state, mask) in [(IBV_QPS_INIT, init), (IBV_QPS_RTR, 0), (IBV_QPS_RTS, IBV_QP_SQ_PSN)]
        {
            let mut attr = ibv_qp_attr { qp_state: state, ..attr };
            self.change(raw, &mut attr, IBV_QP_STATE | mask)?;
        }
        Ok(())
    }

    fn change(&self, raw: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: i32) -> io::Result<()> {
        // SAFETY: the caller has the queue pair exclusively or under its lock.
        done(unsafe { (self.parts.context.api.ibv.ibv_modify_qp)(raw, attr, mask) })
    }

    fn number(&self) -> Option<u32> {
        self.hardware.number()
    }

    /// The device reports that it failed in that life. Returns false if it had ended before.
    pub(crate) fn broke(&self, life: u32) -> bool {
        let hardware = self.hardware.read();
        let Some(live) = hardware.as_ref().filter(|live| live.serial == life) else { return false };
        // It flushes, or has flushed already.
        let _ = self.fail(live);
        true
    }

    /// Flushes.
    fn fail(&self, live: &Hardware) -> io::Result<()> {
        if self.failed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
        if self.parts.context.is_gone() {
            return Ok(());
        }
        self.change(live.raw.as_ptr(), &mut attr, IBV_QP_STATE)?;
        self.mark_end(live);
        Ok(())
    }

    /// The device is gone: flushes.
    pub(crate) fn lost(&self) {
        self.failed.store(true, Ordering::Release);
        self.parts.send_cq.inject(|| {
            let mut done = VecDeque::new();
            self.send.ring().end_all(true, |(posted, _), untaken| {
                let completion = flushed(self.id, posted.wr_id, posted.opcode);
                done.push_back(Completed { completion, source: None, untaken });
            });
            done
        });
        self.parts.recv_cq.inject(|| {
            let mut done = VecDeque::new();
            self.recv.ring().end_all(true, |posted, untaken| {
                let completion = flushed(self.id, posted.wr_id, WcOpcode::Recv);
                done.push_back(Completed { completion, source: None, untaken });
            });
            done
        });
        self.flush_late();
    }

    /// A post that met the end of the device.
    pub(super) fn end_if_gone(&self) {
        if self.parts.context.is_gone() {
            self.lost();
        }
    }

    pub(super) fn destroy(&self) -> VpResult<()> {
        self.end_life()?;
        self.parts.send_cq.forget(self.id);
        self.parts.recv_cq.forget(self.id);
        // Address handles of sends that will never be done.
        self.send.ring().clear();
        lock(&self.holds).clear();
        Ok(())
    }

    fn end_life(&self) -> VpResult<()> {
        if let Some(number) = self.hardware.end("queue pair for datagrams")? {
            self.parts.routes.remove_ud(number, self);
        }
        Ok(())
    }

    /// Error to Operational: creates a new queue pair of the device, as in [`crate::qp`].
    fn renew(&self) -> VpResult<()> {
        let recvs = self.recv.outstanding();
        if recvs == 0 {
            // Requests without a completion end without a poll.
            let _ = self.parts.send_cq.harvest();
        }
        let sends = self.send.outstanding();
        if sends + recvs != 0 {
            let detail =
                format!("{sends} sends and {recvs} receives are not flushed or not polled");
            return Err(VpError::new(VpStatus::StillFlushing, detail));
        }
        self.parts.context.alive("reset the queue pair")?;
        let number = self.number().ok_or_else(|| destroyed("queue pair"))?;
        let this = self.parts.routes.ud(number).ok_or_else(|| destroyed("queue pair"))?;
        self.end_life()?;
        this.begin()?;
        self.send.ring().forget_silent();
        self.failed.store(false, Ordering::Release);
        Ok(())
    }
}

/// Converts a completion of the device for the consumer.
impl VerbsUdQp {
    /// See [`Routes::translate`].
    pub(crate) fn complete(
        &self,
        wc: &ibv_wc,
        taken: Taken,
        behind: &mut VecDeque<Completed>,
    ) -> Option<Completed> {
        let serial = self.hardware.read().as_ref().map(|hardware| hardware.serial)?;
        if serial != (wc.wr_id >> 32) as u32 & SERIAL {
            return None;
        }
        let (status, number) = (map::status(wc.status), wc.wr_id as u32);
        let is_recv = wc.wr_id & RECV != 0;
        let completed = match is_recv {
            true => {
                let mut ring = self.recv.ring();
                let (posted, slots) = ring.end(number)?;
                let untaken = ring.complete(slots, taken);
                drop(ring);
                Some(self.received(wc, status, posted, untaken))
            }
            false => self.sent(wc, status, taken)?,
        };
        if status != WcStatus::Success {
            self.broke(serial);
        }
        if self.failed.load(Ordering::Acquire) {
            behind.extend(self.ready_late(is_recv));
        }
        completed
    }

    /// `None` if the request ended before; `Some(None)` if it ends without a completion.
    fn sent(&self, wc: &ibv_wc, status: WcStatus, taken: Taken) -> Option<Option<Completed>> {
        let mut ring = self.send.ring();
        let ((posted, _), slots) = ring.end(wc.wr_id as u32)?;
        let is_mark = wc.wr_id & MARK != 0;
        if is_mark || (status == WcStatus::Success && !posted.signaled) {
            ring.add_silent(slots);
            return Some(None);
        }
        let untaken = ring.complete(slots, taken);
        let completion = WorkCompletion { status, ..flushed(self.id, posted.wr_id, posted.opcode) };
        Some(Some(Completed { completion, source: None, untaken }))
    }

    fn received(
        &self,
        wc: &ibv_wc,
        status: WcStatus,
        posted: Receive,
        untaken: Untaken,
    ) -> Completed {
        let done = WorkCompletion { status, ..flushed(self.id, posted.wr_id, WcOpcode::Recv) };
        if status != WcStatus::Success {
            return Completed { completion: done, source: None, untaken };
        }
        let with_immediate = wc.wc_flags & IBV_WC_WITH_IMM != 0;
        let immediate = with_immediate.then(|| u64::from(u32::from_be(wc.imm_or_rkey)));
        let completion = WorkCompletion { octets: wc.byte_len, immediate, ..done };
        let region = self.parts.memory.region(posted.front.stag).ok();
        let header = region.and_then(|region| region.header(posted.front.to));
        let from = DatagramSource {
            qpn: wc.src_qp,
            grh: wc.wc_flags & IBV_WC_GRH != 0,
            path: header.and_then(|header| self.parts.port.way_back(wc, &header)),
        };
        Completed { completion, source: Some(from), untaken }
    }

    /// Late posts that are due.
    fn ready_late(&self, is_recv: bool) -> VecDeque<Completed> {
        match is_recv {
            true => self.recv.ready(),
            false => self.send.ready(),
        }
    }

    fn flush_late(&self) {
        for (is_recv, cq) in [(false, &self.parts.send_cq), (true, &self.parts.recv_cq)] {
            cq.inject(|| self.ready_late(is_recv));
            cq.tell();
        }
    }

    /// Whether posts still go to the device.
    fn posts(&self) -> Result<bool, PostFailure> {
        match self.number() {
            None => Err(PostFailure { posted: 0, status: VpStatus::InvalidHandle }),
            Some(_) => Ok(!self.failed.load(Ordering::Acquire)),
        }
    }
}

impl UdQp for VerbsUdQp {
    fn id(&self) -> QpId {
        self.id
    }

    fn address(&self) -> UdAddress {
        UdAddress { qpn: self.number().unwrap_or(0), qkey: self.qkey }
    }

    fn post_send(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostFailure> {
        if self.posts()? {
            let posted = self.post_sends(wrs);
            self.end_if_gone();
            return posted;
        }
        let late = each(wrs, |wr| {
            wire::check(&wr.data, self.init.max_send_sge, self.init.max_inline)?;
            self.send.post_late(flushed(self.id, wr.wr_id, wr.completion()))
        });
        self.flush_late();
        late
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        if self.posts()? {
            let posted = self.post_recvs(wrs);
            self.end_if_gone();
            return posted;
        }
        let late = each(wrs, |wr| {
            wire::check(&Data::Sgl(wr.sgl), self.init.max_recv_sge, 0)?;
            self.recv.post_late(flushed(self.id, wr.wr_id, WcOpcode::Recv))
        });
        self.flush_late();
        late
    }

    fn modify(&self, to: UdState) -> VpResult<()> {
        if self.number().is_none() {
            return Err(destroyed("queue pair"));
        }
        match (to, self.failed.load(Ordering::Acquire)) {
            (UdState::Error, _) => match self.hardware.read().as_ref() {
                Some(live) => self.fail(live).map_err(refused("flush the queue pair")),
                None => Err(destroyed("queue pair")),
            },
            (UdState::Operational, true) => self.renew(),
            (UdState::Operational, false) => Ok(()),
        }
    }

    fn query(&self) -> VpResult<UdQpInfo> {
        if self.number().is_none() {
            return Err(destroyed("queue pair"));
        }
        let state = match self.failed.load(Ordering::Acquire) {
            true => UdState::Error,
            false => UdState::Operational,
        };
        Ok(UdQpInfo {
            id: self.id,
            state,
            address: self.address(),
            port: self.init.port,
            send_depth: self.init.send_depth,
            recv_depth: self.init.recv_depth,
            sends_outstanding: self.send.outstanding() as u32,
            recvs_outstanding: self.recv.outstanding() as u32,
        })
    }
}
