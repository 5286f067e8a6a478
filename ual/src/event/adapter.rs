//! Calls of an adapter that create event dispatchers and find those that are open. No state.

use std::sync::Arc;

use vp_api::CqId;

use super::{Evd, EvdInit, Stream};
use crate::error::{Error, Result};
use crate::resource::Ia;

impl Ia {
    /// Creates an event dispatcher. At most one each for affiliated and unaffiliated events.
    pub fn create_evd(self: &Arc<Self>, init: EvdInit) -> Result<Arc<Evd>> {
        let taken = match init.stream {
            Stream::Affiliated => self.directory().affiliated(),
            Stream::Unaffiliated => self.directory().unaffiliated(),
            _ => None,
        };
        if taken.is_some() {
            return Err(Error::InvalidArgument(format!(
                "there is an event dispatcher for {:?} events of this adapter already",
                init.stream
            )));
        }
        Evd::new(self, init)
    }

    /// The dispatcher of a completion queue, while it is open.
    pub fn evd(&self, cq: CqId) -> Option<Arc<Evd>> {
        self.directory().by_cq(cq)
    }

    /// The dispatcher of affiliated events, while one is open.
    pub fn affiliated_evd(&self) -> Option<Arc<Evd>> {
        self.directory().affiliated()
    }

    /// The dispatcher of unaffiliated events, while one is open.
    pub fn unaffiliated_evd(&self) -> Option<Arc<Evd>> {
        self.directory().unaffiliated()
    }
}
