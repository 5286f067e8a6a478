//! Posting: converts requests to chains of C structures, and enters them in the rings.
//!
//! Runs in the thread that posts, under the lock of the queue. Allocates only for binds.

use vp_api::{
    AsyncEvent, Data, PostFailure, QpState, RecvWr, SendFlags, SendWr, VpStatus, WcOpcode,
};

use super::{VerbsQp, each};
use crate::hardware::Hardware;
use crate::object_table::lock;
use crate::owned::done;
use crate::ring::{Posted, Ring};
use crate::wire::{self, Batch, Link};
use ibv_sys::*;

impl VerbsQp {
    pub(super) fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        let hardware = self.hardware.read();
        let unposted = |posted| move |status| PostFailure { posted, status };
        let live = hardware.as_ref().ok_or(VpStatus::InvalidHandle).map_err(unposted(0))?;
        let mut ring = self.send.ring();
        // It may have ended meanwhile: the device has the mark of the end, and there is no room behind it.
        if self.state() != QpState::Rts {
            drop((ring, hardware));
            return self.post_sends_late(wrs);
        }
        let mut chain = Chain { qp: self, live, batch: Batch::new(), taken: 0 };
        for wr in wrs {
            let added = chain.add(&mut ring, wr);
            if let Err(status) = added {
                chain.submit(&mut ring)?;
                return Err(unposted(chain.taken)(status));
            }
        }
        chain.submit(&mut ring)
    }

    /// After the end of the connection.
    pub(super) fn post_sends_late(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        self.mark_end();
        let late = each(wrs, |wr| {
            self.check_send(&wr.data)?;
            self.post_late(false, wr.wr_id, wr.op.completion())
        });
        self.flush_late();
        self.tell();
        late
    }

    /// As [`VerbsQp::post_sends_late`].
    pub(super) fn post_recvs_late(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let late = each(wrs, |wr| {
            wire::check(&Data::Sgl(wr.sgl), self.init.max_recv_sge, 0)?;
            self.post_late(true, wr.wr_id, WcOpcode::Recv)
        });
        self.flush_late();
        self.tell();
        late
    }

    /// A device that is being removed refuses posts before the connection has ended: then that ends it, and what was refused is
    /// posted as after its end.
    pub(super) fn late_if_going(
        &self,
        refused: PostFailure,
        late: impl FnOnce(usize) -> Result<(), PostFailure>,
    ) -> Result<(), PostFailure> {
        let ended = refused.status == VpStatus::Os && self.parts.context.is_going();
        if !ended || self.state() == QpState::Idle {
            return Err(refused);
        }
        self.broke(self.life(), Some(AsyncEvent::Catastrophic));
        let posted = refused.posted;
        late(posted).map_err(|more| PostFailure { posted: posted + more.posted, ..more })
    }

    pub(super) fn post_recvs(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let hardware = self.hardware.read();
        let mut ring = self.recv.ring();
        each(wrs, |wr| self.post_one_recv(hardware.as_ref(), &mut ring, wr))
    }

    pub(super) fn check_send(&self, data: &Data<'_>) -> Result<(), VpStatus> {
        wire::check(data, self.init.max_send_sge, self.init.max_inline)
    }

    /// Sends the first message for an acceptor that may not send before it has received something
    /// (RFC 5044 section 7.1.2), like RFC 6581's ready-to-receive: a zero-length RDMA Write, which needs no STag.
    /// If the connection ends before the Write is done, its completion takes an entry of the device's CQ besides
    /// those of the posted requests. So the CQ must be one entry deeper than its queues if these are full by then.
    pub(crate) fn send_ready(&self) {
        let hardware = self.hardware.read();
        let Some(live) = hardware.as_ref() else { return };
        let to = wr_union { rdma: wr_rdma { remote_addr: 0, rkey: 1 } };
        let write = ibv_send_wr { opcode: IBV_WR_RDMA_WRITE, wr: to, ..ibv_send_wr::BLANK };
        let posted = Posted { wr_id: 0, opcode: WcOpcode::Write, signaled: false };
        live.post_own(&self.parts.context, &mut self.send.ring(), write, posted);
    }

    /// See [`Hardware::post_mark`].
    pub(super) fn mark_end(&self) {
        if self.parts.context.flushes_no_more() {
            return self.end_without_device();
        }
        let hardware = self.hardware.read();
        let mut ring = self.send.ring();
        let (Some(live), true) = (hardware.as_ref(), ring.ends_quietly()) else { return };
        let mark = ibv_send_wr { opcode: IBV_WR_RDMA_WRITE, ..ibv_send_wr::BLANK };
        let posted = Posted { wr_id: 0, opcode: WcOpcode::Write, signaled: false };
        live.post_mark(&self.parts.context, &mut ring, mark, posted);
    }

    fn post_one_recv(
        &self,
        hardware: Option<&Hardware>,
        ring: &mut Ring,
        wr: &RecvWr<'_>,
    ) -> Result<(), VpStatus> {
        let live = hardware.ok_or(VpStatus::InvalidHandle)?;
        let context = &self.parts.context;
        let sink = wire::sink(&self.parts.memory, wr.sgl, context.iwarp);
        let posted = Posted { wr_id: wr.wr_id, opcode: WcOpcode::Recv, signaled: true };
        live.post_recv(context, ring, (wr, self.init.max_recv_sge), sink, posted)
    }
}

/// A post in progress.
struct Chain<'a> {
    qp: &'a VerbsQp,
    live: &'a Hardware,
    batch: Batch<ibv_send_wr>,
    taken: usize,
}

impl Chain<'_> {
    fn add(&mut self, ring: &mut Ring, wr: &SendWr<'_>) -> Result<(), VpStatus> {
        if let Some(bind) = self.qp.parts.memory.binds(&wr.op) {
            let (number, _) = ring.next(true);
            lock(&self.qp.binds).push(ring, number, bind)?;
        }
        self.put(ring, wr).inspect_err(|_| self.take_back_binds(ring))
    }

    fn take_back_binds(&self, ring: &Ring) {
        let (next, _) = ring.next(true);
        lock(&self.qp.binds).take_back(next, &self.qp.parts.memory);
    }

    fn put(&mut self, ring: &mut Ring, wr: &SendWr<'_>) -> Result<(), VpStatus> {
        let memory = &self.qp.parts.memory;
        let (sgl, inline) = wire::elements(&wr.data);
        self.qp.check_send(&wr.data)?;
        if ring.room() == 0 {
            return Err(VpStatus::TooManyWrs);
        }
        let signaled = wr.flags.contains(SendFlags::SIGNALED);
        let (number, signalled) = ring.next(signaled);
        let wr_id = self.live.wr_id(number);
        let posted = Posted { wr_id: wr.wr_id, opcode: wr.op.completion(), signaled };
        if let Some((mw, bind_info)) = memory.wide(&wr.op)? {
            // The library posts this request itself, so the requests before it are posted first.
            self.submit(ring).map_err(|failure| failure.status)?;
            let bind = ibv_mw_bind { wr_id, send_flags: signal_flag(signalled), bind_info };
            self.bind_wide(ring, mw, bind, posted, signalled)?;
            memory.posted(&wr.op);
            return Ok(());
        }
        let mut out = wire::send(memory, wr)?;
        out.wr_id = wr_id;
        out.send_flags |= signal_flag(signalled);
        if !self.batch.fits(sgl.len() + 1) {
            self.submit(ring).map_err(|failure| failure.status)?;
        }
        let elements = wire::list(memory, sgl).chain(inline);
        self.batch.add(out, elements);
        ring.push(posted, signalled);
        memory.posted(&wr.op);
        Ok(())
    }

    fn bind_wide(
        &mut self,
        ring: &mut Ring,
        mw: *mut ibv_mw,
        mut bind: ibv_mw_bind,
        posted: Posted,
        signalled: bool,
    ) -> Result<(), VpStatus> {
        let post = self.qp.parts.context.ops().bind_mw.ok_or(VpStatus::Unsupported)?;
        ring.push(posted, signalled);
        // SAFETY: window and region are in the tables; the queue pair is alive under the lock.
        let bound = done(unsafe { post(self.live.raw.as_ptr(), mw, &mut bind) });
        if bound.is_err() {
            ring.unpush();
            return Err(VpStatus::InvalidWr);
        }
        self.taken += 1;
        Ok(())
    }

    fn submit(&mut self, ring: &mut Ring) -> Result<(), PostFailure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        match self.live.submit(&self.qp.parts.context, &mut self.batch, ring) {
            Ok(taken) => {
                self.taken += taken;
                Ok(())
            }
            Err((taken, status)) => {
                self.taken += taken;
                self.take_back_binds(ring);
                Err(PostFailure { posted: self.taken, status })
            }
        }
    }
}

fn signal_flag(signalled: bool) -> u32 {
    if signalled { IBV_SEND_SIGNALED } else { 0 }
}
