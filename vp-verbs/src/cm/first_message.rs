//! The first message of an iWARP connection. The acceptor must not send before the initiator has sent, see RFC 5044
//! section 7.1.2: some peers lose octets that arrive right after an MPA reply. The kernel reports a connection as
//! established as soon as it has replied, and does not report the first message. So the consumer gets the event
//! when a receive has completed, or else when there was time for the zero-length Write, which this provider's
//! initiator sends, to arrive.
//!
//! Owner: the connection manager; the event thread runs it. If a peer dies meanwhile, the connection ends like any
//! other.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use vp_api::QpId;

use super::{Cm, Stage, step};
use crate::object_table::lock;
use crate::tuning::FIRST_MESSAGE_CHECK;

/// How long an initiator's first Write may take after the reply: one round trip.
const GREETING: Duration = Duration::from_millis(20);

/// Accepted connections that are not yet reported to their consumers.
#[derive(Default)]
pub(super) struct Awaiting(Mutex<Vec<Waits>>);

/// One accepted connection: its token. The queue pair does not identify it, because it may soon have another
/// connection.
struct Waits {
    connection: u64,
    qp: QpId,
    until: Instant,
}

impl Awaiting {
    pub(super) fn begin(&self, connection: u64, qp: QpId) {
        lock(&self.0).push(Waits { connection, qp, until: Instant::now() + GREETING });
    }
}

impl Cm {
    /// When the event thread must check again even if no event arrives.
    pub(crate) fn patience(&self) -> Option<Duration> {
        (!lock(&self.awaiting.0).is_empty()).then_some(FIRST_MESSAGE_CHECK)
    }

    /// Reports connections that can be used now.
    pub(crate) fn establish_awaiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.awaiting.0));
        if waiting.is_empty() {
            return;
        }
        let now = Instant::now();
        let (ready, early): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|waits| {
            waits.until <= now || self.qps.get(waits.qp.0).is_ok_and(|qp| qp.has_received())
        });
        lock(&self.awaiting.0).extend(early);
        let mut table = lock(&self.table);
        for waits in ready {
            let found = table.all.get_mut(&waits.connection);
            if let Some(connection) = found.filter(|c| c.stage == Stage::Awaiting) {
                step::report_established(self, connection);
            }
        }
    }
}
