//! From a completion to what its endpoint has under way: one table per dispatcher.
//!
//! Reading takes no lock: shards of sorted lists, replaced as a whole when an endpoint comes or
//! goes. A reader may keep an old list for a moment, and with it the memory of an endpoint that is
//! gone; the provider has let go of that memory by then.

use std::sync::Arc;

use arc_swap::ArcSwap;
use vp_api::QpId;

use crate::evd::Flights;

/// So that adding one of many endpoints copies a short list.
const SHARDS: usize = 16;

type List = Vec<(QpId, Arc<Flights>)>;

/// Endpoints by queue pair.
#[derive(Default)]
pub(crate) struct Directory([ArcSwap<List>; SHARDS]);

impl Directory {
    fn shard(&self, qp: QpId) -> &ArcSwap<List> {
        &self.0[qp.0 as usize % SHARDS]
    }

    /// What `with` makes of an endpoint's flights; `None` also if it is not, or no longer, here.
    #[inline]
    pub(crate) fn with<T>(&self, qp: QpId, with: impl FnOnce(&Flights) -> Option<T>) -> Option<T> {
        let list = self.shard(qp).load();
        let at = list.binary_search_by_key(&qp, |(id, _)| *id).ok()?;
        with(&list[at].1)
    }

    pub(crate) fn add(&self, qp: QpId, flights: &Arc<Flights>) {
        self.shard(qp).rcu(|list| {
            let mut list = List::clone(list);
            match list.binary_search_by_key(&qp, |(id, _)| *id) {
                // One dispatcher for both of its queues.
                Ok(at) => list[at].1 = flights.clone(),
                Err(at) => list.insert(at, (qp, flights.clone())),
            }
            list
        });
    }

    pub(crate) fn remove(&self, qp: QpId) {
        self.shard(qp).rcu(|list| {
            let mut list = List::clone(list);
            list.retain(|(id, _)| *id != qp);
            list
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_come_and_go() {
        let directory = Directory::default();
        let known = |qp| directory.with(QpId(qp), |_| Some(())).is_some();
        for qp in [40, 8, 24, 9, 24] {
            directory.add(QpId(qp), &Arc::new(Flights::idle()));
        }
        assert!(known(8) && known(24) && known(40) && known(9) && !known(56));
        directory.remove(QpId(24));
        directory.remove(QpId(56));
        assert!(known(8) && !known(24) && known(40));
    }
}
