//! Tests of placement.

use std::sync::atomic::{AtomicBool, Ordering};

use iwarp_proto::{AccessError, AtomicOp};

use crate::memory::place::{atomic_rmw, copy_in, copy_out, copy_out_summed};
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

// Short and long, the sum of what was copied, and nothing beyond what was resolved.
#[test]
fn a_copy_is_summed() {
    let regions = regions();
    let buffer = Buffer::new(5000);
    let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let (who, to) = (caller(1), buffer.addr());
    let octets: Vec<u8> =
        (0..5000u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 9) as u8).collect();
    let target = regions.table.resolve(stag, Need::RemoteWrite, &who, to, 5000).unwrap();
    copy_in(&target, 0, &octets).unwrap();
    drop(target);
    let source = regions.table.resolve(stag, Need::LocalRead, &who, to, 5000).unwrap();
    for (at, len) in [(0, 0), (3, 7), (1, 1023), (2, 1024), (5, 4001), (0, 5000)] {
        let (mut out, mut crc) = (vec![0; len], 0x1234);
        copy_out_summed(&source, at, &mut out, &mut crc).unwrap();
        let wanted = &octets[at as usize..][..len];
        assert_eq!(out, wanted);
        assert_eq!(crc, crate::stream::crc::kernel()(0x1234, wanted), "{len} octets");
    }
    for len in [16, 2000] {
        let (mut out, mut crc) = (vec![0; len], 7);
        let refused = copy_out_summed(&source, 5001 - len as u32, &mut out, &mut crc);
        assert_eq!((refused, crc), (Err(AccessError::Bounds), 7));
    }
}

// A peer may write what is being sent: the sum is that of the octets that go out.
#[test]
#[cfg(not(miri))] // the race is meant
fn a_racing_copy_is_summed_as_it_is() {
    let regions = regions();
    let buffer = Buffer::new(16 << 10);
    let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let (len, to) = (buffer.len() as u32, buffer.addr());
    let resolve = |need, who| regions.table.resolve(stag, need, who, to, len).unwrap();
    let over = AtomicBool::new(false);
    let (peer, us) = (caller(1), caller(2));
    let right = std::thread::scope(|scope| {
        scope.spawn(|| {
            let target = resolve(Need::RemoteWrite, &peer);
            for value in (0..=u8::MAX).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                copy_in(&target, 0, &[value; 16 << 10]).unwrap();
            }
        });
        let source = resolve(Need::LocalRead, &us);
        let right = (0..5000).all(|_| {
            let (mut out, mut crc) = (vec![0; len as usize], 0);
            copy_out_summed(&source, 0, &mut out, &mut crc).unwrap();
            crc == crate::stream::crc::kernel()(0, &out)
        });
        over.store(true, Ordering::Relaxed);
        right
    });
    assert!(right);
}

// [EXT-06] [EXT-07] [EXT-09]: operations on the host-order value, old value back.
#[test]
fn atomics_work_on_host_order() {
    let regions = regions();
    let buffer = Buffer::new(16);
    let stag = regions.register(pd(PD), &init(&buffer, FULL)).unwrap();
    let to = buffer.addr() + 8;
    let target = regions.table.resolve(stag, Need::RemoteAtomic, &caller(1), to, 8).unwrap();
    let old = atomic_rmw(&target, AtomicOp::FetchAdd { add: 0x0102_0304, mask: 0 }).unwrap();
    assert_eq!(old, 0);
    assert_eq!(buffer.read(8, 8), 0x0102_0304u64.to_ne_bytes());
    let swap = |compare| AtomicOp::CmpSwap {
        compare,
        compare_mask: u64::MAX,
        swap: 7,
        swap_mask: u64::MAX,
    };
    assert_eq!(atomic_rmw(&target, swap(1)), Ok(0x0102_0304));
    assert_eq!(atomic_rmw(&target, swap(0x0102_0304)), Ok(0x0102_0304));
    assert_eq!(atomic_rmw(&target, swap(7)), Ok(7));
    assert_eq!(buffer.read(8, 8), 7u64.to_ne_bytes());
}

// [EXT-12]: atomic towards all others through the same RNIC.
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
                    atomic_rmw(&target, AtomicOp::FetchAdd { add: 1, mask: 0 }).unwrap();
                }
            });
        }
    });
    assert_eq!(buffer.read(0, 8), (4 * EACH).to_ne_bytes());
}
