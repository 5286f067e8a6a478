//! Observation of this process by others of the same user: state page and socket for requests.
//!
//! [`adapter`] wraps an open RNIC to record its queue pairs, completion queues and regions (`rnic`); queue
//! pairs and completion queues are the provider's own, so the data path is not affected. There is one page and
//! one socket per process and copy of the library (`process`): the first adapter makes them, the last user of a
//! record removes them. The connection threads of all adapters watch the socket; the first responds (`answers`)
//! without blocking.
//!
//! Failures to create them are logged at `info` and have no other effect. A child made by fork(2) has neither,
//! until it opens an adapter.

mod answers;
mod process;
pub mod questions;
mod rnic;

use std::sync::Arc;

use ual_cm::Observed;
use vp_api::Rnic;

use crate::config::Observe;
use crate::secure::is_secure;
use process::Process;
pub(crate) use rnic::ObservedRnic;

/// The interface that opened an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Face {
    /// IT-API, or a program on the access layer itself.
    Access = 1,
    /// The verbs libraries.
    Verbs = 2,
}

/// Names of an adapter.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Its interface.
    pub face: Face,
    /// Its provider.
    pub provider: &'a str,
    /// Its device.
    pub device: &'a str,
}

/// The RNIC to use instead of `rnic`, and the observation of its connection manager. It is `rnic` itself with
/// `publish = false`, in a program with more rights than its user, and if the page is full.
pub fn adapter(
    config: &Observe,
    names: &Names<'_>,
    rnic: Arc<dyn Rnic>,
) -> (Arc<dyn Rnic>, Observed) {
    match wrapped(config, names, &rnic) {
        Some((observed_rnic, observed)) => (observed_rnic, observed),
        None => (rnic, Observed::default()),
    }
}

/// The wrapper of [`adapter`]; `None`: there is none.
pub(crate) fn wrapped(
    config: &Observe,
    names: &Names<'_>,
    rnic: &Arc<dyn Rnic>,
) -> Option<(Arc<ObservedRnic>, Observed)> {
    if !config.publish || is_secure() {
        return None;
    }
    let unseen = |why: &dyn std::fmt::Display| {
        tracing::info!("`warpline stat` cannot show {}: {why}", names.device);
    };
    let process = Process::get().inspect_err(|error| unseen(error)).ok()?;
    let Some((index, record)) = process.device(names) else {
        unseen(&"the state page has records for 16 adapters");
        return None;
    };
    rnic.publish(record.clone());
    let extra = process.extra_descriptor();
    let rnic = ObservedRnic::create(rnic.clone(), process, index, record.clone());
    let observed = Observed { record, extra, observer: Some(rnic.clone()) };
    Some((rnic, observed))
}
