//! Model test of a requester and a responder at each end of a channel that loses, repeats and reorders packets:
//! every request completes, in order, and is executed once.

use crate::common::{Memory, Pair, RKEY, Random, Weather, config};
use roce_proto::rc::{AtomicOp, Completion, Mtu, Post, SendOp, Status};

/// Places in the peer's memory for Reads, Writes and atomics.
const READ_AT: u64 = 0;
const REGION: usize = 20_000;
const WRITE_AT: u64 = REGION as u64;
const COUNT_AT: u64 = 2 * REGION as u64;

/// The requests of one end.
struct Plan {
    posts: Vec<Post>,
    /// The messages that the peer must receive, in order.
    sends: Vec<(Vec<u8>, Option<u32>)>,
    written: Vec<u8>,
    reads: Vec<(usize, u64)>,
    counted: u64,
}

fn octets(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next() as u8).collect()
}

fn plan(random: &mut Random, memory: &mut Memory, peer: &mut Memory) -> Plan {
    let mut plan = Plan {
        posts: Vec::new(),
        sends: Vec::new(),
        written: vec![0; REGION],
        reads: Vec::new(),
        counted: 0,
    };
    for slot in 0..1 + random.below(20) as u32 {
        let len = match random.below(3) {
            0 => random.below(40),
            1 => random.below(2_000),
            _ => random.below(9_000),
        } as usize;
        let immediate = random.chance(50).then(|| random.next() as u32);
        let mut data = octets(random, len);
        let op = match random.below(4) {
            0 => {
                peer.receives.push_back(len + random.below(3) as usize);
                plan.sends.push((data.clone(), immediate));
                SendOp::Send { immediate, invalidate: None }
            }
            1 => {
                let at = random.below((REGION - len) as u64);
                plan.written[at as usize..][..len].copy_from_slice(&data);
                if immediate.is_some() {
                    peer.receives.push_back(0);
                    plan.sends.push((Vec::new(), immediate));
                }
                SendOp::Write { address: WRITE_AT + at, rkey: RKEY, immediate }
            }
            2 => {
                let address = READ_AT + random.below((REGION - len) as u64);
                plan.reads.push((slot as usize, address));
                data.fill(0);
                SendOp::Read { address, rkey: RKEY }
            }
            _ => {
                let add = random.below(1 << 40);
                plan.counted += add;
                data = vec![0; 8];
                SendOp::Atomic { address: COUNT_AT, rkey: RKEY, op: AtomicOp::FetchAdd { add } }
            }
        };
        let len = data.len() as u32;
        memory.local.push(data);
        plan.posts.push(Post { slot, op, len, solicited: random.chance(10) });
    }
    plan
}

fn run(seed: u64, weather: Weather) -> usize {
    let mut random = Random::new(seed + 1);
    let mtu = [Mtu::Octets256, Mtu::Octets1024, Mtu::Octets4096][random.below(3) as usize];
    let window = [1, 2, 7, 64][random.below(4) as usize];
    let mut pair = Pair::new(config(mtu, window), weather);
    for end in &mut pair.ends {
        end.memory.remote = octets(&mut random, REGION);
        end.memory.remote.extend(vec![0; REGION + 8]);
    }
    let [a, b] = &mut pair.ends;
    let plans = [
        plan(&mut random, &mut a.memory, &mut b.memory),
        plan(&mut random, &mut b.memory, &mut a.memory),
    ];
    for (end, plan) in pair.ends.iter_mut().zip(&plans) {
        for post in &plan.posts {
            end.qp.post(*post).unwrap();
        }
    }
    pair.run(&mut random);
    for (at, plan) in plans.iter().enumerate() {
        check(seed, plan, &pair.ends[at], &pair.ends[1 - at]);
    }
    pair.ends.iter().map(|end| end.sent).sum()
}

fn check(seed: u64, plan: &Plan, end: &crate::common::End, peer: &crate::common::End) {
    let all: Vec<_> = plan
        .posts
        .iter()
        .map(|post| Completion { slot: post.slot, status: Status::Success })
        .collect();
    assert_eq!(end.done, all, "seed {seed}");
    let delivered: Vec<_> = peer
        .memory
        .delivered
        .iter()
        .map(|(delivered, octets)| (octets.clone(), delivered.immediate))
        .collect();
    assert_eq!(delivered, plan.sends, "seed {seed}: messages that arrived");
    assert!(peer.memory.receives.is_empty(), "seed {seed}: receives that were not used");
    assert_eq!(peer.memory.remote[REGION..2 * REGION], plan.written, "seed {seed}: Writes");
    for &(slot, address) in &plan.reads {
        let read = &end.memory.local[slot];
        assert_eq!(
            peer.memory.remote[address as usize..][..read.len()],
            **read,
            "seed {seed}: Read"
        );
    }
    let counted = u64::from_ne_bytes(peer.memory.remote[2 * REGION..].try_into().unwrap());
    assert_eq!(counted, plan.counted, "seed {seed}: atomics that were executed");
}

/// Number of runs on a bad channel; `ROCE_MODEL_SEEDS` changes it.
fn seeds() -> u64 {
    let seeds = std::env::var("ROCE_MODEL_SEEDS").ok();
    seeds.map_or(600, |seeds| seeds.parse().expect("ROCE_MODEL_SEEDS is a number"))
}

#[test]
fn requests_complete_on_a_good_channel_without_repetition() {
    for seed in 0..300 {
        run(seed, Weather::default());
    }
}

// [IBRC-01, IBRC-06, IBRC-07, IBRC-08, IBRC-09, IBRC-10, IBRC-11, IBRC-17, IBRC-20]
#[test]
fn requests_complete_once_on_a_bad_channel() {
    let weather = Weather { lost: 5, repeated: 3, reordered: 3 };
    for seed in 0..seeds() {
        run(seed, weather);
    }
}

#[test]
fn a_message_in_order_takes_no_packet_twice() {
    // 10 packets of a Send, one acknowledgement.
    let mut random = Random::new(7);
    let mut pair = Pair::new(config(Mtu::Octets256, 64), Weather::default());
    let [a, b] = &mut pair.ends;
    a.memory.local.push(octets(&mut random, 2_500));
    b.memory.receives.push_back(2_500);
    let op = SendOp::Send { immediate: None, invalidate: None };
    a.qp.post(Post { slot: 0, op, len: 2_500, solicited: false }).unwrap();
    pair.run(&mut random);
    assert_eq!((pair.ends[0].sent, pair.ends[1].sent), (10, 1));
}
