//! Who watches a QP's socket: the engine, or a poller that looks at it all the time.
//!
//! Belongs to the QP's link, under its lock. See [`crate::engine`] for how sockets come back.

use crate::engine::Engine;
use crate::stream::socket::Stream;

/// Looks within one nap of the engine that show a thread that does little else.
pub(crate) const OFTEN: u32 = 256;

/// See the module.
#[derive(Default)]
pub(crate) struct Watch {
    /// The socket is not in the engine's set.
    apart: bool,
    /// The nap of the engine in which the socket was looked at last, and how often in it.
    nap: u32,
    looks: u32,
}

impl Watch {
    /// A poller looks at the socket. `busy`: there is more to wait for than octets.
    #[inline]
    pub(crate) fn look(&mut self, engine: &Engine, id: u32, stream: &Stream, busy: bool) {
        let nap = engine.nap();
        if self.nap != nap {
            (self.nap, self.looks) = (nap, 0);
        }
        self.looks = self.looks.saturating_add(1);
        if self.looks == OFTEN && !self.apart && !busy {
            self.apart = engine.set_apart(id, stream);
        }
    }

    /// Puts the socket back, if it is apart. What came meanwhile is reported; `room`: and room. False:
    /// nobody watches it any more.
    pub(crate) fn put_back(
        &mut self,
        engine: &Engine,
        id: u32,
        stream: &Stream,
        room: bool,
    ) -> bool {
        self.looks = 0;
        !std::mem::take(&mut self.apart) || engine.put_back(id, stream, room)
    }

    /// The socket is apart, and was looked at in that nap or the one that has just begun.
    pub(crate) fn is_attended(&self, nap: u32) -> bool {
        self.apart && self.nap.wrapping_sub(nap) <= 1
    }
}
