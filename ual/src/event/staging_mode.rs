//! The staging mode of a dispatcher of completions: whether completions are taken straight from the
//! provider's queue, and whether threads may wait in it.
//!
//! One word per dispatcher, which only advances:
//!
//! | mode | polls | waits |
//! |---|---|---|
//! | direct | the provider's queue | in the provider's queue |
//! | mixed | the provider's queue | the first one makes it staged |
//! | staged | the staging queue | on the staging queue |
//!
//! Checking and changing are transitions. Mixed is for settings that only waiters notice: completions
//! that do not count, a threshold. Before a completion that does not count can exist, all threads that
//! sleep in the provider's queue are woken and leave it: such a completion would end their waits.

use crate::sync::{AtomicU8, AtomicU32, Mutex, Ordering, fence, lock, yield_now};

const DIRECT: u8 = 0;
const MIXED: u8 = 1;
const CHECKING: u8 = 2;
const STAGED: u8 = 3;
const CHANGING: u8 = 4;

/// The mode, and the number of threads that wait inside the provider's queue.
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
    /// `plain`: every completion ends a wait.
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
    pub(super) fn allows_uncounted(&self) -> bool {
        matches!(self.mode.load(Ordering::Acquire), MIXED | STAGED)
    }

    /// Waits go to the provider's queue.
    pub(super) fn is_direct(&self) -> bool {
        self.mode.load(Ordering::SeqCst) == DIRECT
    }

    /// Enters the provider's queue to wait there, if the mode is direct.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        // Counted before the mode is read; a change sets the mode before it reads the count. With the
        // fence on either side, one of them sees the other.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(self);
        fence(Ordering::SeqCst);
        (self.mode.load(Ordering::SeqCst) == DIRECT).then_some(inside)
    }

    /// Before completions that do not count: no thread may take any completion for a notification.
    /// `watched`: a descriptor does so from outside. Otherwise only polls can be in progress, and may
    /// continue.
    #[cold]
    pub(super) fn allow_uncounted<E>(
        &self,
        watched: impl FnOnce() -> bool,
        wake_waiters: impl Fn(),
        stage: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let _changing = lock(&self.changing);
        if self.allows_uncounted() {
            return Ok(());
        }
        self.mode.store(CHECKING, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.inside.load(Ordering::SeqCst) == 0 && !watched() {
            self.mode.store(MIXED, Ordering::SeqCst);
            return Ok(());
        }
        self.change_mode(DIRECT, wake_waiters, stage)
    }

    /// Changes to staged. `wake_waiters` makes those inside leave soon, `stage` makes the staging queue
    /// work; if that fails, the mode stays as it was.
    #[cold]
    pub(super) fn stage<E>(
        &self,
        wake_waiters: impl Fn(),
        stage: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let _changing = lock(&self.changing);
        match self.mode.load(Ordering::SeqCst) {
            STAGED => Ok(()),
            before => self.change_mode(before, wake_waiters, stage),
        }
    }

    fn change_mode<E>(
        &self,
        before: u8,
        wake_waiters: impl Fn(),
        stage: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.mode.store(CHANGING, Ordering::SeqCst);
        self.empty(wake_waiters);
        let staged = stage();
        let mode = if staged.is_ok() { STAGED } else { before };
        self.mode.store(mode, Ordering::SeqCst);
        staged
    }

    /// Waits until no thread is inside; one that enters must have a reason to leave at once.
    pub(super) fn empty(&self, wake_waiters: impl Fn()) {
        fence(Ordering::SeqCst);
        // A thread that is about to sleep may miss the first call.
        while self.inside.load(Ordering::SeqCst) != 0 {
            wake_waiters();
            yield_now();
        }
    }

    /// Runs `act` while the mode cannot change; `act` gets whether it is direct.
    pub(super) fn hold<R>(&self, act: impl FnOnce(bool) -> R) -> R {
        let _changing = lock(&self.changing);
        act(self.mode.load(Ordering::SeqCst) == DIRECT)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use warpline_patience::within;

    use super::*;

    /// Allows uncounted completions; returns whether that staged the queue.
    fn allowed(mode: &StagingMode, watched: bool) -> bool {
        let mut staged = false;
        let stage = || {
            staged = true;
            Ok::<_, ()>(())
        };
        let allow_uncounted = || mode.allow_uncounted(|| watched, || {}, stage);
        assert_eq!(within("staging of a queue without waiters", allow_uncounted), Ok(()));
        staged
    }

    #[test]
    fn a_watched_queue_is_staged_for_quiet_completions() {
        let (alone, watched) = (StagingMode::new(true), StagingMode::new(true));
        assert!(!allowed(&alone, false) && allowed(&watched, true));
        assert!(alone.polls_directly() && !watched.polls_directly());
        // Once is enough.
        for mode in [&alone, &watched] {
            assert!(mode.allows_uncounted() && !allowed(mode, true));
            assert!(mode.enter().is_none());
        }
    }

    #[test]
    fn a_queue_that_cannot_be_staged_stays_as_it_was() {
        let mode = StagingMode::new(true);
        let stage = || mode.stage(|| {}, || Err(()));
        assert_eq!(within("staging that fails", stage), Err(()));
        assert!(mode.is_direct() && mode.enter().is_some());
    }
}
