//! The state of a queue pair as programs see it, and the life in which it is: what lies between two resets.
//!
//! All changes are made under one lock, that of the sends that SQD keeps. The end of a stream may be delivered after
//! the queue pair was reset and is in use again. So each start-up, and each object that reports events of a stream,
//! holds the number of its life; what it reports of an earlier life is dropped.

use std::sync::atomic::Ordering;

use ibv_sys::*;
use kal_os::lock;
use vp_api::QpChange;

use super::Qp;
use crate::errno::{EINVAL, Errno};
use crate::wr_list::List;

impl Qp {
    /// `IBV_QPS_…`, as programs see it.
    #[inline]
    pub fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Sets the state, whatever it was: the owner's stream exists or is over, or the application asked for
    /// ERR or RESET.
    pub fn set_state(&self, state: u32) {
        let has_failed = self.store_state(&mut lock(&self.kept), state);
        if state == IBV_QPS_ERR {
            self.failed(has_failed);
        }
    }

    /// Changes the state that the application knows.
    ///
    /// # Errors
    /// EINVAL: it is no longer `from`, because the stream ended meanwhile.
    pub(super) fn change_state(&self, from: u32, to: u32) -> Result<(), Errno> {
        let mut kept = lock(&self.kept);
        if self.state() != from {
            return Err(EINVAL);
        }
        self.store_state(&mut kept, to);
        Ok(())
    }

    /// `kept`: held, so that one change follows the other. Returns whether it is ERR now and was not.
    pub(super) fn store_state(&self, kept: &mut List, state: u32) -> bool {
        if state != IBV_QPS_SQD {
            self.post_kept(kept, state);
        }
        let before = self.state.swap(state, Ordering::AcqRel);
        self.mirror.set(state);
        state == IBV_QPS_ERR && before != state
    }

    /// It is in ERR, since just now if `is_new`: all completions are returned, and no receive is taken from a shared
    /// queue any more, which programs wait for (InfiniBand Architecture Specification 1.4, section 11.6.3.1).
    pub(super) fn failed(&self, is_new: bool) {
        self.release();
        if is_new && self.init.srq.is_some() {
            self.push(IBV_EVENT_QP_LAST_WQE_REACHED);
        }
    }

    /// Numbers what lies between two resets, in the adapter's [`ual_cm::Sequence`]: who makes a stream keeps
    /// it, because the end of that stream may be delivered when the queue pair was reset and is used again.
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }

    pub(super) fn begin_life(&self) -> Result<(), Errno> {
        let next = self.adapter()?.directory().sequence().next();
        let _kept = lock(&self.kept);
        self.life.store(next, Ordering::Release);
        Ok(())
    }

    /// Does this if the present life is one of `these`; a reset waits meanwhile. Returns whether it is.
    pub(super) fn during(
        &self,
        these: impl FnOnce(u64) -> bool,
        act: impl FnOnce(&mut List),
    ) -> bool {
        let mut kept = lock(&self.kept);
        let is_one = these(self.life());
        if is_one {
            act(&mut kept);
        }
        is_one
    }

    /// The stream of this life is over, or none was established: from now on posts complete as flushed. `lost`:
    /// the peer did not come, or does not respond.
    pub fn ended(&self, life: u64, lost: bool) {
        let mut has_failed = false;
        let is_now = self.during(
            |now| now == life,
            |kept| {
                self.lost.fetch_or(lost, Ordering::AcqRel);
                has_failed = self.store_state(kept, IBV_QPS_ERR);
                // Refused if the provider is in that state already.
                let _ = self.vp.modify(QpChange::Error);
            },
        );
        if !is_now {
            return;
        }
        self.failed(has_failed);
        if lost {
            self.push(IBV_EVENT_QP_FATAL);
        }
    }
}
