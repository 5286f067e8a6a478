//! Connections of a device that is lost. The kernel ends those of a device that is being removed one by one, and says so of each;
//! of a device that is gone it says nothing of some.
//!
//! Owner: the connection manager; the event thread runs it.

use std::sync::Arc;

use vp_api::{AsyncEvent, EventSource};

use super::{Cm, Connections, Stage, step};
use crate::object_table::lock;
use crate::qp::VerbsQp;

const REMOVED: &str = "the device was removed";

impl Cm {
    /// The kernel removes the device, and has destroyed its part of this id.
    pub(super) fn removed(&self, token: u64) {
        if self.context.is_to_be_told() {
            self.sink.emit(EventSource::Rnic, AsyncEvent::Catastrophic);
        }
        let qp = lock(&self.table).all.get(&token).and_then(|connection| connection.qp.clone());
        if let Some(qp) = qp {
            // Its reason is reported before its end.
            qp.broke(qp.life(), Some(AsyncEvent::Catastrophic));
            self.end_broken();
        }
        let ended = self.end_of(&mut lock(&self.table), token);
        if let Some(qp) = ended {
            qp.tell();
        }
    }

    /// The device is gone.
    pub(crate) fn lost(&self) {
        // Each reports its reason before its end.
        self.end_broken();
        let mut table = lock(&self.table);
        let tokens: Vec<u64> = table.all.keys().copied().collect();
        let ended: Vec<_> =
            tokens.into_iter().filter_map(|token| self.end_of(&mut table, token)).collect();
        drop(table);
        ended.iter().for_each(|qp| qp.tell());
    }

    /// Ends one connection; returns its queue pair.
    fn end_of(&self, table: &mut Connections, token: u64) -> Option<Arc<VerbsQp>> {
        let connection = table.all.get_mut(&token)?;
        let qp = connection.qp.clone();
        match connection.stage {
            // Nobody asks any more.
            Stage::Listening | Stage::Over => {}
            // Accepting it is refused.
            Stage::Asked => _ = table.remove(token),
            Stage::Awaiting | Stage::Up | Stage::Leaving => {
                step::report_established(self, connection);
                step::over(self, connection);
            }
            Stage::Resolving | Stage::Connecting | Stage::Accepting => {
                step::end(self, table, token, REMOVED.into(), None);
            }
        }
        qp
    }
}
