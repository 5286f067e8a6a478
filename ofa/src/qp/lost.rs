//! Failures of a queue pair: asynchronous events, and the errors of flushed requests.

use std::sync::atomic::Ordering;

use ibv_sys::*;
use kal_os::lock;
use vp_api::{AsyncEvent, WcStatus, WorkCompletion};

use super::{Qp, Withheld};
use crate::directory::{Listener, QueuePair};
use crate::wc;
use crate::wr_list::List;

impl Qp {
    /// Whether its stream is made by the rendezvous.
    pub(super) fn is_met(&self) -> bool {
        lock(&self.meet).meeting.is_some()
    }

    /// Where ends know each other by number only, a program does not learn that its peer is gone
    /// before it sends something: receives stay posted until then. A send fails when its time-out and
    /// retries have passed, as on InfiniBand. Completions on other queue pairs that arrived before are
    /// polled first, so a program that has all it waited for ends without an error.
    fn unless_withheld(&self, failed: ibv_wc, is_send: bool) -> Option<ibv_wc> {
        let meeting = lock(&self.meet).meeting.clone();
        let mut withheld = lock(&self.withheld);
        if self.state() == IBV_QPS_ERR {
            return Some(failed);
        }
        let Some(meeting) = meeting else { return Some(failed) };
        let Withheld { sends, receives } = &mut *withheld;
        let cap = &self.init.cap;
        let (list, most) =
            if is_send { (sends, cap.max_send_wr) } else { (receives, cap.max_recv_wr) };
        if list.len() >= most.max(1) as usize {
            return Some(failed);
        }
        list.push(failed);
        let is_first_send = is_send && list.len() == 1;
        drop(withheld);
        if is_first_send {
            meeting.lose();
        }
        None
    }

    /// Returns the completions that were withheld.
    pub(super) fn release(&self) {
        let Withheld { sends, receives } = std::mem::take(&mut *lock(&self.withheld));
        for (cq, list) in [(&self.init.send_cq, sends), (&self.init.recv_cq, receives)] {
            if !list.is_empty() {
                cq.add(&list);
            }
        }
    }

    /// Removes the completions that are kept here and were not polled.
    pub(super) fn forget_completions(&self) {
        *lock(&self.withheld) = Withheld::default();
        self.atomics.clear();
        self.init.send_cq.remove(self.number);
        self.init.recv_cq.remove(self.number);
    }
}

impl Listener for Qp {
    fn on_event(&self, number: u64, event: AsyncEvent) {
        let kind = match event {
            // This end refused a request of the peer (InfiniBand: a responder's errors).
            AsyncEvent::TerminateSent(terminate) => Some(match wc::remote(terminate) {
                // InfiniBand: what the queue pair does not serve is no access to memory.
                _ if terminate.is_for_endpoint() && !self.is_iwarp() => IBV_EVENT_QP_REQ_ERR,
                IBV_WC_REM_ACCESS_ERR => IBV_EVENT_QP_ACCESS_ERR,
                IBV_WC_REM_OP_ERR => IBV_EVENT_QP_FATAL,
                _ => IBV_EVENT_QP_REQ_ERR,
            }),
            AsyncEvent::Catastrophic => Some(IBV_EVENT_QP_FATAL),
            // Completions report it.
            _ if self.is_by_path() => None,
            // Completions and the connection's events report it.
            _ => return,
        };
        let mut has_failed = false;
        let store = |kept: &mut List| has_failed = self.store_state(kept, IBV_QPS_ERR);
        if self.during(|life| life <= number, store) {
            self.failed(has_failed);
            kind.into_iter().for_each(|kind| self.push(kind));
        }
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
        let is_send = wc::is_send(completion.opcode);
        if completion.status == WcStatus::Flushed && !is_send {
            return self.unless_withheld(plain, false);
        }
        let info = self.vp.query().ok();
        if completion.status == WcStatus::RemoteTermination {
            self.attributed.store(true, Ordering::Release);
            let status = info.and_then(|info| info.terminate).map(wc::remote);
            return Some(ibv_wc { status: status.unwrap_or(plain.status), ..plain });
        }
        // RoCE reports the request itself whose repetitions were over.
        if completion.status == WcStatus::LocalCatastrophic {
            self.attributed.store(true, Ordering::Release);
            let status = info.and_then(|info| wc::first_lost(&info));
            return Some(ibv_wc { status: status.unwrap_or(plain.status), ..plain });
        }
        let by_peer = self.is_met() && self.state() != IBV_QPS_ERR;
        let lost = by_peer || self.lost.load(Ordering::Acquire);
        let reported = match self.attributed.swap(true, Ordering::AcqRel) {
            true => plain,
            false => {
                let status = info.and_then(|info| wc::first_lost(&info));
                let status = status.or(lost.then_some(IBV_WC_RETRY_EXC_ERR));
                ibv_wc { status: status.unwrap_or(plain.status), ..plain }
            }
        };
        if by_peer && is_send { self.unless_withheld(reported, true) } else { Some(reported) }
    }
}
