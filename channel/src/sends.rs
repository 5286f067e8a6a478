//! Requests of a channel's send queue: how many are outstanding, and which of them are signalled. Plain data without IO.
//!
//! Owner: the state of the channel, under its lock. With the connection all of them are gone.

use std::collections::VecDeque;

use crate::tuning::{SIGNAL_EVERY, SIGNAL_OCTETS};

/// See the module.
#[derive(Default)]
pub(crate) struct Sends {
    /// Not known to be complete.
    pub(crate) used: u32,
    /// Posted since the last one with a completion.
    pub(crate) unsignalled: u32,
    /// Octets of the buffers in these.
    pub(crate) octets: usize,
    /// For each signalled request, the number of requests that its completion covers.
    pub(crate) signalled: VecDeque<u32>,
}

impl Sends {
    /// Whether a request with a buffer of `octets` is to be signalled.
    #[inline]
    pub(crate) fn must_signal(&self, octets: usize) -> bool {
        self.unsignalled + 1 >= SIGNAL_EVERY || self.octets + octets >= SIGNAL_OCTETS
    }

    /// Records a posted request with a buffer of `octets`.
    #[inline]
    pub(crate) fn posted(&mut self, octets: usize, signalled: bool) {
        self.used += 1;
        self.unsignalled += 1;
        self.octets += octets;
        if signalled {
            self.octets = 0;
            self.signalled.push_back(std::mem::take(&mut self.unsignalled));
        }
    }

    /// Records a completion.
    #[inline]
    pub(crate) fn completed(&mut self) {
        self.used -= self.signalled.pop_front().unwrap_or(0);
    }
}
