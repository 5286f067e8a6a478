//! Inbound: completions, and the peer's messages in them. Called in the order of the completions, by the
//! thread that drives the hub; nothing waits.

use std::mem;
use std::sync::Arc;

use itapi::{Buffer, Completion, EpId, Operation, RemoteRange, WcStatus, Work};

use super::ChannelEnd;
use crate::error::{End, Error, Result};
use crate::link;
use crate::message::{Memory, Message};
use crate::session::{Arrival, Session};
use crate::state::{Over, State};
use crate::wire::Kind;

impl ChannelEnd {
    /// Completions of this end, oldest first; takes their memory.
    pub(crate) fn complete(self: &Arc<Self>, adapter: usize, of: EpId, batch: &mut [Completion]) {
        let mut state = self.state();
        if (adapter, of) != (state.link.adapter, state.link.ep.id()) {
            return;
        }
        for completion in batch {
            self.one(&mut state, completion);
        }
        let again = self.send_again(&mut state);
        let acknowledged = again.and_then(|()| self.acknowledge(&mut state));
        let acknowledged = acknowledged.and_then(|()| self.tell(&mut state));
        self.end_on_error(&mut state, acknowledged);
        self.wake_tasks(&mut state);
        self.hub.list(self, &mut state);
    }

    fn one(self: &Arc<Self>, state: &mut State, completion: &mut Completion) {
        if completion.status != WcStatus::Success {
            return self.failed(state, completion);
        }
        let buffer = mem::take(&mut completion.local).into_buffer();
        if completion.operation == Operation::Recv {
            state.receives.completed();
            if let Some(buffer) = buffer {
                self.message(state, buffer);
            }
            return;
        }
        state.sends.completed();
        self.returned(state, completion);
        match (completion.operation, buffer) {
            // A large message is not empty.
            (Operation::Read, Some(buffer)) if buffer.is_empty() => self.heard(state),
            (Operation::Read, Some(buffer)) => self.read(state, buffer),
            (_, Some(buffer)) => state.unsent(buffer),
            (_, None) => {}
        }
    }

    /// Buffers of the unsignalled Sends before it.
    #[inline]
    fn returned(&self, state: &mut State, completion: &mut Completion) {
        for memory in completion.earlier.drain(..) {
            // Each was one buffer.
            if let Some(buffer) = memory.into_buffer() {
                state.unsent(buffer);
            }
        }
    }

    /// A request failed: the connection has ended.
    #[cold]
    fn failed(self: &Arc<Self>, state: &mut State, completion: &mut Completion) {
        let end = completion.end.take().map(|end| Box::new(End::Work(*end)));
        if !self.goes_on(state) {
            // The first has the cause; the others were flushed.
            state.over.get_or_insert(Over::Ended(end));
            return;
        }
        self.returned(state, completion);
        let buffer = mem::take(&mut completion.local).into_buffer();
        match (completion.operation, buffer) {
            (Operation::Recv, buffer) => {
                state.receives.completed();
                buffer.into_iter().for_each(|buffer| state.receives.put(buffer));
            }
            // Its message comes again.
            (Operation::Read, _) | (_, None) => {}
            (_, Some(buffer)) => state.unsent(buffer),
        }
        self.lost(state, Over::Ended(end), false);
    }

    /// A message of the peer.
    fn message(self: &Arc<Self>, state: &mut State, buffer: Buffer) {
        if state.session.is_none() || state.is_starting() {
            state.early.push_back(buffer);
            return;
        }
        // Completions after this end has closed the connection are ignored.
        if matches!(state.over, Some(Over::Violation(_) | Over::Unfit(_))) {
            return;
        }
        let Some(session) = &mut state.session else { return };
        let (arrival, read) = match session.arrive(&buffer) {
            Ok(arrived) => arrived,
            Err(violation) => return self.give_up(state, Over::Violation(violation)),
        };
        self.confirmed(state);
        for _ in 0..read {
            if state.has_read_before() {
                continue;
            }
            if let Some(region) = state.unread.pop_front()
                && let Ok(octets) = region.deregister()
            {
                self.keep(state, octets);
            }
        }
        let done = match arrival {
            Arrival::Small => {
                let envelope = state.envelope(self, Memory::Small(buffer));
                state.inbound.push_back(Some(Message(Some(envelope))));
                state.arrived();
                return;
            }
            Arrival::Large(from) => {
                state.receives.put(buffer);
                self.start_read(state, from)
            }
            Arrival::Counts | Arrival::End => {
                if arrival == Arrival::End {
                    state.arrived();
                }
                state.receives.put(buffer);
                self.repost(state).and_then(|()| self.send_again(state))
            }
        };
        self.end_on_error(state, done);
    }

    /// Messages that arrived before the peer's greeting.
    pub(super) fn catch_up(self: &Arc<Self>, state: &mut State) {
        while state.session.is_some()
            && let Some(buffer) = state.early.pop_front()
        {
            self.message(state, buffer);
        }
    }

    /// Begins to read a large message of the peer.
    fn start_read(&self, state: &mut State, from: RemoteRange) -> Result<()> {
        // At most what this end accepts: the session has checked.
        let len = from.len as usize;
        let idle = state.sinks.iter().position(|sink| sink.capacity() >= len);
        let sink = match idle {
            Some(at) => Ok(state.sinks.swap_remove(at)),
            None => {
                // One that is too short makes room for this.
                state.sinks.pop();
                state.link.pz.buffer(len.next_power_of_two())
            }
        };
        // Without a sink it is not read; if the session goes on, it comes again.
        state.inbound.push_back(None);
        state.arrived();
        if !state.is_down {
            let sink = sink?;
            state.link.ep.post(Work::read(from, sink))?;
            state.sends.posted(0, true);
        }
        Ok(())
    }

    /// A large message was read; they complete in the order of their Reads.
    fn read(self: &Arc<Self>, state: &mut State, buffer: Buffer) {
        let envelope = state.envelope(self, Memory::Read(buffer));
        if let Some(reading) = state.inbound.iter_mut().find(|message| message.is_none()) {
            *reading = Some(Message(Some(envelope)));
            state.is_read();
        }
    }

    /// Sends credits and read counts to the peer, if they are due. An application that keeps many messages and waits for
    /// more never owes half of the credits: then they are due once the peer has used all.
    #[inline]
    pub(super) fn acknowledge(&self, state: &mut State) -> Result<()> {
        let waits = state.inbound.is_empty();
        let due =
            |session: &Session| session.must_acknowledge() || (waits && session.is_exhausted());
        match &state.session {
            Some(session) if due(session) && state.over.is_none() && !state.is_down => {
                // Without room they are sent later, after a completion.
                self.counts(state, Kind::Ack).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// An error of this end ends the connection.
    pub(super) fn end_on_error(self: &Arc<Self>, state: &mut State, done: Result<()>) {
        let cause = match done {
            Ok(()) => return,
            // The device is being removed, or fails.
            Err(Error::Rdma(error)) if link::is_devices(&error) && self.goes_on(state) => {
                let end = Some(Box::new(End::Here(Arc::new(error))));
                return self.lost(state, Over::Ended(end), false);
            }
            Err(Error::Rdma(error)) => Some(Box::new(End::Here(Arc::new(error)))),
            Err(_) => None,
        };
        self.give_up(state, Over::Ended(cause));
    }
}
