//! One end of a channel and a peer that sends anything: what the peer is granted, and what this end holds
//! for it, stay within what both ends announced.
//!
//! Set-up octets: receives and whether they may grow, large messages and their length, of either end. Then steps: an octet
//! for the operation, and for a message of the peer one for its length, and its octets.

use warpline_channel::session::{Arrival, Session};
use warpline_channel::wire::{Greeting, Kind};

use crate::set_up;

const SMALL: u32 = 64;
/// Octets of a long message, which is sent in one Send if there is room for it.
const LONG: usize = 256 << 10;
/// Steps of a connection whose receives grow: a long message of the peer; all receives are long; there is no memory for it.
const SEND_LONG: u8 = 0xf0;
const ALL_LONG: u8 = 0xf1;
const NO_MEMORY: u8 = 0xf2;

/// Runs one input.
pub fn run(input: &[u8]) {
    let (numbers, mut steps) = set_up::<6>(input);
    let _ = Greeting::from_octets(steps);
    let [ours, peer] = [&numbers[..3], &numbers[3..]].map(greeting);
    for greeting in [ours, peer] {
        assert_eq!(Greeting::from_octets(&greeting.to_octets()), Ok(greeting));
    }
    let mut session = Session::new(ours, peer);
    if numbers[0] & GROWS != 0 {
        // The peer is on the same machine.
        session.narrow(SMALL * 8);
    }
    let mut long = false;
    let mut account = Account::default();
    let large = ours.large.min(peer.large);
    while let [step, rest @ ..] = steps {
        steps = rest;
        match *step {
            SEND_LONG => {
                let message = vec![0; LONG];
                let Ok((arrival, read)) = session.arrive(&message) else { break };
                assert!(long, "it has no room for it");
                account.arrived(arrival, read, ours);
                continue;
            }
            ALL_LONG if session.posts_long() => {
                session.all_are_long();
                long = true;
            }
            NO_MEMORY if session.posts_long() && !long => session.stay_small(),
            _ => {}
        }
        match step % 6 {
            0 => {
                let [len, rest @ ..] = steps else { break };
                let (message, rest) = rest.split_at(rest.len().min(usize::from(*len)));
                steps = rest;
                // A violation ends the connection.
                let Ok((arrival, read)) = session.arrive(message) else { break };
                account.arrived(arrival, read, ours);
            }
            1 if session.may_send(false) => {
                let room = session.header(Kind::Small).room;
                assert!(long || room == 0);
            }
            2 if session.may_send(true) => {
                session.header(Kind::Large);
                account.unread += 1;
            }
            3 if account.waiting > 0 => {
                session.taken();
                account.waiting -= 1;
            }
            4 if account.reading > 0 => {
                session.was_read();
                account.reading -= 1;
            }
            5 if session.must_acknowledge() || session.returns_credits() => {
                session.header(Kind::Ack);
                assert!(!session.must_acknowledge() && !session.returns_credits());
            }
            _ => {}
        }
        // Between an acknowledgement and the next, no more than all receives are promised.
        assert!(account.waiting <= u32::from(ours.slots), "{} wait", account.waiting);
        assert!(account.reading <= u32::from(large), "{} are read", account.reading);
        assert!(account.unread <= u32::from(large), "{} are not read", account.unread);
        assert_eq!(u32::from(session.unread()), account.unread);
        assert!(session.most() <= LONG && session.most() as u64 <= session.longest());
    }
}

/// Bit of the first number.
const GROWS: u8 = 0x80;

/// Numbers that make sense.
fn greeting(octets: &[u8]) -> Greeting {
    let slots = 1 + u16::from(octets[0] & 15);
    let large = u16::from(octets[1] & 7).min(slots);
    let grows = octets[0] & GROWS != 0;
    // Memory for large messages is enough for long receives, or not.
    let longest = (1 + u64::from(octets[2])) << if grows { 16 } else { 0 };
    Greeting { small: SMALL, slots, large, longest, grows }
}

/// What is under way, counted apart from the session.
#[derive(Default)]
struct Account {
    unread: u32,
    /// Messages of the peer that the application has not taken.
    waiting: u32,
    /// Large ones that are not read.
    reading: u32,
}

impl Account {
    fn arrived(&mut self, arrival: Arrival, read: u16, ours: Greeting) {
        assert!(u32::from(read) <= self.unread);
        self.unread -= u32::from(read);
        match arrival {
            Arrival::Small => self.waiting += 1,
            Arrival::Large(from) => {
                assert!((1..=ours.longest).contains(&from.len));
                (self.waiting, self.reading) = (self.waiting + 1, self.reading + 1);
            }
            Arrival::Counts | Arrival::End => {}
        }
    }
}
