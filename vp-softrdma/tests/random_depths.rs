//! A CQ as deep as the sum of its queues' depths does not overrun, in any state: random programs make
//! queues of random depths in shared CQs that they fill to the last entry, connect, post signalled and
//! silent requests, end, reset and destroy, and seldom poll. Two threads poll beside some of them.
//!
//! Runs the kept seeds, then new ones, for some seconds or for `WARPLINE_STRESS_SECONDS`;
//! `WARPLINE_DEPTHS_SEED` repeats the choices of one (not what the sockets do meanwhile).
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::open;
use vp_api::*;

/// Seeds that found a fault, and some that cover much.
const KEPT: [u64; 4] = [0x1, 0x2a, 0xfeed_5eed, 0x0b5e_55ed_0ddb_a115];
const SLOTS: usize = 6;
const STEPS: usize = 400;

/// Choices that a seed repeats (Marsaglia's xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn roll(&mut self, sides: usize) -> usize {
        (self.next() % sides as u64) as usize
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.roll(times) == 0
    }

    /// A number up to `most`, which itself is frequent.
    fn depth(&mut self, most: u32) -> u32 {
        if self.once_in(2) { most } else { 1 + self.roll(most as usize) as u32 }
    }
}

/// Counts overruns.
#[derive(Default)]
struct Alarm(AtomicBool);

impl AsyncHandler for Alarm {
    fn on_event(&self, _: EventSource, event: AsyncEvent) {
        self.0.fetch_or(event == AsyncEvent::CqOverrun, Ordering::AcqRel);
    }
}

/// Requests of a send queue by id, and whether each is signalled.
type Sends = VecDeque<(u64, bool)>;

/// What was posted and has not been polled, by queue pair; and which were destroyed, and when.
#[derive(Default)]
struct Outstanding {
    sends: HashMap<QpId, Sends>,
    receives: HashMap<QpId, VecDeque<u64>>,
    shared: HashSet<u64>,
    gone: HashMap<QpId, u64>,
}

impl Outstanding {
    /// Records a completion; `alone`: only one thread polls.
    fn came(&mut self, wc: &WorkCompletion, begun: u64, alone: bool) {
        let gone = self.gone.get(&wc.qp);
        if let Some(gone) = gone {
            assert!(*gone > begun, "of a QP that was destroyed before: {wc:?}");
            return;
        }
        if wc.opcode != WcOpcode::Recv {
            let sends = self.sends.get_mut(&wc.qp).unwrap();
            let at = sends.iter().position(|(id, _)| *id == wc.wr_id);
            let at = at.unwrap_or_else(|| panic!("came twice, or late: {wc:?}"));
            if alone {
                let passed = sends.drain(..at).find(|(_, signalled)| *signalled);
                assert_eq!(passed, None, "passed by {wc:?}");
                sends.pop_front();
            } else {
                sends.remove(at);
            }
        } else if !self.shared.remove(&wc.wr_id) {
            let receives = self.receives.get_mut(&wc.qp).unwrap();
            let at = receives.iter().position(|id| *id == wc.wr_id);
            let at = at.unwrap_or_else(|| panic!("came twice: {wc:?}"));
            assert!(!alone || at == 0, "passed others: {wc:?}");
            receives.remove(at);
        }
    }
}

/// A shared receive queue, and the CQ where its receives complete.
struct Shared {
    srq: Arc<dyn Srq>,
    cq: usize,
    depth: u32,
    users: u32,
}

/// A queue pair in a slot.
struct Pair {
    qp: Arc<dyn Qp>,
    send: (usize, u32),
    recv: (usize, u32),
    shared: Option<usize>,
}

struct World {
    rnic: Arc<dyn Rnic>,
    pd: PdId,
    cqs: Vec<Arc<dyn Cq>>,
    outstanding: Mutex<Outstanding>,
    /// Counts destroyed QPs.
    clock: AtomicU64,
    over: AtomicBool,
    alone: bool,
}

impl World {
    fn poll(&self, cq: usize, most: usize) {
        let begun = self.clock.load(Ordering::Acquire);
        let mut out = [WorkCompletion::BLANK; 8];
        let found = self.cqs[cq].poll(&mut out[..most]).expect("a poll");
        let mut outstanding = self.outstanding.lock().unwrap();
        out[..found].iter().for_each(|wc| outstanding.came(wc, begun, self.alone));
    }

    /// Polls until the program is over.
    fn take(&self, mut dice: Dice) {
        while !self.over.load(Ordering::Acquire) {
            self.poll(dice.roll(self.cqs.len()), 1 + dice.roll(8));
            std::thread::yield_now();
        }
    }
}

struct Program<'w> {
    world: &'w World,
    dice: Dice,
    /// Free entries of each CQ, which no queue occupies.
    left: Vec<u32>,
    slots: [Option<Pair>; SLOTS],
    shared: Vec<Shared>,
    ids: u64,
}

impl Program<'_> {
    fn run(mut self) -> u64 {
        for _ in 0..STEPS {
            let at = self.dice.roll(SLOTS);
            match self.dice.roll(16) {
                _ if self.slots[at].is_none() => self.create(at),
                0 => self.destroy(at),
                1 | 2 => self.connect(at),
                3 => drop(self.pair(at).modify(QpChange::Error)),
                4 => drop(self.pair(at).modify(QpChange::Closing)),
                5 | 6 => drop(self.pair(at).modify(QpChange::Idle)),
                7 if self.world.alone => {
                    let (cq, most) = (self.dice.roll(self.left.len()), 1 + self.dice.roll(8));
                    self.world.poll(cq, most);
                }
                8 => self.share(),
                _ => self.burst(at),
            }
        }
        (0..SLOTS).for_each(|at| self.destroy(at));
        self.ids
    }

    fn pair(&self, at: usize) -> &Arc<dyn Qp> {
        &self.slots[at].as_ref().unwrap().qp
    }

    /// A CQ, and as many of its entries as a queue is to be deep.
    fn entries(&mut self) -> Option<(usize, u32)> {
        let cq = self.dice.roll(self.left.len());
        let depth = self.dice.depth(self.left[cq].max(1));
        self.left[cq] = self.left[cq].checked_sub(depth)?;
        Some((cq, depth))
    }

    fn give_back(&mut self, (cq, depth): (usize, u32)) {
        self.left[cq] += depth;
    }

    fn share(&mut self) {
        if self.shared.len() < 2
            && let Some((cq, depth)) = self.entries()
        {
            let init = SrqInit { pd: self.world.pd, depth, max_sge: 1, limit: 0 };
            let srq = self.world.rnic.create_srq(&init).unwrap();
            self.shared.push(Shared { srq, cq, depth, users: 0 });
        } else if let Some(at) = self.shared.iter().position(|shared| shared.users == 0) {
            let gone = self.shared.remove(at);
            let above = |other: &usize| *other > at;
            let users = self.slots.iter_mut().flatten().filter_map(|pair| pair.shared.as_mut());
            users.filter(|other| above(other)).for_each(|other| *other -= 1);
            self.world.rnic.destroy_srq(gone.srq.id()).unwrap();
            self.give_back((gone.cq, gone.depth));
        }
    }

    fn create(&mut self, at: usize) {
        let shared = (!self.shared.is_empty() && self.dice.once_in(3))
            .then(|| self.dice.roll(self.shared.len()));
        let Some(send) = self.entries() else { return };
        let recv = match shared {
            Some(shared) => Some((self.shared[shared].cq, 0)),
            None => self.entries(),
        };
        let Some(recv) = recv else { return self.give_back(send) };
        let id = |cq: usize| self.world.cqs[cq].id();
        let mut init = QpInit::new(self.world.pd, id(send.0), id(recv.0));
        (init.send_depth, init.recv_depth) = (send.1, recv.1.max(1));
        init.srq = shared.map(|shared| self.shared[shared].srq.id());
        let qp = self.world.rnic.create_qp(&init).unwrap();
        let mut outstanding = self.world.outstanding.lock().unwrap();
        outstanding.sends.insert(qp.id(), VecDeque::new());
        outstanding.receives.insert(qp.id(), VecDeque::new());
        drop(outstanding);
        shared.into_iter().for_each(|shared| self.shared[shared].users += 1);
        self.slots[at] = Some(Pair { qp, send, recv, shared });
    }

    fn destroy(&mut self, at: usize) {
        let Some(Pair { qp, send, recv, shared }) = self.slots[at].take() else { return };
        self.world.rnic.destroy_qp(qp.id()).unwrap();
        let now = self.world.clock.fetch_add(1, Ordering::AcqRel) + 1;
        self.world.outstanding.lock().unwrap().gone.insert(qp.id(), now);
        shared.into_iter().for_each(|shared| self.shared[shared].users -= 1);
        self.give_back(send);
        self.give_back(recv);
    }

    /// Connects it with another one that is idle.
    fn connect(&mut self, at: usize) {
        let idle = |at: &usize| {
            let qp = self.slots[*at].as_ref().map(|pair| pair.qp.query().unwrap());
            qp.is_some_and(|qp| qp.state == QpState::Idle)
        };
        let peer = (0..SLOTS).find(|peer| *peer != at && idle(peer));
        let Some(peer) = peer.filter(|_| idle(&at)) else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        for (at, socket, role) in [(peer, far, Role::Responder), (at, near, Role::Initiator)] {
            let (received, last_message) = (Vec::new(), Vec::new());
            let params = StreamParams::new(role);
            let llp =
                LlpStream { socket: socket.into(), received, last_message, params, local: None };
            // The other end may have been destroyed already.
            let _ = self.pair(at).modify(QpChange::Rts(Box::new(llp)));
        }
    }

    fn burst(&mut self, at: usize) {
        let most = if self.dice.once_in(2) { 200 } else { 4 };
        let receives = self.dice.once_in(2);
        for _ in 0..=self.dice.roll(most) {
            let posted = if receives { self.receive(at) } else { self.send(at) };
            if posted.is_err() {
                return;
            }
        }
    }

    /// Checks the result of a post to a queue of `depth`; `open` are the bounds of the number of occupied
    /// slots.
    fn check(&self, posted: Result<(), VpStatus>, depth: u32, open: (usize, usize)) {
        let depth = depth as usize;
        match posted {
            _ if !self.world.alone => {}
            Ok(()) => assert!(open.0 <= depth, "{} of {depth} are outstanding", open.0),
            Err(VpStatus::TooManyWrs) => {
                assert!(open.1 >= depth, "refused with {} of {depth}", open.1);
            }
            Err(VpStatus::InvalidState) => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    fn send(&mut self, at: usize) -> Result<(), VpStatus> {
        self.ids += 1;
        let (wr_id, signalled) = (self.ids, !self.dice.once_in(3));
        let op = match self.dice.roll(4) {
            0 => SendOp::Send { solicited: false, invalidate: None },
            _ => SendOp::Write { remote: Remote { stag: Stag(0), to: 0 } },
        };
        let flags = if signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let wr = SendWr { wr_id, op, data: Data::Sgl(&[]), flags };
        let pair = self.slots[at].as_ref().unwrap();
        // Recorded first, because it may be polled at once.
        let with = |change: &dyn Fn(&mut Sends)| {
            let mut outstanding = self.world.outstanding.lock().unwrap();
            let sends = outstanding.sends.get_mut(&pair.qp.id()).unwrap();
            change(sends);
            (sends.iter().filter(|(_, signalled)| *signalled).count(), sends.len())
        };
        let open = with(&|sends| sends.push_back((wr_id, signalled)));
        let posted = pair.qp.post_send(&[wr]).map_err(|failure| failure.status);
        let open =
            if posted.is_ok() { open } else { with(&|sends| sends.truncate(sends.len() - 1)) };
        self.check(posted, pair.send.1, open);
        posted
    }

    fn receive(&mut self, at: usize) -> Result<(), VpStatus> {
        self.ids += 1;
        let wr = RecvWr { wr_id: self.ids, sgl: &[] };
        let pair = self.slots[at].as_ref().unwrap();
        if let Some(shared) = pair.shared {
            self.world.outstanding.lock().unwrap().shared.insert(wr.wr_id);
            return self.shared[shared].srq.post_recv(&[wr]).map_err(|failure| failure.status);
        }
        let with = |change: &dyn Fn(&mut VecDeque<u64>)| {
            let mut outstanding = self.world.outstanding.lock().unwrap();
            let receives = outstanding.receives.get_mut(&pair.qp.id()).unwrap();
            change(receives);
            (receives.len(), receives.len())
        };
        let id = wr.wr_id;
        let open = with(&|receives| receives.push_back(id));
        let posted = pair.qp.post_recv(&[wr]).map_err(|failure| failure.status);
        let open = if posted.is_ok() {
            open
        } else {
            with(&|receives| receives.truncate(receives.len() - 1))
        };
        self.check(posted, pair.recv.1, open);
        posted
    }
}

/// Runs one program; returns how many requests it posted.
fn run(seed: u64) -> u64 {
    println!("WARPLINE_DEPTHS_SEED={seed:#x}");
    let mut dice = Dice(seed | 1 << 63);
    let (rnic, alarm) = (open(), Arc::new(Alarm::default()));
    rnic.set_async_handler(Some(alarm.clone()));
    // Powers of two: such CQs have no entry more than was asked for.
    let depths: Vec<u32> = (0..1 + dice.roll(3)).map(|_| 4 << dice.roll(5)).collect();
    let cq = |depth: &u32| rnic.create_cq(&CqInit { depth: *depth, handler: None }).unwrap();
    let world = World {
        pd: rnic.alloc_pd().unwrap(),
        cqs: depths.iter().map(cq).collect(),
        rnic: rnic.clone(),
        outstanding: Mutex::default(),
        clock: AtomicU64::new(0),
        over: AtomicBool::new(false),
        alone: !dice.once_in(3),
    };
    for (cq, depth) in world.cqs.iter().zip(&depths) {
        assert_eq!(cq.depth(), *depth);
    }
    let takers: Vec<_> = (0..if world.alone { 0 } else { 2 }).map(|_| Dice(dice.next())).collect();
    let program = Program {
        world: &world,
        dice,
        left: depths,
        slots: Default::default(),
        shared: Vec::new(),
        ids: 0,
    };
    let posted = std::thread::scope(|scope| {
        for dice in takers {
            scope.spawn(|| world.take(dice));
        }
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let _over = Over(&world.over);
        program.run()
    });
    assert!(!alarm.0.load(Ordering::Acquire), "a CQ was overrun");
    for cq in &world.cqs {
        assert_eq!((cq.queued(), cq.poll(&mut [WorkCompletion::BLANK])), (0, Ok(0)));
    }
    posted
}

#[test]
fn a_cq_as_deep_as_its_queues_never_overruns() {
    let (mut runs, mut posted) = (0, 0);
    warpline_patience::seeds::play("WARPLINE_DEPTHS_SEED", &KEPT, |seed| {
        posted += run(seed);
        runs += 1;
    });
    println!("{runs} runs, {posted} requests");
}
