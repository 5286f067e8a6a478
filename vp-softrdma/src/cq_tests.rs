//! A consumer that finds completions at every poll comes round for the posts of others all the same.

use std::sync::Weak;

use vp_api::{Cq, Data, Qp, QpId, SendFlags, SendOp, SendWr, WorkCompletion};

use super::{Aftermath, COME_ROUND, DIRECT_QPS};
use crate::testing::end::{End, pair};

/// An end whose CQ has so many other QPs, with a post that is held, since the one before it has not
/// been polled; and its peer.
fn holding(others: usize) -> (End, End) {
    let (end, peer) = pair(64);
    for id in 0..others as u32 {
        end.cq.join(QpId(100 + id), Weak::new()).unwrap();
    }
    let op = || SendOp::Immediate { data: 7, solicited: false };
    for wr_id in 0..2 {
        let (op, data, flags) = (op(), Data::Sgl(&[]), SendFlags::SIGNALED);
        end.qp.post_send(&[SendWr { wr_id, op, data, flags }]).expect("room");
    }
    assert_eq!(end.sends(), 1, "the second is held");
    (end, peer)
}

/// Polls so many times, and finds a completion each time.
fn poll_and_find(end: &End, times: u32) {
    for _ in 0..times {
        let mut left = Aftermath::default();
        end.cq.push(&WorkCompletion::BLANK, &mut left);
        end.cq.settle(left);
        assert_eq!(end.cq.poll(&mut [WorkCompletion::BLANK]), Ok(1));
    }
}

#[test]
fn a_consumer_of_many_qps_comes_round_while_it_finds_completions() {
    let (end, _peer) = holding(DIRECT_QPS);
    poll_and_find(&end, COME_ROUND - 1);
    assert_eq!(end.sends(), 1);
    poll_and_find(&end, 1);
    assert_eq!(end.sends(), 2);
}

#[test]
fn a_consumer_of_few_comes_round_when_it_finds_none() {
    let (end, _peer) = holding(DIRECT_QPS - 1);
    poll_and_find(&end, 2 * COME_ROUND);
    assert_eq!(end.sends(), 1);
    while end.cq.poll(&mut [WorkCompletion::BLANK]) != Ok(0) {}
    assert_eq!(end.sends(), 2);
}
