//! Eight threads post, poll, register, connect and disconnect on two RNICs: no completion is lost,
//! none comes twice, nothing hangs.
//!
//! Runs for 10 seconds, or for `WARPLINE_STRESS_SECONDS`; `WARPLINE_STRESS_SEED` repeats a run's
//! choices (not its interleaving).
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::*;
use vp_api::*;

const SINK: usize = 256 << 10;

/// Choices that a seed repeats (Marsaglia's xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What was posted and has not completed.
#[derive(Default)]
struct Ledger {
    open: Mutex<Open>,
    closed: Condvar,
    ids: AtomicU64,
    completed: AtomicU64,
}

#[derive(Default)]
struct Open {
    posted: HashMap<u64, Posted>,
    /// Completions that a session waits for.
    awaited: HashMap<u64, usize>,
}

#[derive(Clone, Copy)]
struct Posted {
    session: u64,
    /// An unsignalled request: its success is not reported.
    silent: bool,
}

impl Ledger {
    fn open(&self, session: u64, silent: bool) -> u64 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock().unwrap();
        open.posted.insert(id, Posted { session, silent });
        if !silent {
            *open.awaited.entry(session).or_default() += 1;
        }
        id
    }

    /// Removes a work request from the list; once.
    fn close(&self, id: u64) -> Posted {
        let mut open = self.open.lock().unwrap();
        let posted = open.posted.remove(&id);
        let posted = posted.expect("a completion of nothing posted, or a second one");
        if let Some(left) = open.awaited.get_mut(&posted.session)
            && !posted.silent
        {
            *left -= 1;
        }
        self.closed.notify_all();
        posted
    }

    fn complete(&self, completion: &WorkCompletion) {
        let posted = self.close(completion.wr_id);
        assert!(!(posted.silent && completion.status == WcStatus::Success), "{completion:?}");
        self.completed.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until everything of a session has completed; `drive` makes progress meanwhile.
    fn settle(&self, session: u64, drive: impl Fn()) {
        let begin = Instant::now();
        loop {
            let open = self.open.lock().unwrap();
            let left = open.awaited.get(&session).copied().unwrap_or(0);
            if left == 0 {
                return;
            }
            assert!(begin.elapsed() < HANG, "{left} work requests never completed");
            drop(self.closed.wait_timeout(open, Duration::from_millis(1)).unwrap());
            drive();
        }
    }

    /// The session's QPs were destroyed: what has not completed yet may never complete.
    fn abandon(&self, session: u64) {
        self.open.lock().unwrap().awaited.remove(&session);
    }
}

fn drain(cq: &dyn Cq, ledger: &Ledger) -> usize {
    let mut out = [WorkCompletion::BLANK; 16];
    let count = cq.poll(&mut out).unwrap();
    out[..count].iter().for_each(|completion| ledger.complete(completion));
    count
}

/// One of the two sides: an RNIC, and a CQ that all its QPs share.
struct Side {
    rnic: Arc<dyn Rnic>,
    pd: PdId,
    shared: Arc<dyn Cq>,
}

impl Side {
    fn new() -> Self {
        let rnic = open();
        let pd = rnic.alloc_pd().unwrap();
        let shared = rnic.create_cq(&CqInit { depth: 1 << 16, handler: None }).unwrap();
        Self { rnic, pd, shared }
    }

    fn region(&self, buffer: &Arc<Buffer>) -> Stag {
        let init = MrInit {
            pd: self.pd,
            range: buffer.range(),
            addressing: Addressing::ZeroBased,
            access: Access::LOCAL | Access::REMOTE | Access::BIND,
            key: 3,
            pin: false,
        };
        self.rnic.register_mr(&init).unwrap()
    }
}

/// One QP of a session, and the memory that it uses.
struct Half<'a> {
    side: &'a Side,
    qp: Arc<dyn Qp>,
    stag: Stag,
    registered: Cell<bool>,
    _buffer: Arc<Buffer>,
}

impl<'a> Half<'a> {
    fn new(side: &'a Side, cq: CqId) -> Self {
        let mut init = QpInit::new(side.pd, cq, side.shared.id());
        (init.send_depth, init.recv_depth) = (32, 64);
        let buffer = Buffer::pattern(SINK, 7);
        let qp = side.rnic.create_qp(&init).unwrap();
        let registered = Cell::new(true);
        Self { side, qp, stag: side.region(&buffer), registered, _buffer: buffer }
    }

    fn receive(&self, ledger: &Ledger, session: u64) {
        let wr_id = ledger.open(session, false);
        let sge = Sge { stag: self.stag, len: 4096, to: 0 };
        if self.qp.post_recv(&[RecvWr { wr_id, sgl: &[sge] }]).is_err() {
            ledger.close(wr_id);
        }
    }

    fn send(&self, other: &Half<'_>, ledger: &Ledger, session: u64, dice: &mut Dice) {
        let len = [0, 8, 100, 4096][dice.roll(4) as usize];
        let large = [8, 4096, SINK as u32][dice.roll(3) as usize];
        let remote = Remote { stag: other.stag, to: 0 };
        let (op, len) = match dice.roll(6) {
            0 | 1 => (SEND, len),
            2 => (SendOp::Write { remote }, large),
            3 => (SendOp::Read { remote, invalidate_sink: false }, large),
            4 => (SendOp::Atomic { remote, op: AtomicOp::FetchAdd { add: 1, mask: 0 } }, 8),
            _ => (SendOp::Write { remote }, 64),
        };
        let silent = dice.roll(4) == 0;
        let flags = if silent { SendFlags::empty() } else { SendFlags::SIGNALED };
        let wr_id = ledger.open(session, silent);
        let sgl = [Sge { stag: self.stag, len, to: 0 }];
        let wr = SendWr { wr_id, op, data: Data::Sgl(&sgl), flags };
        if self.qp.post_send(&[wr]).is_err() {
            ledger.close(wr_id);
        }
    }

    /// Brings the QP to an end in which everything is flushed.
    fn finish(&self) {
        let begin = Instant::now();
        loop {
            match self.qp.query().unwrap().state {
                QpState::Error => return,
                QpState::Idle | QpState::Rts => {
                    let _ = self.qp.modify(QpChange::Error);
                }
                QpState::Closing | QpState::Terminate => std::thread::yield_now(),
            }
            assert!(begin.elapsed() < HANG, "the queue pair never ends");
        }
    }

    /// Once: the index may be reused afterwards.
    fn deregister(&self) {
        if self.registered.replace(false) {
            self.side.rnic.dealloc_stag(self.stag).unwrap();
        }
    }

    fn destroy(&self) {
        self.side.rnic.destroy_qp(self.qp.id()).unwrap();
    }
}

fn connect_halves(near: &Half<'_>, far: &Half<'_>, dice: &mut Dice) {
    let (a, b) = sockets();
    let crc = dice.roll(2) == 0;
    let fpdu = [FpduSize::Emss, FpduSize::Octets(1400)][dice.roll(2) as usize];
    let llp = |socket: std::net::TcpStream, role| {
        let mut params = StreamParams::new(role);
        params.crc = crc;
        params.fpdu = fpdu;
        params.rtr = Some(Rtr::Write);
        params.close_timeout = Duration::from_millis(200);
        let (received, last_message) = (Vec::new(), Vec::new());
        QpChange::Rts(Box::new(LlpStream {
            socket: socket.into(),
            received,
            last_message,
            params,
            local: None,
        }))
    };
    far.qp.modify(llp(b, Role::Responder)).unwrap();
    near.qp.modify(llp(a, Role::Initiator)).unwrap();
}

/// A connection from its beginning to one of the ends.
fn session(sides: (&Side, &Side), ledger: &Ledger, number: u64, dice: &mut Dice) {
    let own = sides.0.rnic.create_cq(&CqInit { depth: 4096, handler: None }).unwrap();
    let near = Half::new(sides.0, own.id());
    let far = Half::new(sides.1, sides.1.shared.id());
    connect_halves(&near, &far, dice);
    for _ in 0..dice.roll(60) {
        for (half, other) in [(&near, &far), (&far, &near)] {
            half.receive(ledger, number);
            half.send(other, ledger, number, dice);
        }
        if dice.roll(3) == 0 {
            drain(&*own, ledger);
        }
        if dice.roll(40) == 0 {
            far.deregister();
        }
    }
    if dice.roll(8) == 0 {
        near.destroy();
        far.destroy();
        ledger.abandon(number);
    } else {
        let change = [QpChange::Closing, QpChange::Terminate, QpChange::Error];
        let change = change.into_iter().nth(dice.roll(3) as usize).unwrap();
        let _ = near.qp.modify(change);
        near.finish();
        far.finish();
        ledger.settle(number, || {
            drain(&*own, ledger);
        });
        near.destroy();
        far.destroy();
    }
    while drain(&*own, ledger) != 0 {}
    sides.0.rnic.destroy_cq(own.id()).unwrap();
    near.deregister();
    far.deregister();
}

/// Registers, shares and deregisters regions as fast as it can; binds no window.
fn churn(side: &Side, stop: &AtomicBool, dice: &mut Dice) {
    let buffer = Buffer::new(4096);
    let mut held = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if held.len() < 100 && dice.roll(2) == 0 {
            held.push(side.region(&buffer));
        } else if !held.is_empty() {
            let at = dice.roll(held.len() as u64) as usize;
            side.rnic.dealloc_stag(held.swap_remove(at)).unwrap();
        }
        if dice.roll(64) == 0 {
            std::thread::yield_now();
        }
    }
    held.into_iter().for_each(|stag| side.rnic.dealloc_stag(stag).unwrap());
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

// [VERBS-11] [VERBS-16] [VERBS-18] [VERBS-20]
#[test]
fn every_work_request_completes_once() {
    let seconds = number("WARPLINE_STRESS_SECONDS", 10);
    let seed = number("WARPLINE_STRESS_SEED", 0x5eed_0001);
    let sides = (Side::new(), Side::new());
    let ledger = Ledger::default();
    let (sessions, stop, quiet) =
        (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (sides, ledger, sessions, stop) = (&sides, &ledger, &sessions, &stop);
                scope.spawn(move || {
                    let mut dice = Dice(seed.wrapping_mul(worker + 1) | 1);
                    while !stop.load(Ordering::Relaxed) {
                        let number = sessions.fetch_add(1, Ordering::Relaxed);
                        let sides = if worker % 2 == 0 {
                            (&sides.0, &sides.1)
                        } else {
                            (&sides.1, &sides.0)
                        };
                        session(sides, ledger, number, &mut dice);
                    }
                })
            })
            .collect();
        for (i, side) in [&sides.0, &sides.1].into_iter().enumerate() {
            let (ledger, stop, quiet) = (&ledger, &stop, &quiet);
            scope.spawn(move || {
                while !quiet.load(Ordering::Relaxed) {
                    if drain(&*side.shared, ledger) == 0 {
                        let spin = Duration::from_micros(50 * i as u64);
                        side.shared.wait(spin, Some(Duration::from_millis(20))).unwrap();
                    }
                }
                while drain(&*side.shared, ledger) != 0 {}
            });
            scope.spawn(move || churn(side, stop, &mut Dice(seed ^ (i as u64 + 99))));
        }
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(seconds)
            && !workers.iter().any(|w| w.is_finished())
        {
            std::thread::park_timeout(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        let panicked = warpline_patience::within("the sessions under way to end", || {
            workers.into_iter().filter_map(|worker| worker.join().err()).next()
        });
        quiet.store(true, Ordering::Relaxed);
        if let Some(panic) = panicked {
            std::panic::resume_unwind(panic);
        }
    });
    let open = ledger.open.into_inner().unwrap();
    assert!(open.awaited.values().all(|left| *left == 0));
    let (sessions, completed) = (sessions.into_inner(), ledger.completed.into_inner());
    println!("{sessions} connections, {completed} completions in {seconds} s, seed {seed}");
    assert!(sessions > 4 && completed > 0);
}
