//! Streams that outlive their QP: destroyed behind a Terminate or an orderly close, a QP leaves its
//! socket here until the peer's FIN, so that no reset overtakes what was sent last.
//!
//! Owned by the engine; touched by whichever thread serves. Octets that still arrive are read and
//! dropped: unread ones would make the kernel reset the stream. A peer that never closes, or dies,
//! is left when the close timer runs out.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{Engine, Member, Ready, Timer};
use crate::pool;
use crate::stream::{Received, Stream};

/// Reads before others get their turn.
const READS: u32 = 4;

/// A stream on its way out.
pub(crate) struct Linger {
    id: u32,
    engine: Arc<Engine>,
    stream: Mutex<Option<Arc<Stream>>>,
}

impl Linger {
    /// Takes over the stream of QP `id` where the engine has it, for at most `bound` nanoseconds.
    // RFC 5040 6.2.1 [RDMAP-27]
    pub(crate) fn start(engine: &Arc<Engine>, id: u32, stream: Arc<Stream>, bound: u64) {
        let linger =
            Arc::new(Self { id, engine: engine.clone(), stream: Mutex::new(Some(stream)) });
        engine.replace(id, linger.clone());
        engine.set_timer(engine.now() + bound, id, Timer::Close);
        // What came before may have been no event of ours.
        linger.on_ready(Ready::default());
    }

    /// Reads and drops; true when the stream is over.
    fn drain(&self, stream: &Stream) -> bool {
        pool::with_staging(|staging| {
            for _ in 0..READS {
                match stream.recv(staging) {
                    Received::Octets(_) => {}
                    Received::Empty => return false,
                    Received::Fin | Received::Broken(_) => return true,
                }
            }
            self.engine.rearm(self.id, stream);
            false
        })
    }

    fn end(&self, stream: &mut Option<Arc<Stream>>) {
        if let Some(stream) = stream.take() {
            self.engine.detach(self.id, &*stream);
        }
    }
}

impl Member for Linger {
    fn on_ready(&self, _: Ready) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if stream.as_ref().is_some_and(|stream| self.drain(stream)) {
            self.end(&mut stream);
        }
    }

    fn on_timer(&self, timer: Timer) {
        if timer == Timer::Close {
            let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
            self.end(&mut stream);
        }
    }
}
