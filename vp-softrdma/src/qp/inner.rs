//! The part of a QP that its lock protects, and the steps that drive it: receive, transmit, carry out
//! the core's actions.
//!
//! Each step runs on whichever thread holds the lock. Events and notifications are collected here and delivered
//! by `qp.rs` after unlocking. When the peer dies a step notices, informs the core, and carries out its actions
//! as at any other time.

use std::collections::VecDeque;
use std::sync::Arc;

use iwarp_proto::{Action, LlpFault, QpConfig, QpEvent, State, mpa};
use vp_api::{AsyncEvent, Carrier, FpduSize, QpInit, SlotRef, Unready};

use crate::engine::Timer;
use crate::qp::coalesce::Coalesce;
use crate::qp::context::{Context, Deferred};
use crate::qp::link::{Link, Record};
use crate::qp::protocol_core::ProtocolCore;
use crate::qp::refused::terminate;
use crate::stream::linger::{Ending, Linger};
use crate::stream::local::Line;
use crate::stream::rx::Stopped;
use crate::stream::socket::Sockets;
use crate::stream::tx::Progress;
use crate::tuning;

/// Sizes of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) ird: u16,
    pub(crate) ord: u16,
    pub(crate) send_depth: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_inline: u32,
    /// Octets to buffer of messages that wait for a receive; 0: such a message ends the stream.
    pub(crate) hold: u32,
}

impl Limits {
    /// As requested at creation.
    pub(crate) fn new(init: &QpInit) -> Self {
        Self {
            ird: init.ird,
            ord: init.ord,
            send_depth: init.send_depth,
            max_send_sge: init.max_send_sge,
            max_inline: init.max_inline,
            hold: match init.unready {
                Unready::Terminate => 0,
                Unready::Hold { octets, .. } => octets,
            },
        }
    }

    /// The sizes as the core wants them.
    pub(crate) fn config(&self) -> QpConfig {
        QpConfig {
            sq_depth: self.send_depth,
            max_ird: self.ird,
            max_ord: self.ord,
            max_read_request: crate::limits::MAX_READ_REQUEST,
            extensions: true,
            hold: self.hold,
            crc32c: crate::stream::crc::kernel(),
        }
    }
}

/// The part that the lock protects.
pub(crate) struct Inner {
    pub(crate) core: ProtocolCore,
    pub(crate) link: Option<Link>,
    pub(crate) record: Record,
    pub(crate) limits: Limits,
    pub(crate) coalesce: Coalesce,
    pub(crate) destroyed: bool,
    /// The budget ended before everything was received.
    pub(super) unread: bool,
    /// Octets that may still be sent while the lock is held this time.
    budget_left: usize,
    /// Events not delivered yet.
    pub(crate) events: VecDeque<AsyncEvent>,
    /// Its record in the process's state page.
    pub(super) slot: Option<SlotRef>,
}

impl Inner {
    pub(crate) fn new(core: ProtocolCore, limits: Limits) -> Self {
        Self {
            core,
            link: None,
            record: Record::default(),
            limits,
            coalesce: Coalesce::default(),
            destroyed: false,
            unread: false,
            budget_left: 0,
            events: VecDeque::new(),
            slot: None,
        }
    }

    /// Reads what has arrived and acts on it. `over`: read to the end; `resumed`: the socket has
    /// room again. Returns false if nothing had arrived and nothing was deferred, which is the common
    /// case for pollers.
    pub(crate) fn receive(&mut self, context: &Context, over: bool, resumed: bool) -> bool {
        self.coalesce.attend();
        let Some(link) = &mut self.link else { return false };
        // Asked even if an event reports room: the stream then knows, too, that it is not full any more.
        let resumed = link.has_room_again() || resumed;
        if resumed {
            self.resume();
        }
        let sent = self.send_before_large(context);
        let Some(link) = &mut self.link else { return sent };
        let state = self.core.proto.state();
        let octets = link.inbox.octets;
        let (over, quiet) = match link.stream.shared() {
            None => (over, false),
            // Another read costs nothing, and the end may be there.
            Some(local) => (true, local.is_quiet()),
        };
        let stopped = match quiet {
            true => Stopped::Empty,
            false => link.inbox.receive(&link.stream, &mut self.core, context, over),
        };
        self.unread = stopped == Stopped::Budget;
        let idle = !link.unsent && !resumed && !sent && self.coalesce.deferred() == 0;
        // An end that leaves the state unchanged waits for octets that are still to be sent.
        if (link.inbox.octets, self.core.proto.state()) == (octets, state) && idle {
            return false;
        }
        if self.has_nothing_to_do() {
            self.end_visit(context);
        } else {
            let budget = if sent { self.budget_left } else { tuning::SEND_BUDGET };
            self.drive_within(context, budget);
        }
        true
    }

    /// Transmits deferred posts before large payloads are read, which takes up to 100 us: the peer may wait for them. False:
    /// there was none, or no such payload.
    pub(super) fn send_before_large(&mut self, context: &Context) -> bool {
        let large = || self.link.as_ref().is_some_and(|link| link.inbox.expects_large());
        let sends = self.coalesce.deferred() != 0 && large();
        if sends {
            self.drive(context);
        }
        sends
    }

    /// After a receive, mostly: nothing is to be sent, and the core requests nothing.
    fn has_nothing_to_do(&self) -> bool {
        let deferred = &self.core.queues.deferred;
        self.core.is_idle()
            && self.link.as_ref().is_some_and(|link| link.outbox.is_empty() && !link.draining)
            && !self.core.proto.has_action()
            && self.coalesce.deferred() == 0
            && !(deferred.send_cq.overrun || deferred.recv_cq.overrun)
    }

    /// The socket has room again.
    fn resume(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|link| link.stalled) {
            link.stalled = false;
            self.refresh_mulpdu();
        }
    }

    /// Adjusts the MULPDU to the EMSS, which changes with the path's MTU.
    /// RFC 5044 4.5 [MPA-21]
    pub(super) fn refresh_mulpdu(&mut self) {
        if let Some(link) = &self.link
            && link.params.fpdu == FpduSize::Emss
            && link.stream.shared().is_none()
            && let Ok(emss) = link.stream.emss()
        {
            let mulpdu = mpa::mulpdu(emss, link.params.markers_tx);
            self.core.proto.set_mulpdu(mulpdu);
            self.publish_mulpdu(mulpdu);
        }
    }

    /// The TCP socket became readable, though the octets go through shared memory.
    pub(crate) fn check_life_line(&mut self, context: &Context) {
        let check = |link: &Link| link.stream.check_life_line();
        if self.link.as_ref().map(check) == Some(Line::Octets) {
            self.core.stray(context);
            self.drive(context);
        }
    }

    /// Takes octets that arrived before the QP had the stream.
    pub(crate) fn receive_early(&mut self, context: &Context, octets: &[u8]) {
        if let Some(link) = &mut self.link {
            link.inbox.feed(&mut self.core, context, octets);
        }
        self.drive(context);
    }

    /// Transmits deferred posts.
    pub(crate) fn flush(&mut self, context: &Context) {
        if self.coalesce.deferred() != 0 {
            self.drive(context);
        }
    }

    /// Sends what the budget allows and carries out the core's actions until there are none.
    pub(crate) fn drive(&mut self, context: &Context) {
        self.drive_within(context, tuning::SEND_BUDGET);
    }

    /// The same without a budget: for the verbs that end a stream, after which the QP may not be served again.
    pub(crate) fn drive_to_end(&mut self, context: &Context) {
        self.drive_within(context, usize::MAX);
    }

    fn drive_within(&mut self, context: &Context, budget: usize) {
        self.budget_left = budget;
        let mut stamp = self.coalesce.release();
        loop {
            stamp |= self.transmit(context);
            let lost = self.core.queues.deferred.send_cq.overrun
                || self.core.queues.deferred.recv_cq.overrun;
            if lost && self.core.proto.state() == State::Rts {
                self.core.fail(context);
            }
            self.close_if_drained(context);
            if !self.carry_out_actions(context) {
                break;
            }
        }
        self.leave_behind_terminate(context);
        // After the system call: the peer waits for the octets, and reading the clock takes time.
        if stamp {
            self.coalesce.transmitted(context.engine.now());
        }
        self.end_visit(context);
    }

    pub(super) fn end_visit(&mut self, context: &Context) {
        self.set_probe(context);
        self.set_hold(context);
        self.publish();
    }

    fn close_if_drained(&mut self, context: &Context) {
        if self.link.as_ref().is_some_and(|link| link.draining) && !self.core.proto.has_work() {
            // Refused if the stream is already ending otherwise.
            let _ = self.core.close(context);
        }
    }

    /// Returns true if it took long. The segments of TCP are small when a connection begins, and grow
    /// with the peer's window.
    fn transmit(&mut self, context: &Context) -> bool {
        let long = self.send_within_budget(context) >= tuning::LONG_SEND;
        if long {
            self.refresh_mulpdu();
        }
        long
    }

    /// Returns how many octets the socket took.
    fn send_within_budget(&mut self, context: &Context) -> usize {
        let mut taken = 0;
        let Some(link) = &mut self.link else { return taken };
        // Only an event reports room in the socket; asking for it costs a system call.
        if link.stalled {
            return taken;
        }
        loop {
            link.unsent = self.budget_left == 0;
            if link.unsent {
                return taken;
            }
            if !link.outbox.fill(&link.stream, &mut self.core, context) {
                // Without memory to send from: as if the budget were used up.
                link.unsent = true;
                return taken;
            }
            match link.outbox.send(&link.stream, context, &self.core.queues) {
                Progress::Drained => {
                    link.slow = false;
                    break;
                }
                Progress::Sent { octets, last } => {
                    taken += octets;
                    self.budget_left = self.budget_left.saturating_sub(octets);
                    self.record.counters.send_calls += 1;
                    link.drained += u64::from(link.slow);
                    if let Some(sequence) = last {
                        self.core.sent(context, sequence);
                    }
                }
                Progress::Full => {
                    self.record.counters.send_stalls += 1;
                    (link.stalled, link.slow) = (true, true);
                    // The thread that reads it reports that there is room.
                    if link.stream.shared().is_some() {
                        return taken;
                    }
                    if !link.register_again(context) {
                        self.core.fail(context);
                    }
                    if !std::mem::replace(&mut link.reported, true) {
                        context.engine.rearm(context.id.0, &*link.stream);
                    }
                    return taken;
                }
                Progress::Broken(fault) => {
                    // A reset discards what is being sent; the peer's Terminate may be waiting in the
                    // socket.
                    link.inbox.receive_rest(&link.stream, &mut self.core, context);
                    self.core.broken(context, fault);
                    return taken;
                }
                Progress::Lost => {
                    self.core.unfinished(context);
                    return taken;
                }
            }
        }
        if link.finishing {
            link.finishing = false;
            link.finished = true;
            link.stream.finish();
        }
        self.set_kick(context);
        taken
    }

    /// Carries out the core's actions; false if there were none.
    fn carry_out_actions(&mut self, context: &Context) -> bool {
        let mut any = false;
        while let Some(action) = self.core.poll_action() {
            any = true;
            match action {
                Action::CloseGracefully => self.close_gracefully(context),
                Action::Reset => {
                    if let Some(link) = &self.link {
                        link.stream.reset_on_close();
                    }
                }
                Action::ResetBehind => {
                    if let Some(link) = &mut self.link {
                        link.resetting = true;
                    }
                }
                Action::Detach => self.detach(context),
                Action::Event(event) => {
                    let event = self.event_of(event, context);
                    if event != AsyncEvent::Established {
                        self.record.ended.get_or_insert(event);
                    }
                    self.events.push_back(event);
                }
            }
        }
        any
    }

    // RFC 5040 6.2.1 [RDMAP-27]: FIN after the Terminate, then wait for the peer's, bounded
    fn close_gracefully(&mut self, context: &Context) {
        if let Some(link) = &mut self.link {
            link.finishing = true;
            let at = link.close_at(context);
            link.close_at = Some(at);
            link.set_timer(context, at, Timer::Close);
        }
    }

    fn detach(&mut self, context: &Context) {
        match self.link.take() {
            Some(link) if link.resetting => self.linger(context, link, Ending::Reset),
            Some(link) => {
                self.count(&link);
                if self.record.carrier == Carrier::LocalCorrupt {
                    link.stream.reset_on_close();
                    context.engine.log_corrupt(context.id.0);
                }
                context.engine.detach(context.id.0, &link.stream);
            }
            None => {}
        }
    }

    /// Leaves the stream to end by itself: after our FIN, if that was sent.
    pub(crate) fn leave_stream(&mut self, context: &Context) {
        let ending = matches!(self.core.proto.state(), State::Closing | State::Terminate);
        if let Some(link) = self.link.take_if(|_| ending) {
            let ending = if link.finished { Ending::Fin } else { Ending::Reset };
            self.linger(context, link, ending);
        }
    }

    /// All is sent, and what still arrives would be dropped: the QP is free for another stream.
    /// RDMAC 6.2.3 [VERBS-10]
    fn leave_behind_terminate(&mut self, context: &Context) {
        let over = self.core.proto.state() == State::Terminate;
        if let Some(link) = self.link.take_if(|link| over && link.finished) {
            self.linger(context, link, Ending::Fin);
            self.core.left(context);
        }
    }

    fn linger(&mut self, context: &Context, mut link: Link, ending: Ending) {
        self.count(&link);
        // Otherwise its deadline ends it.
        let _ = link.register_again(context);
        let at = link.close_at(context);
        Linger::start(&context.engine, context.id.0, link.stream, ending, at);
    }

    fn count(&mut self, link: &Link) {
        self.record.counters.recv_calls += link.inbox.calls;
        self.record.carrier = link.stream.carrier();
    }

    fn event_of(&self, event: QpEvent, context: &Context) -> AsyncEvent {
        let terminate_of = |sent, code| terminate(&self.core.proto, sent, code, context);
        match event {
            QpEvent::Established => AsyncEvent::Established,
            QpEvent::CloseComplete => AsyncEvent::CloseComplete,
            QpEvent::TerminateReceived(code) => {
                AsyncEvent::TerminateReceived(terminate_of(false, code))
            }
            QpEvent::TerminateSent(error) => {
                AsyncEvent::TerminateSent(terminate_of(true, error.terminate_code()))
            }
            QpEvent::ConnectionLost(LlpFault::Reset) => AsyncEvent::ConnectionReset,
            QpEvent::ConnectionLost(LlpFault::TimedOut | LlpFault::CloseTimeout) => {
                AsyncEvent::ConnectionLost
            }
            QpEvent::ConnectionLost(LlpFault::UnexpectedFin) | QpEvent::BadClose => {
                AsyncEvent::BadClose
            }
        }
    }

    // ---- work for after unlocking ------------------------------------------------------------

    /// There is none.
    pub(crate) fn leaves_nothing(&self) -> bool {
        let over = self.unread || self.link.as_ref().is_some_and(|link| link.unsent);
        !over && self.events.is_empty() && self.core.queues.deferred.is_empty()
    }

    /// The stream, if the engine is to report it anew: the QP's budget is used up, and there is more to
    /// do.
    pub(crate) fn take_over_budget(&mut self, context: &Context) -> Option<Arc<Sockets>> {
        let unread = std::mem::take(&mut self.unread);
        self.link.as_ref().filter(|link| (unread || link.unsent) && !link.is_polled())?;
        self.register_again(context);
        let link = self.link.as_mut()?;
        link.reported = true;
        Some(link.stream.sockets())
    }

    /// The engine watches the socket again. A stream that cannot be watched ends now.
    pub(crate) fn register_again(&mut self, context: &Context) {
        let Some(link) = &mut self.link else { return };
        if !link.register_again(context) {
            self.core.fail(context);
            self.drive_to_end(context);
        }
    }

    /// Takes the work that is to be done without the lock.
    pub(crate) fn take_deferred(&mut self) -> Deferred {
        std::mem::take(&mut self.core.queues.deferred)
    }
}

pub(crate) fn nanoseconds(duration: std::time::Duration) -> u64 {
    // Limited, so that any value of a caller can be added to the present time.
    duration.as_nanos().min(u128::from(u64::MAX / 2)) as u64
}
