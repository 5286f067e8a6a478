//! Moves completions from the provider's queue to the staging queue.
//!
//! The rule: when the pump rests, the provider's queue was armed and then found empty, or the
//! staging queue was full ("stalled") and whoever makes room pumps. One thread pumps at a time, so
//! the order stays. An overrun of the provider's queue makes the staging queue fail.

use vp_api::{Cq, QpId, VpStatus, WorkCompletion};

use super::core::Core;
use super::{Event, is_notification};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Completions moved in one go.
const BATCH: usize = 32;

/// Where completions come from: what the pump needs of a [`Cq`].
pub(super) trait Spring {
    /// As [`Cq::poll`].
    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus>;
    /// As [`Cq::arm`], for any completion.
    fn arm(&self) -> Result<(), VpStatus>;
}

impl Spring for &dyn Cq {
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

    /// Moves everything there is and arms the spring.
    pub(super) fn run(&self, spring: &impl Spring, core: &Core<Event>) {
        let _running = lock(&self.running);
        if let Err(status) = self.run_locked(spring, core) {
            core.fail(status);
        }
    }

    fn run_locked(&self, spring: &impl Spring, core: &Core<Event>) -> Result<(), VpStatus> {
        self.stalled.store(false, Ordering::SeqCst);
        loop {
            while self.step(spring, core)? {}
            if core.read(|state| state.room()) == 0 {
                self.stalled.store(true, Ordering::SeqCst);
                // Whoever made room before that does not pump.
                if core.read(|state| state.room()) == 0 {
                    return Ok(());
                }
                self.stalled.store(false, Ordering::SeqCst);
                continue;
            }
            // Poll, arm, poll: what comes after the arming rings again.
            spring.arm()?;
            if !self.step(spring, core)? {
                return Ok(());
            }
        }
    }

    /// One batch; true if there may be more and there is room.
    fn step(&self, spring: &impl Spring, core: &Core<Event>) -> Result<bool, VpStatus> {
        let room = core.take_with(|state| state.room_for(BATCH));
        if room == 0 {
            return Ok(false);
        }
        let mut batch = [WorkCompletion::BLANK; BATCH];
        let found = spring.poll(&mut batch[..room])?;
        if found > 0 {
            core.add(|state| {
                let mut news = false;
                for completion in &batch[..found] {
                    let notifies = is_notification(completion);
                    state.push_always(Event::Completion(*completion), notifies);
                    news |= notifies;
                }
                news
            });
        }
        Ok(found > 0)
    }

    /// Takes what a destroyed queue pair left out of the staging queue. What the pump has in hand is
    /// there first.
    pub(super) fn forget(&self, qp: QpId, core: &Core<Event>) {
        let _running = lock(&self.running);
        let is_of = |event: &Event| matches!(event, Event::Completion(c) if c.qp == qp);
        core.take_with(|state| state.remove(is_of));
    }

    /// The pump waits for room: whoever made some runs it.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::SeqCst)
    }
}
