//! Conversion of bring-up by path between Rust and C: the peer, and how requests are sent. No state.

use super::types::{self as c, Sized32};
use crate::{PathSender, PeerPath, VpError, VpResult, VpStatus};

pub(super) fn peer_to(peer: &PeerPath) -> c::PeerPath {
    c::PeerPath {
        qpn: peer.qpn,
        local_gid: peer.local_gid,
        remote_gid: peer.remote_gid,
        psn: peer.psn,
        mtu_code: peer.mtu_code.into(),
        ird: peer.ird.into(),
        min_rnr_timer: peer.min_rnr_timer.into(),
        ..c::PeerPath::blank()
    }
}

pub(super) fn peer_from(peer: &c::PeerPath) -> VpResult<PeerPath> {
    Ok(PeerPath {
        local_gid: peer.local_gid,
        remote_gid: peer.remote_gid,
        qpn: peer.qpn,
        psn: peer.psn,
        mtu_code: small("ri_peer_path.mtu_code", peer.mtu_code)?,
        ird: small("ri_peer_path.ird", peer.ird)?,
        min_rnr_timer: small("ri_peer_path.min_rnr_timer", peer.min_rnr_timer)?,
    })
}

pub(super) fn sender_to(sender: &PathSender) -> c::PathSender {
    c::PathSender {
        psn: sender.psn,
        ack_timeout: sender.ack_timeout.into(),
        retry_count: sender.retry_count.into(),
        rnr_retry: sender.rnr_retry.into(),
        ord: sender.ord.into(),
        ..c::PathSender::blank()
    }
}

pub(super) fn sender_from(sender: &c::PathSender) -> VpResult<PathSender> {
    Ok(PathSender {
        psn: sender.psn,
        ack_timeout: small("ri_path_sender.ack_timeout", sender.ack_timeout)?,
        retry_count: small("ri_path_sender.retry_count", sender.retry_count)?,
        rnr_retry: small("ri_path_sender.rnr_retry", sender.rnr_retry)?,
        ord: small("ri_path_sender.ord", sender.ord)?,
    })
}

/// A number that is smaller in Rust. The provider checks whether it is in its range.
fn small<T: TryFrom<u32>>(field: &str, number: u32) -> VpResult<T> {
    T::try_from(number).map_err(|_| {
        VpError::new(VpStatus::InvalidModifier, format!("{field} is {number}, out of its range"))
    })
}
