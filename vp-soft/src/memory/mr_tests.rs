//! Tests of memory regions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vp_api::{Access, Addressing, FastRegister, MrInit, Services, Stag, VpStatus};

use crate::memory::grant::Caller;
use crate::memory::mr::{Regions, fast_register};
use crate::memory::stag_table::Need;
use crate::memory::{AccessError, LocalFault};
use crate::testing::{Buffer, FULL, OTHER_PD, PD, caller, init, pd, regions, services};

fn write(regions: &Regions, stag: Stag, to: u64) -> Result<(), AccessError> {
    regions.table.resolve(stag, Need::RemoteWrite, &caller(1), to, 1).map(drop)
}

// [SEC-04]: absolute and zero-based.
#[test]
fn addressing_decides_the_first_offset() {
    let (regions, buffer) = (regions(), Buffer::new(32));
    let absolute = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let zero = MrInit { addressing: Addressing::ZeroBased, ..init(&buffer, FULL) };
    let zero = regions.register(pd(PD), &zero).unwrap();
    assert_eq!(write(&regions, absolute, buffer.addr() + 31), Ok(()));
    assert_eq!(write(&regions, absolute, 0), Err(AccessError::Bounds));
    assert_eq!(write(&regions, zero, 31), Ok(()));
    assert_eq!(write(&regions, zero, 32), Err(AccessError::Bounds));
    assert_eq!(write(&regions, zero, buffer.addr()), Err(AccessError::Bounds));
}

// [DDP-21]: the last TO has 64 bits, too.
#[test]
fn a_base_leaves_room_for_the_whole_region() {
    let (regions, buffer) = (regions(), Buffer::new(32));
    let based = |base| MrInit { addressing: Addressing::Based(base), ..init(&buffer, FULL) };
    let last = u64::MAX - 32;
    let stag = regions.register(pd(PD), &based(last)).unwrap();
    assert_eq!(regions.query(stag).unwrap().addressing, Addressing::Based(last));
    assert_eq!(write(&regions, stag, last), Ok(()));
    assert_eq!(write(&regions, stag, u64::MAX - 1), Ok(()));
    assert_eq!(write(&regions, stag, u64::MAX), Err(AccessError::Wrap));
    assert_eq!(write(&regions, stag, last - 1), Err(AccessError::Bounds));
    assert_eq!(write(&regions, stag, buffer.addr()), Err(AccessError::Bounds));
    let refused = regions.register(pd(PD), &based(last + 1)).unwrap_err();
    assert_eq!(refused.status, VpStatus::InvalidAddress);
    assert!(refused.detail.contains("32 octets from base 0xffffffffffffffe0"), "{refused}");
    let share = |base| regions.register_shared(stag, pd(PD), Addressing::Based(base), FULL, 3);
    assert_eq!(share(last + 1).unwrap_err().status, VpStatus::InvalidAddress);
    assert!(!regions.query(stag).unwrap().shared);
    assert_eq!(write(&regions, share(7).unwrap(), 38), Ok(()));
}

// [VERBS-24]: remote rights need the local ones.
#[test]
fn rights_that_do_not_go_together_are_refused() {
    let (regions, buffer) = (regions(), Buffer::new(8));
    let refused = [
        Access::empty(),
        Access::BIND,
        Access::REMOTE_WRITE,
        Access::REMOTE_WRITE | Access::LOCAL_READ,
        Access::REMOTE_READ | Access::LOCAL_WRITE,
        Access::REMOTE_ATOMIC | Access::LOCAL_WRITE,
    ];
    for access in refused {
        let status = regions.register(pd(PD), &init(&buffer, access)).unwrap_err().status;
        assert_eq!(status, VpStatus::InvalidAccess, "{access:?}");
    }
    assert_eq!(buffer.users(), 0);
}

// [SEC-04] [DDP-21]: deallocation ends every access and releases the memory.
#[test]
fn deallocation_releases_the_memory() {
    let (regions, buffer) = (regions(), Buffer::new(8));
    let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let info = regions.query(Stag::new(stag.index(), 0)).unwrap();
    assert_eq!((info.stag, info.addr, info.len), (stag, buffer.addr(), 8));
    assert!(info.valid && !info.shared && info.bound_windows == 0);
    assert_eq!(buffer.users(), 1);
    let old = Stag::new(stag.index(), stag.key() ^ 1);
    let change = || regions.reregister(old, &init(&buffer, FULL), || Ok(pd(PD)));
    assert_eq!(regions.deallocate(old).unwrap_err().status, VpStatus::InvalidStag);
    assert_eq!(change().unwrap_err().status, VpStatus::InvalidStag);
    assert_eq!(write(&regions, stag, buffer.addr()), Ok(()));
    regions.deallocate(stag).unwrap();
    assert_eq!(buffer.users(), 0);
    assert_eq!(write(&regions, stag, buffer.addr()), Err(AccessError::InvalidStag));
    assert_eq!(regions.query(stag).unwrap_err().status, VpStatus::InvalidStag);
    assert_eq!(regions.deallocate(stag).unwrap_err().status, VpStatus::InvalidStag);
}

#[test]
fn reregistration_replaces_everything() {
    let (regions, old, new) = (regions(), Buffer::new(8), Buffer::new(16));
    let stag = regions.register(pd(PD), &init(&old, FULL)).unwrap();
    let change = MrInit { key: 9, access: Access::LOCAL, pd: OTHER_PD, ..init(&new, FULL) };
    let again = regions.reregister(stag, &change, || Ok(pd(OTHER_PD))).unwrap();
    assert_eq!(again, Stag::new(stag.index(), 9));
    assert_eq!((old.users(), new.users()), (0, 2));
    let info = regions.query(again).unwrap();
    assert_eq!((info.pd, info.len, info.access), (OTHER_PD, 16, Access::LOCAL));
    assert_eq!(write(&regions, stag, old.addr()), Err(AccessError::InvalidStag));
    // RDMAC 9.2.6: a refused change destroys the region.
    let bad = MrInit { access: Access::empty(), ..init(&new, FULL) };
    let refused = regions.reregister(again, &bad, || Ok(pd(PD))).unwrap_err();
    assert_eq!(refused.status, VpStatus::InvalidAccess);
    assert_eq!(regions.query(again).unwrap_err().status, VpStatus::InvalidStag);
}

// [SEC-04]: a second STag with its own rights, PD and addressing.
#[test]
fn shared_regions_have_rights_of_their_own() {
    let (regions, buffer) = (regions(), Buffer::new(8));
    let first = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let second = regions
        .register_shared(first, pd(PD), Addressing::ZeroBased, Access::LOCAL_READ, 3)
        .unwrap();
    assert_eq!(write(&regions, second, 0), Err(AccessError::Access));
    assert_eq!(write(&regions, first, buffer.addr()), Ok(()));
    assert!(regions.query(first).unwrap().shared && regions.query(second).unwrap().shared);
    regions.deallocate(first).unwrap();
    assert_eq!(buffer.users(), 1);
    let source = regions.table.resolve(second, Need::LocalRead, &caller(1), 0, 8);
    assert!(source.is_ok());
    drop(source);
    regions.deallocate(second).unwrap();
    assert_eq!(buffer.users(), 0);
}

#[test]
fn pins_are_accounted_and_explained() {
    let fake = services(8192);
    let dynamic: Arc<dyn Services> = fake.clone();
    let regions = Regions { services: dynamic, ..regions() };
    let (small, large) = (Buffer::new(4096), Buffer::new(8192));
    let pinned = |buffer| MrInit { pin: true, ..init(buffer, FULL) };
    let stag = regions.register(pd(PD), &pinned(&small)).unwrap();
    let shared = regions.register_shared(stag, pd(PD), Addressing::Absolute, FULL, 1).unwrap();
    assert_eq!(fake.pinned.load(Ordering::Relaxed), 4096);
    let refused = regions.register(pd(PD), &pinned(&large)).unwrap_err();
    assert_eq!(refused.status, VpStatus::InsufficientResources);
    assert!(refused.detail.contains("limit of 8192 octets") && refused.detail.contains("ulimit"));
    regions.deallocate(stag).unwrap();
    assert_eq!(fake.pinned.load(Ordering::Relaxed), 4096);
    regions.deallocate(shared).unwrap();
    assert_eq!(fake.pinned.load(Ordering::Relaxed), 0);
}

// RDMAC 7.3.2.3; [VERBS-25]: Invalid until fast-registered.
#[test]
fn fast_registration_makes_an_stag_valid() {
    let (regions, buffer) = (regions(), Buffer::new(8));
    let index = regions.allocate(pd(PD), true).unwrap().index();
    let stag = Stag::new(index, 0x77);
    assert_eq!(write(&regions, stag, buffer.addr()), Err(AccessError::InvalidStag));
    let request = FastRegister {
        stag,
        range: buffer.range(),
        addressing: Addressing::Absolute,
        access: FULL,
    };
    let plain = caller(1);
    let privileged = Caller { privileged: true, ..plain };
    let elsewhere = Caller { pd: OTHER_PD, ..privileged };
    let run = |who, request| fast_register(&regions.table, who, request);
    assert_eq!(run(&plain, &request), Err(LocalFault::NotPrivileged));
    let refused = run(&elsewhere, &request);
    assert_eq!(refused, Err(LocalFault::Access(AccessError::NotAssociated)));
    let wraps = FastRegister { addressing: Addressing::Based(u64::MAX - 7), ..request.clone() };
    assert_eq!(run(&privileged, &wraps), Err(LocalFault::Access(AccessError::Wrap)));
    assert_eq!(run(&privileged, &request), Ok(()));
    assert_eq!(write(&regions, stag, buffer.addr()), Ok(()));
    assert_eq!(run(&privileged, &request), Err(LocalFault::NotInvalid));
    let local_only = regions.allocate(pd(PD), false).unwrap();
    let remote = FastRegister { stag: local_only, ..request.clone() };
    assert_eq!(run(&privileged, &remote), Err(LocalFault::Access(AccessError::Access)));
    regions.deallocate(stag).unwrap();
    drop((request, remote, wraps));
    assert_eq!(buffer.users(), 0);
}

// [SEC-13]: address ranges that no process can have; others are accepted if the kernel cannot check them.
#[test]
fn ranges_that_no_process_has_are_refused() {
    let regions = regions();
    let register = |addr: usize, len: usize| {
        let addr = std::ptr::NonNull::new(std::ptr::without_provenance_mut(addr)).unwrap();
        // SAFETY: invalid on purpose: registration must detect it, and nothing accesses the range.
        let range = unsafe { vp_api::MemRange::unowned(addr, len) };
        let stag = regions.register(pd(PD), &MrInit { range, ..init(&Buffer::new(8), FULL) });
        stag.and_then(|stag| regions.deallocate(stag)).map_err(|error| error.status)
    };
    let most = 1 << 47;
    assert_eq!(register(4096, most), Ok(()));
    assert_eq!(register(4096, most + 1), Err(VpStatus::InvalidAddress));
    assert_eq!(register(usize::MAX - 7, 7), Ok(()));
    assert_eq!(register(usize::MAX - 7, 8), Err(VpStatus::InvalidAddress));
}

// [SEC-13]: memory that does not exist, or that this process may only read.
#[cfg(not(miri))]
#[test]
fn memory_that_the_process_may_not_access_is_refused() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    // Far below the addresses that the kernel chooses: no other thread's memory takes the place of what
    // is unmapped here.
    const FREE: usize = 64 << 30;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let number = |text: &str| text.parse::<u32>().unwrap();
    let version = release.split(['.', '-', '\n']).take(2).map(number).collect::<Vec<_>>();
    assert_eq!(crate::memory::place::can_probe(), version >= vec![5, 14], "Linux {release}");
    if !crate::memory::place::can_probe() {
        return;
    }
    let regions = Regions { probes: true, ..regions() };
    let page = rustix::param::page_size();
    let map = |index: usize, protection| {
        let addr = std::ptr::without_provenance_mut(FREE + index * (4 * page));
        // SAFETY: a new anonymous mapping, which replaces none.
        let addr = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            mmap_anonymous(addr, 2 * page, protection, flags)
        };
        std::ptr::NonNull::new(addr.expect("memory").cast::<u8>()).expect("not null")
    };
    let register = |addr, access| {
        // SAFETY: invalid on purpose: registration must detect it, and nothing accesses the range.
        let range = unsafe { vp_api::MemRange::unowned(addr, 2 * page) };
        regions.register(pd(PD), &MrInit { range, ..init(&Buffer::new(8), access) })
    };
    let read_only = map(0, ProtFlags::READ);
    assert_eq!(register(read_only, FULL).unwrap_err().status, VpStatus::InvalidAddress);
    let stag = register(read_only, Access::LOCAL_READ | Access::REMOTE_READ).unwrap();
    regions.deallocate(stag).unwrap();
    let foreign = map(1, ProtFlags::empty());
    assert_eq!(register(foreign, Access::LOCAL_READ).unwrap_err().status, VpStatus::InvalidAddress);
    let half = map(2, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the second page of what was mapped above; nothing uses it.
    unsafe { munmap(half.as_ptr().wrapping_add(page).cast(), page) }.unwrap();
    assert_eq!(register(half, Access::LOCAL_READ).unwrap_err().status, VpStatus::InvalidAddress);
    // SAFETY: the first page, which nothing uses any more.
    unsafe { munmap(half.as_ptr().cast(), page) }.unwrap();
    // SAFETY: mapped above, in full, and not used any more.
    unsafe { munmap(foreign.as_ptr().cast(), 2 * page) }.unwrap();
    let gone = register(foreign, Access::LOCAL_READ).unwrap_err();
    assert_eq!(gone.status, VpStatus::InvalidAddress);
    // SAFETY: as above.
    unsafe { munmap(read_only.as_ptr().cast(), 2 * page) }.unwrap();
}
