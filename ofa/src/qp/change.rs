//! Changes of a queue pair's state and attributes (ibv_modify_qp(3), ibv_query_qp(3)): one at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ibv_sys::*;
use kal_os::lock;
use ual_cm::{ConnState, Connectee, Disconnect};
use vp_api::{Access, Capabilities, Paths, QpChange, QpId, QpState, Transport, VpResult};

use super::{Owner, Qp};
use crate::access;
use crate::caps;
use crate::errno::{EBUSY, EINVAL, Errno};
use crate::qp_state;
use crate::tuning::STATE_CHECK;
use crate::verbs::context::PORT;

/// A stream that was reset ends within this time.
const SETTLE: Duration = Duration::from_secs(3);

impl Qp {
    /// ibv_modify_qp.
    ///
    /// # Errors
    /// EINVAL: the change, its attributes, or their values, or the stream ended meanwhile. Nothing
    /// has changed then. EBUSY: a reset while the stream is still ending; the state is ERR.
    pub fn modify(self: &Arc<Self>, attr: &ibv_qp_attr, mask: i32) -> Result<(), Errno> {
        self.adapter()?;
        let _one = lock(&self.changing);
        let (owner, now) = (self.owner(), self.state());
        let by_id = owner.is_some() && lock(&self.meet).meeting.is_none();
        let to = qp_state::check(self.init.kind, by_id, now, attr, mask)?;
        self.check_values(attr, mask)?;
        match to {
            IBV_QPS_ERR if mask & IBV_QP_STATE != 0 => self.fail(owner)?,
            IBV_QPS_RESET if mask & IBV_QP_STATE != 0 => self.reset(owner)?,
            _ => {
                let meets = (now, to) == (IBV_QPS_INIT, IBV_QPS_RTR) && !by_id;
                return self.change(attr, mask, (now, to), meets);
            }
        }
        self.set_state(to);
        Ok(())
    }

    /// Attributes, rights and state: all are changed, or none.
    fn change(
        self: &Arc<Self>,
        attr: &ibv_qp_attr,
        mask: i32,
        (now, to): (u32, u32),
        meets: bool,
    ) -> Result<(), Errno> {
        let rights = mask & IBV_QP_ACCESS_FLAGS != 0;
        if rights {
            self.allow(access::of_peers(attr.qp_access_flags))?;
        }
        if let Some(own) = self.datagrams.as_ref().filter(|_| mask & IBV_QP_QKEY != 0) {
            own.set_qkey(attr.qkey)?;
        }
        let before = *lock(&self.attr);
        merge(&mut lock(&self.attr), attr, mask);
        let changed = self.change_state(now, to).and_then(|()| {
            if mask & IBV_QP_MIN_RNR_TIMER != 0 && now != IBV_QPS_INIT {
                self.with_paths(|paths, id| paths.set_min_rnr_timer(id, attr.min_rnr_timer))?;
            }
            let made = match &self.paths {
                Some(paths) if self.is_by_path() => self.step(&**paths, now, to),
                None if meets && self.datagrams.is_none() => self.begin_meeting(),
                _ => Ok(()),
            };
            made.inspect_err(|_| {
                self.end_meeting();
                // It may have gone to ERR by itself.
                let _ = self.change_state(to, now);
            })
        });
        if changed.is_err() {
            *lock(&self.attr) = before;
            if rights {
                // As it was allowed before.
                let _ = self.allow(access::of_peers(before.qp_access_flags));
            }
        } else if to == IBV_QPS_SQD
            && mask & IBV_QP_EN_SQD_ASYNC_NOTIFY != 0
            && attr.en_sqd_async_notify != 0
        {
            self.report_when_drained();
        }
        changed
    }

    /// What peers may do from now on. On a device that cannot change that, what memory grants.
    fn allow(&self, rights: Access) -> Result<(), Errno> {
        self.change_if(Capabilities::ALLOW, QpChange::Allow(rights))
    }

    /// A change that not every device has. Queue pairs for datagrams have none of them.
    fn change_if(&self, able: Capabilities, change: QpChange) -> Result<(), Errno> {
        if self.datagrams.is_none() && self.adapter()?.attrs().capabilities.contains(able) {
            self.vp.modify(change)?;
        }
        Ok(())
    }

    fn check_values(&self, attr: &ibv_qp_attr, mask: i32) -> Result<(), Errno> {
        let attrs = self.adapter()?.attrs();
        let wrong = |flag: i32, right: bool| mask & flag != 0 && !right;
        let fits = |reads: u8, limit: u16| i32::from(reads) <= caps::max_reads(limit);
        if wrong(IBV_QP_PORT, attr.port_num == PORT)
            || wrong(IBV_QP_PKEY_INDEX, attr.pkey_index == 0)
            || wrong(IBV_QP_AV, self.fits_port(&attr.ah_attr)?)
            || wrong(IBV_QP_TIMEOUT, attr.timeout < 32)
            || wrong(IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer < 32)
            || wrong(IBV_QP_PATH_MTU, (1..=5).contains(&attr.path_mtu))
            || wrong(IBV_QP_MAX_QP_RD_ATOMIC, fits(attr.max_rd_atomic, attrs.max_ord))
            || wrong(IBV_QP_MAX_DEST_RD_ATOMIC, fits(attr.max_dest_rd_atomic, attrs.max_ird))
        {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Whether a path begins at the port, and at one of its GIDs.
    fn fits_port(&self, path: &ibv_ah_attr) -> Result<bool, Errno> {
        if path.port_num != PORT || path.is_global == 0 {
            return Ok(path.port_num == PORT);
        }
        let gids = self.adapter()?.device().gids()?;
        Ok(usize::from(path.grh.sgid_index) < gids.table().len())
    }

    /// To ERR, requested by the application.
    fn fail(&self, owner: Option<Arc<dyn Owner>>) -> Result<(), Errno> {
        if let Some(owner) =
            owner.filter(|owner| owner.connection().state() == ConnState::Connected)
        {
            // Its end is delivered then.
            let party: Arc<dyn Connectee> = owner;
            self.adapter()?.cm().disconnect(&party, Disconnect::Abrupt)?;
        }
        // Refused if it is ending by itself.
        let _ = self.vp.modify(QpChange::Error);
        Ok(())
    }

    /// To RESET: as after creation, with the same number.
    fn reset(&self, owner: Option<Arc<dyn Owner>>) -> Result<(), Errno> {
        if self.state() == IBV_QPS_RESET {
            return Ok(());
        }
        // First: otherwise a repeated attempt could find the queue pair between Error and Idle.
        self.end_meeting();
        self.fail(owner.clone())?;
        self.leave_error(owner.as_deref()).inspect_err(|_| self.set_state(IBV_QPS_ERR))
    }

    /// The rest of a reset, from Error on.
    fn leave_error(&self, owner: Option<&dyn Owner>) -> Result<(), Errno> {
        // What makes the old stream reports its end in vain from now on,
        self.begin_life()?;
        let begin = Instant::now();
        while let Err(error) = self.try_reset(owner) {
            if begin.elapsed() >= SETTLE {
                return Err(error);
            }
            std::thread::sleep(STATE_CHECK);
        }
        // and so do the provider's events of it.
        self.begin_life()?;
        self.attributed.store(false, Ordering::Release);
        self.lost.store(false, Ordering::Release);
        // As with rdma-core's drivers: what was not polled belongs to the stream that is over.
        self.change_if(Capabilities::DISCARD, QpChange::Discard)?;
        self.forget_completions();
        *lock(&self.attr) = ibv_qp_attr::default();
        self.allow(Access::REMOTE)
    }

    fn try_reset(&self, owner: Option<&dyn Owner>) -> Result<(), Errno> {
        if let Some(owner) = owner
            && owner.connection().state() != ConnState::Unconnected
        {
            return self.adapter()?.cm().reset(owner).map(drop).map_err(|_| EBUSY);
        }
        match self.vp.modify(QpChange::Idle) {
            Ok(()) => Ok(()),
            Err(error) => Err(error.status.into()),
        }
    }

    /// The acknowledge timeout of the connection that an identifier will make.
    pub fn set_timeout(&self, exponent: u8) {
        lock(&self.attr).timeout = exponent;
        // A provider of another kind has its own.
        let _ = self.with_paths(|paths, id| paths.set_ack_timeout(id, exponent));
    }

    /// Does this on devices with InfiniBand's transport.
    fn with_paths<T>(
        &self,
        act: impl FnOnce(&dyn Paths, QpId) -> VpResult<T>,
    ) -> Result<Option<T>, Errno> {
        let paths = self.adapter()?.rnic().paths().filter(|_| self.datagrams.is_none());
        Ok(paths.map(|paths| act(&*paths, self.vp.id())).transpose()?)
    }

    /// With what is in force on a connection that an identifier made.
    fn in_force(&self, mut known: ibv_qp_attr) -> ibv_qp_attr {
        let most = |reads: u16| u8::try_from(reads).unwrap_or(u8::MAX);
        if let Ok(info) = self.vp.query() {
            (known.max_rd_atomic, known.max_dest_rd_atomic) = (most(info.ord), most(info.ird));
        }
        let Ok(Some(Some((receives, sends)))) = self.with_paths(|paths, id| paths.in_force(id))
        else {
            return known;
        };
        (known.timeout, known.retry_cnt) = (sends.ack_timeout, sends.retry_count);
        (known.rnr_retry, known.min_rnr_timer) = (sends.rnr_retry, receives.min_rnr_timer);
        (known.sq_psn, known.rq_psn) = (sends.psn, receives.psn);
        (known.dest_qp_num, known.path_mtu) = (receives.qpn, receives.mtu_code.into());
        known.ah_attr.grh.dgid.raw = receives.remote_gid;
        (known.ah_attr.is_global, known.ah_attr.port_num) = (1, PORT);
        let gids = self.adapter().and_then(|adapter| adapter.device().gids());
        let index = gids
            .ok()
            .and_then(|gids| gids.table().iter().position(|gid| *gid == receives.local_gid));
        known.ah_attr.grh.sgid_index = index.and_then(|at| at.try_into().ok()).unwrap_or_default();
        known
    }

    /// ibv_query_qp.
    pub fn query(&self) -> (ibv_qp_attr, ibv_qp_cap) {
        let state = match self.state() {
            IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD if self.has_failed_by_path() => IBV_QPS_ERR,
            // RDMAC's Idle is both, and iWARP drivers name it so.
            IBV_QPS_RESET if self.is_iwarp() => IBV_QPS_INIT,
            state => state,
        };
        let cap = self.init.cap;
        let mut known = *lock(&self.attr);
        if self.owner().is_some_and(|owner| owner.connection().state() != ConnState::Unconnected) {
            known = self.in_force(known);
        }
        let attr = ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            cap,
            sq_draining: self.drains().into(),
            port_num: if known.port_num == 0 { PORT } else { known.port_num },
            ..known
        };
        (attr, cap)
    }

    pub(super) fn is_iwarp(&self) -> bool {
        self.adapter().is_ok_and(|adapter| adapter.device().transport() == Transport::Iwarp)
    }

    /// A failure on RoCE, whose completions may be polled before the event that sets the state here.
    fn has_failed_by_path(&self) -> bool {
        self.is_by_path() && self.vp.query().is_ok_and(|info| info.state == QpState::Error)
    }
}

/// Stores the attributes that were set.
fn merge(known: &mut ibv_qp_attr, new: &ibv_qp_attr, mask: i32) {
    macro_rules! take {
        ($($flag:ident: $($field:ident),+;)*) => {$(
            if mask & $flag != 0 {
                $(known.$field = new.$field;)+
            }
        )*};
    }
    take! {
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_QKEY: qkey;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_DEST_QPN: dest_qp_num;
        IBV_QP_ALT_PATH: alt_ah_attr, alt_port_num, alt_pkey_index, alt_timeout;
        IBV_QP_PATH_MIG_STATE: path_mig_state;
    }
}
