//! Sessions that go on after the loss of their connections: nothing is lost, repeated, or out of order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use itapi::{Config, Ia, LocalStreams};
use warpline_channel::{Channel, Listener, Options};

use crate::pair::{HANG, TIGHT, message};
use crate::relay::{Cut, Random, Relay};

/// Sessions that go on for longer than a test takes.
pub(crate) const RESUME: Options = Options { resume: Some(HANG), patience: Some(HANG), ..TIGHT };

/// An adapter that uses TCP and notices a silent peer soon.
pub(crate) fn impatient() -> Ia {
    let ia = Ia::builder().config(Config::default()).policy(|policy| {
        policy.local = LocalStreams::Off;
        policy.probe_after = Some(Duration::from_millis(100));
        policy.close_timeout = Duration::from_millis(200);
        policy.request_timeout = Duration::from_millis(500);
        policy.connect_timeout = Duration::from_millis(500);
        policy.answer_timeout = Duration::from_millis(500);
    });
    ia.open().unwrap()
}

/// Both ends through a relay that has not cut yet.
pub(crate) fn relayed(
    ia: &Ia,
    options: Options,
    kinds: &[Cut],
    most: u64,
) -> (Channel, Channel, Relay) {
    let listener = Listener::bind_with(ia, "127.0.0.1:0", options).unwrap();
    let relay = Relay::start(listener.address(), 0, most, kinds, 7);
    let address = relay.address();
    let (client, server) = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let client = Channel::connect_with(ia, address, options).unwrap();
        (client, accepted.join().unwrap())
    });
    (client, server, relay)
}

/// The length of a message, of which `large` of eight are longer than a small one.
fn octets(random: &mut Random, large: u64) -> usize {
    match random.below(8) {
        kind if kind < large => 257 + random.below(20_000) as usize,
        7 => 0,
        4..7 => random.below(64) as usize,
        _ => random.below(257) as usize,
    }
}

/// Sends messages until `stop`, `large` of eight large ones, then the end; receives all of the peer's, and closes. Returns how
/// many were sent and received.
pub(crate) fn exchange(
    channel: Channel,
    seeds: [u64; 2],
    large: u64,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> (u64, u64) {
    let counts = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut random = Random::new(seeds[0]);
            let mut sent = 0;
            while !stop.load(Ordering::SeqCst) {
                let octets = message(sent, octets(&mut random, large));
                channel.send(octets).unwrap();
                sent += 1;
            }
            channel.finish().unwrap();
            sent
        });
        let mut random = Random::new(seeds[1]);
        let mut received = 0;
        while let Some(got) = channel.recv().unwrap() {
            let expected = message(received, octets(&mut random, large));
            assert!(got[..] == expected, "message {received}");
            received += 1;
            done.fetch_add(1, Ordering::Relaxed);
        }
        (sender.join().unwrap(), received)
    });
    channel.close().unwrap();
    counts
}

/// How many cuts a run makes: more by this variable.
pub(crate) fn cuts() -> u64 {
    std::env::var("WARPLINE_CHANNEL_TEST_CUTS").ok().and_then(|it| it.parse().ok()).unwrap_or(100)
}

/// Both directions busy, with so many cuts of these kinds.
fn cut_at_random(kinds: &[Cut], cuts: u64, most: u64) {
    let ia = impatient();
    let (client, server, relay) = relayed(&ia, RESUME, kinds, most);
    relay.cut(cuts);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let one = scope.spawn(|| exchange(client, [1, 2], 1, &stop, &done));
        let other = scope.spawn(|| exchange(server, [2, 1], 1, &stop, &done));
        let mut before = (0, 0);
        while relay.made() < cuts && !one.is_finished() && !other.is_finished() {
            let hangs = std::time::Instant::now() + HANG;
            let now = || (relay.made(), done.load(Ordering::Relaxed));
            while now() == before && std::time::Instant::now() < hangs {
                std::thread::yield_now();
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_ne!(now(), before, "nothing happens any more");
            before = now();
        }
        stop.store(true, Ordering::SeqCst);
        let (one, other) = (one.join().unwrap(), other.join().unwrap());
        assert_eq!(one, (other.1, other.0));
        assert!(relay.made() >= cuts);
    });
}

#[test]
fn resets_lose_nothing() {
    cut_at_random(&[Cut::Reset], cuts(), 60_000);
}

#[test]
fn closed_connections_lose_nothing() {
    cut_at_random(&[Cut::Fin], cuts(), 60_000);
}

#[test]
fn silence_loses_nothing() {
    cut_at_random(&[Cut::Silence, Cut::Half], cuts() / 20, 60_000);
}

/// Connections that are cut while sessions begin, and end: each end is told the same.
#[test]
fn sessions_are_cut_while_they_end() {
    let ia = impatient();
    let mut random = Random::new(5);
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    for seed in 0..cuts() {
        let relay = Relay::start(listener.address(), 0, 700, &[Cut::Reset, Cut::Fin], seed);
        let address = relay.address();
        let (client, server) = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept().unwrap());
            let client = Channel::connect_with(&ia, address, RESUME).unwrap();
            (client, accepted.join().unwrap())
        });
        relay.cut(1 + random.below(3));
        let few = |channel: Channel, n| {
            channel.send(message(n, 30)).unwrap();
            take_and_close(channel, 1 - n);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| few(client, 0));
            few(server, 1);
        });
    }
}

/// Receives one message, and closes.
fn take_and_close(channel: Channel, n: u64) {
    assert!(channel.recv().unwrap().unwrap()[..] == message(n, 30));
    channel.finish().unwrap();
    assert!(channel.recv().unwrap().is_none());
    channel.close().unwrap();
}
