//! Tests that every posted request completes exactly once, however its connection ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use itapi::{Disconnect, Evd, Work};

use crate::pair::{HANG, Side, connect, open};

const ENDPOINTS: usize = 8;
const ROUNDS: u64 = 20;

/// Requests posted, and requests completed.
#[derive(Default)]
struct Counts {
    posted: AtomicU64,
    completed: AtomicU64,
    over: AtomicBool,
}

impl Counts {
    /// Takes completions until all connections have ended; each returns its buffer.
    fn drain(&self, evd: &Evd) {
        while !self.over.load(Ordering::Relaxed) {
            if let Some(completion) = evd.wait(Duration::from_millis(5)).unwrap() {
                let back = completion.earlier.into_iter().chain([completion.local]);
                let buffers: usize = back.map(|local| local.into_buffers().count()).sum();
                self.completed.fetch_add(buffers as u64, Ordering::Relaxed);
            }
        }
    }

    /// Posts `count` receives and sends, some unsignalled, and a last signalled one.
    fn work(&self, side: &Side, count: usize) {
        for buffer in side.pz.buffers(count, 64).unwrap() {
            self.count(side.ep.post_recv(buffer).is_ok());
        }
        for (n, buffer) in side.pz.buffers(count, 64).unwrap().into_iter().enumerate() {
            let work = Work::send(buffer);
            let last = n + 1 == count;
            self.count(side.ep.post(if last { work } else { work.unsignalled() }).is_ok());
        }
    }

    fn count(&self, posted: bool) {
        self.posted.fetch_add(posted.into(), Ordering::Relaxed);
    }
}

/// A thread-local's destructor drops an endpoint with a deferred post, after the provider's thread-locals are
/// destroyed.
#[test]
fn an_ending_thread_may_be_the_last_to_hold_an_endpoint() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<Side>> = const { std::cell::RefCell::new(None) };
    }
    let ia = open();
    let ended = std::thread::spawn(move || {
        // Created first: destructors run in reverse order.
        KEPT.with_borrow_mut(|kept| *kept = None);
        let [near, far] = [Side::new(&ia, |b| b), Side::new(&ia, |b| b)];
        connect(&ia, &near, &far);
        for _ in 0..4 {
            far.ep.post_recv(far.pz.buffer(8).unwrap()).unwrap();
            near.ep.post(Work::send(b"held").coalesce()).unwrap();
        }
        KEPT.with_borrow_mut(|kept| *kept = Some(near));
        far
    });
    let far = warpline_patience::within("the thread to end", || ended.join().unwrap());
    far.ep.ended(HANG).unwrap().expect("an end");
}

#[test]
fn every_request_completes_once_under_random_disconnects() {
    let ia = open();
    let counts = Counts::default();
    let evds = [ia.evd(4096).unwrap(), ia.evd(4096).unwrap()];
    std::thread::scope(|scope| {
        for evd in evds.iter().chain(&evds) {
            scope.spawn(|| counts.drain(evd));
        }
        let pairs: Vec<_> = (0..ENDPOINTS)
            .map(|seed| {
                let (ia, evds, counts) = (&ia, &evds, &counts);
                scope.spawn(move || rounds(ia, evds, counts, seed as u64))
            })
            .collect();
        let _guard =
            warpline_patience::Guard::new("all connections to end and all completions to come");
        let sides: Vec<_> = pairs.into_iter().map(|pair| pair.join().unwrap()).collect();
        // All connections are over; outstanding requests complete.
        while counts.completed.load(Ordering::Relaxed) < counts.posted.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        counts.over.store(true, Ordering::Relaxed);
        drop(sides);
    });
    assert!(counts.posted.load(Ordering::Relaxed) > 0);
    assert_eq!(counts.completed.into_inner(), counts.posted.into_inner());
}

/// Connects, posts and disconnects in random ways, repeatedly; keeps the sides, so that no completion is lost.
fn rounds(ia: &itapi::Ia, evds: &[Evd; 2], counts: &Counts, seed: u64) -> [Side; 2] {
    let side = |evd: &Evd| {
        let pz = ia.pz().unwrap();
        let ep = pz.ep(evd).build().unwrap();
        Side { ep, pz, evd: evd.clone() }
    };
    let sides = [side(&evds[0]), side(&evds[1])];
    for round in 0..ROUNDS {
        connect(ia, &sides[0], &sides[1]);
        let mut random = seed * ROUNDS + round + 1;
        for side in &sides {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            counts.work(side, 1 + (random >> 60) as usize);
        }
        let how = if random >> 33 & 1 == 0 { Disconnect::Graceful } else { Disconnect::Abrupt };
        sides[(random >> 34) as usize & 1].ep.start_disconnect(how).unwrap();
        for side in &sides {
            side.ep.ended(HANG).unwrap().expect("an end");
            warpline_patience::until("the endpoint to be reset", || side.ep.reset().is_ok());
        }
    }
    sides
}
