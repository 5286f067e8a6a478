//! What the packets that were received, and timers, leave to be done without a lock: replies, notifications, events.
//!
//! Owner: the thread that receives, or that serves timers, for one turn. Without memory for its list it uses another one.

use std::collections::LinkedList;
use std::sync::Arc;

use vp_api::ServiceEvent;

use super::numbers::Numbers;
use super::{Engine, Served};
use crate::cm::Ears;

/// Queue pairs with work to be done when no lock is held.
#[derive(Default)]
pub(crate) struct Touched {
    qps: Vec<Arc<dyn Served>>,
    /// Those for which the list above had no memory.
    others: LinkedList<Arc<dyn Served>>,
    /// The last that was found by its number: packets of a connection arrive together.
    found: Option<(u32, Arc<dyn Served>)>,
    /// Events of datagram services, and who gets them.
    events: LinkedList<(Arc<Ears>, ServiceEvent)>,
}

impl Touched {
    pub(crate) fn add(&mut self, qp: Arc<dyn Served>) {
        if self.qps.last().is_some_and(|last| Arc::ptr_eq(last, &qp)) {
            return;
        }
        match self.qps.try_reserve(1) {
            Ok(()) => self.qps.push(qp),
            Err(_) => self.others.push_back(qp),
        }
    }

    /// Finds and adds the queue pair with this number.
    pub(super) fn find(&mut self, number: u32, all: &Numbers) -> Option<&Arc<dyn Served>> {
        if self.found.as_ref().is_none_or(|(found, _)| *found != number) {
            let qp = all.find(number)?;
            self.add(qp.clone());
            self.found = Some((number, qp));
        }
        self.found.as_ref().map(|(_, qp)| qp)
    }

    /// An event of a datagram service.
    pub(crate) fn tell(&mut self, ears: &Arc<Ears>, event: ServiceEvent) {
        self.events.push_back((ears.clone(), event));
    }

    /// Sends replies, delivers notifications and events, and ends connections.
    pub(super) fn settle(self, engine: &Engine) {
        for qp in self.qps.iter().chain(&self.others) {
            if qp.settle(engine.may_keep()) {
                engine.keep(qp);
            }
        }
        self.events.into_iter().for_each(|(ears, event)| ears.tell(event));
    }
}
