//! Parameters and attributes of an endpoint. Plain data.

use std::sync::Arc;

use vp_api::{Access, QpInfo, QpInit, TcpInfo};

use ual_cm::{ConnState as EpState, Ends, Established};

use crate::event::Evd;
use crate::resource::Srq;

/// For creating an [`super::Ep`].
#[derive(Clone, Debug)]
pub struct EpInit {
    /// Completions of sends, writes, reads, atomics, binds: a [`crate::Stream::Completion`] dispatcher.
    pub send_evd: Arc<Evd>,
    /// Completions of receives; may be the same.
    pub recv_evd: Arc<Evd>,
    /// Connection events: a [`crate::Stream::Connection`] dispatcher, or the [`crate::Stream::Request`]
    /// one of a listener.
    pub conn_evd: Arc<Evd>,
    /// Take receives from this queue.
    pub srq: Option<Arc<Srq>>,
    /// Send work requests outstanding.
    pub send_depth: u32,
    /// Receives outstanding.
    pub recv_depth: u32,
    /// Gather elements per send.
    pub max_send_sge: u32,
    /// Scatter elements per receive.
    pub max_recv_sge: u32,
    /// Octets inline.
    pub max_inline: u32,
    /// Inbound reads and atomics at once, at most.
    pub ird: u16,
    /// Outbound reads and atomics at once, at most.
    pub ord: u16,
    /// Rights that the peer may use through this endpoint.
    pub allow: Access,
    /// STag 0 and fast registration allowed.
    pub privileged: bool,
    /// Raise a one-shot event when more receives than this are outstanding; 0: never.
    pub recv_high_watermark: u32,
}

impl EpInit {
    /// The provider-neutral defaults of [`QpInit::new`].
    pub fn new(completions: &Arc<Evd>, connection: &Arc<Evd>) -> Self {
        let small = QpInit::new(vp_api::PdId(0), vp_api::CqId(0), vp_api::CqId(0));
        Self {
            send_evd: completions.clone(),
            recv_evd: completions.clone(),
            conn_evd: connection.clone(),
            srq: None,
            send_depth: small.send_depth,
            recv_depth: small.recv_depth,
            max_send_sge: small.max_send_sge,
            max_recv_sge: small.max_recv_sge,
            max_inline: small.max_inline,
            ird: small.ird,
            ord: small.ord,
            allow: small.allow,
            privileged: false,
            recv_high_watermark: 0,
        }
    }
}

/// The attributes of an endpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub struct EpInfo {
    pub state: EpState,
    /// Both ends, once a connection was attempted.
    pub ends: Option<Ends>,
    /// The negotiated parameters, once connected.
    pub established: Option<Established>,
    /// TCP's view of the stream, while there is one and the provider reports it; negotiated parameters
    /// are in `established`.
    pub tcp: Option<TcpInfo>,
    /// The queue pair, with its counters.
    pub qp: QpInfo,
}
