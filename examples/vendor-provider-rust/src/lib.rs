//! A vendor's provider in Rust: it connects QPs of one RNIC and copies between their memory. `libvendor_mirror.so`
//! is loaded by name; see spec/provider-guide.md.
//!
//! One mutex protects all state of an RNIC; handlers are called after it is unlocked.

mod cm;
mod copy;
mod counters;
mod queues;
mod state;
mod work;

use std::sync::Arc;

use state::{Cq, Qp, Region, Shared, no};
use vp_api::*;

export_provider!("vendor_mirror", Capabilities::empty(), Mirror);

const NAME: &str = "vendor_mirror";

struct Mirror;

fn ports() -> Vec<PortInfo> {
    let addresses = vec![std::net::Ipv4Addr::LOCALHOST.into()];
    vec![PortInfo { interface: "mirror".into(), online: true, mtu: 65536, addresses }]
}

impl Provider for Mirror {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        Ok(vec![DeviceInfo { name: NAME.into(), transport: Transport::Other, ports: ports() }])
    }

    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn vp_api::Rnic>> {
        if device != NAME {
            return Err(no(VpStatus::InvalidHandle, "the only device is vendor_mirror"));
        }
        no_settings(NAME, &*services)?;
        services.log(LogLevel::Info, NAME, "opened");
        Ok(Arc::new(Rnic { shared: Arc::default(), attrs: attrs() }))
    }
}

fn attrs() -> RnicAttrs {
    let mut a = RnicAttrs::new("Example Vendor", "mirror", ConnectionModel::Native);
    (a.max_qp, a.max_cq, a.max_pd, a.max_mr) = (1000, 1000, 1000, 1000);
    (a.max_wr_per_qp, a.max_cqe) = (state::MOST, 4 * state::MOST);
    (a.max_sge_send, a.max_sge_recv, a.max_sge_write, a.max_sge_read) = (4, 4, 4, 1);
    (a.max_inline, a.max_ird, a.max_ord) = (64, state::READS, state::READS);
    (a.max_message, a.max_mr_octets) = (1 << 30, 1 << 40);
    (a.max_private_connect, a.max_private_accept) = (cm::MOST_PRIVATE, cm::MOST_PRIVATE);
    a.max_private_reject = cm::MOST_PRIVATE;
    a
}

struct Rnic {
    shared: Arc<Shared>,
    attrs: RnicAttrs,
}

fn unsupported<T>() -> VpResult<T> {
    Err(no(VpStatus::Unsupported, "this provider has no such objects"))
}

impl vp_api::Rnic for Rnic {
    fn attrs(&self) -> &RnicAttrs {
        &self.attrs
    }

    fn ports(&self) -> VpResult<Vec<PortInfo>> {
        Ok(ports())
    }

    // No events: the port is always up, and the connection manager reports connections.
    fn set_async_handler(&self, _: Option<Arc<dyn AsyncHandler>>) {}

    fn alloc_pd(&self) -> VpResult<PdId> {
        let mut state = self.shared.lock();
        let id = state.new_id();
        state.pds.insert(id, 0);
        Ok(PdId(id))
    }

    fn dealloc_pd(&self, pd: PdId) -> VpResult<()> {
        let mut state = self.shared.lock();
        match state.pds.get(&pd.0) {
            None => Err(no(VpStatus::InvalidPd, "there is no such PD")),
            Some(0) => {
                state.pds.remove(&pd.0);
                Ok(())
            }
            Some(_) => Err(no(VpStatus::InUse, "the PD is in use")),
        }
    }

    fn create_cq(&self, init: &CqInit) -> VpResult<Arc<dyn vp_api::Cq>> {
        if init.depth == 0 {
            return Err(no(VpStatus::InvalidModifier, "a CQ has one entry at least"));
        }
        let mut state = self.shared.lock();
        let id = CqId(state.new_id());
        state.cqs.insert(id.0, Cq::new(init));
        Ok(Arc::new(queues::CqHandle { id, shared: self.shared.clone() }))
    }

    fn destroy_cq(&self, cq: CqId) -> VpResult<()> {
        let mut state = self.shared.lock();
        match state.cqs.get(&cq.0).map(|cq| cq.users) {
            None => Err(no(VpStatus::InvalidHandle, "there is no such CQ")),
            Some(0) => {
                state.cqs.remove(&cq.0);
                self.shared.ring();
                Ok(())
            }
            Some(_) => Err(no(VpStatus::InUse, "QPs use the CQ")),
        }
    }

    fn create_srq(&self, _: &SrqInit) -> VpResult<Arc<dyn Srq>> {
        unsupported()
    }

    fn destroy_srq(&self, _: SrqId) -> VpResult<()> {
        unsupported()
    }

    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn vp_api::Qp>> {
        let mut state = self.shared.lock();
        state.check_qp(init)?;
        let id = QpId(state.new_id());
        state.use_qp(init, 1);
        state.qps.insert(id.0, Qp::new(init));
        Ok(Arc::new(work::QpHandle { id, shared: self.shared.clone() }))
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        let mut rings = Vec::new();
        let mut state = self.shared.lock();
        let Some(gone) = state.qps.get_mut(&qp.0) else {
            return Err(no(VpStatus::InvalidHandle, "there is no such QP"));
        };
        gone.receives.clear();
        let init = gone.init.clone();
        state.break_qp(qp, false, &mut rings);
        state.use_qp(&init, -1);
        state.qps.remove(&qp.0);
        for cq in [init.send_cq, init.recv_cq] {
            if let Some(cq) = state.cqs.get_mut(&cq.0) {
                cq.ring.retain(|(wc, _)| wc.qp != qp);
            }
        }
        self.shared.close(state, rings);
        Ok(())
    }

    fn register_mr(&self, init: &MrInit) -> VpResult<Stag> {
        if !init.access.valid_for_region() {
            return Err(no(VpStatus::InvalidAccess, "a remote right needs its local one"));
        }
        if init.addressing != Addressing::Absolute {
            return Err(no(VpStatus::InvalidModifier, "absolute addresses only"));
        }
        let mut state = self.shared.lock();
        let Some(users) = state.pds.get_mut(&init.pd.0) else {
            return Err(no(VpStatus::InvalidPd, "there is no such PD"));
        };
        *users += 1;
        let stag = Stag::new(state.new_id(), init.key);
        state.regions.insert(stag, Region::new(init));
        Ok(stag)
    }

    fn reregister_mr(&self, _: Stag, _: &MrInit) -> VpResult<Stag> {
        unsupported()
    }

    fn register_shared_mr(
        &self,
        _: Stag,
        _: PdId,
        _: Addressing,
        _: Access,
        _: u8,
    ) -> VpResult<Stag> {
        unsupported()
    }

    fn alloc_stag(&self, _: PdId, _: bool) -> VpResult<Stag> {
        unsupported()
    }

    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo> {
        let state = self.shared.lock();
        let region = state.regions.get(&stag);
        region.map(|r| r.info(stag)).ok_or_else(|| no(VpStatus::InvalidStag, "no such region"))
    }

    fn dealloc_stag(&self, stag: Stag) -> VpResult<()> {
        let mut state = self.shared.lock();
        let Some(region) = state.regions.remove(&stag) else {
            return Err(no(VpStatus::InvalidStag, "there is no region of this STag"));
        };
        if let Some(users) = state.pds.get_mut(&region.pd.0) {
            *users -= 1;
        }
        // Copies are made under the lock, so none is in progress; the memory may be freed after it.
        drop(state);
        drop(region);
        Ok(())
    }

    fn alloc_mw(&self, _: PdId, _: MwKind) -> VpResult<MwId> {
        unsupported()
    }

    fn query_mw(&self, _: MwId) -> VpResult<MwInfo> {
        unsupported()
    }

    fn dealloc_mw(&self, _: MwId) -> VpResult<()> {
        unsupported()
    }

    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        Some(Arc::new(cm::Cm { shared: self.shared.clone() }))
    }

    fn vendor_calls(&self, name: &str) -> VpResult<VendorCalls> {
        counters::named(name, &self.shared)
    }
}
