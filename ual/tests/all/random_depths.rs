//! A dispatcher as deep as the sum of its endpoints' depths never overruns, however it hands out its
//! completions, and every posted request completes once: random programs make endpoints of random depths
//! in shared dispatchers that they fill to the last entry, connect, post signalled and silent requests, end
//! in every way, reset and close, and seldom take completions.
//!
//! Runs the kept seeds, then new ones, for some seconds or for `WARPLINE_STRESS_SECONDS`;
//! `WARPLINE_UAL_DEPTHS_SEED` repeats the choices of one (not what the sockets do meanwhile).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use ual::vp_api::{
    Data, QpId, RecvWr, Remote, SendFlags, SendOp, SendWr, Stag, VpStatus, WcOpcode, WorkCompletion,
};
use ual::{
    AcceptParams, ConnEvent, ConnectParams, Disconnect, Ep, EpInit, EpState, Evd, EvdInit, Event,
    Listen, NOTIFY, Stream,
};
use warpline_patience::until;

use crate::common::{LOCALHOST, Side, policy};

const KEPT: [u64; 3] = [0x1, 0x2a, 0xfeed_5eed];
const SLOTS: usize = 6;
const STEPS: usize = 150;

/// Choices that a seed repeats (Marsaglia's xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.roll(times) == 0
    }

    /// A number up to `most`, which itself is frequent.
    fn depth(&mut self, most: u32) -> u32 {
        if self.once_in(2) { most } else { 1 + self.roll(most as usize) as u32 }
    }
}

/// A dispatcher of completions, how they are taken, and its free entries.
struct Target {
    evd: Arc<Evd>,
    /// Completions may come through an aggregate dispatcher only.
    aggregate: Option<Arc<Evd>>,
    left: u32,
}

/// An endpoint in a slot: its dispatchers, with the entries that it occupies there.
struct End {
    ep: Arc<Ep>,
    send: (usize, u32),
    recv: (usize, u32),
    /// Its connection was established, or begun, and not ended.
    begun: bool,
}

/// What was posted and has not been taken.
#[derive(Default)]
struct Posted {
    sends: VecDeque<Sent>,
    /// Requests of the send queue so far.
    sent: u32,
    receives: VecDeque<u64>,
}

/// A request of the send queue.
#[derive(PartialEq, Debug)]
struct Sent {
    id: u64,
    /// Requests before it.
    order: u32,
    /// It completes visibly, whether it succeeds or not.
    signalled: bool,
}

struct Program {
    side: Side,
    listen: Arc<Listen>,
    events: Arc<Evd>,
    dice: Dice,
    targets: Vec<Target>,
    slots: [Option<End>; SLOTS],
    posted: HashMap<QpId, Posted>,
    closed: HashSet<QpId>,
    ids: u64,
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed | 1 << 63);
        let side = Side::new(policy());
        let all = EvdInit { underlying: true, ..EvdInit::new(Stream::Aggregate, 0) };
        let all = side.ia.create_evd(all).unwrap();
        let mut target = |_| {
            // A power of two: such a queue has no entry more than was asked for.
            let depth = 4 << dice.roll(4);
            let mut init = EvdInit::new(Stream::Completion, depth);
            let mode = dice.roll(4);
            init.threshold = if mode == 1 { 3 } else { 1 };
            let aggregate = (mode >= 2).then(|| all.clone());
            init.aggregate = aggregate.clone();
            let evd = side.ia.create_evd(init).unwrap();
            assert_eq!(evd.depth(), depth);
            Target { evd, aggregate, left: depth }
        };
        let targets = (0..3).map(&mut target).collect();
        let events = side.ia.create_evd(EvdInit::new(Stream::Affiliated, 4096)).unwrap();
        let listen = side.listen(LOCALHOST);
        Self {
            side,
            listen,
            events,
            dice,
            targets,
            slots: Default::default(),
            posted: HashMap::new(),
            closed: HashSet::new(),
            ids: 0,
        }
    }

    fn run(mut self) -> u64 {
        for _ in 0..STEPS {
            let at = self.dice.roll(SLOTS);
            match self.dice.roll(16) {
                _ if self.slots[at].is_none() => self.create(at),
                0 => self.close(at),
                1..=3 => self.connect(at),
                4 => self.disconnect(at),
                5 | 6 => self.reset(at),
                7 => self.take(),
                _ => self.burst(at),
            }
        }
        self.finish();
        self.ids
    }

    fn end(&mut self, at: usize) -> &mut End {
        self.slots[at].as_mut().unwrap()
    }

    /// A dispatcher, and as many of its entries as a queue is to be deep.
    fn entries(&mut self) -> Option<(usize, u32)> {
        let at = self.dice.roll(self.targets.len());
        let depth = self.dice.depth(self.targets[at].left.max(1));
        self.targets[at].left = self.targets[at].left.checked_sub(depth)?;
        Some((at, depth))
    }

    fn create(&mut self, at: usize) {
        let Some(send) = self.entries() else { return };
        let Some(recv) = self.entries() else {
            self.targets[send.0].left += send.1;
            return;
        };
        let mut init = EpInit::new(&self.targets[send.0].evd, &self.side.connection);
        init.recv_evd = self.targets[recv.0].evd.clone();
        (init.send_depth, init.recv_depth) = (send.1, recv.1);
        let ep = self.side.pz.create_ep(init).unwrap();
        self.posted.insert(ep.id(), Posted::default());
        self.slots[at] = Some(End { ep, send, recv, begun: false });
    }

    fn close(&mut self, at: usize) {
        let Some(end) = self.slots[at].take() else { return };
        end.ep.close().unwrap();
        self.closed.insert(end.ep.id());
        self.posted.remove(&end.ep.id());
        self.targets[end.send.0].left += end.send.1;
        self.targets[end.recv.0].left += end.recv.1;
    }

    /// Connects it with another that has no connection.
    fn connect(&mut self, at: usize) {
        let idle = |end: &Option<End>| {
            end.as_ref().is_some_and(|end| end.ep.state() == EpState::Unconnected)
        };
        let peer = (0..SLOTS).find(|peer| *peer != at && idle(&self.slots[*peer]));
        let Some(peer) = peer.filter(|_| idle(&self.slots[at])) else { return };
        let to = ConnectParams::new(self.listen.addresses()[0]);
        self.end(at).ep.connect(to).unwrap();
        let request = self.side.request().request;
        self.end(peer).ep.accept(request, AcceptParams::default()).unwrap();
        for end in [at, peer] {
            self.end(end).begun = true;
        }
        until("both ends to be connected, or their connection to be over", || {
            self.take_events();
            [at, peer]
                .iter()
                .all(|end| self.slots[*end].as_ref().unwrap().ep.state() >= EpState::Connected)
        });
    }

    /// Takes the queued connection events.
    fn take_events(&mut self) {
        while let Some(event) = self.side.connection.dequeue().unwrap() {
            let Event::Connection { qp, event, .. } = event else { panic!("{event:?}") };
            assert!(!self.closed.contains(&qp), "of an endpoint that is closed: {event}");
            let over = !matches!(*event, ConnEvent::Established(_));
            let mut ends = self.slots.iter_mut().flatten();
            let end = ends.find(|end| end.ep.id() == qp).unwrap();
            if over {
                assert!(std::mem::take(&mut end.begun), "ended twice: {event}");
            }
        }
    }

    fn disconnect(&mut self, at: usize) {
        let how = if self.dice.once_in(2) { Disconnect::Graceful } else { Disconnect::Abrupt };
        // Refused if it has no connection.
        let _ = self.end(at).ep.disconnect(how);
    }

    fn reset(&mut self, at: usize) {
        self.take_events();
        let end = self.end(at);
        let qp = end.ep.id();
        if end.begun {
            return;
        }
        let Ok(failed) = end.ep.reset() else { return };
        // The last ones failed, and were reported; the unsignalled ones before them succeeded, and are not reported.
        let posted = self.posted.get_mut(&qp).unwrap();
        let good = posted.sent - failed;
        posted.sends.iter_mut().for_each(|sent| sent.signalled |= sent.order >= good);
        posted.sends.retain(|sent| sent.signalled);
        until("every posted request to complete", || {
            self.take();
            let posted = &self.posted[&qp];
            posted.sends.is_empty() && posted.receives.is_empty()
        });
    }

    fn take(&mut self) {
        let at = self.dice.roll(self.targets.len());
        let Target { evd, aggregate, .. } = &self.targets[at];
        let mut taken = [WorkCompletion::BLANK; 8];
        let found = if let Some(aggregate) = aggregate.clone().filter(|_| self.dice.once_in(2)) {
            match aggregate.dequeue().unwrap() {
                Some(Event::Completion(completion)) => {
                    taken[0] = completion;
                    1
                }
                None => 0,
                other => panic!("{other:?}"),
            }
        } else {
            evd.poll(&mut taken[..1 + self.dice.roll(8)]).unwrap()
        };
        taken[..found].iter().for_each(|completion| self.came(completion));
    }

    fn came(&mut self, wc: &WorkCompletion) {
        let posted = self.posted.get_mut(&wc.qp);
        let posted = posted.unwrap_or_else(|| panic!("of an endpoint that is closed: {wc:?}"));
        let id = wc.wr_id & !NOTIFY;
        if wc.opcode == WcOpcode::Recv {
            assert_eq!(posted.receives.pop_front(), Some(id), "{wc:?}");
            return;
        }
        let at = posted.sends.iter().position(|sent| sent.id == id);
        let at = at.unwrap_or_else(|| panic!("came twice, or late: {wc:?}"));
        let passed = posted.sends.drain(..=at).rev().skip(1).find(|sent| sent.signalled);
        assert_eq!(passed, None, "passed by {wc:?}");
    }

    fn burst(&mut self, at: usize) {
        let most = if self.dice.once_in(2) { 100 } else { 4 };
        let receives = self.dice.once_in(2);
        for _ in 0..=self.dice.roll(most) {
            let posted = if receives { self.receive(at) } else { self.send(at) };
            match posted {
                Ok(()) => {}
                Err(VpStatus::TooManyWrs | VpStatus::InvalidState) => return,
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    /// The id of the next request; its completion counts, or not.
    fn id(&mut self) -> (u64, u64) {
        self.ids += 1;
        let notify = if self.dice.once_in(2) { NOTIFY } else { 0 };
        (self.ids, self.ids | notify)
    }

    fn send(&mut self, at: usize) -> Result<(), VpStatus> {
        let ((id, wr_id), signalled) = (self.id(), !self.dice.once_in(3));
        let op = match self.dice.roll(4) {
            0 => SendOp::Send { solicited: false, invalidate: None },
            _ => SendOp::Write { remote: Remote { stag: Stag(0), to: 0 } },
        };
        let flags = if signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let end = self.slots[at].as_ref().unwrap();
        let wr = SendWr { wr_id, op, data: Data::Sgl(&[]), flags };
        let sent = end.ep.post_send(&[wr]).map_err(|failure| failure.status);
        let posted = self.posted.get_mut(&end.ep.id()).unwrap();
        match sent {
            Ok(()) => {
                posted.sends.push_back(Sent { id, order: posted.sent, signalled });
                posted.sent += 1;
            }
            // A completed request has left the queue, as have unsignalled ones before it.
            Err(VpStatus::TooManyWrs) => assert!(posted.sends.len() >= end.send.1 as usize),
            Err(_) => {}
        }
        sent
    }

    fn receive(&mut self, at: usize) -> Result<(), VpStatus> {
        let (id, wr_id) = self.id();
        let end = self.slots[at].as_ref().unwrap();
        let posted =
            end.ep.post_recv(&[RecvWr { wr_id, sgl: &[] }]).map_err(|failure| failure.status);
        let open = &mut self.posted.get_mut(&end.ep.id()).unwrap().receives;
        match posted {
            Ok(()) => open.push_back(id),
            Err(_) => assert!(open.len() >= end.recv.1 as usize),
        }
        posted
    }

    /// Ends everything: every request has completed once, nothing else came, and nothing was lost.
    fn finish(&mut self) {
        for at in 0..SLOTS {
            let Some(end) = &self.slots[at] else { continue };
            let ep = end.ep.clone();
            if ep.state() != EpState::Unconnected {
                let _ = ep.disconnect(Disconnect::Abrupt);
                until("the end to be reported, and the endpoint to be reset", || {
                    self.reset(at);
                    ep.state() == EpState::Unconnected
                });
            }
            self.close(at);
        }
        for Target { evd, left, .. } in &self.targets {
            assert_eq!((evd.poll(&mut [WorkCompletion::BLANK]).unwrap(), evd.queued()), (0, 0));
            assert!(!evd.info().overflowed);
            assert_eq!(*left, evd.depth());
        }
        self.take_events();
        // Events of closed endpoints were removed; one of an overrun would still be queued.
        assert_eq!((self.events.queued(), self.side.connection.queued()), (0, 0));
    }
}

#[test]
fn a_dispatcher_as_deep_as_its_endpoints_never_overruns() {
    let (mut runs, mut posted) = (0, 0);
    warpline_patience::seeds::play("WARPLINE_UAL_DEPTHS_SEED", &KEPT, |seed| {
        println!("WARPLINE_UAL_DEPTHS_SEED={seed:#x}");
        posted += Program::new(seed).run();
        runs += 1;
    });
    println!("{runs} runs, {posted} requests");
}
