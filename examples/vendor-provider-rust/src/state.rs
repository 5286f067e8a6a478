//! The state of an RNIC, and the rules for its objects.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use vp_api::*;

use crate::copy;

/// IRD and ORD.
pub(crate) const READS: u16 = 16;

/// Greatest depth of a queue.
pub(crate) const MOST: u32 = 1024;

pub(crate) fn no(status: VpStatus, detail: &str) -> VpError {
    VpError::new(status, detail)
}

/// Notifications to make after the lock is released.
pub(crate) type Rings = Vec<(Arc<dyn CqHandler>, CqId)>;

/// The state, and the condition variable of all waits.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) bell: Condvar,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ring(&self) {
        self.bell.notify_all();
    }

    /// Releases the lock, then notifies.
    pub(crate) fn close(&self, state: MutexGuard<'_, State>, rings: Rings) {
        drop(state);
        self.ring();
        rings.into_iter().for_each(|(handler, cq)| handler.on_completion(cq));
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) made: u32,
    /// Protection domains, with the number of their users.
    pub(crate) pds: HashMap<u32, i32>,
    pub(crate) cqs: HashMap<u32, Cq>,
    pub(crate) qps: HashMap<u32, Qp>,
    pub(crate) regions: HashMap<Stag, Region>,
    pub(crate) listeners: HashMap<u64, SocketAddr>,
    pub(crate) requests: HashMap<u64, Asked>,
    pub(crate) events: VecDeque<NativeEvent>,
}

/// A connection request.
pub(crate) struct Asked {
    pub(crate) caller: QpId,
    pub(crate) params: NativeParams,
    pub(crate) at: SocketAddr,
}

pub(crate) struct Cq {
    pub(crate) depth: u32,
    pub(crate) users: i32,
    /// Completions, each with the number of slots that polling it frees.
    pub(crate) ring: VecDeque<(WorkCompletion, u32)>,
    pub(crate) overrun: bool,
    pub(crate) interrupts: u64,
    /// Armed for solicited completions only.
    pub(crate) armed: Option<bool>,
    handler: Option<Arc<dyn CqHandler>>,
}

impl Cq {
    pub(crate) fn new(init: &CqInit) -> Self {
        let (handler, ring) = (init.handler.clone(), VecDeque::new());
        let depth = init.depth;
        Self { depth, users: 0, ring, overrun: false, interrupts: 0, armed: None, handler }
    }

    fn push(&mut self, id: CqId, wc: WorkCompletion, slots: u32, rings: &mut Rings) {
        if self.ring.len() == self.depth as usize {
            self.overrun = true;
        } else {
            self.ring.push_back((wc, slots));
        }
        let counts = wc.solicited || wc.status != WcStatus::Success;
        if self.armed.is_some_and(|solicited_only| !solicited_only || counts) {
            self.armed = None;
            rings.extend(self.handler.clone().map(|handler| (handler, id)));
        }
    }
}

pub(crate) struct Qp {
    pub(crate) init: QpInit,
    pub(crate) state: vp_api::QpState,
    pub(crate) peer: Option<QpId>,
    /// IRD and ORD in force: both ends agree on them when they connect.
    pub(crate) reads: (u16, u16),
    pub(crate) receives: VecDeque<(u64, Vec<Sge>)>,
    /// Slots of sends: in use, and of those the ones that ended without a completion.
    pub(crate) sends: u32,
    pub(crate) silent: u32,
    /// Slots of receives that completed and whose completions were not polled.
    pub(crate) recvs_waiting: u32,
    /// Numbers of sends and receives of this stream that were flushed or failed.
    pub(crate) lost: (u32, u32),
}

impl Qp {
    pub(crate) fn new(init: &QpInit) -> Self {
        let (state, receives) = (QpState::Idle, VecDeque::new());
        let (sends, silent, recvs_waiting) = (0, 0, 0);
        let (peer, reads, lost) = (None, (init.ird, init.ord), (0, 0));
        Self { init: init.clone(), state, peer, reads, receives, sends, silent, recvs_waiting, lost }
    }

    /// Frees the slots of a polled completion.
    pub(crate) fn taken(&mut self, wc: &WorkCompletion, slots: u32) {
        match wc.opcode {
            WcOpcode::Recv => self.recvs_waiting -= slots,
            _ => self.sends -= slots,
        }
    }
}

pub(crate) struct Region {
    pub(crate) pd: PdId,
    access: Access,
    range: MemRange,
}

impl Region {
    pub(crate) fn new(init: &MrInit) -> Self {
        Self { pd: init.pd, access: init.access, range: init.range.clone() }
    }

    fn base(&self) -> u64 {
        self.range.addr().as_ptr() as u64
    }

    pub(crate) fn info(&self, stag: Stag) -> MrInfo {
        MrInfo {
            stag,
            pd: self.pd,
            valid: true,
            shared: false,
            addr: self.base(),
            len: self.range.len() as u64,
            addressing: Addressing::Absolute,
            access: self.access,
            bound_windows: 0,
        }
    }
}

impl State {
    /// Ids count up; 24 bits, as an STag index has.
    pub(crate) fn new_id(&mut self) -> u32 {
        self.made = (self.made + 1) & 0xff_ffff;
        self.made
    }

    pub(crate) fn check_qp(&self, init: &QpInit) -> VpResult<()> {
        let has_cqs = [init.send_cq, init.recv_cq].iter().all(|cq| self.cqs.contains_key(&cq.0));
        if !self.pds.contains_key(&init.pd.0) {
            return Err(no(VpStatus::InvalidPd, "there is no such PD"));
        }
        if !has_cqs {
            return Err(no(VpStatus::InvalidHandle, "there is no such CQ"));
        }
        if init.send_depth == 0 || init.recv_depth == 0 {
            return Err(no(VpStatus::InvalidModifier, "a queue has one request at least"));
        }
        if init.send_depth > MOST || init.recv_depth > MOST {
            return Err(no(VpStatus::TooManyWrs, "a queue has at most 1024 requests"));
        }
        if init.max_send_sge > 4 || init.max_recv_sge > 4 || init.max_inline > 64 {
            return Err(no(VpStatus::InvalidSgl, "at most 4 elements, and 64 octets inline"));
        }
        if init.ird > READS || init.ord > READS {
            return Err(no(VpStatus::InvalidIrdOrd, "at most 16 reads may be outstanding"));
        }
        if init.srq.is_some() || init.privileged || init.recv_limit != 0 {
            let none = "there are no SRQs, no privileged QPs and no limit events";
            return Err(no(VpStatus::Unsupported, none));
        }
        if init.unready != Unready::Terminate {
            return Err(init.unready.unsupported());
        }
        Ok(())
    }

    /// Counts a QP as a user of its PD and CQs.
    pub(crate) fn use_qp(&mut self, init: &QpInit, by: i32) {
        self.pds.entry(init.pd.0).and_modify(|users| *users += by);
        for cq in [init.send_cq, init.recv_cq] {
            self.cqs.entry(cq.0).and_modify(|cq| cq.users += by);
        }
    }

    /// Completes a receive.
    pub(crate) fn complete_recv(&mut self, wc: WorkCompletion, rings: &mut Rings) {
        let Some(qp) = self.qps.get_mut(&wc.qp.0) else { return };
        qp.recvs_waiting += 1;
        qp.lost.1 += u32::from(wc.status != WcStatus::Success);
        let cq = qp.init.recv_cq;
        if let Some(queue) = self.cqs.get_mut(&cq.0) {
            queue.push(cq, wc, 1, rings);
        }
    }

    /// Completes a send and the unsignalled ones before it.
    pub(crate) fn complete_send(&mut self, wc: WorkCompletion, rings: &mut Rings) {
        let Some(qp) = self.qps.get_mut(&wc.qp.0) else { return };
        qp.lost.0 += u32::from(wc.status != WcStatus::Success);
        let (cq, slots) = (qp.init.send_cq, std::mem::take(&mut qp.silent));
        if let Some(queue) = self.cqs.get_mut(&cq.0) {
            queue.push(cq, wc, slots, rings);
        }
    }

    /// Moves the QP and its peer to Error; all posted requests complete. `reports`: the QP itself gets the event,
    /// too.
    pub(crate) fn break_qp(&mut self, id: QpId, reports: bool, rings: &mut Rings) {
        let peer = self.qps.get_mut(&id.0).and_then(|qp| qp.peer.take());
        if reports && peer.is_some() {
            self.events.push_back(NativeEvent::Disconnected { qp: id });
        }
        self.flush(id, rings);
        if let Some(peer) = peer {
            self.qps.entry(peer.0).and_modify(|qp| qp.peer = None);
            self.events.push_back(NativeEvent::Disconnected { qp: peer });
            self.flush(peer, rings);
        }
    }

    pub(crate) fn flush(&mut self, id: QpId, rings: &mut Rings) {
        let Some(qp) = self.qps.get_mut(&id.0) else { return };
        qp.state = QpState::Error;
        for (wr_id, _) in std::mem::take(&mut qp.receives) {
            let (opcode, status) = (WcOpcode::Recv, WcStatus::Flushed);
            let wc = WorkCompletion { wr_id, qp: id, opcode, status, ..WorkCompletion::BLANK };
            self.complete_recv(wc, rings);
        }
    }

    /// The memory of an element, and the offset in it.
    fn reach(&self, pd: PdId, at: &Sge, need: Access) -> Result<(&MemRange, usize), WcStatus> {
        let region = self.regions.get(&at.stag).ok_or(WcStatus::InvalidStag)?;
        if region.pd != pd {
            return Err(WcStatus::InvalidPd);
        }
        if !region.access.contains(need) {
            return Err(WcStatus::AccessViolation);
        }
        let offset = at.to.checked_sub(region.base()).ok_or(WcStatus::Bounds)?;
        let len = region.range.len() as u64;
        if offset > len || u64::from(at.len) > len - offset {
            return Err(WcStatus::Bounds);
        }
        Ok((&region.range, offset as usize))
    }

    pub(crate) fn gather(&self, pd: PdId, sgl: &[Sge], need: Access) -> Result<Vec<u8>, WcStatus> {
        let mut octets = Vec::new();
        for sge in sgl.iter().filter(|sge| sge.len > 0) {
            let (range, offset) = self.reach(pd, sge, need)?;
            octets.extend(copy::out(range, offset, sge.len as usize));
        }
        Ok(octets)
    }

    pub(crate) fn scatter(
        &self,
        pd: PdId,
        sgl: &[Sge],
        need: Access,
        octets: &[u8],
    ) -> Result<(), WcStatus> {
        let mut left = octets;
        for sge in sgl {
            let len = left.len().min(sge.len as usize);
            let (now, rest) = left.split_at(len);
            if len > 0 {
                let piece = Sge { len: len as u32, ..*sge };
                let (range, offset) = self.reach(pd, &piece, need)?;
                copy::into(range, offset, now);
            }
            left = rest;
        }
        if left.is_empty() { Ok(()) } else { Err(WcStatus::Bounds) }
    }
}
