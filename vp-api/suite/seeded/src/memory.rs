//! Regions and windows with a fault. No state of its own. Any thread.

use vp_api::*;

use crate::faults::Fault;
use crate::rnic::Rnic;
use crate::seed::lock;

impl Rnic {
    fn altered(&self, init: &MrInit) -> MrInit {
        let mut init = MrInit { pd: self.pd(init.pd), ..init.clone() };
        let both = Access::LOCAL;
        match () {
            () if self.has(Fault::RemoteWriteForAll) => init.access |= both | Access::REMOTE_WRITE,
            () if self.has(Fault::RemoteReadForAll) => init.access |= both | Access::REMOTE_READ,
            () if self.has(Fault::RightsUnchecked) && !init.access.valid_for_region() => {
                init.access |= both;
            }
            () if self.has(Fault::ReadNeedsNothing)
                && init.access.contains(Access::REMOTE_READ) =>
            {
                init.access |= Access::LOCAL_READ;
            }
            () if self.has(Fault::NoRightIsEnough) && init.access.is_empty() => {
                init.access |= both;
            }
            () if self.has(Fault::AtomicForAll) => init.access |= both | Access::REMOTE_ATOMIC,
            () if self.has(Fault::BindForAll) => init.access |= Access::BIND,
            () if self.has(Fault::PinIgnored) => init.pin = false,
            () if self.has(Fault::AlwaysAbsolute) => init.addressing = Addressing::Absolute,
            () if self.has(Fault::KeyIsZero) => init.key = 0,
            () if self.has(Fault::BaseIgnored) => init.addressing = without_base(init.addressing),
            () if self.has(Fault::BaseWraps) => {
                let end = init.addressing.base(0).checked_add(init.range.len() as u64);
                init.addressing = end.map_or(Addressing::Based(0), |_| init.addressing);
            }
            () if self.has(Fault::OwnerKept) => std::mem::forget(init.range.clone()),
            () => {}
        }
        init
    }

    fn record(&self, stag: Stag) -> Stag {
        lock(&self.seed.stags).insert(stag.index(), stag);
        stag
    }

    pub(crate) fn register(&self, init: &MrInit) -> VpResult<Stag> {
        let made = self.seed.refusal(self.inner.register_mr(&self.altered(init)));
        if let (Ok(stag), true) = (&made, self.has(Fault::RegisterRace)) {
            let me = (std::thread::current().id(), *stag);
            // The STag that another thread was given last.
            if let Some((other, theirs)) = lock(&self.seed.registered).replace(me)
                && other != me.0
            {
                return Ok(theirs);
            }
        }
        if made.is_err() && self.has(Fault::RefusedOwnerKept) {
            std::mem::forget(init.range.clone());
        }
        if let (Ok(stag), Addressing::Based(base)) = (&made, init.addressing) {
            let addr = init.range.addr().as_ptr().addr() as u64;
            lock(&self.seed.based).insert(stag.index(), (addr, base));
        }
        made.map(|stag| self.record(stag))
    }

    pub(crate) fn reregister(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        let mut altered = self.altered(init);
        if self.has(Fault::ReregisterForgetsBase) {
            altered.addressing = without_base(altered.addressing);
        }
        if self.has(Fault::ReregisterFailsSoftly) && !init.access.valid_for_region() {
            return Err(VpError::new(VpStatus::InvalidAccess, "seeded"));
        }
        let old = self.inner.query_mr(stag);
        match (old, ()) {
            (Ok(old), ()) if self.has(Fault::ReregisterKeepsRights) => altered.access = old.access,
            (Ok(old), ()) if self.has(Fault::ReregisterKeepsPd) => altered.pd = old.pd,
            (Ok(old), ()) if self.has(Fault::ReregisterKeepsAddressing) => {
                altered.addressing = old.addressing;
            }
            (Ok(old), ()) if self.has(Fault::ReregisterKeepsKey) => altered.key = old.stag.key(),
            (_, ()) if self.has(Fault::ReregisterKeepsOld) => {
                return self.inner.register_mr(&altered).map(|stag| self.record(stag));
            }
            (_, ()) if self.has(Fault::ReregisterKeepsOwner) => {
                std::mem::forget(altered.range.clone());
            }
            _ => {}
        }
        let made = self.seed.refusal(self.inner.reregister_mr(stag, &altered));
        made.map(|stag| self.record(stag))
    }

    pub(crate) fn share(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        let mut access = access;
        if let (true, Ok(first)) =
            (self.has(Fault::SharedHasOldRights), self.inner.query_mr(original))
        {
            access = first.access;
        }
        let addressing = match self.has(Fault::SharedAbsolute) {
            true => Addressing::Absolute,
            false => addressing,
        };
        let mut pd = self.pd(pd);
        if let (true, Ok(first)) =
            (self.has(Fault::SharedHasFirstPd), self.inner.query_mr(original))
        {
            pd = first.pd;
        }
        let key = if self.has(Fault::SharedKeyIsZero) { 0 } else { key };
        let made = self.inner.register_shared_mr(original, pd, addressing, access, key);
        let stag = self.seed.refusal(made)?;
        lock(&self.shared).push((stag, original));
        Ok(self.record(stag))
    }

    pub(crate) fn region(&self, stag: Stag) -> VpResult<MrInfo> {
        let mut info = self.seed.refusal(self.inner.query_mr(stag))?;
        match () {
            () if self.has(Fault::KeyUnsaid) => info.stag = Stag::new(info.stag.index(), 0),
            () if self.has(Fault::AlwaysValid) => info.valid = true,
            () if self.has(Fault::SharedUnsaid) => info.shared = false,
            () if self.has(Fault::OriginalUnshared) => {
                info.shared &= lock(&self.shared).iter().all(|(_, first)| *first != stag);
            }
            () if self.has(Fault::AddressingUnsaid) => info.addressing = Addressing::Absolute,
            () if self.has(Fault::WindowsUncounted) => info.bound_windows = 0,
            () if self.has(Fault::RegionLengthRounded) => {
                info.len = info.len.next_multiple_of(4096)
            }
            () if self.has(Fault::RightsUnsaid) => info.access = Access::LOCAL,
            () => {}
        }
        Ok(info)
    }

    pub(crate) fn deregister(&self, stag: Stag) -> VpResult<()> {
        if self.has(Fault::SharedDiesWithFirst) {
            let others = lock(&self.shared).clone();
            for (other, _) in others.iter().filter(|(_, first)| *first == stag) {
                let _ = self.inner.dealloc_stag(*other);
            }
        }
        if self.has(Fault::DeregisterIsLost) {
            return self.inner.query_mr(stag).map(|_| ());
        }
        match self.seed.refusal(self.inner.dealloc_stag(stag)) {
            Err(why)
                if why.status == VpStatus::StagInUse && self.has(Fault::WindowsGoWithRegion) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    pub(crate) fn window(&self, pd: PdId, kind: MwKind) -> VpResult<MwId> {
        let other = match kind {
            MwKind::Narrow if self.has(Fault::NarrowForAll) => Some(MwKind::Wide),
            MwKind::Wide if self.has(Fault::WideForOne) => Some(MwKind::Narrow),
            _ => None,
        };
        let made = self.inner.alloc_mw(self.pd(pd), other.unwrap_or(kind));
        let window = self.seed.refusal(made)?;
        if other.is_some() {
            lock(&self.disguised).insert(window);
        }
        Ok(window)
    }

    pub(crate) fn look_at_window(&self, mw: MwId) -> VpResult<MwInfo> {
        let mut info = self.inner.query_mw(mw)?;
        if lock(&self.disguised).contains(&mw) {
            info.kind = match info.kind {
                MwKind::Wide => MwKind::Narrow,
                MwKind::Narrow => MwKind::Wide,
            };
        }
        match () {
            () if self.has(Fault::WindowUnsaid) => info.stag = None,
            () if self.has(Fault::WindowRegionUnsaid) => info.region = None,
            () => {}
        }
        Ok(info)
    }
}

fn without_base(addressing: Addressing) -> Addressing {
    match addressing {
        Addressing::Based(_) => Addressing::Absolute,
        other => other,
    }
}
