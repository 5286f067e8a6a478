//! Posting: a request takes a slot of its queue, or is refused.
//!
//! Runs under the lock of the queue pair, in the consumer's thread. In Error it is flushed at once.

use vp_api::{PostFailure, QpState, RecvWr, SendWr, VpStatus, WcStatus};

use super::queues::Pending;
use super::{RoceQp, State, send};
use crate::tuning::BATCH_OCTETS;

impl RoceQp {
    /// Returns the octets that it sends.
    pub(super) fn post_one(&self, state: &mut State, wr: &SendWr<'_>) -> Result<u64, VpStatus> {
        let takes_sends = state.takes_sends();
        let State { queues, record, .. } = state;
        let slot = queues.send_slot();
        let post = send::post_of(wr, slot)?;
        queues.sends.check(wr)?;
        if !queues.has_send_slot(&self.context) {
            record.publish_refusal();
            return Err(VpStatus::TooManyWrs);
        }
        queues.sends.store(slot, wr);
        queues.take_send_slot();
        if takes_sends {
            queues.pending.push_back(Pending { slot, flags: wr.flags, post });
        } else {
            queues.complete_send(&self.context, slot, WcStatus::Flushed);
        }
        // An operation on local memory has an effect for which the consumer may wait without a poll.
        Ok(post.map_or(BATCH_OCTETS, |post| if post.is_sent() { post.len.into() } else { 0 }))
    }

    pub(super) fn post_one_receive(
        &self,
        state: &mut State,
        wr: &RecvWr<'_>,
    ) -> Result<(), VpStatus> {
        let State { phase, queues, record, .. } = state;
        queues.receives.check(wr)?;
        if !queues.has_receive_slot(&self.context) {
            record.publish_refusal();
            return Err(VpStatus::TooManyWrs);
        }
        queues.receives.post(wr)?;
        if *phase == QpState::Error {
            queues.flush(&self.context);
        }
        Ok(())
    }
}

/// Posts requests one after the other, and returns how many were posted.
pub(crate) fn each<T>(
    wrs: &[T],
    mut post: impl FnMut(&T) -> Result<(), VpStatus>,
) -> Result<(), PostFailure> {
    let post = |(posted, wr)| post(wr).map_err(|status| PostFailure { posted, status });
    wrs.iter().enumerate().try_for_each(post)
}

pub(crate) const GONE: PostFailure = PostFailure { posted: 0, status: VpStatus::InvalidHandle };
