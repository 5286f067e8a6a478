//! Registry of endpoints, one per event dispatcher: finds the outstanding work requests that a completion
//! belongs to.
//!
//! Reading takes no lock: shards of sorted lists, each replaced as a whole when an endpoint is added or
//! removed. A reader may keep an old list for a moment, and with it the memory of a destroyed endpoint; the
//! provider no longer uses that memory.

use std::sync::Arc;

use arc_swap::ArcSwap;
use vp_api::{QpId, VpResult, room};

use crate::outstanding::Flights;
use crate::tuning::SHARDS;

type List = Vec<(QpId, Arc<Flights>)>;

/// Endpoints by queue pair.
#[derive(Default)]
pub(crate) struct Directory([ArcSwap<List>; SHARDS]);

impl Directory {
    fn shard(&self, qp: QpId) -> &ArcSwap<List> {
        &self.0[qp.0 as usize % SHARDS]
    }

    /// Calls `with` on an endpoint's requests and returns its result; `None` also if the endpoint is not
    /// registered.
    #[inline]
    pub(crate) fn with<T>(&self, qp: QpId, with: impl FnOnce(&Flights) -> Option<T>) -> Option<T> {
        let list = self.shard(qp).load();
        let at = list.binary_search_by_key(&qp, |(id, _)| *id).ok()?;
        with(&list[at].1)
    }

    /// Errors: there is no memory for a longer list.
    pub(crate) fn add(&self, qp: QpId, flights: &Arc<Flights>) -> VpResult<()> {
        let mut added = Ok(());
        self.shard(qp).rcu(|list| {
            let longer = changed(list, qp, Some(flights));
            added = longer.as_ref().map(drop).map_err(Clone::clone);
            longer.map_or_else(|_| list.clone(), Arc::new)
        });
        added
    }

    /// Removes an endpoint, after [`Flights::mark_gone`]. Without memory for another list the entry goes with
    /// the list's next change.
    pub(crate) fn remove(&self, qp: QpId) {
        let shorter = |list: &Arc<List>| changed(list, qp, None);
        self.shard(qp).rcu(|list| shorter(list).map_or_else(|_| list.clone(), Arc::new));
    }
}

/// Replaces or removes the entry of one endpoint, and removes those of destroyed endpoints.
fn changed(list: &List, qp: QpId, flights: Option<&Arc<Flights>>) -> VpResult<List> {
    let mut changed = room::list("endpoints of an event dispatcher", list.len() + 1)?;
    let stays = |(id, flights): &&(QpId, Arc<Flights>)| *id != qp && !flights.is_gone();
    let (before, behind) = list.split_at(list.partition_point(|(id, _)| *id < qp));
    changed.extend(before.iter().filter(stays).cloned());
    changed.extend(flights.map(|flights| (qp, flights.clone())));
    changed.extend(behind.iter().filter(stays).cloned());
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_come_and_go() {
        let directory = Directory::default();
        let known = |qp| directory.with(QpId(qp), |_| Some(())).is_some();
        for qp in [40, 8, 24, 9, 24] {
            directory.add(QpId(qp), &Flights::idle()).unwrap();
        }
        assert!(known(8) && known(24) && known(40) && known(9) && !known(56));
        directory.remove(QpId(24));
        directory.remove(QpId(56));
        assert!(known(8) && !known(24) && known(40));
    }

    #[test]
    fn an_endpoint_that_could_not_be_removed_is_removed_with_the_next_change() {
        let directory = Directory::default();
        let (first, second) = (Flights::idle(), Flights::idle());
        directory.add(QpId(8), &first).unwrap();
        first.mark_gone();
        directory.add(QpId(24), &second).unwrap();
        assert!(directory.with(QpId(8), |_| Some(())).is_none());
        assert!(directory.with(QpId(24), |_| Some(())).is_some());
    }
}
