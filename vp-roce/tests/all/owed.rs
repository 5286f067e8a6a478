//! Acknowledgements of what the consumer has seen leave, although it ends the queue pair or the process at once.
//!
//! One thread polls the CQ, another receives packets: the completion can be seen while the latter goes on.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use roce_proto::rc::{Post, SendOp};
use roce_proto::wire::bth::{Opcode, Operation};
use vp_api::{QpChange, WorkCompletion};
use warpline_patience::until;

use crate::alone::{alone, other, part};
use crate::end::{End, pattern};
use crate::peer::{Peer, STRANGER};

/// A packet that is whole, for a number that no queue pair has.
fn stray(peer: &Peer) -> Vec<u8> {
    // Send Only of a reliable connection, to queue pair 2.
    let mut datagram = vec![4, 0x40, 0xff, 0xff, 0, 0, 0, 2, 0, 0, 0, 0];
    peer.seal(&mut datagram);
    datagram
}

/// Polls another CQ until the process ends, and so receives for all.
fn receive_elsewhere() {
    let other = End::new(64);
    thread::spawn(move || while other.cq.poll(&mut [WorkCompletion::BLANK]).is_ok() {});
}

/// Sends one message, and packets that keep the receiving thread busy.
fn message(peer: &mut Peer) {
    peer.memory.local = vec![pattern(64, 1)];
    let op = SendOp::Send { immediate: None, invalidate: None };
    let post = Post { slot: 0, op, len: 64, solicited: false };
    peer.qp.as_mut().unwrap().post(post).unwrap();
    peer.emit();
    let stray = stray(peer);
    (0..32).for_each(|_| peer.raw(&stray));
}

fn acknowledged(peer: &Peer) {
    let mut seen = None;
    until("the acknowledgement", || {
        seen = peer.packet();
        seen.is_some()
    });
    let operation = seen.and_then(|(opcode, _)| match opcode {
        Opcode::Transport(_, operation) => Some(operation),
        Opcode::Cnp => None,
    });
    assert_eq!(operation, Some(Operation::Acknowledge));
}

#[test]
fn a_message_is_acknowledged_although_its_queue_pair_ends() {
    alone("owed::a_message_is_acknowledged_although_its_queue_pair_ends", || {
        receive_elsewhere();
        for host in 3..43 {
            let end = End::new(64);
            end.recv(1, end.sge(0, 64));
            let to = end.listen("127.0.0.1:0");
            let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, host), to.ip());
            thread::scope(|scope| {
                scope.spawn(|| end.accept());
                peer.connect(to, STRANGER)
            });
            message(&mut peer);
            end.done();
            assert_eq!(end.qp.modify(QpChange::Error), Ok(()));
            acknowledged(&peer);
        }
    });
}

/// The other process of the test below.
#[test]
fn exits() {
    if part().as_deref() != Some("exits") {
        return;
    }
    receive_elsewhere();
    let end = End::new(64);
    end.recv(1, end.sge(0, 64));
    println!("listening {}", end.listen("127.0.0.2:0"));
    end.accept();
    end.done();
    std::process::exit(0);
}

#[test]
fn a_message_is_acknowledged_although_its_process_ends() {
    alone("owed::a_message_is_acknowledged_although_its_process_ends", || {
        for host in 3..43 {
            let mut there = other("owed::exits", "exits");
            let to: SocketAddr = there.says("listening").parse().unwrap();
            let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, host), to.ip());
            peer.connect(to, STRANGER);
            message(&mut peer);
            acknowledged(&peer);
            there.ends();
        }
    });
}
