//! What an exchange does: it sends its messages, and reports the events of its state machine to the QP and to the
//! application.
//!
//! Runs with the table locked. If the peer dies, the state machine's time-outs end it.

use std::sync::Arc;

use roce_proto::cm::connection::{Event, State};
use roce_proto::cm::message::{Message, Private, RejectReason, Rejected, Rep};
use roce_proto::cm::private;
use roce_proto::rc::Mtu;
use vp_api::{NativeEvent, NativeParams, PathTerms, Qp, QpId, Role};

use super::table::{Exchange, Told};
use super::wire;
use crate::engine::{Engine, Touched};
use crate::qp::{Path, RoceQp};
use crate::tuning::{ACK_TIMEOUT, CM_DECISION, RETRIES, RNR_TIMER};

impl Exchange {
    /// Sends the messages that the state machine has queued.
    pub(super) fn send(&mut self) {
        while let Some(mad) = self.machine.poll_transmit() {
            self.socket.send_message(self.peer.ip(), &mad);
        }
    }

    /// Detaches the exchange from its QP.
    pub(super) fn drop_qp(&mut self, engine: &Engine) -> Option<Arc<RoceQp>> {
        if let Some(number) = self.number.take() {
            engine.numbers.release(number);
        }
        self.qp.take()
    }

    pub(super) fn id(&self) -> Option<QpId> {
        self.qp.as_ref().map(|qp| qp.id())
    }

    /// Reports that the connection was not made.
    fn fail(
        &mut self,
        engine: &Engine,
        event: impl FnOnce(QpId) -> NativeEvent,
        touched: &mut Touched,
    ) {
        let Some(qp) = self.drop_qp(engine) else { return };
        qp.not_connected();
        if !std::mem::replace(&mut self.is_told, true) {
            self.events.push(event(qp.id()));
        }
        touched.add(qp);
    }

    /// Reports that the connection is over.
    fn over(&mut self, touched: &mut Touched) {
        let Some(qp) = &self.qp else { return };
        qp.disconnected();
        touched.add(qp.clone());
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let id = qp.id();
        self.events.push(if self.is_up {
            NativeEvent::Disconnected { qp: id }
        } else {
            let reason = format!("the connection to {} ended before it was established", self.peer);
            NativeEvent::Failed { qp: id, reason }
        });
    }

    fn note_refusal(&self, RejectReason(reason): RejectReason) {
        if let Some(qp) = &self.qp {
            qp.set_refusal(Some(reason));
        }
    }

    fn up(&mut self, private_data: Vec<u8>, touched: &mut Touched) {
        let Some(qp) = &self.qp else { return };
        if std::mem::replace(&mut self.is_up, true) {
            return;
        }
        // From here on the QP owns the number.
        self.number = None;
        let (ird, ord) = self.settled;
        let params = NativeParams { private_data, ird, ord };
        let event = NativeEvent::Established { qp: qp.id(), local: Some(self.local), params };
        qp.ready((ird, ord), self.local, self.peer);
        self.events.push(event);
        touched.add(qp.clone());
    }

    pub(super) fn step(&mut self, engine: &Engine, event: Event, now: u64, touched: &mut Touched) {
        match event {
            Event::Replied(rep) => self.replied(engine, &rep, now, touched),
            Event::Established => self.up(Vec::new(), touched),
            Event::Rejected { reason: RejectReason::CONSUMER, private } => {
                self.note_refusal(RejectReason::CONSUMER);
                let private_data = private::unpack(private.0.to_vec(), private::REJECT);
                self.fail(engine, |qp| NativeEvent::Rejected { qp, private_data }, touched);
            }
            Event::Rejected { reason, .. } => {
                self.note_refusal(reason);
                let reason = match reason {
                    RejectReason::INVALID_SERVICE_ID => {
                        format!("there is no RoCE listener at {}", self.peer)
                    }
                    _ => format!("{} rejected the request: reason {reason}", self.peer),
                };
                self.fail(engine, |qp| NativeEvent::Failed { qp, reason }, touched);
            }
            Event::Unreachable => {
                let reason = format!(
                    "{} does not reply to RoCE's messages at UDP port {}",
                    self.peer.ip(),
                    crate::engine::PORT
                );
                self.fail(engine, |qp| NativeEvent::Failed { qp, reason }, touched);
            }
            Event::Disconnected => self.over(touched),
            Event::Ended => {}
        }
        self.send();
    }

    /// The peer accepted the request.
    fn replied(&mut self, engine: &Engine, rep: &Rep, now: u64, touched: &mut Touched) {
        let Some(qp) = self.qp.clone() else { return };
        self.settled = wire::settle(&self.wishes, wire::offer_in(rep));
        let (psn, rnr_retry) = (rep.starting_psn, rep.rnr_retry_count);
        self.told = Some(Told { qpn: rep.qpn, psn, rnr_retry, srq: rep.srq });
        let private_data = private::unpack(rep.private.0.to_vec(), private::REPLY);
        let Some(number) = self.number else {
            // The application establishes it.
            return self.up(private_data, touched);
        };
        let mtu = Mtu::from_code(self.req.mtu).unwrap_or(Mtu::Octets256);
        let psns = (rep.starting_psn, self.req.starting_psn);
        let retries = (RETRIES, rep.rnr_retry_count);
        let config = wire::config(rep.qpn, mtu, psns, self.settled, &qp, retries);
        let begun = qp.begin(self.path(config, qp.ack_timeout(), number, None));
        if let Err(error) = begun {
            // A reject is valid in this state.
            let _ = self.machine.reject(RejectReason::NO_RESOURCES, Private::default(), now);
            let reason = error.to_string();
            return self.fail(engine, |qp| NativeEvent::Failed { qp, reason }, touched);
        }
        // A reject is valid in this state.
        let _ = self.machine.ready();
        self.up(private_data, touched);
    }

    /// Sends the last message of the handshake of a queue pair that takes no part. False: the peer has not accepted.
    pub(super) fn establish(&mut self) -> bool {
        let is_ready = self.qp.as_ref().is_some_and(|qp| qp.carried().is_some());
        let is_ready = is_ready && self.machine.ready().is_ok();
        self.send();
        is_ready
    }

    /// What both ends have said.
    pub(super) fn terms(&self) -> Option<PathTerms> {
        let Told { qpn, psn, rnr_retry, srq } = self.told?;
        let (ird, ord) = match self.machine.state() {
            // What the peer asks for.
            State::Offered => (self.wishes.ord, self.wishes.ird),
            _ => self.settled,
        };
        // A reply does not say it.
        let retry_count = if self.listener == 0 { RETRIES } else { self.req.retry_count };
        Some(PathTerms {
            qpn,
            send_psn: psn.get(),
            receive_psn: self.receive_psn.get(),
            mtu_code: self.req.mtu,
            ack_timeout: ACK_TIMEOUT,
            retry_count,
            rnr_retry,
            min_rnr_timer: RNR_TIMER,
            ird,
            ord,
            srq,
        })
    }

    pub(super) fn path(
        &self,
        config: roce_proto::rc::RcConfig,
        ack_timeout: u8,
        number: u32,
        unconfirmed: Option<u32>,
    ) -> Path {
        Path {
            config,
            number,
            socket: self.socket.clone(),
            peer: self.peer.ip(),
            unconfirmed,
            role: Some(if unconfirmed.is_some() { Role::Responder } else { Role::Initiator }),
            probes: true,
            ack_timeout,
        }
    }

    /// Tells the peer that the application needs more time, if it has to establish the connection.
    pub(super) fn wait_to_establish(&self, transaction: u64) {
        if self.machine.state() == State::Replied {
            self.wait(Rejected::Rep, transaction);
        }
    }

    /// Tells the peer that the application needs more time.
    pub(super) fn wait_for_decision(&self, transaction: u64) {
        self.wait(Rejected::Req, transaction);
    }

    fn wait(&self, of: Rejected, transaction: u64) {
        let (ids, private) = (self.machine.ids(), Private::default());
        let wait = Message::Mra { ids, of, timeout: CM_DECISION, private };
        self.socket.send_message(self.peer.ip(), &wait.emit(transaction));
    }

    /// Ends the connection of a QP that flushed, or abandons an attempt to connect.
    pub(super) fn end(&mut self, engine: &Engine) {
        let now = engine.now();
        if self.machine.state() == State::Replied {
            // Accepted by the peer, and not established by the application. A reject is valid in this state.
            let _ = self.machine.reject(RejectReason::CONSUMER, Private::default(), now);
            if let (Some(qp), false) = (self.id(), std::mem::replace(&mut self.is_told, true)) {
                self.events.push(NativeEvent::Disconnected { qp });
            }
        }
        let disconnects = self.machine.disconnect(now).is_ok();
        if !disconnects && self.machine.give_up(now).is_ok() {
            self.is_told = true;
            self.drop_qp(engine);
        }
        self.send();
    }
}
