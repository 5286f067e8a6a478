//! Arm state of a CQ: the notification that a consumer asked for, and those that pushers still owe.
//!
//! Owner: a [`super::CqRing`]. Consumers arm, pushers fire; both under a small lock, which a pusher takes
//! only if the word says that there may be a notification for it. Peers play no part.
//!
//! A pusher looks at the state some time after its completion can be popped. Meanwhile a consumer may pop
//! it and arm again. So a request is for completions from a place on, the first one that could not be popped
//! when it was made; and one that a completion before that place met is owed by that completion's pusher.

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence, lock};

// Requests; the stronger one is the greater number.
const UNARMED: u32 = 0;
const SOLICITED: u32 = 1;
const NEXT: u32 = 2;
/// Bit of the word: notifications are owed.
const OWED: u32 = 4;

/// The arm state.
#[derive(Default)]
pub(super) struct ArmState {
    /// The request and `OWED`; written under the lock.
    word: AtomicU32,
    request: Mutex<Request>,
    /// The place after the last completion that a solicited request is for.
    solicited_end: AtomicU64,
}

#[derive(Default)]
struct Request {
    /// It is for completions from this place on.
    from: u64,
    /// Earlier requests that were met, and whose notifications did not fire yet.
    owed: u32,
}

impl ArmState {
    /// A completion gets this place that a solicited request is for; before it can be popped.
    pub(super) fn note_solicited(&self, place: u64) {
        self.solicited_end.fetch_max(place + 1, Ordering::Relaxed);
    }

    /// Requests one notification. `visible`: the place after those, from the given one on, that can be
    /// popped or were.
    pub(super) fn arm(&self, solicited_only: bool, visible: impl FnOnce(u64) -> u64) {
        let new = if solicited_only { SOLICITED } else { NEXT };
        let mut request = lock(&self.request);
        let word = self.word.load(Ordering::Relaxed);
        let (before, owed) = (word & !OWED, word & OWED);
        // RDMAC 8.2.5: if any pending request says "next", any completion fires.
        self.word.store(new.max(before) | owed, Ordering::Release);
        // Before it looks: see the arm rule. A pusher that reads the word waits for the lock.
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

    /// Takes the notifications that are due after a put that ended before `end`; how many. The put is
    /// visible before that. Only one pusher gets each. RDMAC 8.2.5 [VERBS-21] [RDMAP-14]
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
