//! Tests of the completion ring: order, overrun, arming and growing.

use vp_api::WorkCompletion;

use crate::queue::cq_ring::{CqRing, Overrun, Put, WakeActions};

fn completion(wr_id: u64) -> WorkCompletion {
    WorkCompletion { wr_id, ..WorkCompletion::BLANK }
}

fn pop(ring: &CqRing, limit: usize) -> Vec<u64> {
    let mut out = vec![WorkCompletion::BLANK; limit];
    let popped = ring.pop(&mut out);
    out[..popped].iter().map(|completion| completion.wr_id).collect()
}

const QUIET: Result<WakeActions, Overrun> = Ok(WakeActions { notify: 0, wake: false });

#[cfg(not(loom))]
mod plain {
    use vp_api::{VpStatus, WcStatus};

    use super::*;

    #[test]
    fn oldest_first_and_around() {
        let ring = CqRing::new(4).unwrap();
        assert!(!ring.has_any());
        for round in 0..10 {
            for n in 0..4 {
                assert_eq!(ring.push(&completion(round * 4 + n)), QUIET);
            }
            assert!(ring.has_any());
            assert_eq!(pop(&ring, 3), [round * 4, round * 4 + 1, round * 4 + 2]);
            assert_eq!(pop(&ring, 9), [round * 4 + 3]);
            assert!(pop(&ring, 9).is_empty() && pop(&ring, 0).is_empty());
        }
    }

    // [SEC-09]: an overrun is detected and reported once, and the queued completions stay.
    #[test]
    fn overrun_is_reported_once() {
        let ring = CqRing::new(2).unwrap();
        assert_eq!(ring.push(&completion(1)), QUIET);
        assert_eq!(ring.push(&completion(2)), QUIET);
        assert!(!ring.is_overrun());
        assert_eq!(ring.push(&completion(3)), Err(Overrun { first: true }));
        assert_eq!(ring.push(&completion(4)), Err(Overrun { first: false }));
        assert!(ring.is_overrun());
        assert_eq!(pop(&ring, 1), [1]);
        // No completion follows a lost one, even if there is room.
        assert_eq!(ring.push(&completion(5)), Err(Overrun { first: false }));
        assert_eq!(pop(&ring, 4), [2]);
    }

    // [VERBS-21]: one shot, solicited or next, errors count as solicited.
    #[test]
    fn armed_notifications_fire_once() {
        let ring = CqRing::new(16).unwrap();
        let plain = completion(0);
        let solicited = WorkCompletion { solicited: true, ..plain };
        let error = WorkCompletion { status: WcStatus::Flushed, ..plain };
        let fires = |c: &WorkCompletion| matches!(ring.push(c), Ok(WakeActions { notify: 1, .. }));
        assert!(!fires(&plain) && !fires(&solicited));
        ring.arm(false);
        assert!(fires(&plain) && !fires(&plain));
        ring.arm(true);
        assert!(!fires(&plain) && fires(&solicited) && !fires(&solicited));
        ring.arm(true);
        assert!(fires(&error));
        // RDMAC 8.2.5: "next" takes precedence over "solicited", in either order.
        for order in [[true, false], [false, true]] {
            order.into_iter().for_each(|solicited_only| ring.arm(solicited_only));
            assert!(fires(&plain) && !fires(&solicited));
            pop(&ring, 16);
        }
    }

    // [VERBS-21]: a consumer that is faster than the pusher gets a notification for each request that was met by a
    // completion.
    #[test]
    fn a_request_is_not_lost_if_the_next_comes_before_its_notification() {
        for solicited in [false, true] {
            let ring = CqRing::new(4).unwrap();
            let one = WorkCompletion { solicited, ..completion(0) };
            let put = |put: &mut Put| _ = ring.put(&one, put).unwrap();
            let notified = |put| ring.notify(put).notify;
            for _ in 0..6 {
                let (mut first, mut second, mut batch) =
                    (Put::default(), Put::default(), Put::default());
                ring.arm(solicited);
                put(&mut first);
                assert_eq!(pop(&ring, 1).len(), 1);
                ring.arm(solicited);
                assert_eq!(notified(first), 1);
                put(&mut second);
                assert_eq!(notified(second), 1);
                // Requests that no completion met count as one.
                (0..3).for_each(|_| ring.arm(solicited));
                put(&mut batch);
                ring.arm(solicited);
                put(&mut batch);
                assert_eq!(notified(batch), 2);
                assert_eq!(pop(&ring, 4).len(), 3);
                assert_eq!(notified(first), 0, "nothing is armed");
                ring.resize(ring.depth() + 1).unwrap();
            }
        }
    }

    // A late pusher does not take the notification of the next request, either.
    #[test]
    fn a_completion_that_was_there_does_not_fire() {
        let ring = CqRing::new(4).unwrap();
        let (mut early, mut late) = (Put::default(), Put::default());
        ring.put(&completion(1), &mut early).unwrap();
        ring.arm(false);
        assert_eq!(ring.notify(early).notify, 0);
        let position = ring.newest().begin_push();
        ring.put(&completion(3), &mut late).unwrap();
        assert_eq!(ring.notify(late).notify, 1, "it cannot be popped yet");
        ring.arm(false);
        ring.newest().end_push(position, &completion(2));
        assert_eq!(ring.notify(late).notify, 1, "nor at the second request");
        ring.arm(true);
        assert_eq!(ring.notify(late).notify, 0);
        assert_eq!(pop(&ring, 4), [1, 2, 3]);
    }

    #[test]
    fn sleepers_are_announced() {
        let ring = CqRing::new(4).unwrap();
        ring.enter_sleep();
        assert_eq!(ring.push(&completion(0)), Ok(WakeActions { notify: 0, wake: true }));
        ring.leave_sleep();
        assert_eq!(ring.push(&completion(0)), QUIET);
    }

    #[test]
    fn growing_keeps_the_order() {
        let ring = CqRing::new(2).unwrap();
        ring.push(&completion(0)).unwrap();
        ring.push(&completion(1)).unwrap();
        assert_eq!(ring.resize(2).unwrap(), 2, "as full as it is deep");
        assert_eq!(ring.resize(3).unwrap(), 4);
        for n in 2..6 {
            assert_eq!(ring.push(&completion(n)), QUIET);
        }
        assert_eq!(ring.resize(16).unwrap(), 16);
        ring.push(&completion(6)).unwrap();
        assert_eq!(ring.resize(2).unwrap_err().status, VpStatus::CqTooSmall);
        let rings = ring.newest().generation();
        assert_eq!(ring.resize(7).unwrap(), 16, "as many as there are fit");
        assert_eq!(ring.resize(16).unwrap(), 16);
        assert_eq!(ring.newest().generation(), rings, "there is room enough");
        assert!(ring.has_any());
        assert_eq!(pop(&ring, 3), [0, 1]);
        assert_eq!(pop(&ring, 9), [2, 3, 4, 5]);
        assert_eq!(pop(&ring, 9), [6]);
        assert!(!ring.has_any());
        // Smaller: the present depth is granted.
        assert_eq!(ring.resize(2).unwrap(), 16);
        assert_eq!(CqRing::new(0).err().map(|e| e.status), Some(VpStatus::InvalidModifier));
        assert!(CqRing::new(u32::MAX).is_err());
    }

    // A pusher that was stopped half way also delays completions in the next ring.
    #[test]
    fn growing_does_not_overtake_a_slow_pusher() {
        let ring = CqRing::new(2).unwrap();
        let position = ring.newest().begin_push();
        let first = ring.newest();
        ring.resize(8).unwrap();
        ring.push(&completion(2)).unwrap();
        assert!(pop(&ring, 4).is_empty());
        first.end_push(position, &completion(1));
        assert_eq!([pop(&ring, 4), pop(&ring, 4)], [[1], [2]]);
    }

    #[test]
    fn rings_that_stay_empty_are_passed_over() {
        let ring = CqRing::new(2).unwrap();
        ring.resize(4).unwrap();
        ring.resize(8).unwrap();
        ring.push(&completion(1)).unwrap();
        assert_eq!(pop(&ring, 4), [1]);
    }

    #[test]
    fn positions_continue_over_all_rings() {
        let ring = CqRing::new(2).unwrap();
        let mut places = Vec::new();
        for depth in [4, 8, 16] {
            for _ in 0..2 {
                places.push(ring.put(&completion(0), &mut Put::default()).unwrap());
            }
            ring.resize(depth).unwrap();
        }
        assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
        for place in places {
            assert!(ring.taken() <= place);
            assert_eq!(pop(&ring, 1), [0]);
            assert!(ring.taken() > place);
        }
    }

    // [VERBS-21]: a pusher that was overtaken fires for the other completion, which might be solicited.
    #[test]
    fn an_overtaken_thread_reports_the_others() {
        let ring = CqRing::new(16).unwrap();
        let put = |put: &mut Put| _ = ring.put(&completion(0), put).unwrap();
        let notifies = |put| ring.notify(put).notify == 1;
        ring.arm(true);
        let (mut alone, mut behind) = (Put::default(), Put::default());
        put(&mut alone);
        put(&mut alone);
        assert!(!notifies(alone), "nothing came between or behind");
        put(&mut alone);
        put(&mut behind);
        assert!(!notifies(behind), "nothing came behind");
        assert!(notifies(alone), "another came behind");
        ring.arm(true);
        let mut around = Put::default();
        put(&mut around);
        put(&mut behind);
        put(&mut around);
        assert!(notifies(around), "another came between");
        let nothing = WakeActions { notify: 0, wake: false };
        ring.arm(false);
        ring.enter_sleep();
        assert_eq!(ring.notify(Put::default()), nothing);
    }

    // No completion is lost, duplicated or out of its pusher's order while the ring grows.
    #[test]
    fn many_pushers_and_pollers() {
        const EACH: u64 = if cfg!(miri) { 40 } else { 20_000 };
        let ring = CqRing::new(64).unwrap();
        let done = std::sync::atomic::AtomicU64::new(0);
        let seen = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for pusher in 0..2u64 {
                let ring = &ring;
                scope.spawn(move || {
                    for n in 0..EACH {
                        let completion = completion(pusher << 32 | n);
                        // An overrun is permanent, so each pusher leaves room for the other.
                        warpline_patience::until("the pollers to make room", || {
                            ring.queued() <= 32
                        });
                        assert_eq!(ring.push(&completion), QUIET);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    let bound = warpline_patience::Bound::new("all completions to be polled");
                    while done.load(std::sync::atomic::Ordering::Relaxed) < 2 * EACH {
                        bound.check();
                        let popped = pop(&ring, 5);
                        done.fetch_add(popped.len() as u64, std::sync::atomic::Ordering::Relaxed);
                        if popped.is_empty() {
                            std::thread::yield_now();
                        }
                        mine.extend(popped);
                    }
                    // Each poller sees each pusher's completions in order.
                    for pusher in 0..2 {
                        assert!(mine.iter().filter(|id| *id >> 32 == pusher).is_sorted());
                    }
                    seen.lock().unwrap().extend(mine);
                });
            }
            ring.resize(100).unwrap();
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        let expected: Vec<u64> = (0..2).flat_map(|p| (0..EACH).map(move |n| p << 32 | n)).collect();
        assert_eq!(seen, expected);
    }
}

#[cfg(loom)]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::*;

    fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    fn drain(ring: &CqRing, until: usize) -> Vec<u64> {
        let mut seen = Vec::new();
        while seen.len() < until {
            let popped = pop(ring, 2);
            if popped.is_empty() {
                thread::yield_now();
            }
            seen.extend(popped);
        }
        seen
    }

    #[test]
    fn loom_two_pushers_one_poller() {
        bounded(3, || {
            let ring = Arc::new(CqRing::new(2).unwrap());
            let pushers: Vec<_> = (1..=2)
                .map(|id| {
                    let ring = ring.clone();
                    thread::spawn(move || assert_eq!(ring.push(&completion(id)), QUIET))
                })
                .collect();
            let mut seen = drain(&ring, 2);
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        });
    }

    #[test]
    fn loom_two_pollers_share() {
        bounded(3, || {
            let ring = Arc::new(CqRing::new(2).unwrap());
            ring.push(&completion(1)).unwrap();
            ring.push(&completion(2)).unwrap();
            let other = {
                let ring = ring.clone();
                thread::spawn(move || pop(&ring, 2))
            };
            let mut seen = pop(&ring, 1);
            seen.extend(other.join().unwrap());
            seen.extend(pop(&ring, 2));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        });
    }

    // The poller of the first entry may be stopped before it reads; the pusher still finds room.
    #[test]
    fn loom_a_slow_poller_is_no_overrun() {
        bounded(3, || {
            let ring = Arc::new(CqRing::new(2).unwrap());
            ring.push(&completion(1)).unwrap();
            ring.push(&completion(2)).unwrap();
            let slow = {
                let ring = ring.clone();
                thread::spawn(move || pop(&ring, 1))
            };
            let mine = pop(&ring, 1);
            assert_eq!(ring.push(&completion(3)), QUIET);
            let mut seen = [mine, slow.join().unwrap()].concat();
            seen.extend(drain(&ring, 1));
            seen.sort_unstable();
            assert_eq!(seen, [1, 2, 3]);
        });
    }

    #[test]
    fn loom_grow_while_pushing_and_polling() {
        bounded(3, || {
            let ring = Arc::new(CqRing::new(2).unwrap());
            ring.push(&completion(1)).unwrap();
            let pusher = {
                let ring = ring.clone();
                thread::spawn(move || {
                    ring.push(&completion(2)).unwrap();
                    ring.push(&completion(3))
                })
            };
            ring.resize(4).unwrap();
            let overrun = matches!(pusher.join().unwrap(), Err(_));
            let seen = drain(&ring, if overrun { 2 } else { 3 });
            assert_eq!(seen, if overrun { vec![1, 2] } else { vec![1, 2, 3] });
        });
    }

    /// The consumer's loop: poll, arm, poll once more, sleep until the notification.
    fn consume(ring: &CqRing, bell: &AtomicU32, solicited_only: bool, until: u64) {
        let mut last = 0;
        loop {
            last = pop(ring, 2).into_iter().last().unwrap_or(last);
            if last == until {
                return;
            }
            let heard = bell.load(Ordering::Acquire);
            ring.arm(solicited_only);
            last = pop(ring, 2).into_iter().last().unwrap_or(last);
            if last == until {
                return;
            }
            // It sleeps here: after a lost wake-up loom reports a deadlock.
            while bell.load(Ordering::Acquire) == heard {
                thread::yield_now();
            }
        }
    }

    fn push_and_ring(ring: &CqRing, bell: &AtomicU32, completion: &WorkCompletion) {
        if let Ok(WakeActions { notify, .. }) = ring.push(completion) {
            bell.fetch_add(notify, Ordering::AcqRel);
        }
    }

    fn put_two_and_ring(ring: &CqRing, bell: &AtomicU32) {
        let mut put = Put::default();
        ring.put(&completion(1), &mut put).unwrap();
        ring.put(&completion(2), &mut put).unwrap();
        bell.fetch_add(ring.notify(put).notify, Ordering::AcqRel);
    }

    // [VERBS-21]: one notification for several completions loses no wake-up, either.
    #[test]
    fn loom_one_notification_loses_no_wakeup() {
        bounded(3, || {
            let ring = Arc::new(CqRing::new(4).unwrap());
            let bell = Arc::new(AtomicU32::new(0));
            let pusher = {
                let (ring, bell) = (ring.clone(), bell.clone());
                thread::spawn(move || put_two_and_ring(&ring, &bell))
            };
            consume(&ring, &bell, false, 2);
            pusher.join().unwrap();
        });
    }

    // [VERBS-21]: poll, arm, poll loses no wake-up.
    #[test]
    fn loom_arm_loses_no_wakeup() {
        bounded(3, || {
            let ring = Arc::new(CqRing::new(4).unwrap());
            let bell = Arc::new(AtomicU32::new(0));
            let pusher = {
                let (ring, bell) = (ring.clone(), bell.clone());
                thread::spawn(move || {
                    push_and_ring(&ring, &bell, &completion(1));
                    push_and_ring(&ring, &bell, &completion(2));
                })
            };
            consume(&ring, &bell, false, 2);
            pusher.join().unwrap();
        });
    }

    // [VERBS-21]: a consumer that counts notifications gets one for each request that a completion met.
    #[test]
    fn loom_each_request_has_its_notification() {
        bounded(3, || {
            let ring = Arc::new(CqRing::new(2).unwrap());
            let bell = Arc::new(AtomicU32::new(0));
            ring.arm(false);
            let pusher = {
                let (ring, bell) = (ring.clone(), bell.clone());
                thread::spawn(move || push_and_ring(&ring, &bell, &completion(1)))
            };
            assert_eq!(drain(&ring, 1), [1]);
            ring.arm(false);
            push_and_ring(&ring, &bell, &completion(2));
            pusher.join().unwrap();
            assert_eq!(bell.load(Ordering::Acquire), 2);
        });
    }

    // [VERBS-21]: growing loses no wake-up, either.
    #[test]
    fn loom_growing_loses_no_wakeup() {
        bounded(3, || {
            let ring = Arc::new(CqRing::new(2).unwrap());
            let bell = Arc::new(AtomicU32::new(0));
            let grower = {
                let ring = ring.clone();
                thread::spawn(move || drop(ring.resize(4)))
            };
            let pusher = {
                let (ring, bell) = (ring.clone(), bell.clone());
                thread::spawn(move || push_and_ring(&ring, &bell, &completion(1)))
            };
            consume(&ring, &bell, false, 1);
            grower.join().unwrap();
            pusher.join().unwrap();
        });
    }

    /// Pushes a solicited completion while `slow` pushes others; the consumer must find it.
    fn solicited_beside(slow: fn(&CqRing, &AtomicU32)) {
        let ring = Arc::new(CqRing::new(4).unwrap());
        let bell = Arc::new(AtomicU32::new(0));
        let slow = {
            let (ring, bell) = (ring.clone(), bell.clone());
            thread::spawn(move || slow(&ring, &bell))
        };
        let solicited = {
            let (ring, bell) = (ring.clone(), bell.clone());
            thread::spawn(move || {
                let completion = WorkCompletion { solicited: true, ..completion(9) };
                push_and_ring(&ring, &bell, &completion);
            })
        };
        let mut seen = Vec::new();
        while !seen.contains(&9) {
            seen.extend(pop(&ring, 3));
            let heard = bell.load(Ordering::Acquire);
            ring.arm(true);
            seen.extend(pop(&ring, 3));
            while !seen.contains(&9) && bell.load(Ordering::Acquire) == heard {
                thread::yield_now();
            }
        }
        slow.join().unwrap();
        solicited.join().unwrap();
    }

    // [VERBS-21]: a solicited completion after one that is half pushed.
    #[test]
    fn loom_solicited_behind_a_slow_pusher() {
        bounded(3, || solicited_beside(|ring, bell| push_and_ring(ring, bell, &completion(1))));
    }

    // [VERBS-21]: or between two completions that are notified together.
    #[test]
    fn loom_solicited_between_two() {
        bounded(2, || solicited_beside(put_two_and_ring));
    }

    // The same rule for threads that sleep in a wait.
    #[test]
    fn loom_sleepers_are_woken() {
        bounded(3, || {
            let ring = Arc::new(CqRing::new(2).unwrap());
            let bell = Arc::new(AtomicU32::new(0));
            let pusher = {
                let (ring, bell) = (ring.clone(), bell.clone());
                thread::spawn(move || {
                    if matches!(ring.push(&completion(1)), Ok(WakeActions { wake: true, .. })) {
                        bell.fetch_add(1, Ordering::AcqRel);
                    }
                })
            };
            ring.enter_sleep();
            while !ring.has_any() && bell.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            ring.leave_sleep();
            pusher.join().unwrap();
            assert_eq!(pop(&ring, 2), [1]);
        });
    }
}
