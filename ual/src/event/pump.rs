//! The pump: moves completions from the provider's queue to the staging queue.
//!
//! The rule: when the pump stops, the provider's queue was armed and then found empty, or the staging
//! queue was full ("stalled") and the thread that makes room runs the pump. One thread pumps at a time,
//! so the order is kept. An overrun of the provider's queue makes the staging queue fail.

use vp_api::{Cq, QpId, VpStatus, WorkCompletion};

use super::event_queue::EventQueue;
use super::{Event, is_notification};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use crate::tuning::STAGED_BATCH;

/// Where completions come from: the part of a [`Cq`] that the pump needs.
pub(super) trait CompletionSource {
    /// As [`Cq::poll`].
    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus>;
    /// As [`Cq::arm`], for any completion.
    fn arm(&self) -> Result<(), VpStatus>;
}

impl CompletionSource for &dyn Cq {
    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        Cq::poll(*self, out)
    }
    fn arm(&self) -> Result<(), VpStatus> {
        Cq::arm(*self, false)
    }
}

/// The pump of one dispatcher.
pub(super) struct Pump {
    running: Mutex<()>,
    stalled: AtomicBool,
}

impl Pump {
    pub(super) fn new() -> Self {
        Self { running: Mutex::new(()), stalled: AtomicBool::new(false) }
    }

    /// Moves all completions and arms the source.
    pub(super) fn run(&self, source: &impl CompletionSource, queue: &EventQueue<Event>) {
        let _running = lock(&self.running);
        if let Err(status) = self.run_locked(source, queue) {
            queue.fail(status);
        }
    }

    fn run_locked(
        &self,
        source: &impl CompletionSource,
        queue: &EventQueue<Event>,
    ) -> Result<(), VpStatus> {
        self.stalled.store(false, Ordering::SeqCst);
        loop {
            while self.step(source, queue)? {}
            if queue.read(|state| state.room()) == 0 {
                self.stalled.store(true, Ordering::SeqCst);
                // A thread that made room before that does not pump.
                if queue.read(|state| state.room()) == 0 {
                    return Ok(());
                }
                self.stalled.store(false, Ordering::SeqCst);
                continue;
            }
            // Poll, arm, poll: a completion after the arming requests the pump again.
            source.arm()?;
            if !self.step(source, queue)? {
                return Ok(());
            }
        }
    }

    /// One batch; true if there may be more and there is room.
    fn step(
        &self,
        source: &impl CompletionSource,
        queue: &EventQueue<Event>,
    ) -> Result<bool, VpStatus> {
        let room = queue.take_with(|state| state.room_for(STAGED_BATCH));
        if room == 0 {
            return Ok(false);
        }
        let mut batch = [WorkCompletion::BLANK; STAGED_BATCH];
        let found = source.poll(&mut batch[..room])?;
        if found > 0 {
            queue.add(|state| {
                let mut notifying = false;
                for completion in &batch[..found] {
                    let notifies = is_notification(completion);
                    state.push_always(Event::Completion(*completion), notifies);
                    notifying |= notifies;
                }
                notifying
            });
        }
        Ok(found > 0)
    }

    /// Removes a destroyed queue pair's completions from the staging queue, after the pump has added
    /// those that it holds.
    pub(super) fn forget(&self, qp: QpId, queue: &EventQueue<Event>) {
        let _running = lock(&self.running);
        let is_of = |event: &Event| matches!(event, Event::Completion(c) if c.qp == qp);
        queue.take_with(|state| state.remove(is_of));
    }

    /// The pump waits for room: a thread that makes some runs it.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::SeqCst)
    }
}
