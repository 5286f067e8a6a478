//! Work requests that are posted when no device takes them any more, after the end of a connection:
//! each completes as flushed, behind everything that was posted before it.
//!
//! Owner: a queue; always locked before its [`Ring`], which counts the slots. Any thread posts, and whoever
//! polls brings what is ready to its CQ. On reuse of the queue pair it is empty; a full queue refuses.

use std::collections::VecDeque;

use vp_api::{VpStatus, WorkCompletion};

use crate::cq::Told;
use crate::ring::{Ring, Taken};

/// Those of one queue.
#[derive(Debug, Default)]
pub(crate) struct Late(VecDeque<Told>);

impl Late {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes a request that becomes `flushed`, if the queue has a slot for it.
    pub(crate) fn post<P>(
        &mut self,
        ring: &Ring<P>,
        flushed: WorkCompletion,
    ) -> Result<(), VpStatus> {
        if ring.room() == 0 {
            return Err(VpStatus::TooManyWrs);
        }
        self.0.try_reserve(1).map_err(|_| VpStatus::InsufficientResources)?;
        self.0.push_back(Told { completion: flushed, source: None, untaken: ring.wait(1) });
        Ok(())
    }

    /// Those whose turn it is: all, when the device has ended what was posted before.
    pub(crate) fn ready<P>(&mut self, ring: &mut Ring<P>) -> VecDeque<Told> {
        if ring.len() != 0 {
            return VecDeque::new();
        }
        let mut ready = std::mem::take(&mut self.0);
        if let Some(first) = ready.front_mut() {
            first.untaken.join(ring.tell(0, Taken::Later));
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use vp_api::{QpId, WcOpcode};

    use super::*;
    use crate::cq::flushed;
    use crate::ring::Posted;

    #[test]
    fn they_come_behind_what_the_device_has_and_occupy_slots_until_they_are_taken() {
        let mut ring = Ring::<Posted>::new(3).unwrap();
        let wc = |n| flushed(QpId(1), n, WcOpcode::Send);
        ring.push(Posted { wr_id: 0, opcode: WcOpcode::Send, signaled: false }, false);
        let mut late = Late::default();
        assert_eq!(late.post(&ring, wc(1)), Ok(()));
        assert_eq!(late.post(&ring, wc(2)), Ok(()));
        assert_eq!(late.post(&ring, wc(3)), Err(VpStatus::TooManyWrs));
        assert_eq!(late.ready(&mut ring).len(), 0);
        ring.end(0).unwrap();
        ring.add_silent(1);
        let mut ready = late.ready(&mut ring);
        assert_eq!((ready.len(), late.len(), ring.room()), (2, 0, 0));
        // The first one frees the silent one before it, too.
        ready.pop_front();
        assert_eq!(ring.room(), 2);
        ready.pop_front();
        assert_eq!(ring.room(), 3);
    }
}
