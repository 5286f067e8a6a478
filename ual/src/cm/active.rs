//! The side that connects: TCP, request, reply, and the steps back for peers that know less.
//!
//! Owned by the connection thread. A silent peer costs an entry until the timer of its phase.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use iwarp_proto::mpa::startup::{Answer, Initiator, Negotiated, StartupError, Step};
use kal_shim::reactor::Interest;
use kal_shim::sock;

use super::adopt::{Agreed, Attempt, adopt, fail, initiator_config, reason_of, refuse};
use super::thread::{Entry, Thread, open, options};
use super::{ConnEvent, ConnectParams, FailReason};
use crate::node::{Ends, Node};
use crate::policy::{Markers, Policy};
use crate::resource::Ep;

/// A connection attempt.
pub(super) struct Active {
    ep: Weak<Ep>,
    params: ConnectParams,
    policy: Policy,
    attempt: Attempt,
    socket: OwnedFd,
    ends: Ends,
    phase: Phase,
}

enum Phase {
    /// TCP.
    Connecting,
    /// The request, of which so many octets are sent; then the reply.
    Asking { machine: Initiator, sent: usize },
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

impl Thread {
    pub(super) fn on_connect(&mut self, ep: Weak<Ep>, params: ConnectParams, policy: Policy) {
        if let Some(native) = self.native.clone() {
            if let Some(ep) = open(&ep) {
                self.connect_native(&*native, &ep, params, policy);
            }
            return;
        }
        let attempt = Attempt::new(&policy);
        self.start_active(ep, params, policy, attempt);
    }

    fn start_active(
        &mut self,
        ep: Weak<Ep>,
        params: ConnectParams,
        policy: Policy,
        attempt: Attempt,
    ) {
        let Some(open) = open(&ep) else { return };
        let remote = Node::remote(params.remote, params.remote_name.as_deref());
        let local = |address| Ends { local: Node::local(address), remote: remote.clone() };
        let unknown = params.local.unwrap_or_else(|| unspecified(&params));
        match sock::connect(params.remote, params.local, &options(&policy)) {
            Ok(socket) => {
                let address = sock::local_addr(&socket).unwrap_or((unknown, 0).into());
                let ends = local(address);
                open.link().ends = Some(ends.clone());
                let token = self.new_token();
                self.by_qp.insert(open.id(), token);
                self.reactor.set_timer(token, Instant::now() + policy.connect_timeout);
                let phase = Phase::Connecting;
                let active = Active { ep, params, policy, attempt, socket, ends, phase };
                self.keep_active(token, Box::new(active), Interest::WRITE, true);
            }
            Err(error) => {
                let ends = local((unknown, 0).into());
                open.link().ends = Some(ends.clone());
                fail(&open, ends, tcp_reason(&error));
            }
        }
    }

    /// Puts an attempt back into the table, waiting for its socket.
    fn keep_active(&mut self, token: u64, active: Box<Active>, interest: Interest, new: bool) {
        let watched = if new {
            self.reactor.add(&active.socket, token, interest)
        } else {
            self.reactor.modify(&active.socket, token, interest)
        };
        match watched {
            Ok(()) => {
                self.entries.insert(token, Entry::Active(active));
            }
            Err(error) => {
                let reason = FailReason::Resources(format!("cannot watch the socket: {error}"));
                self.end_active(token, *active, Over::Failed(reason));
            }
        }
    }

    pub(super) fn advance_active(&mut self, token: u64, mut active: Box<Active>) {
        loop {
            match active.turn() {
                Turn::Wait(interest) => return self.keep_active(token, active, interest, false),
                Turn::Ask => {
                    let Some(ep) = open(&active.ep) else { return };
                    match active.ask(&ep) {
                        Ok(()) => {
                            let at = Instant::now() + active.policy.connect_timeout;
                            self.reactor.set_timer(token, at);
                        }
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

    pub(super) fn expire_active(&mut self, active: Active) {
        let after = active.policy.connect_timeout;
        let reason = match active.phase {
            Phase::Connecting => FailReason::ConnectTimeout(after),
            Phase::Asking { .. } => FailReason::ReplyTimeout(after),
        };
        if let Some(ep) = open(&active.ep) {
            self.by_qp.remove(&ep.id());
            fail(&ep, active.ends, reason);
        }
    }

    fn adopt_active(&mut self, token: u64, active: Active, agreed: (Negotiated, Vec<u8>, Vec<u8>)) {
        let Active { ep, policy, attempt, socket, ends, phase, .. } = active;
        self.unwatch(token, &socket);
        let Some(ep) = open(&ep) else { return };
        self.by_qp.remove(&ep.id());
        let (negotiated, private_data, received) = agreed;
        // RFC 6581 8 [CONN-32]: a second descriptor, to say why should the provider refuse.
        let spare = if attempt.enhanced { socket.try_clone().ok() } else { None };
        let agreed = Agreed {
            policy: &policy,
            ends: ends.clone(),
            negotiated,
            private_data,
            socket,
            received,
            last_message: Vec::new(),
        };
        if let Err(error) = adopt(&ep, agreed) {
            if let (Some(socket), Phase::Asking { machine, .. }) = (spare, phase) {
                send_terminate(&machine, StartupError::Local, &socket);
            }
            fail(&ep, ends, FailReason::Resources(format!("the provider refused: {error}")));
        }
    }

    /// Ends an attempt: once more with less, or for good.
    fn end_active(&mut self, token: u64, active: Active, over: Over) {
        self.unwatch(token, &active.socket);
        let Some(ep) = open(&active.ep) else { return };
        self.by_qp.remove(&ep.id());
        if let (Over::Startup(error), Phase::Asking { machine, .. }) = (&over, &active.phase) {
            send_terminate(machine, *error, &active.socket);
        }
        if let Some(less) = active.step_back(&over) {
            self.counters.stepped_back.add();
            tracing::info!("{}: trying again with {less:?}", active.ends);
            let Active { ep, params, policy, .. } = active;
            return self.start_active(ep, params, policy, less);
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
    /// Builds the request; the local address is final now.
    fn ask(&mut self, ep: &Arc<Ep>) -> Result<(), StartupError> {
        if let Ok(address) = sock::local_addr(&self.socket) {
            self.ends.local = Node::local(address);
            ep.link().ends = Some(self.ends.clone());
        }
        let config = initiator_config(&self.policy, self.attempt, ep);
        let machine = Initiator::new(config, &self.params.private_data)?;
        self.phase = Phase::Asking { machine, sent: 0 };
        Ok(())
    }

    fn turn(&mut self) -> Turn {
        match &mut self.phase {
            Phase::Connecting => match sock::connected(&self.socket) {
                Ok(()) if sock::peer_addr(&self.socket).is_ok() => Turn::Ask,
                Ok(()) => Turn::Wait(Interest::WRITE),
                Err(error) => Turn::Over(Over::Failed(tcp_reason(&error))),
            },
            Phase::Asking { machine, sent } => match send_request(&self.socket, machine, sent) {
                Ok(true) => receive(&self.socket, machine),
                Ok(false) => Turn::Wait(Interest::WRITE),
                Err(_) => Turn::Over(Over::Startup(machine.handle_eof())),
            },
        }
    }

    /// What to try next, if the end of this attempt says that less might do. Every step takes
    /// something away, so there are at most three.
    fn step_back(&self, over: &Over) -> Option<Attempt> {
        if !self.policy.fall_back {
            return None;
        }
        let now = self.attempt;
        let no_data = |data: &[u8]| data.is_empty();
        match over {
            // RFC 6581 10 [CONN-18]: a responder of RFC 5044 alone closes on the enhanced form, or
            // answers in its own.
            Over::Startup(
                StartupError::Eof { have: 0 }
                | StartupError::Revision { .. }
                | StartupError::FormMismatch,
            ) if now.enhanced => Some(Attempt { enhanced: false, ..now }),
            Over::Rejected { private_data, revision, .. }
                if now.enhanced && *revision < self.policy.revision && no_data(private_data) =>
            {
                Some(Attempt { enhanced: false, ..now })
            }
            // [IOP-06]: a responder that does not know, or forgets, peer-to-peer.
            Over::Startup(StartupError::NoCommonRtr) if now.peer_to_peer => {
                Some(Attempt { peer_to_peer: false, ..now })
            }
            // [IOP-01]: the kernel's siw rejects markers.
            Over::Rejected { private_data, .. }
                if now.markers
                    && self.policy.markers == Markers::Prefer
                    && no_data(private_data) =>
            {
                Some(Attempt { markers: false, ..now })
            }
            _ => None,
        }
    }
}

/// Sends the rest of the request; true when all of it is out. One segment, nothing behind it
/// (CONN-34).
fn send_request(socket: impl AsFd, machine: &Initiator, sent: &mut usize) -> io::Result<bool> {
    let request = machine.request();
    while *sent < request.len() {
        match sock::send(&socket, &request[*sent..]) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
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

fn unspecified(params: &ConnectParams) -> std::net::IpAddr {
    match params.remote {
        std::net::SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        std::net::SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// What a failed TCP connect means.
fn tcp_reason(error: &io::Error) -> FailReason {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => FailReason::Refused,
        io::ErrorKind::ConnectionReset => FailReason::PeerClosed { have: 0 },
        io::ErrorKind::TimedOut => FailReason::Unreachable(error.to_string()),
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => FailReason::Unreachable(error.to_string()),
        _ => FailReason::Resources(format!("TCP connect: {error}")),
    }
}
