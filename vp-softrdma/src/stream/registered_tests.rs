//! Tests of sums over registered memory.

use std::sync::atomic::{AtomicBool, Ordering};

use vp_soft::memory::AccessError;
use vp_soft::memory::place::copy_in;
use vp_soft::memory::stag_table::Need;

use super::copy_out_summed;
use crate::testing::{Buffer, FULL, PD, caller, init, pd, regions};

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
#[cfg(not(miri))] // the race is intended
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
