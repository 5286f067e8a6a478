//! The side that listens: request, the application's answer, reply.
//!
//! Behind the desk's lock. Start-ups without a whole request, and refusals that the peer has not
//! taken, are bounded in number ([`super::crowd`]) and in time; a silent, dripping or vanished peer
//! costs one entry until then.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use iwarp_proto::mpa::startup::{Request, Responder, StartupError, Step, max_private_data};
use kal_shim::clock::after;
use kal_shim::reactor::Interest;
use kal_shim::sock;

use super::adopt::{Agreed, adopt, answer, fail, reason_of, refused, responder_config};
use super::crowd::Source;
use super::places::Place;
use super::requests::{self, Waiting};
use super::table::{Entry, Table, open};
use super::{AcceptParams, Command, ConnRequest, ListenerId, PrivateData, RequestId};
use crate::event::Event;
use crate::handle::Handle;
use crate::node::{Ends, Node};
use crate::policy::Policy;
use crate::resource::Ep;

/// Octets behind a request that are kept until it is answered; the rest stays in the kernel.
const MAX_BEHIND: usize = 4096;

/// An incoming connection.
pub(super) struct Passive {
    listener: u64,
    policy: Policy,
    /// The reactor knows the socket.
    watched: bool,
    socket: OwnedFd,
    ends: Ends,
    phase: Phase,
}

enum Phase {
    /// Not looked at yet: there were too many errors from there.
    Delayed(Responder),
    /// Collecting the request.
    Request(Responder),
    /// The application has the request.
    Waiting { machine: Responder, asked: Box<Request>, request: Handle, behind: Vec<u8> },
    /// Sending a refusal, of which so many octets are out.
    Refusing { reply: Vec<u8>, sent: usize },
    /// The refusal is out: waiting for the peer to close, so that it is not lost in a reset.
    Lingering,
}

/// A complete request, and what is needed to answer it.
struct Asked {
    machine: Responder,
    request: Box<Request>,
    /// Octets that came behind it.
    behind: Vec<u8>,
}

/// What to do with an incoming connection next.
enum Turn {
    Wait(Interest),
    /// The request is complete; octets that came behind it.
    Deliver(Box<Request>, Vec<u8>),
    /// Malformed, or against policy.
    Refuse(StartupError),
    /// The peer gave up, or is done.
    Gone,
}

impl Table {
    pub(super) fn begin_passive(&mut self, listener: u64, socket: OwnedFd, peer: SocketAddr) {
        let token = self.new_token();
        let Some(owner) = self.listeners.get(&listener) else { return };
        let policy = owner.service.policy(peer.ip());
        self.counters.incoming.add();
        let Ok(address) = sock::local_addr(&socket) else { return };
        let ends = Ends { local: Node::local(address), remote: Node::remote(peer, None) };
        let machine = Responder::new(responder_config(&policy));
        let most = policy.invalid_stag_ends;
        let phase = Phase::Delayed(machine);
        let passive = Box::new(Passive { listener, policy, watched: false, socket, ends, phase });
        self.crowd_in(token, &passive);
        match self.offenders.wait(Source::of(peer.ip()), most, Instant::now()) {
            None => self.begin_request(token, passive),
            Some(until) => {
                self.counters.delayed.add();
                tracing::info!("{}: delayed: too many invalid STags came from there", passive.ends);
                self.reactor.set_timer(token, until);
                self.entries.insert(token, Entry::Passive(passive));
            }
        }
    }

    fn begin_request(&mut self, token: u64, mut passive: Box<Passive>) {
        if let Phase::Delayed(machine) = std::mem::replace(&mut passive.phase, Phase::Lingering) {
            passive.phase = Phase::Request(machine);
        }
        self.reactor.set_timer(token, after(passive.policy.request_timeout));
        // Mostly the request is there already.
        self.advance_passive(token, passive);
    }

    /// Counts a connection that no application knows of; another may have to go for it.
    fn crowd_in(&mut self, token: u64, passive: &Passive) {
        let Some(owner) = self.listeners.get_mut(&passive.listener) else { return };
        let most = owner.service.policies.default.half_open as usize;
        let source = Source::of(passive.ends.remote.address.ip());
        if let Some(gone) = owner.crowd.add(token, source, most) {
            tracing::debug!("too many start-ups without a request, or refused: one goes");
            self.counters.crowded_out.add();
            self.drop_entry(gone);
        }
    }

    fn leave_crowd(&mut self, token: u64, passive: &Passive) {
        if let Some(owner) = self.listeners.get_mut(&passive.listener) {
            owner.crowd.remove(token);
        }
    }

    /// Forgets a connection; its socket closes with it.
    fn leave(&mut self, token: u64, passive: &Passive) {
        self.leave_crowd(token, passive);
        self.unwatch(token, &passive.socket);
    }

    pub(super) fn advance_passive(&mut self, token: u64, mut passive: Box<Passive>) {
        match passive.turn() {
            Turn::Wait(interest) => self.keep_passive(token, passive, interest),
            Turn::Deliver(request, behind) => {
                self.leave_crowd(token, &passive);
                match std::mem::replace(&mut passive.phase, Phase::Lingering) {
                    Phase::Request(machine) => {
                        self.deliver(token, passive, Asked { machine, request, behind });
                    }
                    other => passive.phase = other,
                }
            }
            Turn::Refuse(error) => {
                self.counters.refused.add();
                tracing::info!("{}: start-up refused: {error}", passive.ends);
                let reply = match &passive.phase {
                    Phase::Request(machine) => machine.reply_for(error),
                    _ => None,
                };
                match reply {
                    Some(reply) => self.refuse(token, passive, reply),
                    None => self.leave(token, &passive),
                }
            }
            Turn::Gone => self.peer_gone(token, passive),
        }
    }

    fn keep_passive(&mut self, token: u64, mut passive: Box<Passive>, interest: Interest) {
        let watched = if passive.watched {
            self.reactor.modify(&passive.socket, token, interest)
        } else {
            self.reactor.add(&passive.socket, token, interest)
        };
        match watched {
            Ok(()) => passive.watched = true,
            // Nobody has heard of it.
            Err(error) if matches!(passive.phase, Phase::Request(_)) => {
                self.counters.rejected.add();
                tracing::warn!("{}: dropped: cannot watch the socket: {error}", passive.ends);
                return self.leave(token, &passive);
            }
            // It is answered all the same, or a refusal on its way: the timer ends it.
            Err(error) => {
                tracing::warn!("{}: cannot watch the socket: {error}", passive.ends);
            }
        }
        self.entries.insert(token, Entry::Passive(passive));
    }

    /// The peer closed or reset, or has what it needs.
    fn peer_gone(&mut self, token: u64, passive: Box<Passive>) {
        if let Phase::Waiting { request, .. } = passive.phase {
            if !requests::remove(request) {
                // Answered in this moment: the answer finds out.
                self.entries.insert(token, Entry::Passive(passive));
                return;
            }
            tracing::info!("{}: the peer gave up before its request was answered", passive.ends);
        }
        if matches!(passive.phase, Phase::Request(_) | Phase::Waiting { .. }) {
            self.counters.gone.add();
        }
        self.leave(token, &passive);
    }

    /// Hands a complete request to the application.
    fn deliver(&mut self, token: u64, mut passive: Box<Passive>, asked: Asked) {
        let Asked { machine, request: asked, behind } = asked;
        let max_private_data = max_private_data(asked.enhanced);
        let handle = requests::add(Waiting {
            owner: self.mailbox.clone(),
            token,
            most: PrivateData::all(max_private_data),
            local: passive.ends.local.address,
            native: None,
            asker: None,
        });
        let service = self.listeners.get(&passive.listener).map(|listener| &listener.service);
        let event = service.map(|service| ConnRequest {
            request: RequestId(handle),
            listener: ListenerId(passive.listener),
            listen: service.listen.clone(),
            port: service.port,
            ends: passive.ends.clone(),
            private_data: asked.private_data.clone(),
            peer_ird_ord: asked.ird_ord,
            max_private_data,
        });
        let evd = service.and_then(|service| service.evd.upgrade());
        let delivered = evd.zip(event).is_some_and(|(evd, event)| {
            // The entry must be there before the application's answer: it is, since that takes the
            // lock that is held here.
            evd.push_bounded(Event::Request(Box::new(event)))
        });
        self.reactor.set_timer(token, after(passive.policy.answer_timeout));
        passive.phase = Phase::Waiting { machine, asked, request: handle, behind };
        if delivered {
            return self.keep_passive(token, passive, Interest::READ);
        }
        tracing::warn!("{}: rejected: the request dispatcher is full or closed", passive.ends);
        requests::remove(handle);
        self.reject(token, passive, &[]);
    }

    /// Gives a request to another listener, of this thread or another. Should that thread have
    /// ended, the socket closes with the command.
    pub(super) fn on_handoff(&mut self, token: u64, to: Place) {
        match self.entries.remove(&token) {
            Some(Entry::Passive(passive)) => {
                self.unwatch(token, &passive.socket);
                to.owner.send(Command::Adopt { listener: to.token, passive });
            }
            Some(Entry::Native(pending)) => self.redeliver_native(token, *pending, to.token),
            _ => {}
        }
    }

    /// Takes a request that was given to a listener of this thread.
    pub(super) fn on_adopt(&mut self, listener: u64, mut passive: Box<Passive>) {
        let token = self.new_token();
        passive.watched = false;
        let phase = std::mem::replace(&mut passive.phase, Phase::Lingering);
        let Phase::Waiting { machine, asked: request, behind, .. } = phase else { return };
        passive.listener = listener;
        self.deliver(token, passive, Asked { machine, request, behind });
    }

    pub(super) fn on_accept(&mut self, token: u64, ep: &Weak<Ep>, params: &AcceptParams) {
        // A claimed request stays in the table until it is answered.
        match (self.entries.remove(&token), open(ep)) {
            (Some(Entry::Passive(passive)), Some(ep)) => self.accept(token, passive, &ep, params),
            (Some(Entry::Passive(passive)), None) => self.reject(token, passive, &[]),
            (Some(Entry::Native(pending)), Some(ep)) => {
                self.reactor.clear_timer(token);
                self.accept_native(*pending, &ep, params);
            }
            (Some(Entry::Native(pending)), None) => self.reject_native(&pending, &[]),
            _ => {}
        }
    }

    fn accept(&mut self, token: u64, passive: Box<Passive>, ep: &Arc<Ep>, params: &AcceptParams) {
        ep.link().ends = Some(passive.ends.clone());
        let Phase::Waiting { machine, behind, .. } = &passive.phase else { return };
        let (most_ird, most_ord) = ep.ird_ord();
        let ird = params.ird.unwrap_or(most_ird).min(most_ird);
        let ord = params.ord.unwrap_or(most_ord).min(most_ord);
        let own = (ird, ord);
        let answer = answer(machine, &passive.policy, own, &params.private_data);
        let (last_message, negotiated) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                fail(ep, passive.ends.clone(), reason_of(error));
                return self.reject(token, passive, &[]);
            }
        };
        let received = behind.clone();
        self.unwatch(token, &passive.socket);
        let Passive { policy, socket, ends, .. } = *passive;
        let agreed = Agreed {
            policy: &policy,
            ends: ends.clone(),
            negotiated,
            own,
            private_data: Vec::new(),
            socket,
            received,
            last_message,
        };
        if let Err(error) = adopt(ep, agreed) {
            fail(ep, ends, refused(&error));
        }
    }

    pub(super) fn on_reject(&mut self, token: u64, private_data: &[u8]) {
        match self.entries.remove(&token) {
            Some(Entry::Passive(passive)) => self.reject(token, passive, private_data),
            // Whoever rejected it has told the peer.
            Some(Entry::Native(_)) => {
                self.reactor.clear_timer(token);
                self.counters.rejected.add();
            }
            _ => {}
        }
    }

    /// Sends a reject with the application's private data (CONN-09).
    fn reject(&mut self, token: u64, passive: Box<Passive>, private_data: &[u8]) {
        self.counters.rejected.add();
        let reply = match &passive.phase {
            Phase::Waiting { machine, .. } => machine.reject(private_data).unwrap_or_default(),
            _ => Vec::new(),
        };
        self.refuse(token, passive, reply);
    }

    fn refuse(&mut self, token: u64, mut passive: Box<Passive>, reply: Vec<u8>) {
        self.crowd_in(token, &passive);
        self.reactor.set_timer(token, after(passive.policy.close_timeout));
        passive.phase = Phase::Refusing { reply, sent: 0 };
        self.advance_passive(token, passive);
    }

    pub(super) fn expire_passive(&mut self, token: u64, passive: Box<Passive>) {
        match &passive.phase {
            Phase::Delayed(_) => self.begin_request(token, passive),
            Phase::Request(_) => {
                self.counters.request_timeouts.add();
                tracing::info!("{}: no whole MPA request in time", passive.ends);
                self.leave(token, &passive);
            }
            Phase::Waiting { request, .. } => {
                if requests::remove(*request) {
                    tracing::warn!("{}: the application did not answer in time", passive.ends);
                    self.reject(token, passive, &[]);
                } else {
                    self.entries.insert(token, Entry::Passive(passive));
                }
            }
            Phase::Refusing { .. } | Phase::Lingering => self.leave(token, &passive),
        }
    }
}

impl Passive {
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The request that the application has.
    pub(super) fn request(&self) -> Option<Handle> {
        match &self.phase {
            Phase::Waiting { request, .. } => Some(*request),
            _ => None,
        }
    }

    /// No application knows of it, and no peer is being answered.
    pub(super) fn is_unheard(&self) -> bool {
        matches!(self.phase, Phase::Delayed(_) | Phase::Request(_))
    }

    fn turn(&mut self) -> Turn {
        match &mut self.phase {
            Phase::Delayed(_) => Turn::Wait(Interest::NONE),
            Phase::Request(machine) => collect(&self.socket, machine),
            Phase::Waiting { behind, .. } => keep_behind(&self.socket, behind),
            Phase::Refusing { reply, sent } => match send_rest(&self.socket, reply, sent) {
                Ok(false) => Turn::Wait(Interest::WRITE),
                Ok(true) if sock::finish(&self.socket).is_ok() => {
                    self.phase = Phase::Lingering;
                    Turn::Wait(Interest::READ)
                }
                _ => Turn::Gone,
            },
            Phase::Lingering => discard(&self.socket),
        }
    }
}

fn collect(socket: &OwnedFd, machine: &mut Responder) -> Turn {
    let mut octets = [0; 2048];
    loop {
        let count = match sock::recv(socket, &mut octets) {
            Ok(0) => return Turn::Gone,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Turn::Wait(Interest::READ);
            }
            Err(_) => return Turn::Gone,
        };
        match machine.handle(&octets[..count]) {
            Ok(Step::NeedMore) => {}
            Ok(Step::Done { consumed, value }) => {
                return Turn::Deliver(Box::new(value), octets[consumed..count].to_vec());
            }
            Err(error) => return Turn::Refuse(error),
        }
    }
}

/// Octets behind a request belong to full operation (CONN-34: accepted, though nobody should).
fn keep_behind(socket: &OwnedFd, behind: &mut Vec<u8>) -> Turn {
    let mut octets = [0; MAX_BEHIND];
    while behind.len() < MAX_BEHIND {
        let room = MAX_BEHIND - behind.len();
        match sock::recv(socket, &mut octets[..room]) {
            Ok(0) => return Turn::Gone,
            Ok(count) => behind.extend_from_slice(&octets[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Turn::Wait(Interest::READ);
            }
            Err(_) => return Turn::Gone,
        }
    }
    Turn::Wait(Interest::NONE)
}

/// Sends the rest of `octets`; true when all of them are out.
pub(super) fn send_rest(socket: impl AsFd, octets: &[u8], sent: &mut usize) -> io::Result<bool> {
    while *sent < octets.len() {
        match sock::send(&socket, &octets[*sent..]) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn discard(socket: &OwnedFd) -> Turn {
    let mut octets = [0; 2048];
    match sock::recv(socket, &mut octets) {
        Ok(count) if count > 0 => Turn::Wait(Interest::READ),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Turn::Wait(Interest::READ),
        _ => Turn::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A socket may be told to be readable, and not be.
    #[test]
    fn a_lingering_socket_waits_for_its_peer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = listener.accept().unwrap().0;
        own.set_nonblocking(true).unwrap();
        let own = OwnedFd::from(own);
        assert!(matches!(discard(&own), Turn::Wait(_)));
        drop(peer);
        warpline_patience::until("the peer's end", || matches!(discard(&own), Turn::Gone));
    }
}
