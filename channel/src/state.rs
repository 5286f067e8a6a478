//! The state of a channel: received messages, idle memory, and outstanding requests.
//!
//! Owner: the channel's [`ChannelEnd`](crate::core::ChannelEnd), which locks it for each step; nothing here waits. All
//! lists are bounded by the agreed limits. When the connection ends, received messages can still be taken; the
//! rest is freed with the channel.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use itapi::{Adopted, Buffer, Ep, Local, Pz};

use crate::core::ChannelEnd;
use crate::error::{End, Error};
use crate::kept::Item;
use crate::link::{Link, is_devices};
use crate::message::{Envelope, Memory, Message};
use crate::resume::{Resume, Role, Wish};
use crate::sends::Sends;
use crate::session::{Session, Violation};
use crate::tuning::{LONG, LONG_DRAFTS, REMOVAL, SIGNAL_EVERY};
use crate::wire::{HEADER, Unfit};

/// Octets of a buffer for small messages: each begins at the beginning of a page, where copies are fastest.
pub(crate) fn capacity(small: usize) -> usize {
    (HEADER + small).next_multiple_of(if small < PAGE { 64 } else { PAGE })
}

/// Octets of a page; another size is only slower.
const PAGE: usize = 4096;

/// Why a channel has ended.
#[derive(Clone, Debug)]
pub(crate) enum Over {
    /// The peer broke the protocol.
    Violation(Violation),
    /// The peer is no channel of this version.
    Unfit(Unfit),
    /// The connection ended.
    Ended(Option<Box<End>>),
}

impl Over {
    pub(crate) fn error(&self) -> Error {
        match self {
            Self::Violation(violation) => Error::Protocol(*violation),
            Self::Unfit(unfit) => Error::Greeting(*unfit),
            Self::Ended(end) => Error::Lost(end.clone()),
        }
    }

    /// Why there is no connection.
    pub(crate) fn not_connected(&self) -> Error {
        match self {
            Self::Ended(Some(end)) => match &**end {
                End::Event(event) => itapi::Error::Connection(Box::new(event.clone())).into(),
                _ => self.error(),
            },
            _ => self.error(),
        }
    }
}

/// Memory of receives.
#[derive(Default)]
pub(crate) struct Receives {
    /// Not posted, the one used last at the end; and what is about to be posted.
    pub(crate) free: Vec<Local>,
    pub(crate) posting: Vec<Local>,
    /// Receives that are posted, and how many of them, the oldest, are shorter than those posted now.
    pub(crate) posted: u32,
    pub(crate) short: u32,
    /// Octets of each that is posted from now on.
    octets: usize,
}

impl Receives {
    /// Receives of `octets` from now on, for which this has memory for all.
    pub(crate) fn new(octets: usize, free: Vec<Buffer>) -> Self {
        let free = free.into_iter().map(Into::into).collect();
        Self { free, octets, ..Self::default() }
    }

    /// Octets of each that is posted from now on.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// Receives of `octets` from now on, for which `free` is memory for all. The former memory is freed, each piece as soon as
    /// it is not in use.
    pub(crate) fn lengthen(&mut self, octets: usize, free: Vec<Buffer>) {
        *self = Self { posted: self.posted, short: self.posted, ..Self::new(octets, free) };
    }

    /// One has completed.
    #[inline]
    pub(crate) fn completed(&mut self) {
        self.posted -= 1;
        self.short = self.short.saturating_sub(1);
    }

    /// The memory of one is no longer used.
    #[inline]
    pub(crate) fn put(&mut self, buffer: Buffer) {
        if buffer.capacity() == self.octets {
            self.free.push(buffer.into());
        }
    }
}

/// Memory of messages that leave in one Send.
#[derive(Default)]
pub(crate) struct Drafts {
    idle: Vec<Buffer>,
    /// How many there are in all, and at most.
    made: usize,
    most: usize,
    /// Octets of each.
    octets: usize,
}

impl Drafts {
    /// At most so many, of `octets` each, which are allocated when they are needed.
    pub(crate) fn new(octets: usize, most: usize) -> Self {
        Self { octets, most, ..Self::default() }
    }

    /// An idle one; `None`: all are in use. If none is idle, `count` are allocated.
    #[inline]
    pub(crate) fn take(&mut self, pz: &Pz, count: usize) -> itapi::Result<Option<Buffer>> {
        if self.idle.is_empty() && self.made < self.most {
            let made = pz.buffers(count.min(self.most - self.made), self.octets)?;
            self.made += made.len();
            self.idle.extend(made);
        }
        Ok(self.idle.pop())
    }
}

/// The state, see the module.
pub(crate) struct State {
    /// The present connection, or the last.
    pub(crate) link: Link,
    /// Both ends agreed to resume the session on another connection.
    pub(crate) resume: Option<Box<Resume>>,
    /// What this end asks for before the peer has agreed.
    pub(crate) wish: Option<Wish>,
    /// The first endpoint, if the session has left its adapter: no other end may get its id.
    pub(crate) first: Option<Ep>,
    /// There is no connection now, and the session is to be resumed.
    pub(crate) is_down: bool,
    /// Since when the device of this connection refuses.
    pub(crate) refuses: Option<Instant>,
    /// `None` until both ends have greeted each other.
    pub(crate) session: Option<Session>,
    /// The connection is up.
    pub(crate) up: bool,
    pub(crate) over: Option<Over>,
    /// How the connection ended; it is over when all completions were taken.
    pub(crate) ending: Option<Over>,
    /// Messages that arrived, oldest first; `None`: its octets are being read.
    pub(crate) inbound: VecDeque<Option<Message>>,
    /// Messages that arrived before the peer's greeting was processed.
    pub(crate) early: VecDeque<Buffer>,
    pub(crate) receives: Receives,
    /// Memory for messages that leave in one Send: for small ones, and for long ones.
    pub(crate) drafts: Drafts,
    pub(crate) long_drafts: Drafts,
    /// Idle memory for large messages to be sent and to be received.
    pub(crate) vectors: Vec<Vec<u8>>,
    pub(crate) sinks: Vec<Buffer>,
    /// Large messages that the peer has not read, oldest first.
    pub(crate) unread: VecDeque<Adopted<Vec<u8>>>,
    pub(crate) sends: Sends,
    /// Idle envelopes. Their references to the channel stay in them: counting them for each message would take two atomic
    /// operations.
    #[expect(clippy::vec_box, reason = "the address of each is what moves")]
    pub(crate) envelopes: Vec<Box<Envelope>>,
    /// Tasks that wait for a change of this state.
    pub(crate) wakers: Vec<Waker>,
    /// It is on the list of those that have an event for a [`Server`](crate::Server).
    pub(crate) listed: bool,
    /// The server has reported the connection.
    pub(crate) reported: bool,
}

impl State {
    /// Of an end that is not connected, without memory.
    pub(crate) fn new(link: Link) -> Self {
        Self {
            link,
            resume: None,
            wish: None,
            first: None,
            is_down: false,
            refuses: None,
            session: None,
            up: false,
            over: None,
            ending: None,
            inbound: VecDeque::new(),
            early: VecDeque::new(),
            receives: Receives::default(),
            drafts: Drafts::default(),
            long_drafts: Drafts::default(),
            vectors: Vec::new(),
            sinks: Vec::new(),
            unread: VecDeque::new(),
            sends: Sends::default(),
            envelopes: Vec::new(),
            wakers: Vec::new(),
            listed: false,
            reported: false,
        }
    }

    /// New memory for messages that leave in one Send, the small ones of `small` octets with their header, from now on.
    pub(crate) fn allot(&mut self, small: usize, slots: u16) {
        self.drafts = Drafts::new(small, usize::from(slots) + 2 * SIGNAL_EVERY as usize);
        self.long_drafts = Drafts::new(capacity(LONG as usize), LONG_DRAFTS);
    }

    /// Nothing of the application is sent now: there is no connection, or earlier messages go first.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.is_down || self.resume.as_ref().is_some_and(|resume| resume.kept.is_behind())
    }

    /// The device refused memory. What needs it waits, if the device may be about to be removed; otherwise that is an error.
    #[cold]
    pub(crate) fn later(&mut self, error: itapi::Error) -> Result<(), Error> {
        let since = *self.refuses.get_or_insert_with(Instant::now);
        let waits = self.resume.is_some() && is_devices(&error) && since.elapsed() < REMOVAL;
        if waits { Ok(()) } else { Err(error.into()) }
    }

    /// Publishes how the session has gone so far.
    pub(crate) fn publish(&self) {
        if let Some(resume) = &self.resume {
            self.link.ep.set_note(&resume.note());
        }
    }

    /// Another connection is being made.
    #[inline]
    pub(crate) fn is_starting(&self) -> bool {
        self.is_down && self.resume.as_ref().is_some_and(|resume| resume.is_starting())
    }

    /// Keeps a message that is sent until the peer confirms it, if the session may be resumed.
    #[inline]
    pub(crate) fn keep(&mut self, item: Item) {
        if let Some(resume) = &mut self.resume {
            resume.kept.push(item);
        }
    }

    /// Everything is confirmed, or nothing is going to be.
    pub(crate) fn is_confirmed(&self) -> bool {
        let all = |resume: &Resume| resume.kept.is_empty();
        let session = self.session.as_ref().is_none_or(Session::is_confirmed);
        session && self.resume.as_deref().is_none_or(all)
    }

    /// Both ends have finished, and everything has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_complete) && self.is_confirmed()
    }

    /// The end that connected: the other end knows that both have everything, or cannot be told. The other end: always.
    pub(crate) fn is_done(&self) -> bool {
        let connects = |resume: &Resume| matches!(resume.role, Role::Connects { .. });
        let waits = self.over.is_none() && self.resume.as_deref().is_some_and(connects);
        !waits || self.session.as_ref().is_none_or(Session::is_done)
    }

    /// The memory of a message that the device has sent.
    #[inline]
    pub(crate) fn unsent(&mut self, buffer: Buffer) {
        let buffer = match &mut self.resume {
            Some(resume) => resume.kept.put(buffer),
            None => Some(buffer),
        };
        if let Some(buffer) = buffer {
            self.undraft(buffer);
        }
    }

    /// A message of the peer, or its end, has arrived; a large one is yet to be read.
    #[inline]
    pub(crate) fn arrived(&mut self) {
        let Some(resume) = &mut self.resume else { return };
        if resume.behind > 0 || matches!(self.inbound.back(), Some(None)) {
            resume.behind += 1;
        } else {
            resume.whole = resume.whole.wrapping_add(1);
            if let Some(session) = &mut self.session {
                session.is_whole(1);
            }
        }
    }

    /// A large message was read: it is whole, and what follows up to the next that is not read.
    pub(crate) fn is_read(&mut self) {
        let Some(resume) = &mut self.resume else { return };
        let ended = self.session.as_ref().is_some_and(Session::peer_has_ended);
        let behind = match self.inbound.iter().position(Option::is_none) {
            Some(at) => (self.inbound.len() - at) as u16 + u16::from(ended),
            None => 0,
        };
        let whole = resume.behind.saturating_sub(behind);
        resume.behind = behind;
        resume.whole = resume.whole.wrapping_add(whole.into());
        if let Some(session) = &mut self.session {
            session.is_whole(whole);
        }
    }

    /// The peer has read a large message that it had before the session was resumed: its memory is free already.
    pub(crate) fn has_read_before(&mut self) -> bool {
        match &mut self.resume {
            Some(resume) if resume.ghosts > 0 => {
                resume.ghosts -= 1;
                true
            }
            _ => false,
        }
    }

    /// A copy of `octets`, in idle memory if there is any.
    pub(crate) fn vector(&mut self, octets: &[u8]) -> Vec<u8> {
        let mut vector = self.vectors.pop().unwrap_or_default();
        vector.clear();
        vector.extend_from_slice(octets);
        vector
    }

    /// The memory of a message that has left, or will not leave.
    #[inline]
    pub(crate) fn undraft(&mut self, buffer: Buffer) {
        let is_small = buffer.capacity() <= self.drafts.octets;
        let drafts = if is_small { &mut self.drafts } else { &mut self.long_drafts };
        drafts.idle.push(buffer);
    }

    /// The oldest message can be taken.
    pub(crate) fn has_message(&self) -> bool {
        matches!(self.inbound.front(), Some(Some(_)))
    }

    /// The peer has finished, and all of its messages were taken.
    pub(crate) fn is_at_end(&self) -> bool {
        let ended = self.session.as_ref().is_some_and(Session::peer_has_ended);
        ended && self.inbound.is_empty()
    }

    /// There is an event for the server.
    pub(crate) fn has_event(&self) -> bool {
        (self.up && !self.reported) || self.has_message() || self.is_at_end() || self.over.is_some()
    }

    /// An envelope of `end`, whose state this is, for memory.
    #[inline]
    pub(crate) fn envelope(&mut self, end: &Arc<ChannelEnd>, memory: Memory) -> Box<Envelope> {
        match self.envelopes.pop() {
            Some(mut idle) => {
                (idle.memory, idle.line) = (memory, self.link.line);
                idle
            }
            None => {
                let (of, line) = (Arc::downgrade(end), self.link.line);
                Box::new(Envelope { memory, room: 0, of, line })
            }
        }
    }

    /// Keeps an empty envelope for the next message or draft, at most one for each of `most`.
    #[inline]
    pub(crate) fn emptied(&mut self, envelope: Box<Envelope>, most: u16) {
        if self.envelopes.len() < usize::from(most) {
            self.envelopes.push(envelope);
        }
    }

    /// A task waits.
    pub(crate) fn wait(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|other| other.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }
}
