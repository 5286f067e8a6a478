//! Congestion: what a marked packet causes, and the window that notifications shrink (InfiniBand annex A17, congestion
//! management of RoCE v2).
//!
//! A receiver of a marked packet (ECN, RFC 3168: congestion experienced) notifies the sender, at most once in
//! [`INTERVAL_US`]. A notification halves the window, once for all packets that are outstanding; each window of
//! acknowledged packets adds one packet, up to the window of the connection, of which half is there at the beginning.
//!
//! Owner of the state: the queue pair. The responses to a Read are bounded by the window of the requester, so a marked
//! response shrinks the window of the end that receives it, too.

use super::{RcConfig, Transmit};
use crate::psn::Psn;
use crate::wire::bth::{Bth, DEFAULT_PKEY, OWN_MARK, Opcode};
use crate::wire::packet::{Extended, Headers};

/// Microseconds between two notifications.
const INTERVAL_US: u64 = 50;

/// BECN in the BTH's octet of congestion bits.
const BECN: u8 = 0x40;

/// The window of a connection, in packets.
#[derive(Debug)]
pub(super) struct Window {
    now: u16,
    most: u16,
    /// Packets acknowledged since it last changed.
    acknowledged: u32,
    /// It shrank when all before this packet were outstanding.
    shrunk_at: Option<Psn>,
}

impl Window {
    pub(super) fn new(most: u16) -> Self {
        let most = most.max(1);
        Self { now: most.div_ceil(2), most, acknowledged: 0, shrunk_at: None }
    }

    pub(super) const fn packets(&self) -> u32 {
        self.now as u32
    }

    /// A notification arrived while the packets from `unacknowledged` up to `end` are outstanding.
    pub(super) fn shrink(&mut self, unacknowledged: Psn, end: Psn) {
        // [IBRC-22]
        if self.shrunk_at.is_some_and(|at| unacknowledged.ahead_of(at) < 0) {
            return;
        }
        (self.now, self.acknowledged) = ((self.now / 2).max(1), 0);
        self.shrunk_at = Some(end);
    }

    /// So many packets were acknowledged.
    pub(super) fn grow(&mut self, packets: u32) {
        if self.now == self.most {
            return;
        }
        self.acknowledged += packets;
        if self.acknowledged >= self.packets() {
            (self.now, self.acknowledged) = (self.now + 1, 0);
        }
    }
}

/// Notifications that this end owes its peer.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    owed: bool,
    /// When the next may be sent.
    next: u64,
}

impl Notifier {
    /// A marked packet arrived.
    pub(super) fn marked(&mut self, now: u64) {
        // [IBRC-23]
        if now >= self.next {
            (self.owed, self.next) = (true, now.saturating_add(INTERVAL_US));
        }
    }

    pub(super) fn poll_transmit(&mut self, config: &RcConfig) -> Option<Transmit> {
        if !core::mem::take(&mut self.owed) {
            return None;
        }
        let bth = Bth {
            opcode: Opcode::Cnp,
            solicited: false,
            migrated: true,
            pad: 0,
            pkey: DEFAULT_PKEY,
            congestion: BECN | OWN_MARK,
            destination: config.destination,
            ack_request: false,
            psn: Psn::default(),
        };
        let headers = Headers { bth, extended: Extended::default() };
        Some(Transmit { headers, source: super::Source::None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // [IBRC-22]
    #[test]
    fn a_window_halves_once_for_what_is_outstanding_and_grows_by_one() {
        let mut window = Window::new(48);
        window.shrink(Psn::new(0), Psn::new(24));
        window.shrink(Psn::new(5), Psn::new(24));
        assert_eq!(window.packets(), 12);
        window.shrink(Psn::new(24), Psn::new(30));
        assert_eq!(window.packets(), 6);
        window.grow(5);
        assert_eq!(window.packets(), 6);
        window.grow(1);
        assert_eq!(window.packets(), 7);
        (0..10_000).for_each(|_| window.grow(1));
        assert_eq!(window.packets(), 48);
        (0..100).for_each(|at| window.shrink(Psn::new(100 + 30 * at), Psn::new(130 + 30 * at)));
        assert_eq!(window.packets(), 1);
    }

    // [IBRC-23]
    #[test]
    fn marked_packets_are_notified_once_in_an_interval() {
        let mut notifier = Notifier::default();
        let due = |notifier: &mut Notifier, now| {
            notifier.marked(now);
            core::mem::take(&mut notifier.owed)
        };
        assert!(due(&mut notifier, 7));
        assert!(!due(&mut notifier, 7 + INTERVAL_US - 1));
        assert!(due(&mut notifier, 7 + INTERVAL_US));
    }
}
