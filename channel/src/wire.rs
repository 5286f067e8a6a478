//! The wire format, version 1: the greeting in the private data, and the header of each message. Plain
//! values without state; the [`Session`](crate::session::Session) applies the rules about them.
//! `docs/channel.md` is the specification.

mod resume;

use itapi::RemoteRange;

pub use resume::{Offer, Purpose, Token};

/// Version of this format.
pub const VERSION: u16 = 1;

/// First octets of a greeting.
const MAGIC: [u8; 4] = *b"WLch";

/// Octets of a header.
pub const HEADER: usize = 8;

/// Most receives that one end may announce for messages.
pub const MAX_SLOTS: u16 = 4096;

/// Most large messages that may be outstanding in one direction.
pub const MAX_LARGE: u16 = 64;

/// Largest *room* of a header: receives of 2^30 octets.
const MAX_ROOM: u8 = 30;

/// Private data of the connection: each end's limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Octets of a small message, which is sent in one Send.
    pub small: u32,
    /// Messages that may be in flight to this end or not yet received.
    pub slots: u16,
    /// Of these, how many may be large.
    pub large: u16,
    /// Octets of a large message.
    pub longest: u64,
    /// It takes *room* in a [`Header`].
    pub grows: bool,
}

/// Why private data is not a greeting of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It does not begin with the magic octets.
    Stranger,
    /// The peer uses another version.
    Version(u16),
    /// A number in it is invalid.
    Number(Invalid),
}

/// A number of a [`Greeting`], or of the options that it is made of, that is not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The values that are allowed.
    pub allowed: &'static str,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { field, value, allowed } = self;
        write!(f, "{field} is {value}; allowed: {allowed}")
    }
}

impl Greeting {
    /// Octets of a greeting.
    pub const LEN: usize = 24;

    /// Encodes it for the private data.
    pub fn to_octets(self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        octets[..4].copy_from_slice(&MAGIC);
        octets[4..6].copy_from_slice(&VERSION.to_be_bytes());
        octets[6..8].copy_from_slice(&self.slots.to_be_bytes());
        octets[8..12].copy_from_slice(&self.small.to_be_bytes());
        octets[12..14].copy_from_slice(&self.large.to_be_bytes());
        octets[15] = self.grows.into();
        octets[16..].copy_from_slice(&self.longest.to_be_bytes());
        octets
    }

    /// Decodes it from the private data; octets after it are for later versions.
    pub fn from_octets(octets: &[u8]) -> Result<Self, Unfit> {
        let version = match octets {
            [m0, m1, m2, m3, v0, v1, ..] if [*m0, *m1, *m2, *m3] == MAGIC => [*v0, *v1],
            _ => return Err(Unfit::Stranger),
        };
        let version = u16::from_be_bytes(version);
        if version != VERSION {
            return Err(Unfit::Version(version));
        }
        let octets: &[u8; Self::LEN] = octets.first_chunk().ok_or_else(|| {
            let value = octets.len() as u64;
            Unfit::Number(Invalid { field: "its length", value, allowed: "24 octets and more" })
        })?;
        let greeting = Self {
            slots: u16::from_be_bytes([octets[6], octets[7]]),
            small: u32::from_be_bytes([octets[8], octets[9], octets[10], octets[11]]),
            large: u16::from_be_bytes([octets[12], octets[13]]),
            longest: octets[16..].iter().fold(0, |number, octet| number << 8 | u64::from(*octet)),
            grows: octets[15] & 1 != 0,
        };
        greeting.check().map_or(Ok(greeting), |what| Err(Unfit::Number(what)))
    }

    /// Its invalid field, if any.
    pub fn check(&self) -> Option<Invalid> {
        let invalid = |field, value, allowed| Some(Invalid { field, value, allowed });
        if self.slots == 0 || self.slots > MAX_SLOTS {
            return invalid("slots", self.slots.into(), "1 to 4096");
        }
        if (self.small as usize) < RemoteRange::ENCODED_LEN || self.small > 1 << 30 {
            return invalid("small", self.small.into(), "20 to 1073741824 octets");
        }
        if self.large > MAX_LARGE || self.large > self.slots {
            return invalid("large", self.large.into(), "0 to 64, and no more than slots");
        }
        if self.longest > u64::from(u32::MAX) || (self.large > 0 && self.longest == 0) {
            return invalid("longest", self.longest, "1 to 4294967295 octets");
        }
        None
    }

    /// Receives for acknowledgements and the end. While an end does not poll, its
    /// peer has no more to send than two acknowledgements of messages, one of each large one, and the end.
    pub fn reserve(&self) -> u32 {
        u32::from(self.large) + 3
    }
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The application's octets follow.
    Small = 0,
    /// The address of the application's octets follows: read them.
    Large = 1,
    /// Only the counts of the header.
    Ack = 2,
    /// No message follows.
    End = 3,
    /// Of the end that accepted a session that may be resumed: both ends have everything, and it knows.
    Done = 4,
}

/// The header before the octets of each message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// Binary logarithm of the octets of a message that the receives of this end have room for; 0: *small*.
    pub room: u8,
    /// Further messages that the peer may send.
    pub credits: u16,
    /// Large messages of the peer that were read.
    pub read: u16,
    /// Messages of the peer, and its end, that have arrived whole; only between ends that resume.
    pub arrived: u16,
}

impl Header {
    /// Encodes it before a message.
    pub fn to_octets(self) -> [u8; HEADER] {
        let ([c0, c1], [r0, r1]) = (self.credits.to_be_bytes(), self.read.to_be_bytes());
        let [a0, a1] = self.arrived.to_be_bytes();
        [self.kind as u8, self.room, c0, c1, r0, r1, a0, a1]
    }

    /// Decodes that of a message; `None`: it is too short, or a field has no meaning.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let [kind, room @ 0..=MAX_ROOM, c0, c1, r0, r1, a0, a1] = octets.first_chunk()? else {
            return None;
        };
        let kind = match kind {
            0 => Kind::Small,
            1 => Kind::Large,
            2 => Kind::Ack,
            3 => Kind::End,
            4 => Kind::Done,
            _ => return None,
        };
        let (credits, read) = (u16::from_be_bytes([*c0, *c1]), u16::from_be_bytes([*r0, *r1]));
        let arrived = u16::from_be_bytes([*a0, *a1]);
        Some(Self { kind, room: *room, credits, read, arrived })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: Greeting =
        Greeting { small: 4096, slots: 32, large: 4, longest: 1 << 20, grows: true };

    #[test]
    fn greetings_and_headers_survive_the_wire() {
        let mut octets = GREETING.to_octets().to_vec();
        octets.push(7);
        assert_eq!(Greeting::from_octets(&octets), Ok(GREETING));
        let fixed = Greeting { grows: false, ..GREETING };
        assert_eq!(Greeting::from_octets(&fixed.to_octets()), Ok(fixed));
        for kind in [Kind::Small, Kind::Large, Kind::Ack, Kind::End, Kind::Done] {
            let header = Header { kind, room: 18, credits: 0x0102, read: 0x0304, arrived: 5 };
            assert_eq!(Header::from_octets(&header.to_octets()), Some(header));
        }
        assert_eq!(Header::from_octets(&[5, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Header::from_octets(&[0, 31, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Header::from_octets(&[0; 7]), None);
    }

    #[test]
    fn a_malformed_greeting_is_refused_with_a_reason() {
        let octets = GREETING.to_octets();
        assert_eq!(Greeting::from_octets(b""), Err(Unfit::Stranger));
        assert_eq!(Greeting::from_octets(b"picture server 1.0"), Err(Unfit::Stranger));
        let mut other = octets;
        other[5] = 9;
        assert_eq!(Greeting::from_octets(&other[..6]), Err(Unfit::Version(9)));
        assert!(matches!(Greeting::from_octets(&octets[..23]), Err(Unfit::Number(_))));
        let wrong = [
            Greeting { slots: 0, ..GREETING },
            Greeting { slots: 4097, ..GREETING },
            Greeting { small: 19, ..GREETING },
            Greeting { small: u32::MAX, ..GREETING },
            Greeting { large: 33, ..GREETING },
            Greeting { longest: 0, ..GREETING },
            Greeting { longest: 1 << 32, ..GREETING },
        ];
        for wrong in wrong {
            let unfit = Greeting::from_octets(&wrong.to_octets());
            assert!(matches!(unfit, Err(Unfit::Number(_))), "{wrong:?}");
        }
    }
}
