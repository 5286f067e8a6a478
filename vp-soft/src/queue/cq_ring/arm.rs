//! Arm state of a CQ: the notification that a consumer requested, and those that pushers still owe.
//!
//! Owner: a [`super::CqRing`]. Consumers arm, pushers fire; both under a small lock. A pusher takes the lock only
//! if the atomic word says that there may be a notification to fire. Peers have no influence.
//!
//! A pusher reads the state some time after its completion can be popped. Meanwhile a consumer may pop the
//! completion and arm again. So a request applies to completions from a position on: the first position that could
//! not be popped when the request was made. If a completion before that position met an earlier request, the pusher
//! of that completion owes the notification.

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence, lock};

// Requests; the stronger one is the greater number.
const UNARMED: u32 = 0;
const SOLICITED: u32 = 1;
const NEXT: u32 = 2;
/// Bit of the word: there are owed notifications.
const OWED: u32 = 4;

/// The arm state.
#[derive(Default)]
pub(super) struct ArmState {
    /// The request and `OWED`; written under the lock.
    word: AtomicU32,
    request: Mutex<Request>,
    /// The position after the last completion that meets a solicited request.
    solicited_end: AtomicU64,
}

#[derive(Default)]
struct Request {
    /// The request applies to completions from this position on.
    from: u64,
    /// Earlier requests that were met, and whose notifications have not fired yet.
    owed: u32,
}

impl ArmState {
    /// Records the position of a completion that meets a solicited request. Called before it can be popped.
    pub(super) fn note_solicited(&self, place: u64) {
        self.solicited_end.fetch_max(place + 1, Ordering::Relaxed);
    }

    /// Requests one notification. `visible` gets a position, and returns the position at or after it before which
    /// all completions can be popped or were popped.
    pub(super) fn arm(&self, solicited_only: bool, visible: impl FnOnce(u64) -> u64) {
        let new = if solicited_only { SOLICITED } else { NEXT };
        let mut request = lock(&self.request);
        let word = self.word.load(Ordering::Relaxed);
        let (before, owed) = (word & !OWED, word & OWED);
        // RDMAC 8.2.5: if any pending request says "next", any completion fires.
        self.word.store(new.max(before) | owed, Ordering::Release);
        // Set before it reads the ring: see the rule for arming. A pusher that reads the word waits for the lock.
        fence(Ordering::SeqCst);
        let end = visible(request.from);
        let met = end > request.from
            && match before {
                NEXT => true,
                SOLICITED => self.solicited_end.load(Ordering::Relaxed) > request.from,
                _ => false,
            };
        request.from = end;
        if met {
            request.owed += 1;
            self.word.store(new | OWED, Ordering::Release);
        }
    }

    /// Whether a request waits for a completion, or a notification is owed.
    pub(super) fn is_armed(&self) -> bool {
        self.word.load(Ordering::Relaxed) != UNARMED
    }

    /// Takes the notifications that are due after a put that ended before `end`, and returns how many. The
    /// completions put are visible before that. Only one pusher gets each notification. RDMAC 8.2.5 [VERBS-21]
    /// [RDMAP-14]
    #[inline]
    pub(super) fn fire(&self, end: u64, solicited: impl Fn() -> bool) -> u32 {
        match self.word.load(Ordering::Acquire) {
            UNARMED => 0,
            SOLICITED if !solicited() => 0,
            _ => self.fire_locked(end, solicited),
        }
    }

    #[inline(never)]
    fn fire_locked(&self, end: u64, solicited: impl Fn() -> bool) -> u32 {
        let mut request = lock(&self.request);
        let owed = std::mem::take(&mut request.owed);
        let before = self.word.load(Ordering::Relaxed) & !OWED;
        let fires = end > request.from && (before == NEXT || (before == SOLICITED && solicited()));
        self.word.store(if fires { UNARMED } else { before }, Ordering::Release);
        owed + u32::from(fires)
    }
}
