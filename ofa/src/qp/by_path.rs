//! Bring-up by path, on devices that do it themselves (RoCE): the attributes name the peer, and the provider exchanges
//! InfiniBand's packets with it. The peer may be of any implementation.

use ibv_sys::*;
use kal_os::lock;
use vp_api::{ConnectionModel, PathSender, Paths, PeerPath};

use super::Qp;
use crate::adapter::Adapter;
use crate::advice::Advice;
use crate::errno::{EINVAL, Errno};

/// Packet sequence numbers have 24 bits.
const PSN: u32 = 0x00ff_ffff;
/// Retry counts have three.
const MAX_RETRIES: u8 = 7;

impl Qp {
    /// What a change of the state means to the provider.
    pub(super) fn step(&self, paths: &dyn Paths, from: u32, to: u32) -> Result<(), Errno> {
        let id = self.vp.id();
        match (from, to) {
            (IBV_QPS_INIT, IBV_QPS_RTR) => Ok(paths.receive(id, &self.peer_path()?)?),
            (IBV_QPS_RTR, IBV_QPS_RTS) => Ok(paths.send(id, &self.sender()?)?),
            _ => Ok(()),
        }
    }

    fn peer_path(&self) -> Result<PeerPath, Errno> {
        let known = *lock(&self.attr);
        let path = known.ah_attr;
        // RoCE has no LIDs.
        if path.is_global == 0 {
            Advice::NoGid.say();
            return Err(EINVAL);
        }
        if known.dest_qp_num > PSN {
            return Err(EINVAL);
        }
        let gids = self.adapter()?.device().gids()?;
        Ok(PeerPath {
            local_gid: *gids.table().get(usize::from(path.grh.sgid_index)).ok_or(EINVAL)?,
            remote_gid: path.grh.dgid.raw,
            qpn: known.dest_qp_num,
            psn: known.rq_psn & PSN,
            mtu_code: known.path_mtu as u8,
            ird: known.max_dest_rd_atomic.into(),
            min_rnr_timer: known.min_rnr_timer,
        })
    }

    fn sender(&self) -> Result<PathSender, Errno> {
        let known = *lock(&self.attr);
        if known.retry_cnt.max(known.rnr_retry) > MAX_RETRIES {
            return Err(EINVAL);
        }
        Ok(PathSender {
            psn: known.sq_psn & PSN,
            ack_timeout: known.timeout,
            retry_count: known.retry_cnt,
            rnr_retry: known.rnr_retry,
            ord: known.max_rd_atomic.into(),
        })
    }

    /// Whether the provider alone reports the end of its connection: it has no connection identifier.
    pub(super) fn is_by_path(&self) -> bool {
        self.paths.is_some() && self.owner().is_none()
    }
}

/// Whether a device makes its connections itself, so that it is not iWARP.
pub(super) fn is_native(adapter: &Adapter) -> bool {
    adapter.attrs().connection_model == ConnectionModel::Native
}
