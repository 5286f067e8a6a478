//! Measures copies through the ring of a local stream, cached and past the caches, between two processors,
//! on which the rule of `shm-ring` (`copy.rs`) is based. No protocol.
//!
//! `cargo run --release -p warpline-benches --bin ring_copy [-- ROUNDS [RING...]]` prints medians, for rounds
//! with a near line (the processors share a cache) and a far one apart, since a host moves the processors of its
//! guests about. A producer and a consumer, threads on a processor each with mappings of their own, send messages
//! as SoftRDMA's: a head of 20 octets, the payload, a trailer of 4. The consumer copies every octet out. A
//! measurement during which the line changed is not counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use shm_ring::{End, Side};
use warpline_benches::Result;

const SIZES: [usize; 7] = [256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20];
/// Octets of the buffer that the producer sends from repeatedly.
const SET: usize = 1 << 20;
const HEAD: usize = 20;
const TRAILER: usize = 4;
const SLICE: Duration = Duration::from_millis(30);
/// Microseconds of half a round trip of a line, below which it is near.
const NEAR: f64 = 0.12;

/// Copies of this many octets or more bypass the caches: heads and trailers never do.
const WAYS: [(&str, usize); 2] = [("cached", usize::MAX), ("past caches", 256)];

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let rounds = args.next().map_or(Ok(9), |rounds| rounds.parse::<u32>())?;
    let rings: Vec<u32> = args.map(|ring| ring.parse()).collect::<Result<_, _>>()?;
    let rings = if rings.is_empty() { vec![256 << 10] } else { rings };
    place(0)?;
    let mut figures: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    let (mut lines, mut moved) = (Vec::new(), 0);
    for _ in 0..rounds {
        for (&ring, (nth, size), (way, (_, from))) in rings.iter().flat_map(|ring| {
            SIZES
                .iter()
                .enumerate()
                .flat_map(move |size| WAYS.iter().enumerate().map(move |way| (ring, size, way)))
        }) {
            let before = line()?;
            let bandwidth = bandwidth(ends(ring, *from)?, *size)?;
            let latency = latency(ends(ring, *from)?, *size)?;
            let after = line()?;
            lines.push(after);
            if (before < NEAR) != (after < NEAR) {
                moved += 1;
                continue;
            }
            for (what, figure) in [("GB/s", bandwidth), ("us", latency)] {
                figures.entry((what, ring, after < NEAR, nth, way)).or_default().push(figure);
            }
        }
    }
    println!(
        "line: {:.3} us, from {:.3} to {:.3}; {moved} measurements not counted",
        median(&mut lines),
        lines.first().unwrap_or(&0.0),
        lines.last().unwrap_or(&0.0)
    );
    for what in ["GB/s", "us"] {
        for &ring in &rings {
            println!(
                "\n{what}, ring of {} KiB{}",
                ring >> 10,
                if what == "us" { ", half a round trip" } else { "" }
            );
            print!("{:<22}", "octets");
            SIZES.iter().for_each(|size| print!("{size:>9}"));
            println!();
            for near in [true, false] {
                for (way, (name, _)) in WAYS.iter().enumerate() {
                    print!("{:<22}", format!("{name}, {}", if near { "near" } else { "far" }));
                    for nth in 0..SIZES.len() {
                        match figures.get_mut(&(what, ring, near, nth, way)) {
                            Some(figures) => print!("{:>9.2}", median(figures)),
                            None => print!("{:>9}", "-"),
                        }
                    }
                    println!();
                }
            }
        }
    }
    Ok(())
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn place(processor: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(sched_setaffinity(None, &only)?)
}

fn ends(ring: u32, past_caches_from: usize) -> Result<[End; 2]> {
    let memory = shm_ring::create(ring)?;
    let map = |side| End::map(&memory, side).map(|end| end.past_caches_from(past_caches_from));
    Ok([map(Side::Maker)?, map(Side::Other)?])
}

/// Half a round trip of one cache line, in microseconds.
fn line() -> Result<f64> {
    const TRIPS: u32 = 2_000;
    #[derive(Default)]
    #[repr(align(128))]
    struct Line(AtomicU32);
    let (there, back) = (Line::default(), Line::default());
    let until = |line: &Line, word| {
        while line.0.load(Ordering::Acquire) != word {
            std::hint::spin_loop();
        }
    };
    beside(
        || {
            (1..=TRIPS).for_each(|trip| {
                until(&there, trip);
                back.0.store(trip, Ordering::Release);
            })
        },
        || {
            let mut best = f64::MAX;
            for round in 0..4 {
                let begin = Instant::now();
                for trip in round * TRIPS / 4 + 1..=(round + 1) * TRIPS / 4 {
                    there.0.store(trip, Ordering::Release);
                    until(&back, trip);
                }
                best = best.min(begin.elapsed().as_secs_f64() * 2e6 / f64::from(TRIPS));
            }
            best
        },
    )
}

/// Runs `here` in this thread while `there` runs on the other processor.
fn beside<R>(there: impl FnOnce() + Send, here: impl FnOnce() -> R) -> Result<R> {
    let placed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let done = place(1).map_err(|error| error.to_string());
            placed.store(true, Ordering::Release);
            there();
            done
        });
        while !placed.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let result = here();
        there.join().map_err(|_| "the other thread ended early")??;
        Ok(result)
    })
}

/// Writes a whole message; false if the peer's end is over.
fn send(end: &End, payload: &[u8]) {
    let around = [0_u8; HEAD];
    let pieces = [&around[..], payload, &around[..TRAILER]];
    let (all, mut done) = (HEAD + payload.len() + TRAILER, 0);
    while done < all {
        let mut skip = done;
        let rest = pieces.map(|piece| {
            let from = skip.min(piece.len());
            skip -= from;
            (piece[from..].as_ptr(), piece.len() - from)
        });
        // SAFETY: live slices.
        done += unsafe { end.write(rest, || {}) }.unwrap_or(all);
    }
}

/// Reads a whole message; false if no more will come.
fn receive(end: &End, payload: &mut [u8]) -> bool {
    let mut around = [0_u8; HEAD + TRAILER];
    let (all, mut done) = (payload.len() + around.len(), 0);
    while done < all {
        let (head, len) = (done.min(payload.len()), payload.len());
        let behind = (done - head).min(around.len());
        let rest = [
            (payload[head..].as_mut_ptr(), len - head),
            (around[behind..].as_mut_ptr(), HEAD + TRAILER - behind),
        ];
        // SAFETY: live slices, exclusively ours.
        match unsafe { end.read(rest, || {}) } {
            Ok(0) if end.is_over() => return false,
            Ok(octets) => done += octets,
            Err(_) => return false,
        }
        std::hint::black_box(&mut *payload);
    }
    true
}

/// Octets of payload per nanosecond.
fn bandwidth([near, far]: [End; 2], size: usize) -> Result<f64> {
    let set = vec![1_u8; SET.max(size)];
    beside(
        move || {
            let mut set = vec![0_u8; SET.max(size)];
            let mut messages = (0..).map(|n| n * size % (SET.max(size)));
            while messages.next().is_some_and(|at| receive(&far, &mut set[at..at + size])) {}
        },
        || {
            let mut begin = Instant::now();
            let (mut octets, mut warm) = (0, false);
            for n in 0.. {
                let at = n * size % set.len();
                send(&near, &set[at..at + size]);
                octets += size;
                if octets >= SET {
                    match begin.elapsed() {
                        spent if !warm && spent > SLICE / 4 => {
                            (begin, octets, warm) = (Instant::now(), 0, true)
                        }
                        spent if warm && spent > SLICE => break,
                        _ => {}
                    }
                }
            }
            let bandwidth = octets as f64 / begin.elapsed().as_nanos() as f64;
            near.close(|| {});
            bandwidth
        },
    )
}

/// Half a round trip in microseconds.
fn latency([near, far]: [End; 2], size: usize) -> Result<f64> {
    let trips = (200_000 / size).clamp(30, 500);
    beside(
        move || {
            let mut payload = vec![0_u8; size];
            while receive(&far, &mut payload) {
                send(&far, &payload);
            }
        },
        || {
            let mut payload = vec![1_u8; size];
            let mut begin = Instant::now();
            for trip in 0..2 * trips {
                if trip == trips {
                    begin = Instant::now();
                }
                send(&near, &payload);
                receive(&near, &mut payload);
            }
            let latency = begin.elapsed().as_secs_f64() * 1e6 / (2 * trips) as f64;
            near.close(|| {});
            latency
        },
    )
}
