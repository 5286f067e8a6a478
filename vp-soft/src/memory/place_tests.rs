//! Tests of copying to and from registered memory, and of atomics.

use crate::memory::AccessError;
use crate::memory::place::{atomic_rmw, copy_in, copy_out};
use crate::memory::stag_table::Need;
use crate::testing::{Buffer, FULL, PD, caller, init, pd, regions};

// [SEC-03]: octet granularity, and nothing beyond what was resolved.
#[test]
fn copies_stay_inside() {
    let regions = regions();
    let buffer = Buffer::new(64);
    let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let (who, to) = (caller(1), buffer.addr() + 8);
    let target = regions.table.resolve(stag, Need::RemoteWrite, &who, to, 16).unwrap();
    copy_in(&target, 3, b"abc").unwrap();
    copy_in(&target, 15, b"z").unwrap();
    copy_in(&target, 16, b"").unwrap();
    assert_eq!(copy_in(&target, 14, b"abc"), Err(AccessError::Bounds));
    assert_eq!(copy_in(&target, u32::MAX, b"ab"), Err(AccessError::Bounds));
    drop(target);
    let mut expected = vec![0; 64];
    expected[11..14].copy_from_slice(b"abc");
    expected[23] = b'z';
    assert_eq!(buffer.read(0, 64), expected);
    let source = regions.table.resolve(stag, Need::RemoteRead, &who, to, 16).unwrap();
    let mut out = [0; 4];
    copy_out(&source, 2, &mut out).unwrap();
    assert_eq!(&out, b"\0abc");
    assert_eq!(copy_out(&source, 13, &mut out), Err(AccessError::Bounds));
}

// [EXT-06] [EXT-07] [EXT-09]: atomics operate on the host-order value and return the old value.
#[test]
fn atomics_work_on_host_order() {
    let regions = regions();
    let buffer = Buffer::new(16);
    let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let to = buffer.addr() + 8;
    let target = regions.table.resolve(stag, Need::RemoteAtomic, &caller(1), to, 8).unwrap();
    let old = atomic_rmw(&target, |old| Some(old + 0x0102_0304)).unwrap();
    assert_eq!(old, 0);
    assert_eq!(buffer.read(8, 8), 0x0102_0304u64.to_ne_bytes());
    let swap = |compare| move |old| (old == compare).then_some(7);
    assert_eq!(atomic_rmw(&target, swap(1)), Ok(0x0102_0304));
    assert_eq!(atomic_rmw(&target, swap(0x0102_0304)), Ok(0x0102_0304));
    assert_eq!(atomic_rmw(&target, swap(7)), Ok(7));
    assert_eq!(buffer.read(8, 8), 7u64.to_ne_bytes());
}

// [EXT-12]: atomic with respect to all other atomics through the same RNIC.
#[test]
fn atomics_from_many_threads_add_up() {
    const EACH: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let regions = regions();
    let buffer = Buffer::new(8);
    let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    std::thread::scope(|scope| {
        for qp in 0..4 {
            let (table, to) = (&regions.table, buffer.addr());
            scope.spawn(move || {
                for _ in 0..EACH {
                    let who = caller(qp);
                    let target = table.resolve(stag, Need::RemoteAtomic, &who, to, 8).unwrap();
                    atomic_rmw(&target, |old| Some(old + 1)).unwrap();
                }
            });
        }
    });
    assert_eq!(buffer.read(0, 8), (4 * EACH).to_ne_bytes());
}
