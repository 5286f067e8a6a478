//! Damage: of a peer that is this provider every bit counts.

use std::net::Ipv4Addr;

use roce_proto::rc::{Post, SendOp};
use warpline_patience::until;

use crate::alone::alone;
use crate::end::{End, pattern};
use crate::peer::{OURS, Peer};

/// The octet of the BTH with the bits of congestion, which routers change.
const CONGESTION_AT: usize = 4;

#[test]
fn a_packet_with_one_bit_wrong_is_dropped() {
    alone("bits::a_packet_with_one_bit_wrong_is_dropped", || {
        const LEN: usize = 64;
        let end = End::new(4096);
        let to = end.listen("127.0.0.1:0");
        let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), to.ip());
        let private = std::thread::scope(|scope| {
            scope.spawn(|| end.accept());
            peer.connect(to, OURS)
        });
        let rkey = u32::from_be_bytes(*private.first_chunk().unwrap());
        let address = u64::from_be_bytes(*private[4..].first_chunk().unwrap());
        let write = |peer: &mut Peer, seed, at: u64| {
            peer.memory.local = vec![pattern(LEN, seed)];
            let op = SendOp::Write { address: address + at, rkey, immediate: None };
            let post = Post { slot: 0, op, len: LEN as u32, solicited: false };
            peer.qp.as_mut().unwrap().post(post).unwrap();
            until("the Write", || {
                peer.step();
                peer.qp.as_mut().unwrap().poll_completion().is_some()
            });
        };
        write(&mut peer, 1, 0);
        assert_eq!(end.read(0, LEN), pattern(LEN, 1));
        // The same octets once more would be a repetition: they are made the packet that is expected.
        let mut next = peer.sent.clone();
        let psn = u32::from_be_bytes(*next[8..].first_chunk().unwrap());
        next[8..12].copy_from_slice(&(psn & 0xff00_0000 | (psn + 1) & 0xff_ffff).to_be_bytes());
        next.truncate(next.len() - 4);
        // To another place, and asking for nothing.
        next[12..20].copy_from_slice(&(address + 1024).to_be_bytes());
        peer.seal(&mut next);
        for at in (0..next.len()).filter(|at| *at != CONGESTION_AT) {
            for bit in 0..8 {
                let mut damaged = next.clone();
                damaged[at] ^= 1 << bit;
                peer.raw(&damaged);
            }
        }
        // What was sent before it has been handled: the next Write is the expected packet.
        write(&mut peer, 3, 512);
        assert_eq!(end.read(512, LEN), pattern(LEN, 3));
        assert_eq!(end.read(1024, LEN), [0; LEN], "a damaged packet was executed");
        assert_eq!(end.events(), []);
    });
}
