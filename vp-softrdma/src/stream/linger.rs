//! Lingering streams: a QP that is destroyed, or closed in the middle of work, leaves its socket here,
//! so that what completed before arrives at the peer.
//!
//! After a Terminate or an orderly close the stream ends with the peer's FIN; if work was lost, with a
//! reset as soon as the peer's TCP has everything that ours had taken. Owned by the engine; touched by
//! whichever thread serves. Octets that still arrive are read and dropped: unread ones would make the
//! kernel reset the stream. A peer that never closes, never reads, or dies is dropped when the close
//! timer expires, or when it is the oldest of too many. The QP may have another stream meanwhile: this
//! one has its own id.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{Engine, Member, Ready, Timer};
use crate::stream::pool;
use crate::stream::socket::{Received, Stream};
use crate::tuning;

/// How a lingering stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Our FIN was sent, and the peer's is to come.
    Fin,
    /// Sent octets are to arrive, and a reset follows them.
    Reset,
}

/// A lingering stream.
pub(crate) struct Linger {
    id: u32,
    generation: u32,
    engine: Arc<Engine>,
    ending: Ending,
    state: Mutex<State>,
}

struct State {
    stream: Option<Stream>,
    /// Time to the next check.
    check_ns: u64,
}

impl Linger {
    /// Takes over the stream of QP `qp`, which the engine serves, until `at` at most.
    /// RFC 5040 6.2.1 [RDMAP-27]
    pub(crate) fn start(engine: &Arc<Engine>, qp: u32, stream: Stream, ending: Ending, at: u64) {
        let mut lingering = None;
        let sockets = stream.sockets();
        engine.let_linger(qp, &sockets, |id, generation| {
            let state =
                Mutex::new(State { stream: Some(stream), check_ns: tuning::LINGER_CHECK_NS });
            let linger = Arc::new(Self { id, generation, engine: engine.clone(), ending, state });
            lingering = Some(linger.clone());
            linger
        });
        if let Some(linger) = lingering {
            linger.set_timer(at, Timer::Close);
            // What arrived before may not have caused an event for this member.
            linger.on_ready(Ready { life_line: true, ..Ready::default() });
            linger.on_timer(linger.generation, Timer::Probe);
        }
    }

    fn set_timer(&self, at: u64, timer: Timer) {
        self.engine.set_timer(at, self.id, self.generation, timer);
    }

    /// Reads and drops; returns true when the stream is over.
    fn drain(&self, stream: &Stream) -> bool {
        pool::with_staging(|staging| {
            for _ in 0..tuning::LINGER_READS {
                match stream.recv(staging) {
                    Received::Octets(_) => {}
                    Received::Empty => return false,
                    // The peer need not have read what we sent.
                    Received::Fin => return self.ending == Ending::Fin,
                    Received::Broken(_) => return true,
                }
            }
            self.engine.rearm(self.id, &**stream);
            false
        })
    }

    /// Ends the stream if everything has arrived; otherwise checks again later.
    fn end_if_delivered(&self, state: &mut State) {
        let Some(stream) = &state.stream else { return };
        if stream.is_delivered() {
            return self.end(state);
        }
        self.set_timer(self.engine.now() + state.check_ns, Timer::Probe);
        state.check_ns = (2 * state.check_ns).min(tuning::MAX_LINGER_CHECK_NS);
    }

    fn end(&self, state: &mut State) {
        if let Some(stream) = state.stream.take() {
            if self.ending == Ending::Reset {
                stream.reset_on_close();
            }
            self.engine.detach(self.id, &stream);
        }
    }
}

impl Member for Linger {
    fn on_ready(&self, ready: Ready) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.life_line
            && let Some(stream) = &state.stream
        {
            // Octets there are dropped, as all others.
            let _ = stream.check_life_line();
        }
        if state.stream.as_ref().is_some_and(|stream| self.drain(stream)) {
            self.end(&mut state);
        }
    }

    fn on_timer(&self, generation: u32, timer: Timer) {
        if generation != self.generation {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match timer {
            Timer::Close => self.end(&mut state),
            Timer::Probe if self.ending == Ending::Reset => self.end_if_delivered(&mut state),
            _ => {}
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "linger_tests.rs"]
mod tests;
