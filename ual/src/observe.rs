//! What others of the same user may see of this process: its state page, and the socket on which they ask.
//!
//! [`adapter`] puts an RNIC that was opened behind a thin one that notes which queue pairs, completion queues and
//! regions there are (`rnic`); queue pairs and completion queues are the provider's own, so the data path has nothing
//! of it. There is one page and one socket per process and copy of the library (`process`): the first adapter makes
//! them, the last user of a record removes them. The connection threads of all adapters watch the socket, and whoever
//! comes first answers (`answers`), without waiting for anybody.
//!
//! What cannot be made is left out, and the log says so at `info`; nothing else depends on it. A child made by fork(2)
//! has neither, until it opens an adapter.

mod answers;
mod process;
mod rnic;

use std::sync::Arc;

use ual_cm::Observed;
use vp_api::Rnic;

use crate::config::Observe;
use crate::secure::is_secure;
use process::Process;
use rnic::ObservedRnic;

/// Which face has an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Face {
    /// IT-API, or a program on the access layer itself.
    Access = 1,
    /// The verbs libraries.
    Verbs = 2,
}

/// Of an adapter.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Who has it.
    pub face: Face,
    /// Its provider.
    pub provider: &'a str,
    /// Its device.
    pub device: &'a str,
}

/// The RNIC to use instead of `rnic`, and what its connection manager is to know. With `publish = false`, in a program
/// with more rights than who started it, and where there is no room, it is `rnic` itself.
pub fn adapter(
    config: &Observe,
    names: &Names<'_>,
    rnic: Arc<dyn Rnic>,
) -> (Arc<dyn Rnic>, Observed) {
    if !config.publish || is_secure() {
        return (rnic, Observed::default());
    }
    let unseen = |why: &dyn std::fmt::Display| {
        tracing::info!("{} is not to be seen by `warpline stat`: {why}", names.device);
    };
    let process = match Process::get() {
        Ok(process) => process,
        Err(error) => {
            unseen(&error);
            return (rnic, Observed::default());
        }
    };
    let Some((index, record)) = process.device(names) else {
        unseen(&"the state page has records for 16 adapters");
        return (rnic, Observed::default());
    };
    rnic.publish(record.clone());
    let observed = Observed { record: record.clone(), aside: process.aside() };
    (ObservedRnic::create(rnic, process, index, record), observed)
}
