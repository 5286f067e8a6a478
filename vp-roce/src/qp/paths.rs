//! Bringing up queue pairs by path: the consumer names the peer, and no connection manager takes part.
//!
//! Owner: [`RocePaths`] belongs to the RNIC; the number of a queue pair that is brought up by path to the queue pair,
//! until it is destroyed. If the peer dies, nobody notices before a request of this end is not acknowledged: there is
//! no probe. Reuse: a queue pair that was reset keeps its number, and has a new core.

use std::net::IpAddr;
use std::sync::Arc;

use roce_proto::psn::Psn;
use roce_proto::rc::{Mtu, RcConfig, Sending, timeout};
use vp_api::{PathSender, Paths, PeerPath, QpId, QpState, VpError, VpResult, VpStatus};
use vp_soft::objects::Objects;

use super::{Path, RoceQp, State};
use crate::engine::{Engine, PORT};
use crate::path::{self, mtu_of_local};
use crate::rnic::QpEntry;
use crate::tuning::{ACK_TIMEOUT, LEAST_ACK_TIMEOUT, window};

/// The bring-up by path of an RNIC.
pub(crate) struct RocePaths {
    pub(crate) engine: Arc<Engine>,
    pub(crate) qps: Arc<Objects<QpEntry>>,
}

impl RocePaths {
    fn qp(&self, qp: QpId) -> VpResult<Arc<RoceQp>> {
        self.qps.get(qp.0)?.connected(qp)
    }
}

impl Paths for RocePaths {
    fn number(&self, qp: QpId) -> VpResult<u32> {
        self.qp(qp)?.path_number()
    }

    fn set_unreliable(&self, qp: QpId) -> VpResult<()> {
        self.qp(qp)?.alive()?.unreliable = true;
        Ok(())
    }

    fn receive(&self, qp: QpId, peer: &PeerPath) -> VpResult<()> {
        let qp = self.qp(qp)?;
        peer.check()?;
        let (local, to) = (path::address(peer.local_gid), path::address(peer.remote_gid));
        check_addresses(local, to)?;
        let mtu = check_mtu(local, peer.mtu_code)?;
        let number = qp.path_number()?;
        let responder_resources = reads(peer.ird, qp.init.ird)?;
        let socket = self.engine.socket(local)?;
        qp.claim()?;
        let config = RcConfig {
            destination: peer.qpn,
            mtu,
            send_psn: Psn::new(0),
            receive_psn: Psn::new(peer.psn),
            retry_count: 0,
            rnr_retry: 0,
            rnr_limit: Some(qp.settings.rnr_limit()),
            ack_timeout: None,
            count_after: timeout(ACK_TIMEOUT).unwrap_or(0),
            min_rnr_timer: peer.min_rnr_timer,
            initiator_depth: 0,
            responder_resources,
            window: window(mtu),
            send_depth: qp.init.send_depth,
        };
        let path = Path {
            config,
            number,
            socket,
            peer: to,
            unconfirmed: None,
            role: None,
            probes: false,
            ack_timeout: 0,
        };
        qp.begin(path).inspect_err(|_| qp.disclaim())
    }

    fn send(&self, qp: QpId, sender: &PathSender) -> VpResult<()> {
        let qp = self.qp(qp)?;
        sender.check()?;
        let sending = Sending {
            psn: Psn::new(sender.psn),
            retry_count: sender.retry_count,
            rnr_retry: sender.rnr_retry,
            ack_timeout: timeout(granted(sender.ack_timeout)),
            initiator_depth: reads(sender.ord, qp.init.ord)?,
        };
        qp.begin_sending(sending, sender)
    }

    fn in_force(&self, qp: QpId) -> VpResult<Option<(PeerPath, PathSender)>> {
        Ok(self.qp(qp)?.alive()?.in_force)
    }

    fn set_ack_timeout(&self, qp: QpId, code: u8) -> VpResult<()> {
        self.qp(qp)?.alive()?.ack_timeout = Some(code);
        Ok(())
    }

    fn set_min_rnr_timer(&self, qp: QpId, code: u8) -> VpResult<()> {
        let qp = self.qp(qp)?;
        let mut state = qp.alive()?;
        let State { link: Some(link), in_force: Some((receives, _)), .. } = &mut *state else {
            let detail = format!("queue pair {} has no connection", qp.context.id.0);
            return Err(VpError::new(VpStatus::InvalidState, detail));
        };
        link.core.set_min_rnr_timer(code);
        receives.min_rnr_timer = code;
        Ok(())
    }
}

/// The acknowledge timeout for one that was asked for; 0: never.
pub(super) fn granted(code: u8) -> u8 {
    if code == 0 { 0 } else { code.max(LEAST_ACK_TIMEOUT) }
}

impl RoceQp {
    /// Its number, by which peers address it without a connection manager.
    fn path_number(&self) -> VpResult<u32> {
        let mut state = self.alive()?;
        if let Some(number) = state.path_number {
            return Ok(number);
        }
        let number = self.engine.number(self.me.clone())?;
        state.path_number = Some(number);
        Ok(number)
    }

    /// To RTS.
    fn begin_sending(&self, sending: Sending, sender: &PathSender) -> VpResult<()> {
        let mut state = self.alive()?;
        let (phase, number) = (state.phase, state.path_number);
        let received = |link: &&mut super::Link| Some(link.number) == number;
        let Some(link) = state.link.as_mut().filter(received).filter(|_| phase == QpState::Idle)
        else {
            let detail = format!("queue pair {} does not receive by path", self.context.id.0);
            return Err(VpError::new(VpStatus::InvalidState, detail));
        };
        link.core.set_sending(sending).map_err(|_| {
            let depth = self.init.send_depth as usize;
            vp_api::room::none::<u64>("requests of a connection", depth)
        })?;
        let ends = (link.socket.local(), link.peer);
        (state.local, state.remote) = (Some((ends.0, PORT).into()), Some((ends.1, PORT).into()));
        (state.phase, state.ord) = (QpState::Rts, sender.ord);
        if let Some((_, sends)) = &mut state.in_force {
            *sends = PathSender { ack_timeout: granted(sender.ack_timeout), ..*sender };
        }
        state.publish_ready();
        Ok(())
    }
}

/// Both ends of a path, in one family.
fn check_addresses(local: IpAddr, to: IpAddr) -> VpResult<()> {
    let wrong = |detail| Err(VpError::new(VpStatus::InvalidModifier, detail));
    if to.is_unspecified() || to.is_multicast() {
        return wrong(format!("queue pairs cannot be connected to {to}"));
    }
    match local.is_ipv4() == to.is_ipv4() {
        true => Ok(()),
        false => wrong(format!("{to} cannot be reached from {local}")),
    }
}

/// The path MTU with this code, if the link of a local address carries it.
fn check_mtu(local: IpAddr, code: u8) -> VpResult<Mtu> {
    let most = mtu_of_local(local)?;
    Mtu::from_code(code).filter(|mtu| mtu.octets() <= most.octets()).ok_or_else(|| {
        let detail = format!(
            "a path MTU with the code {code} does not fit: the interface of {local} carries {}",
            most.octets()
        );
        VpError::new(VpStatus::InvalidModifier, detail)
    })
}

/// A number of reads, up to that at creation.
fn reads(wanted: u16, most: u16) -> VpResult<u8> {
    let fits = u8::try_from(wanted).ok().filter(|_| wanted <= most);
    fits.ok_or_else(|| {
        let detail = format!("this queue pair was created for {most} reads, not {wanted}");
        VpError::new(VpStatus::InvalidIrdOrd, detail)
    })
}
