//! Several threads that poll queues of one RNIC at once, beside one that polls its memory only: none of them takes what
//! another waits for.

use std::sync::Arc;

use vp_api::*;
use warpline_patience::until;

use crate::alone::alone;
use crate::end::{End, open};

const ROUNDS: u64 = 2000;

/// Sends messages, the next when the reply to the last has come, or replies.
fn echo(end: &End, begins: bool) {
    let post = || end.send(1, end.sge(64, 64));
    end.recv(0, end.sge(0, 64));
    if begins {
        post();
    }
    let (mut received, mut sent) = (0, 0);
    while received < ROUNDS || sent < ROUNDS {
        if end.done().opcode != WcOpcode::Recv {
            sent += 1;
            continue;
        }
        received += 1;
        end.recv(0, end.sge(0, 64));
        if !begins || received < ROUNDS {
            post();
        }
    }
}

/// Writes the number of the round to the peer, and waits for the peer's in its memory, without a look at the queue.
fn write(end: &End, remote: Remote, begins: bool) {
    let seen = |round: u64| until("a Write", || end.read(0, 8) == round.to_be_bytes());
    for round in 1..=ROUNDS / 10 {
        if !begins {
            seen(round);
        }
        end.region.write_at(64, &round.to_be_bytes()).unwrap();
        end.post(round, SendOp::Write { remote }, end.sge(64, 8));
        if begins {
            seen(round);
        }
    }
}

#[test]
fn threads_that_poll_share_the_sockets_of_an_rnic() {
    alone("polled::threads_that_poll_share_the_sockets_of_an_rnic", || {
        let (near, far) = (open(), open());
        let pair = |_| {
            let (a, b) = (End::on(near.clone(), 4096), End::on(far.clone(), 4096));
            let there = b.listen("127.0.0.1:0");
            std::thread::scope(|scope| {
                scope.spawn(|| b.accept().unwrap());
                a.connect(there);
            });
            Arc::new((a, b))
        };
        let pairs: [_; 4] = std::array::from_fn(pair);
        std::thread::scope(|scope| {
            for pair in &pairs[..3] {
                scope.spawn(|| echo(&pair.0, true));
                scope.spawn(|| echo(&pair.1, false));
            }
            let (a, b) = &*pairs[3];
            scope.spawn(|| write(a, b.remote(0), true));
            scope.spawn(|| write(b, a.remote(0), false));
        });
    });
}
