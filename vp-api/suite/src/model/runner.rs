//! Plays a random program on two connected queue pairs, and compares what comes with what the oracle says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vp_api::*;

use super::oracle::{Chunk, Sent, Side};
use super::program::{Cqs, LONGEST, Program, REGION, Shape, Step};
use crate::Fail;
use crate::fail::same;
use crate::rig::{End, Memory, Rig};

/// Octets of a chunk: the longest message, or a whole region.
pub(super) const CHUNK: usize = REGION;
const _: () = assert!(CHUNK == 2 * LONGEST as usize);

/// Octets of the regions that lack a right.
const SMALL: usize = 64;

/// An end, with its memory.
pub(super) struct Party<'a> {
    pub(super) end: End<'a>,
    srq: Option<Arc<dyn Srq>>,
    cqs: Vec<Arc<dyn Cq>>,
    /// Chunks.
    pub(super) own: Memory,
    pub(super) max_inline: usize,
    /// The peer may do everything there; only read; only write.
    pub(super) open: Memory,
    pub(super) readable: Memory,
    pub(super) writable: Memory,
}

/// Two ends, and what is known of them.
pub(super) struct Play<'a> {
    pub(super) rig: &'a Rig,
    pub(super) parties: [Party<'a>; 2],
    pub(super) sides: [Side; 2],
    connects: &'a Mutex<()>,
    second_calls: bool,
    pub(super) stream: u32,
    /// The connection was ended.
    pub(super) over: bool,
    next_id: u64,
}

pub(super) fn play(rig: &Rig, seed: u64, connects: &Mutex<()>) -> Result<(), Fail> {
    let mut program = Program::new(seed);
    let mut play = Play::new(rig, program.shape, connects)?;
    play.connect()?;
    let mut number = 0;
    while let Some((end, step)) = program.next() {
        number += 1;
        let ended = play.over;
        let result = match ended && program.dice().once_in(4) {
            true => play.anew(program.dice().once_in(3)),
            false => play.step(end, step),
        };
        result.map_err(|Fail(why)| Fail(format!("step {number} of end {end}, {step:?}: {why}")))?;
    }
    play.end()
}

/// The depths that the device grants.
fn granted(rig: &Rig, wanted: (u32, u32)) -> Result<(u32, u32), Fail> {
    let probe = rig.end_with(None, |init| (init.send_depth, init.recv_depth) = wanted)?;
    let info = probe.qp.query()?;
    rig.rnic.destroy_qp(probe.qp.id())?;
    rig.rnic.destroy_cq(probe.cq.id())?;
    rig.rnic.dealloc_pd(probe.pd)?;
    Ok((info.send_depth, info.recv_depth))
}

impl<'a> Play<'a> {
    fn new(rig: &'a Rig, shape: Shape, connects: &'a Mutex<()>) -> Result<Self, Fail> {
        let srq = shape.srq && rig.offers(Capabilities::SRQ);
        let most = rig.attrs.max_wr_per_qp;
        let depths =
            shape.depths.map(|(send, recv)| granted(rig, (send.min(most), recv.min(most))));
        let [one, other] = depths;
        let (mut depths, pds) = ([one?, other?], [rig.rnic.alloc_pd()?, rig.rnic.alloc_pd()?]);
        let srq = match srq {
            false => None,
            true => {
                let (pd, depth) = (pds[1], depths[1].1.min(rig.attrs.max_wr_per_srq));
                let max_sge = rig.attrs.max_sge_recv.min(2);
                let srq = rig.rnic.create_srq(&SrqInit { pd, depth, max_sge, limit: 0 })?;
                depths[1].1 = srq.query()?.depth;
                Some(srq)
            }
        };
        let cq = |depth: u32| rig.rnic.create_cq(&CqInit { depth, handler: None });
        let [a, b] = depths;
        // As deep as their queues, and such a CQ never overruns.
        let cqs = match shape.cqs {
            Cqs::One => {
                let cq = cq(a.0 + a.1 + b.0 + b.1)?;
                [[cq.clone(), cq.clone()], [cq.clone(), cq]]
            }
            Cqs::Each => {
                let (one, other) = (cq(a.0 + a.1)?, cq(b.0 + b.1)?);
                [[one.clone(), one], [other.clone(), other]]
            }
            Cqs::EachQueue => [[cq(a.0)?, cq(a.1)?], [cq(b.0)?, cq(b.1)?]],
        };
        let reads = shape.reads;
        let party = |n: usize| {
            Party::new(rig, (pds[n], reads), depths[n], &cqs[n], srq.as_ref().filter(|_| n == 1))
        };
        let parties = [party(0)?, party(1)?];
        let sides = [Side::new(a.0, a.1, false), Side::new(b.0, b.1, srq.is_some())];
        let second_calls = shape.second_calls;
        Ok(Self { rig, parties, sides, connects, second_calls, stream: 0, over: false, next_id: 0 })
    }

    fn connect(&mut self) -> Result<(), Fail> {
        // The events of connections are common to the device.
        let _one_at_a_time = self.connects.lock().unwrap_or_else(PoisonError::into_inner);
        self.rig.forget_events();
        let [one, other] = &self.parties;
        match self.second_calls {
            false => self.rig.connect(&one.end, &other.end),
            true => self.rig.connect(&other.end, &one.end),
        }
    }

    fn step(&mut self, at: usize, step: Step) -> Result<(), Fail> {
        match step {
            Step::Receive { lens } => self.receive(at, lens),
            Step::Post { .. } => self.post(at, step),
            Step::Wrong(wrong) if !self.over => self.wrong(at, wrong),
            Step::Poll(most) => self.poll(at, most.into()).map(drop),
            Step::Settle if !self.over => self.settle(),
            Step::End if !self.over => {
                self.over = true;
                Ok(self.parties[at].end.qp.modify(QpChange::Error)?)
            }
            // Ended already.
            Step::Wrong(_) | Step::Settle | Step::End => Ok(()),
        }
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Waits until both ends have noticed.
    pub(super) fn await_end(&mut self) -> Result<(), Fail> {
        for at in [0, 1] {
            let qp = self.parties[at].end.qp.clone();
            self.rig.until(&format!("Error at end {at}"), || {
                // An end may notice by its completions only, and tell the other one then.
                let mut cqs = self.parties.iter().flat_map(|party| &party.cqs);
                cqs.try_for_each(|cq| cq.wait(NOW, Some(NOW)).map(drop))?;
                Ok(matches!(qp.query()?.state, QpState::Error | QpState::Idle))
            })?;
        }
        Ok(())
    }

    /// Polls the CQs of an end once; returns how many completions there were.
    fn poll(&mut self, at: usize, most: usize) -> Result<usize, Fail> {
        let mut count = 0;
        for cq in self.parties[at].cqs.clone() {
            let mut out = vec![WorkCompletion::BLANK; most];
            let n = cq.poll(&mut out)?;
            out[..n].iter().try_for_each(|wc| self.completed(wc))?;
            count += n;
        }
        Ok(count)
    }

    fn completed(&mut self, wc: &WorkCompletion) -> Result<(), Fail> {
        let of = |party: &Party<'_>| party.end.qp.id() == wc.qp;
        let at = self.parties.iter().position(of).ok_or_else(|| format!("{wc:?} of another QP"))?;
        for holds in self.sides[at].completed(wc, self.over)? {
            let what = format!("memory of {wc:?}");
            self.parties[at].own.holds(&what, holds.chunk * CHUNK + holds.at, &holds.octets)?;
        }
        Ok(())
    }

    fn poll_all(&mut self) -> Result<usize, Fail> {
        Ok(self.poll(0, 16)? + self.poll(1, 16)?)
    }

    /// Polls until `done` says so.
    fn drain(&mut self, what: &str, done: impl Fn(&[Side; 2]) -> bool) -> Result<(), Fail> {
        let mut seen = std::time::Instant::now();
        while !done(&self.sides) {
            if self.poll_all()? != 0 {
                seen = std::time::Instant::now();
            }
            if seen.elapsed() > self.rig.wait {
                return Err(format!("{what}: no completion within {:?}", self.rig.wait).into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// All that is posted completes; then memory, state and counts are compared.
    fn settle(&mut self) -> Result<(), Fail> {
        let stream = self.stream;
        self.drain("all requests of a connection", |sides| {
            sides.iter().all(|side| !side.sends.is_due() && side.has_all(stream))
        })?;
        for at in [0, 1] {
            self.read_whole(at)?;
        }
        for (party, side) in self.parties.iter().zip(&self.sides) {
            let (info, posted) = (party.end.qp.query()?, side.receives.list.len() as u32);
            same("state", info.state, QpState::Rts)?;
            match &party.srq {
                Some(srq) => same("receives that wait in the SRQ", srq.query()?.posted, posted)?,
                None => same("receives outstanding", info.recvs_outstanding, posted)?,
            }
            same("sends outstanding", info.sends_outstanding, 0)?;
            same("requests lost", (info.sends_lost, info.recvs_lost), (0, 0))?;
        }
        Ok(())
    }

    /// Reads the peer's region; what was written before is placed then.
    fn read_whole(&mut self, at: usize) -> Result<(), Fail> {
        let (id, stream) = (self.id(), self.stream);
        let [side, peer] = pair(&mut self.sides, at);
        let (party, other) = (&self.parties[at], &self.parties[1 - at]);
        let chunk = side.chunk()?;
        let op = SendOp::Read { remote: other.open.remote(0), invalidate_sink: false };
        let (opcode, sgl) = (op.completion(), [party.own.sge(chunk * CHUNK, REGION)]);
        let (data, flags) = (Data::Sgl(&sgl), SendFlags::SIGNALED | SendFlags::READ_FENCE);
        party.end.qp.post_send(&[SendWr { wr_id: id, op, data, flags }])?;
        let brings = Some(peer.region.clone());
        side.send(id, true, stream, Sent { opcode, chunk, brings });
        self.drain("a read of the peer's region", |sides| !sides[at].sends.is_due())?;
        self.compare(1 - at, true)
    }

    fn compare(&mut self, at: usize, all_placed: bool) -> Result<(), Fail> {
        let (party, side) = (&self.parties[at], &mut self.sides[at]);
        if let Some(octet) = side.compare(party.open.read(0, REGION)?, all_placed) {
            return Err(format!("octet {octet} of the region of end {at} differs").into());
        }
        for closed in [&party.readable, &party.writable] {
            closed.holds("what the peer must not write", 0, &[0; SMALL])?;
        }
        Ok(())
    }

    /// Back to Idle, and connected again. `leaves`: completions stay queued, if what they free is known.
    fn anew(&mut self, leaves: bool) -> Result<(), Fail> {
        self.await_end()?;
        let known = |side: &Side| !side.srq && side.sends.all_signaled();
        let leaves = leaves && self.sides.iter().all(known);
        if !leaves {
            self.drain("flushed requests", |sides| {
                let open = |side: &Side| !side.srq && !side.receives.list.is_empty();
                sides.iter().all(|side| !side.sends.is_due() && !open(side))
            })?;
            self.counts()?;
        }
        self.parties.iter().try_for_each(|party| party.end.idle())?;
        while !leaves && self.poll_all()? != 0 {}
        self.stream += 1;
        for side in &mut self.sides {
            match leaves {
                true => side.begin(self.stream),
                false => side.idle(self.stream)?,
            }
        }
        self.compare(0, false)?;
        self.compare(1, false)?;
        self.over = false;
        self.connect()
    }

    fn counts(&self) -> Result<(), Fail> {
        for (party, side) in self.parties.iter().zip(&self.sides) {
            let (found, may) = (party.end.qp.query()?.recvs_lost, side.lost());
            if !side.srq && !may.contains(&found) {
                return Err(format!("{found} receives lost where {may:?} are").into());
            }
        }
        Ok(())
    }

    /// Destroys both in the middle of their work; nothing of them is polled afterwards.
    fn end(self) -> Result<(), Fail> {
        let rnic = &self.rig.rnic;
        self.parties.iter().try_for_each(|party| rnic.destroy_qp(party.end.qp.id()))?;
        let mut cqs = HashMap::new();
        for party in &self.parties {
            for cq in &party.cqs {
                let left = cq.poll(&mut [WorkCompletion::BLANK])?;
                same("completions when all queue pairs were destroyed", left, 0)?;
                cqs.insert(cq.id(), ());
            }
            if let Some(srq) = &party.srq {
                rnic.destroy_srq(srq.id())?;
            }
            for memory in [&party.own, &party.open, &party.readable, &party.writable] {
                rnic.dealloc_stag(memory.stag)?;
            }
            rnic.dealloc_pd(party.end.pd)?;
        }
        Ok(cqs.into_keys().try_for_each(|cq| rnic.destroy_cq(cq))?)
    }
}

/// A wait that does not sleep.
const NOW: Duration = Duration::ZERO;

/// The side `at`, and its peer.
pub(super) fn pair(sides: &mut [Side; 2], at: usize) -> [&mut Side; 2] {
    let [one, other] = sides;
    if at == 0 { [one, other] } else { [other, one] }
}

impl<'a> Party<'a> {
    fn new(
        rig: &'a Rig,
        (pd, reads): (PdId, u16),
        depths: (u32, u32),
        cqs: &[Arc<dyn Cq>; 2],
        srq: Option<&Arc<dyn Srq>>,
    ) -> Result<Self, Fail> {
        let [send_cq, recv_cq] = cqs;
        let mut init = rig.qp_init(pd, send_cq.id());
        (init.send_depth, init.recv_depth) = depths;
        (init.ird, init.ord) = (init.ird.min(reads), init.ord.min(reads));
        init.recv_cq = recv_cq.id();
        init.srq = srq.map(|srq| srq.id());
        let end = End { rig, pd, cq: send_cq.clone(), qp: rig.rnic.create_qp(&init)? };
        let memory = |len, access| rig.memory(pd, len, access, Addressing::Absolute);
        let own = memory(CHUNK * Side::chunks(depths.0, depths.1), Access::LOCAL)?;
        let open = memory(REGION, Access::LOCAL | rig.remote_rights())?;
        let readable = memory(SMALL, Access::LOCAL | Access::REMOTE_READ)?;
        let writable = memory(SMALL, Access::LOCAL | Access::REMOTE_WRITE)?;
        let max_inline = init.max_inline as usize;
        let mut cqs = cqs.to_vec();
        cqs.dedup_by_key(|cq| cq.id());
        Ok(Self { end, srq: srq.cloned(), cqs, own, max_inline, open, readable, writable })
    }

    pub(super) fn part(&self, chunk: Chunk, at: usize, len: u16) -> Sge {
        self.own.sge(chunk * CHUNK + at, len.into())
    }

    pub(super) fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        match &self.srq {
            Some(srq) => srq.post_recv(wrs),
            None => self.end.qp.post_recv(wrs),
        }
    }
}
