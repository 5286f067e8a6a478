//! Endpoints: a queue pair and its connection.
//!
//! The Ep owns the queue pair and its [`Connection`], whose state connection management and callers
//! change. When the peer dies, the provider reports it to connection management, which delivers a
//! connection event; the provider flushes what was posted.

mod attr;

pub use attr::{EpInfo, EpInit};
pub use ual_cm::ConnState as EpState;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ual_cm::{Connectee, Connection, Ends, Established};
use vp_api::{
    AsyncEvent, PathSender, Paths, PeerPath, PostFailure, Qp, QpChange, QpId, QpInit, RecvWr,
    SendFlags, SendWr, VpStatus,
};

use super::{Ia, Pz, Resource, Srq};
use crate::cm::{
    AcceptParams, Bound, ConnEvent, ConnectParams, ConnectionEnd, ConvertError, ConvertParams,
    Disconnect, RequestId,
};
use crate::error::{Error, Object, Result, unposted};
use crate::event::{AsyncSource, Evd, Event, NOTIFY, Stream};
use crate::life::{InUse, Life, Living};
use crate::tag::Tag;

/// Endpoint (IT-API `it_ep_rc_create`).
pub struct Ep {
    qp: Arc<dyn Qp>,
    connection: Connection,
    life: Life,
    tag: Tag,
    conn_evd: InUse<Evd>,
    send_evd: InUse<Evd>,
    recv_evd: InUse<Evd>,
    srq: Option<InUse<Srq>>,
    pz: InUse<Pz>,
}

impl Pz {
    /// Creates an endpoint.
    pub fn create_ep(self: &Arc<Self>, init: EpInit) -> Result<Arc<Ep>> {
        Ep::new(self, init)
    }
}

impl Ia {
    /// The endpoint of a queue pair, while it is open.
    pub fn ep(&self, qp: QpId) -> Option<Arc<Ep>> {
        self.directory().by_qp(qp)
    }
}

impl Ep {
    fn new(pz: &Arc<Pz>, init: EpInit) -> Result<Arc<Self>> {
        // Some applications take requests and connection events from one dispatcher.
        if init.conn_evd.stream() != Stream::Request {
            init.conn_evd.check_stream(Stream::Connection)?;
        }
        let pz = InUse::new(pz)?;
        let conn_evd = InUse::new(&init.conn_evd)?;
        let send_evd = InUse::new(&init.send_evd)?;
        let recv_evd = InUse::new(&init.recv_evd)?;
        let srq = init.srq.as_ref().map(InUse::new).transpose()?;
        if let Some(srq) = &srq {
            srq.completes_to(recv_evd.arc())?;
        }
        let verbs = QpInit {
            srq: srq.as_ref().map(|srq| srq.id()),
            send_depth: init.send_depth,
            recv_depth: init.recv_depth,
            max_send_sge: init.max_send_sge,
            max_recv_sge: init.max_recv_sge,
            max_inline: init.max_inline,
            ird: init.ird,
            ord: init.ord,
            allow: init.allow,
            privileged: init.privileged,
            recv_limit: init.recv_high_watermark,
            ..QpInit::new(pz.id(), send_evd.cq()?.id(), recv_evd.cq()?.id())
        };
        let qp = pz.ia().rnic().create_qp(&verbs).map_err(Error::verb("create a queue pair"))?;
        let ep = Arc::new(Self {
            qp,
            connection: pz.ia().cm().connection(init.ird, init.ord),
            life: Life::new(Object::Ep),
            tag: Tag::default(),
            conn_evd,
            send_evd,
            recv_evd,
            srq,
            pz,
        });
        ep.ia().directory().add_qp(ep.id(), &ep);
        Ok(ep)
    }

    /// The provider's id: what completions and events name.
    pub fn id(&self) -> QpId {
        self.qp.id()
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Its zone.
    pub fn pz(&self) -> &Arc<Pz> {
        self.pz.arc()
    }

    /// The shared queue that it takes its receives from, if any.
    pub fn srq(&self) -> Option<&Arc<Srq>> {
        self.srq.as_ref().map(InUse::arc)
    }

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.pz.ia()
    }

    /// Its dispatcher of connection events.
    pub fn conn_evd(&self) -> &Arc<Evd> {
        self.conn_evd.arc()
    }

    /// Its state.
    pub fn state(&self) -> EpState {
        self.connection.state()
    }

    /// Both ends of the present or last connection.
    pub fn ends(&self) -> Option<Ends> {
        self.connection.ends()
    }

    /// The parameters of its present or last connection.
    pub fn established(&self) -> Option<Established> {
        self.connection.established()
    }

    /// How its last connection ended, or why none was established, as far as the provider reports it;
    /// `None`: it has not ended. Known when the first work request of the connection completes with an
    /// error: before the connection event.
    pub fn connection_end(&self) -> Option<ConnectionEnd> {
        self.connection.end(&*self.qp)
    }

    /// The attributes of the endpoint.
    pub fn query(&self) -> Result<EpInfo> {
        let qp = self.qp.query().map_err(Error::verb("query the queue pair"))?;
        let Self { connection, .. } = self;
        let (ends, established) = (connection.ends(), connection.established());
        Ok(EpInfo { state: connection.state(), ends, established, tcp: qp.tcp, qp })
    }

    /// The attributes of its queue pair; allocates nothing. The provider may ask the kernel about the
    /// stream.
    pub fn qp_info(&self) -> Result<vp_api::QpInfo> {
        self.qp.query().map_err(Error::verb("query the queue pair"))
    }

    /// Connects; a [`crate::ConnEvent`] reports the result. An error leaves the endpoint unconnected:
    /// [`Error::AddressInUse`] for a local port that is taken, [`Error::Os`] if this process lacks the
    /// right or the descriptors.
    pub fn connect(self: &Arc<Self>, params: ConnectParams) -> Result<()> {
        let party = self.ready()?;
        Ok(self.ia().cm().connect(&party, params)?)
    }

    /// Connects from an address that was bound before ([`Ia::bind`]) and that is released if this fails;
    /// the local address and port in `params` are ignored.
    pub fn connect_from(self: &Arc<Self>, bound: Bound, params: ConnectParams) -> Result<()> {
        let party = self.ready()?;
        Ok(self.ia().cm().connect_from(&party, bound, params)?)
    }

    /// The number by which peers address its queue pair, for [`Ep::connect_by_path`].
    pub fn path_number(&self) -> Result<u32> {
        self.paths()?.number(self.id()).map_err(Error::verb("number the queue pair"))
    }

    /// Connects it to a peer of which the caller knows what a connection manager would exchange ([`vp_api::Paths`]). No
    /// event follows, and none reports the end: close it, or end it by [`Disconnect::Abrupt`], which the peer does not
    /// see.
    pub fn connect_by_path(&self, peer: &PeerPath, sender: &PathSender) -> Result<()> {
        let (paths, id) = (self.paths()?, self.id());
        let bring_up = || paths.receive(id, peer).and_then(|()| paths.send(id, sender));
        Ok(self.connection.connect_by(&*self.qp, bring_up)?)
    }

    fn paths(&self) -> Result<Arc<dyn Paths>> {
        let none = || Error::status("connect by path", VpStatus::Unsupported);
        self.ia().rnic().paths().ok_or_else(none)
    }

    /// Makes a connected TCP socket the endpoint's stream, after the applications at both its ends
    /// agreed to (IT-API `it_socket_convert`); a [`crate::ConnEvent`] reports the result.
    ///
    /// The initiator is connecting until the peer's reply has arrived, bounded by the policy's
    /// `connect_timeout`; without start-up it is connected at once. The responder waits
    /// ([`EpState::PassiveWait`]) for the request, which it accepts by itself with the endpoint's IRD
    /// and ORD, bounded by `request_timeout`; without start-up for the first FPDU, bounded by
    /// `answer_timeout`, since the peer's application sends it. A disconnect ends the wait.
    ///
    /// [`Error::Socket`]: this socket cannot become a stream. With any error the socket is returned
    /// unchanged. A success consumes it, even if no connection is established later. No second
    /// descriptor of it may stay open: the peer would not see the connection's end.
    pub fn convert(
        self: &Arc<Self>,
        socket: OwnedFd,
        params: ConvertParams,
    ) -> std::result::Result<(), ConvertError> {
        match self.ready() {
            Ok(party) => Ok(self.ia().cm().convert(&party, socket, params)?),
            Err(error) => Err(ConvertError { error, socket }),
        }
    }

    /// Accepts a connection request; a [`crate::ConnEvent`] reports the result.
    pub fn accept(self: &Arc<Self>, request: RequestId, params: AcceptParams) -> Result<()> {
        let party = self.ready()?;
        Ok(self.ia().cm().accept(&party, request, params)?)
    }

    /// Itself for connection management, with room reserved for the events of what it begins.
    fn ready(self: &Arc<Self>) -> Result<Arc<dyn Connectee>> {
        if self.life.is_closed() {
            return Err(Error::Closed(Object::Ep));
        }
        self.conn_evd.make_room()?;
        Ok(self.clone())
    }

    /// Ends the connection, or the attempt to make one. [`crate::ConnEvent::Disconnected`], or for an
    /// attempt [`crate::ConnEvent::Failed`], follows within the policy's close time-out. Outstanding
    /// work completes as flushed. What has completed arrives at the peer, unless the end is
    /// [`Disconnect::Abrupt`].
    pub fn disconnect(self: &Arc<Self>, how: Disconnect) -> Result<()> {
        let party: Arc<dyn Connectee> = self.clone();
        Ok(self.ia().cm().disconnect(&party, how)?)
    }

    /// Nonoperational to Unconnected, once everything posted is flushed (IT-API `it_ep_reset`). Returns
    /// how many requests of the send queue failed: the last ones that were posted.
    ///
    /// Refused before the connection's last event. If a Terminate cannot be sent because the peer does
    /// not read, this waits for that, bounded by the policy's `close_timeout`.
    pub fn reset(&self) -> Result<u32> {
        Ok(self.ia().cm().reset(self)?)
    }

    /// The queue pair once it has ended by itself, as it does within its bound. [`Ep::reset`] waits the
    /// same way but also keeps posts away, which is not needed during this wait.
    pub fn settled(&self) -> Result<vp_api::QpInfo> {
        Ok(self.ia().cm().settled(self)?)
    }

    /// Posts to the send queue. Before the connection is established: [`VpStatus::InvalidState`];
    /// after it ended the requests complete as flushed.
    #[inline]
    pub fn post_send(&self, wrs: &[SendWr<'_>]) -> std::result::Result<(), PostFailure> {
        if !self.connection.takes_work() {
            return Err(unposted(VpStatus::InvalidState));
        }
        let is_quiet =
            |wr: &SendWr<'_>| wr.wr_id & NOTIFY == 0 && wr.flags.contains(SendFlags::SIGNALED);
        if wrs.iter().any(is_quiet) {
            self.send_evd.expect_uncounted().map_err(unposted)?;
        }
        self.qp.post_send(wrs)
    }

    /// Posts receives; allowed in every state.
    #[inline]
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> std::result::Result<(), PostFailure> {
        self.recv_evd.expect_receives(wrs)?;
        self.qp.post_recv(wrs)
    }

    /// Counts a post that the caller refused because the queue is full, for `warpline stat` (`posts_refused`). The
    /// provider counts those that it refuses.
    #[cold]
    pub fn count_refusal(&self) {
        if let Some(observed) = self.ia().observed() {
            observed.count_refusal(self.id());
        }
    }

    /// Says of the connection, for `warpline stat` and `top`, what only the program knows: at most 128 octets.
    pub fn note(&self, note: &str) {
        if let Some(observed) = self.ia().observed() {
            observed.note(self.id(), note);
        }
    }

    /// Changes limits of the queue pair.
    pub fn modify(&self, change: QpChange) -> Result<()> {
        match change {
            QpChange::Limits { ird, ord, .. } => {
                let modify =
                    || self.qp.modify(change).map_err(Error::verb("modify the queue pair"));
                self.connection.change_reads(ird, ord, modify)
            }
            _ => Err(Error::InvalidArgument(
                "only limits can be modified; connect, disconnect and reset change the state"
                    .into(),
            )),
        }
    }

    /// Destroys it in any state. Its completions and events leave their dispatchers, and none comes
    /// afterwards. What has completed arrives, bounded by the policy's `close_timeout`; if work was
    /// outstanding, a reset follows.
    pub fn close(&self) -> Result<()> {
        self.connection.close(|| {
            self.life.close()?;
            self.ia().rnic().destroy_qp(self.id()).map_err(|error| {
                self.life.reopen();
                Error::verb("destroy the queue pair")(error)
            })
        })?;
        self.ia().directory().remove_qp(self.id());
        self.ia().directory().discard(AsyncSource::Ep(self.id()));
        let of_this =
            |event: &Event| matches!(event, Event::Connection { qp, .. } if *qp == self.id());
        self.conn_evd.discard(of_this);
        self.ia().cm().forget(self.id());
        self.send_evd.forget(self.id());
        self.recv_evd.forget(self.id());
        self.release();
        Ok(())
    }

    /// One of its dispatchers lost completions.
    fn has_overrun(&self) -> bool {
        self.send_evd.arc().has_overrun() || self.recv_evd.arc().has_overrun()
    }

    fn release(&self) {
        self.conn_evd.release();
        self.send_evd.release();
        self.recv_evd.release();
        self.srq.iter().for_each(InUse::release);
        self.pz.release();
    }
}

impl Resource for Ep {
    fn deliver(&self, event: AsyncEvent) -> Option<AsyncEvent> {
        Some(match event {
            // The peer gets a Terminate for it.
            AsyncEvent::TerminateSent(_) if self.has_overrun() => AsyncEvent::CqOverrun,
            event => event,
        })
    }

    fn connectee(self: Arc<Self>) -> Option<Arc<dyn Connectee>> {
        Some(self)
    }

    /// With a shared receive queue: all receives of that.
    fn slots_in(&self, evd: &Evd) -> u32 {
        let Ok(info) = self.qp.query() else { return 0 };
        let shared = self.srq.as_ref().and_then(|srq| srq.query().ok());
        let receives = shared.map_or(info.recv_depth, |srq| srq.depth);
        let of =
            |used: &InUse<Evd>, depth| if std::ptr::eq(&**used.arc(), evd) { depth } else { 0 };
        of(&self.send_evd, info.send_depth) + of(&self.recv_evd, receives)
    }
}

impl Connectee for Ep {
    fn qp(&self) -> &dyn Qp {
        &*self.qp
    }

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn is_open(&self) -> bool {
        !self.life.is_closed()
    }

    fn deliver(self: Arc<Self>, event: ConnEvent) {
        self.connection.while_open(|| {
            if self.is_open() {
                let (qp, ep) = (self.id(), Arc::downgrade(&self));
                let event = Event::Connection { qp, ep, event: Box::new(event) };
                self.conn_evd.push_connection(event, || true);
            }
        });
    }
}

impl Living for Ep {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Ep {
    fn drop(&mut self) {
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Ep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ep({:?}, {})", self.id(), self.state().name())
    }
}
