//! Tests of the window: how many messages of one packet leave before the first is acknowledged.

use crate::common::{Pair, RKEY, Weather, config};
use roce_proto::rc::{Mtu, Post, SendOp};

const MESSAGES: u32 = 64;

fn pair() -> Pair {
    let mut pair = Pair::new(config(Mtu::Octets4096, 48), Weather::default());
    pair.ends[0].memory.local = vec![vec![1; 4096]; MESSAGES as usize];
    pair
}

/// Posts messages of `len` octets, and returns how many leave in a call.
fn leave(pair: &mut Pair, joins: bool, len: u32) -> usize {
    let op = SendOp::Send { immediate: None, invalidate: None };
    for slot in 0..MESSAGES {
        pair.ends[0].qp.post(Post { slot, op, len, solicited: false }).unwrap();
    }
    pair.ends[0].qp.begin_call(joins);
    deliver(pair)
}

/// Sends what may leave, acknowledges it, and returns how many packets that were.
fn deliver(pair: &mut Pair) -> usize {
    let sent = pair.ends[0].transmit(0);
    pair.ends[1].memory.receives.extend(sent.iter().map(|_| 4096));
    for datagram in &sent {
        pair.ends[1].receive(0, datagram);
    }
    for datagram in pair.ends[1].transmit(0) {
        pair.ends[0].receive(0, &datagram);
    }
    sent.len()
}

// A connection begins with half of its window of 48 packets of 4096 and 128 octets.
#[test]
fn messages_that_arrive_together_take_little_of_the_window() {
    assert_eq!(leave(&mut pair(), true, 8), MESSAGES as usize);
    assert_eq!(leave(&mut pair(), false, 8), 24 * 4224 / (2 * 8 + 2048));
    assert_eq!(leave(&mut pair(), true, 4096), 1 + (24 * 4224 - 10240) / 4224);
    assert_eq!(leave(&mut pair(), false, 4096), 24 * 4224 / 10240);
}

// What is acknowledged gives back what it took, and no more.
#[test]
fn acknowledged_messages_give_their_room_back() {
    let (mut joined, mut alone) = (pair(), pair());
    for _ in 0..3 {
        assert_eq!(leave(&mut joined, true, 8), MESSAGES as usize);
        // A window of acknowledged packets adds one packet of 4096 octets.
        let mut left = MESSAGES as usize - leave(&mut alone, false, 8);
        assert!((1..=15).contains(&left), "{left}");
        while left > 0 {
            left -= deliver(&mut alone);
        }
    }
}

// [IBRC-25]
#[test]
fn packets_of_a_write_to_an_own_end_have_one_length_unless_it_has_immediate_data() {
    const PACKETS: usize = 3;
    let lengths = |is_own, immediate| {
        let mut pair = Pair::new(config(Mtu::Octets1024, 48), Weather::default());
        pair.ends[0].memory.local = vec![(0..=255).cycle().take(PACKETS * 1024).collect()];
        pair.ends[1].memory.remote = vec![0; PACKETS * 1024];
        if is_own {
            pair.ends[0].qp.divide_writes();
        }
        let op = SendOp::Write { address: 0, rkey: RKEY, immediate };
        let post = Post { slot: 0, op, len: PACKETS as u32 * 1024, solicited: false };
        pair.ends[0].qp.post(post).unwrap();
        let sent = pair.ends[0].transmit(0);
        pair.ends[1].memory.receives.push_back(0);
        sent.iter().for_each(|datagram| pair.ends[1].receive(0, datagram));
        assert_eq!(pair.ends[1].memory.remote, pair.ends[0].memory.local[0]);
        let delivered = &pair.ends[1].memory.delivered;
        assert!(delivered.iter().all(|(message, _)| message.len == post.len));
        assert_eq!(delivered.len(), usize::from(immediate.is_some()));
        sent.iter().map(Vec::len).collect::<Vec<_>>()
    };
    let [first, middle] = [12 + 16 + 1024 + 4, 12 + 1024 + 4];
    assert_eq!(lengths(false, None), [first, middle, middle]);
    assert_eq!(lengths(true, None), [first; PACKETS]);
    assert_eq!(lengths(true, Some(7)), [first, middle, middle + 4]);
}
