//! Directory of one adapter's objects by the provider's ids. Off the data path.
//!
//! Holds objects weakly. Written by the calls that create and destroy objects, read by the thread that
//! delivers an event.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use ibv_sys::ibv_wc;
use kal_os::lock;
use ual_cm::{Connectee, Face, Sequence};
use vp_api::{AsyncEvent, CqId, EventSource, QpId, SrqId, WorkCompletion};

/// An object, or an open device, that asynchronous events are about.
pub trait Listener: Send + Sync {
    /// Delivers an event with its number in the adapter's [`Sequence`]; must not block.
    fn on_event(&self, number: u64, event: AsyncEvent);
}

/// A queue pair, which determines why its work requests failed.
pub trait QueuePair: Listener + Any {
    /// Its number, as programs see it.
    fn number(&self) -> u32;

    /// The completion to return to the application for a request that was flushed or terminated; `plain`
    /// is what its completion says by itself. `None`: none yet.
    fn explain(&self, completion: &WorkCompletion, plain: ibv_wc) -> Option<ibv_wc>;

    /// `IBV_WC_…` of the atomic operation that completed next.
    fn next_atomic(&self) -> u32;
}

type Map<K> = Mutex<BTreeMap<K, Weak<dyn Listener>>>;

/// The objects of one adapter.
pub struct Directory {
    sequence: Sequence,
    connectees: Mutex<BTreeMap<QpId, Weak<dyn Connectee>>>,
    qps: Mutex<BTreeMap<QpId, Weak<dyn QueuePair>>>,
    cqs: Map<CqId>,
    srqs: Map<SrqId>,
    contexts: Mutex<Vec<Weak<dyn Listener>>>,
}

impl Directory {
    pub(crate) fn new(sequence: Sequence) -> Self {
        Self {
            sequence,
            connectees: Mutex::default(),
            qps: Mutex::default(),
            cqs: Map::default(),
            srqs: Map::default(),
            contexts: Mutex::default(),
        }
    }

    /// Numbers the adapter's events, and what becomes of its queue pairs.
    pub(crate) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    pub(crate) fn set_connectee(&self, qp: QpId, party: Weak<dyn Connectee>) {
        lock(&self.connectees).insert(qp, party);
    }

    pub(crate) fn add_qp(&self, qp: QpId, listener: Weak<dyn QueuePair>) {
        lock(&self.qps).insert(qp, listener);
    }

    pub(crate) fn queue_pair(&self, qp: QpId) -> Option<Arc<dyn QueuePair>> {
        lock(&self.qps).get(&qp)?.upgrade()
    }

    /// The queue pair with a number, if there is one. Searches all of them.
    pub(crate) fn numbered(&self, number: u32) -> Option<Arc<dyn QueuePair>> {
        lock(&self.qps).values().filter_map(Weak::upgrade).find(|qp| qp.number() == number)
    }

    pub(crate) fn remove_qp(&self, qp: QpId) {
        lock(&self.qps).remove(&qp);
        lock(&self.connectees).remove(&qp);
    }

    pub(crate) fn add_cq(&self, cq: CqId, listener: Weak<dyn Listener>) {
        lock(&self.cqs).insert(cq, listener);
    }

    pub(crate) fn remove_cq(&self, cq: CqId) {
        lock(&self.cqs).remove(&cq);
    }

    pub(crate) fn add_srq(&self, srq: SrqId, listener: Weak<dyn Listener>) {
        lock(&self.srqs).insert(srq, listener);
    }

    pub(crate) fn remove_srq(&self, srq: SrqId) {
        lock(&self.srqs).remove(&srq);
    }

    /// An open device, which gets the events of its ports.
    pub(crate) fn add_context(&self, listener: Weak<dyn Listener>) {
        let mut contexts = lock(&self.contexts);
        contexts.retain(|context| context.strong_count() > 0);
        contexts.push(listener);
    }
}

fn find<K: Ord>(map: &Map<K>, id: &K) -> Vec<Arc<dyn Listener>> {
    lock(map).get(id).and_then(Weak::upgrade).into_iter().collect()
}

impl Face for Directory {
    fn connectee(&self, qp: QpId, _stream: u64) -> Option<Arc<dyn Connectee>> {
        // The ids of queue pairs are not used again soon.
        lock(&self.connectees).get(&qp)?.upgrade()
    }

    fn on_async(&self, number: u64, source: EventSource, event: AsyncEvent) {
        let listeners = match source {
            EventSource::Qp(qp) => match self.queue_pair(qp) {
                Some(qp) => vec![qp as Arc<dyn Listener>],
                None => Vec::new(),
            },
            EventSource::Cq(cq) => find(&self.cqs, &cq),
            EventSource::Srq(srq) => find(&self.srqs, &srq),
            EventSource::Rnic | EventSource::Port(_) => {
                lock(&self.contexts).iter().filter_map(Weak::upgrade).collect()
            }
        };
        listeners.iter().for_each(|listener| listener.on_event(number, event));
    }
}
