//! A connection of a channel: its endpoint, and what depends on the adapter that it is made on.
//!
//! Owner: the state of the channel, which has one at a time. A session that moves to another adapter gets another; on the same
//! adapter the endpoint is reset and connected again.

use std::sync::Arc;

use itapi::{Ep, Ia, Pz};

use crate::error::Result;
use crate::hub::Hub;
use crate::tuning::{INLINE, SIGNAL_EVERY};

/// See the module.
pub(crate) struct Link {
    pub(crate) ep: Ep,
    pub(crate) pz: Pz,
    /// The hub's number of its adapter.
    pub(crate) adapter: usize,
    /// Counts the adapters that the channel has used: memory that was registered for another is of no use here.
    pub(crate) line: u32,
    /// Depth of the send queue, and octets that are copied while posting.
    pub(crate) depth: u32,
    pub(crate) inline: usize,
    /// Most completions that can wait for it.
    pub(crate) completions: u32,
}

impl Link {
    /// An endpoint that is not connected, for so many receives.
    pub(crate) fn new(hub: &Arc<Hub>, ia: &Ia, line: u32, receives: u32) -> Result<Self> {
        let (pz, adapter) = (ia.pz()?, hub.adapter(ia)?);
        let depth = 2 * receives + SIGNAL_EVERY;
        let completions = depth + receives;
        let (evd, events) = hub.room_for(adapter, completions)?;
        let inline = INLINE.min(ia.attrs().max_inline);
        let ep = pz.ep(&evd).conn_evd(&events).depth(depth, receives).max_pieces(1);
        let made = ep.max_inline(inline).allow(itapi::Access::REMOTE_READ).build();
        if made.is_err() {
            hub.no_room_for(adapter, completions);
        }
        Ok(Self { ep: made?, pz, adapter, line, depth, inline: inline as usize, completions })
    }

    /// Whether it is on this adapter.
    pub(crate) fn is_on(&self, ia: &Ia) -> bool {
        same(&self.pz.ia(), ia)
    }
}

/// Whether both are handles of one open adapter.
pub(crate) fn same(one: &Ia, other: &Ia) -> bool {
    std::ptr::eq(one.attrs(), other.attrs())
}
