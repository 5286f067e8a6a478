//! A connection of a channel: its endpoint, and what depends on the adapter that it is made on.
//!
//! Owner: the state of the channel, which has one at a time. A session that moves to another adapter gets another; on the same
//! adapter the endpoint is reset and connected again.

use itapi::{ConnEvd, Ep, Error, Evd, Ia, Pz, VpStatus, Work};

use crate::error::Result;
use crate::sends::Sends;
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

/// Depth of the send queue beside so many receives.
fn depth(receives: u32) -> u32 {
    2 * receives + SIGNAL_EVERY
}

/// Most completions of a connection with so many receives.
pub(crate) fn completions(receives: u32) -> u32 {
    receives + depth(receives)
}

impl Link {
    /// An endpoint that is not connected, for so many receives and so many requests to send, on a dispatcher that has room for them.
    pub(crate) fn new(
        adapter: usize,
        line: u32,
        pz: Pz,
        dispatchers: (Evd, ConnEvd),
        receives: u32,
    ) -> Result<Self> {
        let (evd, events) = dispatchers;
        let depth = depth(receives);
        let inline = INLINE.min(pz.ia().attrs().max_inline);
        let ep = pz.ep(&evd).conn_evd(&events).depth(depth, receives).max_pieces(1);
        let ep = ep.max_inline(inline).allow(itapi::Access::REMOTE_READ).build()?;
        let (completions, inline) = (completions(receives), inline as usize);
        Ok(Self { ep, pz, adapter, line, depth, inline, completions })
    }

    /// Posts a Send from a buffer with `octets`, or of octets that are copied meanwhile: then `octets` is 0.
    #[inline]
    pub(crate) fn post(
        &self,
        sends: &mut Sends,
        work: Work<'_>,
        octets: usize,
        signalled: bool,
    ) -> Result<()> {
        let signalled = signalled || sends.must_signal(octets);
        let work = if signalled { work } else { work.unsignalled() };
        self.ep.post(work)?;
        sends.posted(octets, signalled);
        Ok(())
    }

    /// Whether it is on this adapter.
    pub(crate) fn is_on(&self, ia: &Ia) -> bool {
        same(&self.pz.ia(), ia)
    }
}

/// Whether an endpoint that cannot be reset never can: its device was lost, and has flushed everything.
pub(crate) fn is_useless(ia: &Ia, error: &Error) -> bool {
    let Error::Access(refused) = error else { return false };
    let flushes = |status| status == VpStatus::StillFlushing;
    ia.is_lost() && refused.verb_status().is_some_and(|status| !flushes(status))
}

/// Whether the device, or its driver, refused, and not for want of memory.
pub(crate) fn is_devices(error: &Error) -> bool {
    let status = match error {
        Error::Access(refused) => refused.verb_status(),
        Error::Post { status, .. } => Some(*status),
        _ => None,
    };
    status == Some(VpStatus::Os)
}

/// Whether both are handles of one open adapter.
pub(crate) fn same(one: &Ia, other: &Ia) -> bool {
    std::ptr::eq(one.attrs(), other.attrs())
}
