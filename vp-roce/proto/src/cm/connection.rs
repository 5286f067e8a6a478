//! State machine of one connection's messages, at either end, with retransmission and time-outs (InfiniBand
//! volume 1, 12.9).
//!
//! ```text
//! active:  Requested -> Replied -> Established -> Disconnecting -> TimeWait -> Ended
//! passive: Offered -> Accepted -> Established -> ...
//! ```
//!
//! The caller owns clock and sockets: it sends what [`Connection::poll_transmit`] yields, passes every
//! message with this connection's ids to [`Connection::handle`], and calls
//! [`Connection::handle_timeout`] at [`Connection::deadline`]. Time is in microseconds.
//!
//! Owner of the state: the connection manager; one thread at a time. If the peer dies, a message without reply
//! is sent again `retries` times, then the exchange ends with an event. Reuse: a communication id is reused
//! only after `TimeWait`.

use super::mad::Mad;
use super::message::{ConnectionIds, Message, Private, RejectReason, Rejected, Rep, Req};
use crate::rc::timeout;

/// Time-outs and retries of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Microseconds until a message that has no reply is sent again.
    pub response: u64,
    /// How often it is sent again, at most 15.
    pub retries: u8,
    /// Microseconds for which an ended connection keeps its ids, so that delayed packets are not taken for
    /// those of a later one.
    pub time_wait: u64,
}

impl Patience {
    /// From the codes of a request: twice the peer's time (one way there and one back), at least 100 ms.
    pub fn of(response_timeout: u8, retries: u8) -> Self {
        const LEAST: u64 = 100_000;
        let response = timeout(response_timeout).unwrap_or(LEAST).saturating_mul(2).max(LEAST);
        Self { response, retries: retries.min(15), time_wait: response }
    }
}

/// State of the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// REQ sent.
    Requested,
    /// REP arrived; the application makes its queue pair ready.
    Replied,
    /// REQ arrived; the application decides.
    Offered,
    /// REP sent.
    Accepted,
    /// Both may send.
    Established,
    /// DREQ sent.
    Disconnecting,
    /// Over; the ids are kept for a while.
    TimeWait,
    /// Over.
    Ended,
}

/// An event for the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// The peer accepts: make the queue pair ready to receive and to send, then [`Connection::ready`].
    Replied(Rep),
    /// The peer is ready, too.
    Established,
    /// The peer refuses.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// Private data.
        private: Private<148>,
    },
    /// The peer does not reply.
    Unreachable,
    /// The peer has ended the connection, or does not reply to its end.
    Disconnected,
    /// The ids are free.
    Ended,
}

/// A call that does not fit the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongState(pub State);

/// One connection at one end.
#[derive(Debug)]
pub struct Connection {
    state: State,
    ids: ConnectionIds,
    remote_qpn: u32,
    transaction: u64,
    patience: Patience,
    /// Our last message: sent again until it has a reply, or when the peer sends its own again.
    last: Option<Message>,
    /// `last` is to be sent.
    due: bool,
    sent: u8,
    deadline: Option<u64>,
}

impl Connection {
    /// Begins at the active end. The caller chooses `transaction`, unique while the exchange lasts.
    pub fn connect(req: Req, transaction: u64, patience: Patience, now: u64) -> Self {
        let ids = ConnectionIds { local: req.local_id, remote: 0 };
        let mut connection = Self::new(State::Requested, ids, transaction, patience);
        connection.send(Message::Req(req), now);
        connection
    }

    /// Begins at the passive end, with a request that arrived in `mad`. `local_id` is ours, not in use.
    pub fn offered(mad: &Mad, req: &Req, local_id: u32, patience: Patience) -> Self {
        let ids = ConnectionIds { local: local_id, remote: req.local_id };
        let mut connection = Self::new(State::Offered, ids, mad.transaction, patience);
        connection.remote_qpn = req.qpn;
        connection
    }

    const fn new(state: State, ids: ConnectionIds, transaction: u64, patience: Patience) -> Self {
        Self {
            state,
            ids,
            remote_qpn: 0,
            transaction,
            patience,
            last: None,
            due: false,
            sent: 0,
            deadline: None,
        }
    }

    /// Its state.
    pub const fn state(&self) -> State {
        self.state
    }
    /// Its ids, ours first; the remote one is 0 until a reply has come.
    pub const fn ids(&self) -> ConnectionIds {
        self.ids
    }
    /// When [`Connection::handle_timeout`] is to be called.
    pub const fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// Sends a message, and again until its reply arrives.
    fn send(&mut self, message: Message, now: u64) {
        self.last = Some(message);
        (self.due, self.sent) = (true, 0);
        self.deadline = Some(now.saturating_add(self.patience.response));
    }

    /// Sends a message without a reply: once, and again when the peer sends its own again.
    fn send_once(&mut self, message: Message) {
        self.last = Some(message);
        self.due = true;
        self.deadline = None;
    }

    /// The message to send, if there is one.
    pub fn poll_transmit(&mut self) -> Option<Mad> {
        let message = self.last.filter(|_| self.due)?;
        self.due = false;
        Some(message.emit(self.transaction))
    }

    /// Passive: accepts. `rep.ids` is filled in here.
    pub fn accept(&mut self, mut rep: Rep, now: u64) -> Result<(), WrongState> {
        self.expect(State::Offered)?;
        rep.ids = self.ids;
        self.state = State::Accepted;
        self.send(Message::Rep(rep), now);
        Ok(())
    }

    /// Refuses a request, or a reply.
    pub fn reject(
        &mut self,
        reason: RejectReason,
        private: Private<148>,
        now: u64,
    ) -> Result<(), WrongState> {
        let of = match self.state {
            State::Offered => Rejected::Req,
            State::Replied => Rejected::Rep,
            state => return Err(WrongState(state)),
        };
        self.send_once(Message::Rej { ids: self.ids, of, reason, private });
        self.wait(now);
        Ok(())
    }

    /// Active: the queue pair is ready to receive and to send.
    pub fn ready(&mut self) -> Result<(), WrongState> {
        self.expect(State::Replied)?;
        self.state = State::Established;
        self.send_once(Message::Rtu { ids: self.ids, private: Private::default() });
        Ok(())
    }

    /// Ends an established connection, or one whose reply was sent.
    pub fn disconnect(&mut self, now: u64) -> Result<(), WrongState> {
        match self.state {
            State::Established | State::Accepted => {}
            state => return Err(WrongState(state)),
        }
        self.state = State::Disconnecting;
        let (ids, remote_qpn) = (self.ids, self.remote_qpn);
        self.send(Message::Dreq { ids, remote_qpn, private: Private::default() }, now);
        Ok(())
    }

    /// Active: gives up before the peer has replied, and sends it a reject.
    pub fn give_up(&mut self, now: u64) -> Result<(), WrongState> {
        self.expect(State::Requested)?;
        let (ids, of, reason) = (self.ids, Rejected::Req, RejectReason::TIMEOUT);
        self.send_once(Message::Rej { ids, of, reason, private: Private::default() });
        self.wait(now);
        Ok(())
    }

    fn expect(&self, state: State) -> Result<(), WrongState> {
        if self.state == state { Ok(()) } else { Err(WrongState(self.state)) }
    }

    /// Passive: a packet has arrived on the queue pair. It counts as the RTU, which may be lost (InfiniBand
    /// volume 1, 12.9).
    pub fn handle_packet(&mut self) -> Option<Event> {
        // [IBCM-04]
        self.expect(State::Accepted).ok()?;
        self.established()
    }

    fn established(&mut self) -> Option<Event> {
        self.state = State::Established;
        self.deadline = None;
        Some(Event::Established)
    }

    /// Handles a message of the peer with this connection's ids. One that does not fit the state is a
    /// retransmission whose reply was lost, or is old: our last message is sent again, or nothing.
    pub fn handle(&mut self, message: &Message, now: u64) -> Option<Event> {
        match (message, self.state) {
            (Message::Rep(rep), State::Requested) => {
                self.ids.remote = rep.ids.local;
                self.remote_qpn = rep.qpn;
                self.state = State::Replied;
                (self.last, self.due, self.deadline) = (None, false, None);
                Some(Event::Replied(*rep))
            }
            (Message::Mra { timeout: code, .. }, State::Requested | State::Accepted) => {
                // [IBCM-06]
                let longer = timeout(*code).unwrap_or(self.patience.response);
                self.deadline =
                    Some(now.saturating_add(longer).saturating_add(self.patience.response));
                None
            }
            (Message::Rtu { .. }, State::Accepted) => self.established(),
            (
                Message::Rej { reason, private, .. },
                State::Requested | State::Offered | State::Replied | State::Accepted,
            ) => {
                self.wait(now);
                Some(Event::Rejected { reason: *reason, private: *private })
            }
            (Message::Dreq { .. }, State::Accepted | State::Established | State::Disconnecting) => {
                self.send_once(Message::Drep { ids: self.ids, private: Private::default() });
                self.wait(now);
                Some(Event::Disconnected)
            }
            (Message::Drep { .. }, State::Disconnecting) => {
                self.wait(now);
                Some(Event::Disconnected)
            }
            // [IBCM-03]
            // Retransmissions: of a REQ whose REP, of a REP whose RTU, of a DREQ whose DREP was lost.
            (Message::Req(_), State::Accepted)
            | (Message::Rep(_), State::Established)
            | (Message::Req(_) | Message::Rep(_) | Message::Dreq { .. }, State::TimeWait) => {
                self.due = self.last.is_some();
                None
            }
            _ => None,
        }
    }

    fn wait(&mut self, now: u64) {
        // [IBCM-10]
        self.state = State::TimeWait;
        self.deadline = Some(now.saturating_add(self.patience.time_wait));
    }

    /// The time of [`Connection::deadline`] has come; before it, nothing happens.
    pub fn handle_timeout(&mut self, now: u64) -> Option<Event> {
        self.deadline.filter(|&at| at <= now)?;
        if self.state == State::TimeWait {
            (self.state, self.deadline) = (State::Ended, None);
            return Some(Event::Ended);
        }
        // [IBCM-05]
        if self.sent < self.patience.retries {
            self.sent += 1;
            self.due = true;
            self.deadline = Some(now.saturating_add(self.patience.response));
            return None;
        }
        let event = match self.state {
            State::Disconnecting => Event::Disconnected,
            _ => Event::Unreachable,
        };
        if self.state != State::Disconnecting {
            let of = if self.state == State::Requested { Rejected::Req } else { Rejected::Rep };
            let (ids, reason) = (self.ids, RejectReason::TIMEOUT);
            self.send_once(Message::Rej { ids, of, reason, private: Private::default() });
        }
        self.wait(now);
        Some(event)
    }
}
