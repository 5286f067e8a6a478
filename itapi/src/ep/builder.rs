//! Builder of endpoints. No state.

use std::sync::{Arc, Mutex};

use ual::{EpInit, EvdInit, Stream};
use vp_api::Access;

use super::{Ep, EpInner};
use crate::error::Result;
use crate::evd::Evd;
use crate::events::ConnEvd;
use crate::flight::RecvFlight;
use crate::ia::Pz;
use crate::outstanding::{Flights, Receives};
use crate::srq::Srq;

/// Makes an [`Ep`] (`it_ep_rc_create`).
///
/// ```
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// # let pz = ia.pz()?;
/// let (sends, receives) = (ia.evd(64)?, ia.evd(256)?);
/// let ep = pz.ep(&sends).recv_evd(&receives).depth(64, 256).reads(4, 4).build()?;
/// # drop(ep);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EpBuilder<'a> {
    pz: &'a Pz,
    recv: Evd,
    conn: Option<ConnEvd>,
    srq: Option<Srq>,
    send: Evd,
    send_depth: u32,
    recv_depth: u32,
    pieces: u32,
    inline: u32,
    ird: u16,
    ord: u16,
    allow: Access,
    privileged: bool,
    watermark: u32,
}

impl Pz {
    /// Creates an endpoint whose completions go to `evd`.
    pub fn ep(&self, evd: &Evd) -> EpBuilder<'_> {
        EpBuilder::new(self, evd)
    }
}

impl<'a> EpBuilder<'a> {
    fn new(pz: &'a Pz, evd: &Evd) -> Self {
        Self {
            pz,
            send: evd.clone(),
            recv: evd.clone(),
            conn: None,
            srq: None,
            send_depth: 64,
            recv_depth: 64,
            pieces: 4,
            inline: 64,
            ird: 16,
            ord: 16,
            allow: Access::REMOTE.union(Access::BIND),
            privileged: false,
            watermark: 0,
        }
    }

    /// Completions of receives go here instead.
    pub fn recv_evd(mut self, evd: &Evd) -> Self {
        self.recv = evd.clone();
        self
    }

    /// Connection events go here, so that one thread can serve many endpoints. The endpoint's own waiting calls
    /// then fail.
    pub fn conn_evd(mut self, evd: &ConnEvd) -> Self {
        self.conn = Some(evd.clone());
        self
    }

    /// Messages take receives from this shared queue.
    pub fn srq(mut self, srq: &Srq) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Work requests outstanding in each queue.
    pub fn depth(mut self, send: u32, recv: u32) -> Self {
        (self.send_depth, self.recv_depth) = (send, recv);
        self
    }

    /// Pieces of memory per work request.
    pub fn max_pieces(mut self, pieces: u32) -> Self {
        self.pieces = pieces;
        self
    }

    /// Octets that may be copied while posting.
    pub fn max_inline(mut self, octets: u32) -> Self {
        self.inline = octets;
        self
    }

    /// RDMA Reads and atomics at once: the peer's here (IRD) and ours there (ORD), at most.
    pub fn reads(mut self, inbound: u16, outbound: u16) -> Self {
        (self.ird, self.ord) = (inbound, outbound);
        self
    }

    /// What the peer may do through this endpoint.
    pub fn allow(mut self, rights: Access) -> Self {
        self.allow = rights;
        self
    }

    /// Allows STag 0 and [`crate::Work::link_lmr`].
    pub fn privileged(mut self) -> Self {
        self.privileged = true;
        self
    }

    /// Raises the event [`crate::AsyncEvent::RecvLimit`] once when messages have taken more receives than this
    /// whose completions are still queued (soft high watermark); 0: never.
    pub fn recv_watermark(mut self, receives: u32) -> Self {
        self.watermark = receives;
        self
    }

    /// Creates it, unconnected. Receives may be posted at once.
    pub fn build(self) -> Result<Ep> {
        let (conn, events) = match &self.conn {
            Some(shared) => (shared.ual().clone(), None),
            None => {
                let init = EvdInit::new(Stream::Connection, 4);
                let own = self.pz.ia().ual().create_evd(init)?;
                (own.clone(), Some(own))
            }
        };
        let init = EpInit {
            recv_evd: self.recv.ual().clone(),
            srq: self.srq.as_ref().map(|srq| srq.ual().clone()),
            send_depth: self.send_depth,
            recv_depth: self.recv_depth,
            max_send_sge: self.pieces,
            max_recv_sge: self.pieces,
            max_inline: self.inline,
            ird: self.ird,
            ord: self.ord,
            allow: self.allow,
            privileged: self.privileged,
            recv_high_watermark: self.watermark,
            ..EpInit::new(self.send.ual(), &conn)
        };
        let ep = self.pz.ual().create_ep(init)?;
        let recv = match self.srq {
            Some(srq) => {
                srq.joined(ep.id());
                Receives::Shared(srq)
            }
            None => Receives::Own(Mutex::new(RecvFlight::new(self.recv_depth)?)),
        };
        let (flights, evds) = (Flights::new(self.send_depth, recv), [self.send, self.recv]);
        let (end, windows) = (Mutex::default(), Mutex::default());
        // From here on, dropping it removes it from the dispatchers.
        let made = Ep(Arc::new(EpInner { ep, flights, evds, events, end, windows }));
        let EpInner { ep, flights, evds, .. } = &*made.0;
        evds.iter().try_for_each(|evd| evd.add(ep.id(), flights))?;
        Ok(made)
    }
}
