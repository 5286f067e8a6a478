//! Flow control between both ends: a state machine without IO.
//!
//! Owner: a connection, under its lock. It counts the messages that either end may send, the large ones
//! that are not read yet, and the ends of both directions. Every number of the peer is checked against
//! what was agreed, so a peer can neither make this end send without a receive, nor use more memory than
//! agreed. When the peer dies it is dropped; a new connection has a new one.

use itapi::RemoteRange;

use crate::tuning::{ALTERNATING, LONG};
use crate::wire::{Greeting, HEADER, Header, Kind};

/// Messages that a peer is granted however long they are, if this end has slots for so many.
const FEW: u16 = 4;

/// Messages that a peer is granted, unless they are long, while each is replied to: it may send some without a reply, too.
const SOME: u64 = 24;

/// Receives for confirmations: an end that does not poll sends no more messages than the window, and its peer confirms most of
/// these at a time, and the end.
pub const CONFIRMATIONS: u32 = 2;

/// A violation of the protocol by the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// A message without a header of this version.
    Header,
    /// More messages than it was granted.
    Overrun,
    /// It returned more messages than it was sent.
    Credits,
    /// It read more large messages than were announced.
    Read,
    /// A small message longer than this end accepts, octets after an acknowledgement or an end, or an invalid
    /// address of a large message.
    Length,
    /// A large message without octets, longer than this end accepts, or beyond the number agreed.
    Large,
    /// An acknowledgement of nothing.
    Idle,
    /// A message after its end.
    AfterEnd,
    /// It confirmed more messages than were sent to it, or confirmed some although both ends did not agree to.
    Arrived,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Header => "a message without a valid header",
            Self::Overrun => "more messages than it was granted",
            Self::Credits => "it gave back more messages than were sent to it",
            Self::Read => "it claims to have read more large messages than there are",
            Self::Length => "a message of the wrong length for its kind",
            Self::Large => "a large message beyond what was agreed",
            Self::Idle => "an acknowledgement of nothing",
            Self::AfterEnd => "a message behind its end",
            Self::Arrived => "it claims that more messages have arrived than were sent to it",
        })
    }
}

/// The kind of a message of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// A message of the application, after the header.
    Small,
    /// A message to be read from this address.
    Large(RemoteRange),
    /// Counts, which are recorded.
    Counts,
    /// The peer sends nothing more.
    End,
}

/// What the receives of this end have room for. They never become shorter: the peer may use what it has heard of at any
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    /// All for small messages, and so they stay.
    Never,
    /// All for small messages.
    NotYet,
    /// Those posted from now on for long ones.
    Begun,
    /// All that are posted for long ones.
    Done,
}

/// Whether the memory that this end has for large messages is enough for all receives to be long.
fn may_grow(ours: &Greeting) -> bool {
    let receives = u64::from(u32::from(ours.slots) + ours.reserve());
    ours.small < LONG && receives * u64::from(LONG) <= u64::from(ours.large) * ours.longest
}

/// The state of one end of a connection.
#[derive(Debug)]
pub struct Session {
    ours: Greeting,
    peer: Greeting,
    /// Large messages that may be outstanding in either direction: the smaller limit of both ends.
    large: u16,
    /// Octets of the longest message that is sent in one Send.
    most: usize,
    /// The peer's *room*, which that follows.
    peer_room: u8,
    /// Messages that may be sent.
    credits: u16,
    /// Large messages of ours that the peer has not read.
    unread: u16,
    /// The end is sent.
    ended: bool,
    /// Messages that the peer may send.
    granted: u16,
    /// Most messages that the peer is granted at once: its slots, or fewer while long ones arrive.
    window: u16,
    /// Octets of the messages in the window, if that bounds it.
    span: Option<u32>,
    /// Messages that arrived since one was sent; and the greatest number of these since credits were returned.
    unanswered: u32,
    burst: u32,
    /// Sixteen times the average length of the messages that arrived last, without those for which no receive has room.
    lengths: u64,
    growth: Growth,
    /// *room* of the messages that are sent.
    room: u8,
    /// Messages of the peer that were received and not yet acknowledged.
    owed: u16,
    /// Large messages of the peer that are not read.
    reading: u16,
    /// Large messages that were read and not yet acknowledged.
    read: u16,
    peer_ended: bool,
    /// If both ends agreed to confirm what arrives.
    confirming: Option<Confirming>,
}

/// What confirms messages, so that a session can be resumed.
#[derive(Clone, Copy, Debug, Default)]
struct Confirming {
    /// Most messages that are sent and not confirmed: the smaller number of slots, so that an end that does not poll gets few
    /// confirmations.
    window: u16,
    /// Messages that were sent, the end included, and not confirmed.
    unconfirmed: u16,
    /// Messages of the peer that have arrived whole and are not confirmed.
    arrived: u16,
    /// Messages of ours that the peer has confirmed and that were not yet asked for.
    news: u16,
    /// The peer has said that both ends have everything.
    done: bool,
}

/// What a session takes over from the one before, on another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Messages of the peer that this end had when it told the peer, of these how many large ones that were not taken.
    pub held: u16,
    /// See `held`.
    pub held_large: u16,
    /// How many of both it has now.
    pub held_now: u16,
    /// See `held_now`.
    pub held_large_now: u16,
    /// What the peer told.
    pub peer_held: u16,
    /// See `peer_held`.
    pub peer_held_large: u16,
    /// The end was sent, perhaps in vain.
    pub ended: bool,
    /// The peer's end was received.
    pub peer_ended: bool,
}

impl Session {
    /// Between ends with these greetings.
    pub fn new(ours: Greeting, peer: Greeting) -> Self {
        Self {
            ours,
            peer,
            large: ours.large.min(peer.large),
            most: ours.small.min(peer.small) as usize,
            peer_room: 0,
            credits: peer.slots,
            unread: 0,
            ended: false,
            granted: ours.slots,
            window: ours.slots,
            span: None,
            unanswered: 0,
            burst: 0,
            lengths: 0,
            growth: match peer.grows && may_grow(&ours) {
                true => Growth::NotYet,
                false => Growth::Never,
            },
            room: 0,
            owed: 0,
            reading: 0,
            read: 0,
            peer_ended: false,
            confirming: None,
        }
    }

    /// From now on both ends confirm what has arrived.
    pub fn confirming(mut self) -> Self {
        let window = self.ours.slots.min(self.peer.slots);
        self.confirming = Some(Confirming { window, ..Confirming::default() });
        self
    }

    /// On a further connection between the same ends; the caller has checked that the numbers are within the limits.
    pub fn resumed(self, carried: Carried) -> Self {
        Self {
            granted: self.ours.slots - carried.held,
            owed: carried.held - carried.held_now,
            reading: carried.held_large_now,
            read: carried.held_large - carried.held_large_now,
            credits: self.peer.slots - carried.peer_held,
            unread: carried.peer_held_large,
            ended: carried.ended,
            peer_ended: carried.peer_ended,
            ..self.confirming()
        }
    }

    /// Messages of the peer that this end has: received, and not yet taken and dropped.
    pub fn held(&self) -> u16 {
        self.ours.slots - self.granted - self.owed
    }

    /// Forgets the last so many messages, and the end after them, which come again on another connection.
    pub fn come_again(&mut self, messages: u16, end: bool) {
        self.granted += messages;
        self.peer_ended &= !end;
    }

    /// So many messages of the peer have arrived whole.
    #[inline]
    pub fn is_whole(&mut self, messages: u16) {
        if let Some(confirming) = &mut self.confirming {
            confirming.arrived += messages;
        }
    }

    /// Messages of ours that the peer has confirmed since the last call.
    #[inline]
    pub fn news(&mut self) -> u16 {
        self.confirming.as_mut().map_or(0, |confirming| std::mem::take(&mut confirming.news))
    }

    /// Everything that this end has sent is confirmed, and so is all of the peer.
    pub fn is_confirmed(&self) -> bool {
        self.confirming.is_none_or(|it| it.unconfirmed == 0 && it.arrived == 0)
    }

    /// Whether both ends have ended, and know that everything has arrived.
    pub fn is_complete(&self) -> bool {
        self.has_all() && self.is_confirmed()
    }

    /// Whether both ends have ended, and this one has everything.
    pub fn has_all(&self) -> bool {
        self.ended && self.peer_ended
    }

    /// The peer has everything, and has nothing to send.
    pub fn all_is_confirmed(&mut self) {
        if let Some(confirming) = &mut self.confirming {
            (confirming.unconfirmed, confirming.arrived) = (0, 0);
        }
    }

    /// The limits of the peer.
    pub fn peer(&self) -> &Greeting {
        &self.peer
    }

    /// Most large messages that are outstanding in one direction.
    pub fn most_large(&self) -> u16 {
        self.large
    }

    /// Nothing is unread any more: the peer has all of it, and the connection is over.
    pub fn all_is_read(&mut self) {
        self.unread = 0;
    }

    /// A confirmation is due, even if there is nothing else to send.
    #[inline(never)]
    fn must_confirm(&self) -> bool {
        self.confirming.as_ref().is_some_and(|it| {
            // While the application takes messages, credits are returned before, and confirm them, too.
            it.arrived >= it.window - it.window / 8 || (it.arrived > 0 && self.peer_ended)
        })
    }

    /// The peer is on the same machine. From now on no more messages are granted at once than take `span` octets, if they are
    /// as long as the last ones, and a part of that while each is replied to; but at least a few. While they are longer than
    /// *small*, receives get room for them, so that the peer sends them and this end need not read them.
    pub fn narrow(&mut self, span: u32) {
        self.span = Some(span);
    }

    /// This end cannot send now. If the peer cannot either, as it has no credits left, it gets all of its slots: it may
    /// count on them before it receives. Returns true if there are credits to return. The peer has taken every earlier
    /// acknowledgement, so that there is a receive for this one.
    pub fn widen(&mut self) -> bool {
        let stuck = self.is_exhausted();
        if stuck {
            self.window = self.ours.slots;
        }
        stuck
    }

    /// Messages that may be granted at once.
    fn fitting(&self) -> u16 {
        let Some(mut span) = self.span else { return self.ours.slots };
        if self.posts_long() {
            // Receives for acknowledgements are as long then, and used in turn with the others.
            span -= span / 4;
        }
        let mut messages = u64::from(span) * 16 / self.lengths.max(16);
        // The application replies to each message, or to a few at a time.
        if self.burst <= FEW.into() {
            messages = messages.min(SOME.max(messages / ALTERNATING));
        }
        messages.clamp(FEW.min(self.ours.slots).into(), self.ours.slots.into()) as u16
    }

    /// Receives that must be posted: for all messages that the peer may send once those credits are returned that can
    /// be now.
    pub fn receives(&self) -> u32 {
        let granted = self.granted + if self.returns_credits() { self.returnable() } else { 0 };
        u32::from(granted) + self.ours.reserve() + self.confirming.map_or(0, |_| CONFIRMATIONS)
    }

    /// Octets of the longest message that is sent in one Send: a longer one is read by the peer.
    #[inline]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Octets of a small message: the lesser of both ends' limits.
    pub fn small(&self) -> usize {
        self.ours.small.min(self.peer.small) as usize
    }

    /// The receives that are posted from now on are to have room for long messages, 256 KiB.
    #[inline]
    pub fn posts_long(&self) -> bool {
        matches!(self.growth, Growth::Begun | Growth::Done)
    }

    /// There is no memory for such receives: small ones are posted as before.
    pub fn stay_small(&mut self) {
        (self.growth, self.lengths) = (Growth::Never, 0);
    }

    /// All receives that are posted have room for long messages.
    pub fn all_are_long(&mut self) {
        self.growth = Growth::Done;
    }

    /// A large message of `octets` has arrived from the same machine. If most are, and not very long, the receives become
    /// longer.
    fn grow(&mut self, octets: u64) {
        if self.growth == Growth::Never || octets > u64::from(LONG) {
            return;
        }
        self.counted(octets);
        if self.growth == Growth::NotYet && self.lengths / 16 > u64::from(self.ours.small) {
            self.growth = Growth::Begun;
            self.window = self.fitting();
        }
    }

    /// *room* for the next messages. None while short messages arrive: they use more receives in turn, and long ones
    /// would touch the memory of all.
    fn room(&self) -> u8 {
        let long = self.lengths / 16 > u64::from(self.ours.small / 2);
        if self.growth == Growth::Done && long { LONG.ilog2() as u8 } else { 0 }
    }

    /// The peer's receives have another room.
    #[cold]
    fn hear(&mut self, room: u8) {
        self.peer_room = room;
        let room = if room == 0 { 0 } else { LONG.min(1 << room) };
        self.most = self.small().max(u64::from(room).min(self.longest()) as usize);
    }

    /// Octets of the longest message that the peer accepts.
    pub fn longest(&self) -> u64 {
        let small = u64::from(self.peer.small);
        if self.large == 0 { small } else { small.max(self.peer.longest) }
    }

    /// A message may be sent; `large`: one that the peer has to read.
    #[inline]
    pub fn may_send(&self, large: bool) -> bool {
        let confirmed = self.confirming.is_none_or(|it| it.unconfirmed < it.window);
        self.credits > 0 && confirmed && (!large || self.unread < self.large)
    }

    /// The end is sent.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The peer's end was received.
    pub fn peer_has_ended(&self) -> bool {
        self.peer_ended
    }

    /// Large messages of ours that the peer has not read.
    pub fn unread(&self) -> u16 {
        self.unread
    }

    /// Credits are to be returned with the next message: the peer has half of them or fewer left. Before, it has
    /// no use for them, and the receives behind them would be posted one at a time.
    #[inline]
    pub fn returns_credits(&self) -> bool {
        self.owed > 0 && self.granted <= self.window / 2
    }

    /// Credits that can be returned now.
    #[inline]
    fn returnable(&self) -> u16 {
        self.owed.min(self.window.saturating_sub(self.granted))
    }

    /// An acknowledgement is due, even if there is nothing else to send.
    #[inline]
    pub fn must_acknowledge(&self) -> bool {
        self.read > 0
            || (self.returnable() >= self.window.div_ceil(2) && !self.peer_ended)
            || (self.confirming.is_some() && self.must_confirm())
    }

    /// The peer may send nothing until this end returns a credit, and there are some to return.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.granted == 0 && self.owed > 0 && !self.peer_ended
    }

    /// The header of a message that is sent now. The caller has checked [`Session::may_send`], and whether
    /// it [has ended](Session::has_ended).
    #[inline]
    pub fn header(&mut self, kind: Kind) -> Header {
        match kind {
            Kind::Small => (self.credits, self.unanswered) = (self.credits - 1, 0),
            Kind::Large => {
                (self.credits, self.unread) = (self.credits - 1, self.unread + 1);
                self.unanswered = 0;
            }
            Kind::Ack | Kind::Done => {}
            Kind::End => self.ended = true,
        }
        let credits = if self.returns_credits() { self.return_credits() } else { 0 };
        let arrived = if self.confirming.is_some() { self.confirm(kind) } else { 0 };
        Header { kind, room: self.room, credits, read: std::mem::take(&mut self.read), arrived }
    }

    /// Counts a message that is sent, and returns what it confirms.
    #[inline(never)]
    fn confirm(&mut self, kind: Kind) -> u16 {
        let Some(confirming) = &mut self.confirming else { return 0 };
        confirming.unconfirmed += u16::from(!matches!(kind, Kind::Ack | Kind::Done));
        std::mem::take(&mut confirming.arrived)
    }

    /// Credits for the message that is sent now; and what the next return depends on.
    #[cold]
    fn return_credits(&mut self) -> u16 {
        let credits = self.returnable();
        if credits > 0 {
            (self.owed, self.granted) = (self.owed - credits, self.granted + credits);
            // It widens in steps after which no further return is due: the peer has receives for two acknowledgements, not
            // for three.
            self.window = self.fitting().min(self.window.max(2 * self.granted - 1));
            self.room = self.room();
            self.burst = 0;
        }
        credits
    }

    /// The application has received a message of the peer.
    #[inline]
    pub fn taken(&mut self) {
        self.owed += 1;
    }

    /// A large message of the peer is read.
    pub fn was_read(&mut self) {
        self.reading -= 1;
        self.read += 1;
    }

    /// Handles a message of the peer. Returns its kind, and how many large messages of ours the peer has read.
    #[inline]
    pub fn arrive(&mut self, octets: &[u8]) -> Result<(Arrival, u16), Violation> {
        let header = Header::from_octets(octets).ok_or(Violation::Header)?;
        if header.credits > self.peer.slots - self.credits {
            return Err(Violation::Credits);
        }
        if header.read > self.unread {
            return Err(Violation::Read);
        }
        if header.arrived > self.confirming.map_or(0, |it| it.unconfirmed) {
            return Err(Violation::Arrived);
        }
        let arrival = self.judge(&header, &octets[HEADER..])?;
        if let Some(confirming) = &mut self.confirming {
            confirming.unconfirmed -= header.arrived;
            confirming.news += header.arrived;
        }
        self.credits += header.credits;
        self.unread -= header.read;
        if header.room != self.peer_room {
            self.hear(header.room);
        }
        Ok((arrival, header.read))
    }

    #[inline]
    fn judge(&mut self, header: &Header, rest: &[u8]) -> Result<Arrival, Violation> {
        match header.kind {
            Kind::Small | Kind::Large if self.peer_ended => Err(Violation::AfterEnd),
            Kind::Small | Kind::Large if self.granted == 0 => Err(Violation::Overrun),
            Kind::Small if rest.len() > self.limit() => Err(Violation::Length),
            Kind::Small => {
                self.granted -= 1;
                self.counted(rest.len() as u64);
                Ok(Arrival::Small)
            }
            Kind::Large => self.large(rest),
            Kind::Ack | Kind::End | Kind::Done if !rest.is_empty() => Err(Violation::Length),
            Kind::Ack if (header.credits, header.read, header.arrived) == (0, 0, 0) => {
                Err(Violation::Idle)
            }
            Kind::Ack => Ok(Arrival::Counts),
            Kind::Done => self.done(),
            Kind::End if self.peer_ended => Err(Violation::AfterEnd),
            Kind::End => {
                self.peer_ended = true;
                Ok(Arrival::End)
            }
        }
    }

    /// The peer says that both ends have everything.
    fn done(&mut self) -> Result<Arrival, Violation> {
        match &mut self.confirming {
            Some(confirming) if self.ended && self.peer_ended => {
                confirming.done = true;
                Ok(Arrival::Counts)
            }
            Some(_) => Err(Violation::AfterEnd),
            None => Err(Violation::Header),
        }
    }

    /// The peer knows that both ends have everything.
    pub fn is_done(&self) -> bool {
        self.confirming.is_none_or(|it| it.done)
    }

    /// Octets of a message that the peer may send in one Send.
    #[inline]
    fn limit(&self) -> usize {
        match self.growth {
            Growth::Done => {
                u64::from(LONG).min(self.ours.longest).max(self.ours.small.into()) as usize
            }
            _ => self.ours.small as usize,
        }
    }

    /// A message has arrived: what the window depends on.
    #[inline]
    fn counted(&mut self, octets: u64) {
        self.unanswered = self.unanswered.saturating_add(1);
        self.burst = self.burst.max(self.unanswered);
        self.lengths += octets;
        self.lengths -= self.lengths / 16;
    }

    fn large(&mut self, rest: &[u8]) -> Result<Arrival, Violation> {
        let from = RemoteRange::from_octets(rest).ok_or(Violation::Length)?;
        let fits = (1..=self.ours.longest).contains(&from.len);
        if !fits || self.reading == self.large {
            return Err(Violation::Large);
        }
        (self.granted, self.reading) = (self.granted - 1, self.reading + 1);
        if self.span.is_some() {
            self.grow(from.len);
        }
        Ok(Arrival::Large(from))
    }
}

#[cfg(test)]
mod tests;
