//! Waiting for completions: leaders, followers, armed notifications, interrupts; and an RNIC that
//! serves its peers while its application makes no call.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use vp_api::*;

const NO_SPIN: Duration = Duration::ZERO;

/// Receives that each end begins with.
const ROUNDS: u64 = 900;

/// Bounces a message between two ends, each driven by the thread given to it.
fn bounce(end: &End, first: bool) {
    for round in 0..500 {
        if first {
            end.post_flags(1000 + round, SEND, &[], SendFlags::empty());
            end.done(round);
        } else {
            end.done(round);
            end.post_flags(1000 + round, SEND, &[], SendFlags::empty());
        }
    }
}

fn deep(init: &mut QpInit) {
    (init.send_depth, init.recv_depth) = (1024, 1024);
}

/// Two ends that share an RNIC with others, connected to each other.
fn pair_on(rnics: (&Arc<dyn Rnic>, &Arc<dyn Rnic>)) -> (End, End) {
    let cq = || CqInit { depth: 4096, handler: None };
    let near = End::on(rnics.0.clone(), cq(), deep);
    let far = End::on(rnics.1.clone(), cq(), deep);
    // Before the peer can send.
    for round in 0..ROUNDS {
        near.recv(round, &[]);
        far.recv(round, &[]);
    }
    connect((&near, &far), &Setup::default());
    (near, far)
}

// One leader, the others followers; every pair makes progress.
#[test]
fn threads_on_one_rnic_wait_for_their_own() {
    let (left, right) = (open(), open());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (near, far) = pair_on((&left, &right));
            scope.spawn(move || bounce(&near, true));
            scope.spawn(move || bounce(&far, false));
        }
    });
}

// Both ends on one RNIC: the leader serves its own peer, too.
#[test]
fn both_ends_on_one_rnic() {
    let rnic = open();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (near, far) = pair_on((&rnic, &rnic));
            scope.spawn(move || bounce(&near, true));
            scope.spawn(move || bounce(&far, false));
        }
    });
}

#[test]
fn many_threads_wait_on_one_cq() {
    let (near, far) = pair_on((&open(), &open()));
    const MESSAGES: usize = ROUNDS as usize;
    let taken = Mutex::new(Vec::new());
    let count = AtomicUsize::new(0);
    let waiters = AtomicUsize::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while count.load(Ordering::Acquire) < MESSAGES {
                    let mut out = [WorkCompletion::BLANK; 3];
                    match far.cq.poll(&mut out).unwrap() {
                        0 => {
                            far.cq.wait(NO_SPIN, Some(HANG)).unwrap();
                        }
                        got => {
                            taken.lock().unwrap().extend(out[..got].iter().map(|wc| wc.wr_id));
                            count.fetch_add(got, Ordering::AcqRel);
                        }
                    }
                }
                waiters.fetch_sub(1, Ordering::AcqRel);
            });
        }
        scope.spawn(|| {
            for i in 0..MESSAGES as u64 {
                near.post_flags(i, SEND, &[], SendFlags::empty());
            }
        });
        // An interrupt ends only present waits; a wait that begins later needs another.
        warpline_patience::until("all messages to be taken and the waiters to end", || {
            if count.load(Ordering::Acquire) == MESSAGES {
                far.cq.interrupt();
            }
            waiters.load(Ordering::Acquire) == 0
        });
    });
    let mut taken = taken.into_inner().unwrap();
    taken.sort_unstable();
    assert!(taken.iter().copied().eq(0..MESSAGES as u64));
}

#[test]
fn time_out_and_interrupt() {
    let (near, _far) = pair(&Setup::default());
    near.cq.poll(&mut [WorkCompletion::BLANK; 4]).unwrap();
    assert!(!near.cq.wait(NO_SPIN, Some(Duration::from_millis(1))).unwrap());
    assert!(!near.cq.wait(Duration::from_millis(1), Some(Duration::from_millis(1))).unwrap());
    let other = near.rnic.create_cq(&CqInit { depth: 4, handler: None }).unwrap();
    let _guard = warpline_patience::Guard::new("three interrupted waits to end");
    let waiters = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        // A leader and followers, on two CQs.
        for cq in [&near.cq, &near.cq, &other] {
            scope.spawn(|| {
                assert!(!cq.wait(NO_SPIN, None).unwrap());
                waiters.fetch_sub(1, Ordering::AcqRel);
            });
        }
        // Interrupts before a wait begins do not count, however many there are: a thread
        // may be kept from its processor for longer.
        while waiters.load(Ordering::Acquire) != 0 {
            near.cq.interrupt();
            other.interrupt();
            std::thread::yield_now();
        }
    });
}

/// Octets that arrive restart the spin, and complete nothing here: the time-out still ends the wait.
#[test]
fn a_wait_times_out_while_its_peer_writes() {
    const LONG_SPIN: Duration = Duration::from_secs(3600);
    let (near, far) = pair(&Setup::default());
    let (source, target) = (far.region(Buffer::pattern(64, 1)), near.region(Buffer::new(64)));
    let (over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let id = written.load(Ordering::Relaxed) as u64;
                far.post(id, SendOp::Write { remote: target.remote(0) }, &[source.all()]);
                far.done(id);
                written.fetch_add(1, Ordering::Release);
            }
        });
        let _over = OnDrop(|| over.store(true, Ordering::Release));
        let _guard = warpline_patience::Guard::new("a wait with a time-out beside writes to end");
        for timeout in [1, 10, 50].map(Duration::from_millis) {
            // The writer makes progress before each wait.
            let before = written.load(Ordering::Acquire);
            warpline_patience::until("a write", || {
                near.cq.poll(&mut []).unwrap();
                written.load(Ordering::Acquire) != before
            });
            assert!(!near.cq.wait(LONG_SPIN, Some(timeout)).unwrap(), "nothing completes here");
        }
    });
}

/// Calls a function when it is dropped, also after a panic.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A thread that waits on another CQ than the one that leads.
#[test]
fn a_follower_is_woken_for_its_own_queue() {
    let (left, right) = (open(), open());
    let (near, far) = pair_on((&left, &right));
    let idle = left.create_cq(&CqInit { depth: 4, handler: None }).unwrap();
    let _guard = warpline_patience::Guard::new("a leader and a follower to end");
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!idle.wait(NO_SPIN, None).unwrap());
            done.fetch_add(1, Ordering::Release);
        });
        // After this one has waited the other one leads, until it is interrupted.
        let peer = scope.spawn(|| bounce(&far, false));
        bounce(&near, true);
        peer.join().unwrap();
        while done.load(Ordering::Acquire) == 0 {
            idle.interrupt();
            std::thread::yield_now();
        }
    });
}

/// A thread that polled continuously, and was the only one to watch its sockets, stops polling.
#[test]
fn the_engine_takes_over_from_the_last_poller() {
    let (near, far) = pair(&Setup::default());
    let source = far.region(Buffer::pattern(64, 1));
    let sink = near.region(Buffer::new(64));
    for round in 0..20 {
        (0..3000).for_each(|_| _ = far.cq.poll(&mut [WorkCompletion::BLANK]).unwrap());
        let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
        near.post(round, op, &[sink.all()]);
        near.done(round);
    }
}

/// The thread that led, while the engine's thread slept, does not wait again.
#[test]
fn the_engine_takes_over_from_the_last_waiter() {
    let (near, far) = pair(&Setup::default());
    let source = far.region(Buffer::pattern(64, 1));
    let sink = near.region(Buffer::new(64));
    let read = |wr_id| {
        let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
        near.post(wr_id, op, &[sink.all()]);
        near.done(wr_id);
    };
    let _guard = warpline_patience::Guard::new("a leader to end, and the engine to take over");
    for round in 0..5 {
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // So the engine's thread backs off, and finds the leader when it looks again.
                (0..3000).for_each(|_| _ = far.cq.poll(&mut [WorkCompletion::BLANK]).unwrap());
                assert!(!far.cq.wait(NO_SPIN, None).unwrap());
                done.fetch_add(1, Ordering::Release);
            });
            (0..40).for_each(|n| read(100 * round + n));
            while done.load(Ordering::Acquire) == 0 {
                far.cq.interrupt();
                std::thread::yield_now();
            }
        });
        (40..45).for_each(|n| read(100 * round + n));
    }
}

/// Counts notifications and passes them on.
struct Ring {
    count: AtomicUsize,
    sender: Mutex<mpsc::Sender<()>>,
}

impl CqHandler for Ring {
    fn on_completion(&self, _: CqId) {
        self.count.fetch_add(1, Ordering::AcqRel);
        let _ = self.sender.lock().unwrap().send(());
    }
}

fn armed_end() -> (End, Arc<Ring>, mpsc::Receiver<()>) {
    let (sender, receiver) = mpsc::channel();
    let ring = Arc::new(Ring { count: AtomicUsize::new(0), sender: Mutex::new(sender) });
    let cq = CqInit { depth: 4096, handler: Some(ring.clone()) };
    (End::on(open(), cq, deep), ring, receiver)
}

/// Takes all completions out of a CQ as RDMAC 8.2.5 describes: poll, arm, poll.
fn drain_and_arm(end: &End, solicited: bool, taken: &mut usize) {
    let mut out = [WorkCompletion::BLANK; 16];
    loop {
        *taken += end.cq.poll(&mut out).unwrap();
        end.cq.arm(solicited).unwrap();
        let late = end.cq.poll(&mut out).unwrap();
        *taken += late;
        if late == 0 {
            return;
        }
    }
}

// [VERBS-21]: an application that acts only on notifications misses nothing.
#[test]
fn poll_arm_poll_loses_no_wake_up() {
    let (far, ring, notified) = armed_end();
    let near = End::new(deep);
    connect((&near, &far), &Setup::default());
    const MESSAGES: usize = 1000;
    for wr_id in 0..MESSAGES as u64 {
        far.recv(wr_id, &[]);
    }
    let mut taken = 0;
    drain_and_arm(&far, false, &mut taken);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for wr_id in 0..MESSAGES as u64 {
                near.post(wr_id, SEND, &[]);
                near.done(wr_id);
            }
        });
        let bound = warpline_patience::Bound::new("notifications of all messages");
        while taken < MESSAGES {
            bound.check();
            notified.recv_timeout(HANG).unwrap();
            drain_and_arm(&far, false, &mut taken);
        }
    });
    assert_eq!(taken, MESSAGES);
    assert!(ring.count.load(Ordering::Acquire) <= MESSAGES);
}

// [VERBS-21] [RDMAP-14]: armed for solicited ones only, unsolicited messages cause no notification.
#[test]
fn solicited_events_only() {
    let (far, ring, notified) = armed_end();
    let near = End::new(deep);
    connect((&near, &far), &Setup::default());
    for wr_id in 0..21 {
        far.recv(wr_id, &[]);
    }
    far.cq.arm(true).unwrap();
    for wr_id in 0..20 {
        near.post(wr_id, SEND, &[]);
        near.done(wr_id);
    }
    near.post(20, SendOp::Send { solicited: true, invalidate: None }, &[]);
    notified.recv_timeout(HANG).unwrap();
    assert_eq!(ring.count.load(Ordering::Acquire), 1);
    for wr_id in 0..21 {
        assert_eq!(far.done(wr_id).solicited, wr_id == 20);
    }
    // An error counts as solicited.
    far.recv(30, &[]);
    far.cq.arm(true).unwrap();
    near.qp.modify(QpChange::Error).unwrap();
    notified.recv_timeout(HANG).unwrap();
    assert_eq!(far.complete().status, WcStatus::Flushed);
}

// No thread is in a call: the engine responds to reads and atomics, and delivers sends to the CQ.
#[test]
fn engine_serves_while_the_application_is_elsewhere() {
    let (near, far) = pair(&Setup::default());
    let source = far.region(Buffer::pattern(1 << 20, 1));
    let sink = near.region(Buffer::new(1 << 20));
    for wr_id in 0..20 {
        let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
        near.post(wr_id, op, &[sink.all()]);
        near.done(wr_id);
    }
    assert!(sink.buffer.read(0, 1 << 20) == source.buffer.read(0, 1 << 20));
}
