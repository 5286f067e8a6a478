//! The objects that asynchronous events are about. No state.

use vp_api::{CqId, QpId, SrqId};

/// Object of an affiliated event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AsyncSource {
    /// An endpoint's queue pair, see [`crate::Ia::ep`].
    Ep(QpId),
    /// A completion dispatcher's queue, see [`crate::Ia::evd`].
    Evd(CqId),
    /// A dispatcher of another stream, by its [`crate::Tag`]. The event is
    /// [`vp_api::AsyncEvent::CqOverrun`]: it had no room and lost events.
    Queue(u64),
    /// A shared receive queue, see [`crate::Ia::srq`].
    Srq(SrqId),
}
