//! The waiting side of a converted socket (late RDMA transition), as a state machine on that socket. A
//! peer that is silent, closes or sends something else costs a table entry until its timer expires.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::Duration;

use iwarp_proto::mpa::startup::{Responder, StartupError, Step};
use kal_shim::reactor::Interest;
use kal_shim::same_host::NotLocal;
use kal_shim::sock;

use crate::connection::Connectee;
use crate::local::Seeking;
use crate::node::Ends;
use crate::policy::Policy;
use crate::startup::config::{asks_markers, reason_of};
use crate::startup::socket::begins_fpdu;
use crate::startup::tcp::send_rest;
use crate::types::FailReason;

/// A converted socket whose peer has to begin.
pub(crate) struct Converted {
    pub(crate) party: Weak<dyn Connectee>,
    pub(crate) policy: Policy,
    pub(crate) ends: Ends,
    pub(crate) socket: OwnedFd,
    /// The last streaming message, of which this many octets are sent.
    pub(crate) last_message: Vec<u8>,
    pub(crate) sent: usize,
    pub(crate) private_data: Vec<u8>,
    /// Octets that the application had read.
    pub(crate) early: Vec<u8>,
    pub(crate) awaited: Awaited,
    pub(crate) timeout: Duration,
    /// Without start-up: the end that begins may do so here.
    pub(crate) seeking: Result<Seeking, NotLocal>,
}

/// The frame that the peer must begin with.
pub(crate) enum Awaited {
    Request(Responder),
    /// The part of the first FPDU that has arrived.
    Fpdu(Vec<u8>),
}

/// The peer has begun.
pub(crate) struct Begun {
    /// Octets for the provider.
    pub(crate) received: Vec<u8>,
    /// Of the request; empty without start-up.
    pub(crate) private_data: Vec<u8>,
}

/// What to do next with a converted socket.
pub(crate) enum Next {
    Wait(Interest),
    Begun(Begun),
    Refuse(StartupError),
    Failed(FailReason),
}

impl Converted {
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether the peer continues over shared memory.
    pub(crate) fn is_met(&self) -> bool {
        self.seeking.as_ref().is_ok_and(|seeking| seeking.waiting.is_met())
    }

    /// Continues as far as the socket allows.
    pub(crate) fn advance(&mut self) -> Next {
        match send_rest(&self.socket, &self.last_message, &mut self.sent) {
            Ok(true) => {}
            Ok(false) => return Next::Wait(Interest::WRITE),
            Err(_) => return Next::Failed(FailReason::PeerClosed { have: 0 }),
        }
        let early = std::mem::take(&mut self.early);
        if let Some(next) = self.take(&early) {
            return next;
        }
        let mut octets = [0; 2048];
        loop {
            let count = match sock::recv(&self.socket, &mut octets) {
                Ok(count) if count > 0 => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Next::Wait(Interest::READ);
                }
                _ => return Next::Failed(self.closed()),
            };
            if let Some(next) = self.take(&octets[..count]) {
                return next;
            }
        }
    }

    /// Processes octets of the peer; `None`: more are needed.
    fn take(&mut self, octets: &[u8]) -> Option<Next> {
        match &mut self.awaited {
            Awaited::Request(machine) => match machine.handle(octets) {
                Ok(Step::NeedMore) => None,
                Ok(Step::Done { consumed, value }) => Some(Next::Begun(Begun {
                    received: octets[consumed..].to_vec(),
                    private_data: value.private_data,
                })),
                Err(error) => Some(Next::Refuse(error)),
            },
            Awaited::Fpdu(begun) => {
                begun.extend_from_slice(octets);
                match begins_fpdu(begun, asks_markers(&self.policy))? {
                    true => {
                        let received = std::mem::take(begun);
                        Some(Next::Begun(Begun { received, private_data: Vec::new() }))
                    }
                    false => {
                        Some(Next::Failed(FailReason::NotMpa("its first octets are not an FPDU")))
                    }
                }
            }
        }
    }

    fn closed(&self) -> FailReason {
        match &self.awaited {
            Awaited::Request(machine) => reason_of(machine.handle_eof()),
            Awaited::Fpdu(begun) => FailReason::PeerClosed { have: begun.len() },
        }
    }
}
