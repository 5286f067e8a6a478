//! One thread's program: the objects in its slots, their expected states, and random steps. Its endpoints
//! connect to each other, so that it knows which end ended a connection.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use itapi::{
    ConnectParams, Disconnect, Ep, EpLimits, EpState, Error, Listen, Lmr, Operation, RemoteRange,
    Result, Srq, VpStatus, Work,
};
use warpline_patience::HANG;

use super::World;
use super::dice::Dice;
use super::ledger::{Life, MESSAGE, READABLE, content};

/// More than all queues of all threads together.
pub(super) const EVD_DEPTH: u32 = 1024;
const SLOTS: usize = 4;
const QUEUES: usize = 2;
const STEPS: usize = 150;

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// Never connected, or reset.
    Idle,
    /// Connected to the endpoint in slot `peer`; `doubtful`: the connection ends, or may have ended.
    Connected {
        peer: usize,
        doubtful: bool,
    },
    Ended,
}

/// An endpoint in a slot.
struct End<'w> {
    ep: Ep,
    life: Arc<Life>,
    queue: Option<Rc<Queue<'w>>>,
    send_depth: usize,
    recv_depth: usize,
    state: State,
    /// Receives without a message of the peer for them.
    room: Cell<u32>,
}

/// A shared receive queue, which lives as long as its last endpoint.
struct Queue<'w> {
    srq: Option<Srq>,
    life: Arc<Life>,
    depth: usize,
    room: Cell<u32>,
    world: &'w World,
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        self.srq = None;
        self.world.ledger.gone(&self.life);
    }
}

impl<'w> Queue<'w> {
    fn new(world: &'w World, dice: &mut Dice) -> Self {
        let depth = 1 + dice.roll(24) as usize;
        let srq = world.pz.srq(depth as u32, 1).unwrap();
        // The provider may create a deeper queue than requested.
        let depth = srq.info().unwrap().depth as usize;
        Self { srq: Some(srq), life: Life::new(None), depth, room: Cell::new(0), world }
    }
}

impl End<'_> {
    fn room(&self) -> &Cell<u32> {
        self.queue.as_ref().map_or(&self.room, |queue| &queue.room)
    }

    fn receive(&self, world: &World, quiet: bool) -> Result<()> {
        let holder = self.holder(true);
        let buffer = world.ledger.buffer(&world.pz, holder.0);
        let key = (buffer.capacity(), Operation::Recv, true);
        let srq = self.queue.as_ref().and_then(|queue| queue.srq.as_ref());
        world.ledger.post(holder, key, || match (srq, quiet) {
            (None, false) => self.ep.post_recv(buffer),
            (None, true) => self.ep.post_recv_quiet(buffer),
            (Some(srq), false) => srq.post_recv(buffer),
            (Some(srq), true) => srq.post_recv_quiet(buffer),
        })?;
        self.room().update(|room| room + 1);
        Ok(())
    }

    /// The owner of the requests, and how many fit.
    fn holder(&self, receive: bool) -> (&Arc<Life>, usize) {
        match &self.queue {
            Some(queue) if receive => (&queue.life, queue.depth),
            _ if receive => (&self.life, self.recv_depth),
            _ => (&self.life, self.send_depth),
        }
    }

    /// Asserts that a refusal for another reason than a full queue happens only without a connection.
    fn check_refused(&self, receive: bool, error: &Error) {
        let free = matches!(error, Error::Post { status: VpStatus::TooManyWrs, .. })
            || match self.state {
                State::Idle => !receive,
                State::Connected { doubtful, .. } => doubtful,
                State::Ended => false,
            };
        assert!(free, "{:?} as {:?}: {error}", self.ep, self.state);
    }
}

pub(super) struct Program<'w> {
    world: &'w World,
    dice: Dice,
    listen: Listen,
    region: Lmr,
    ends: [Option<End<'w>>; SLOTS],
    queues: [Option<Rc<Queue<'w>>>; QUEUES],
    links: u64,
}

/// Memory that peers read, then a cell that each slot may write.
fn region(world: &World) -> Lmr {
    let octets = MESSAGE * (1 + SLOTS);
    let region = world.pz.lmr(octets).remote_read().remote_write().register().unwrap();
    region.write_at(0, &content(READABLE)).unwrap();
    region
}

impl<'w> Program<'w> {
    pub(super) fn new(world: &'w World, dice: Dice) -> Self {
        let listen = world.ia.listen("127.0.0.1:0").unwrap();
        let (ends, queues) = Default::default();
        Self { world, dice, listen, region: region(world), ends, queues, links: 0 }
    }

    pub(super) fn run(mut self) {
        for _ in 0..STEPS {
            assert!(!self.world.failed.load(Ordering::Acquire), "another thread failed");
            let at = self.dice.roll(SLOTS as u64) as usize;
            match self.ends[at] {
                None => self.create(at),
                Some(_) => self.step(at),
            }
        }
        for at in 0..SLOTS {
            if self.ends[at].is_some() && self.dice.once_in(2) {
                self.end(at);
                if self.end_at(at).state == State::Ended {
                    self.until_completed(at);
                }
            }
        }
        (0..SLOTS).for_each(|at| self.destroy(at));
    }

    fn step(&mut self, at: usize) {
        match self.dice.roll(20) {
            0 => self.destroy(at),
            1 => self.renew_queue(),
            2 => self.resize(),
            3 => self.deepen(at),
            4 => self.leave_while_connecting(at),
            5 => self.fill(at),
            6 => self.renew_region(),
            7 => self.end(at),
            8..=11 => self.go_on(at),
            _ => self.burst(at),
        }
    }

    fn end_at(&self, at: usize) -> &End<'w> {
        self.ends[at].as_ref().unwrap()
    }

    fn set(&mut self, at: usize, state: State) {
        self.ends[at].as_mut().unwrap().state = state;
    }

    fn create(&mut self, at: usize) {
        let world = self.world;
        let evd = |roll| &world.evds[roll as usize];
        let (send, recv) = (evd(self.dice.roll(2)), evd(self.dice.roll(2)));
        let [send_depth, recv_depth] = [(); 2].map(|()| 1 + self.dice.roll(16) as u32);
        let queue = self.queues[self.dice.roll(QUEUES as u64) as usize].clone();
        let queue = queue.filter(|_| self.dice.once_in(2));
        let mut builder = world.pz.ep(send).recv_evd(recv).depth(send_depth, recv_depth);
        if let Some(srq) = queue.as_ref().and_then(|queue| queue.srq.as_ref()) {
            builder = builder.srq(srq);
        }
        let ep = builder.build().unwrap();
        let life = Life::new(Some(ep.id()));
        let (send_depth, recv_depth) = (send_depth as usize, recv_depth as usize);
        let (state, room) = (State::Idle, Cell::new(0));
        self.ends[at] = Some(End { ep, life, queue, send_depth, recv_depth, state, room });
    }

    fn destroy(&mut self, at: usize) {
        let Some(End { ep, life, queue, state, .. }) = self.ends[at].take() else { return };
        drop(ep);
        self.world.ledger.gone(&life);
        drop(queue);
        if let State::Connected { peer, .. } = state {
            self.await_end(peer);
        }
    }

    /// Replaces a shared receive queue that no endpoint uses.
    fn renew_queue(&mut self) {
        let at = self.dice.roll(QUEUES as u64) as usize;
        self.queues[at] = None;
        self.queues[at] = Some(Rc::new(Queue::new(self.world, &mut self.dice)));
    }

    fn resize(&mut self) {
        let depth = EVD_DEPTH + self.dice.roll(1024) as u32;
        let evd = &self.world.evds[self.dice.roll(2) as usize];
        assert!(evd.resize(depth).unwrap() >= depth);
    }

    fn deepen(&mut self, at: usize) {
        let more = self.dice.roll(4) as usize;
        let end = self.ends[at].as_mut().unwrap();
        let empty = [true, false].map(|receives| end.life.open(receives).1) == [0, 0];
        if end.state == State::Idle && end.queue.is_none() && empty && end.recv_depth < 32 {
            end.send_depth += more;
            end.recv_depth += more;
            let (send, recv) = (Some(end.send_depth as u32), Some(end.recv_depth as u32));
            let limits = EpLimits { send_depth: send, recv_depth: recv, ..Default::default() };
            end.ep.modify(limits).unwrap();
        }
    }

    fn leave_while_connecting(&mut self, at: usize) {
        let end = self.end_at(at);
        if end.state == State::Idle {
            let params = ConnectParams::new(self.listen.address());
            end.ep.start_connect(params).unwrap();
            self.destroy(at);
        }
    }

    /// Replaces a region while no peer can use it.
    fn renew_region(&mut self) {
        let connected = |end: &End<'_>| matches!(end.state, State::Connected { .. });
        if !self.ends.iter().flatten().any(connected) {
            self.region = region(self.world);
        }
    }

    /// One step of a connection's life.
    fn go_on(&mut self, at: usize) {
        let state = self.end_at(at).state;
        match state {
            State::Idle => {
                let idle = |other: &usize| {
                    let end = self.ends[*other].as_ref();
                    *other != at && end.is_some_and(|end| end.state == State::Idle)
                };
                if let Some(peer) = (0..SLOTS).find(idle) {
                    self.connect(at, peer);
                }
            }
            State::Connected { .. } if self.dice.once_in(3) => self.end(at),
            State::Connected { .. } => self.burst(at),
            State::Ended => self.reset(at),
        }
    }

    fn connect(&mut self, at: usize, peer: usize) {
        self.links += 1;
        let name = self.links.to_be_bytes();
        let (near, far) = (&self.end_at(at).ep, &self.end_at(peer).ep);
        let listen = &self.listen;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    let request = listen.wait(HANG).unwrap().expect("waited for a request");
                    // Other requests are of endpoints that gave up.
                    if request.private_data() == name {
                        return request.accept(far, b"").unwrap();
                    }
                }
            });
            near.connect(listen.address(), &name).unwrap();
        });
        self.set(at, State::Connected { peer, doubtful: false });
        self.set(peer, State::Connected { peer: at, doubtful: false });
    }

    fn end(&mut self, at: usize) {
        let State::Connected { peer, doubtful } = self.end_at(at).state else { return };
        let how = [Disconnect::Graceful, Disconnect::Abrupt][self.dice.roll(2) as usize];
        let ended = self.end_at(at).ep.start_disconnect(how);
        assert!(doubtful || ended.is_ok(), "{:?}: {ended:?}", self.end_at(at).ep);
        self.doubt(at, peer);
        for end in [at, peer] {
            if self.dice.once_in(2) {
                self.burst(end);
            }
        }
        self.await_end(at);
        self.await_end(peer);
    }

    fn doubt(&mut self, at: usize, peer: usize) {
        self.set(at, State::Connected { peer, doubtful: true });
        self.set(peer, State::Connected { peer: at, doubtful: true });
    }

    fn await_end(&mut self, at: usize) {
        let ep = &self.end_at(at).ep;
        let end = ep.ended(HANG).unwrap();
        end.unwrap_or_else(|| panic!("waited {HANG:?} for the end of {ep:?}"));
        self.set(at, State::Ended);
    }

    /// Its connection has ended: waits until all requests have completed.
    fn until_completed(&self, at: usize) {
        let End { ep, life, .. } = self.end_at(at);
        let begin = Instant::now();
        loop {
            let missing = life.missing();
            if missing.is_empty() {
                return;
            }
            assert!(!self.world.failed.load(Ordering::Acquire), "another thread failed");
            assert!(begin.elapsed() < HANG, "waited {HANG:?} for {missing:?} of {ep:?}");
            std::thread::yield_now();
        }
    }

    fn reset(&mut self, at: usize) {
        if self.dice.once_in(2) {
            self.until_completed(at);
        }
        let end = self.end_at(at);
        end.ep.reset().unwrap();
        assert_eq!(end.ep.state(), EpState::Unconnected);
        end.life.end_stream();
        end.room.set(0);
        self.set(at, State::Idle);
    }

    fn burst(&mut self, at: usize) {
        for _ in 0..1 + self.dice.roll(8) {
            if self.dice.once_in(2) {
                let (end, quiet) = (self.end_at(at), self.dice.clone().once_in(2));
                let posted = end.receive(self.world, quiet);
                posted.unwrap_or_else(|error| end.check_refused(true, &error));
            } else {
                self.send(at);
            }
        }
    }

    /// Posts random work to the send queue.
    fn send(&mut self, at: usize) {
        let mut dice = self.dice.split();
        let state = self.end_at(at).state;
        let kind = match (dice.roll(4), state) {
            (0, _) => Operation::Read,
            (1, _) => Operation::Write,
            // Without a receive at the peer the connection ends; do that seldom.
            (_, State::Connected { peer, .. }) if self.end_at(peer).room().get() == 0 => {
                if dice.once_in(8) {
                    self.doubt(at, peer);
                    Operation::Send
                } else {
                    Operation::Write
                }
            }
            _ => Operation::Send,
        };
        let to = if let State::Connected { peer, .. } = state { peer } else { at };
        let posted = self.post(at, to, kind, dice);
        let end = self.end_at(at);
        match posted {
            Ok(()) => {
                assert_ne!(state, State::Idle, "{:?} took a {kind} unconnected", end.ep);
                if kind == Operation::Send {
                    self.end_at(to).room().update(|room| room.saturating_sub(1));
                }
            }
            Err(error) => end.check_refused(false, &error),
        }
    }

    fn remote(&self, from: usize, octets: usize) -> RemoteRange {
        let (from, octets) = ((from * MESSAGE) as u64, octets as u64);
        self.region.remote().slice(from..from + octets).unwrap()
    }

    fn post(&self, at: usize, to: usize, kind: Operation, mut dice: Dice) -> Result<()> {
        let (ep, holder) = (&self.end_at(at).ep, self.end_at(at).holder(false));
        let ledger = &self.world.ledger;
        let mut buffer = ledger.buffer(&self.world.pz, holder.0);
        let key = buffer.capacity();
        let work = match kind {
            Operation::Read => Work::read(self.remote(0, content(READABLE).len()), buffer),
            Operation::Write => {
                buffer.fill(&content(key as u64)).unwrap();
                Work::write(buffer, self.remote(1 + at, MESSAGE))
            }
            _ => {
                buffer.fill(&ledger.message(self.end_at(to).ep.id())).unwrap();
                Work::send(buffer)
            }
        };
        let flags: [fn(_) -> _; 6] = [
            Work::unsignalled,
            Work::quiet,
            Work::coalesce,
            Work::read_fence,
            Work::local_fence,
            Work::solicited,
        ];
        let signalled = !dice.once_in(3);
        let chosen = |(n, _): &(usize, _)| if *n == 0 { !signalled } else { dice.once_in(6) };
        let chosen = flags.into_iter().enumerate().filter(chosen);
        let work = chosen.fold(work, |work, (_, flag)| flag(work));
        ledger.post(holder, (key, kind, signalled), || ep.post(work))
    }

    /// Posts until a queue is full, while nothing is taken, and compares with its depth.
    fn fill(&mut self, at: usize) {
        let (mut dice, world, end) = (self.dice.split(), self.world, self.end_at(at));
        let receives = end.queue.is_none() && (end.state == State::Idle || dice.once_in(2));
        if !receives && !matches!(end.state, State::Connected { doubtful: false, .. }) {
            return;
        }
        let depth = if receives { end.recv_depth } else { end.send_depth };
        world.ledger.calmly(|| {
            let mut post = || match receives {
                true => end.receive(world, false),
                false => self.post(at, at, Operation::Write, dice.split()),
            };
            let refused = (0..=depth).find_map(|_| post().err());
            let Some(error) = refused else { panic!("{:?} took more than {depth}", end.ep) };
            end.check_refused(receives, &error);
            let (open, _) = end.life.open(receives);
            assert!(open <= depth, "{:?} holds {open} of {depth}", end.ep);
        });
    }
}
