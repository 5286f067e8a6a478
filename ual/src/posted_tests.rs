//! Tests of posted requests.

use super::*;

/// A queue with requests `0..`, and whether they are signalled.
fn queue(depth: u32, signalled: &[bool]) -> Posted<u64> {
    let mut posted = Posted::new(depth);
    for (n, signalled) in signalled.iter().enumerate() {
        assert_eq!(posted.hold(n as u64, *signalled), Ok(n as u64));
    }
    posted
}

/// Completes request `number`; returns it, and the earlier ones that were reported.
fn complete(posted: &mut Posted<u64>, number: u64, good: bool) -> (Option<u64>, Vec<u64>) {
    let mut earlier = Vec::new();
    let request = posted.complete(number, good, |request| earlier.push(*request));
    (request, earlier)
}

/// No place is occupied.
fn is_empty(posted: &Posted<u64>) -> bool {
    posted.places.iter().all(|place| place.kind == Kind::Free)
}

const FULL: Result<u64, VpStatus> = Err(VpStatus::TooManyWrs);

const NOTHING: (Option<u64>, Vec<u64>) = (None, Vec::new());

#[test]
fn a_completion_ends_the_unsignalled_before_it_and_no_other() {
    let mut posted = queue(8, &[false, true, false, false, true, false]);
    assert_eq!(complete(&mut posted, 4, true), (Some(4), vec![0, 2, 3]));
    assert_eq!(complete(&mut posted, 4, true), NOTHING);
    assert_eq!(complete(&mut posted, 1, true), (Some(1), vec![]), "by a slower thread");
    assert_eq!(complete(&mut posted, 6, true), NOTHING, "never posted");
    assert_eq!(posted.hold(6, true), Ok(6));
    assert_eq!(complete(&mut posted, 6, true), (Some(6), vec![5]));
    assert!(posted.is_idle() && is_empty(&posted));
}

#[test]
fn a_full_queue_refuses_until_one_is_taken() {
    let mut posted = queue(3, &[true; 3]);
    assert_eq!(posted.hold(9, true), FULL);
    assert_eq!(posted.room(9), Err(VpStatus::TooManyWrs));
    complete(&mut posted, 1, true);
    assert_eq!(posted.room(9), Ok((3, 1)));
    assert_eq!(posted.hold(3, false), Ok(3));
    assert_eq!(posted.hold(9, true), FULL);
    for number in [0, 2] {
        complete(&mut posted, number, true);
    }
    // The unsignalled one is done when one after it completed.
    assert_eq!(posted.hold(4, true), Ok(4));
    assert_eq!(posted.room(9), Ok((5, 1)));
    complete(&mut posted, 4, true);
    assert_eq!(posted.room(9), Ok((5, 3)));
}

// Its number maps to the place of another request by then.
#[test]
fn a_completion_that_comes_twice_takes_no_later_request() {
    let mut posted = queue(2, &[true]);
    let places = posted.places.len() as u64;
    assert_eq!(complete(&mut posted, 0, true).0, Some(0));
    for number in 1..=places {
        assert_eq!(posted.hold(number, true), Ok(number));
        assert_eq!(complete(&mut posted, 0, true), NOTHING, "beside {number}");
        assert_eq!(complete(&mut posted, number, true).0, Some(number));
    }
}

#[test]
fn a_slow_thread_does_not_stop_the_others() {
    let mut posted = queue(2, &[true]);
    for _ in 0..50 {
        let number = posted.hold(77, true).unwrap();
        assert_eq!(complete(&mut posted, number, true), (Some(77), vec![]));
    }
    assert_eq!(complete(&mut posted, 0, true), (Some(0), vec![]));
    assert_eq!(posted.places.len(), 4, "its number is skipped, and needs no more places");
}

#[test]
fn failed_requests_complete_in_any_order() {
    // 0 succeeds unsignalled; 1 fails, and so the unsignalled 2 is flushed like 3.
    let mut posted = queue(4, &[false, true, false, true]);
    assert_eq!(complete(&mut posted, 3, false), (Some(3), vec![0, 2]));
    assert_eq!(posted.room(9).unwrap().1, 3, "its completion is not known yet");
    assert_eq!(complete(&mut posted, 1, false), (Some(1), vec![]));
    assert_eq!(complete(&mut posted, 2, false), (Some(2), vec![]), "its own completion");
    assert_eq!(posted.room(9).unwrap().1, 4);
    posted.ended(3, |_| true);
    assert_eq!(complete(&mut posted, 0, true), NOTHING);
}

#[test]
fn after_a_stream_only_failed_requests_wait() {
    // 0 and 1 succeed unsignalled, 2 and 3 fail.
    let mut posted = queue(4, &[false; 4]);
    posted.ended(2, |request| *request == 1);
    assert_eq!(posted.room(9).unwrap().1, 2);
    assert_eq!(posted.hold(4, true), Ok(4));
    // A success of the next stream does not complete the last one's requests.
    assert_eq!(complete(&mut posted, 4, true), (Some(4), vec![1]));
    assert_eq!(complete(&mut posted, 2, false), (Some(2), vec![]));
    assert_eq!(complete(&mut posted, 3, false), (Some(3), vec![]));
    assert!(posted.is_idle());
}

#[test]
fn streams_that_fail_repeatedly_leave_no_request() {
    let mut posted = queue(4, &[]);
    for _ in 0..100 {
        (0..3).for_each(|n| assert!(posted.hold(n, false).is_ok()));
        let last = posted.hold(3, true).unwrap();
        assert_eq!(complete(&mut posted, last, false), (Some(3), vec![0, 1, 2]));
        posted.ended(1, |_| true);
    }
    assert_eq!(posted.places.len(), 8);
    assert!(is_empty(&posted));
}

#[test]
fn failed_unsignalled_requests_wait_for_their_completion_after_the_stream() {
    // 0 and 1 fail, and the thread that holds the completion of 0 is slow.
    let mut posted = queue(4, &[false, true]);
    assert_eq!(complete(&mut posted, 1, false), (Some(1), vec![0]));
    posted.ended(2, |_| true);
    assert_eq!(complete(&mut posted, 0, false), (Some(0), vec![]));
    assert!(is_empty(&posted));
}

#[test]
fn unsignalled_successes_are_reported_by_a_failure_of_the_next_stream() {
    let mut posted = queue(4, &[false; 2]);
    posted.ended(0, |_| true);
    assert_eq!(posted.room(9).unwrap().1, 4);
    assert_eq!(posted.hold(2, true), Ok(2));
    assert_eq!(complete(&mut posted, 2, false), (Some(2), vec![0, 1]));
    assert!(is_empty(&posted));
}

#[test]
fn places_are_a_power_of_two_with_room_for_slow_threads() {
    for (depth, places) in [(1, 4), (16, 32), (100, 256)] {
        let mut posted = Posted::<u64>::new(0);
        posted.reserve(depth).unwrap();
        assert_eq!(posted.places.len(), places, "{depth}");
        let before = posted.places.as_ptr();
        posted.reserve(depth).unwrap();
        assert_eq!(posted.places.as_ptr(), before, "there was room already");
    }
}

#[test]
fn a_refused_request_is_not_kept() {
    let mut posted = queue(2, &[true]);
    let number = posted.hold(7, false).unwrap();
    assert_eq!(posted.room(9).map(|(_, most)| most), Err(VpStatus::TooManyWrs));
    assert_eq!(posted.refused(number), Some(7));
    assert_eq!(posted.room(9).unwrap().1, 1);
    assert_eq!(posted.refused(number), None);
    let next = posted.hold(8, true).unwrap();
    assert_eq!(complete(&mut posted, next, true), (Some(8), vec![]));
}

#[test]
fn a_refused_request_counts_for_no_stream() {
    for (failed, reported) in [(1, vec![0]), (2, vec![])] {
        let mut posted = queue(4, &[false]);
        let refused = posted.hold(1, false).unwrap();
        posted.refused(refused);
        let last = posted.hold(2, false).unwrap();
        // The last ones of two.
        posted.ended(failed, |_| true);
        assert_eq!(complete(&mut posted, last, false), (Some(2), reported));
        assert_eq!(complete(&mut posted, 0, false).0.is_some(), failed == 2);
    }
}

#[test]
fn half_a_number_is_enough() {
    let mut posted: Posted<u64> =
        Posted { next: u32::MAX.into(), reported: u32::MAX.into(), ..Posted::new(4) };
    let numbers: Vec<_> = (0..4).map(|n| posted.hold(n, true).unwrap()).collect();
    for (request, number) in (0..).zip(numbers) {
        assert_eq!(posted.number(number as u32), number);
        assert_eq!(complete(&mut posted, number, true).0, Some(request));
    }
}

#[test]
fn places_are_found_when_many_threads_are_slow() {
    let mut posted = queue(4, &[false]);
    for round in 0..40 {
        // The signalled one fails; the thread that holds the unsignalled one's completion is slow.
        let silent = if round == 0 { 0 } else { posted.hold(round, false).unwrap() };
        let number = posted.hold(99, true).unwrap();
        assert_eq!(complete(&mut posted, number, false).0, Some(99));
        assert!(silent < number);
    }
    let held = posted.places.iter().filter(|place| place.kind != Kind::Free);
    let left: Vec<u64> = held.map(|place| place.number).collect();
    assert_eq!(left.len(), 40);
    for number in left {
        assert!(complete(&mut posted, number, false).0.is_some());
    }
}

#[test]
fn a_queue_that_is_made_deeper_takes_more_and_a_shallower_one_fewer() {
    let mut posted = queue(1, &[true]);
    assert_eq!(posted.hold(1, true), FULL);
    posted.set_depth(2);
    assert_eq!(posted.hold(1, true), Ok(1));
    assert_eq!(posted.hold(2, true), FULL);
    posted.set_depth(1);
    complete(&mut posted, 0, true);
    assert_eq!(posted.hold(2, true), FULL);
}

#[test]
fn an_idle_queue_has_no_request_in_a_slot() {
    let mut posted = queue(4, &[]);
    assert!(posted.is_idle());
    posted.hold(0, true).unwrap();
    assert!(!posted.is_idle());
}

#[test]
fn pending_events_are_counted() {
    let mut posted = queue(8, &[false, false, true, false, true]);
    assert_eq!(posted.unreported(), 5);
    complete(&mut posted, 2, true);
    assert_eq!(posted.unreported(), 2);
    complete(&mut posted, 4, true);
    assert_eq!(posted.unreported(), 0);
}

#[test]
fn each_request_that_waits_is_shown() {
    let mut posted = queue(4, &[true, false, true]);
    complete(&mut posted, 0, true);
    let mut shown = Vec::new();
    posted.for_each(|request| shown.push(*request));
    assert_eq!(shown, [1, 2]);
}
