//! Flow control between both ends: a state machine without IO.
//!
//! Owner: a connection, under its lock. It counts the messages that either end may send, the large ones
//! that are not read yet, and the ends of both directions. Every number of the peer is checked against
//! what was agreed, so a peer can neither make this end send without a receive, nor use more memory than
//! agreed. When the peer dies it is dropped; a new connection has a new one.

use itapi::RemoteRange;

use crate::wire::{Greeting, HEADER, Header, Kind};

/// Messages that a peer is granted however long they are, if this end has slots for so many.
const FEW: u16 = 4;

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

/// The state of one end of a connection.
#[derive(Debug)]
pub struct Session {
    ours: Greeting,
    peer: Greeting,
    /// Large messages that may be outstanding in either direction: the smaller limit of both ends.
    large: u16,
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
    /// Sixteen times the average length of the small messages that arrived last.
    lengths: u64,
    /// Messages of the peer that were received and not yet acknowledged.
    owed: u16,
    /// Large messages of the peer that are not read.
    reading: u16,
    /// Large messages that were read and not yet acknowledged.
    read: u16,
    peer_ended: bool,
}

impl Session {
    /// Between ends with these greetings.
    pub fn new(ours: Greeting, peer: Greeting) -> Self {
        Self {
            ours,
            peer,
            large: ours.large.min(peer.large),
            credits: peer.slots,
            unread: 0,
            ended: false,
            granted: ours.slots,
            window: ours.slots,
            span: None,
            lengths: 0,
            owed: 0,
            reading: 0,
            read: 0,
            peer_ended: false,
        }
    }

    /// From now on no more messages are granted at once than take `span` octets, if they are as long as the last ones; but at
    /// least a few.
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
        let Some(span) = self.span else { return self.ours.slots };
        let messages = u64::from(span) * 16 / self.lengths.max(16);
        messages.clamp(FEW.min(self.ours.slots).into(), self.ours.slots.into()) as u16
    }

    /// Receives that must be posted: for all messages that the peer may send once those credits are returned that can
    /// be now.
    pub fn receives(&self) -> u32 {
        let granted = self.granted + if self.returns_credits() { self.returnable() } else { 0 };
        u32::from(granted) + self.ours.reserve()
    }

    /// Octets of the peer's small messages.
    pub fn small(&self) -> usize {
        self.peer.small as usize
    }

    /// Octets of the longest message that the peer accepts.
    pub fn longest(&self) -> u64 {
        let small = u64::from(self.peer.small);
        if self.large == 0 { small } else { small.max(self.peer.longest) }
    }

    /// A message may be sent; `large`: one that the peer has to read.
    #[inline]
    pub fn may_send(&self, large: bool) -> bool {
        self.credits > 0 && (!large || self.unread < self.large)
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
        self.read > 0 || (self.returnable() >= self.window.div_ceil(2) && !self.peer_ended)
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
            Kind::Small => self.credits -= 1,
            Kind::Large => (self.credits, self.unread) = (self.credits - 1, self.unread + 1),
            Kind::Ack => {}
            Kind::End => self.ended = true,
        }
        let credits = if self.returns_credits() { self.returnable() } else { 0 };
        if credits > 0 {
            (self.owed, self.granted) = (self.owed - credits, self.granted + credits);
            // From the next return on.
            self.window = self.fitting();
        }
        Header { kind, credits, read: std::mem::take(&mut self.read) }
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
        let arrival = self.judge(&header, &octets[HEADER..])?;
        self.credits += header.credits;
        self.unread -= header.read;
        Ok((arrival, header.read))
    }

    #[inline]
    fn judge(&mut self, header: &Header, rest: &[u8]) -> Result<Arrival, Violation> {
        match header.kind {
            Kind::Small | Kind::Large if self.peer_ended => Err(Violation::AfterEnd),
            Kind::Small | Kind::Large if self.granted == 0 => Err(Violation::Overrun),
            Kind::Small if rest.len() > self.ours.small as usize => Err(Violation::Length),
            Kind::Small => {
                self.granted -= 1;
                self.lengths += rest.len() as u64;
                self.lengths -= self.lengths / 16;
                Ok(Arrival::Small)
            }
            Kind::Large => self.large(rest),
            Kind::Ack | Kind::End if !rest.is_empty() => Err(Violation::Length),
            Kind::Ack if (header.credits, header.read) == (0, 0) => Err(Violation::Idle),
            Kind::Ack => Ok(Arrival::Counts),
            Kind::End if self.peer_ended => Err(Violation::AfterEnd),
            Kind::End => {
                self.peer_ended = true;
                Ok(Arrival::End)
            }
        }
    }

    fn large(&mut self, rest: &[u8]) -> Result<Arrival, Violation> {
        let from = RemoteRange::from_octets(rest).ok_or(Violation::Length)?;
        let fits = (1..=self.ours.longest).contains(&from.len);
        if !fits || self.reading == self.large {
            return Err(Violation::Large);
        }
        (self.granted, self.reading) = (self.granted - 1, self.reading + 1);
        Ok(Arrival::Large(from))
    }
}

#[cfg(test)]
mod tests {
    use itapi::RmrContext;

    use super::*;

    const GREETING: Greeting = Greeting { small: 64, slots: 4, large: 1, longest: 1000 };

    fn session() -> Session {
        Session::new(GREETING, GREETING)
    }

    fn message(kind: Kind, credits: u16, read: u16, rest: &[u8]) -> Vec<u8> {
        [&Header { kind, credits, read }.to_octets()[..], rest].concat()
    }

    fn large(len: u64) -> Vec<u8> {
        let range = RemoteRange { context: RmrContext(7), addr: 8, len };
        message(Kind::Large, 0, 0, &range.to_octets())
    }

    #[test]
    fn credits_are_used_and_returned() {
        let mut ours = session();
        for _ in 0..4 {
            assert!(ours.may_send(false));
            ours.header(Kind::Small);
        }
        assert!(!ours.may_send(false));
        assert_eq!(ours.arrive(&message(Kind::Ack, 5, 0, b"")), Err(Violation::Credits));
        assert_eq!(ours.arrive(&message(Kind::Ack, 4, 0, b"")), Ok((Arrival::Counts, 0)));
        assert!(ours.may_send(false));
    }

    #[test]
    fn a_peer_sends_no_more_than_it_was_granted() {
        let mut ours = session();
        for _ in 0..4 {
            assert_eq!(ours.arrive(&message(Kind::Small, 0, 0, b"x")), Ok((Arrival::Small, 0)));
        }
        assert_eq!(ours.arrive(&message(Kind::Small, 0, 0, b"x")), Err(Violation::Overrun));
        ours.taken();
        assert!(ours.returns_credits() && !ours.must_acknowledge());
        ours.taken();
        assert!(ours.must_acknowledge());
        assert_eq!(ours.header(Kind::Ack).credits, 2);
        assert!(ours.arrive(&message(Kind::Small, 0, 0, b"x")).is_ok());
    }

    #[test]
    fn credits_are_returned_once_the_peer_has_used_half() {
        let mut ours = session();
        let arrive = |ours: &mut Session| {
            assert!(ours.arrive(&message(Kind::Small, 0, 0, b"x")).is_ok());
            ours.taken();
        };
        arrive(&mut ours);
        assert!(!ours.returns_credits());
        assert_eq!(ours.header(Kind::Small).credits, 0);
        arrive(&mut ours);
        assert!(ours.returns_credits());
        assert_eq!(ours.header(Kind::Small).credits, 2);
        // The application keeps two messages: what the peer has left is returned at once.
        for _ in 0..2 {
            assert!(ours.arrive(&message(Kind::Small, 0, 0, b"x")).is_ok());
        }
        arrive(&mut ours);
        assert_eq!(ours.header(Kind::Small).credits, 1);
    }

    /// Takes messages of `len` octets until the window has followed; returns the most that were granted at once after that.
    fn granted(ours: &mut Session, len: usize) -> u16 {
        let message = message(Kind::Small, 0, 0, &vec![0; len]);
        let mut most = 0;
        for n in 0..400 {
            assert!(ours.arrive(&message).is_ok(), "no credit after {n} messages");
            ours.taken();
            if ours.must_acknowledge() {
                assert!(ours.receives() >= u32::from(ours.granted) + ours.ours.reserve());
                assert_ne!(ours.header(Kind::Ack).credits, 0);
            }
            if n > 300 {
                most = most.max(ours.granted);
            }
        }
        most
    }

    #[test]
    fn a_window_narrows_while_messages_are_long() {
        let greeting = Greeting { small: 1000, slots: 64, large: 1, longest: 1000 };
        let mut ours = Session::new(greeting, greeting);
        assert_eq!(granted(&mut ours, 1000), 64);
        ours.narrow(16_000);
        // The average is rounded down.
        assert_eq!(granted(&mut ours, 1000), 17);
        // This end waits until it may send, and the peer has no credit left: it gets all that it was promised.
        let message = message(Kind::Small, 0, 0, &[0; 1000]);
        let mut kept = 0;
        while ours.granted > 0 {
            assert!(!ours.widen());
            assert!(ours.arrive(&message).is_ok());
            kept += 1;
        }
        assert!(ours.widen());
        assert_eq!(ours.header(Kind::Ack).credits, 64 - kept);
        (0..kept).for_each(|_| ours.taken());
        assert_eq!(granted(&mut ours, 10), 64);
        ours.narrow(2_000);
        assert_eq!(granted(&mut ours, 1000), FEW);
    }

    #[test]
    fn large_messages_are_bounded_and_acknowledged_when_read() {
        let mut ours = session();
        assert_eq!(ours.arrive(&large(0)), Err(Violation::Large));
        assert_eq!(ours.arrive(&large(1001)), Err(Violation::Large));
        assert!(matches!(ours.arrive(&large(1000)), Ok((Arrival::Large(_), 0))));
        assert_eq!(ours.arrive(&large(1)), Err(Violation::Large));
        ours.was_read();
        assert!(ours.must_acknowledge());
        assert_eq!(ours.header(Kind::Ack).read, 1);
        assert!(ours.arrive(&large(1)).is_ok());

        assert!(ours.may_send(true));
        ours.header(Kind::Large);
        assert!(!ours.may_send(true) && ours.may_send(false));
        assert_eq!(ours.arrive(&message(Kind::Ack, 0, 2, b"")), Err(Violation::Read));
        assert_eq!(ours.arrive(&message(Kind::Ack, 1, 1, b"")), Ok((Arrival::Counts, 1)));
        assert_eq!(ours.unread(), 0);
    }

    #[test]
    fn nothing_follows_an_end() {
        let mut ours = session();
        assert_eq!(ours.arrive(&message(Kind::End, 0, 0, b"")), Ok((Arrival::End, 0)));
        assert!(ours.peer_has_ended());
        assert_eq!(ours.arrive(&message(Kind::Small, 0, 0, b"x")), Err(Violation::AfterEnd));
        assert_eq!(ours.arrive(&message(Kind::End, 0, 0, b"")), Err(Violation::AfterEnd));
        // This end may still be sending.
        ours.header(Kind::Small);
        assert!(ours.arrive(&message(Kind::Ack, 1, 0, b"")).is_ok());
    }

    #[test]
    fn malformed_messages_are_named() {
        let mut ours = session();
        assert_eq!(ours.arrive(b""), Err(Violation::Header));
        assert_eq!(ours.arrive(&[9; 8]), Err(Violation::Header));
        assert_eq!(ours.arrive(&message(Kind::Ack, 0, 0, b"")), Err(Violation::Idle));
        assert_eq!(ours.arrive(&message(Kind::Ack, 0, 0, b"x")), Err(Violation::Length));
        assert_eq!(ours.arrive(&message(Kind::Large, 0, 0, b"x")), Err(Violation::Length));
        assert_eq!(ours.arrive(&message(Kind::Small, 0, 0, &[0; 65])), Err(Violation::Length));
    }
}
