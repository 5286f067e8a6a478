//! What the private data carries for a session that outlives its connection: 29 octets behind the greeting. Plain values;
//! an end that does not know them ignores them. `docs/channel.md` is the specification.

use super::Greeting;

/// Names a session for one further connection.
pub type Token = [u8; 16];

/// What a start-up is for, or the reason of a reject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// A new session that may be resumed.
    New = 1,
    /// The session of the token goes on.
    Resume = 2,
    /// Asks whether there is a way: it is always rejected.
    Try = 3,
    /// Rejected: no session of this process has the token.
    Unknown = 16,
    /// Rejected: both ends of the session have finished, and everything has arrived.
    Finished = 17,
    /// Rejected: another connection of the session lives, or is being made.
    Busy = 18,
    /// Rejected: the session has ended with an error.
    Ended = 19,
}

impl Purpose {
    fn of(octet: u8) -> Option<Self> {
        use Purpose::*;
        [New, Resume, Try, Unknown, Finished, Busy, Ended]
            .into_iter()
            .find(|purpose| *purpose as u8 == octet)
    }
}

/// The octets behind the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// What for.
    pub purpose: Purpose,
    /// Messages of the peer that this end still has: so many fewer it may send at first.
    pub held: u16,
    /// How many of these are large and not taken.
    pub held_large: u16,
    /// How long this end goes on without a connection, in milliseconds.
    pub lasting: u32,
    /// Messages of the peer, and its end, that have arrived whole, modulo 2^32.
    pub arrived: u32,
    /// In a request: the session's. In a reply: of the next request. In the first request: 0.
    pub token: Token,
}

/// The bit of a greeting's octet 15 that announces it.
const RESUMES: u8 = 2;

impl Offer {
    /// Octets of a greeting with it.
    pub const LEN: usize = Greeting::LEN + 29;

    /// Only a purpose.
    pub fn only(purpose: Purpose) -> Self {
        Self { purpose, held: 0, held_large: 0, lasting: 0, arrived: 0, token: [0; 16] }
    }

    /// Encodes a greeting with it.
    pub fn to_octets(self, greeting: Greeting) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        octets[..Greeting::LEN].copy_from_slice(&greeting.to_octets());
        octets[15] |= RESUMES;
        octets[24] = self.purpose as u8;
        octets[25..27].copy_from_slice(&self.held.to_be_bytes());
        octets[27..29].copy_from_slice(&self.held_large.to_be_bytes());
        octets[29..33].copy_from_slice(&self.lasting.to_be_bytes());
        octets[33..37].copy_from_slice(&self.arrived.to_be_bytes());
        octets[37..53].copy_from_slice(&self.token);
        octets
    }

    /// What follows a valid greeting; `None`: the peer does not resume, or uses a purpose of a later version.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; Self::LEN] = octets.first_chunk()?;
        if octets[15] & RESUMES == 0 {
            return None;
        }
        let [.., h0, h1, l0, l1, t0, t1, t2, t3, a0, a1, a2, a3] = *octets.first_chunk::<37>()?;
        Some(Self {
            purpose: Purpose::of(octets[24])?,
            held: u16::from_be_bytes([h0, h1]),
            held_large: u16::from_be_bytes([l0, l1]),
            lasting: u32::from_be_bytes([t0, t1, t2, t3]),
            arrived: u32::from_be_bytes([a0, a1, a2, a3]),
            token: *octets.last_chunk()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: Greeting =
        Greeting { small: 4096, slots: 32, large: 4, longest: 1 << 20, grows: true };

    #[test]
    fn an_offer_survives_the_wire_and_is_ignored_by_those_who_do_not_know_it() {
        let offer = Offer {
            purpose: Purpose::Resume,
            held: 0x0102,
            held_large: 0x0304,
            lasting: 0x0506_0708,
            arrived: 0x090a_0b0c,
            token: *b"sixteen octets..",
        };
        let octets = offer.to_octets(GREETING);
        assert_eq!(Offer::from_octets(&octets), Some(offer));
        assert_eq!(Greeting::from_octets(&octets), Ok(GREETING));
        assert_eq!(Offer::from_octets(&octets[..52]), None);
        assert_eq!(Offer::from_octets(&GREETING.to_octets()), None);
        let mut later = octets;
        later[24] = 99;
        assert_eq!(Offer::from_octets(&later), None);
        // A request of vp_roce has room for 53 octets.
        assert_eq!(Offer::LEN, 53);
    }
}
