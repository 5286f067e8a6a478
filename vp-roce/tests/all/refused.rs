//! Requests for memory that this end refuses: both ends say which right is missing, and what grants it.

use std::net::Ipv4Addr;

use roce_proto::rc::{AtomicOp as Core, Post, SendOp as Request};
use vp_api::*;
use warpline_patience::until;

use crate::alone::alone;
use crate::end::{End, open};
use crate::peer::{OURS, Peer};

type Op = fn(Remote) -> SendOp;

/// How the connections of two ends end after `op`, for which the far end grants `access`: here, and there.
fn ends(access: Access, op: Op) -> [String; 2] {
    let [near, far] = [End::on(open(), 4096), End::on(open(), 4096)];
    let there = far.listen("127.0.0.1:0");
    std::thread::scope(|scope| {
        scope.spawn(|| far.accept());
        near.connect(there);
    });
    let to = far.remote(0).to;
    near.post(1, op(Remote { stag: far.grant(access), to }), near.sge(0, 64));
    assert_eq!(near.completion().status, WcStatus::RemoteTermination);
    [&near, &far].map(|end| {
        until("the event of the end", || !end.events().is_empty());
        match end.events()[..] {
            [AsyncEvent::TerminateReceived(why) | AsyncEvent::TerminateSent(why)] => {
                why.to_string()
            }
            ref other => panic!("{other:?}"),
        }
    })
}

fn read(remote: Remote) -> SendOp {
    SendOp::Read { remote, invalidate_sink: false }
}

fn write(remote: Remote) -> SendOp {
    SendOp::Write { remote }
}

fn add(remote: Remote) -> SendOp {
    SendOp::Atomic { remote, op: AtomicOp::FetchAdd { add: 1, mask: 0 } }
}

#[test]
fn a_missing_right_is_named_at_both_ends() {
    alone("refused::a_missing_right_is_named_at_both_ends", || {
        let all = Access::LOCAL | Access::REMOTE;
        // A peer may send a Write as several.
        let [read_of, write_of] = ["RDMA Read of 64 octets", "RDMA Write of 64 octets"];
        let (part, add_of) =
            ("RDMA Write (a segment of 64 octets)", "atomic operation of 8 octets");
        let cases: [(Op, _, _, _, _); 3] = [
            (read, Access::REMOTE_READ, "REMOTE_READ", read_of, read_of),
            (write, Access::REMOTE_WRITE, "REMOTE_WRITE", write_of, part),
            (add, Access::REMOTE_ATOMIC, "REMOTE_ATOMIC", add_of, add_of),
        ];
        for (op, right, name, what, asked) in cases {
            let [here, there] = ends(all - right, op);
            assert!(there.contains(&format!("the peer's {asked} at STag")), "{there}");
            let missing = format!(
                "needs the right {name}, which the registration or link of that memory does not grant"
            );
            assert!(there.contains(&missing), "{there}");
            assert!(here.contains(&format!("this end's {what} at STag")), "{here}");
            assert!(here.contains(&format!("needs the right {name}, which")), "{here}");
        }
    });
}

#[test]
fn memory_beyond_the_region_is_named() {
    alone("refused::memory_beyond_the_region_is_named", || {
        let beyond = |remote: Remote| read(Remote { to: remote.to + 4090, ..remote });
        let [here, there] = ends(Access::LOCAL | Access::REMOTE, beyond);
        assert!(there.contains("is beyond the region (registered 4,096 octets"), "{there}");
        assert!(here.contains("names memory that is not registered there"), "{here}");
    });
}

// [IBRC-16]
#[test]
fn an_atomic_of_a_foreign_peer_that_is_not_aligned_is_called_so() {
    alone("refused::an_atomic_of_a_foreign_peer_that_is_not_aligned_is_called_so", || {
        let end = End::on(open(), 4096);
        let to = end.listen("127.0.0.1:0");
        let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), to.ip());
        let private = std::thread::scope(|scope| {
            scope.spawn(|| end.accept());
            peer.connect(to, OURS)
        });
        let rkey = u32::from_be_bytes(*private.first_chunk().unwrap());
        let address = u64::from_be_bytes(*private[4..].first_chunk().unwrap());
        // Our own core refuses another address.
        let op = Request::Atomic { address, rkey, op: Core::FetchAdd { add: 1 } };
        let now = peer.now();
        let qp = peer.qp.as_mut().unwrap();
        qp.post(Post { slot: 0, op, len: 8, solicited: false }).unwrap();
        let mut transmit = qp.poll_transmit(now).unwrap();
        transmit.headers.extended.atomic.as_mut().unwrap().address += 4;
        let mut datagram = transmit.headers.emit().as_slice().to_vec();
        peer.seal(&mut datagram);
        peer.raw(&datagram);
        until("the event of the end", || !end.events().is_empty());
        let [AsyncEvent::TerminateSent(why)] = end.events()[..] else {
            panic!("{:?}", end.events())
        };
        let text = why.to_string();
        let says = "the peer's atomic operation of 8 octets at STag";
        assert!(text.contains(says) && text.contains("does not address a multiple of 8"), "{text}");
    });
}
