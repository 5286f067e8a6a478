//! From the provider's ids to the objects of one Ia. Off the data path.
//!
//! Shared by the Ia and its connection thread. B-trees, which grow by small pieces; no object is dropped
//! under a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use vp_api::{CqId, QpId, SrqId, room};

use super::{Ep, Srq, UdEp};
use crate::event::{AsyncSource, Evd, Event, Stream};

/// From id to object; the object keeps itself alive.
struct Map<K, T>(RwLock<BTreeMap<K, Weak<T>>>);

impl<K: Ord, T> Map<K, T> {
    fn new() -> Self {
        Self(RwLock::default())
    }

    fn get(&self, id: K) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id)?.upgrade()
    }

    fn add(&self, id: K, object: &Arc<T>) {
        let object = Arc::downgrade(object);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, object);
    }

    /// Without a hold on the object: nothing is dropped.
    fn has(&self, id: K) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    fn remove(&self, id: K) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// All of them; none if there is no memory for the list.
    fn all(&self) -> Vec<Arc<T>> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = room::try_list(map.len()).unwrap_or_default();
        let most = all.capacity();
        all.extend(map.values().filter_map(Weak::upgrade).take(most));
        all
    }
}

/// The objects of one Ia by the provider's ids, and the dispatchers of its asynchronous events.
pub(crate) struct Directory {
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
            eps: Map::new(),
            ud_eps: Map::new(),
            evds: Map::new(),
            srqs: Map::new(),
            affiliated: Mutex::default(),
            unaffiliated: Mutex::default(),
        }
    }

    pub(crate) fn ep(&self, qp: QpId) -> Option<Arc<Ep>> {
        self.eps.get(qp)
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

    /// The object of a provider's asynchronous event is open. Under the lock of a dispatcher's queue.
    pub(crate) fn knows(&self, source: AsyncSource) -> bool {
        match source {
            AsyncSource::Ep(qp) => self.eps.has(qp) || self.ud_eps.has(qp),
            AsyncSource::Evd(cq) => self.evds.has(cq),
            AsyncSource::Srq(srq) => self.srqs.has(srq),
            AsyncSource::Queue(_) => true,
        }
    }

    /// An object was closed, and is not known here any more: its asynchronous events go.
    pub(crate) fn discard(&self, closed: AsyncSource) {
        if let Some(evd) = self.affiliated() {
            let of_it = |event: &Event| matches!(event, Event::Affiliated { source, .. } if *source == closed);
            evd.discard(of_it);
        }
    }

    pub(crate) fn add_ep(&self, ep: &Arc<Ep>) {
        self.eps.add(ep.id(), ep);
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
        self.ud_eps.add(ep.id(), ep);
    }

    pub(crate) fn remove_ud_ep(&self, qp: QpId) {
        self.ud_eps.remove(qp);
    }

    pub(crate) fn add_srq(&self, srq: &Arc<Srq>) {
        self.srqs.add(srq.id(), srq);
    }

    pub(crate) fn remove_srq(&self, srq: SrqId) {
        self.srqs.remove(srq);
    }

    pub(crate) fn add_evd(&self, evd: &Arc<Evd>) {
        match evd.stream() {
            Stream::Completion => {
                if let Ok(cq) = evd.cq() {
                    self.evds.add(cq.id(), evd);
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

fn set(slot: &Mutex<Weak<Evd>>, evd: Weak<Evd>) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = evd;
}

fn open(slot: &Mutex<Weak<Evd>>) -> Option<Arc<Evd>> {
    let evd = slot.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
    evd.is_open().then_some(evd)
}
