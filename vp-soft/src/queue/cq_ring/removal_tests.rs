//! Tests of removing a QP's completions: order, positions and room of the others; with loom, that no
//! completion is lost or seen too late, and that no thread waits for ever.

use vp_api::{QpId, WorkCompletion};

use crate::queue::cq_ring::{CqRing, Put};
#[cfg(not(loom))]
use crate::sync::lock;

fn of(qp: u32, wr_id: u64) -> WorkCompletion {
    WorkCompletion { qp: QpId(qp), wr_id, ..WorkCompletion::BLANK }
}

/// Pushes a completion and returns its position.
fn put(ring: &CqRing, qp: u32, wr_id: u64) -> u64 {
    ring.put(&of(qp, wr_id), &mut Put::default()).unwrap()
}

fn put_all(ring: &CqRing, all: &[(u32, u64)]) {
    for &(qp, wr_id) in all {
        put(ring, qp, wr_id);
    }
}

fn pop(ring: &CqRing, most: usize) -> Vec<u64> {
    let mut out = vec![WorkCompletion::BLANK; most];
    let popped = ring.pop(&mut out);
    out[..popped].iter().map(|completion| completion.wr_id).collect()
}

fn pop_all(ring: &CqRing) -> Vec<u64> {
    let some = std::iter::repeat_with(|| pop(ring, 2)).take_while(|popped| !popped.is_empty());
    some.flatten().collect()
}

#[cfg(not(loom))]
mod plain {
    use super::*;

    #[test]
    fn completions_that_a_qp_adds_after_the_removal_stay() {
        for (are_moved, again) in [(true, false), (true, true), (false, false), (false, true)] {
            let ring = CqRing::new(8).unwrap();
            put_all(&ring, &[(1, 0), (2, 1), (1, 2)]);
            if are_moved {
                ring.remove(QpId(1))
            } else {
                ring.keep_in_ring(QpId(1))
            }
            put_all(&ring, &[(1, 3), (2, 4)]);
            if again {
                ring.remove(QpId(1));
            }
            put_all(&ring, &[(1, 5)]);
            assert_eq!(pop_all(&ring), if again { vec![1, 4, 5] } else { vec![1, 3, 4, 5] });
        }
    }

    #[test]
    fn removed_completions_make_room_and_the_rest_keeps_its_order() {
        let ring = CqRing::new(8).unwrap();
        let mut places = Vec::new();
        for round in 0..50 {
            while ring.queued() < 8 {
                let id = places.len() as u64;
                places.push(put(&ring, id as u32 % 3, id));
            }
            ring.remove(QpId(round % 3));
            ring.remove(QpId(3));
            let kept = ring.queued();
            assert!(kept < 8 && ring.has_any());
            for _ in 0..kept.min(2) {
                // Everything before the next one was taken, and the next one was not.
                let taken = ring.taken();
                let id = pop(&ring, 1)[0] as usize;
                assert_eq!(taken, places[id], "of {id} in round {round}");
            }
        }
        (0..3).for_each(|qp| ring.remove(QpId(qp)));
        assert!(!ring.has_any() && pop(&ring, 1).is_empty());
        assert!(ring.taken() > places[places.len() - 1]);
    }

    #[test]
    fn removal_includes_linked_rings() {
        for newest in [&[][..], &[(1, 1), (2, 3)]] {
            let ring = CqRing::new(2).unwrap();
            put_all(&ring, &[(1, 1), (2, 2)]);
            ring.resize(4).unwrap();
            put_all(&ring, newest);
            ring.remove(QpId(1));
            put(&ring, 2, 4);
            ring.resize(8).unwrap();
            put(&ring, 2, 5);
            let expected: &[u64] = if newest.is_empty() { &[2, 4, 5] } else { &[2, 3, 4, 5] };
            assert_eq!(ring.queued(), expected.len());
            assert_eq!(pop_all(&ring), expected);
            put(&ring, 2, 6);
            assert_eq!(pop_all(&ring), [6]);
        }
    }

    #[test]
    fn a_queue_that_is_never_polled_takes_its_depth_after_each_removal() {
        let ring = CqRing::new(8).unwrap();
        (0..2).for_each(|id| put_all(&ring, &[(1, id)]));
        for qp in 2..1_000 {
            (0..6).for_each(|id| put_all(&ring, &[(qp, id)]));
            assert_eq!(ring.queued(), 8);
            ring.remove(QpId(qp));
        }
        assert!(!ring.is_overrun());
        assert_eq!((pop_all(&ring), ring.depth()), (vec![0, 1], 8));
    }

    // As if there had been no memory, and while a pusher is stopped half way.
    #[test]
    fn requests_that_stay_in_the_ring_are_skipped_and_use_no_room() {
        let ring = CqRing::new(4).unwrap();
        put_all(&ring, &[(1, 1), (2, 2), (1, 3), (2, 4)]);
        ring.keep_in_ring(QpId(1));
        (5..9).for_each(|id| put_all(&ring, &[(2, id)]));
        assert!(!ring.is_overrun());
        assert_eq!(pop(&ring, 1), [2]);
        ring.remove(QpId(3));
        assert_eq!(pop_all(&ring), (4..9).collect::<Vec<_>>());
        assert_eq!(ring.queued(), 0);
        // The ring is not held from here on.
        assert!(lock(&ring.side).removed.is_empty() && !ring.oldest().is_held());
    }
}

#[cfg(loom)]
mod models {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::sync::{AtomicU32, Ordering};

    fn bounded(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 20_000;
        builder.check(model);
    }

    /// Completions of QPs 2, 1 and 2.
    fn three() -> Arc<CqRing> {
        let ring = Arc::new(CqRing::new(4).unwrap());
        put_all(&ring, &[(2, 2), (1, 1), (2, 3)]);
        ring
    }

    fn remove_one(ring: &Arc<CqRing>) -> thread::JoinHandle<()> {
        let ring = ring.clone();
        thread::spawn(move || ring.remove(QpId(1)))
    }

    // The ring is full of completions that are removed, until the poppers take them away.
    #[test]
    fn loom_what_a_poller_takes_away_is_no_overrun() {
        bounded(|| {
            let ring = Arc::new(CqRing::new(2).unwrap());
            put_all(&ring, &[(1, 1), (1, 2)]);
            ring.keep_in_ring(QpId(1));
            let poller = {
                let ring = ring.clone();
                thread::spawn(move || pop(&ring, 1))
            };
            put(&ring, 2, 3);
            let mut seen = poller.join().unwrap();
            seen.extend(pop_all(&ring));
            assert_eq!(seen, [3]);
        });
    }

    // Poppers take moved completions in order; a pusher uses the slots that these left.
    #[test]
    fn loom_beside_a_pusher_and_a_poller() {
        bounded(|| {
            let ring = three();
            let remover = remove_one(&ring);
            let pusher = {
                let ring = ring.clone();
                thread::spawn(move || [4, 5].map(|id| ring.push(&of(2, id)).is_ok()))
            };
            let mut seen = pop(&ring, 2);
            remover.join().unwrap();
            let pushed = pusher.join().unwrap();
            let late = pop_all(&ring);
            assert!(!late.contains(&1));
            seen.extend(late);
            seen.retain(|id| *id != 1);
            // The fifth finds no room if it comes before the removal and the pop.
            let until = if pushed[1] { 5 } else { 4 };
            assert_eq!(seen, (2..=until).collect::<Vec<_>>());
        });
    }

    // A completion that was pushed can always be popped.
    #[test]
    fn loom_beside_two_pollers() {
        bounded(|| {
            let ring = three();
            let remover = remove_one(&ring);
            let other = {
                let ring = ring.clone();
                thread::spawn(move || pop(&ring, 1))
            };
            let mine = pop(&ring, 1);
            assert_eq!(mine.len(), 1);
            let mut seen = [mine, other.join().unwrap()].concat();
            remover.join().unwrap();
            seen.extend(pop_all(&ring));
            seen.retain(|id| *id != 1);
            seen.sort_unstable();
            assert_eq!(seen, [2, 3]);
        });
    }

    // While the ring grows.
    #[test]
    fn loom_beside_growth() {
        bounded(|| {
            let ring = three();
            let remover = remove_one(&ring);
            let grower = {
                let ring = ring.clone();
                thread::spawn(move || {
                    ring.resize(8).unwrap();
                    put(&ring, 2, 4);
                })
            };
            let mut seen = pop(&ring, 2);
            remover.join().unwrap();
            grower.join().unwrap();
            let late = pop_all(&ring);
            assert!(!late.contains(&1));
            seen.extend(late);
            seen.retain(|id| *id != 1);
            assert_eq!(seen, [2, 3, 4]);
        });
    }

    // A slot is not freed before its own completion was polled.
    #[test]
    fn loom_positions_stay() {
        bounded(|| {
            let ring = Arc::new(CqRing::new(4).unwrap());
            put(&ring, 1, 1);
            let place = put(&ring, 2, 2);
            let remover = remove_one(&ring);
            assert!(ring.taken() <= place);
            remover.join().unwrap();
            assert_eq!(ring.taken(), place);
            assert_eq!(pop(&ring, 2), [2]);
            assert!(ring.taken() > place);
        });
    }

    // [VERBS-21]: a removal loses no wake-up. A consumer arms, polls once more, and sleeps if there is nothing.
    #[test]
    fn loom_no_wakeup_is_lost() {
        bounded(|| {
            let ring = Arc::new(CqRing::new(4).unwrap());
            let bell = Arc::new(AtomicU32::new(0));
            put(&ring, 1, 1);
            let remover = remove_one(&ring);
            let pusher = {
                let (ring, bell) = (ring.clone(), bell.clone());
                thread::spawn(move || {
                    if ring.push(&of(2, 2)).unwrap().notify != 0 {
                        bell.store(1, Ordering::SeqCst);
                    }
                })
            };
            let mut seen = pop(&ring, 2);
            ring.arm(false);
            seen.extend(pop(&ring, 2));
            remover.join().unwrap();
            pusher.join().unwrap();
            // Either it is polled, or the notification has fired.
            assert!(seen.contains(&2) || bell.load(Ordering::SeqCst) == 1);
        });
    }

    // The same for threads that sleep in a wait.
    #[test]
    fn loom_sleepers_see_what_was_moved() {
        bounded(|| {
            let ring = Arc::new(CqRing::new(4).unwrap());
            put_all(&ring, &[(1, 1), (2, 2)]);
            let remover = remove_one(&ring);
            ring.enter_sleep();
            assert!(ring.has_any());
            ring.leave_sleep();
            remover.join().unwrap();
            assert_eq!(pop_all(&ring), [2]);
        });
    }
}
