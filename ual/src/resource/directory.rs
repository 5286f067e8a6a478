//! From the provider's ids to the objects of one Ia. Off the data path.
//!
//! Shared by the Ia and its connection thread. B-trees, which grow by small pieces; no object is dropped
//! under a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use ual_cm::{Connectee, Face, Sequence};
use vp_api::{AsyncEvent, CqId, EventSource, QpId, SrqId, room};

use super::{Ep, Srq, UdEp};
use crate::event::{AsyncSource, Evd, Event, Stream};

/// From id to object, and its number in the [`Sequence`]; the object keeps itself alive.
struct Map<K, T>(RwLock<BTreeMap<K, (Weak<T>, u64)>>);

impl<K: Ord, T> Map<K, T> {
    fn new() -> Self {
        Self(RwLock::default())
    }

    fn get(&self, id: K) -> Option<Arc<T>> {
        self.get_of(id, u64::MAX)
    }

    /// The object that an event of number `told` is about.
    fn get_of(&self, id: K, told: u64) -> Option<Arc<T>> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.get(&id).filter(|(_, made)| *made < told)?.0.upgrade()
    }

    fn add(&self, id: K, object: &Arc<T>, made: u64) {
        let object = Arc::downgrade(object);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, (object, made));
    }

    fn remove(&self, id: K) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// All of them; none if there is no memory for the list.
    fn all(&self) -> Vec<Arc<T>> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = room::try_list(map.len()).unwrap_or_default();
        let most = all.capacity();
        all.extend(map.values().filter_map(|(object, _)| object.upgrade()).take(most));
        all
    }
}

/// The objects of one Ia by the provider's ids, and the dispatchers of its asynchronous events.
pub(crate) struct Directory {
    sequence: Sequence,
    eps: Map<QpId, Ep>,
    ud_eps: Map<QpId, UdEp>,
    evds: Map<CqId, Evd>,
    srqs: Map<SrqId, Srq>,
    affiliated: Mutex<Weak<Evd>>,
    unaffiliated: Mutex<Weak<Evd>>,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            sequence: Sequence::default(),
            eps: Map::new(),
            ud_eps: Map::new(),
            evds: Map::new(),
            srqs: Map::new(),
            affiliated: Mutex::default(),
            unaffiliated: Mutex::default(),
        }
    }

    pub(crate) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    pub(crate) fn ep(&self, qp: QpId) -> Option<Arc<Ep>> {
        self.eps.get(qp)
    }

    /// The endpoint that an event of number `told` is about, as the next three.
    pub(crate) fn ep_of(&self, qp: QpId, told: u64) -> Option<Arc<Ep>> {
        self.eps.get_of(qp, told)
    }

    pub(crate) fn ud_ep_of(&self, qp: QpId, told: u64) -> Option<Arc<UdEp>> {
        self.ud_eps.get_of(qp, told)
    }

    pub(crate) fn evd_of(&self, cq: CqId, told: u64) -> Option<Arc<Evd>> {
        self.evds.get_of(cq, told)
    }

    pub(crate) fn srq_of(&self, srq: SrqId, told: u64) -> Option<Arc<Srq>> {
        self.srqs.get_of(srq, told)
    }

    pub(crate) fn ud_ep(&self, qp: QpId) -> Option<Arc<UdEp>> {
        self.ud_eps.get(qp)
    }

    pub(crate) fn evd(&self, cq: CqId) -> Option<Arc<Evd>> {
        self.evds.get(cq)
    }

    pub(crate) fn srq(&self, srq: SrqId) -> Option<Arc<Srq>> {
        self.srqs.get(srq)
    }

    /// An object was closed, and is not known here any more: its asynchronous events go.
    pub(crate) fn discard(&self, closed: AsyncSource) {
        // Dispatchers without a tag cannot be told apart.
        if closed != AsyncSource::Queue(0)
            && let Some(evd) = self.affiliated()
        {
            let of_it = |event: &Event| matches!(event, Event::Affiliated { source, .. } if *source == closed);
            evd.discard(of_it);
        }
    }

    pub(crate) fn add_ep(&self, ep: &Arc<Ep>) {
        self.eps.add(ep.id(), ep, self.sequence.next());
    }

    /// Endpoints that complete in `evd`, and how many work requests they have there at once.
    pub(crate) fn completing_in(&self, evd: &Evd) -> Vec<(QpId, u32)> {
        let eps = self.eps.all();
        let mut users = room::try_list(eps.len()).unwrap_or_default();
        let most = users.capacity();
        let completing = eps.iter().map(|ep| (ep.id(), ep.slots_in(evd)));
        users.extend(completing.filter(|(_, slots)| *slots > 0).take(most));
        users.sort_unstable();
        users
    }

    pub(crate) fn remove_ep(&self, qp: QpId) {
        self.eps.remove(qp);
    }

    pub(crate) fn add_ud_ep(&self, ep: &Arc<UdEp>) {
        self.ud_eps.add(ep.id(), ep, self.sequence.next());
    }

    pub(crate) fn remove_ud_ep(&self, qp: QpId) {
        self.ud_eps.remove(qp);
    }

    pub(crate) fn add_srq(&self, srq: &Arc<Srq>) {
        self.srqs.add(srq.id(), srq, self.sequence.next());
    }

    pub(crate) fn remove_srq(&self, srq: SrqId) {
        self.srqs.remove(srq);
    }

    pub(crate) fn add_evd(&self, evd: &Arc<Evd>) {
        match evd.stream() {
            Stream::Completion => {
                if let Ok(cq) = evd.cq() {
                    self.evds.add(cq.id(), evd, self.sequence.next());
                }
            }
            Stream::Affiliated => set(&self.affiliated, Arc::downgrade(evd)),
            Stream::Unaffiliated => set(&self.unaffiliated, Arc::downgrade(evd)),
            _ => {}
        }
    }

    /// Called by the dispatcher's close. The asynchronous ones become empty by themselves.
    pub(crate) fn remove_evd(&self, evd: &Evd) {
        if let Ok(cq) = evd.cq() {
            self.evds.remove(cq.id());
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
    fn connectee(&self, qp: QpId, told: u64) -> Option<Arc<dyn Connectee>> {
        Some(self.ep_of(qp, told)?)
    }

    fn on_async(&self, told: u64, source: EventSource, event: AsyncEvent) {
        match source {
            EventSource::Qp(qp) => self.on_qp_event(qp, told, event),
            EventSource::Cq(cq) => self.on_cq_event(cq, told, event),
            EventSource::Srq(srq) => {
                if let Some(object) = self.srq_of(srq, told) {
                    self.tell_affiliated(AsyncSource::Srq(srq), event, || object.is_open());
                }
            }
            EventSource::Rnic => self.tell_unaffiliated(None, event),
            EventSource::Port(port) => self.tell_unaffiliated(Some(port), event),
        }
    }
}

impl Directory {
    fn on_qp_event(&self, qp: QpId, told: u64, event: AsyncEvent) {
        let source = AsyncSource::Ep(qp);
        if let Some(ep) = self.ud_ep_of(qp, told) {
            return self.tell_affiliated(source, event, || ep.is_open());
        }
        let Some(ep) = self.ep_of(qp, told) else { return };
        let event = match event {
            // The Terminate is what the peer is told of it.
            AsyncEvent::TerminateSent(_) if ep.has_overrun() => AsyncEvent::CqOverrun,
            event => event,
        };
        self.tell_affiliated(source, event, || ep.is_open());
    }

    fn on_cq_event(&self, cq: CqId, told: u64, event: AsyncEvent) {
        let Some(evd) = self.evd_of(cq, told) else { return };
        if event != AsyncEvent::CqOverrun || evd.overran() {
            self.tell_affiliated(AsyncSource::Evd(cq), event, || evd.is_open());
        }
    }

    /// Tells of an object, if it `exists`.
    fn tell_affiliated(
        &self,
        source: AsyncSource,
        event: AsyncEvent,
        exists: impl FnOnce() -> bool,
    ) {
        match self.affiliated() {
            Some(evd) => evd.push_affiliated(source, event, exists),
            // Its connection event says it already.
            None if matches!(source, AsyncSource::Ep(_)) => {
                tracing::debug!("{source:?}: {event}")
            }
            None => tracing::warn!("{source:?}: {event}"),
        }
    }

    fn tell_unaffiliated(&self, port: Option<u32>, event: AsyncEvent) {
        match self.unaffiliated() {
            Some(evd) => evd.push_lossy(Event::Unaffiliated { port, event }),
            // The log has it already, with the listener and the cause.
            None if matches!(event, AsyncEvent::ListenShortage { .. }) => {}
            None => match port {
                Some(port) => tracing::warn!("port {port}: {event}"),
                None => tracing::warn!("{event}"),
            },
        }
    }
}

fn set(slot: &Mutex<Weak<Evd>>, evd: Weak<Evd>) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = evd;
}

fn open(slot: &Mutex<Weak<Evd>>) -> Option<Arc<Evd>> {
    let evd = slot.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
    evd.is_open().then_some(evd)
}
