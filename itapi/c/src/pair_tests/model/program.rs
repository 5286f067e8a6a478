//! One thread's program: the objects in its slots, their expected state, their creation and destruction. Its
//! endpoints connect to each other, so that it knows of every connection which end ended it.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use super::super::*;
use super::World;
use super::dice::Dice;
use super::ledger::{Life, MESSAGE, READABLE, content};
use crate::srq::{it_srq_create, it_srq_free, it_srq_query};

pub(super) const SLOTS: usize = 4;
pub(super) const QUEUES: usize = 2;
const STEPS: usize = 150;
/// Freed handles that are tried again.
const STALE: usize = 64;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum State {
    /// Never connected, or reset.
    Idle,
    /// To the endpoint in slot `peer`; `doubtful`: it ends, or may have ended.
    Connected {
        peer: usize,
        doubtful: bool,
    },
    Ended,
}

/// An endpoint in a slot.
pub(super) struct End<'w> {
    pub(super) ep: it_ep_handle_t,
    pub(super) life: Arc<Life>,
    pub(super) queue: Option<Rc<Queue<'w>>>,
    pub(super) send_depth: usize,
    pub(super) recv_depth: usize,
    pub(super) state: State,
    /// Receives that no message of the peer was sent for.
    room: Cell<u32>,
}

/// A shared receive queue, which lives as long as its last endpoint.
pub(super) struct Queue<'w> {
    pub(super) srq: it_srq_handle_t,
    pub(super) life: Arc<Life>,
    pub(super) depth: usize,
    room: Cell<u32>,
    world: &'w World,
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        let freed = it_srq_free(self.srq);
        if !std::thread::panicking() {
            assert_eq!(freed, IT_SUCCESS, "{}", last());
            assert_eq!(it_srq_free(self.srq), IT_ERR_INVALID_SRQ);
        }
        self.world.ledger.gone(&self.life);
    }
}

impl<'w> Queue<'w> {
    fn new(world: &'w World, dice: &mut Dice) -> Self {
        let depth = 1 + dice.roll(24) as usize;
        let srq = make!(it_srq_create(object::handle(world.pz), 1, depth));
        // The provider may give more than was asked for.
        let mut params = it_srq_param_t::zeroed();
        let asked = c!(it_srq_query(srq, IT_SRQ_PARAM_MAX_RECV_DTO, &raw mut params));
        assert_eq!(asked, IT_SUCCESS, "{}", last());
        let depth = params.max_recv_dtos;
        Self { srq, life: Life::new(None), depth, room: Cell::new(0), world }
    }
}

impl End<'_> {
    pub(super) fn room(&self) -> &Cell<u32> {
        self.queue.as_ref().map_or(&self.room, |queue| &queue.room)
    }

    /// Whose the requests are, and how many of them fit.
    pub(super) fn holder(&self, receive: bool) -> (&Arc<Life>, usize) {
        match &self.queue {
            Some(queue) if receive => (&queue.life, queue.depth),
            _ if receive => (&self.life, self.recv_depth),
            _ => (&self.life, self.send_depth),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.ep.addr() as u64
    }
}

pub(super) struct Program<'w> {
    pub(super) world: &'w World,
    pub(super) dice: Dice,
    conn: it_evd_handle_t,
    requests: it_evd_handle_t,
    listen: it_listen_handle_t,
    port: u16,
    pub(super) region: Memory,
    pub(super) ends: [Option<End<'w>>; SLOTS],
    queues: [Option<Rc<Queue<'w>>>; QUEUES],
    links: u64,
    /// Endpoints whose end was reported while the program waited for another event.
    ended: HashSet<u64>,
    /// Handles of endpoints that were freed.
    stale: Vec<u64>,
}

/// What peers read, then a cell for each slot to write.
fn region(world: &World) -> Memory {
    let pz = object::handle(world.pz);
    let region = Memory::new(pz, MESSAGE * (1 + SLOTS), IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL);
    for (at, octet) in content(READABLE).into_iter().enumerate() {
        c!(region.first.add(at).write_volatile(octet));
    }
    region
}

impl<'w> Program<'w> {
    pub(super) fn new(world: &'w World, dice: Dice) -> Self {
        let ia = object::handle(world.ia);
        let conn = dispatcher(ia, IT_CM_MSG_EVENT_STREAM, 64);
        let requests = dispatcher(ia, IT_CM_REQ_EVENT_STREAM, 64);
        let mut qualifier = it_conn_qual_t::zeroed();
        let listen = make!(it_listen_create(ia, 0, requests, 0, &raw mut qualifier));
        // SAFETY: plain data.
        let port = unsafe { qualifier.conn_qual.port };
        let (ends, queues, ended, stale) = Default::default();
        let region = region(world);
        Self {
            world,
            dice,
            conn,
            requests,
            listen,
            port,
            region,
            ends,
            queues,
            links: 0,
            ended,
            stale,
        }
    }

    pub(super) fn run(mut self) {
        for _ in 0..STEPS {
            self.world.check();
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
        let freed =
            [it_listen_free(self.listen), it_evd_free(self.requests), it_evd_free(self.conn)];
        assert_eq!(freed, [IT_SUCCESS; 3], "{}", last());
    }

    pub(super) fn end_at(&self, at: usize) -> &End<'w> {
        self.ends[at].as_ref().unwrap()
    }

    pub(super) fn set(&mut self, at: usize, state: State) {
        self.ends[at].as_mut().unwrap().state = state;
    }

    fn create(&mut self, at: usize) {
        let world = self.world;
        let [send_evd, recv_evd] =
            [(); 2].map(|()| object::handle(world.evds[self.dice.roll(2) as usize]));
        let [send_depth, recv_depth] = [(); 2].map(|()| 1 + self.dice.roll(16) as usize);
        let queue = self.queues[self.dice.roll(QUEUES as u64) as usize].clone();
        let queue = queue.filter(|_| self.dice.once_in(2));
        let mut asked = attributes();
        (asked.max_request_dtos, asked.max_recv_dtos) = (send_depth, recv_depth);
        let mut flags = 0;
        if let Some(queue) = &queue {
            // SAFETY: plain data.
            let mut rc = unsafe { asked.srv.rc };
            rc.srq = queue.srq;
            asked.srv.rc = rc;
            flags = IT_EP_SRQ;
        }
        let (pz, conn) = (object::handle(world.pz), self.conn);
        let ep = make!(it_ep_rc_create(pz, send_evd, recv_evd, conn, flags, &asked));
        let life = Life::new(Some(ep.addr() as u64));
        let (state, room) = (State::Idle, Cell::new(0));
        self.ends[at] = Some(End { ep, life, queue, send_depth, recv_depth, state, room });
    }

    pub(super) fn destroy(&mut self, at: usize) {
        let Some(end) = self.ends[at].take() else { return };
        assert_eq!(it_ep_free(end.ep), IT_SUCCESS, "{}", last());
        self.world.ledger.gone(&end.life);
        self.ended.remove(&end.number());
        if self.stale.len() == STALE {
            self.stale.remove(0);
        }
        self.stale.push(end.number());
        drop(end.queue);
        if let State::Connected { peer, .. } = end.state {
            self.await_end(peer);
        }
    }

    /// A freed handle is refused, whichever object has its slot now.
    pub(super) fn try_stale(&mut self) {
        let Some(last) = self.stale.len().checked_sub(1) else { return };
        let at = self.dice.roll(last as u64 + 1) as usize;
        let ep: it_ep_handle_t = object::handle(self.stale[at]);
        assert_eq!(receive(ep.cast(), &[], 0), IT_ERR_INVALID_HANDLE, "{ep:?}");
        assert_eq!(send(ep, &[], 0, NOTIFY), IT_ERR_INVALID_EP, "{ep:?}");
        assert_eq!(it_ep_reset(ep), IT_ERR_INVALID_EP, "{ep:?}");
        assert_eq!(it_ep_free(ep), IT_ERR_INVALID_EP, "{ep:?}");
    }

    /// Frees a shared receive queue, as far as no endpoint needs it, and makes another.
    pub(super) fn renew_queue(&mut self) {
        let at = self.dice.roll(QUEUES as u64) as usize;
        self.queues[at] = None;
        self.queues[at] = Some(Rc::new(Queue::new(self.world, &mut self.dice)));
    }

    /// A new region in the slot of the old, while no peer can use it.
    pub(super) fn renew_region(&mut self) {
        let connected = |end: &End<'_>| matches!(end.state, State::Connected { .. });
        if !self.ends.iter().flatten().any(connected) {
            self.region = region(self.world);
        }
    }

    fn begin_connect(&mut self, at: usize) -> [u8; 8] {
        self.links += 1;
        let name = self.links.to_be_bytes();
        let (path, qualifier) = (path(), qualifier(self.port));
        let (ep, flags) = (self.end_at(at).ep, IT_CONNECT_FLAG_TWO_WAY);
        let asked = c!(it_ep_connect(ep, &path, null(), &qualifier, flags, name.as_ptr(), 8));
        assert_eq!(asked, IT_SUCCESS, "{}", last());
        name
    }

    pub(super) fn leave_while_connecting(&mut self, at: usize) {
        if self.end_at(at).state == State::Idle {
            self.begin_connect(at);
            self.destroy(at);
        }
    }

    pub(super) fn connect(&mut self, at: usize, peer: usize) {
        let name = self.begin_connect(at);
        loop {
            // SAFETY: plain data.
            let request = unsafe { wait(self.requests).conn_req };
            if request.private_data[..8] == name {
                let accepted = c!(it_ep_accept(self.end_at(peer).ep, request.cn_est_id, null(), 0));
                assert_eq!(accepted, IT_SUCCESS, "{}", last());
                break;
            }
            // Of a destroyed endpoint; the request may be gone with it.
            c!(it_reject(request.cn_est_id, null(), 0));
        }
        let mut awaited = HashSet::from([at, peer].map(|at| self.end_at(at).number()));
        while !awaited.is_empty() {
            match self.next_event() {
                (ep, IT_CM_MSG_CONN_ESTABLISHED_EVENT) => {
                    assert!(awaited.remove(&ep), "{ep:#x} is not connecting");
                }
                (ep, other) => {
                    assert!(!awaited.contains(&ep), "{other:#x} of {ep:#x}: {}", last());
                    self.ended.insert(ep);
                }
            }
        }
        self.set(at, State::Connected { peer, doubtful: false });
        self.set(peer, State::Connected { peer: at, doubtful: false });
    }

    fn next_event(&self) -> (u64, it_event_type_t) {
        // SAFETY: plain data.
        let conn = unsafe { wait(self.conn).conn };
        (conn.ep.addr() as u64, conn.event_number)
    }

    pub(super) fn end(&mut self, at: usize) {
        let State::Connected { peer, doubtful } = self.end_at(at).state else { return };
        let ended = it_ep_disconnect(self.end_at(at).ep, null(), 0);
        assert!(doubtful || ended == IT_SUCCESS, "{}", last());
        self.doubt(at, peer);
        for end in [at, peer] {
            if self.dice.once_in(2) {
                self.burst(end);
            }
        }
        self.await_end(at);
        self.await_end(peer);
    }

    pub(super) fn doubt(&mut self, at: usize, peer: usize) {
        self.set(at, State::Connected { peer, doubtful: true });
        self.set(peer, State::Connected { peer: at, doubtful: true });
    }

    fn await_end(&mut self, at: usize) {
        let ep = self.end_at(at).number();
        while !self.ended.remove(&ep) {
            let (ep, event) = self.next_event();
            let ends = [IT_CM_MSG_CONN_DISCONNECT_EVENT, IT_CM_MSG_CONN_BROKEN_EVENT];
            assert!(ends.contains(&event), "{event:#x} of {ep:#x}");
            assert!(self.ended.insert(ep), "{ep:#x} ended twice");
        }
        self.set(at, State::Ended);
    }

    /// Its connection is over: all that was posted completes.
    pub(super) fn until_completed(&self, at: usize) {
        let End { ep, life, .. } = self.end_at(at);
        let what = format!("all completions of {ep:?}");
        warpline_patience::until(&what, || {
            self.world.check();
            life.missing().is_empty()
        });
    }

    pub(super) fn reset(&mut self, at: usize) {
        if self.dice.once_in(2) {
            self.until_completed(at);
        }
        let end = self.end_at(at);
        assert_eq!(it_ep_reset(end.ep), IT_SUCCESS, "{}", last());
        end.life.end_stream();
        end.room.set(0);
        self.set(at, State::Idle);
    }
}
