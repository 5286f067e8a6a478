//! Connecting in the table: attempts begin, wait for their sockets, are retried with fewer features or
//! at another address, and end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use iwarp_proto::mpa::startup::{Negotiated, StartupError};
use kal_os::fork::Ours;
use kal_shim::clock::after;
use kal_shim::fork::Host;
use kal_shim::reactor::Interest;
use kal_shim::same_host::NotLocal;
use kal_shim::sock;

use super::meeting::{found, twice};
use super::outcome::{Agreed, refused, unwatchable};
use super::{ConnectionTable, Entry};
use crate::connection::{Connectee, id_of, open};
use crate::local::MPA;
use crate::node::{Ends, Node};
use crate::policy::LocalStreams;
use crate::startup::active::{Active, Next, Over, Phase, Plan, send_terminate};
use crate::startup::config::reason_of;
use crate::startup::socket::{Conversion, ConvertParams};
use crate::startup::tcp::{Started, local_of, tcp_reason, unspecified};
use crate::tuning::REFUSED_PAUSE;
use crate::types::{ConnEvent, ConnectParams, FailReason};

impl ConnectionTable {
    pub(super) fn on_connect(&mut self, party: &Weak<dyn Connectee>, plan: Plan, started: Started) {
        let Some(open) = open(party) else { return };
        let socket = match (started, self.native.clone()) {
            (Started::Tcp(socket), _) => socket,
            (Started::Native, Some(native)) => {
                return self.connect_native(&*native, &open, plan.params, plan.policy);
            }
            (Started::Native, None) => return,
        };
        self.start_active(&open, plan, socket);
    }

    fn start_active(
        &mut self,
        party: &Arc<dyn Connectee>,
        mut plan: Plan,
        mut socket: io::Result<OwnedFd>,
    ) {
        while let Err(error) = &socket
            && plan.use_next_address(
                &self.policies,
                &self.rules,
                &**party,
                &tcp_reason(error, &plan.params.remote),
            )
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
                party.connection().link().ends = Some(ends.clone());
                return self.fail(party, ends, tcp_reason(&error, &params.remote));
            }
        };
        let local = sock::local_addr(&socket).unwrap_or(unspecified(params));
        let ends = Ends { local: Node::local(local), remote };
        party.connection().link().ends = Some(ends.clone());
        let token = self.new_token();
        self.by_qp.insert(id_of(&**party), token);
        let phase = Phase::Connecting;
        let (party, converted, watched) = (Arc::downgrade(party), false, false);
        let seeking = Err(NotLocal::Untried);
        let active = Active { party, plan, converted, watched, socket, ends, phase, seeking };
        self.reactor.set_timer(token, active.deadline());
        // A peer on this machine may have responded already.
        self.advance_active(token, Box::new(active));
    }

    /// A converted socket continues where TCP is connected.
    pub(super) fn begin_converted_request(
        &mut self,
        party: &Arc<dyn Connectee>,
        conversion: Conversion,
    ) {
        let Conversion { socket, params, policy, ends, .. } = conversion;
        let ConvertParams { private_data, last_message, .. } = params;
        let params = ConnectParams { private_data, ..ConnectParams::new(ends.remote.address) };
        let token = self.new_token();
        self.by_qp.insert(id_of(&**party), token);
        let mut active = Active {
            party: Arc::downgrade(party),
            plan: Plan::new(params, policy, None),
            converted: true,
            watched: false,
            socket,
            ends,
            phase: Phase::Connecting,
            seeking: Err(NotLocal::Untried),
        };
        self.reactor.set_timer(token, active.deadline());
        match self.prepare_request(token, &**party, &mut active, last_message) {
            Ok(()) => self.keep_active(token, Box::new(active), Interest::WRITE),
            Err(over) => self.end_active(token, active, over),
        }
    }

    /// Builds the request. Before it is sent, the rendezvous name is opened.
    fn prepare_request(
        &mut self,
        token: u64,
        party: &dyn Connectee,
        active: &mut Active,
        preface: Vec<u8>,
    ) -> Result<(), Over> {
        active.build_request(party, preface).map_err(Over::Startup)?;
        active.seeking = self.seek(token, MPA, &active.plan.policy, &active.ends);
        match active.seeking {
            Err(why) if active.plan.policy.local == LocalStreams::Require => {
                Err(Over::Failed(FailReason::NoLocalStream(why)))
            }
            _ => Ok(()),
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
        self.advance_seeking(token, &mut active.seeking);
        loop {
            match active.advance() {
                Next::Wait(interest) => return self.keep_active(token, active, interest),
                Next::Ask => {
                    let Some(party) = open(&active.party) else { return };
                    match self.prepare_request(token, &*party, &mut active, Vec::new()) {
                        Ok(()) => self.reactor.set_timer(token, active.deadline()),
                        Err(over) => return self.end_active(token, *active, over),
                    }
                }
                Next::Adopt(agreed) => return self.adopt_active(token, *active, *agreed),
                Next::Over(over) => return self.end_active(token, *active, over),
            }
        }
    }

    /// There is no listener: tries again in a while with the same socket, and thus the same port.
    fn pause_active(&mut self, token: u64, party: &dyn Connectee, mut active: Active) {
        self.by_qp.insert(id_of(party), token);
        (active.phase, active.watched) = (Phase::Refused, false);
        self.reactor.set_timer(token, after(REFUSED_PAUSE));
        self.entries.insert(token, Entry::Active(Box::new(active)));
    }

    fn resume_active(&mut self, token: u64, mut active: Active) {
        let params = &active.plan.params;
        match sock::restart(&active.socket, local_of(params), params.remote) {
            Ok(()) => {
                active.phase = Phase::Connecting;
                self.reactor.set_timer(token, active.deadline());
                self.advance_active(token, Box::new(active));
            }
            Err(error) => {
                let reason = tcp_reason(&error, &params.remote);
                self.end_active(token, active, Over::Failed(reason));
            }
        }
    }

    pub(super) fn expire_active(&mut self, token: u64, active: Active) {
        if let Phase::Refused = active.phase {
            return self.resume_active(token, active);
        }
        let whole = active.plan.deadline.and(active.plan.params.timeout);
        let after = whole.unwrap_or(active.plan.policy.connect_timeout);
        let reason = match active.phase {
            Phase::Connecting | Phase::Refused => FailReason::ConnectTimeout(after),
            Phase::Asking { .. } => FailReason::ReplyTimeout(after),
        };
        self.end_active(token, active, Over::Failed(reason));
    }

    fn adopt_active(
        &mut self,
        token: u64,
        mut active: Active,
        agreed: (Negotiated, Vec<u8>, Vec<u8>),
    ) {
        // A message that the peer sent before its reply has arrived.
        self.advance_seeking(token, &mut active.seeking);
        let seeking = std::mem::replace(&mut active.seeking, Err(NotLocal::Untried));
        let local = found(seeking, &active.plan.policy);
        if let (Err(why), LocalStreams::Require) = (&local, active.plan.policy.local) {
            let over = Over::Failed(FailReason::NoLocalStream(*why));
            return self.end_active(token, active, over);
        }
        if local.is_ok() && !agreed.2.is_empty() {
            return self.end_active(token, active, Over::Failed(twice()));
        }
        let Active { party, plan, socket, ends, phase, .. } = active;
        self.unwatch(token, &socket);
        let Some(party) = open(&party) else { return };
        self.by_qp.remove(&id_of(&*party));
        let (negotiated, private_data, received) = agreed;
        // RFC 6581 8 [CONN-32]: a second descriptor, to send a Terminate if the provider refuses.
        let second = || Ours::<Host, _>::make(|| socket.try_clone()).ok();
        let spare = if plan.attempt.enhanced { second() } else { None };
        let agreed = Agreed {
            policy: plan.policy,
            ends: ends.clone(),
            negotiated,
            own: party.connection().ird_ord(),
            private_data,
            socket,
            received,
            last_message: Vec::new(),
            local,
        };
        if let Err(error) = self.adopt(&party, agreed) {
            if let (Some(socket), Phase::Asking { machine, .. }) = (spare, phase) {
                send_terminate(&machine, StartupError::Local, &socket);
            }
            self.fail(&party, ends, refused(&error));
        }
    }

    /// Ends an attempt: retries with fewer features or elsewhere, or fails.
    fn end_active(&mut self, token: u64, mut active: Active, over: Over) {
        self.unwatch(token, &active.socket);
        let Some(party) = open(&active.party) else { return };
        self.by_qp.remove(&id_of(&*party));
        if let (Over::Startup(error), Phase::Asking { machine, .. }) = (&over, &active.phase) {
            send_terminate(machine, *error, &active.socket);
        }
        if let Some(less) = active.step_back(&over) {
            self.counters.stepped_back.add();
            tracing::info!("{}: trying again with {less:?}", active.ends);
            if active.plan.params.local_port != 0 {
                // Otherwise the socket stays in TIME-WAIT, and the port with it.
                let _ = sock::reset_on_close(&active.socket);
            }
            let Active { plan, socket, .. } = active;
            drop(socket);
            let plan = Plan { attempt: less, ..plan };
            let socket = plan.socket();
            return self.start_active(&party, plan, socket);
        }
        if let Over::Failed(reason) = &over
            && active.plan.use_next_address(&self.policies, &self.rules, &*party, reason)
        {
            let socket = active.plan.socket();
            return self.start_active(&party, active.plan, socket);
        }
        if let Over::Failed(reason) = &over
            && active.plan.tries_again(reason)
        {
            return self.pause_active(token, &*party, active);
        }
        let ends = active.ends;
        match over {
            Over::Failed(reason) => self.fail(&party, ends, reason),
            Over::Startup(error) => self.fail(&party, ends, reason_of(error)),
            Over::Rejected { private_data, peer_ird_ord, .. } => {
                self.refuse(&party, ConnEvent::Rejected { ends, private_data, peer_ird_ord });
            }
        }
    }

    pub(super) fn cancel_active(&mut self, token: u64, active: Active) {
        self.end_active(token, active, Over::Failed(FailReason::Cancelled));
    }
}
