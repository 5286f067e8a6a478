//! Tests of several threads that take completions from one dispatcher: every signalled request completes once.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use itapi::{Aevd, Disconnect, Evd, Operation, RemoteRange, Work, WorkId};

use crate::pair::{HANG, Side, connect, open};

const POSTERS: usize = 4;
const DEPTH: u32 = 64;

/// Outstanding requests, and how many were posted.
#[derive(Default)]
struct Ledger {
    open: Mutex<HashSet<WorkId>>,
    /// Completions that were taken before the poster recorded the request.
    early: Mutex<HashSet<WorkId>>,
    posters: AtomicUsize,
}

impl Ledger {
    fn posted(&self, id: WorkId) {
        let mut early = self.early.lock().unwrap();
        if !early.remove(&id) {
            assert!(self.open.lock().unwrap().insert(id), "{id:?} names two requests");
        }
    }

    fn taken(&self, id: WorkId) {
        let mut early = self.early.lock().unwrap();
        if !self.open.lock().unwrap().remove(&id) {
            assert!(early.insert(id), "{id:?} came twice");
        }
    }

    fn missing(&self) -> usize {
        self.open.lock().unwrap().len()
    }

    /// Takes until all requests are posted and have completed.
    fn take(&self, evd: &Evd) {
        let (mut batch, mut progress) = (Vec::new(), Instant::now());
        while self.posters.load(Ordering::Acquire) != 0 || self.missing() != 0 {
            batch.extend(evd.wait(Duration::from_millis(2)).unwrap());
            evd.poll_into(&mut batch).unwrap();
            if !batch.is_empty() {
                progress = Instant::now();
            }
            assert!(progress.elapsed() < HANG, "{} completions are missing", self.missing());
            for completion in batch.drain(..) {
                assert_eq!(completion.operation, Operation::Write);
                if completion.status == itapi::WcStatus::Success {
                    self.taken(completion.id);
                }
            }
        }
    }

    /// Posts RDMA Writes, every third one unsignalled.
    fn post(&self, side: &Side, remote: RemoteRange, count: usize) {
        for n in 1..=count {
            let silent = n % 3 == 0 && n != count;
            let write = || match silent {
                true => Work::write(b"12345678", remote).unsignalled(),
                false => Work::write(b"12345678", remote),
            };
            let begin = Instant::now();
            let id = loop {
                match side.ep.post(write()) {
                    Ok(id) => break id,
                    Err(_) => std::thread::yield_now(),
                }
                assert!(begin.elapsed() < HANG, "no room: {} did not come out", self.missing());
            };
            if !silent {
                self.posted(id);
            }
        }
        self.posters.fetch_sub(1, Ordering::Release);
    }
}

fn storm(takers: usize, staged: bool, each: usize) {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b.depth(DEPTH, DEPTH)), Side::new(&ia, |b| b));
    let all = Aevd::builder(&ia).build().unwrap();
    if staged {
        client.evd.set_aggregate(Some(&all)).unwrap();
    }
    connect(&ia, &client, &server);
    let target = server.pz.lmr(8).remote_write().register().unwrap();
    let ledger = Ledger { posters: AtomicUsize::new(POSTERS), ..Ledger::default() };
    std::thread::scope(|scope| {
        for _ in 0..takers {
            scope.spawn(|| ledger.take(&client.evd));
        }
        for _ in 0..POSTERS {
            scope.spawn(|| ledger.post(&client, target.remote(), each));
        }
    });
    assert_eq!(ledger.missing(), 0);
    assert!(ledger.early.into_inner().unwrap().is_empty());
    client.ep.start_disconnect(Disconnect::Abrupt).unwrap();
}

/// Requests that each poster posts; `WARPLINE_STRESS_POSTS` for a longer run.
fn posts() -> usize {
    std::env::var("WARPLINE_STRESS_POSTS").map_or(2000, |posts| posts.parse().unwrap())
}

#[test]
fn one_taker_gets_all_completions() {
    storm(1, false, posts());
}

#[test]
fn two_takers_lose_no_completion() {
    storm(2, false, posts());
}

#[test]
fn eight_takers_lose_no_completion() {
    storm(8, false, posts());
}

#[test]
fn takers_of_a_staging_queue_lose_no_completion() {
    storm(4, true, posts());
}

/// In every state, with and without staging and polling, a queue takes `depth` posts.
#[test]
fn posts_are_bounded_by_depth_in_every_state() {
    for staged in [false, true] {
        let ia = open();
        let side = || Side::new(&ia, |b| b.depth(DEPTH, DEPTH));
        let (client, server) = (side(), side());
        let all = Aevd::builder(&ia).build().unwrap();
        if staged {
            client.evd.set_aggregate(Some(&all)).unwrap();
        }
        connect(&ia, &client, &server);
        let target = server.pz.lmr(8).remote_write().register().unwrap();
        let writes = || {
            let post = |_: &i32| client.ep.post(Work::write(b"1", target.remote())).is_ok();
            (0..10_000).take_while(post).count()
        };
        let receives = || {
            let post = |_: &i32| client.ep.post_recv(client.pz.buffer(1).unwrap()).is_ok();
            (0..10_000).take_while(post).count()
        };
        let depth = DEPTH as usize;
        assert_eq!((writes(), receives()), (depth, depth), "staged: {staged}");
        let begin = Instant::now();
        while client.evd.queued() < depth {
            assert!(begin.elapsed() < HANG, "{} of {depth} completions", client.evd.queued());
            std::thread::yield_now();
        }
        assert_eq!((writes(), receives()), (0, 0), "staged: {staged}");
        client.next();
        assert_eq!(writes(), 1, "staged: {staged}");
        client.ep.start_disconnect(Disconnect::Abrupt).unwrap();
        client.ep.ended(HANG).unwrap();
        assert_eq!((writes(), receives()), (0, 0), "staged: {staged}");
        (0..2 * depth).for_each(|_| drop(client.next()));
        assert_eq!((writes(), receives()), (depth, depth), "staged: {staged}");
    }
}

/// With and without staging: destroying an endpoint removes its completions and frees their slots.
#[test]
fn completions_of_destroyed_endpoints_leave_their_dispatcher() {
    for staged in [false, true] {
        let ia = open();
        let (pz, evd, peer) = (ia.pz().unwrap(), ia.evd(4 * DEPTH).unwrap(), Side::new(&ia, |b| b));
        let all = Aevd::builder(&ia).build().unwrap();
        if staged {
            evd.set_aggregate(Some(&all)).unwrap();
        }
        let ended = |receives: usize| {
            let ep = pz.ep(&evd).depth(DEPTH, DEPTH).build().unwrap();
            let queued = evd.queued();
            for _ in 0..receives {
                ep.post_recv(pz.buffer(1).unwrap()).unwrap();
            }
            let side = Side { pz: pz.clone(), evd: evd.clone(), ep: ep.clone() };
            connect(&ia, &side, &peer);
            ep.start_disconnect(Disconnect::Abrupt).unwrap();
            for ep in [&ep, &peer.ep] {
                ep.ended(HANG).unwrap().expect("the end of the connection");
            }
            let begin = Instant::now();
            while evd.queued() < queued + receives {
                assert!(begin.elapsed() < HANG, "{} completions", evd.queued());
                std::thread::yield_now();
            }
            peer.ep.reset().unwrap();
            ep
        };
        let stays = ended(2);
        for _ in 0..20 {
            drop(ended(DEPTH as usize));
            assert_eq!(evd.queued(), 2, "staged: {staged}");
        }
        for _ in 0..2 {
            assert_eq!(evd.poll().unwrap().map(|completion| completion.ep), Some(stays.id()));
        }
        assert!(evd.poll().unwrap().is_none(), "staged: {staged}");
        let notified = all.poll().unwrap();
        assert!(notified.is_none(), "an empty dispatcher: {notified:?}");
    }
}

/// In all four cases the error names the dispatcher, its depth, and the endpoints that fill it.
#[test]
fn an_overrun_names_the_dispatcher_and_the_remedy() {
    for (staged, wait) in [(false, false), (false, true), (true, false), (true, true)] {
        let ia = open();
        let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
        let small = ia.evd(4).unwrap();
        let ep = client.pz.ep(&small).depth(30, 20).build().unwrap();
        let client = Side { evd: small, ep, pz: client.pz.clone() };
        let all = Aevd::builder(&ia).build().unwrap();
        connect(&ia, &client, &server);
        let target = server.pz.lmr(8).remote_write().register().unwrap();
        for _ in 0..30 {
            client.ep.post(Work::write(b"1", target.remote())).unwrap();
        }
        client.ep.ended(HANG).unwrap().expect("the overrun ends it");
        if staged {
            client.evd.set_aggregate(Some(&all)).unwrap();
        }
        let begin = Instant::now();
        let error = loop {
            let taken = match wait {
                true => client.evd.wait(HANG).map(drop),
                false => client.evd.poll().map(drop),
            };
            if let Err(error) = taken {
                break error.to_string();
            }
            assert!(begin.elapsed() < HANG, "no error");
        };

        for part in ["holds 4 completions", "have 50 work requests", "make it as deep"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
