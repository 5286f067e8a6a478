//! Whether a QP's socket is in the engine's epoll set, or is polled so often that it need not be.
//!
//! Belongs to the QP's link, under its lock. See [`crate::engine`] for how sockets are registered again.

use crate::engine::Engine;
use crate::stream::socket::Stream;
use crate::tuning::OFTEN;

/// Whether the socket is registered, and how often it was polled.
#[derive(Default)]
pub(crate) struct Registration {
    /// The socket is not in the engine's set.
    unregistered: bool,
    /// The engine's back-off in which the socket was polled last, and how often in it.
    back_off: u32,
    polls: u32,
}

impl Registration {
    /// A poller polls at the socket. `busy`: the QP waits for more than octets.
    #[inline]
    pub(crate) fn count_poll(&mut self, engine: &Engine, id: u32, stream: &Stream, busy: bool) {
        let back_off = engine.back_off();
        if self.back_off != back_off {
            (self.back_off, self.polls) = (back_off, 0);
        }
        self.polls = self.polls.saturating_add(1);
        if self.polls == OFTEN && !self.unregistered && !busy {
            self.unregistered = engine.unregister(id, stream);
        }
    }

    /// Registers the socket again, if it is not. What arrived meanwhile is reported, and with `room`
    /// also room to send. False: it can no longer be watched.
    pub(crate) fn register_again(
        &mut self,
        engine: &Engine,
        id: u32,
        stream: &Stream,
        room: bool,
    ) -> bool {
        self.polls = 0;
        !std::mem::take(&mut self.unregistered) || engine.register_again(id, stream, room)
    }

    /// The socket is unregistered, and was polled in that back-off or the one that has just begun.
    pub(crate) fn is_attended(&self, back_off: u32) -> bool {
        self.unregistered && self.back_off.wrapping_sub(back_off) <= 1
    }
}
