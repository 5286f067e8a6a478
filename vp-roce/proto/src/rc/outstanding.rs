//! Read Requests and atomics that were sent and have no complete response yet: how many there may be is
//! agreed (`initiator_depth`).
//!
//! A Read Request that is repeated asks for no response beyond those of the one that it repeats: responders take
//! what begins before the expected PSN for a repetition, and such as ends behind it for nonsense.
//!
//! Owner of the state: the requester. When full no further one is sent.

use alloc::collections::{TryReserveError, VecDeque};

use crate::psn::Psn;

/// The PSNs of the last responses of each, in order.
#[derive(Debug)]
pub(super) struct Outstanding {
    last: VecDeque<Psn>,
    /// So many of the front are under way; the others are to be repeated.
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
    /// A new request may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.last.len() < self.most
    }
    /// A request was sent, or repeated.
    pub(super) fn sent(&mut self, last: Psn) {
        if self.sent == self.last.len() {
            self.last.push_back(last);
        }
        self.sent += 1;
    }
    /// The response with `psn` has arrived, and so have those before it.
    pub(super) fn arrived(&mut self, psn: Psn) {
        while self.last.front().is_some_and(|last| last.ahead_of(psn) <= 0) {
            self.last.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
    }
    /// All are to be repeated.
    pub(super) fn go_back(&mut self) {
        self.sent = 0;
    }
}
