//! Congestion: packets that a router marked are reported to their sender, and a report shrinks the window.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use roce_proto::rc::{Post, SendOp};
use roce_proto::wire::bth::Opcode;
use vp_api::SendOp as Operation;
use warpline_patience::until;

use crate::alone::alone;
use crate::end::{End, pattern};
use crate::peer::{OURS, Peer};

/// A peer at 127.0.0.`host`, and the private data that it got.
fn connected(end: &End, host: u8) -> (Peer, Vec<u8>) {
    let to = end.listen("127.0.0.1:0");
    let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, host), to.ip());
    let private = std::thread::scope(|scope| {
        scope.spawn(|| end.accept());
        peer.connect(to, OURS)
    });
    (peer, private)
}

/// The peer writes into memory of the end, which acknowledges: it has handled all that was sent before.
fn write(peer: &mut Peer, private: &[u8]) {
    const LEN: usize = 64;
    let rkey = u32::from_be_bytes(*private.first_chunk().unwrap());
    let address = u64::from_be_bytes(*private[4..].first_chunk().unwrap());
    peer.memory.local = vec![pattern(LEN, 1)];
    let op = SendOp::Write { address, rkey, immediate: None };
    let post = Post { slot: 0, op, len: LEN as u32, solicited: false };
    peer.qp.as_mut().unwrap().post(post).unwrap();
    until("the Write", || {
        peer.step();
        peer.qp.as_mut().unwrap().poll_completion().is_some()
    });
}

// [IBRC-23]
#[test]
fn a_marked_packet_is_reported_to_its_sender() {
    alone("congestion::a_marked_packet_is_reported_to_its_sender", || {
        let end = End::new(4096);
        let (mut peer, private) = connected(&end, 3);
        for marked in [false, true] {
            peer.mark(marked);
            let reports = peer.reports;
            write(&mut peer, &private);
            // It leaves before the acknowledgement.
            assert_eq!(peer.reports - reports, u32::from(marked));
        }
    });
}

/// Numbers of packets with data that arrive before one is repeated: the window.
fn window(end: &End, peer: &mut Peer) -> usize {
    const LEN: usize = 262_144;
    let op = Operation::Send { solicited: false, invalidate: None };
    end.post(1, op, end.sge(0, LEN));
    let mut seen = BTreeSet::new();
    until("a repetition", || {
        let Some(packet) = peer.packet() else { return false };
        matches!(packet.0, Opcode::Transport(..)) && !seen.insert(packet.1)
    });
    seen.len()
}

// [IBRC-22]
#[test]
fn a_report_halves_the_window() {
    alone("congestion::a_report_halves_the_window", || {
        let [whole, half] = [3, 4].map(|host| {
            let end = End::new(262_144);
            let (mut peer, private) = connected(&end, host);
            if host == 4 {
                peer.report();
                write(&mut peer, &private);
            }
            window(&end, &mut peer)
        });
        // The Write does not count: the window grows by packets of this end.
        assert_eq!(half, whole / 2);
    });
}
