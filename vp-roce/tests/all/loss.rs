//! A path that loses and repeats packets, with a peer that is not this provider.

use std::net::Ipv4Addr;

use roce_proto::rc::{Post, SendOp, Status};
use warpline_patience::Bound;

use crate::alone::alone;
use crate::end::{End, pattern};
use crate::peer::{Peer, STRANGER};

const COUNT: usize = 60;
const LEN: usize = 20_000;

#[test]
fn messages_survive_loss_and_repetition() {
    alone("loss::messages_survive_loss_and_repetition", || {
        let end = End::new(2 * COUNT * LEN);
        let to = end.listen("127.0.0.1:0");
        let half = COUNT * LEN;
        let (ours, theirs) = (pattern(half, 1), pattern(half, 2));
        end.region.write_at(0, &ours).unwrap();
        (0..COUNT).for_each(|n| end.recv(n as u64, end.sge(half + n * LEN, LEN)));
        let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), to.ip());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                end.accept();
                (0..COUNT).for_each(|n| end.send(1000 + n as u64, end.sge(n * LEN, LEN)));
                (0..2 * COUNT).for_each(|_| assert_eq!(end.done().octets as usize, LEN));
            });
            peer.connect(to, STRANGER);
            (peer.lost, peer.repeated) = (3, 3);
            peer.memory.local = theirs.chunks(LEN).map(<[u8]>::to_vec).collect();
            let op = SendOp::Send { immediate: None, invalidate: None };
            let post = |slot| Post { slot, op, len: LEN as u32, solicited: false };
            (0..COUNT as u32).for_each(|slot| peer.qp.as_mut().unwrap().post(post(slot)).unwrap());
            let (mut done, bound) = (0, Bound::new("all messages, both ways"));
            // The last acknowledgement may be lost: go on until the provider has all.
            while done < COUNT
                || peer.memory.arrived.len() < COUNT
                || end.qp.query().unwrap().sends_outstanding != 0
            {
                bound.check();
                peer.step();
                while let Some(completion) = peer.qp.as_mut().unwrap().poll_completion() {
                    assert_eq!(
                        (completion.slot as usize, completion.status),
                        (done, Status::Success)
                    );
                    done += 1;
                }
            }
        });
        assert_eq!(end.read(half, half), theirs);
        let arrived: Vec<u8> = peer.memory.arrived.iter().flatten().copied().collect();
        assert_eq!(arrived, ours);
    });
}
