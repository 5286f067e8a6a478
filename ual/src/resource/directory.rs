//! From the provider's ids to the objects of one Ia. Off the data path.
//!
//! Shared by the Ia and its connection thread; no entry is held while another map is asked.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use dashmap::DashMap;
use vp_api::{CqId, QpId, SrqId};

use super::{Ep, Srq, UdEp};
use crate::event::{Evd, Stream};

/// Map from id to object; the object keeps itself alive.
type Map<K, T> = DashMap<K, Weak<T>>;

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
        self.eps.get(&qp)?.upgrade()
    }

    pub(crate) fn ud_ep(&self, qp: QpId) -> Option<Arc<UdEp>> {
        self.ud_eps.get(&qp)?.upgrade()
    }

    pub(crate) fn evd(&self, cq: CqId) -> Option<Arc<Evd>> {
        self.evds.get(&cq)?.upgrade()
    }

    pub(crate) fn srq(&self, srq: SrqId) -> Option<Arc<Srq>> {
        self.srqs.get(&srq)?.upgrade()
    }

    pub(crate) fn add_ep(&self, ep: &Arc<Ep>) {
        self.eps.insert(ep.id(), Arc::downgrade(ep));
    }

    pub(crate) fn remove_ep(&self, qp: QpId) {
        self.eps.remove(&qp);
    }

    pub(crate) fn add_ud_ep(&self, ep: &Arc<UdEp>) {
        self.ud_eps.insert(ep.id(), Arc::downgrade(ep));
    }

    pub(crate) fn remove_ud_ep(&self, qp: QpId) {
        self.ud_eps.remove(&qp);
    }

    pub(crate) fn add_srq(&self, srq: &Arc<Srq>) {
        self.srqs.insert(srq.id(), Arc::downgrade(srq));
    }

    pub(crate) fn remove_srq(&self, srq: SrqId) {
        self.srqs.remove(&srq);
    }

    pub(crate) fn add_evd(&self, evd: &Arc<Evd>) {
        match evd.stream() {
            Stream::Completion => {
                if let Ok(cq) = evd.cq() {
                    self.evds.insert(cq.id(), Arc::downgrade(evd));
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
            self.evds.remove(&cq.id());
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
