//! Directory of one Ia's objects by the provider's ids. Off the data path.
//!
//! Shared by the Ia and its connection thread. It holds objects as [`Resource`]s; everything else is in
//! the object's own file.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ual_cm::{Connectee, Face, Sequence};
use vp_api::{AsyncEvent, CqId, EventSource, QpId, SrqId, room};

use super::{Map, Senders};
use crate::event::{AsyncSource, Evd, Stream};
use crate::life::Living;

/// An object that gets asynchronous events of the provider.
pub(crate) trait Resource: Living + Any + Send + Sync {
    /// The event to deliver to the application for an event of this object, if any.
    fn deliver(&self, event: AsyncEvent) -> Option<AsyncEvent> {
        Some(event)
    }

    /// Itself, if it has connections.
    fn connectee(self: Arc<Self>) -> Option<Arc<dyn Connectee>> {
        None
    }

    /// The number of its work requests that may wait in `evd` at once.
    fn slots_in(&self, _evd: &Evd) -> u32 {
        0
    }
}

/// The objects of one Ia by the provider's ids, and the dispatchers of its asynchronous events.
pub(crate) struct Directory {
    sequence: Sequence,
    qps: Map<QpId, dyn Resource>,
    cqs: Map<CqId, dyn Resource>,
    srqs: Map<SrqId, dyn Resource>,
    senders: Arc<Map<QpId, Senders>>,
    affiliated: Mutex<Weak<Evd>>,
    unaffiliated: Mutex<Weak<Evd>>,
    /// The device was removed, or failed for good.
    lost: AtomicBool,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            sequence: Sequence::default(),
            qps: Map::new(),
            cqs: Map::new(),
            srqs: Map::new(),
            senders: Arc::new(Map::new()),
            affiliated: Mutex::default(),
            unaffiliated: Mutex::default(),
            lost: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(crate) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// The object of a queue pair, while it is open, if it is a `T`; as the next two.
    pub(super) fn by_qp<T: Resource>(&self, qp: QpId) -> Option<Arc<T>> {
        cast(self.qps.get(qp)?)
    }

    pub(crate) fn by_cq<T: Resource>(&self, cq: CqId) -> Option<Arc<T>> {
        cast(self.cqs.get(cq)?)
    }

    pub(super) fn by_srq<T: Resource>(&self, srq: SrqId) -> Option<Arc<T>> {
        cast(self.srqs.get(srq)?)
    }

    /// Senders of received datagrams, by endpoint.
    pub(crate) fn senders(&self) -> &Arc<Map<QpId, Senders>> {
        &self.senders
    }

    /// An object was closed, and is no longer in the directory: drops its asynchronous events.
    pub(crate) fn discard(&self, closed: AsyncSource) {
        // Dispatchers without a tag cannot be distinguished.
        if closed != AsyncSource::Queue(0)
            && let Some(evd) = self.affiliated()
        {
            evd.discard_affiliated(closed);
        }
    }

    pub(super) fn add_qp<T: Resource>(&self, qp: QpId, object: &Arc<T>) {
        self.qps.add(qp, weak(object), self.sequence.next());
    }

    pub(super) fn remove_qp(&self, qp: QpId) {
        self.qps.remove(qp);
    }

    pub(super) fn add_sources(&self, qp: QpId, senders: &Arc<Senders>) {
        self.senders.add(qp, Arc::downgrade(senders), 0);
    }

    pub(super) fn remove_sources(&self, qp: QpId) {
        self.senders.remove(qp);
    }

    pub(super) fn add_srq<T: Resource>(&self, srq: SrqId, object: &Arc<T>) {
        self.srqs.add(srq, weak(object), self.sequence.next());
    }

    pub(super) fn remove_srq(&self, srq: SrqId) {
        self.srqs.remove(srq);
    }

    /// Endpoints that complete in `evd`, and the number of work requests that each may have there.
    pub(crate) fn completing_in(&self, evd: &Evd) -> Vec<(QpId, u32)> {
        let qps = self.qps.all();
        let mut users = room::try_list(qps.len()).unwrap_or_default();
        let most = users.capacity();
        let completing = qps.iter().map(|(qp, object)| (*qp, object.slots_in(evd)));
        users.extend(completing.filter(|(_, slots)| *slots > 0).take(most));
        users.sort_unstable();
        users
    }

    pub(crate) fn add_evd(&self, evd: &Arc<Evd>) {
        match evd.stream() {
            Stream::Completion => {
                if let Ok(cq) = evd.cq() {
                    self.cqs.add(cq.id(), weak(evd), self.sequence.next());
                }
            }
            Stream::Affiliated => set(&self.affiliated, Arc::downgrade(evd)),
            Stream::Unaffiliated => set(&self.unaffiliated, Arc::downgrade(evd)),
            _ => {}
        }
    }

    /// Called by the dispatcher's close. Weak references to asynchronous ones expire by themselves.
    pub(crate) fn remove_evd(&self, evd: &Evd) {
        if let Ok(cq) = evd.cq() {
            self.cqs.remove(cq.id());
        }
    }

    pub(crate) fn affiliated(&self) -> Option<Arc<Evd>> {
        open(&self.affiliated)
    }

    pub(crate) fn unaffiliated(&self) -> Option<Arc<Evd>> {
        open(&self.unaffiliated)
    }
}

impl Face for Directory {
    fn connectee(&self, qp: QpId, number: u64) -> Option<Arc<dyn Connectee>> {
        self.qps.get_of(qp, number)?.connectee()
    }

    fn on_async(&self, number: u64, source: EventSource, event: AsyncEvent) {
        let (source, object) = match source {
            EventSource::Qp(qp) => (AsyncSource::Ep(qp), self.qps.get_of(qp, number)),
            EventSource::Cq(cq) => (AsyncSource::Evd(cq), self.cqs.get_of(cq, number)),
            EventSource::Srq(srq) => (AsyncSource::Srq(srq), self.srqs.get_of(srq, number)),
            EventSource::Rnic => {
                if event == AsyncEvent::Catastrophic {
                    self.lost.store(true, Ordering::Release);
                }
                return self.deliver_unaffiliated(None, event);
            }
            EventSource::Port(port) => return self.deliver_unaffiliated(Some(port), event),
        };
        if let Some(object) = object
            && let Some(event) = object.deliver(event)
        {
            self.deliver_affiliated(source, event, || !object.life().is_closed());
        }
    }
}

impl Directory {
    /// Delivers an event of an object, if it `exists`.
    fn deliver_affiliated(
        &self,
        source: AsyncSource,
        event: AsyncEvent,
        exists: impl FnOnce() -> bool,
    ) {
        match self.affiliated() {
            Some(evd) => evd.push_affiliated(source, event, exists),
            // Its connection event reports it already.
            None if matches!(source, AsyncSource::Ep(_)) => {
                tracing::debug!("{source:?}: {event}")
            }
            None => tracing::warn!("{source:?}: {event}"),
        }
    }

    fn deliver_unaffiliated(&self, port: Option<u32>, event: AsyncEvent) {
        match self.unaffiliated() {
            Some(evd) => evd.push_unaffiliated(port, event),
            // The log already has it, with the listener and the cause.
            None if matches!(event, AsyncEvent::ListenShortage { .. }) => {}
            None => match port {
                Some(port) => tracing::warn!("port {port}: {event}"),
                None => tracing::warn!("{event}"),
            },
        }
    }
}

fn weak<T: Resource>(object: &Arc<T>) -> Weak<dyn Resource> {
    Arc::<T>::downgrade(object)
}

fn cast<T: Resource>(object: Arc<dyn Resource>) -> Option<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = object;
    any.downcast().ok()
}

fn set(slot: &Mutex<Weak<Evd>>, evd: Weak<Evd>) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = evd;
}

fn open(slot: &Mutex<Weak<Evd>>) -> Option<Arc<Evd>> {
    let evd = slot.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
    evd.is_open().then_some(evd)
}
