//! Packets of one connection that leave in one system call: all of one length, of which the last may be shorter.
//!
//! Each thread has one, empty between its uses. Full: what is in it is sent first. Without memory for many packets it has
//! room for one.

use std::cell::RefCell;
use std::net::IpAddr;

use kal_os::udp::segments::{MAX_OCTETS, MAX_SEGMENTS};
use roce_proto::rc::Mtu;
use roce_proto::wire::packet::MAX_HEADERS;
use vp_api::room;

use super::socket::{Socket, TooLong};

/// See the module's documentation.
pub(crate) struct Batch {
    many: Option<Box<[u8]>>,
    one: [u8; LONGEST],
    used: usize,
    packets: usize,
    /// The length of the first packet.
    segment: usize,
    /// The last packet is shorter, so none may follow.
    ended: bool,
}

/// Headers, the largest payload, pad and invariant CRC.
const LONGEST: usize = MAX_HEADERS + Mtu::Octets4096.octets() as usize + 3 + 4;

thread_local! {
    static OWN: RefCell<Batch> = RefCell::new(Batch::new());
}

/// Calls `f` with this thread's batch, which is empty, and must be when `f` returns.
pub(crate) fn with<R>(f: impl FnOnce(&mut Batch) -> R) -> R {
    OWN.with_borrow_mut(f)
}

impl Batch {
    fn new() -> Self {
        let many = room::try_filled(MAX_OCTETS, 0);
        Self { many, one: [0; LONGEST], used: 0, packets: 0, segment: 0, ended: false }
    }

    fn octets(&mut self) -> &mut [u8] {
        self.many.as_deref_mut().unwrap_or(&mut self.one)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Whether a packet of `len` octets may follow those that are in it.
    pub(crate) fn takes(&self, len: usize) -> bool {
        let room = if self.many.is_some() { MAX_OCTETS } else { LONGEST };
        let fits = self.used + len <= room && self.packets < MAX_SEGMENTS;
        self.packets == 0 || (fits && !self.ended && len <= self.segment)
    }

    /// Room for a packet of `len` octets, at most the longest of any path MTU. It has octets of earlier packets.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let at = self.used;
        &mut self.octets()[at..at + len]
    }

    /// The packet in [`Batch::room`] belongs to it.
    pub(crate) fn push(&mut self, len: usize) {
        if self.packets == 0 {
            self.segment = len;
        }
        self.ended = len < self.segment;
        (self.used, self.packets) = (self.used + len, self.packets + 1);
    }

    /// Sends what is in it.
    pub(crate) fn send(&mut self, socket: &Socket, to: IpAddr, class: u8) -> Result<(), TooLong> {
        let (used, segment) = (self.used, self.segment);
        let sent = match self.packets {
            0 => Ok(()),
            _ => socket.send(to, &mut self.octets()[..used], segment, class),
        };
        (self.used, self.packets, self.ended) = (0, 0, false);
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_memory_for_many_there_is_room_for_one() {
        let mut batch = Batch { many: None, ..Batch::new() };
        assert!(batch.takes(LONGEST));
        assert_eq!(batch.room(LONGEST).len(), LONGEST);
        batch.push(LONGEST);
        assert!(!batch.takes(20));
    }

    #[test]
    fn only_the_last_packet_is_shorter() {
        let mut batch = Batch::new();
        for len in [100, 100, 60] {
            assert!(batch.takes(len));
            batch.push(len);
        }
        assert!(!batch.takes(60) && !batch.takes(100));
        let mut longer = Batch::new();
        longer.push(100);
        assert!(!longer.takes(101));
    }
}
