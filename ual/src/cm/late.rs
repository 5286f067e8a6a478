//! Late RDMA transition: converted sockets until their endpoint is connected.
//!
//! Behind the desk's lock. The side that begins is an ordinary attempt without TCP's part;
//! the side that waits is an entry here. A peer that is silent, closes or talks about something
//! else costs it until then, or until the timer fires.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use iwarp_proto::Role as WireRole;
use iwarp_proto::mpa::startup::{Negotiated, Responder, StartupError, Step};
use kal_shim::clock::after;
use kal_shim::reactor::Interest;
use kal_shim::sock;
use vp_api::Role;

use super::FailReason;
use super::adopt::{
    Agreed, adopt, answer, asks_crc, asks_markers, fail, reason_of, refused, responder_config,
    unwatchable,
};
use super::convert::{Conversion, ConvertParams, begins_fpdu};
use super::passive::send_rest;
use super::table::{Entry, Table, open, options};
use crate::node::Ends;
use crate::policy::Policy;
use crate::resource::Ep;

/// A converted socket whose peer is to begin.
pub(super) struct Late {
    ep: Weak<Ep>,
    policy: Policy,
    ends: Ends,
    socket: OwnedFd,
    /// The last streaming message, of which so many octets are out.
    last_message: Vec<u8>,
    sent: usize,
    private_data: Vec<u8>,
    /// What the application had read.
    early: Vec<u8>,
    awaited: Awaited,
    patience: Duration,
}

/// What the peer is to begin with.
enum Awaited {
    Request(Responder),
    /// The first FPDU, as far as it has come.
    Fpdu(Vec<u8>),
}

/// The peer has begun.
struct Begun {
    /// Octets for the provider.
    received: Vec<u8>,
    /// Of the request, if there is one.
    private_data: Vec<u8>,
}

/// What to do with a converted socket next.
enum Turn {
    Wait(Interest),
    Begun(Begun),
    Refuse(StartupError),
    Failed(FailReason),
}

impl Table {
    pub(super) fn on_convert(&mut self, ep: &Weak<Ep>, conversion: Conversion) {
        let Some(open) = open(ep) else { return };
        let Conversion { socket, params, policy, ends } = &conversion;
        open.link().ends = Some(ends.clone());
        let ready = options(policy).apply(socket, ends.remote.address);
        if let Err(error) = ready.and_then(|()| sock::uncork(socket)) {
            let reason = FailReason::Resources(format!("cannot set the socket's options: {error}"));
            return fail(&open, conversion.ends, reason);
        }
        match (params.role, params.startup) {
            (Role::Initiator, true) => self.ask_late(&open, conversion),
            (Role::Initiator, false) => begin_late(&open, conversion),
            (Role::Responder, _) => self.wait_late(&open, conversion),
        }
    }

    fn wait_late(&mut self, ep: &Arc<Ep>, conversion: Conversion) {
        let Conversion { socket, params, policy, ends } = conversion;
        let (awaited, patience) = match params.startup {
            true => (
                Awaited::Request(Responder::new(responder_config(&policy))),
                policy.request_timeout,
            ),
            // The application posts it, in its own time.
            false => (Awaited::Fpdu(Vec::new()), policy.answer_timeout),
        };
        let ConvertParams { last_message, private_data, received: early, .. } = params;
        let token = self.new_token();
        self.by_qp.insert(ep.id(), token);
        self.reactor.set_timer(token, after(patience));
        let late = Late {
            ep: Arc::downgrade(ep),
            policy,
            ends,
            socket,
            last_message,
            sent: 0,
            private_data,
            early,
            awaited,
            patience,
        };
        match self.reactor.add(&late.socket, token, Interest::READ) {
            Ok(()) => self.advance_late(token, Box::new(late)),
            Err(error) => self.fail_late(token, late, unwatchable(&error)),
        }
    }

    pub(super) fn advance_late(&mut self, token: u64, mut late: Box<Late>) {
        match late.turn() {
            Turn::Wait(interest) => match self.reactor.modify(&late.socket, token, interest) {
                Ok(()) => {
                    self.entries.insert(token, Entry::Late(late));
                }
                Err(error) => self.fail_late(token, *late, unwatchable(&error)),
            },
            Turn::Begun(begun) => self.finish_late(token, *late, begun),
            Turn::Refuse(error) => {
                if let Awaited::Request(machine) = &late.awaited
                    && let Some(reply) = machine.reply_for(error)
                {
                    // The connection is over either way.
                    let _ = sock::send(&late.socket, &reply);
                }
                self.fail_late(token, *late, reason_of(error));
            }
            Turn::Failed(reason) => self.fail_late(token, *late, reason),
        }
    }

    fn finish_late(&mut self, token: u64, late: Late, begun: Begun) {
        self.leave_late(token, &late);
        let Some(ep) = open(&late.ep) else { return };
        let Late { socket, policy, ends, awaited, private_data, .. } = late;
        let own = ep.ird_ord();
        let (last_message, negotiated) = match awaited {
            Awaited::Request(machine) => match answer(&machine, &policy, own, &private_data) {
                Ok(answer) => answer,
                Err(error) => return fail(&ep, ends, reason_of(error)),
            },
            Awaited::Fpdu(_) => (Vec::new(), unspoken(WireRole::Responder, &policy, own)),
        };
        let Begun { received, private_data } = begun;
        let agreed = Agreed {
            policy: &policy,
            ends: ends.clone(),
            negotiated,
            own,
            private_data,
            socket,
            received,
            last_message,
        };
        hand_over(&ep, ends, agreed);
    }

    fn leave_late(&mut self, token: u64, late: &Late) {
        self.unwatch(token, &late.socket);
        if let Some(ep) = late.ep.upgrade() {
            self.by_qp.remove(&ep.id());
        }
    }

    pub(super) fn expire_late(&mut self, token: u64, late: Late) {
        let reason = FailReason::RequestTimeout(late.patience);
        self.fail_late(token, late, reason);
    }

    pub(super) fn fail_late(&mut self, token: u64, late: Late, reason: FailReason) {
        self.leave_late(token, &late);
        if let Some(ep) = open(&late.ep) {
            fail(&ep, late.ends, reason);
        }
    }
}

impl Late {
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn turn(&mut self) -> Turn {
        match send_rest(&self.socket, &self.last_message, &mut self.sent) {
            Ok(true) => {}
            Ok(false) => return Turn::Wait(Interest::WRITE),
            Err(_) => return Turn::Failed(FailReason::PeerClosed { have: 0 }),
        }
        let early = std::mem::take(&mut self.early);
        if let Some(turn) = self.take(&early) {
            return turn;
        }
        let mut octets = [0; 2048];
        loop {
            let count = match sock::recv(&self.socket, &mut octets) {
                Ok(count) if count > 0 => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Turn::Wait(Interest::READ);
                }
                _ => return Turn::Failed(self.closed()),
            };
            if let Some(turn) = self.take(&octets[..count]) {
                return turn;
            }
        }
    }

    /// Octets of the peer; `None`: more are needed.
    fn take(&mut self, octets: &[u8]) -> Option<Turn> {
        match &mut self.awaited {
            Awaited::Request(machine) => match machine.handle(octets) {
                Ok(Step::NeedMore) => None,
                Ok(Step::Done { consumed, value }) => Some(Turn::Begun(Begun {
                    received: octets[consumed..].to_vec(),
                    private_data: value.private_data,
                })),
                Err(error) => Some(Turn::Refuse(error)),
            },
            Awaited::Fpdu(begun) => {
                begun.extend_from_slice(octets);
                match begins_fpdu(begun, asks_markers(&self.policy))? {
                    true => {
                        let received = std::mem::take(begun);
                        Some(Turn::Begun(Begun { received, private_data: Vec::new() }))
                    }
                    false => Some(Turn::Failed(FailReason::NotMpa("its first octets are no FPDU"))),
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

/// The initiator without start-up: it may send at once.
fn begin_late(ep: &Arc<Ep>, conversion: Conversion) {
    let Conversion { socket, params, policy, ends } = conversion;
    let own = ep.ird_ord();
    let agreed = Agreed {
        policy: &policy,
        ends: ends.clone(),
        negotiated: unspoken(WireRole::Initiator, &policy, own),
        own,
        private_data: Vec::new(),
        socket,
        received: Vec::new(),
        last_message: params.last_message,
    };
    hand_over(ep, ends, agreed);
}

/// What the applications agreed on by themselves: the policy, at both ends.
fn unspoken(role: WireRole, policy: &Policy, (ird, ord): (u16, u16)) -> Negotiated {
    let markers = asks_markers(policy);
    Negotiated {
        role,
        // That of RFC 5044, whose FPDUs follow.
        revision: 1,
        crc: asks_crc(policy),
        markers_tx: markers,
        markers_rx: markers,
        ird,
        ord,
        peer_ird_ord: None,
        rtr: None,
    }
}

fn hand_over(ep: &Arc<Ep>, ends: Ends, agreed: Agreed<'_>) {
    if let Err(error) = adopt(ep, agreed) {
        fail(ep, ends, refused(&error));
    }
}
