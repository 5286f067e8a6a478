//! Tests of memory windows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vp_api::{Access, Addressing, BindMw, MrInit, MwId, MwKind, Stag, VpStatus};

use crate::memory::grant::Caller;
use crate::memory::mr::Regions;
use crate::memory::mw;
use crate::memory::stag_table::Need;
use crate::memory::{AccessError, LocalFault};
use crate::testing::{Buffer, FULL, OTHER_PD, PD, caller, init, pd, regions};

struct House {
    regions: Regions,
    buffer: Buffer,
    region: Stag,
    windows: Arc<AtomicU32>,
}

impl House {
    fn new() -> Self {
        let (regions, buffer) = (regions(), Buffer::new(64));
        let region = regions.register(pd(PD), &init(&buffer, FULL)).expect("room");
        Self { regions, buffer, region, windows: Arc::default() }
    }

    fn window(&self, kind: MwKind) -> MwId {
        mw::allocate(&self.regions.table, pd(PD), kind).expect("room")
    }

    fn request(&self, window: MwId) -> BindMw {
        BindMw {
            window,
            key: 0x11,
            region: self.region,
            to: self.buffer.addr() + 8,
            len: 16,
            addressing: Addressing::ZeroBased,
            access: Access::REMOTE_WRITE,
        }
    }

    fn bind(&self, who: &Caller, request: &BindMw) -> Result<(), LocalFault> {
        mw::bind(&self.regions.table, who, &self.windows, request)
    }

    fn write(&self, qp: u32, stag: Stag, to: u64, len: u32) -> Result<(), AccessError> {
        let table = &self.regions.table;
        table.resolve(stag, Need::RemoteWrite, &caller(qp), to, len).map(drop)
    }

    fn bound(&self) -> (u32, u32) {
        let info = self.regions.query(self.region).expect("registered");
        (info.bound_windows, self.windows.load(Ordering::Relaxed))
    }
}

// [SEC-02] [SEC-03] [DDP-20]: access only by the stream that bound it, within its octets and rights.
#[test]
fn a_narrow_window_belongs_to_its_stream() {
    let house = House::new();
    let window = house.window(MwKind::Narrow);
    let stag = Stag::new(window.0, 0x11);
    assert_eq!(mw::query(&house.regions.table, window).unwrap().stag, None);
    assert_eq!(house.write(1, stag, 0, 1), Err(AccessError::InvalidStag));
    house.bind(&caller(1), &house.request(window)).unwrap();
    assert_eq!(house.bound(), (1, 1));
    assert_eq!(mw::query(&house.regions.table, window).unwrap().stag, Some(stag));
    assert_eq!(house.write(1, stag, 0, 16), Ok(()));
    assert_eq!(house.write(1, stag, 1, 16), Err(AccessError::Bounds));
    assert_eq!(house.write(2, stag, 0, 16), Err(AccessError::NotAssociated));
    let read = house.regions.table.resolve(stag, Need::RemoteRead, &caller(1), 0, 1).map(drop);
    assert_eq!(read, Err(AccessError::Access));
    mw::deallocate(&house.regions.table, window).unwrap();
    assert_eq!(house.bound(), (0, 0));
    assert_eq!(house.write(1, stag, 0, 16), Err(AccessError::InvalidStag));
}

// [DDP-20] [SEC-01]: every QP of the PD may use a wide window, and it is rebound at once.
#[test]
fn a_wide_window_serves_its_pd() {
    let house = House::new();
    let window = house.window(MwKind::Wide);
    let stag = Stag::new(window.0, 0x11);
    house.bind(&caller(1), &house.request(window)).unwrap();
    assert_eq!(house.bound(), (1, 0));
    assert_eq!(house.write(2, stag, 0, 16), Ok(()));
    let elsewhere = Caller { pd: OTHER_PD, ..caller(3) };
    let write = house.regions.table.resolve(stag, Need::RemoteWrite, &elsewhere, 0, 1).map(drop);
    assert_eq!(write, Err(AccessError::NotAssociated));
    let again = BindMw { key: 0x22, len: 4, ..house.request(window) };
    house.bind(&caller(2), &again).unwrap();
    assert_eq!(house.bound(), (1, 0));
    assert_eq!(house.write(1, stag, 0, 1), Err(AccessError::InvalidStag));
    assert_eq!(house.write(1, Stag::new(window.0, 0x22), 0, 4), Ok(()));
    house.bind(&caller(1), &BindMw { len: 0, ..again }).unwrap();
    assert_eq!(house.bound(), (0, 0));
    assert_eq!(house.write(1, Stag::new(window.0, 0x22), 0, 4), Err(AccessError::InvalidStag));
}

#[test]
fn a_narrow_window_is_rebound_only_when_invalid() {
    let house = House::new();
    let window = house.window(MwKind::Narrow);
    let request = house.request(window);
    house.bind(&caller(1), &request).unwrap();
    assert_eq!(house.bind(&caller(1), &request), Err(LocalFault::NotInvalid));
    house.bind(&caller(1), &BindMw { len: 0, ..request }).unwrap();
    house.bind(&caller(1), &request).unwrap();
    assert_eq!(house.bound(), (1, 1));
}

// [SEC-01] [SEC-03] [SEC-04]: the binds that are refused.
#[test]
fn binds_are_checked() {
    let house = House::new();
    let request = house.request(house.window(MwKind::Narrow));
    let access = LocalFault::Access;
    let refused = |who: &Caller, request: &BindMw, fault| {
        assert_eq!(house.bind(who, request), Err(fault), "{request:?}");
        assert_eq!(house.bound(), (0, 0));
    };
    let me = caller(1);
    refused(&Caller { allow: Access::REMOTE, ..me }, &request, LocalFault::Bind);
    refused(&Caller { pd: OTHER_PD, ..me }, &request, access(AccessError::NotAssociated));
    let to = house.buffer.addr();
    refused(&me, &BindMw { to: to + 49, ..request }, access(AccessError::Bounds));
    refused(&me, &BindMw { to: to - 1, ..request }, access(AccessError::Bounds));
    refused(&me, &BindMw { to: u64::MAX, ..request }, access(AccessError::Wrap));
    refused(&me, &BindMw { access: Access::LOCAL, ..request }, access(AccessError::Access));
    let wrong_key = Stag(house.region.0 ^ 1);
    refused(&me, &BindMw { region: wrong_key, ..request }, access(AccessError::InvalidStag));
    let itself = Stag::new(request.window.0, 0);
    refused(&me, &BindMw { region: itself, ..request }, access(AccessError::InvalidStag));
    refused(&me, &BindMw { window: MwId(house.region.index()), ..request }, LocalFault::Bind);
}

#[test]
fn a_window_without_rights_is_bound_and_grants_nothing() {
    let house = House::new();
    let request = house.request(house.window(MwKind::Narrow));
    house.bind(&caller(1), &BindMw { access: Access::empty(), ..request }).unwrap();
    let stag = Stag::new(request.window.0, request.key);
    assert_eq!(house.bound(), (1, 1));
    assert_eq!(house.write(1, stag, request.to, 1), Err(AccessError::Access));
}

#[test]
fn a_region_limits_what_may_be_bound() {
    let house = House::new();
    let base = house.request(house.window(MwKind::Narrow));
    let bind_to = |init: &MrInit| {
        let region = house.regions.register(pd(init.pd), init).unwrap();
        house.bind(&caller(1), &BindMw { region, ..base })
    };
    let full = init(&house.buffer, FULL);
    let zero_based = MrInit { addressing: Addressing::ZeroBased, ..full.clone() };
    assert_eq!(bind_to(&zero_based), Err(LocalFault::Bind));
    let denied = Err(LocalFault::Access(AccessError::Access));
    assert_eq!(bind_to(&MrInit { access: Access::LOCAL, ..full.clone() }), denied);
    let readable = MrInit { access: Access::LOCAL_READ | Access::BIND, ..full.clone() };
    let writable = MrInit { access: Access::LOCAL_WRITE | Access::BIND, ..full.clone() };
    assert_eq!(bind_to(&readable), denied);
    let bind_for = |init: &MrInit, access| {
        let region = house.regions.register(pd(init.pd), init).unwrap();
        house.bind(&caller(1), &BindMw { region, access, len: 0, ..base }).unwrap();
        house.bind(&caller(1), &BindMw { region, access, ..base })
    };
    // Each remote right needs its local right, and no other.
    assert_eq!(bind_for(&readable, Access::REMOTE_READ), Ok(()));
    assert_eq!(bind_for(&readable, Access::REMOTE_ATOMIC), denied);
    assert_eq!(bind_for(&writable, Access::REMOTE_WRITE), Ok(()));
    assert_eq!(bind_for(&writable, Access::REMOTE_READ), denied);
    assert_eq!(bind_for(&writable, Access::REMOTE_ATOMIC), denied);
    house.bind(&caller(1), &BindMw { len: 0, ..base }).unwrap();
    let elsewhere = MrInit { pd: OTHER_PD, ..full };
    assert_eq!(bind_to(&elsewhere), Err(LocalFault::Access(AccessError::NotAssociated)));
}

// [SEC-03] [DDP-21]: bound by the TOs of the region, addressed as the bind says.
#[test]
fn a_window_on_a_region_with_a_base_is_bounded_by_tos() {
    let house = House::new();
    let base = 1 << 40;
    let based = MrInit { addressing: Addressing::Based(base), ..init(&house.buffer, FULL) };
    let region = house.regions.register(pd(PD), &based).unwrap();
    let window = house.window(MwKind::Wide);
    let stag = Stag::new(window.0, 0x11);
    let request = BindMw { region, ..house.request(window) };
    let bounds = Err(LocalFault::Access(AccessError::Bounds));
    assert_eq!(house.bind(&caller(1), &request), bounds, "by address");
    let write = |to| house.write(1, stag, to, 1);
    let first = [
        (Addressing::Absolute, base + 8),
        (Addressing::ZeroBased, 0),
        (Addressing::Based(77), 77),
        (Addressing::Based(u64::MAX - 16), u64::MAX - 16),
    ];
    for (addressing, first) in first {
        let request = BindMw { to: base + 8, addressing, ..request };
        house.bind(&caller(1), &request).unwrap();
        assert_eq!((write(first), write(first + 15)), (Ok(()), Ok(())), "{addressing:?}");
        assert!(write(first.wrapping_sub(1)).is_err() && write(first + 16).is_err());
        let table = &house.regions.table;
        let to = table.resolve(stag, Need::RemoteWrite, &caller(1), first, 1).unwrap();
        assert_eq!(to.raw(0, 1).unwrap().addr() as u64, house.buffer.addr() + 8);
    }
    let wraps = Addressing::Based(u64::MAX - 15);
    let refused = house.bind(&caller(1), &BindMw { to: base, addressing: wraps, ..request });
    assert_eq!(refused, Err(LocalFault::Access(AccessError::Wrap)));
}

// A bound window keeps its region (RDMAC 9.2.6).
#[test]
fn a_region_with_windows_stays() {
    let house = House::new();
    let window = house.window(MwKind::Narrow);
    house.bind(&caller(1), &house.request(window)).unwrap();
    let refused = house.regions.deallocate(house.region).unwrap_err();
    assert_eq!(refused.status, VpStatus::StagInUse);
    let change = init(&house.buffer, FULL);
    let refused = house.regions.reregister(house.region, &change, || Ok(pd(PD))).unwrap_err();
    assert_eq!(refused.status, VpStatus::StagInUse);
    assert_eq!(house.write(1, Stag::new(window.0, 0x11), 0, 1), Ok(()), "left as it was");
    mw::deallocate(&house.regions.table, window).unwrap();
    house.regions.deallocate(house.region).unwrap();
    assert_eq!(house.buffer.users(), 1, "only the change's own clone");
    assert_eq!(
        mw::deallocate(&house.regions.table, window).unwrap_err().status,
        VpStatus::InvalidHandle
    );
}
