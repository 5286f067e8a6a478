//! Converted sockets in the table, until their endpoint is connected (late RDMA transition).
//!
//! The initiator is an ordinary attempt without TCP's part; the responder has an entry of its own.

use std::sync::{Arc, Weak};

use iwarp_proto::Role as WireRole;
use iwarp_proto::mpa::startup::{Negotiated, Responder};
use kal_shim::clock::after;
use kal_shim::reactor::Interest;
use kal_shim::same_host::NotLocal;
use kal_shim::sock;
use vp_api::Role;

use super::meeting::{Start, found, twice};
use super::outcome::{Agreed, unwatchable};
use super::{ConnectionTable, Entry};
use crate::connection::{Connectee, id_of, open};
use crate::local::{BARE, MPA};
use crate::policy::Policy;
use crate::startup::config::{asks_crc, asks_markers, reason_of, reply, responder_config};
use crate::startup::converted::{Awaited, Begun, Converted, Next};
use crate::startup::socket::{Conversion, ConvertParams};
use crate::startup::tcp::options;
use crate::types::FailReason;

impl ConnectionTable {
    pub(super) fn on_convert(&mut self, party: &Weak<dyn Connectee>, conversion: Conversion) {
        let Some(open) = open(party) else { return };
        let Conversion { socket, params, policy, ends, .. } = &conversion;
        open.connection().link().ends = Some(ends.clone());
        let ready = options(policy).apply(socket, ends.remote.address);
        if let Err(error) = ready.and_then(|()| sock::uncork(socket)) {
            let reason = FailReason::Resources(format!("cannot set the socket's options: {error}"));
            return self.fail(&open, conversion.ends, reason);
        }
        match (params.role, params.startup) {
            (Role::Initiator, true) => self.begin_converted_request(&open, conversion),
            (Role::Initiator, false) => self.begin_converted(&open, conversion),
            (Role::Responder, _) => self.wait_converted(&open, conversion),
        }
    }

    fn wait_converted(&mut self, party: &Arc<dyn Connectee>, conversion: Conversion) {
        let Conversion { socket, params, policy, ends, .. } = conversion;
        let (awaited, timeout) = match params.startup {
            true => (
                Awaited::Request(Responder::new(responder_config(&policy))),
                policy.request_timeout,
            ),
            // The application posts it.
            false => (Awaited::Fpdu(Vec::new()), policy.answer_timeout),
        };
        let ConvertParams { last_message, private_data, received: early, .. } = params;
        let token = self.new_token();
        self.by_qp.insert(id_of(&**party), token);
        self.reactor.set_timer(token, after(timeout));
        let mut converted = Converted {
            party: Arc::downgrade(party),
            policy,
            ends,
            socket,
            last_message,
            sent: 0,
            private_data,
            early,
            awaited,
            timeout,
            seeking: Err(NotLocal::Untried),
        };
        if !params.startup {
            converted.seeking = self.seek(token, BARE, &converted.policy, &converted.ends);
        }
        match self.reactor.add(&converted.socket, token, Interest::READ) {
            Ok(()) => self.advance_converted(token, Box::new(converted)),
            Err(error) => self.fail_converted(token, converted, unwatchable(&error)),
        }
    }

    pub(super) fn advance_converted(&mut self, token: u64, mut converted: Box<Converted>) {
        self.advance_seeking(token, &mut converted.seeking);
        match converted.advance() {
            // The peer began over shared memory.
            Next::Wait(Interest::READ) if converted.is_met() => {
                let begun = Begun { received: Vec::new(), private_data: Vec::new() };
                self.finish_converted(token, *converted, begun);
            }
            Next::Wait(interest) => match self.reactor.modify(&converted.socket, token, interest) {
                Ok(()) => {
                    self.entries.insert(token, Entry::Converted(converted));
                }
                Err(error) => self.fail_converted(token, *converted, unwatchable(&error)),
            },
            Next::Begun(begun) => self.finish_converted(token, *converted, begun),
            Next::Refuse(error) => {
                if let Awaited::Request(machine) = &converted.awaited
                    && let Some(reply) = machine.reply_for(error)
                {
                    // The connection is over either way.
                    let _ = sock::send(&converted.socket, &reply);
                }
                self.fail_converted(token, *converted, reason_of(error));
            }
            Next::Failed(reason) => self.fail_converted(token, *converted, reason),
        }
    }

    fn finish_converted(&mut self, token: u64, converted: Converted, begun: Begun) {
        self.remove_converted(token, &converted);
        let Some(party) = open(&converted.party) else { return };
        let Converted { socket, policy, ends, awaited, private_data, seeking, .. } = converted;
        let own = party.connection().ird_ord();
        let (last_message, negotiated) = match &awaited {
            Awaited::Request(machine) => match reply(machine, &policy, own, &private_data) {
                Ok(answer) => answer,
                Err(error) => return self.fail(&party, ends, reason_of(error)),
            },
            Awaited::Fpdu(_) => (Vec::new(), unspoken(WireRole::Responder, &policy, own)),
        };
        let asked = matches!(awaited, Awaited::Request(_));
        let local = if asked { Err(NotLocal::Untried) } else { found(seeking, &policy) };
        let Begun { received, private_data } = begun;
        if local.is_ok() && !received.is_empty() {
            return self.fail(&party, ends, twice());
        }
        let agreed = Agreed {
            policy,
            ends,
            negotiated,
            own,
            private_data,
            socket,
            received,
            last_message,
            local,
        };
        match asked {
            true => self.begin_meeting(token, &party, Start { passive: None, agreed }, MPA),
            false => self.finish_start(&party, agreed),
        }
    }

    fn remove_converted(&mut self, token: u64, converted: &Converted) {
        self.unwatch(token, &converted.socket);
        if let Some(party) = converted.party.upgrade() {
            self.by_qp.remove(&id_of(&*party));
        }
    }

    pub(super) fn expire_converted(&mut self, token: u64, converted: Converted) {
        let reason = FailReason::RequestTimeout(converted.timeout);
        self.fail_converted(token, converted, reason);
    }

    pub(super) fn fail_converted(&mut self, token: u64, converted: Converted, reason: FailReason) {
        self.remove_converted(token, &converted);
        if let Some(party) = open(&converted.party) {
            self.fail(&party, converted.ends, reason);
        }
    }

    /// An initiator without start-up may send at once.
    fn begin_converted(&mut self, party: &Arc<dyn Connectee>, conversion: Conversion) {
        let Conversion { socket, params, policy, ends, .. } = conversion;
        let own = party.connection().ird_ord();
        let negotiated = unspoken(WireRole::Initiator, &policy, own);
        let agreed = Agreed {
            policy,
            ends,
            negotiated,
            own,
            private_data: Vec::new(),
            socket,
            received: Vec::new(),
            last_message: params.last_message,
            local: Err(NotLocal::Untried),
        };
        // The peer sent the last message of the dialogue, so its rendezvous name is open by now if it has one.
        let token = self.new_token();
        self.begin_meeting(token, party, Start { passive: None, agreed }, BARE);
    }
}

/// The parameters that the applications agreed on themselves: the policy, at both ends.
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
