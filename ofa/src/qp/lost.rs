//! What a queue pair tells of its failures: asynchronous events, and why requests were flushed.

use std::sync::atomic::Ordering;

use ibv_sys::*;
use kal_os::lock;
use vp_api::{AsyncEvent, WcStatus, WorkCompletion};

use super::Qp;
use crate::directory::{Listener, QueuePair};
use crate::wc;

impl Qp {
    /// Its stream comes, or came, by the rendezvous.
    pub(super) fn is_met(&self) -> bool {
        lock(&self.meet).meeting.is_some()
    }

    /// Between ends that know each other by number only, nobody hears that the other went before it sends
    /// something: receives stay posted until then.
    pub(super) fn unless_withheld(&self, flushed: ibv_wc) -> Option<ibv_wc> {
        let is_met = self.is_met();
        let mut withheld = lock(&self.withheld);
        let fits = withheld.len() < self.init.cap.max_recv_wr.max(1) as usize;
        if is_met && fits && self.state() != IBV_QPS_ERR {
            withheld.push(flushed);
            return None;
        }
        Some(flushed)
    }

    /// The application is told of what was withheld.
    pub(super) fn release(&self) {
        let withheld = std::mem::take(&mut *lock(&self.withheld));
        if !withheld.is_empty() {
            self.init.recv_cq.add(&withheld);
        }
    }

    /// Those that are kept here and have not been polled.
    pub(super) fn forget_completions(&self) {
        lock(&self.withheld).clear();
        self.atomics.clear();
        self.init.send_cq.remove(self.number);
        self.init.recv_cq.remove(self.number);
    }
}

impl Listener for Qp {
    fn hear(&self, event: AsyncEvent) {
        let kind = match event {
            // What the peer asked for was refused here (InfiniBand: a responder's errors).
            AsyncEvent::TerminateSent(terminate) => match wc::remote(terminate) {
                IBV_WC_REM_ACCESS_ERR => IBV_EVENT_QP_ACCESS_ERR,
                IBV_WC_REM_OP_ERR => IBV_EVENT_QP_FATAL,
                _ => IBV_EVENT_QP_REQ_ERR,
            },
            AsyncEvent::Catastrophic => IBV_EVENT_QP_FATAL,
            // Completions and the connection's events say it.
            _ => return,
        };
        self.set_state(IBV_QPS_ERR);
        self.push(kind);
    }
}

impl QueuePair for Qp {
    fn next_atomic(&self) -> u32 {
        self.atomics.next()
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn explain(&self, completion: &WorkCompletion, plain: ibv_wc) -> Option<ibv_wc> {
        if completion.status == WcStatus::Flushed && !wc::is_send(completion.opcode) {
            return self.unless_withheld(plain);
        }
        let info = self.vp.query().ok();
        if completion.status == WcStatus::RemoteTermination {
            self.blamed.store(true, Ordering::Release);
            let status = info.and_then(|info| info.terminate).map(wc::remote);
            return Some(ibv_wc { status: status.unwrap_or(plain.status), ..plain });
        }
        let by_peer = self.is_met() && self.state() != IBV_QPS_ERR;
        let lost = by_peer || self.lost.load(Ordering::Acquire);
        if self.blamed.swap(true, Ordering::AcqRel) {
            return Some(plain);
        }
        let status = info.and_then(|info| wc::first_lost(&info));
        let status = status.or(lost.then_some(IBV_WC_RETRY_EXC_ERR));
        if by_peer {
            self.lost_peer();
        }
        Some(ibv_wc { status: status.unwrap_or(plain.status), ..plain })
    }
}
