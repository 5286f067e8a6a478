//! Packets of one connection that leave in one system call: all of one length, of which the last may be shorter.
//!
//! Each thread has one, empty between its uses. Full: what is in it is sent first.

use std::cell::RefCell;
use std::net::IpAddr;

use kal_os::udp::segments::{MAX_OCTETS, MAX_SEGMENTS};

use super::socket::{Socket, TooLong};

/// See the module's documentation.
pub(crate) struct Batch {
    octets: Box<[u8]>,
    used: usize,
    packets: usize,
    /// The length of the first packet.
    segment: usize,
    /// The last packet is shorter, so none may follow.
    ended: bool,
}

thread_local! {
    static OWN: RefCell<Batch> = RefCell::new(Batch::new());
}

/// Calls `f` with this thread's batch, which is empty, and must be when `f` returns.
pub(crate) fn with<R>(f: impl FnOnce(&mut Batch) -> R) -> R {
    OWN.with_borrow_mut(f)
}

impl Batch {
    fn new() -> Self {
        let octets = vec![0; MAX_OCTETS].into_boxed_slice();
        Self { octets, used: 0, packets: 0, segment: 0, ended: false }
    }

    /// Whether a packet of `len` octets may follow those that are in it.
    pub(crate) fn takes(&self, len: usize) -> bool {
        let fits = self.used + len <= MAX_OCTETS && self.packets < MAX_SEGMENTS;
        self.packets == 0 || (fits && !self.ended && len <= self.segment)
    }

    /// Room for a packet of `len` octets, at most the longest of any path MTU. It has octets of earlier packets.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        &mut self.octets[self.used..self.used + len]
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
        let sent = match self.packets {
            0 => Ok(()),
            _ => socket.send(to, &mut self.octets[..self.used], self.segment, class),
        };
        (self.used, self.packets, self.ended) = (0, 0, false);
        sent
    }
}
