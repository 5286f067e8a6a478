//! Tests of invalidating STags, locally and by a peer.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use vp_api::{Access, Addressing, BindMw, MwKind, Stag};

use crate::memory::grant::Caller;
use crate::memory::stag_table::Need;
use crate::memory::{AccessError, LocalFault};
use crate::memory::{invalidate, mw};
use crate::testing::{Buffer, FULL, OTHER_PD, PD, caller, init, pd, regions};

// [RDMAP-13] [VERBS-25] [VERBS-27]: the peer may invalidate; the region is Invalid and its memory released.
#[test]
fn a_peer_may_invalidate_what_it_may_access() {
    let (regions, buffer) = (regions(), Buffer::new(8));
    let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    invalidate::remote(&regions.table, &caller(1), stag).unwrap();
    let write = regions.table.resolve(stag, Need::RemoteWrite, &caller(1), buffer.addr(), 1);
    assert_eq!(write.map(drop), Err(AccessError::InvalidStag));
    let info = regions.query(stag).unwrap();
    assert!(!info.valid && info.len == 0);
    assert_eq!(buffer.users(), 0);
    // RDMAC 7.11: invalidating it once more is allowed.
    invalidate::remote(&regions.table, &caller(1), stag).unwrap();
    invalidate::local(&regions.table, &caller(1), stag).unwrap();
    regions.deallocate(stag).unwrap();
}

// [SEC-06] [SEC-01]: refused if shared, without remote right, of another PD, bound to, or unknown.
#[test]
fn a_peer_may_not_invalidate_what_others_access() {
    let (regions, buffer) = (regions(), Buffer::new(8));
    let table = &regions.table;
    let remote = |stag| invalidate::remote(table, &caller(1), stag);
    let local_only = regions.register(pd(PD), &init(&buffer, Access::LOCAL)).unwrap();
    assert_eq!(remote(local_only), Err(AccessError::CannotInvalidate));
    let shared = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let second = regions.register_shared(shared, pd(PD), Addressing::Absolute, FULL, 1).unwrap();
    assert_eq!(remote(shared), Err(AccessError::CannotInvalidate));
    assert_eq!(remote(second), Err(AccessError::CannotInvalidate));
    let foreign = regions.register(pd(OTHER_PD), &init(&buffer, FULL)).unwrap();
    assert_eq!(remote(foreign), Err(AccessError::NotAssociated));
    let plain = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    assert_eq!(remote(Stag(plain.0 ^ 1)), Err(AccessError::InvalidStag));
    for unknown in [Stag(0), Stag(1), Stag(!plain.0)] {
        assert_eq!(remote(unknown), Err(AccessError::InvalidStag));
    }
    let still_valid = [shared, second, local_only, foreign, plain];
    assert!(still_valid.iter().all(|&stag| regions.query(stag).unwrap().valid));
    // A local invalidation needs no remote right.
    invalidate::local(table, &caller(1), local_only).unwrap();
    let fault = Err(LocalFault::Access(AccessError::CannotInvalidate));
    assert_eq!(invalidate::local(table, &caller(1), shared), fault);
}

// [SEC-02] [SEC-06]: a narrow window is invalidated by its own stream only, a wide one by no peer.
#[test]
fn windows_are_invalidated_by_their_stream() {
    let (regions, buffer) = (regions(), Buffer::new(8));
    let table = &regions.table;
    let region = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let windows = Arc::new(AtomicU32::new(0));
    let bind = |kind| {
        let window = mw::allocate(table, pd(PD), kind).unwrap();
        let request = BindMw {
            window,
            key: 7,
            region,
            to: buffer.addr(),
            len: 8,
            addressing: Addressing::Absolute,
            access: Access::REMOTE_READ,
        };
        mw::bind(table, &caller(1), &windows, &request).unwrap();
        Stag::new(window.0, 7)
    };
    let narrow = bind(MwKind::Narrow);
    let bound = invalidate::remote(table, &caller(1), region);
    assert_eq!(bound, Err(AccessError::CannotInvalidate));
    let other_stream = invalidate::remote(table, &caller(2), narrow);
    assert_eq!(other_stream, Err(AccessError::NotAssociated));
    let other_pd = Caller { pd: OTHER_PD, ..caller(1) };
    assert_eq!(invalidate::remote(table, &other_pd, narrow), Err(AccessError::NotAssociated));
    invalidate::remote(table, &caller(1), narrow).unwrap();
    let wide = bind(MwKind::Wide);
    assert_eq!(invalidate::remote(table, &caller(1), wide), Err(AccessError::CannotInvalidate));
    invalidate::local(table, &caller(2), wide).unwrap();
    assert_eq!(regions.query(region).unwrap().bound_windows, 0);
    invalidate::remote(table, &caller(1), region).unwrap();
}
