//! The random steps of a program of the model test: what it posts, changes and closes.

use super::super::*;
use super::dice::Dice;
use super::ledger::{MESSAGE, READABLE, content};
use super::program::{End, Program, SLOTS, State};

/// Completions that wait to be polled.
const QUIET: it_dto_flags_t = IT_COMPLETION_FLAG;

impl Program<'_> {
    pub(super) fn step(&mut self, at: usize) {
        match self.dice.roll(20) {
            0 => self.destroy(at),
            1 => self.renew_queue(),
            2 => self.resize(),
            3 => self.deepen(at),
            4 => self.leave_while_connecting(at),
            5 => self.fill(at),
            6 => self.renew_region(),
            7 => self.end(at),
            8 => self.try_stale(),
            9..=12 => self.go_on(at),
            _ => self.burst(at),
        }
    }

    fn resize(&mut self) {
        let mut params = it_evd_param_t::zeroed();
        params.sevd_queue_size = 4096 + self.dice.roll(1024) as usize;
        let evd = object::handle(self.world.evds[self.dice.roll(2) as usize]);
        let resized = c!(it_evd_modify(evd, IT_EVD_PARAM_QUEUE_SIZE, &params));
        assert_eq!(resized, IT_SUCCESS, "{}", last());
    }

    fn deepen(&mut self, at: usize) {
        let more = 1 + self.dice.roll(3) as usize;
        let end = self.ends[at].as_mut().unwrap();
        if end.state != State::Idle || end.queue.is_some() || end.recv_depth >= 32 {
            return;
        }
        let open = [true, false].map(|receives| end.life.open(receives));
        let (send_depth, recv_depth) = (end.send_depth + more, end.recv_depth + more);
        let mut asked = attributes();
        (asked.max_request_dtos, asked.max_recv_dtos) = (send_depth, recv_depth);
        let mask = IT_EP_PARAM_MAX_REQ_DTO | IT_EP_PARAM_MAX_RECV_DTO;
        match c!(it_ep_modify(end.ep, mask, &asked)) {
            IT_SUCCESS => {
                // A taker may have taken a completion that it has not recorded yet.
                (end.send_depth, end.recv_depth) = (send_depth, recv_depth);
            }
            IT_ERR_EP_BUSY => {
                assert!(open.iter().any(|(_, most)| *most != 0), "{:?}: {}", end.ep, last());
            }
            _ => panic!("{:?}: {}", end.ep, last()),
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

    pub(super) fn burst(&mut self, at: usize) {
        for _ in 0..1 + self.dice.roll(8) {
            if self.dice.once_in(2) {
                let flags = if self.dice.once_in(2) { QUIET } else { NOTIFY };
                let posted = self.receive(at, flags);
                self.end_at(at).check_refused(true, posted);
            } else {
                self.send(at);
            }
        }
    }

    fn receive(&self, at: usize, flags: it_dto_flags_t) -> Status {
        let (end, ledger) = (self.end_at(at), &self.world.ledger);
        let handle = end.queue.as_ref().map_or(end.ep.cast(), |queue| queue.srq.cast());
        let posted =
            ledger.post(end.holder(true), (IT_DTO_RC_RECV_CMPL_EVENT, true), None, |cookie| {
                let segment = ledger.segment(cookie, MESSAGE);
                c!(it_post_recv(handle, &segment, 1, cookie, flags))
            });
        end.room().update(|room| room + u32::from(posted == IT_SUCCESS));
        posted
    }

    /// Posts a random request to the send queue.
    fn send(&mut self, at: usize) {
        let mut dice = self.dice.split();
        let state = self.end_at(at).state;
        let kind = match (dice.roll(4), state) {
            (0, _) => IT_DTO_RDMA_READ_CMPL_EVENT,
            (1, _) => IT_DTO_RDMA_WRITE_CMPL_EVENT,
            // Without a receive at the peer the connection ends; do that seldom.
            (_, State::Connected { peer, .. }) if self.end_at(peer).room().get() == 0 => {
                if dice.once_in(8) {
                    self.doubt(at, peer);
                    IT_DTO_SEND_CMPL_EVENT
                } else {
                    IT_DTO_RDMA_WRITE_CMPL_EVENT
                }
            }
            _ => IT_DTO_SEND_CMPL_EVENT,
        };
        let to = if let State::Connected { peer, .. } = state { peer } else { at };
        let posted = self.post(at, to, kind, dice);
        let end = self.end_at(at);
        end.check_refused(false, posted);
        if posted == IT_SUCCESS {
            assert_ne!(state, State::Idle, "{:?} took event {kind:#x} unconnected", end.ep);
            if kind == IT_DTO_SEND_CMPL_EVENT {
                self.end_at(to).room().update(|room| room.saturating_sub(1));
            }
        }
    }

    fn post(&self, at: usize, to: usize, kind: it_event_type_t, mut dice: Dice) -> Status {
        let (end, ledger, region) = (self.end_at(at), &self.world.ledger, &self.region);
        let (ep, context) = (end.ep, region.context);
        let signalled = !dice.once_in(3);
        let mut flags = if signalled { IT_COMPLETION_FLAG } else { 0 };
        for flag in [
            IT_NOTIFY_FLAG,
            IT_COALESCE_WR_FLAG,
            IT_BARRIER_FENCE_FLAG,
            IT_UNLINK_FENCE_FLAG,
            IT_SOLICITED_WAIT_FLAG,
        ] {
            let allowed = match flag {
                IT_NOTIFY_FLAG => signalled,
                IT_SOLICITED_WAIT_FLAG => kind == IT_DTO_SEND_CMPL_EVENT,
                _ => true,
            };
            flags |= if allowed && dice.once_in(3) { flag } else { 0 };
        }
        let message = (kind == IT_DTO_SEND_CMPL_EVENT).then(|| self.end_at(to).number());
        ledger.post(end.holder(false), (kind, signalled), message, |cookie| match kind {
            IT_DTO_RDMA_READ_CMPL_EVENT => {
                let sink = ledger.segment(cookie, content(READABLE).len());
                c!(it_post_rdma_read(ep, &sink, 1, cookie, flags, region.to(0), context))
            }
            IT_DTO_RDMA_WRITE_CMPL_EVENT => {
                let (source, to) = (ledger.filled(cookie), region.to(MESSAGE * (1 + at)));
                c!(it_post_rdma_write(ep, &source, 1, cookie, flags, to, context))
            }
            _ => send(ep, &[ledger.filled(cookie)], cookie, flags),
        })
    }

    /// Posts until a queue is full, while nothing is taken: not less than its depth, and no more.
    fn fill(&mut self, at: usize) {
        let mut dice = self.dice.split();
        let end = self.end_at(at);
        let receives = end.queue.is_none() && (end.state == State::Idle || dice.once_in(2));
        if !receives && !matches!(end.state, State::Connected { doubtful: false, .. }) {
            return;
        }
        let depth = if receives { end.recv_depth } else { end.send_depth };
        self.world.ledger.calmly(|| {
            let mut post = || match receives {
                true => self.receive(at, NOTIFY),
                false => self.post(at, at, IT_DTO_RDMA_WRITE_CMPL_EVENT, dice.split()),
            };
            let refused = (0..=depth).map(|_| post()).find(|status| *status != IT_SUCCESS);
            let Some(refused) = refused else { panic!("{:?} took more than {depth}", end.ep) };
            end.check_refused(receives, refused);
            let (open, _) = end.life.open(receives);
            assert!(open <= depth, "{:?} holds {open} of {depth}", end.ep);
        });
    }
}

impl End<'_> {
    /// A request that met no full queue was refused: only where there may be no connection.
    fn check_refused(&self, receive: bool, status: Status) {
        let free = match status {
            IT_SUCCESS | IT_ERR_TOO_MANY_POSTS => true,
            IT_ERR_INVALID_EP_STATE => match self.state {
                State::Idle => !receive,
                State::Connected { doubtful, .. } => doubtful,
                State::Ended => false,
            },
            _ => false,
        };
        assert!(free, "{:?} as {:?}: {}", self.ep, self.state, last());
    }
}
