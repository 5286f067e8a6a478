//! Destroyed objects free their memory: queues, connections, a whole RNIC.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use common::*;
use vp_api::*;

static OCTETS: AtomicIsize = AtomicIsize::new(0);

/// Counts the octets that are in use.
struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        OCTETS.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        OCTETS.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls `round` several times, and checks that all but the first leave less than `least` octets allocated, which
/// is what one round uses.
fn leaves_nothing(what: &str, least: isize, mut round: impl FnMut()) {
    const ROUNDS: isize = 8;
    let mut round =
        || warpline_patience::within("something to be made, used and destroyed", &mut round);
    round();
    let before = OCTETS.load(Ordering::Relaxed);
    (0..ROUNDS).for_each(|_| round());
    let left = OCTETS.load(Ordering::Relaxed) - before;
    assert!(left < ROUNDS * least, "{left} octets are left of {what}");
}

/// One test: the count is that of the whole process.
#[test]
fn destroyed_objects_release_their_memory() {
    let rnic = open();
    leaves_nothing("completion queues", 30_000, || {
        let cq = rnic.create_cq(&CqInit { depth: 1000, handler: None }).unwrap();
        cq.resize(3000).unwrap();
        rnic.destroy_cq(cq.id()).unwrap();
    });
    let pd = rnic.alloc_pd().unwrap();
    let cq = rnic.create_cq(&CqInit { depth: 1000, handler: None }).unwrap();
    leaves_nothing("queue pairs", 10_000, || {
        let init = QpInit { send_depth: 1000, ..QpInit::new(pd, cq.id(), cq.id()) };
        rnic.destroy_qp(rnic.create_qp(&init).unwrap().id()).unwrap();
    });
    // What a thread caches once for later use is less than this.
    leaves_nothing("connections", 200_000, || {
        let deep = |init: &mut QpInit| init.send_depth = 10_000;
        let (near, far) = pair(&Setup { init: deep, ..Setup::default() });
        let source = near.region(Buffer::new(64));
        far.recv(1, &[]);
        near.post(2, SEND, &[source.sge(0, 0)]);
        far.done(1);
        near.done(2);
        near.qp.modify(QpChange::Closing).unwrap();
        assert_eq!(near.event(), AsyncEvent::CloseComplete);
        assert_eq!(far.event(), AsyncEvent::CloseComplete);
    });
    leaves_nothing("RNICs with regions", 100_000, || {
        let end = End::new(|_| {});
        end.region(Buffer::new(8));
    });
}
