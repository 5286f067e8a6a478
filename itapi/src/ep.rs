//! Endpoints: one end of a connection. An [`Ep`] owns its queue pair and, until they complete, the
//! memory of its work requests. Any thread may post; a lock per queue keeps posts and memory in
//! step. When the peer dies every request completes, and [`Ep::ended`] says why.

use std::net::ToSocketAddrs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ual::{
    ConnEvent, ConnectParams, Disconnect, Ends, EpInfo, EpInit, EpState, Established, EvdInit,
    Event, Policy, Stream,
};
use vp_api::Access;

use crate::completion::EpId;
use crate::error::{Error, PostResult, Result};
use crate::evd::{Evd, Flights, Receives};
use crate::events::{ConnEvd, next};
use crate::flight::{RecvFlight, SendFlight};
use crate::ia::{Pz, resolve};
use crate::post;
use crate::srq::Srq;
use crate::work::{Local, Work};

/// Makes an [`Ep`].
#[derive(Debug)]
pub struct EpBuilder<'a> {
    pz: &'a Pz,
    send: Evd,
    recv: Evd,
    conn: Option<ConnEvd>,
    srq: Option<Srq>,
    send_depth: u32,
    recv_depth: u32,
    pieces: u32,
    inline: u32,
    ird: u16,
    ord: u16,
    allow: Access,
    privileged: bool,
}

impl<'a> EpBuilder<'a> {
    pub(crate) fn new(pz: &'a Pz, evd: &Evd) -> Self {
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
        }
    }

    /// Completions of receives go here instead.
    pub fn recv_evd(mut self, evd: &Evd) -> Self {
        self.recv = evd.clone();
        self
    }

    /// Connection events go here, so that one thread can serve many endpoints; the endpoint's own
    /// waiting calls then do not apply.
    pub fn conn_evd(mut self, evd: &ConnEvd) -> Self {
        self.conn = Some(evd.clone());
        self
    }

    /// Receives come from here.
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

    /// STag 0 and fast registration allowed.
    pub fn privileged(mut self) -> Self {
        self.privileged = true;
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
            ..EpInit::new(self.send.ual(), &conn)
        };
        let ep = self.pz.ual().create_ep(init)?;
        let recv = match self.srq {
            Some(srq) => Receives::Shared(srq),
            None => Receives::Own(Mutex::new(RecvFlight::new(self.recv_depth))),
        };
        let send = Mutex::new(SendFlight::new(self.send_depth));
        let flights = Arc::new(Flights { send, recv });
        self.send.add(ep.id(), flights.clone());
        self.recv.add(ep.id(), flights.clone());
        let evds = [self.send, self.recv];
        Ok(Ep(Arc::new(Core { ep, flights, evds, events, end: Mutex::default() })))
    }
}

/// Endpoint (IT-API `it_ep_rc_create`). Clones share it. When the last one goes, a connection that
/// still stands is reset: end it with [`Ep::disconnect`] first.
#[derive(Clone)]
pub struct Ep(Arc<Core>);

struct Core {
    ep: Arc<ual::Ep>,
    flights: Arc<Flights>,
    evds: [Evd; 2],
    /// Its own connection events, unless they are shared.
    events: Option<Arc<ual::Evd>>,
    /// How its connection ended.
    end: Mutex<Option<ConnEvent>>,
}

impl Drop for Core {
    fn drop(&mut self) {
        // After this the provider touches no memory of ours and queues no completion; only then may
        // the memory of what was under way go. Refused while windows are linked through it: then
        // the provider still holds what it needs.
        let _ = self.ep.close();
        self.evds.iter().for_each(|evd| evd.remove(self.ep.id()));
    }
}

impl Ep {
    /// Its name in completions and events.
    pub fn id(&self) -> EpId {
        EpId(self.0.ep.id().0)
    }

    /// Its state.
    pub fn state(&self) -> EpState {
        self.0.ep.state()
    }

    /// Both ends of the present or last connection.
    pub fn ends(&self) -> Option<Ends> {
        self.0.ep.ends()
    }

    /// All that is known of it (`it_ep_query`).
    pub fn query(&self) -> Result<EpInfo> {
        Ok(self.0.ep.query()?)
    }

    /// Connects and waits until it is connected, or not; the policy bounds the wait. Of several
    /// addresses the first that answers counts.
    pub fn connect(&self, peer: impl ToSocketAddrs, private_data: &[u8]) -> Result<Established> {
        let mut addresses = resolve(peer)?.into_iter().peekable();
        loop {
            let Some(address) = addresses.next() else {
                return Err(Error::Argument("no address to connect to".into()));
            };
            let mut params = ConnectParams::new(address);
            params.private_data = private_data.to_vec();
            match self.connect_with(params) {
                Err(Error::Connection(_)) if addresses.peek().is_some() => self.reset()?,
                result => return result,
            }
        }
    }

    /// Connects as `params` say and waits until it is connected, or not.
    pub fn connect_with(&self, params: ConnectParams) -> Result<Established> {
        self.own_events()?;
        self.start_connect(params)?;
        self.wait_established()
    }

    /// Connects; a connection event says what became of it.
    pub fn start_connect(&self, params: ConnectParams) -> Result<()> {
        *self.end() = None;
        Ok(self.0.ep.connect(params)?)
    }

    /// Connects with a policy of its own.
    pub fn connect_by_policy(
        &self,
        peer: std::net::SocketAddr,
        private_data: &[u8],
        policy: Policy,
    ) -> Result<Established> {
        let params = ConnectParams {
            private_data: private_data.to_vec(),
            policy: Some(policy),
            ..ConnectParams::new(peer)
        };
        self.connect_with(params)
    }

    pub(crate) fn wait_established(&self) -> Result<Established> {
        match self.next_event(None)? {
            Some(ConnEvent::Established(established)) => Ok(established),
            Some(other) => Err(Error::Connection(Box::new(other))),
            // Not reached: a wait without a time-out does not time out.
            None => Err(Error::Timeout(Duration::MAX)),
        }
    }

    /// Ends the connection in an orderly way and waits until it is over; the policy's close
    /// time-out bounds the wait. Complete what must arrive first: work still under way is flushed.
    pub fn disconnect(&self) -> Result<()> {
        self.start_disconnect(Disconnect::Graceful)?;
        if self.0.events.is_some() {
            self.ended(self.close_timeout())?;
        }
        Ok(())
    }

    /// Ends the connection; a connection event follows.
    pub fn start_disconnect(&self, how: Disconnect) -> Result<()> {
        Ok(self.0.ep.disconnect(how)?)
    }

    fn close_timeout(&self) -> Duration {
        // The event comes at this bound at the latest; a little more lets it arrive.
        self.0.ep.ia().policy().close_timeout + Duration::from_secs(1)
    }

    /// How the connection ended, waiting for its end; `None`: not within the time-out. Asked again
    /// it says the same.
    pub fn ended(&self, timeout: Duration) -> Result<Option<ConnEvent>> {
        if let Some(end) = self.end().clone() {
            return Ok(Some(end));
        }
        match self.next_event(Some(timeout))? {
            Some(ConnEvent::Established(_)) => self.ended(timeout),
            end => Ok(end),
        }
    }

    /// Makes an endpoint whose connection is over usable again (`it_ep_reset`).
    pub fn reset(&self) -> Result<()> {
        self.0.ep.reset()?;
        *self.end() = None;
        Ok(())
    }

    /// Posts to the send queue. Refused: the work request comes back in the error.
    pub fn post<'a>(&self, work: Work<'a>) -> PostResult<Work<'a>> {
        post::send(&mut self.0.flights.send(), work, |wr| self.0.ep.post_send(&[wr]))
    }

    /// Posts a receive (`it_post_recv`). Refused: the memory comes back in the error.
    pub fn post_recv(&self, local: impl Into<Local>) -> PostResult<Local> {
        post::receive(&mut self.0.flights.recv(), local.into(), |wr| self.0.ep.post_recv(&[wr]))
    }

    /// The next event of its own queue, kept if it is an end.
    fn next_event(&self, timeout: Option<Duration>) -> Result<Option<ConnEvent>> {
        let event = next(self.own_events()?, timeout, |event| match event {
            Event::Connection { event, .. } => Some(*event),
            _ => None,
        })?;
        match &event {
            None | Some(ConnEvent::Established(_)) => {}
            Some(end) => *self.end() = Some(end.clone()),
        }
        Ok(event)
    }

    fn own_events(&self) -> Result<&Arc<ual::Evd>> {
        self.0.events.as_ref().ok_or_else(|| {
            Error::Argument("the endpoint's connection events go to a shared dispatcher".into())
        })
    }

    fn end(&self) -> std::sync::MutexGuard<'_, Option<ConnEvent>> {
        self.0.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Ep> {
        &self.0.ep
    }
}

impl std::fmt::Debug for Ep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.ep)
    }
}
