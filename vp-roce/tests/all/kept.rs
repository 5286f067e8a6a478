//! Acknowledgements that wait for a reply, and posts that wait for others: they leave together, or soon by themselves.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use roce_proto::rc::{Post, SendOp};
use roce_proto::wire::bth::{Opcode, Operation};
use roce_proto::wire::packet::Packet;
use vp_api::WorkCompletion;
use warpline_patience::until;

use crate::alone::alone;
use crate::end::{End, pattern};
use crate::peer::{OURS, Peer};

/// An end that is connected to a peer, whose datagrams arrive as they were sent.
fn connected() -> (End, Peer) {
    let end = End::new(64);
    end.recv(1, end.sge(0, 64));
    let to = end.listen("127.0.0.1:0");
    let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), to.ip());
    thread::scope(|scope| {
        scope.spawn(|| end.accept());
        peer.connect(to, OURS);
    });
    peer.join();
    peer.memory.local = vec![pattern(8, 1)];
    (end, peer)
}

/// Replies to each message, but not to one after `stops`.
fn reply(end: &End, stops: &AtomicBool) {
    loop {
        while end.done().wr_id != 1 {}
        if stops.load(Ordering::Acquire) {
            return;
        }
        end.recv(1, end.sge(0, 64));
        end.send(2, end.sge(0, 8));
    }
}

/// Sends a message.
fn message(peer: &mut Peer) {
    let op = SendOp::Send { immediate: None, invalidate: None };
    peer.qp.as_mut().unwrap().post(Post { slot: 0, op, len: 8, solicited: false }).unwrap();
    peer.emit();
}

/// Handles the datagrams of one call: whether there is an acknowledgement among them, and a message.
fn call(peer: &mut Peer) -> (bool, bool) {
    let (mut acknowledged, mut replied) = (false, false);
    for datagram in peer.together().0 {
        let packet = Packet::parse(&datagram).unwrap();
        match packet.headers.bth.opcode {
            Opcode::Transport(_, Operation::Acknowledge) => acknowledged = true,
            Opcode::Transport(_, Operation::Send(..)) => replied = true,
            _ => {}
        }
        let now = peer.now();
        peer.qp.as_mut().unwrap().handle_packet(now, &packet, &mut peer.memory);
    }
    peer.emit();
    (acknowledged, replied)
}

#[test]
fn an_acknowledgement_leaves_with_the_reply_or_soon_without_it() {
    alone("kept::an_acknowledgement_leaves_with_the_reply_or_soon_without_it", || {
        let (end, mut peer) = connected();
        let stops = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| reply(&end, &stops));
            until("one call with both", || {
                message(&mut peer);
                let first = call(&mut peer);
                let mut all = first;
                while all != (true, true) {
                    let (acknowledged, replied) = call(&mut peer);
                    all = (all.0 || acknowledged, all.1 || replied);
                }
                while peer.qp.as_mut().unwrap().poll_completion().is_some() {}
                first == (true, true)
            });
            stops.store(true, Ordering::Release);
            message(&mut peer);
            assert_eq!(call(&mut peer), (true, false));
        });
    });
}

#[test]
fn a_post_leaves_soon_although_nobody_polls() {
    alone("kept::a_post_leaves_soon_although_nobody_polls", || {
        let (end, peer) = connected();
        end.send(1, end.sge(0, 8));
        // The library's own thread leaves the sockets to this one.
        (0..5_000).for_each(|_| assert_eq!(end.cq.poll(&mut [WorkCompletion::BLANK]), Ok(0)));
        end.send(2, end.sge(0, 8));
        let psn = || {
            let all = peer.together().0;
            Packet::parse(&all[0]).unwrap().headers.bth.psn.get()
        };
        // The first is not repeated before.
        assert_ne!(psn(), psn());
    });
}
