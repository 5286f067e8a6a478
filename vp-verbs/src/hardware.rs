//! The device's queue pair that implements a queue pair of this provider: its handle, its number, and posting to
//! it.
//!
//! Owner: a queue pair, connected or for datagrams, in a [`Slot`]. Any thread posts, with the slot's lock held
//! shared and the queue's ring locked. The thread that destroys it holds the slot's lock exclusively. Each life of
//! a queue pair has its own queue pair of the device, because not every device can reset one that has ended.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use vp_api::{RecvWr, VpResult, VpStatus};

use crate::device::Context;
use crate::owned::{Owned, refused};
use crate::ring::Ring;
use crate::wire::{Batch, Link, SGES};
use ibv_sys::*;

/// Marks the number of a receive.
pub(crate) const RECV: u64 = 1 << 63;
/// Marks the number of a request that the provider posts for itself, see [`Hardware::post_own`].
pub(crate) const MARK: u64 = 1 << 61;

/// The device's queue pair in the present life.
pub(crate) struct Hardware {
    pub(crate) raw: Owned<ibv_qp>,
    pub(crate) number: u32,
    /// Distinguishes completions of this life from those of an earlier one.
    pub(crate) serial: u32,
}

/// Holds it; empty before the first life and after it is destroyed.
#[derive(Default)]
pub(crate) struct Slot(RwLock<Option<Hardware>>);

impl Slot {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Option<Hardware>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, hardware: Hardware) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(hardware);
    }

    /// The queue pair number that peers use; `None` once destroyed.
    pub(crate) fn number(&self) -> Option<u32> {
        self.read().as_ref().map(|hardware| hardware.number)
    }

    /// Destroys the device's queue pair and returns its number. On an error it stays. `what` names it in the
    /// message.
    pub(crate) fn end(&self, what: &str) -> VpResult<Option<u32>> {
        let mut slot = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(Hardware { raw, number, serial }) = slot.take() else { return Ok(None) };
        match raw.destroy() {
            Ok(()) => Ok(Some(number)),
            Err((raw, error)) => {
                *slot = Some(Hardware { raw, number, serial });
                Err(refused(&format!("destroy the {what}"))(error))
            }
        }
    }
}

impl Hardware {
    /// The work request id that the device returns in the completion of the request with this number in its ring.
    pub(crate) fn wr_id(&self, number: u32) -> u64 {
        u64::from(self.serial) << 32 | u64::from(number)
    }

    /// Posts the chain, and returns how many requests the device took. On an error the requests that it did not
    /// take are removed from the ring.
    pub(crate) fn submit<P>(
        &self,
        context: &Context,
        batch: &mut Batch<ibv_send_wr>,
        ring: &mut Ring<P>,
    ) -> Result<usize, (usize, VpStatus)> {
        let (before, count) = (ring.len(), batch.len());
        let post = context.ops().post_send;
        let posted = batch.submit(|wrs, bad| match post {
            // SAFETY: the queue pair is alive under the slot's lock. The chain is alive during the call, and so
            // are, through the ring, the address handles that it names.
            Some(post) => unsafe { post(self.raw.as_ptr(), wrs, bad) },
            None => libc::EOPNOTSUPP,
        });
        posted.map(|()| count).inspect_err(|(taken, _)| {
            while ring.len() > before - (count - taken) {
                ring.unpush();
            }
        })
    }

    /// Posts a request of the provider after unsignalled ones when the device only flushes. Those that have
    /// succeeded end without a completion, and late posts wait for them. There is room in the queue: a request that
    /// fills the queue is always signalled. So there is room in a CQ that is as deep as its queues.
    pub(crate) fn post_mark<P>(
        &self,
        context: &Context,
        ring: &mut Ring<P>,
        mut wr: ibv_send_wr,
        posted: P,
    ) {
        wr.send_flags = IBV_SEND_SIGNALED;
        self.post_own(context, ring, wr, posted);
    }

    /// Posts a request of the provider; the consumer gets no completion of it.
    pub(crate) fn post_own<P>(
        &self,
        context: &Context,
        ring: &mut Ring<P>,
        mut wr: ibv_send_wr,
        posted: P,
    ) {
        wr.wr_id = MARK | self.wr_id(ring.next(true).0);
        let mut batch = Batch::new();
        batch.add(wr, std::iter::empty());
        ring.push_ours(posted, wr.send_flags & IBV_SEND_SIGNALED != 0);
        // Refused: the device accepts no more requests, which it reports elsewhere.
        let _ = self.submit(context, &mut batch, ring);
    }

    /// Posts one receive with at most `most` elements; its memory is described by `sink`.
    pub(crate) fn post_recv<P>(
        &self,
        context: &Context,
        ring: &mut Ring<P>,
        (wr, most): (&RecvWr<'_>, u32),
        sink: impl Iterator<Item = ibv_sge>,
        posted: P,
    ) -> Result<(), VpStatus> {
        if wr.sgl.len() > SGES.min(most as usize) {
            return Err(VpStatus::InvalidSgl);
        }
        if ring.room() == 0 {
            return Err(VpStatus::TooManyWrs);
        }
        let post = context.ops().post_recv.ok_or(VpStatus::Unsupported)?;
        let (number, signalled) = ring.next(true);
        let wr_id = RECV | self.wr_id(number);
        let mut batch = Batch::new();
        batch.add(ibv_recv_wr { wr_id, ..ibv_recv_wr::BLANK }, sink);
        ring.push(posted, signalled);
        // SAFETY: the queue pair is alive under the slot's lock, and the chain during the call.
        let done = batch.submit(|wrs, bad| unsafe { post(self.raw.as_ptr(), wrs, bad) });
        done.map_err(|(_, status)| {
            ring.unpush();
            status
        })
    }
}
