//! Modify QP and Query QP.
//!
//! Under the QP's lock, in the consumer's thread. A change is made completely or not at all. Its
//! consequences (the peer's FIN, flushes) are reported later, as events and completions.

use std::sync::Arc;

use iwarp_proto::{RtrKind, State, StreamConfig, mpa};
use vp_api::{
    FpduSize, LlpStream, QpChange, QpCounters, QpInfo, QpState, Role, Rtr, StreamParams, VpError,
    VpResult, VpStatus, room,
};
use vp_soft::queue::untaken::Untaken;
use vp_soft::queue::wq::{RecvRing, SendRing};

use crate::engine::{Member, Timer};
use crate::limits;
use crate::qp::coalesce::Coalesce;
use crate::qp::context::{Context, Lost};
use crate::qp::inner::{Inner, Limits};
use crate::qp::link::Link;
use crate::qp::refused::terminate;
use crate::stream::socket::Stream;
use crate::tuning;

impl Inner {
    /// Idle -> RTS over a stream, which is closed if this fails.
    // RDMAC 6.2.1.2 [VERBS-03]
    pub(crate) fn connect(
        &mut self,
        context: &Context,
        llp: LlpStream,
        member: Arc<dyn Member>,
    ) -> VpResult<()> {
        if self.core.proto.state() != State::Idle {
            return Err(self.refuse(context, "RTS"));
        }
        self.check_reads(context, &llp.params)?;
        let invalid = |error: std::io::Error| {
            let detail = format!("QP {} needs a connected TCP socket: {error}", context.id.0);
            VpError::new(VpStatus::InvalidStream, detail)
        };
        let stream = Stream::adopt(llp.socket, llp.local).map_err(invalid)?;
        let config = stream_config(&llp.params, &stream).map_err(invalid)?;
        self.record.local = stream.local();
        self.record.remote = stream.remote();
        self.record.ended = None;
        self.record.carrier = stream.carrier();
        let mut link = Link::new(stream, llp.params);
        let raw = match link.stream.shared() {
            None => &llp.last_message[..],
            Some(_) => {
                link.speak_last(&llp.received, &llp.last_message).map_err(invalid)?;
                &[]
            }
        };
        if !link.outbox.push_raw(raw) {
            return Err(room::none::<u8>("octets to send from", tuning::SEND_BUDGET));
        }
        // Events need the lock that is held here, so none comes too early.
        link.generation = context
            .engine
            .attach(context.id.0, member, &*link.stream)
            .map_err(|e| VpError::os("adding the stream to the progress engine: epoll_ctl", &e))?;
        link.begin_local(context)?;
        self.link = Some(link);
        // A timer of the last stream was cancelled, and never expires.
        self.coalesce = Coalesce::default();
        self.core.queues.lost = Lost::default();
        if self.core.proto.start(config).is_err() {
            return Err(self.refuse(context, "RTS"));
        }
        self.publish_stream(context, u32::from(config.mulpdu));
        self.receive_early(context, &llp.received);
        Ok(())
    }

    fn check_reads(&self, context: &Context, params: &StreamParams) -> VpResult<()> {
        if params.ird <= self.limits.ird && params.ord <= self.limits.ord {
            return Ok(());
        }
        let detail = format!(
            "QP {} takes {} inbound and {} outbound reads at once; the stream was negotiated for {} \
             and {}: create the QP with more or negotiate less",
            context.id.0, self.limits.ird, self.limits.ord, params.ird, params.ord
        );
        Err(VpError::new(VpStatus::InvalidIrdOrd, detail))
    }

    /// Every other change.
    // RDMAC Table 3 [VERBS-01]
    pub(crate) fn change(&mut self, context: &Context, change: QpChange) -> VpResult<()> {
        // Earlier posts are transmitted before.
        self.drive_to_end(context);
        match change {
            QpChange::Closing => {
                self.core.close(context).map_err(|_| self.refuse(context, "Closing"))?;
            }
            QpChange::Drain => self.drain(context)?,
            QpChange::Allow(rights) => self.core.queues.peer.allow = rights,
            QpChange::Terminate => {
                self.core.terminate(context).map_err(|_| self.refuse(context, "Terminate"))?;
            }
            QpChange::Error => self.abort(context)?,
            QpChange::Idle => {
                self.core.proto.reset().map_err(|_| self.refuse(context, "Idle"))?;
                // The counts of this stream; another one may never begin.
                self.core.queues.lost = Lost::default();
                self.core.queues.untaken_sends.forget_silent();
            }
            QpChange::Discard => self.discard(context)?,
            QpChange::Limits { ord, ird, send_depth, recv_depth, recv_limit } => {
                self.check_recv_limit(context, recv_limit, recv_depth)?;
                self.set_limits(context, ord, ird, send_depth, recv_depth)?;
                if let Some(limit) = recv_limit {
                    self.core.queues.deferred.recv_limit |= context.arm_recv_limit(limit);
                }
            }
            _ => return Err(VpError::new(VpStatus::Unsupported, "unknown change of a QP")),
        }
        self.drive_to_end(context);
        Ok(())
    }

    /// The completions of earlier streams leave the CQs.
    fn discard(&mut self, context: &Context) -> VpResult<()> {
        if self.core.proto.state() != State::Idle {
            return Err(self.refuse(context, "Idle without completions"));
        }
        context.send_cq.discard(context.id);
        context.recv_cq.discard(context.id);
        self.core.queues.untaken_sends.clear();
        self.core.queues.untaken_receives.clear();
        context.hold_discarded();
        Ok(())
    }

    /// Closes when no work is outstanding, which `drive` checks, or when the close time-out has passed.
    fn drain(&mut self, context: &Context) -> VpResult<()> {
        match &mut self.link {
            Some(link) if self.core.proto.state() == State::Rts => {
                if !std::mem::replace(&mut link.draining, true) {
                    link.set_timer(context, link.close_at(context), Timer::Close);
                }
                Ok(())
            }
            _ => Err(self.refuse(context, "Closing")),
        }
    }

    // RDMAC 6.2.5, 6.2.3: Closing and Terminate end by themselves [VERBS-05] [VERBS-10]
    fn abort(&mut self, context: &Context) -> VpResult<()> {
        if matches!(self.core.proto.state(), State::Closing | State::Terminate) {
            return Err(self.refuse(context, "Error"));
        }
        self.core.abort(context);
        Ok(())
    }

    fn refuse(&self, context: &Context, to: &str) -> VpError {
        let (id, state) = (context.id.0, self.core.proto.state());
        VpError::new(VpStatus::InvalidState, format!("QP {id} cannot go from {state:?} to {to}"))
    }

    fn set_limits(
        &mut self,
        context: &Context,
        ord: Option<u16>,
        ird: Option<u16>,
        send_depth: Option<u32>,
        recv_depth: Option<u32>,
    ) -> VpResult<()> {
        let cannot = |what: &str| {
            let detail = format!("QP {}: {what}", context.id.0);
            Err(VpError::new(VpStatus::CannotChange, detail))
        };
        if self.core.proto.state() == State::Rts {
            return match (ord, ird, send_depth, recv_depth) {
                (None, None, None, None) => Ok(()),
                (Some(ord), None, None, None) => self.reduce_ord(context, ord),
                _ => cannot("only its ORD changes in RTS"),
            };
        }
        if self.core.proto.state() != State::Idle {
            return cannot("its limits change only in Idle and RTS");
        }
        let queues = &mut self.core.queues;
        queues.untaken_sends.reap(context.send_cq.taken());
        queues.untaken_receives.reap(context.recv_cq.taken());
        if recv_depth.is_some() && (context.srq.is_some() || queues.receive_slots() != 0) {
            return cannot(
                "the receive depth changes only with an empty queue of its own, completions polled",
            );
        }
        if send_depth.is_some() && self.send_slots() != 0 {
            return cannot(
                "the send depth changes only with an empty queue, its completions polled",
            );
        }
        let depths = [("send depth", send_depth), ("receive depth", recv_depth)];
        for (what, depth) in depths.into_iter().filter_map(|(what, d)| d.map(|d| (what, d))) {
            limits::check(what, depth, 1, limits::MAX_WR, VpStatus::TooManyWrs)?;
        }
        for reads in [ord, ird].into_iter().flatten() {
            let most = u32::from(limits::MAX_READS);
            limits::check("IRD or ORD", reads.into(), 0, most, VpStatus::InvalidIrdOrd)?;
        }
        let max_sge = self.core.queues.receives.max_sge();
        let receives = recv_depth.map(|depth| RecvRing::new(depth, max_sge)).transpose()?;
        let untaken = recv_depth.map(Untaken::new).transpose()?;
        self.apply(ord.unwrap_or(self.limits.ord), ird.unwrap_or(self.limits.ird), send_depth)?;
        if let (Some(receives), Some(untaken)) = (receives, untaken) {
            self.core.queues.receives = receives;
            self.core.queues.untaken_receives = untaken;
        }
        Ok(())
    }

    fn check_recv_limit(
        &self,
        context: &Context,
        limit: Option<u32>,
        depth: Option<u32>,
    ) -> VpResult<()> {
        let most = match &context.srq {
            Some(_) => limits::MAX_WR,
            None => depth.unwrap_or(self.core.queues.receives.depth()),
        };
        let limit = limit.unwrap_or(0);
        limits::check("receive limit", limit, 0, most, VpStatus::InvalidModifier)
    }

    // RDMAC 9.2.5.2 [VERBS-15]: in RTS it only goes down
    fn reduce_ord(&mut self, context: &Context, ord: u16) -> VpResult<()> {
        let now = self.link.as_ref().map_or(self.limits.ord, |link| link.params.ord);
        if !self.core.proto.reduce_ord(ord) {
            let detail = format!(
                "QP {} is connected with an ORD of {now}; it can only be lowered, {ord} was requested",
                context.id.0
            );
            return Err(VpError::new(VpStatus::InvalidIrdOrd, detail));
        }
        if let Some(link) = &mut self.link {
            link.params.ord = ord;
        }
        Ok(())
    }

    fn apply(&mut self, ord: u16, ird: u16, send_depth: Option<u32>) -> VpResult<()> {
        let old = self.limits;
        let new = Limits { ord, ird, send_depth: send_depth.unwrap_or(old.send_depth), ..old };
        let untaken = send_depth.map(Untaken::new).transpose()?;
        // Its rings are sized at creation; with an empty queue in Idle the core loses nothing.
        if self.core.proto.outstanding_sends() == 0 && new != old {
            let Limits { send_depth, max_send_sge, max_inline, .. } = new;
            self.core.queues.sends = SendRing::new(send_depth, max_send_sge, max_inline)?;
            self.core.proto = iwarp_proto::Qp::new(new.config());
        }
        if let Some(untaken) = untaken {
            self.core.queues.untaken_sends = untaken;
        }
        self.limits = new;
        self.publish_limits();
        Ok(())
    }

    /// Query QP, but for what TCP knows.
    // RDMAC 9.2.5.3 [VERBS-28]
    pub(crate) fn info(&self, context: &Context) -> QpInfo {
        let (proto, queues) = (&self.core.proto, &self.core.queues);
        let mut info = QpInfo::new(context.id);
        info.state = match proto.state() {
            State::Idle => QpState::Idle,
            State::Rts => QpState::Rts,
            State::Closing => QpState::Closing,
            State::Terminate => QpState::Terminate,
            State::Error => QpState::Error,
        };
        info.send_depth = self.limits.send_depth;
        info.recv_depth = queues.receives.depth();
        info.sends_outstanding = proto.outstanding_sends();
        info.recvs_outstanding = queues.receives.posted() + u32::from(queues.receiving);
        let link = self.link.as_ref();
        info.sends_lost = queues.lost.sends;
        info.recvs_lost = queues.lost.receives;
        info.recv_limit = context.outstanding.get().map_or(0, |receives| receives.limit());
        info.ird = link.map_or(self.limits.ird, |link| link.params.ird);
        info.ord = link.map_or(self.limits.ord, |link| link.params.ord);
        info.terminate =
            proto.last_terminate().map(|(sent, code)| terminate(proto, sent, code, context));
        info.local = self.record.local;
        info.remote = self.record.remote;
        info.ended = self.record.ended;
        info.carrier = link.map_or(self.record.carrier, |link| link.stream.carrier());
        info.counters = self.counters();
        info
    }

    fn counters(&self) -> QpCounters {
        let stats = self.core.proto.stats();
        let mut counters = self.record.counters;
        counters.fpdus_sent = stats.fpdus_sent;
        counters.fpdus_received = stats.fpdus_received;
        counters.octets_sent = stats.octets_sent;
        counters.octets_received = stats.octets_received;
        counters.ord_stalls = stats.ord_stalls;
        counters.recv_calls += self.link.as_ref().map_or(0, |link| link.inbox.calls);
        counters
    }
}

fn stream_config(params: &StreamParams, stream: &Stream) -> std::io::Result<StreamConfig> {
    let mulpdu = match params.fpdu {
        FpduSize::Emss if stream.shared().is_some() => tuning::LOCAL_ULPDU,
        FpduSize::Emss => mpa::mulpdu(stream.emss()?, params.markers_tx),
        FpduSize::Octets(octets) => octets,
    };
    Ok(StreamConfig {
        role: match params.role {
            Role::Initiator => iwarp_proto::Role::Initiator,
            Role::Responder => iwarp_proto::Role::Responder,
        },
        crc: params.crc,
        markers_tx: params.markers_tx,
        markers_rx: params.markers_rx,
        mulpdu,
        ird: params.ird,
        ord: params.ord,
        rtr: params.rtr.map(|rtr| match rtr {
            Rtr::Send => RtrKind::Send,
            Rtr::Write => RtrKind::Write,
            Rtr::Read => RtrKind::Read,
        }),
        send_immediates: params.send_immediates,
    })
}
