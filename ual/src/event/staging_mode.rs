//! From direct to staged: who takes completions straight from the provider's queue, and who may
//! sleep in it.
//!
//! One word per completion dispatcher, which only goes forward:
//!
//! | mode | polls | waits |
//! |---|---|---|
//! | direct | the provider's queue | in the provider's queue |
//! | mixed | the provider's queue | the first one makes it staged |
//! | staged | the staging queue | on the staging queue |
//!
//! Checking and turning are on the way. Mixed is for what only waiters care about: completions
//! that do not count, a threshold. Before a completion that does not count can exist, all threads that
//! sleep in the provider's queue are woken and leave it: such a completion would end their waits.

use crate::sync::{AtomicU8, AtomicU32, Mutex, Ordering, fence, lock, yield_now};

const DIRECT: u8 = 0;
const MIXED: u8 = 1;
const CHECKING: u8 = 2;
const STAGED: u8 = 3;
const TURNING: u8 = 4;

/// The mode, and how many wait inside the provider's queue.
pub(super) struct StagingMode {
    mode: AtomicU8,
    inside: AtomicU32,
    changing: Mutex<()>,
}

/// The right to wait in the provider's queue.
pub(super) struct Inside<'a>(&'a StagingMode);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StagingMode {
    /// `plain`: every completion is to end a wait.
    pub(super) fn new(plain: bool) -> Self {
        let mode = if plain { DIRECT } else { MIXED };
        Self { mode: AtomicU8::new(mode), inside: AtomicU32::new(0), changing: Mutex::new(()) }
    }

    /// Polls go to the provider's queue.
    #[inline]
    pub(super) fn polls_directly(&self) -> bool {
        self.mode.load(Ordering::Relaxed) < STAGED
    }

    /// Completions that do not count may come.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.mode.load(Ordering::Acquire), MIXED | STAGED)
    }

    /// Waits go to the provider's queue.
    pub(super) fn is_direct(&self) -> bool {
        self.mode.load(Ordering::SeqCst) == DIRECT
    }

    /// Enters the provider's queue to wait there, if that is where to wait.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        // Counted before the mode is looked at; a turn changes the mode before it counts. With the
        // fence on either side, one of them sees the other.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(self);
        fence(Ordering::SeqCst);
        (self.mode.load(Ordering::SeqCst) == DIRECT).then_some(inside)
    }

    /// Nobody may take any completion for news any more. `watched`: somebody does so from outside.
    /// Else only polls can be going on, and they may go on.
    #[cold]
    pub(super) fn unsettle<E>(
        &self,
        watched: impl FnOnce() -> bool,
        expel: impl Fn(),
        stage: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let _changing = lock(&self.changing);
        if self.is_settled() {
            return Ok(());
        }
        self.mode.store(CHECKING, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.inside.load(Ordering::SeqCst) == 0 && !watched() {
            self.mode.store(MIXED, Ordering::SeqCst);
            return Ok(());
        }
        self.turn(DIRECT, expel, stage)
    }

    /// To staged. `expel` makes those inside leave soon, `stage` makes the staging queue work; if
    /// it cannot, all stays as it was.
    #[cold]
    pub(super) fn stage<E>(
        &self,
        expel: impl Fn(),
        stage: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let _changing = lock(&self.changing);
        match self.mode.load(Ordering::SeqCst) {
            STAGED => Ok(()),
            before => self.turn(before, expel, stage),
        }
    }

    fn turn<E>(
        &self,
        before: u8,
        expel: impl Fn(),
        stage: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.mode.store(TURNING, Ordering::SeqCst);
        self.empty(expel);
        let staged = stage();
        let mode = if staged.is_ok() { STAGED } else { before };
        self.mode.store(mode, Ordering::SeqCst);
        staged
    }

    /// Waits until nobody is inside; whoever might come in must have a reason to leave at once.
    pub(super) fn empty(&self, expel: impl Fn()) {
        fence(Ordering::SeqCst);
        // One who is about to sleep does not hear the first call.
        while self.inside.load(Ordering::SeqCst) != 0 {
            expel();
            yield_now();
        }
    }

    /// Runs `act` while the mode stays as it is; it learns whether it is direct.
    pub(super) fn hold<R>(&self, act: impl FnOnce(bool) -> R) -> R {
        let _changing = lock(&self.changing);
        act(self.mode.load(Ordering::SeqCst) == DIRECT)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use warpline_patience::within;

    use super::*;

    /// Lets quiet completions come; whether that staged the queue.
    fn unsettled(mode: &StagingMode, watched: bool) -> bool {
        let mut staged = false;
        let stage = || {
            staged = true;
            Ok::<_, ()>(())
        };
        let unsettle = || mode.unsettle(|| watched, || {}, stage);
        assert_eq!(within("a queue where nobody waits to be staged", unsettle), Ok(()));
        staged
    }

    #[test]
    fn a_queue_is_staged_for_quiet_completions_if_somebody_watches_it() {
        let (alone, watched) = (StagingMode::new(true), StagingMode::new(true));
        assert!(!unsettled(&alone, false) && unsettled(&watched, true));
        assert!(alone.polls_directly() && !watched.polls_directly());
        // Once is enough.
        for mode in [&alone, &watched] {
            assert!(mode.is_settled() && !unsettled(mode, true));
            assert!(mode.enter().is_none());
        }
    }

    #[test]
    fn a_queue_that_cannot_be_staged_stays_as_it_was() {
        let mode = StagingMode::new(true);
        let stage = || mode.stage(|| {}, || Err(()));
        assert_eq!(within("a queue where nobody waits to stay as it is", stage), Err(()));
        assert!(mode.is_direct() && mode.enter().is_some());
    }
}
