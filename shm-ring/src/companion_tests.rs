//! Both ends of a [`Companion`] in threads, beside a queue that stands for TCP: all octets arrive, in order, by either.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Mutex;

use crate::{Companion, Side, create};

const RING: u32 = 64 << 10;
const TOTAL: u64 = 2 << 20;

/// The other carrier in one direction: what is on its way, and how much was sent.
#[derive(Default)]
struct Queue(Mutex<(VecDeque<u8>, u64)>);

fn octet(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 11) as u8
}

/// Choices that a seed repeats (Marsaglia's xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

/// Both ends, unmapped when it is dropped.
struct Ends([NonNull<Companion>; 2]);

impl Ends {
    fn new() -> Self {
        let memory = create(RING).unwrap();
        let ends = [Side::Maker, Side::Other].map(|side| Companion::map(&memory, side).unwrap());
        let ends = Self(ends);
        ends.get()[0].begin();
        ends
    }

    fn get(&self) -> [&Companion; 2] {
        // SAFETY: mapped until this is dropped.
        self.0.map(|end| unsafe { end.as_ref() })
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // SAFETY: made by `map`, and not used any more.
        self.0.iter().for_each(|end| unsafe { Companion::unmap(*end) });
    }
}

fn write(end: &Companion, octets: &[u8], sent: u64) -> usize {
    // SAFETY: a slice.
    unsafe { end.write([(octets.as_ptr(), octets.len())], || Some(sent)) }.unwrap()
}

fn read(end: &Companion, room: &mut [u8]) -> usize {
    // SAFETY: a slice.
    unsafe { end.read([(room.as_mut_ptr(), room.len())], false) }.unwrap()
}

/// Sends all; returns how many octets went by the ring.
fn produce(end: &Companion, queue: &Queue, seed: u64) -> u64 {
    let (mut state, mut at, mut by_ring) = (seed | 1, 0, 0);
    while at < TOTAL {
        let len = (1 + next(&mut state) % 30_000).min(TOTAL - at);
        let octets: Vec<u8> = (at..at + len).map(octet).collect();
        let sent = queue.0.lock().unwrap().1;
        let n = write(end, &octets, sent);
        by_ring += n as u64;
        if n < octets.len() {
            end.mark();
            let mut queue = queue.0.lock().unwrap();
            queue.0.extend(&octets[n..]);
            queue.1 += (octets.len() - n) as u64;
        }
        at += len;
    }
    by_ring
}

/// Receives all, in order.
fn consume(end: &Companion, queue: &Queue, seed: u64) {
    let (mut state, mut at, mut taken) = (seed | 1, 0, 0);
    let mut room = vec![0; 40_000];
    let check = |at: &mut u64, octets: &mut dyn Iterator<Item = u8>| {
        for it in octets {
            assert_eq!(it, octet(*at), "at {at}");
            *at += 1;
        }
    };
    while at < TOTAL {
        if let Some(base) = end.base() {
            let mut queue = queue.0.lock().unwrap();
            let most = ((base - taken) as usize).min(queue.0.len());
            check(&mut at, &mut queue.0.drain(..most));
            taken += most as u64;
            if taken < base {
                continue;
            }
            end.passed(base);
        }
        let most = 1 + next(&mut state) as usize % room.len();
        let n = read(end, &mut room[..most]);
        check(&mut at, &mut room[..n].iter().copied());
        if n > 0 || end.base().is_some() || !end.pin().unwrap() {
            continue;
        }
        let mut queue = queue.0.lock().unwrap();
        let most = queue.0.len().min(most);
        taken += most as u64;
        check(&mut at, &mut queue.0.drain(..most));
        drop(queue);
        end.unpin();
        if !next(&mut state).is_multiple_of(4) {
            end.look();
        }
    }
}

#[test]
fn octets_arrive_in_order_by_either() {
    let mut by_ring = 0;
    for seed in 1..6 {
        let ends = Ends::new();
        let [maker, other] = ends.get();
        let queues = [Queue::default(), Queue::default()];
        std::thread::scope(|scope| {
            let one = scope.spawn(|| produce(maker, &queues[0], seed));
            let two = scope.spawn(|| produce(other, &queues[1], seed * 77));
            scope.spawn(|| consume(other, &queues[0], seed * 3));
            consume(maker, &queues[1], seed * 5);
            by_ring += one.join().unwrap() + two.join().unwrap();
        });
    }
    assert!(by_ring > 0);
}

#[test]
fn octets_go_by_the_ring_only_to_who_looks() {
    let ends = Ends::new();
    let [maker, other] = ends.get();
    assert_eq!(write(maker, b"not yet", 0), 0);
    assert!(other.look());
    assert_eq!(write(maker, b"now", 7), 3);
    assert_eq!(other.base(), Some(7), "those by the other carrier come first");
    assert_eq!(other.pin(), Ok(false), "octets wait in the ring");
    other.passed(7);
    let mut room = [0; 8];
    assert_eq!((read(other, &mut room), &room[..3]), (3, &b"now"[..]));
    assert_eq!(other.pin(), Ok(true));
    assert!(!other.look(), "another thread waits");
    assert_eq!(write(maker, b"no", 7), 0);
    other.unpin();
    assert!(other.look());
    assert_eq!(write(maker, b"by the ring", 7), 11);
    maker.mark();
    assert_eq!(write(maker, b"behind others", 9), 0, "the ring is not empty");
    other.freeze();
    assert!(!other.look());
    assert_eq!(read(other, &mut [0; 20]), 11);
}

/// A consumer that found no base, and was then delayed, does not read the ring before what the producer has sent meanwhile.
#[test]
fn octets_before_a_new_base_come_first() {
    let ends = Ends::new();
    let [maker, other] = ends.get();
    assert!(other.look() && other.base().is_none());
    maker.mark();
    assert_eq!(write(maker, b"second", 5), 6);
    assert_eq!(read(other, &mut [0; 8]), 0, "5 octets come first");
    assert_eq!(other.base(), Some(5));
    other.passed(5);
    assert_eq!(read(other, &mut [0; 8]), 6);
}

/// How many octets went by the other carrier is certain only when nobody sends by it: no thread, and no other process.
#[test]
fn the_ring_is_not_used_while_another_call_sends() {
    let ends = Ends::new();
    let [maker, other] = ends.get();
    assert!(other.look());
    maker.sends();
    assert_eq!(write(maker, b"too early", 3), 0);
    maker.sent();
    assert_eq!(write(maker, b"now", 7), 3);
}

#[test]
fn one_has_the_turn() {
    let ends = Ends::new();
    let [maker, _] = ends.get();
    assert_eq!(maker.take_turn(0, 1), Ok(()));
    assert_eq!(maker.take_turn(0, 2), Err(1));
    assert_eq!((maker.take_turn(1, 3), maker.take_turn(1, 2)), (Ok(()), Err(3)));
    maker.give_back();
    assert_eq!(maker.take_turn(0, 2), Ok(()));
}

#[test]
fn impossible_positions_are_found() {
    let ends = Ends::new();
    let [maker, other] = ends.get();
    assert!(other.look());
    // What a peer could write: a position that is too far.
    let (at, _) = maker.memory_for_tests();
    let word = at.cast::<std::sync::atomic::AtomicU64>().wrapping_add(16);
    // SAFETY: the word of the first direction, in the page.
    let word = unsafe { &*word };
    word.fetch_add(u64::from(RING) + 1, std::sync::atomic::Ordering::SeqCst);
    assert!(other.octets().is_err() && other.pin().is_err());
    // SAFETY: a slice.
    let written = unsafe { maker.write([(b"x".as_ptr(), 1)], || Some(0)) };
    assert!(written.is_err());
}
