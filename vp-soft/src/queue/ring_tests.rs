//! Tests of a completion ring whose pushers and poppers are stopped half way, of a closed ring, and of a held ring.

use std::sync::atomic::AtomicBool;

use vp_api::WorkCompletion;
use warpline_patience::{until, within};

use super::{Offer, Ring};
use crate::sync::Ordering;

fn push(ring: &Ring) -> Offer {
    ring.push(&WorkCompletion::BLANK, |_| {})
}

/// Both slots are in use, and the popper of the older one has not finished.
fn with_a_slow_popper() -> (Ring, usize) {
    let ring = Ring::new(2, 0).unwrap();
    (0..2).for_each(|_| assert!(matches!(push(&ring), Offer::Taken { .. })));
    assert!(matches!(push(&ring), Offer::Full));
    let position = ring.begin_pop();
    (ring, position)
}

#[test]
fn a_stopped_popper_is_no_lack_of_room() {
    let (ring, _) = with_a_slow_popper();
    let offer = within("the pusher to lose patience", || push(&ring));
    assert!(matches!(offer, Offer::Stuck));
}

/// The pusher waits for a second, or for the longest back-off.
#[test]
fn a_pusher_waits_for_a_popper_that_goes_on() {
    let (ring, position) = with_a_slow_popper();
    let begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pusher = scope.spawn(|| {
            begun.store(true, Ordering::Release);
            push(&ring)
        });
        until("the pusher to begin", || begun.load(Ordering::Acquire));
        ring.end_pop(position);
        let offer = within("the pusher to find room", || pusher.join().unwrap());
        assert!(matches!(offer, Offer::Taken { position: 2 }));
    });
}

#[test]
fn a_ring_is_finished_when_it_is_closed_and_empty() {
    let ring = Ring::new(2, 0).unwrap();
    let is_finished = || (ring.is_finished(), ring.is_finished_held());
    assert_eq!(is_finished(), (false, false));
    assert!(matches!(push(&ring), Offer::Taken { position: 0 }));
    let half = ring.begin_push();
    assert_eq!(is_finished(), (false, false));
    ring.close(std::ptr::null_mut());
    assert!(matches!(push(&ring), Offer::Closed));
    assert_eq!(ring.pop(&mut [WorkCompletion::BLANK; 2]), Some(1));
    assert_eq!(is_finished(), (false, false));
    ring.end_push(half, &WorkCompletion::BLANK);
    assert_eq!(ring.pop(&mut [WorkCompletion::BLANK; 2]), Some(1));
    assert_eq!(is_finished(), (true, true));
    ring.hold();
    assert_eq!(is_finished(), (false, true));
    let never = Ring::new(2, 1).unwrap();
    never.close(std::ptr::null_mut());
    assert!(never.is_finished() && never.is_finished_held());
}

#[test]
fn a_ring_reports_whether_it_is_held_wherever_poppers_are() {
    let ring = Ring::new(2, 0).unwrap();
    for popped in 0..3 {
        assert_eq!((ring.content(), ring.is_held()), ((0, false), false), "{popped} popped");
        ring.hold();
        assert_eq!((ring.content(), ring.is_held()), ((0, true), true), "{popped} popped");
        assert_eq!(ring.pop(&mut [WorkCompletion::BLANK]), None);
        assert!(matches!(push(&ring), Offer::Taken { .. }));
        assert_eq!(ring.content(), (1, true));
        assert!(ring.pop_held().is_some());
        ring.release();
    }
}
