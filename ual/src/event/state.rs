//! The state of an event queue: its events and the rules when it notifies, without locks or threads.

use std::collections::VecDeque;
use std::sync::Arc;

use kal_shim::Notifier;
use vp_api::{VpStatus, room};

use crate::error::{Error, Result};

/// What happens when a dispatcher has no room for an event. Connection events are never lost, and a
/// connection request without room is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow {
    /// Report it by an event of the Ia's affiliated dispatcher.
    pub notify: bool,
    /// Accept events again as soon as there is room; otherwise when [`crate::Evd::clear_overflow`] is
    /// called.
    pub auto_reset: bool,
}

impl Default for Overflow {
    fn default() -> Self {
        Self { notify: true, auto_reset: true }
    }
}

/// The aggregate dispatcher that this queue feeds.
pub(super) struct Feed {
    /// Adds this dispatcher to its list, or removes it. Called under the queue's lock.
    pub(super) set_listed: Box<dyn Fn(bool) + Send>,
    /// Once added, this dispatcher stays until it is empty.
    pub(super) drained: bool,
    /// It is in the list.
    pub(super) listed: bool,
}

/// The result of adding an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Push {
    /// Queued.
    Queued,
    /// No room.
    Refused {
        /// It is the first of an overflow, which is to be reported.
        report: bool,
    },
}

/// The settings of the application, and the overflow that it clears.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) depth: usize,
    pub(super) threshold: usize,
    pub(super) enabled: bool,
    pub(super) overflow: Overflow,
    pub(super) overflowed: bool,
    /// The overflow never ends: the completion queue behind this queue is unusable.
    pub(super) dead: bool,
}

/// State of a queue.
pub(super) struct State<T> {
    events: VecDeque<(T, bool)>,
    /// Queued events that count as notifications.
    notifications: usize,
    pub(super) settings: Settings,
    /// Events dropped since the last [`Error::Overflow`].
    lost: u64,
    /// The completion queue behind this queue is unusable.
    fault: Option<VpStatus>,
    /// The fault was not taken yet.
    fault_untaken: bool,
    /// Threads that sleep at the gate, or are about to.
    pub(super) waiters: usize,
    /// Signalled for the waiting thread that sleeps elsewhere.
    pub(super) leader: Option<Arc<Notifier>>,
    /// The state of the descriptor.
    pub(super) raised: bool,
    pub(super) feed: Option<Feed>,
    /// Schedules the callback.
    pub(super) trigger: Option<Box<dyn Fn() + Send>>,
}

impl Settings {
    /// The completion queue behind this queue lost completions.
    pub(super) fn die(&mut self) {
        self.overflowed = true;
        self.dead = true;
    }
}

impl<T> State<T> {
    pub(super) fn new(depth: usize, threshold: usize) -> Self {
        Self {
            events: VecDeque::new(),
            notifications: 0,
            settings: Settings {
                depth,
                threshold,
                enabled: true,
                overflow: Overflow::default(),
                overflowed: false,
                dead: false,
            },
            lost: 0,
            fault: None,
            fault_untaken: false,
            waiters: 0,
            leader: None,
            raised: false,
            feed: None,
            trigger: None,
        }
    }

    /// The notification criteria are met.
    pub(super) fn met(&self) -> bool {
        let Settings { threshold, enabled, .. } = self.settings;
        enabled && threshold > 0 && (self.notifications >= threshold || self.fault_untaken)
    }

    /// A waiter need not wait: for events, or because there is an error to take.
    pub(super) fn is_ready(&self) -> bool {
        self.met() || self.fault.is_some() || (self.lost > 0 && self.events.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn room(&self) -> usize {
        self.settings.depth.saturating_sub(self.len())
    }

    /// Events that can be added without allocating.
    #[cfg(all(test, not(loom)))]
    pub(super) fn spare(&self) -> usize {
        self.events.capacity() - self.events.len()
    }

    /// Reserves memory for `more` events, which are then added without allocating.
    pub(super) fn make_room(&mut self, more: usize) -> Result<()> {
        self.events.try_reserve(more).map_err(|_| {
            let none = room::none::<(T, bool)>("events of a dispatcher", more);
            Error::verb("make room for events")(none)
        })
    }

    /// Events that can be added now, at most `most`: as there is room, and memory.
    pub(super) fn room_for(&mut self, most: usize) -> usize {
        let most = self.room().min(most);
        match self.events.try_reserve(most) {
            Ok(()) => most,
            Err(_) => most.min(self.events.capacity() - self.events.len()),
        }
    }

    /// Adds an event whatever the depth.
    pub(super) fn push_always(&mut self, event: T, notifies: bool) {
        self.notifications += usize::from(notifies);
        self.events.push_back((event, notifies));
    }

    /// Adds an event that notifies, if there is room, and memory for it.
    pub(super) fn push(&mut self, event: T) -> Push {
        let Settings { overflow, overflowed, .. } = self.settings;
        let full = self.room() == 0 || self.events.try_reserve(1).is_err();
        if full || (overflowed && !overflow.auto_reset) {
            return Push::Refused { report: !overflowed && overflow.notify };
        }
        self.push_always(event, true);
        Push::Queued
    }

    /// Adds an event if there is room, or records that it was lost; `counted`: also in an error.
    pub(super) fn push_or_lose(&mut self, event: T, counted: bool) -> Push {
        let pushed = self.push(event);
        if pushed != Push::Queued {
            self.lose(counted);
        }
        pushed
    }

    /// Reports to the application that a refused event was lost; `counted`: also in an error.
    pub(super) fn lose(&mut self, counted: bool) {
        self.settings.overflowed = true;
        self.lost += u64::from(counted);
    }

    /// The oldest event. After the last one, once, an error with the number of those lost.
    pub(super) fn take(&mut self) -> Result<Option<T>> {
        if let Some((event, notifies)) = self.events.pop_front() {
            self.notifications -= usize::from(notifies);
            self.end_overflow();
            return Ok(Some(event));
        }
        match std::mem::take(&mut self.lost) {
            0 => self.take_fault(),
            lost => Err(Error::Overflow(lost)),
        }
    }

    /// There may be room again.
    fn end_overflow(&mut self) {
        let settings = &self.settings;
        if settings.overflow.auto_reset && !settings.dead && self.room() > 0 {
            self.settings.overflowed = false;
        }
    }

    fn take_fault(&mut self) -> Result<Option<T>> {
        self.fault_untaken = false;
        match self.fault {
            None => Ok(None),
            Some(status) => Err(Error::status("use the completion queue", status)),
        }
    }

    /// The completion queue behind this queue is unusable: all threads are to learn of it.
    pub(super) fn fail(&mut self, status: VpStatus) {
        if self.fault.replace(status).is_none() {
            self.fault_untaken = true;
            self.settings.die();
        }
    }

    /// Updates the aggregate dispatcher's list.
    pub(super) fn update_aggregate(&mut self) {
        let (met, some) = (self.met(), self.settings.enabled && !self.events.is_empty());
        let Some(feed) = &mut self.feed else { return };
        let listed = met || (feed.drained && feed.listed && some);
        if listed != feed.listed {
            feed.listed = listed;
            (feed.set_listed)(listed);
        }
    }

    /// Removes the events for which `gone` returns true.
    pub(super) fn remove(&mut self, gone: impl Fn(&T) -> bool) {
        self.events.retain(|(event, _)| !gone(event));
        self.notifications = self.events.iter().filter(|(_, notifies)| *notifies).count();
        self.end_overflow();
    }

    /// The event after `before` others, without taking it.
    pub(super) fn peek(&self, before: usize) -> Option<T>
    where
        T: Clone,
    {
        self.events.get(before).map(|(event, _)| event.clone())
    }

    /// The oldest event, which becomes the youngest.
    pub(super) fn rotate(&mut self) -> Option<&T> {
        let first = self.events.pop_front()?;
        self.events.push_back(first);
        self.events.back().map(|(event, _)| event)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_notifications_count_towards_the_threshold() {
        let mut state = State::new(8, 2);
        state.push_always(1, true);
        state.push_always(2, false);
        assert!(!state.met());
        state.push_always(3, true);
        assert!(state.met());
        state.settings.enabled = false;
        assert!(!state.met());
        state.settings.enabled = true;
        assert_eq!(state.take().unwrap(), Some(1));
        assert!(!state.met());
        state.settings.threshold = 0;
        assert!(!state.met());
    }

    #[test]
    fn removed_events_do_not_count() {
        let mut state = State::new(8, 2);
        for (event, notifies) in [(1, true), (2, false), (1, true), (2, true)] {
            state.push_always(event, notifies);
        }
        state.remove(|event| *event == 1);
        assert!(!state.met() && state.len() == 2);
        state.push_always(3, true);
        assert!(state.met());
        assert_eq!(state.take().unwrap(), Some(2));
    }

    #[test]
    fn an_overflow_is_reported_once_and_ends_without_a_call() {
        let mut state = State::new(1, 1);
        assert_eq!(state.push(1), Push::Queued);
        assert_eq!(state.push(2), Push::Refused { report: true });
        state.lose(true);
        assert_eq!(state.push(3), Push::Refused { report: false });
        state.lose(true);
        assert!(state.is_ready());
        assert_eq!(state.take().unwrap(), Some(1));
        assert!(!state.settings.overflowed && state.is_ready());
        assert!(matches!(state.take(), Err(Error::Overflow(2))));
        assert!(!state.is_ready());
        assert_eq!(state.take().unwrap(), None);
        assert_eq!(state.push(4), Push::Queued);
    }

    #[test]
    fn without_auto_reset_nothing_is_taken_until_it_is_cleared() {
        let mut state = State::new(1, 1);
        state.settings.overflow = Overflow { notify: false, auto_reset: false };
        assert_eq!(state.push(1), Push::Queued);
        assert_eq!(state.push(2), Push::Refused { report: false });
        state.lose(false);
        assert_eq!(state.take().unwrap(), Some(1));
        assert_eq!(state.push(3), Push::Refused { report: false });
        state.settings.overflowed = false;
        assert_eq!(state.push(4), Push::Queued);
    }

    #[test]
    fn a_loss_is_reported_after_the_events_that_were_not_lost() {
        let mut state = State::new(1, 2);
        assert_eq!(state.push(1), Push::Queued);
        state.lose(true);
        assert!(!state.is_ready());
        assert_eq!(state.take().unwrap(), Some(1));
        assert!(state.is_ready());
    }

    #[test]
    fn an_overflow_lasts_while_a_queue_that_shrank_is_full() {
        let mut state = State::new(3, 1);
        (0..3).for_each(|event| assert_eq!(state.push(event), Push::Queued));
        state.lose(true);
        state.settings.depth = 2;
        state.take().unwrap();
        assert!(state.settings.overflowed);
        state.take().unwrap();
        assert!(!state.settings.overflowed);
    }

    #[test]
    fn without_memory_there_is_room_for_what_needs_none() {
        let mut state = State::new(usize::MAX, 1);
        state.make_room(4).unwrap();
        state.push_always(1_u64, true);
        let spare = state.spare();
        assert!(spare > 1);
        assert_eq!(state.room_for(usize::MAX), spare);
    }

    #[test]
    fn a_fault_comes_after_the_events_and_stays() {
        let mut state = State::new(4, 4);
        state.push_always(1, true);
        assert!(!state.is_ready());
        state.fail(VpStatus::CqOverrun);
        assert!(state.met());
        assert_eq!(state.take().unwrap(), Some(1));
        assert!(state.take().is_err());
        assert!(!state.met() && state.is_ready());
        assert!(state.take().is_err());
    }
}
