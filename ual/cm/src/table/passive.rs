//! Incoming connections in the table: they are counted, delayed or refused, offered to the layer above,
//! accepted, rejected and handed over.
//!
//! Start-ups without a whole request, and refusals that the peer has not closed, are bounded in number
//! ([`crate::half_open`]) and in time.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use iwarp_proto::mpa::startup::{Request, Responder, max_private_data};
use kal_shim::clock::after;
use kal_shim::reactor::Interest;
use kal_shim::same_host::NotLocal;
use kal_shim::sock;

use super::meeting::Start;
use super::outcome::Agreed;
use super::{ConnectionTable, Entry};
use crate::connection::{Connectee, open};
use crate::deliveries::{Delivery, Origin};
use crate::half_open::Source;
use crate::local::MPA;
use crate::mailbox::{Command, Target};
use crate::node::{Ends, Node};
use crate::policy::RuleRole;
use crate::private::PrivateData;
use crate::requests::{self, Waiting};
use crate::startup::config::{reason_of, reply, responder_config};
use crate::startup::passive::{Next, Passive, Phase};
use crate::startup::tcp::options;
use crate::types::{AcceptParams, ConnRequest, FailReason, ListenerId, RequestId};

/// A complete request, and what is needed to reply to it.
struct Asked {
    machine: Responder,
    request: Box<Request>,
    /// Octets that arrived after it.
    behind: Vec<u8>,
}

impl ConnectionTable {
    pub(super) fn begin_passive(&mut self, listener: u64, socket: OwnedFd, peer: SocketAddr) {
        let token = self.new_token();
        let Some(owner) = self.listeners.get(&listener) else { return };
        let (mut policy, port) = (owner.service.policy(peer.ip()), owner.service.port);
        let rule = self.rules.apply(&mut policy, peer.ip(), port, RuleRole::Accept);
        self.counters.incoming.add();
        let Ok(address) = sock::local_addr(&socket) else { return };
        let ends = Ends { local: Node::local(address), remote: Node::remote(peer, None) };
        // Its listener could not know which rule it meets.
        if rule.is_some()
            && let Err(error) = options(&policy).apply(&socket, peer)
        {
            tracing::warn!("{ends}: dropped: cannot set what its rule says: {error}");
            return;
        }
        let machine = Responder::new(responder_config(&policy));
        let most = policy.invalid_stag_ends;
        let phase = Phase::Delayed(machine);
        let (watched, admission) = (false, None);
        let passive = Passive { listener, policy, rule, admission, watched, socket, ends, phase };
        let passive = Box::new(passive);
        self.count_half_open(token, &passive);
        match self.invalid_stag_ends.wait(Source::of(peer.ip()), most, Instant::now()) {
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
        // The request has mostly arrived already.
        self.advance_passive(token, passive);
    }

    /// Counts a connection that no application knows of; another may be dropped for it.
    fn count_half_open(&mut self, token: u64, passive: &Passive) {
        let Some(owner) = self.listeners.get_mut(&passive.listener) else { return };
        let most = owner.service.policies.default.half_open as usize;
        let source = Source::of(passive.ends.remote.address.ip());
        if let Some(gone) = owner.half_open.add(token, source, most) {
            tracing::debug!("too many start-ups without a request, or refused: one is dropped");
            self.counters.crowded_out.add();
            self.drop_entry(gone);
        }
    }

    fn uncount_half_open(&mut self, token: u64, passive: &Passive) {
        if let Some(owner) = self.listeners.get_mut(&passive.listener) {
            owner.half_open.remove(token);
        }
    }

    /// Removes a connection; its socket closes with it.
    fn remove(&mut self, token: u64, passive: &Passive) {
        self.uncount_half_open(token, passive);
        self.unwatch(token, &passive.socket);
    }

    pub(super) fn advance_passive(&mut self, token: u64, mut passive: Box<Passive>) {
        match passive.advance() {
            Next::Wait(interest) => self.keep_passive(token, passive, interest),
            Next::Deliver(request, behind) => {
                self.uncount_half_open(token, &passive);
                match std::mem::replace(&mut passive.phase, Phase::Lingering) {
                    Phase::Request(machine) => {
                        self.deliver(token, passive, Asked { machine, request, behind });
                    }
                    other => passive.phase = other,
                }
            }
            Next::Refuse(error) => {
                self.counters.refused.add();
                tracing::info!("{}: start-up refused: {error}", passive.ends);
                let reply = match &passive.phase {
                    Phase::Request(machine) => machine.reply_for(error),
                    _ => None,
                };
                match reply {
                    Some(reply) => self.refuse_passive(token, passive, reply),
                    None => self.remove(token, &passive),
                }
            }
            Next::Gone => self.peer_gone(token, passive),
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
            // No application knows of it.
            Err(error) if matches!(passive.phase, Phase::Request(_)) => {
                self.counters.rejected.add();
                tracing::warn!("{}: dropped: cannot watch the socket: {error}", passive.ends);
                return self.remove(token, &passive);
            }
            // The request can still be replied to, or a refusal is being sent: the timer ends it.
            Err(error) => {
                tracing::warn!("{}: cannot watch the socket: {error}", passive.ends);
            }
        }
        self.entries.insert(token, Entry::Passive(passive));
    }

    /// The peer closed or reset, or has read the refusal.
    fn peer_gone(&mut self, token: u64, passive: Box<Passive>) {
        if let Phase::Waiting { request, .. } = passive.phase {
            if !requests::remove(request) {
                // A reply is being sent, and will fail.
                self.entries.insert(token, Entry::Passive(passive));
                return;
            }
            tracing::info!("{}: the peer gave up before its request was replied to", passive.ends);
        }
        if matches!(passive.phase, Phase::Request(_) | Phase::Waiting { .. }) {
            self.counters.gone.add();
        }
        self.remove(token, &passive);
    }

    /// Delivers a complete request to the application.
    fn deliver(&mut self, token: u64, mut passive: Box<Passive>, asked: Asked) {
        let Asked { machine, request: asked, behind } = asked;
        let Some((sink, port)) = self.sink_of(passive.listener) else {
            self.counters.rejected.add();
            tracing::info!("{}: rejected: its listener is closed", passive.ends);
            let reply = machine.reject(&[]).unwrap_or_default();
            return self.refuse_passive(token, passive, reply);
        };
        if passive.admission.is_none() {
            match self.rules.admit(passive.rule.as_deref(), false) {
                Ok(admission) => passive.admission = admission,
                Err(denied) => {
                    self.counters.rejected.add();
                    tracing::warn!("{}: rejected: {denied}", passive.ends);
                    let reply = machine.reject(&[]).unwrap_or_default();
                    return self.refuse_passive(token, passive, reply);
                }
            }
        }
        let max_private_data = max_private_data(asked.enhanced);
        let handle = requests::add(Waiting {
            owner: self.mailbox.clone(),
            token,
            most: PrivateData::all(max_private_data),
            local: passive.ends.local.address,
            native: None,
            asker: None,
        });
        let request = Box::new(ConnRequest {
            request: RequestId(handle),
            listener: ListenerId(passive.listener),
            port,
            ends: passive.ends.clone(),
            private_data: asked.private_data.clone(),
            peer_ird_ord: asked.ird_ord,
            max_private_data,
        });
        self.reactor.set_timer(token, after(passive.policy.answer_timeout));
        passive.phase = Phase::Waiting { machine, asked, request: handle, behind };
        // First: the layer above may reply as soon as it has the request.
        self.keep_passive(token, passive, Interest::READ);
        let origin = Origin { token, request: handle };
        self.push(Delivery::Request { sink, request, origin });
    }

    /// The layer above did not take a request.
    pub(super) fn undelivered_passive(&mut self, token: u64, passive: Box<Passive>) {
        tracing::warn!("{}: rejected: the request dispatcher is full or closed", passive.ends);
        self.reject(token, passive, &[]);
    }

    /// Gives a request to another listener, of this table or another. If that one has ended, the socket
    /// closes with the command.
    pub(super) fn on_handoff(&mut self, token: u64, to: Target) {
        match self.entries.remove(&token) {
            Some(Entry::Passive(passive)) => {
                self.unwatch(token, &passive.socket);
                to.owner.send(Command::Adopt { listener: to.token, passive });
            }
            Some(Entry::Native(pending)) => self.redeliver_native(token, *pending, to.token),
            _ => {}
        }
    }

    /// Takes a request that was handed to a listener of this table.
    pub(super) fn on_adopt(&mut self, listener: u64, mut passive: Box<Passive>) {
        let token = self.new_token();
        passive.watched = false;
        let phase = std::mem::replace(&mut passive.phase, Phase::Lingering);
        let Phase::Waiting { machine, asked: request, behind, .. } = phase else { return };
        passive.listener = listener;
        self.deliver(token, passive, Asked { machine, request, behind });
    }

    pub(super) fn on_accept(
        &mut self,
        token: u64,
        party: &Weak<dyn Connectee>,
        params: &AcceptParams,
    ) {
        // A claimed request stays in the table until it is replied to.
        match (self.entries.remove(&token), open(party)) {
            (Some(Entry::Passive(passive)), Some(party)) => {
                self.accept(token, passive, &party, params);
            }
            (Some(Entry::Passive(passive)), None) => self.reject(token, passive, &[]),
            (Some(Entry::Native(pending)), Some(party)) => {
                self.reactor.clear_timer(token);
                self.accept_native(*pending, &party, params);
            }
            (Some(Entry::Native(pending)), None) => self.reject_native(&pending, &[]),
            _ => {}
        }
    }

    fn accept(
        &mut self,
        token: u64,
        mut passive: Box<Passive>,
        party: &Arc<dyn Connectee>,
        params: &AcceptParams,
    ) {
        {
            let mut link = party.connection().link();
            link.ends = Some(passive.ends.clone());
            link.admission = passive.admission.take();
        }
        let Phase::Waiting { machine, behind, .. } = &passive.phase else { return };
        let (most_ird, most_ord) = party.connection().ird_ord();
        let ird = params.ird.unwrap_or(most_ird).min(most_ird);
        let ord = params.ord.unwrap_or(most_ord).min(most_ord);
        let own = (ird, ord);
        let answer = reply(machine, &passive.policy, own, &params.private_data);
        let (last_message, negotiated) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.fail(party, passive.ends.clone(), reason_of(error));
                return self.reject(token, passive, &[]);
            }
        };
        let received = behind.clone();
        // A provider that refuses the stream closes it. The peer would take that for the end of a stack
        // that wants another start-up, and try again; a Terminate on this descriptor prevents that.
        let socket = match passive.socket.try_clone() {
            Ok(socket) => socket,
            Err(error) => {
                let why = format!("cannot keep a second descriptor of the socket: {error}");
                self.fail(party, passive.ends.clone(), FailReason::Resources(why));
                return self.reject(token, passive, &[]);
            }
        };
        self.unwatch(token, &passive.socket);
        passive.watched = false;
        let agreed = Agreed {
            policy: passive.policy.clone(),
            ends: passive.ends.clone(),
            negotiated,
            own,
            private_data: Vec::new(),
            socket,
            received,
            last_message,
            local: Err(NotLocal::Untried),
        };
        self.begin_meeting(token, party, Start { passive: Some(passive), agreed }, MPA);
    }

    pub(super) fn on_reject(&mut self, token: u64, private_data: &[u8]) {
        match self.entries.remove(&token) {
            Some(Entry::Passive(passive)) => self.reject(token, passive, private_data),
            // The caller that rejected it has sent the reject.
            Some(Entry::Native(_)) => {
                self.reactor.clear_timer(token);
                self.counters.rejected.add();
            }
            _ => {}
        }
    }

    /// Sends a reject with the application's private data (CONN-09).
    pub(super) fn reject(&mut self, token: u64, passive: Box<Passive>, private_data: &[u8]) {
        self.counters.rejected.add();
        let reply = match &passive.phase {
            Phase::Waiting { machine, .. } => machine.reject(private_data).unwrap_or_default(),
            _ => Vec::new(),
        };
        self.refuse_passive(token, passive, reply);
    }

    fn refuse_passive(&mut self, token: u64, mut passive: Box<Passive>, reply: Vec<u8>) {
        self.count_half_open(token, &passive);
        self.reactor.set_timer(token, after(passive.policy.close_timeout));
        passive.admission = None;
        passive.phase = Phase::Refusing { reply, sent: 0 };
        self.advance_passive(token, passive);
    }

    pub(super) fn expire_passive(&mut self, token: u64, passive: Box<Passive>) {
        match &passive.phase {
            Phase::Delayed(_) => self.begin_request(token, passive),
            Phase::Request(_) => {
                self.counters.request_timeouts.add();
                tracing::info!("{}: no whole MPA request in time", passive.ends);
                self.remove(token, &passive);
            }
            Phase::Waiting { request, .. } => {
                if requests::remove(*request) {
                    tracing::warn!("{}: the application did not reply in time", passive.ends);
                    self.reject(token, passive, &[]);
                } else {
                    self.entries.insert(token, Entry::Passive(passive));
                }
            }
            Phase::Refusing { .. } | Phase::Lingering => self.remove(token, &passive),
        }
    }
}
