//! Endpoints for datagrams. A [`UdEp`] owns its queue pair and, until they complete, the memory of
//! its work requests. Any thread may post; a lock per queue keeps posts and memory in step.

use std::sync::{Arc, Mutex};

use ual::{Datagram, UdEpInit};
use vp_api::{PostFailure, SendOp, SendWr, UdAddress, UdQpInfo, VpStatus};

use super::AddressHandle;
use crate::context::context;
use crate::error::{PostResult, Result};
use crate::evd::Evd;
use crate::flight::RecvFlight;
use crate::ia::Pz;
use crate::ids::{EpId, WorkId};
use crate::outstanding::{Flights, Receives};
use crate::post;
use crate::receive::receives;
use crate::work::{Local, Work};

/// Makes a [`UdEp`] (`it_ep_ud_create`).
#[derive(Debug)]
pub struct UdEpBuilder<'a> {
    pz: &'a Pz,
    send: Evd,
    recv: Evd,
    send_depth: u32,
    recv_depth: u32,
    pieces: u32,
    inline: u32,
    port: u32,
    key: Option<u32>,
}

impl Pz {
    /// Creates an endpoint for datagrams whose completions go to `evd`.
    pub fn ud(&self, evd: &Evd) -> UdEpBuilder<'_> {
        UdEpBuilder::new(self, evd)
    }
}

impl<'a> UdEpBuilder<'a> {
    fn new(pz: &'a Pz, evd: &Evd) -> Self {
        Self {
            pz,
            send: evd.clone(),
            recv: evd.clone(),
            send_depth: 64,
            recv_depth: 64,
            pieces: 4,
            inline: 64,
            port: 0,
            key: None,
        }
    }

    /// Completions of receives go here instead.
    pub fn recv_evd(mut self, evd: &Evd) -> Self {
        self.recv = evd.clone();
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

    /// The port, as an index into [`crate::Ia::ports`]; by default the first.
    pub fn port(mut self, port: u32) -> Self {
        self.port = port;
        self
    }

    /// The Q_Key that datagrams must carry; by default the provider's.
    pub fn key(mut self, key: u32) -> Self {
        self.key = Some(key);
        self
    }

    /// Creates it, ready for use.
    pub fn build(self) -> Result<UdEp> {
        let init = UdEpInit {
            recv_evd: self.recv.ual().clone(),
            send_depth: self.send_depth,
            recv_depth: self.recv_depth,
            max_send_sge: self.pieces,
            max_recv_sge: self.pieces,
            max_inline: self.inline,
            port: self.port,
            key: self.key,
            ..UdEpInit::new(self.send.ual())
        };
        let ep = self.pz.ual().create_ud_ep(init)?;
        let recv = Mutex::new(RecvFlight::new(self.recv_depth)?);
        let recv = Receives::Datagrams(recv, ep.clone());
        let (flights, evds) = (Flights::new(self.send_depth, recv), [self.send, self.recv]);
        // From here on, dropping it removes it from the dispatchers.
        let made = UdEp(Arc::new(UdEpInner { ep, flights, evds }));
        let UdEpInner { ep, flights, evds } = &*made.0;
        evds.iter().try_for_each(|evd| evd.add(ep.id(), flights))?;
        Ok(made)
    }
}

/// Endpoint for datagrams (IT-API `it_ep_ud_create`); [`crate::Pz::ud`] makes one. Clones share it.
///
/// A receive needs [`crate::GRH_OCTETS`] octets before the message, for a routing header; without one their
/// content is undefined. [`crate::Completion::source`] names the sender. A datagram without a receive, with one
/// that is too short, or with another Q_Key is lost without an event.
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{GRH_OCTETS, Ia, ServiceReply, Work};
/// # fn main() -> itapi::Result<()> {
/// # let second = Duration::from_secs(20);
/// let ia = Ia::open()?;
/// let (pz, evd) = (ia.pz()?, ia.evd(16)?);
/// let ep = match pz.ud(&evd).build() {
///     Ok(ep) => ep,
///     Err(refused) => {
///         println!("{refused}"); // iWARP: there are no datagrams
///         return Ok(());
///     }
/// };
/// # let listen = ia.listen_datagrams("127.0.0.1:0")?;
/// # let service = ia.ud_service(listen.address(), b"")?;
/// service.request()?; // ... and the server replies
/// # listen.request()?.accept(ep.address(), b"")?;
/// if let Some(ServiceReply::Resolved { address, path, .. }) = service.wait(second)? {
///     ep.post_recv(pz.buffer(GRH_OCTETS + 64)?)?;
///     ep.post(&pz.address_handle(&path)?, address, Work::send(b"hello"))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct UdEp(Arc<UdEpInner>);

context!(UdEp, ep => ep.0.ep.tag());

struct UdEpInner {
    ep: Arc<ual::UdEp>,
    flights: Arc<Flights>,
    evds: [Evd; 2],
}

impl Drop for UdEpInner {
    fn drop(&mut self) {
        // After this the provider accesses no memory of ours; only then may it be freed. Nothing uses the queue
        // pair.
        let _ = self.ep.close();
        self.flights.mark_gone();
        self.evds.iter().for_each(|evd| evd.remove(self.ep.id()));
    }
}

impl UdEp {
    /// Its id in completions and events.
    pub fn id(&self) -> EpId {
        EpId(self.0.ep.id().0)
    }

    /// What peers need to send to it, beside a path.
    pub fn address(&self) -> UdAddress {
        self.0.ep.address()
    }

    /// All that is known of it (`it_ep_query`).
    pub fn query(&self) -> Result<UdQpInfo> {
        Ok(self.0.ep.query()?)
    }

    /// Sends a datagram (`it_post_sendto`); refuses work other than [`Work::send`]. A refused request is
    /// dropped with its memory; [`UdEp::try_post`] returns it instead.
    pub fn post(&self, path: &AddressHandle, to: UdAddress, work: Work<'_>) -> Result<WorkId> {
        Ok(self.try_post(path, to, work)?)
    }

    /// As [`UdEp::post`]; the error returns a refused work request.
    pub fn try_post<'a>(
        &self,
        path: &AddressHandle,
        to: UdAddress,
        work: Work<'a>,
    ) -> PostResult<Work<'a>> {
        let ep = &self.0.ep;
        let each = |wr: &SendWr<'_>| match wr.op {
            SendOp::Send { solicited, invalidate: None } => {
                let SendWr { wr_id, data, flags, .. } = *wr;
                ep.post_send(path.ual(), &Datagram { wr_id, data, flags, solicited, to })
            }
            _ => Err(PostFailure { posted: 0, status: VpStatus::InvalidWr }),
        };
        let post = |wrs: &[SendWr<'_>]| wrs.iter().try_for_each(each);
        post::send(&mut self.0.flights.send(), ep.id(), work, post, &**ep)
    }

    /// Stops it: all posted work requests complete as flushed, until a reset.
    pub fn stop(&self) -> Result<()> {
        Ok(self.0.ep.stop()?)
    }

    /// Makes it usable again once all flushed completions are taken (`it_ep_reset`). Its address may change.
    pub fn reset(&self) -> Result<()> {
        Ok(self.0.ep.reset()?)
    }
}

receives!(UdEp, "Posts a receive (`it_post_recvfrom`).", ep => ep.0.flights.recv(), ep.0.ep);

impl std::fmt::Debug for UdEp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.ep)
    }
}
