//! Endpoints for datagrams: a queue pair without a connection.
//!
//! The UdEp owns the queue pair and the senders of datagrams whose completions were polled and not
//! examined yet. It is operational from the beginning; the provider has the state. Any thread. The death
//! of a peer is not noticed: datagrams to it are lost, and none come from it.

use std::sync::Arc;

use vp_api::{
    Data, DatagramSource, Datagrams, PostFailure, QpId, RecvWr, SendFlags, UdAddress, UdQp,
    UdQpInfo, UdQpInit, UdSendWr, UdState, VpStatus,
};

use super::{AddressHandle, Ia, Pz, Resource, Senders};
use crate::error::{Error, Object, Result, unposted};
use crate::event::{AsyncSource, Evd, NOTIFY};
use crate::life::{InUse, Life, Living};
use crate::tag::Tag;

/// For creating a [`UdEp`].
#[derive(Clone, Debug)]
pub struct UdEpInit {
    /// Completions of sends; a [`crate::Stream::Completion`] dispatcher.
    pub send_evd: Arc<Evd>,
    /// Completions of receives; may be the same.
    pub recv_evd: Arc<Evd>,
    /// Sends outstanding.
    pub send_depth: u32,
    /// Receives outstanding.
    pub recv_depth: u32,
    /// Gather elements per send.
    pub max_send_sge: u32,
    /// Scatter elements per receive.
    pub max_recv_sge: u32,
    /// Octets inline.
    pub max_inline: u32,
    /// The port, as an index into [`Ia::ports`].
    pub port: u32,
    /// Its key; `None`: the provider's default.
    pub key: Option<u32>,
}

impl UdEpInit {
    /// The provider-neutral defaults of [`UdQpInit::new`].
    pub fn new(completions: &Arc<Evd>) -> Self {
        let small = UdQpInit::new(vp_api::PdId(0), vp_api::CqId(0), vp_api::CqId(0));
        Self {
            send_evd: completions.clone(),
            recv_evd: completions.clone(),
            send_depth: small.send_depth,
            recv_depth: small.recv_depth,
            max_send_sge: small.max_send_sge,
            max_recv_sge: small.max_recv_sge,
            max_inline: small.max_inline,
            port: small.port,
            key: None,
        }
    }
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Comes back in the completion; see [`NOTIFY`].
    pub wr_id: u64,
    /// The message.
    pub data: Data<'a>,
    /// Modifiers.
    pub flags: SendFlags,
    /// Solicited event at the peer.
    pub solicited: bool,
    /// The peer's queue pair.
    pub to: UdAddress,
}

/// Endpoint for datagrams (IT-API `it_ep_ud_create`).
pub struct UdEp {
    qp: Arc<dyn UdQp>,
    datagrams: Arc<dyn Datagrams>,
    senders: Arc<Senders>,
    life: Life,
    tag: Tag,
    send_evd: InUse<Evd>,
    recv_evd: InUse<Evd>,
    pz: InUse<Pz>,
}

impl Pz {
    /// Creates an endpoint for datagrams.
    pub fn create_ud_ep(self: &Arc<Self>, init: UdEpInit) -> Result<Arc<UdEp>> {
        UdEp::new(self, init)
    }
}

impl Ia {
    /// The endpoint for datagrams of a queue pair, while it is open.
    pub fn ud_ep(&self, qp: QpId) -> Option<Arc<UdEp>> {
        self.directory().by_qp(qp)
    }
}

impl UdEp {
    fn new(pz: &Arc<Pz>, init: UdEpInit) -> Result<Arc<Self>> {
        let datagrams = pz.ia().datagrams("create an endpoint for datagrams")?.clone();
        let pz = InUse::new(pz)?;
        let send_evd = InUse::new(&init.send_evd)?;
        let recv_evd = InUse::new(&init.recv_evd)?;
        let (send_cq, recv_cq) = (send_evd.cq()?.id(), recv_evd.cq()?.id());
        recv_evd.expect_datagrams();
        let verbs = UdQpInit {
            send_depth: init.send_depth,
            recv_depth: init.recv_depth,
            max_send_sge: init.max_send_sge,
            max_recv_sge: init.max_recv_sge,
            max_inline: init.max_inline,
            port: init.port,
            qkey: init.key,
            ..UdQpInit::new(pz.id(), send_cq, recv_cq)
        };
        let verb = Error::verb("create a queue pair for datagrams");
        let senders = Arc::new(Senders::new(init.recv_depth as usize).map_err(&verb)?);
        let qp = datagrams.create_qp(&verbs).map_err(verb)?;
        let ep = Arc::new(Self {
            qp,
            datagrams,
            senders,
            life: Life::new(Object::Ep),
            tag: Tag::default(),
            send_evd,
            recv_evd,
            pz,
        });
        ep.ia().directory().add_sources(ep.id(), &ep.senders);
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

    /// Its Ia.
    pub fn ia(&self) -> &Arc<Ia> {
        self.pz.ia()
    }

    /// What peers need to send to it, besides a path. A reset may change it.
    pub fn address(&self) -> UdAddress {
        self.qp.address()
    }

    /// The attributes of the endpoint.
    pub fn query(&self) -> Result<UdQpInfo> {
        self.qp.query().map_err(Error::verb("query the queue pair"))
    }

    /// Sends a datagram. It is lost without notice if no receive is posted for it. In Error it completes
    /// as flushed.
    pub fn post_send(
        &self,
        path: &AddressHandle,
        datagram: &Datagram<'_>,
    ) -> std::result::Result<(), PostFailure> {
        if path.pz().id() != self.pz.id() || !Arc::ptr_eq(path.pz().ia(), self.ia()) {
            return Err(unposted(VpStatus::InvalidPd));
        }
        let Datagram { wr_id, data, flags, solicited, to } = *datagram;
        if wr_id & NOTIFY == 0 && flags.contains(SendFlags::SIGNALED) {
            self.send_evd.expect_uncounted().map_err(unposted)?;
        }
        let post = |ah| {
            let immediate = None;
            self.qp.post_send(&[UdSendWr { wr_id, data, flags, solicited, immediate, ah, to }])
        };
        path.with(post).map_err(|_| unposted(VpStatus::InvalidHandle))?
    }

    /// Posts receives: [`vp_api::GRH_OCTETS`] octets and the message. Their `wr_id`s must differ until
    /// the completions were examined.
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> std::result::Result<(), PostFailure> {
        self.recv_evd.expect_receives(wrs)?;
        self.qp.post_recv(wrs)
    }

    /// The sender of the datagram of a completed receive; returned once. `None`: the receive failed.
    pub fn take_sender(&self, wr_id: u64) -> Option<DatagramSource> {
        self.senders.take(wr_id)
    }

    /// Stops it: all posted work completes as flushed, until a reset.
    pub fn stop(&self) -> Result<()> {
        self.qp.modify(UdState::Error).map_err(Error::verb("stop the queue pair"))
    }

    /// Makes it operational again, once all flushed completions were taken (IT-API `it_ep_reset`).
    pub fn reset(&self) -> Result<()> {
        self.qp.modify(UdState::Operational).map_err(Error::verb("reset the queue pair"))
    }

    /// Destroys it. Its completions leave their dispatchers; no further completion or event of it is
    /// delivered.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        if let Err(error) = self.datagrams.destroy_qp(self.id()) {
            self.life.reopen();
            return Err(Error::verb("destroy the queue pair")(error));
        }
        self.ia().directory().remove_qp(self.id());
        self.ia().directory().remove_sources(self.id());
        self.ia().directory().discard(AsyncSource::Ep(self.id()));
        self.send_evd.forget(self.id());
        self.recv_evd.forget(self.id());
        self.send_evd.release();
        self.recv_evd.release();
        self.pz.release();
        Ok(())
    }
}

impl Resource for UdEp {}

impl Living for UdEp {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for UdEp {
    fn drop(&mut self) {
        // It is closed already, or can no longer be used; either way the error concerns no one.
        let _ = self.close();
    }
}

impl std::fmt::Debug for UdEp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdEp({:?})", self.id())
    }
}
