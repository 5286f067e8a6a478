//! The side that connects: TCP, request, reply, and the steps back for peers that know less.
//!
//! The caller starts TCP, so that the errors of its making are its; then the attempt is behind the
//! desk's lock. A silent peer costs an entry until the timer of its phase.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use iwarp_proto::mpa::startup::{Answer, Initiator, Negotiated, StartupError, Step};
use kal_shim::clock::after;
use kal_shim::reactor::Interest;
use kal_shim::sock;

use super::adopt::{
    Agreed, Attempt, adopt, fail, initiator_config, reason_of, refuse, refused, unwatchable,
};
use super::convert::{Conversion, ConvertParams};
use super::passive::send_rest;
use super::start::{Started, local_of, tcp_reason, unspecified};
use super::table::{Entry, Table, open, options};
use super::{ConnEvent, ConnectParams, FailReason};
use crate::node::{Ends, Node};
use crate::policy::{Markers, Policy};
use crate::resource::Ep;

/// A connection attempt.
pub(super) struct Active {
    ep: Weak<Ep>,
    plan: Plan,
    /// A converted socket: there is no second one for another try.
    converted: bool,
    /// The reactor knows the socket.
    watched: bool,
    socket: OwnedFd,
    ends: Ends,
    phase: Phase,
}

enum Phase {
    /// TCP.
    Connecting,
    /// The last streaming message and the request, of which so many octets are sent; the reply.
    Asking { machine: Initiator, preface: Vec<u8>, sent: usize },
}

/// What to do with an attempt next.
enum Turn {
    /// Wait for the socket.
    Wait(Interest),
    /// Connected: start the MPA exchange.
    Ask,
    /// Accepted.
    Adopt(Box<(Negotiated, Vec<u8>, Vec<u8>)>),
    /// Over, maybe to be tried again.
    Over(Over),
}

/// How an attempt ended.
enum Over {
    Failed(FailReason),
    Startup(StartupError),
    Rejected { private_data: Vec<u8>, peer_ird_ord: Option<(u16, u16)>, revision: u8 },
}

impl Table {
    pub(super) fn on_connect(
        &mut self,
        ep: Weak<Ep>,
        params: ConnectParams,
        policy: Policy,
        started: Started,
    ) {
        let Some(open) = open(&ep) else { return };
        let socket = match (started, self.native.clone()) {
            (Started::Tcp(socket), _) => socket,
            (Started::Native, Some(native)) => {
                return self.connect_native(&*native, &open, params, policy);
            }
            (Started::Native, None) => return,
        };
        let deadline = params.timeout.map(after);
        let plan = Plan { attempt: Attempt::new(&policy), params, policy, deadline };
        self.start_active(&open, plan, socket);
    }

    fn start_active(&mut self, ep: &Arc<Ep>, mut plan: Plan, mut socket: io::Result<OwnedFd>) {
        while let Err(error) = &socket
            && plan.go_elsewhere(ep, &tcp_reason(error))
        {
            socket = plan.socket();
        }
        let params = &plan.params;
        let remote = Node::remote(params.remote, params.remote_name.as_deref());
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                let local = Node::local(local_of(params).unwrap_or(unspecified(params)));
                let ends = Ends { local, remote };
                ep.link().ends = Some(ends.clone());
                return fail(ep, ends, tcp_reason(&error));
            }
        };
        let local = sock::local_addr(&socket).unwrap_or(unspecified(params));
        let ends = Ends { local: Node::local(local), remote };
        ep.link().ends = Some(ends.clone());
        let token = self.new_token();
        self.by_qp.insert(ep.id(), token);
        let phase = Phase::Connecting;
        let (ep, converted, watched) = (Arc::downgrade(ep), false, false);
        let active = Active { ep, plan, converted, watched, socket, ends, phase };
        self.reactor.set_timer(token, active.patience());
        // A peer that is near has answered.
        self.advance_active(token, Box::new(active));
    }

    /// A converted socket, at the point where TCP is connected.
    pub(super) fn ask_late(&mut self, ep: &Arc<Ep>, conversion: Conversion) {
        let Conversion { socket, params, policy, ends } = conversion;
        let ConvertParams { private_data, last_message, .. } = params;
        let params = ConnectParams { private_data, ..ConnectParams::new(ends.remote.address) };
        let token = self.new_token();
        self.by_qp.insert(ep.id(), token);
        let mut active = Active {
            ep: Arc::downgrade(ep),
            plan: Plan { params, attempt: Attempt::new(&policy), policy, deadline: None },
            converted: true,
            watched: false,
            socket,
            ends,
            phase: Phase::Connecting,
        };
        self.reactor.set_timer(token, active.patience());
        match active.ask(ep, last_message) {
            Ok(()) => self.keep_active(token, Box::new(active), Interest::WRITE),
            Err(error) => self.end_active(token, active, Over::Startup(error)),
        }
    }

    /// Puts an attempt back into the table, waiting for its socket.
    fn keep_active(&mut self, token: u64, mut active: Box<Active>, interest: Interest) {
        let watched = if active.watched {
            self.reactor.modify(&active.socket, token, interest)
        } else {
            self.reactor.add(&active.socket, token, interest)
        };
        match watched {
            Ok(()) => {
                active.watched = true;
                self.entries.insert(token, Entry::Active(active));
            }
            Err(error) => {
                self.end_active(token, *active, Over::Failed(unwatchable(&error)));
            }
        }
    }

    pub(super) fn advance_active(&mut self, token: u64, mut active: Box<Active>) {
        loop {
            match active.turn() {
                Turn::Wait(interest) => return self.keep_active(token, active, interest),
                Turn::Ask => {
                    let Some(ep) = open(&active.ep) else { return };
                    match active.ask(&ep, Vec::new()) {
                        Ok(()) => self.reactor.set_timer(token, active.patience()),
                        Err(error) => {
                            return self.end_active(token, *active, Over::Startup(error));
                        }
                    }
                }
                Turn::Adopt(agreed) => return self.adopt_active(token, *active, *agreed),
                Turn::Over(over) => return self.end_active(token, *active, over),
            }
        }
    }

    pub(super) fn expire_active(&mut self, token: u64, active: Active) {
        let whole = active.plan.deadline.and(active.plan.params.timeout);
        let after = whole.unwrap_or(active.plan.policy.connect_timeout);
        let reason = match active.phase {
            Phase::Connecting => FailReason::ConnectTimeout(after),
            Phase::Asking { .. } => FailReason::ReplyTimeout(after),
        };
        self.end_active(token, active, Over::Failed(reason));
    }

    fn adopt_active(&mut self, token: u64, active: Active, agreed: (Negotiated, Vec<u8>, Vec<u8>)) {
        let Active { ep, plan, socket, ends, phase, .. } = active;
        self.unwatch(token, &socket);
        let Some(ep) = open(&ep) else { return };
        self.by_qp.remove(&ep.id());
        let (negotiated, private_data, received) = agreed;
        // RFC 6581 8 [CONN-32]: a second descriptor, to say why should the provider refuse.
        let spare = if plan.attempt.enhanced { socket.try_clone().ok() } else { None };
        let agreed = Agreed {
            policy: &plan.policy,
            ends: ends.clone(),
            negotiated,
            own: ep.ird_ord(),
            private_data,
            socket,
            received,
            last_message: Vec::new(),
        };
        if let Err(error) = adopt(&ep, agreed) {
            if let (Some(socket), Phase::Asking { machine, .. }) = (spare, phase) {
                send_terminate(&machine, StartupError::Local, &socket);
            }
            fail(&ep, ends, refused(&error));
        }
    }

    /// Ends an attempt: once more with less, or elsewhere, or for good.
    fn end_active(&mut self, token: u64, mut active: Active, over: Over) {
        self.unwatch(token, &active.socket);
        let Some(ep) = open(&active.ep) else { return };
        self.by_qp.remove(&ep.id());
        if let (Over::Startup(error), Phase::Asking { machine, .. }) = (&over, &active.phase) {
            send_terminate(machine, *error, &active.socket);
        }
        if let Some(less) = active.step_back(&over) {
            self.counters.stepped_back.add();
            tracing::info!("{}: trying again with {less:?}", active.ends);
            if active.plan.params.local_port != 0 {
                // Else it waits for stragglers, and the port with it.
                let _ = sock::reset_on_close(&active.socket);
            }
            let Active { plan, socket, .. } = active;
            drop(socket);
            let plan = Plan { attempt: less, ..plan };
            let socket = plan.socket();
            return self.start_active(&ep, plan, socket);
        }
        if let Over::Failed(reason) = &over
            && active.plan.go_elsewhere(&ep, reason)
        {
            let socket = active.plan.socket();
            return self.start_active(&ep, active.plan, socket);
        }
        let ends = active.ends;
        match over {
            Over::Failed(reason) => fail(&ep, ends, reason),
            Over::Startup(error) => fail(&ep, ends, reason_of(error)),
            Over::Rejected { private_data, peer_ird_ord, .. } => {
                refuse(&ep, ConnEvent::Rejected { ends, private_data, peer_ird_ord });
            }
        }
    }

    pub(super) fn cancel_active(&mut self, token: u64, active: Active) {
        self.end_active(token, active, Over::Failed(FailReason::Cancelled));
    }
}

impl Active {
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// When to give up the present phase.
    fn patience(&self) -> Instant {
        self.plan.deadline.unwrap_or_else(|| after(self.plan.policy.connect_timeout))
    }

    /// Builds the request; the local address is final now.
    fn ask(&mut self, ep: &Arc<Ep>, preface: Vec<u8>) -> Result<(), StartupError> {
        if let Ok(address) = sock::local_addr(&self.socket) {
            self.ends.local = Node::local(address);
            ep.link().ends = Some(self.ends.clone());
        }
        let Plan { params, policy, attempt, .. } = &self.plan;
        let config = initiator_config(policy, *attempt, ep);
        let machine = Initiator::new(config, &params.private_data)?;
        self.phase = Phase::Asking { machine, preface, sent: 0 };
        Ok(())
    }

    fn turn(&mut self) -> Turn {
        match &mut self.phase {
            Phase::Connecting => match sock::connected(&self.socket) {
                Ok(()) if sock::peer_addr(&self.socket).is_ok() => Turn::Ask,
                Ok(()) => Turn::Wait(Interest::WRITE),
                Err(error) => Turn::Over(Over::Failed(tcp_reason(&error))),
            },
            Phase::Asking { machine, preface, sent } => {
                let asked = *sent == preface.len() + machine.request().len();
                match send_request(&self.socket, preface, machine.request(), sent) {
                    Ok(true) if asked => receive(&self.socket, machine),
                    // The answer to what was sent just now takes its time.
                    Ok(true) => Turn::Wait(Interest::READ),
                    Ok(false) => Turn::Wait(Interest::WRITE),
                    Err(_) => Turn::Over(Over::Startup(machine.handle_eof())),
                }
            }
        }
    }

    /// What to try next, if the end of this attempt says that less might do. Every step takes
    /// something away, so there are at most three.
    fn step_back(&self, over: &Over) -> Option<Attempt> {
        let Plan { policy, attempt: now, .. } = &self.plan;
        if !policy.fall_back || self.converted {
            return None;
        }
        let no_data = |data: &[u8]| data.is_empty();
        match over {
            // RFC 6581 10 [CONN-18]: a responder of RFC 5044 alone closes on the enhanced form, or
            // answers in its own.
            Over::Startup(
                StartupError::Eof { have: 0 }
                | StartupError::Revision { .. }
                | StartupError::FormMismatch,
            ) if now.enhanced => Some(Attempt { enhanced: false, ..*now }),
            Over::Rejected { private_data, revision, .. }
                if now.enhanced && *revision < policy.revision && no_data(private_data) =>
            {
                Some(Attempt { enhanced: false, ..*now })
            }
            // [IOP-06]: a responder that does not know, or forgets, peer-to-peer.
            // Who does not ask for it gets no such error.
            Over::Startup(StartupError::NoCommonRtr) => {
                Some(Attempt { peer_to_peer: false, ..*now })
            }
            // [IOP-01]: the kernel's siw rejects markers.
            Over::Rejected { private_data, .. }
                if now.markers && policy.markers == Markers::Prefer && no_data(private_data) =>
            {
                Some(Attempt { markers: false, ..*now })
            }
            _ => None,
        }
    }
}

/// Sends the rest of the request; true when all of it is out. One segment, nothing behind it
/// (CONN-34), and nothing of the streaming dialogue before it.
fn send_request(
    socket: impl AsFd,
    preface: &[u8],
    request: &[u8],
    sent: &mut usize,
) -> io::Result<bool> {
    if *sent < preface.len() && !send_rest(&socket, preface, sent)? {
        return Ok(false);
    }
    let mut of_request = *sent - preface.len();
    let done = send_rest(&socket, request, &mut of_request);
    *sent = preface.len() + of_request;
    done
}

fn receive(socket: impl AsFd, machine: &mut Initiator) -> Turn {
    let mut octets = [0; 2048];
    loop {
        let count = match sock::recv(&socket, &mut octets) {
            Ok(0) => return Turn::Over(Over::Startup(machine.handle_eof())),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Turn::Wait(Interest::READ);
            }
            Err(_) => return Turn::Over(Over::Startup(machine.handle_eof())),
        };
        match machine.handle(&octets[..count]) {
            Ok(Step::NeedMore) => {}
            Ok(Step::Done { consumed, value: Answer::Accepted { negotiated, private_data } }) => {
                let behind = octets[consumed..count].to_vec();
                return Turn::Adopt(Box::new((negotiated, private_data, behind)));
            }
            Ok(Step::Done {
                value: Answer::Rejected { private_data, peer_ird_ord, revision },
                ..
            }) => return Turn::Over(Over::Rejected { private_data, peer_ird_ord, revision }),
            Err(error) => return Turn::Over(Over::Startup(error)),
        }
    }
}

/// Sends the Terminate that RFC 6581 wants for some errors (CONN-24, CONN-29, CONN-32).
fn send_terminate(machine: &Initiator, error: StartupError, socket: impl AsFd) {
    if let Some(terminate) = machine.terminate_for(error, crc32c::crc32c_append) {
        // The connection is over either way.
        let _ = sock::send(&socket, &terminate);
    }
}

/// What stays the same over all attempts to make one connection, and what does not.
struct Plan {
    params: ConnectParams,
    policy: Policy,
    /// For all attempts together, if the application set one.
    deadline: Option<Instant>,
    attempt: Attempt,
}

impl Plan {
    /// Turns to the peer's next address, if this one's failure says that it may help.
    fn go_elsewhere(&mut self, ep: &Ep, reason: &FailReason) -> bool {
        let unreached = matches!(
            reason,
            FailReason::Refused | FailReason::Unreachable(_) | FailReason::ConnectTimeout(_)
        );
        let late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        if !unreached || late || self.params.alternatives.is_empty() {
            return false;
        }
        tracing::info!("{} is not reached ({reason}); trying the next address", self.params.remote);
        self.params.remote = self.params.alternatives.remove(0);
        self.policy = ep.policy_for(&self.params);
        self.attempt = Attempt::new(&self.policy);
        true
    }

    fn socket(&self) -> io::Result<OwnedFd> {
        sock::connect(self.params.remote, local_of(&self.params), &options(&self.policy))
    }
}
