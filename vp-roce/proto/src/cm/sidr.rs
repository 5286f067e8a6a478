//! Service id resolution (SIDR): finds the queue pair and queue key of a datagram service (InfiniBand volume 1,
//! 12.11).
//!
//! The passive end has no state: it replies to each request ([`reply`]).
//!
//! Owner of the state: the connection manager; one thread at a time. If the peer dies, the request is sent
//! again, then given up.

use super::connection::Patience;
use super::mad::Mad;
use super::message::{Message, Private, SidrStatus};
use crate::wire::bth::DEFAULT_PKEY;

/// How a lookup ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Outcome {
    /// The service's queue pair.
    Found {
        /// Queue pair.
        qpn: u32,
        /// Queue key.
        qkey: u32,
        /// Private data.
        private: Private<136>,
    },
    /// There is none.
    Refused {
        /// Why.
        status: SidrStatus,
        /// Private data.
        private: Private<136>,
    },
    /// No reply arrived.
    Unreachable,
}

/// A lookup in progress.
#[derive(Debug)]
pub struct Lookup {
    request: u32,
    message: Message,
    transaction: u64,
    patience: Patience,
    sent: u8,
    due: bool,
    deadline: Option<u64>,
}

impl Lookup {
    /// Begins a lookup of `service`; the caller chooses `request`, unique while the lookup lasts.
    pub fn new(
        request: u32,
        service: u64,
        private: Private<216>,
        patience: Patience,
        now: u64,
    ) -> Self {
        let message = Message::SidrReq { request, pkey: DEFAULT_PKEY, service, private };
        Self {
            request,
            message,
            transaction: u64::from(request),
            patience,
            sent: 0,
            due: true,
            deadline: Some(now.saturating_add(patience.response)),
        }
    }

    /// When [`Lookup::handle_timeout`] is to be called.
    pub const fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// The request to send, if it is time.
    pub fn poll_transmit(&mut self) -> Option<Mad> {
        let due = core::mem::take(&mut self.due);
        due.then(|| self.message.emit(self.transaction))
    }

    /// A message of the peer; `None` if it is not the reply.
    pub fn handle(&mut self, message: &Message) -> Option<Outcome> {
        let Message::SidrRep { request, status, qpn, qkey, private, .. } = *message else {
            return None;
        };
        if request != self.request || self.deadline.is_none() {
            return None;
        }
        (self.deadline, self.due) = (None, false);
        Some(match status {
            SidrStatus::VALID => Outcome::Found { qpn, qkey, private },
            status => Outcome::Refused { status, private },
        })
    }

    /// The time of [`Lookup::deadline`] has come; before it, nothing happens.
    pub fn handle_timeout(&mut self, now: u64) -> Option<Outcome> {
        self.deadline.filter(|&at| at <= now)?;
        if self.sent >= self.patience.retries {
            self.deadline = None;
            return Some(Outcome::Unreachable);
        }
        self.sent += 1;
        self.due = true;
        self.deadline = Some(now.saturating_add(self.patience.response));
        None
    }
}

/// The reply to the request that arrived in `mad`: `Ok` with queue pair and queue key, or why not. `None`
/// if it is no such request.
pub fn reply(
    mad: &Mad,
    service: Result<(u32, u32), SidrStatus>,
    private: Private<136>,
) -> Option<Mad> {
    let Ok(Message::SidrReq { request, service: id, .. }) = Message::parse(mad) else {
        return None;
    };
    let (status, (qpn, qkey)) = match service {
        Ok(found) => (SidrStatus::VALID, found),
        Err(status) => (status, (0, 0)),
    };
    // [IBCM-09]
    let reply = Message::SidrRep { request, status, qpn, service: id, qkey, private };
    Some(reply.emit(mad.transaction))
}
