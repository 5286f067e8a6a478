//! Loom tests of posted requests: threads that poll completions and look up their requests under another
//! lock lose none.

use std::collections::VecDeque;

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::Posted;
use crate::sync::lock;

/// A completion: the number of its request, and whether it is a success.
type Polled = (u64, bool);

/// What a thread got: requests by their own completions, and through later ones.
type Got = (Vec<u64>, Vec<u64>);

struct Side {
    completed: Mutex<VecDeque<Polled>>,
    posted: Mutex<Posted<u64>>,
}

fn side(signalled: &[bool], completions: &[Polled]) -> Arc<Side> {
    let mut posted = Posted::new(8);
    for (n, signalled) in (0..).zip(signalled) {
        posted.hold(n, *signalled).expect("room");
    }
    let completed = completions.iter().copied().collect();
    Arc::new(Side { completed: Mutex::new(completed), posted: Mutex::new(posted) })
}

/// Takes all it can, as a dispatcher does: polls, then looks up.
fn take(side: &Side) -> Got {
    let (mut own, mut earlier) = Got::default();
    loop {
        let polled = lock(&side.completed).pop_front();
        let Some((number, good)) = polled else { return (own, earlier) };
        let request = lock(&side.posted).complete(number, good, |request| earlier.push(*request));
        own.push(request.expect("a completion finds its request"));
    }
}

/// Two threads; what both got, sorted.
fn both(side: &Arc<Side>) -> Got {
    let other = thread::spawn({
        let side = side.clone();
        move || take(&side)
    });
    let (mut own, mut earlier) = take(side);
    let got = other.join().expect("no panic");
    own.extend(got.0);
    earlier.extend(got.1);
    own.sort_unstable();
    earlier.sort_unstable();
    (own, earlier)
}

#[test]
fn loom_two_takers_lose_no_completion() {
    loom::model(|| {
        let signalled = [true, false, true, true];
        let side = side(&signalled, &[(0, true), (2, true), (3, true)]);
        assert_eq!(both(&side), (vec![0, 2, 3], vec![1]));
    });
}

#[test]
fn loom_two_takers_lose_no_completion_of_a_failed_stream() {
    loom::model(|| {
        // 0 succeeded unsignalled; 1 failed, 2 and 3 were flushed.
        let signalled = [false, true, false, true];
        let side = side(&signalled, &[(1, false), (2, false), (3, false)]);
        let (own, earlier) = both(&side);
        assert_eq!(own, [1, 2, 3]);
        // The memory of 2 comes with its own completion, or was reported by a faster thread.
        assert!(earlier == [0] || earlier == [0, 2], "{earlier:?}");
    });
}
