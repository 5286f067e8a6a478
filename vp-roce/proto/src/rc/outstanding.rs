//! Outstanding Read Requests and atomics: those without a complete response, at most `initiator_depth`.
//!
//! A repeated Read Request asks for no more responses than the original: responders take one that begins before
//! the expected PSN for a repetition, and one that ends after it for invalid.
//!
//! Owner of the state: the requester. When full, no more are sent.

use alloc::collections::{TryReserveError, VecDeque};

use crate::psn::Psn;

/// The PSN of the last response of each, in order.
#[derive(Debug)]
pub(super) struct Outstanding {
    last: VecDeque<Psn>,
    /// Number of requests, from the front, that are outstanding; the others are to be repeated.
    sent: usize,
    most: usize,
}

impl Outstanding {
    pub(super) fn new(most: u8) -> Result<Self, TryReserveError> {
        let mut last = VecDeque::new();
        last.try_reserve_exact(usize::from(most))?;
        Ok(Self { last, sent: 0, most: usize::from(most) })
    }
    /// The last response of the request that is to be repeated next.
    pub(super) fn repeated(&self) -> Option<Psn> {
        self.last.get(self.sent).copied()
    }
    /// Whether a new request may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.last.len() < self.most
    }
    /// Records that a request was sent, or repeated.
    pub(super) fn sent(&mut self, last: Psn) {
        if self.sent == self.last.len() {
            self.last.push_back(last);
        }
        self.sent += 1;
    }
    /// Records that the response with `psn`, and those before it, have arrived.
    pub(super) fn arrived(&mut self, psn: Psn) {
        while self.last.front().is_some_and(|last| last.ahead_of(psn) <= 0) {
            self.last.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
    }
    /// Marks all to be repeated.
    pub(super) fn go_back(&mut self) {
        self.sent = 0;
    }
}
