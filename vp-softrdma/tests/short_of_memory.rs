//! A message arrives before its receive, and there is no memory to buffer it: the stream ends, with an event
//! at both ends. The allocator of this program refuses the larger allocations of a thread while the thread asks
//! for that.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use common::*;
use vp_api::*;

/// Octets of a message: allocations from this size on are refused.
const LEN: usize = 4096;

thread_local! {
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: every call is the system allocator's, or returns null, which means that there is no memory.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LEN && REFUSES.try_with(Cell::get).unwrap_or(false) {
            return std::ptr::null_mut();
        }
        // SAFETY: same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: same contract, and all memory is the system allocator's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[test]
fn a_message_that_cannot_be_kept_ends_the_stream() {
    let hold = |init: &mut QpInit| {
        let time = Duration::from_secs(600);
        init.unready = Unready::Hold { octets: 16 << 20, time };
    };
    let (near, far) = pair(&Setup { init: hold, ..Setup::default() });
    let source = near.region(Buffer::new(LEN));
    let mut out = [WorkCompletion::BLANK; 16];
    // A message that the engine's thread receives is buffered; one that this thread receives is not.
    warpline_patience::until("a message that this thread receives", || {
        let (data, flags) = (Data::Sgl(&[source.all()]), SendFlags::SIGNALED);
        let _ = near.qp.post_send(&[SendWr { wr_id: 1, op: SEND, data, flags }]);
        near.cq.poll(&mut out).unwrap();
        REFUSES.set(true);
        far.cq.poll(&mut out).unwrap();
        REFUSES.set(false);
        far.state() != QpState::Rts
    });
    for (end, sent) in [(&far, true), (&near, false)] {
        let (AsyncEvent::TerminateSent(why) | AsyncEvent::TerminateReceived(why)) = end.event()
        else {
            panic!("a Terminate")
        };
        // A local failure that ends the stream.
        assert_eq!((why.sent, why.layer, why.etype, why.code), (sent, 0, 2, 7));
    }
}
