//! Settings and attributes of a dispatcher (IT-API `it_evd_modify`, `it_evd_query`, callbacks). The
//! state is the dispatcher's; any thread.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use super::callback::Function;
use super::dispatch::CALL;
use super::evd::{Evd, Source};
use super::event_queue::Control;
use super::state::{Feed, Settings};
use super::{EvdInfo, Overflow, Stream};
use crate::error::{Error, Result};
use crate::life::{InUse, Living};
use crate::sync::lock;

impl Evd {
    /// Events it can hold; 0 for an aggregate dispatcher, which holds none of its own.
    pub fn depth(&self) -> u32 {
        if let Source::Children(_) = self.source() {
            return 0;
        }
        u32::try_from(self.control().settings().depth).unwrap_or(u32::MAX)
    }

    /// Changes the depth; nothing is lost. Returns the new depth, which may be greater.
    pub fn resize(&self, depth: u32) -> Result<u32> {
        self.check_simple("depth")?;
        let threshold = self.control().settings().threshold;
        if (depth as usize) < threshold.max(1) {
            return Err(Error::InvalidArgument(format!(
                "a depth of {depth} is below the threshold of {threshold}"
            )));
        }
        match self.source() {
            Source::Queue(queue) => queue.configure(&mut |s| s.depth = depth as usize),
            Source::Completions(completions, _) => completions.resize(depth)?,
            Source::Children(_) => {}
        }
        Ok(self.depth())
    }

    /// Changes the number of notification events at which it notifies; 0: never.
    pub fn set_threshold(&self, threshold: u32) -> Result<()> {
        self.check_simple("threshold")?;
        self.check_threshold(threshold)?;
        self.set_criteria(threshold == 1, |settings| settings.threshold = threshold as usize)
    }

    pub(super) fn check_threshold(&self, threshold: u32) -> Result<()> {
        let depth = self.depth();
        if threshold > depth && self.stream() != Stream::Aggregate {
            return Err(Error::InvalidArgument(format!(
                "a threshold of {threshold} can never be reached: the dispatcher holds {depth} \
                 events"
            )));
        }
        Ok(())
    }

    fn check_simple(&self, what: &str) -> Result<()> {
        if self.stream() != Stream::Aggregate {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!("an aggregate event dispatcher has no {what}")))
    }

    /// While disabled it queues events and notifies nothing.
    pub fn set_enabled(&self, enabled: bool) -> Result<()> {
        self.set_criteria(enabled, |settings| settings.enabled = enabled)
    }

    fn set_criteria(&self, plain: bool, mut change: impl FnMut(&mut Settings)) -> Result<()> {
        if !plain {
            self.allow_uncounted()?;
        }
        self.control().configure(&mut change);
        Ok(())
    }

    /// Completions: from now on not every one ends a wait.
    #[cold]
    pub(super) fn allow_uncounted(&self) -> Result<()> {
        match self.source() {
            Source::Completions(completions, _) => {
                completions.allow_uncounted(|| self.ia().dispatch().start(), &self.job)
            }
            _ => Ok(()),
        }
    }

    /// Completions: from now on they go through the staging queue.
    pub(super) fn stage(&self) -> Result<()> {
        match self.source() {
            Source::Completions(completions, _) => {
                completions.stage(|| self.ia().dispatch().start(), &self.job)
            }
            _ => Ok(()),
        }
    }

    /// Makes it feed an aggregate dispatcher of the same Ia, or none.
    pub fn set_aggregate(self: &Arc<Self>, aggregate: Option<&Arc<Self>>) -> Result<()> {
        let Some(parent) = aggregate else {
            self.leave_aggregate(&mut lock(&self.aggregate));
            return Ok(());
        };
        let Source::Children(list) = parent.source() else {
            return parent.check_stream(Stream::Aggregate);
        };
        if self.stream() == Stream::Aggregate || !Arc::ptr_eq(self.ia(), parent.ia()) {
            return Err(Error::InvalidArgument(
                "an aggregate dispatcher is fed by simple dispatchers of its own adapter".into(),
            ));
        }
        let hold = InUse::new(parent)?;
        list.take_with(|state| state.make_room(parent.users()))?;
        self.stage()?;
        let (list, me) = (list.clone(), self.me.clone());
        let set_listed = Box::new(move |met| match met {
            true => list.push_always(me.clone()),
            false => list.take_with(|state| state.remove(|child| child.ptr_eq(&me))),
        });
        let mut place = lock(&self.aggregate);
        self.leave_aggregate(&mut place);
        *place = Some(hold);
        let feed = Feed { set_listed, drained: parent.underlying, listed: false };
        self.control().set_feed(Some(feed));
        Ok(())
    }

    pub(super) fn leave_aggregate(&self, place: &mut Option<InUse<Self>>) {
        if place.is_some() {
            self.control().set_feed(None);
            *place = None;
        }
    }

    /// Changes what happens if there is no room.
    pub fn set_overflow(&self, overflow: Overflow) {
        self.control().configure(&mut |settings| settings.overflow = overflow);
    }

    /// Accepts events again after an overflow.
    pub fn clear_overflow(&self) {
        self.control().configure(&mut |settings| settings.overflowed = false);
    }

    /// The provider's queue lost completions; returns true if the application wants to be notified.
    pub(crate) fn overran(&self) -> bool {
        self.control().configure(&mut Settings::die);
        self.control().settings().overflow.notify
    }

    /// Completions were lost; the queue stays unusable.
    pub(crate) fn has_overrun(&self) -> bool {
        self.control().settings().dead
    }

    /// Attaches a function that a thread of the Ia calls whenever an event arrives and the criteria are
    /// met; once for several if it is not fast enough. It takes events by [`Evd::dequeue`] and must not
    /// block: it delays all other callbacks of the Ia. A panic in it is logged.
    /// [`Error::CallbackExists`] if there is one already.
    pub fn attach_callback(self: &Arc<Self>, callback: Box<Function<Self>>) -> Result<()> {
        self.ia().dispatch().start()?;
        self.stage()?;
        self.callback.attach(callback)?;
        let job = self.job.clone();
        self.control().set_trigger(Some(Box::new(move || job.request(CALL))));
        Ok(())
    }

    /// Detaches the callback. When this returns it is not running, unless called from inside it.
    pub fn detach_callback(&self) -> Result<()> {
        self.control().set_trigger(None);
        self.callback.detach();
        Ok(())
    }

    /// The attributes of the dispatcher.
    pub fn info(&self) -> EvdInfo {
        let Settings { threshold, enabled, overflow, overflowed, .. } = self.control().settings();
        let aggregate = lock(&self.aggregate).as_ref().map(|parent| parent.arc().clone());
        EvdInfo {
            stream: self.stream(),
            depth: self.depth(),
            threshold: u32::try_from(threshold).unwrap_or(u32::MAX),
            aggregate,
            fd: self.control().notifier().map(|notifier| notifier.as_fd().as_raw_fd()),
            bound: self.life().users() > 0,
            enabled,
            overflowed,
            callback: self.callback.is_attached(),
            underlying: self.underlying,
            overflow,
        }
    }
}
