//! A send queue that drains (`IBV_QPS_SQD`, ibv_modify_qp(3)): requests posted before complete, and
//! what is posted then waits for the way back to RTS.
//!
//! The provider begins requests as they are posted, so those are kept here, in the queue pair, until the state
//! is another: RTS posts them, ERR has them flushed, RESET forgets them. `IBV_EVENT_SQ_DRAINED`, where it was
//! requested, comes when the provider has none left, which a thread checks at intervals.

use std::sync::{Arc, Weak};
use std::time::Instant;

use ibv_sys::*;
use kal_os::lock;
use vp_api::{PostFailure, SendWr, VpStatus};

use super::{Posting, Qp};
use crate::rendezvous::Retry;
use crate::tuning::STATE_CHECK;
use crate::wr_list::List;

impl Qp {
    /// Keeps requests, as many as the queue is deep.
    #[cold]
    pub(super) fn keep(&self, wrs: &[SendWr<'_>], posting: Posting) -> Result<(), PostFailure> {
        let mut kept = lock(&self.kept);
        // It changes under this lock.
        if self.state() != IBV_QPS_SQD {
            drop(kept);
            return self.post_now(wrs, posting);
        }
        let room = (self.init.cap.max_send_wr.max(1) as usize).saturating_sub(kept.len());
        let fits = match posting {
            Posting::Whole if room < wrs.len() => 0,
            _ => room.min(wrs.len()),
        };
        wrs[..fits].iter().for_each(|wr| kept.push(wr));
        match fits == wrs.len() {
            true => Ok(()),
            false => Err(PostFailure { posted: fits, status: VpStatus::TooManyWrs }),
        }
    }

    /// The state becomes another one than SQD: posts what was kept.
    pub(super) fn post_kept(&self, kept: &mut List, state: u32) {
        for request in (0..kept.len()).filter_map(|at| kept.request(at)) {
            if state != IBV_QPS_RESET
                && let Err(failure) = self.post_now(std::slice::from_ref(&request), Posting::Part)
            {
                self.refuse_kept(request.wr_id, failure);
            }
        }
        kept.clear();
    }

    /// A request that is invalid, or that finds the queue full of completions that were not polled.
    fn refuse_kept(&self, wr_id: u64, failure: PostFailure) {
        tracing::warn!("a send that was posted in SQD is refused: {failure}");
        let (status, qp_num) = (IBV_WC_LOC_QP_OP_ERR, self.number);
        let wc = ibv_wc { wr_id, status, qp_num, ..ibv_wc::default() };
        self.init.send_cq.add(&[wc]);
    }

    /// Whether requests that were posted before SQD are under way.
    pub(super) fn drains(&self) -> bool {
        let under_way = self.vp.query().is_ok_and(|info| info.sends_outstanding > 0);
        self.state() == IBV_QPS_SQD && under_way
    }

    /// Reports when no request is under way any more.
    pub(super) fn report_when_drained(self: &Arc<Self>) {
        let this: Weak<Self> = Arc::downgrade(self);
        let later = || {
            let adapter = self.adapter().ok()?;
            adapter.points().retries.at(Instant::now() + STATE_CHECK, this).then_some(())
        };
        // Without a thread that checks, the event comes too early rather than never.
        if !self.drains() || later().is_none() {
            self.push(IBV_EVENT_SQ_DRAINED);
        }
    }
}

impl Retry for Qp {
    fn retry(self: Arc<Self>) {
        if self.state() == IBV_QPS_SQD {
            self.report_when_drained();
        }
    }
}
