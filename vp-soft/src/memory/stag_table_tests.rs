//! Tests of the STag table.

#[cfg(not(loom))]
mod plain {
    #[cfg(not(miri))]
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    use vp_api::{Access, Stag};

    use crate::memory::AccessError;
    use crate::memory::place;
    use crate::memory::stag_table::{Kind, Need, SEGMENTS, StagTable, Use};
    #[cfg(not(miri))]
    use crate::memory::stag_table::{MAX_STAGS, SEGMENT_SLOTS};
    use crate::testing::{Buffer, FULL, PD, caller, init, pd, regions};

    // [SEC-07] [VERBS-23]: indices are not sequential, spread over the 24 bits, never 0, distinct.
    #[cfg(not(miri))]
    #[test]
    fn indices_are_hard_to_predict() {
        const COUNT: usize = 4000;
        let table = StagTable::new().unwrap();
        let indices: Vec<u32> =
            (0..COUNT).map(|_| table.allocate(Kind::Region).unwrap().unwrap()).collect();
        assert!(indices.iter().all(|&i| i != 0 && i < 1 << 24));
        assert_eq!(indices.iter().collect::<HashSet<_>>().len(), COUNT);
        let neighbours = indices.windows(2).filter(|w| w[0].abs_diff(w[1]) <= 8).count();
        assert!(neighbours < COUNT / 16, "{neighbours} of {COUNT} follow their predecessor");
        let mut ones = [0usize; 24];
        for index in &indices {
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += (index >> bit & 1) as usize;
            }
        }
        // Each bit of a random index is 0 or 1 with equal probability; these bounds are far beyond chance.
        assert!(ones.iter().all(|&n| n > COUNT * 2 / 5 && n < COUNT * 3 / 5), "{ones:?}");
        let other: HashSet<u32> = {
            let table = StagTable::new().unwrap();
            (0..COUNT).map(|_| table.allocate(Kind::Region).unwrap().unwrap()).collect()
        };
        let common = indices.iter().filter(|i| other.contains(i)).count();
        assert!(common < COUNT / 8, "two tables agree on {common} of {COUNT}");
    }

    #[test]
    fn released_indices_are_reused() {
        let table = StagTable::new().unwrap();
        const COUNT: u32 = if cfg!(miri) { 32 } else { 512 };
        let taken: Vec<u32> =
            (0..COUNT).map(|_| table.allocate(Kind::Region).unwrap().unwrap()).collect();
        let count = || (1..SEGMENTS).take_while(|&n| table.segments.get(n).is_some()).count();
        let segments = count();
        for index in taken {
            table.release(index, Kind::Region);
        }
        for _ in 0..COUNT {
            table.allocate(Kind::Window).unwrap().unwrap();
        }
        assert_eq!(segments, count());
    }

    #[cfg(not(miri))]
    #[test]
    fn an_index_keeps_its_slot() {
        let table = StagTable::new().unwrap();
        let taken: Vec<u32> =
            (0..4000).map(|_| table.allocate(Kind::Region).unwrap().unwrap()).collect();
        for index in &taken {
            assert!(table.slot(*index).is_some(), "{index} lost its slot");
        }
    }

    // [SEC-07]: a slot's next index differs from its last, and an index has one slot at a time. Random choice alone
    // would break either rule about a dozen times.
    #[cfg(not(miri))]
    #[test]
    fn a_slot_is_not_given_again_under_the_same_index() {
        let _guard = warpline_patience::Guard::new("slots that are free");
        let table = StagTable::new().unwrap();
        let allocate = || table.allocate(Kind::Region).unwrap().unwrap();
        let kept: HashSet<u32> = (0..1300).map(|_| allocate()).collect();
        let mut last = std::collections::HashMap::new();
        for _ in 0..100_000 {
            let index = allocate();
            assert!(!kept.contains(&index), "{index} has a slot");
            let slot = std::ptr::from_ref(table.slot(index).unwrap());
            assert_ne!(last.insert(slot, index), Some(index));
            table.release(index, Kind::Region);
            assert!(table.slot(index).is_none(), "{index} was given back");
        }
        assert!(last.len() > SEGMENT_SLOTS, "in several segments");
    }

    // [VERBS-23] [SEC-07]: each kind may use half of the STags.
    #[cfg(not(miri))]
    #[test]
    fn each_kind_has_its_half() {
        let table = StagTable::new().unwrap();
        let allocate = |kind| table.allocate(kind).unwrap();
        crate::sync::lock(&table.allocator).used = [MAX_STAGS / 2 - 1, 0];
        assert!(allocate(Kind::Region).is_some());
        assert_eq!(allocate(Kind::Region), None);
        assert!(allocate(Kind::Window).is_some());
    }

    // In whichever level they are.
    #[test]
    fn all_of_many_regions_are_found() {
        const COUNT: usize = if cfg!(miri) { 200 } else { 4000 };
        let (regions, buffer) = (regions(), Buffer::new(8));
        let stags: Vec<Stag> =
            (0..COUNT).map(|_| regions.register(pd(PD), &init(&buffer, FULL)).unwrap()).collect();
        for stag in stags {
            let to = buffer.addr();
            let found = regions.table.resolve(stag, Need::RemoteWrite, &caller(1), to, 8);
            assert_eq!(found.map(|found| found.len()), Ok(8), "{stag:?}");
        }
    }

    // [VERBS-22]: the key is part of the STag.
    #[test]
    fn key_and_index_must_both_be_right() {
        let regions = regions();
        let buffer = Buffer::new(64);
        let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
        let resolve = |stag| {
            let to = buffer.addr();
            regions.table.resolve(stag, Need::RemoteWrite, &caller(1), to, 1).map(|u| u.len())
        };
        assert_eq!(resolve(stag), Ok(1));
        for wrong in [Stag(stag.0 ^ 1), Stag(stag.0 ^ 0x80), Stag(stag.0 ^ 0x100), Stag(!stag.0)] {
            assert_eq!(resolve(wrong), Err(AccessError::InvalidStag), "{wrong:?}");
        }
    }

    // [VERBS-23]: STag 0 is for local buffers of privileged QPs.
    #[test]
    fn stag_zero_is_local_and_privileged() {
        let table = StagTable::new().unwrap();
        let buffer = Buffer::new(16);
        let to = buffer.ptr().expose_provenance() as u64;
        let plain = caller(1);
        let privileged = crate::memory::stag_table::Caller { privileged: true, ..plain };
        let resolve = |stag, need, who| table.resolve(stag, need, who, to, 16);
        let source = resolve(Stag::PRIVILEGED, Need::LocalWrite, &privileged).unwrap();
        place::copy_in(&source, 0, b"privileged").unwrap();
        drop(source);
        assert_eq!(buffer.read(0, 10), b"privileged");
        for need in [Need::LocalRead, Need::LocalWrite] {
            assert!(resolve(Stag::PRIVILEGED, need, &plain).is_err());
            assert!(resolve(Stag(1), need, &privileged).is_err(), "index 0 with a key");
        }
        for need in [Need::ReadSink, Need::RemoteRead, Need::RemoteWrite, Need::RemoteAtomic] {
            let refused = resolve(Stag::PRIVILEGED, need, &privileged).map(|_| ());
            assert_eq!(refused, Err(AccessError::InvalidStag), "{need:?}");
        }
        let wraps = table.resolve(Stag::PRIVILEGED, Need::LocalRead, &privileged, u64::MAX, 2);
        assert_eq!(wraps.map(|_| ()), Err(AccessError::Wrap));
    }

    // [SEC-05] [DDP-21]: after revocation has returned, no octet is written.
    #[test]
    fn nothing_is_written_after_revocation() {
        const ROUNDS: usize = if cfg!(miri) { 3 } else { 200 };
        for _ in 0..ROUNDS {
            let regions = regions();
            let buffer = Buffer::new(256);
            let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
            let started = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut octet = 0u8;
                    loop {
                        octet = octet.wrapping_add(1);
                        let to = buffer.addr();
                        let target =
                            regions.table.resolve(stag, Need::RemoteWrite, &caller(1), to, 256);
                        let Ok(target) = target else { return };
                        place::copy_in(&target, 0, &[octet; 256]).unwrap();
                        started.store(true, Ordering::Release);
                    }
                });
                warpline_patience::until("the first octets to be written", || {
                    started.load(Ordering::Acquire)
                });
                regions.deallocate(stag).unwrap();
                let before = buffer.read(0, 256);
                assert!(before.iter().all(|&octet| octet == before[0]), "torn");
                warpline_patience::within("the writer to be refused", || writer.join().unwrap());
                assert_eq!(buffer.read(0, 256), before);
                assert_eq!(buffer.users(), 0);
            });
        }
    }

    // [DDP-21]: a use that is kept is checked like a new one, and is released for another STag.
    #[test]
    fn a_kept_use_is_checked_like_a_new_one() {
        let regions = regions();
        let (one, other) = (Buffer::new(64), Buffer::new(64));
        let register = |buffer| regions.register(pd(PD), &init(buffer, FULL)).unwrap();
        let (first, second) = (register(&one), register(&other));
        let mut kept = None;
        let mut next = |stag: Stag, to, len| {
            let (table, me) = (&regions.table, caller(1));
            table.resolve_next(&mut kept, stag, Need::RemoteWrite, &me, to, len).map(Use::len)
        };
        assert_eq!(next(first, one.addr(), 8), Ok(8));
        assert_eq!(next(first, one.addr() + 8, 56), Ok(56));
        assert_eq!(next(first, one.addr() + 60, 5), Err(AccessError::Bounds));
        assert_eq!(next(first, one.addr(), 64), Ok(64));
        let wrong = Stag(first.0 ^ 1);
        assert_eq!(next(wrong, one.addr(), 8), Err(AccessError::InvalidStag));
        assert_eq!(next(first, one.addr(), 8), Ok(8));
        assert_eq!(next(second, other.addr(), 8), Ok(8));
        // The first one is no longer in use.
        regions.deallocate(first).unwrap();
        assert_eq!(next(first, one.addr(), 8), Err(AccessError::InvalidStag));
        regions.deallocate(second).unwrap();
    }

    // [SEC-05]: a thread that keeps a use is refused its next access as soon as a revocation has begun, and does
    // not delay the revocation.
    #[test]
    fn a_kept_use_ends_when_revocation_begins() {
        let regions = regions();
        let buffer = Buffer::new(64);
        let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
        let table = &regions.table;
        let mut kept = None;
        let me = caller(1);
        let mut next = || {
            let need = Need::RemoteWrite;
            table.resolve_next(&mut kept, stag, need, &me, buffer.addr(), 8).map(Use::len)
        };
        assert_eq!(next(), Ok(8));
        let slot = table.slot(stag.index()).unwrap();
        std::thread::scope(|scope| {
            let revoking = scope.spawn(|| slot.revoke());
            warpline_patience::until("the revocation to begin", || slot.valid_key().is_none());
            assert_eq!(next(), Err(AccessError::InvalidStag));
            let revoked =
                warpline_patience::within("the revocation to end", || revoking.join().unwrap());
            assert_eq!(revoked, Ok(()), "the use is not held any more");
        });
        regions.deallocate(stag).unwrap();
    }

    // [SEC-04]: read and write rights are separate, also for the operations on a use.
    #[test]
    fn a_use_for_reading_cannot_write() {
        let regions = regions();
        let buffer = Buffer::new(8);
        let stag = regions.register(pd(PD), &init(&buffer, Access::LOCAL_READ)).unwrap();
        let source =
            regions.table.resolve(stag, Need::LocalRead, &caller(1), buffer.addr(), 8).unwrap();
        assert_eq!(place::copy_in(&source, 0, &[1]), Err(AccessError::Access));
    }
}

#[cfg(loom)]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use vp_api::{Access, PdId, Stag};

    use crate::memory::grant::{Grant, Scope};
    use crate::memory::stag_table::Slot;
    use crate::sync::lock;

    fn grant(len: u64) -> Grant {
        let addr = std::ptr::dangling_mut();
        Grant { addr, len, base: 0, access: Access::all(), pd: PdId(1), scope: Scope::Region }
    }

    fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    // [SEC-05]: a thread that entered the count sees the right grant, and memory that still exists; loom checks
    // that no grant is read while it is written.
    #[test]
    fn loom_use_count_against_revocation() {
        bounded(3, || {
            let slot = Arc::new(Slot::new());
            let gone = Arc::new(AtomicBool::new(false));
            slot.publish(7, grant(1));
            let users: Vec<_> = (0..2)
                .map(|_| {
                    let (slot, gone) = (slot.clone(), gone.clone());
                    loom::thread::spawn(move || {
                        if let Some(hold) = slot.enter(Stag(7)) {
                            assert_eq!(hold.grant(|grant| grant.len), 1);
                            assert!(!gone.load(Ordering::Relaxed), "memory freed under a holder");
                        }
                    })
                })
                .collect();
            let meta = lock(&slot.meta);
            slot.revoke().unwrap();
            gone.store(true, Ordering::Relaxed);
            drop(meta);
            assert!(slot.enter(Stag(7)).is_none());
            for user in users {
                user.join().unwrap();
            }
        });
    }

    // [VERBS-25]: invalid, then valid again with another grant: no thread mixes up the two grants.
    #[test]
    fn loom_publish_again_under_other_key() {
        bounded(3, || {
            let slot = Arc::new(Slot::new());
            slot.publish(7, grant(1));
            let user = {
                let slot = slot.clone();
                loom::thread::spawn(move || {
                    for (key, len) in [(7, 1), (8, 2)] {
                        if let Some(hold) = slot.enter(Stag(key)) {
                            assert_eq!(hold.grant(|grant| grant.len), len);
                        }
                    }
                })
            };
            slot.revoke().unwrap();
            slot.publish(8, grant(2));
            user.join().unwrap();
            assert_eq!(slot.enter(Stag(8)).map(|hold| hold.grant(|grant| grant.len)), Some(2));
            assert!(slot.enter(Stag(7)).is_none());
        });
    }
    // [SEC-05]: a use that is kept for the next segment holds the memory, and is refused once revocation has begun;
    // a new grant waits until it is released.
    #[test]
    fn loom_kept_use_against_revocation() {
        bounded(3, || {
            let slot = Arc::new(Slot::new());
            let gone = Arc::new(AtomicBool::new(false));
            slot.publish(7, grant(1));
            let user = {
                let (slot, gone) = (slot.clone(), gone.clone());
                loom::thread::spawn(move || {
                    let Some(hold) = slot.enter(Stag(7)) else { return };
                    for _ in 0..2 {
                        if !hold.is_valid() {
                            break;
                        }
                        assert_eq!(hold.grant(|grant| grant.len), 1);
                        assert!(!gone.load(Ordering::Relaxed), "memory freed under a holder");
                    }
                })
            };
            slot.revoke().unwrap();
            gone.store(true, Ordering::Relaxed);
            slot.publish(8, grant(2));
            user.join().unwrap();
        });
    }

    // What the handler of `unmapped` asks: a holder's memory is found, also while a revocation waits for the holder,
    // and no grant is read while it is written.
    #[test]
    fn loom_memory_in_use_is_found() {
        bounded(2, || {
            let slot = Arc::new(Slot::new());
            slot.publish(7, grant(1));
            let first = grant(1).addr.addr();
            let asks = {
                let slot = slot.clone();
                loom::thread::spawn(move || slot.is_used_at(first + 2))
            };
            let user = {
                let slot = slot.clone();
                loom::thread::spawn(move || {
                    let hold = slot.enter(Stag(7));
                    assert!(hold.is_none() || slot.is_used_at(first));
                })
            };
            slot.revoke().unwrap();
            slot.publish(8, grant(2));
            user.join().unwrap();
            assert!(!asks.join().unwrap(), "beyond either grant");
            assert!(!slot.is_used_at(first), "valid, but not in use");
        });
    }
}
