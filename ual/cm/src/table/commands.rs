//! Dispatch of commands, ready sockets and timers: finds the entry, and calls what its kind does.

use kal_shim::reactor::Ready;

use super::{ConnectionTable, Entry};
use crate::mailbox::Command;
use crate::observed::EXTRA_DESCRIPTOR;

impl ConnectionTable {
    pub(crate) fn on_command(&mut self, command: Command) {
        match command {
            Command::Connect { party, plan, started } => self.on_connect(&party, *plan, started),
            Command::Convert { party, conversion } => self.on_convert(&party, *conversion),
            Command::Accept { token, party, params } => self.on_accept(token, &party, &params),
            Command::Reject { token, private_data } => self.on_reject(token, &private_data),
            Command::Handoff { token, to } => self.on_handoff(token, to),
            Command::Adopt { listener, passive } => self.on_adopt(listener, passive),
            Command::Undelivered { origin } => self.on_undelivered(origin),
            Command::Listen { listening, service } => self.on_listen(listening, *service),
            Command::Native { number, event } => self.on_native(number, event),
            Command::Service(event) => self.on_service(event),
            Command::Answered { token } => self.drop_entry(token),
            Command::Unlisten { token } => self.on_unlisten(token),
            Command::Cancel { qp, stream } => self.on_cancel(qp, stream),
            Command::Disconnecting { party, stream, how } => {
                self.on_disconnecting(&party, stream, how);
            }
            Command::Forget { qp } => self.drop_of(qp),
            Command::Async { number, source, event } => self.on_async(number, source, event),
        }
    }

    pub(crate) fn on_ready(&mut self, ready: Ready) {
        match ready {
            Ready::Io { token } => self.on_io(token),
            Ready::Timer { token } => self.on_timer(token),
        }
    }

    fn on_io(&mut self, token: u64) {
        if token == EXTRA_DESCRIPTOR {
            return self.extra.iter().for_each(|extra| extra.on_ready());
        }
        if self.listeners.contains_key(&token) {
            return self.on_incoming(token);
        }
        match self.entries.remove(&token) {
            Some(Entry::Active(active)) => self.advance_active(token, active),
            Some(Entry::Passive(passive)) => self.advance_passive(token, passive),
            Some(Entry::Converted(converted)) => self.advance_converted(token, converted),
            Some(Entry::Meeting(meeting)) => self.advance_meeting(token, meeting),
            // Their sockets are not watched.
            Some(other @ (Entry::Ending(_) | Entry::Native(_))) => {
                self.entries.insert(token, other);
            }
            None => {}
        }
    }

    fn on_timer(&mut self, token: u64) {
        if self.listeners.contains_key(&token) {
            return self.resume(token);
        }
        match self.entries.remove(&token) {
            Some(Entry::Active(active)) => self.expire_active(token, *active),
            Some(Entry::Passive(passive)) => self.expire_passive(token, passive),
            Some(Entry::Converted(converted)) => self.expire_converted(token, *converted),
            Some(Entry::Meeting(meeting)) => self.expire_meeting(token, *meeting),
            Some(Entry::Ending(party)) => self.expire_ending(&party),
            Some(Entry::Native(pending)) => self.expire_native(token, *pending),
            None => {}
        }
    }
}
