//! The end of a connection, by this end, the peer or an error, and what follows: the event, Idle again, the end of the
//! queue pair.
//!
//! Runs in the thread that finds the end, under the lock of the queue pair; events and the connection manager are called
//! without it, by [`RoceQp::settle`]. A connection ends once: later calls find none.

use kal_os::lock;
use vp_api::{AsyncEvent, EventSource, QpState, VpError, VpResult, VpStatus};

use super::queues::Deferred;
use super::{RoceQp, State};

impl RoceQp {
    /// Ends the connection and flushes everything. With `why`, reports the event and disconnects the peer.
    pub(super) fn finish(&self, state: &mut State, why: Option<AsyncEvent>) {
        let State { link, queues, record, .. } = state;
        if let Some(link) = link {
            link.core.flush();
            // The consumer may have seen the completion of a receive before its acknowledgement left. Without that,
            // the peer's request would fail, or be repeated for ever.
            self.transmit(link, queues, record, self.engine.now(), false);
        }
        self.take_completions(state);
        if let Some(link) = state.link.take() {
            state.record.keep(link.core.stats());
            if Some(link.number) != state.path_number {
                self.engine.numbers.release(link.number);
            }
        }
        state.queues.flush(&self.context);
        if state.phase == QpState::Error {
            return state.publish();
        }
        state.phase = QpState::Error;
        state.publish();
        if let Some(why) = why {
            state.ended = Some(why);
            self.telling.add();
            (state.queues.deferred.event, state.queues.deferred.abandon) = (Some(why), true);
        }
    }

    /// Ends the connection from this end: disconnects the peer, and reports no event unless it was broken before.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        self.conclude(&mut state);
        state.queues.deferred.abandon = true;
        drop(state);
        self.settle();
    }

    /// For the connection manager, which holds a lock: ends the connection. Afterwards [`RoceQp::settle`] must be
    /// called without the lock.
    pub(crate) fn disconnected(&self) {
        let mut state = lock(&self.state);
        state.claimed = false;
        self.conclude(&mut state);
    }

    /// For the connection manager, which holds a lock: the connection was not made. Ends it if it had begun.
    pub(crate) fn not_connected(&self) {
        let mut state = lock(&self.state);
        state.claimed = false;
        if state.link.is_some() {
            self.conclude(&mut state);
        }
    }

    /// Ends the connection after all packets that have arrived: a refusal among them is the cause, although the peer's
    /// disconnection arrived with it.
    fn conclude(&self, state: &mut State) {
        self.advance(state, self.engine.now());
        self.finish(state, None);
    }

    /// Does the work that was deferred until no lock is held.
    pub(crate) fn settle(&self) {
        loop {
            let deferred = std::mem::take(&mut lock(&self.state).queues.deferred);
            if deferred.is_empty() {
                return;
            }
            let Deferred { send_cq, recv_cq, srq_limit, event, abandon } = deferred;
            if event.is_some() {
                self.telling.begin();
            }
            if !send_cq.is_empty() {
                self.context.send_cq.notify(send_cq);
            }
            if !recv_cq.is_empty() {
                self.context.recv_cq.notify(recv_cq);
            }
            if let Some(srq) = self.context.srq.as_ref().filter(|_| srq_limit) {
                srq.raise_limit();
            }
            if let Some(event) = event {
                self.events.emit(EventSource::Qp(self.context.id), event);
                self.telling.told();
            }
            if abandon {
                self.engine.connections.abandon(&self.engine, self);
            }
        }
    }

    /// Destroys the QP: after this every verb returns `InvalidHandle`.
    pub(crate) fn destroy(&self) {
        let mut state = lock(&self.state);
        state.destroyed = true;
        state.queues.silent = true;
        self.conclude(&mut state);
        if let Some(number) = state.path_number {
            self.engine.numbers.release(number);
        }
        state.publish_to(&self.context, &self.init, None);
        drop(state);
        self.engine.connections.forget(&self.engine, self);
        self.settle();
        self.leave_queues();
    }

    /// Error to Idle.
    pub(super) fn renew(&self) -> VpResult<()> {
        // What no other thread has taken yet.
        self.settle();
        if !self.telling.wait() {
            let detail = "the event of the end of the connection is being delivered by this thread";
            return Err(VpError::new(VpStatus::StillFlushing, detail));
        }
        // The end of the connection was reported before. Its remaining work is done without this queue pair.
        self.engine.connections.renew(&self.engine, self);
        let mut state = self.alive()?;
        state.queues.untaken_sends.forget_silent();
        state.phase = QpState::Idle;
        state.claimed = false;
        (state.ird, state.ord) = (self.init.ird, self.init.ord);
        (state.local, state.remote, state.ended) = (None, None, None);
        (state.ack_timeout, state.in_force) = (None, None);
        (state.queues.sends_lost, state.queues.receives_lost) = (0, 0);
        state.queues.refused = None;
        state.publish_limits();
        Ok(())
    }

    /// In Idle: the completions of earlier connections leave the CQs.
    pub(super) fn discard(&self) -> VpResult<()> {
        let mut state = self.alive()?;
        // Under the lock: another thread may have begun a connection.
        if state.phase != QpState::Idle {
            let detail = format!("the queue pair is {:?}; Idle is needed", state.phase);
            return Err(VpError::new(VpStatus::InvalidState, detail));
        }
        self.context.send_cq.discard(self.context.id);
        self.context.recv_cq.discard(self.context.id);
        state.queues.clear_untaken();
        Ok(())
    }
}
