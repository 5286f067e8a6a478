//! Leading: a thread that waits on a staged or aggregate dispatcher serves the sockets and moves the
//! completions itself.
//!
//! Without it a message wakes the provider's thread, which wakes the dispatch thread, which wakes the
//! waiter. One waiter of an Ia leads; others sleep at the gate of their dispatcher, and the leader wakes
//! them. When it leaves, both threads take over again. No lock is held while it sleeps.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use kal_shim::Notifier;
use vp_api::{Rnic, VpStatus};

use super::dispatch::{Dispatch, Leader};
use crate::sync::Slept;

/// A thread that leads, at the provider and at the dispatch thread.
pub(super) struct Lead<'a> {
    rnic: &'a dyn Rnic,
    leader: Leader<'a>,
}

impl<'a> Lead<'a> {
    /// `None`: another thread leads.
    pub(super) fn begin(rnic: &'a dyn Rnic, dispatch: &'a Dispatch) -> Option<Self> {
        Some(Self { rnic, leader: dispatch.try_lead()? })
    }

    /// Signalled to wake this thread.
    pub(super) fn notifier(&self) -> &Arc<Notifier> {
        self.leader.notifier()
    }

    /// Serves the sockets until there is something to do, for at most `left`. `None`: the provider does
    /// not support it.
    pub(super) fn sleep(&self, left: Option<Duration>) -> Option<Slept> {
        match self.rnic.lead(self.notifier().as_fd(), left) {
            Ok(true) => Some(Slept::Woken),
            Ok(false) => Some(Slept::TimedOut),
            Err(VpStatus::Interrupted) => Some(Slept::Signal),
            Err(_) => None,
        }
    }

    /// Does what there is to do.
    pub(super) fn work(&self) {
        self.leader.work();
    }
}
