//! Posts datagrams: as for connected queue pairs, with an address handle for each send.
//!
//! Runs in the thread that posts, under the lock of the queue. Allocates nothing.

use std::sync::Arc;

use vp_api::{GRH_OCTETS, PostFailure, RecvWr, SendFlags, Sge, UdSendWr, VpStatus, WcOpcode};

use super::ah::Ah;
use super::qp::{Receive, VerbsUdQp};
use crate::hardware::Hardware;
use crate::qp::each;
use crate::ring::{Posted, Ring};
use crate::wire::{self, Batch, Link, SGES};
use ibv_sys::*;

type Sends = Ring<(Posted, Arc<Ah>)>;

impl VerbsUdQp {
    pub(super) fn post_sends(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostFailure> {
        let hardware = self.hardware.read();
        let unposted = |posted| move |status| PostFailure { posted, status };
        let live = hardware.as_ref().ok_or(VpStatus::InvalidHandle).map_err(unposted(0))?;
        let mut chain = Chain { qp: self, live, batch: Batch::new(), taken: 0 };
        let mut ring = self.send.ring();
        for wr in wrs {
            if let Err(status) = chain.add(&mut ring, wr) {
                chain.submit(&mut ring)?;
                return Err(unposted(chain.taken)(status));
            }
        }
        chain.submit(&mut ring)
    }

    pub(super) fn post_recvs(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let hardware = self.hardware.read();
        let mut ring = self.recv.ring();
        each(wrs, |wr| self.post_one_recv(hardware.as_ref(), &mut ring, wr))
    }

    /// See [`Hardware::post_mark`]. The device only flushes, so it is not sent.
    pub(super) fn mark_end(&self, live: &Hardware) {
        let mut ring = self.send.ring();
        let Some((_, ah)) = ring.newest().filter(|_| ring.ends_quietly()) else { return };
        let ah = ah.clone();
        let wr = wr_union { ud: wr_ud { ah: ah.as_ptr(), remote_qpn: 0, remote_qkey: 0 } };
        let posted = Posted { wr_id: 0, opcode: WcOpcode::Send, signaled: false };
        let mark = ibv_send_wr { wr, ..ibv_send_wr::BLANK };
        live.post_mark(&self.parts.context, &mut ring, mark, (posted, ah));
    }

    fn post_one_recv(
        &self,
        hardware: Option<&Hardware>,
        ring: &mut Ring<Receive>,
        wr: &RecvWr<'_>,
    ) -> Result<(), VpStatus> {
        let live = hardware.ok_or(VpStatus::InvalidHandle)?;
        let whole = |front: &&Sge| front.len as usize >= GRH_OCTETS;
        let front = wr.sgl.first().filter(whole).copied().unwrap_or_default();
        let sink = wire::sink(&self.parts.memory, wr.sgl, false);
        let posted = Receive { wr_id: wr.wr_id, front };
        live.post_recv(&self.parts.context, ring, (wr, self.init.max_recv_sge), sink, posted)
    }
}

/// A post in progress.
struct Chain<'a> {
    qp: &'a VerbsUdQp,
    live: &'a Hardware,
    batch: Batch<ibv_send_wr>,
    taken: usize,
}

impl Chain<'_> {
    fn add(&mut self, ring: &mut Sends, wr: &UdSendWr<'_>) -> Result<(), VpStatus> {
        let (memory, init) = (&self.qp.parts.memory, &self.qp.init);
        let (sgl, inline) = wire::elements(&wr.data);
        let octets: u64 = sgl.iter().chain(None).map(|sge| u64::from(sge.len)).sum();
        let too_long = match inline {
            Some(inline) => inline.length > init.max_inline.min(self.qp.parts.port.max_payload()),
            None => octets > self.qp.parts.port.max_payload().into(),
        };
        if too_long || sgl.len() > SGES.min(init.max_send_sge as usize) {
            return Err(VpStatus::InvalidSgl);
        }
        if ring.room() == 0 {
            return Err(VpStatus::TooManyWrs);
        }
        let ah = self.qp.parts.ahs.get(wr.ah).ok_or(VpStatus::InvalidHandle)?;
        if ah.pd() != init.pd {
            return Err(VpStatus::InvalidPd);
        }
        let signaled = wr.flags.contains(SendFlags::SIGNALED);
        let (number, signalled) = ring.next(signaled);
        let mut out = request(wr, &ah);
        out.wr_id = self.live.wr_id(number);
        out.send_flags |= if signalled { IBV_SEND_SIGNALED } else { 0 };
        if !self.batch.fits(sgl.len() + 1) {
            self.submit(ring).map_err(|failure| failure.status)?;
        }
        self.batch.add(out, wire::list(memory, sgl).chain(inline));
        ring.push((Posted { wr_id: wr.wr_id, opcode: wr.completion(), signaled }, ah), signalled);
        Ok(())
    }

    fn submit(&mut self, ring: &mut Sends) -> Result<(), PostFailure> {
        let submitted = self.live.submit(&self.qp.parts.context, &mut self.batch, ring);
        let (Ok(taken) | Err((taken, _))) = submitted;
        self.taken += taken;
        let posted = self.taken;
        submitted.map(drop).map_err(|(_, status)| PostFailure { posted, status })
    }
}

/// All fields of a send except its elements and its number.
fn request(wr: &UdSendWr<'_>, ah: &Ah) -> ibv_send_wr {
    let mut out = ibv_send_wr::BLANK;
    let (remote_qpn, remote_qkey) = (wr.to.qpn, wr.to.qkey);
    out.wr = wr_union { ud: wr_ud { ah: ah.as_ptr(), remote_qpn, remote_qkey } };
    if let Some(data) = wr.immediate {
        (out.opcode, out.imm_or_rkey) = (IBV_WR_SEND_WITH_IMM, data.to_be());
    }
    out.send_flags |= if wr.solicited { IBV_SEND_SOLICITED } else { 0 };
    out.send_flags |= if matches!(wr.data, vp_api::Data::Inline(_)) { IBV_SEND_INLINE } else { 0 };
    out
}
