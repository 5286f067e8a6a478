//! Tests that each completion is delivered exactly once, however threads take them and connections end.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::srq::{SrqObject, it_srq_create, it_srq_free};

use super::*;

/// Dequeues until `done` and no event is left; returns each completion with its status.
fn take_all(dto: u64, done: &AtomicBool, seen: &Mutex<HashSet<u64>>) {
    let evd = object::handle(dto);
    loop {
        let finished = done.load(Ordering::Acquire);
        let mut events = [it_event_t::zeroed(); 5];
        let mut taken = 0;
        let status = c!(it_evd_dequeue_n(evd, 5, events.as_mut_ptr(), &raw mut taken));
        assert_eq!(status, IT_SUCCESS, "{}", last());
        for event in &events[..taken as usize] {
            let dto = Dto::of(event);
            assert!([IT_DTO_SUCCESS, IT_DTO_ERR_FLUSHED].contains(&dto.status), "{dto:?}");
            assert!(seen.lock().unwrap().insert(dto.cookie), "{dto:?} again");
        }
        match taken {
            0 if finished => return,
            0 => std::thread::yield_now(),
            _ => (),
        }
    }
}

/// Ends the takers, also when the test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn reset(ep: it_ep_handle_t) {
    warpline_patience::until("the endpoint to be reset", || match it_ep_reset(ep) {
        IT_SUCCESS => true,
        status => {
            let soon = [IT_ERR_EP_TIMEWAIT, IT_ERR_CANNOT_RESET];
            assert!(soon.contains(&status), "{}", last());
            false
        }
    });
}

/// Two threads dequeue while connections end at any moment, are reset and made again.
#[test]
fn connections_end_and_begin_while_two_threads_dequeue() {
    let side = Side::new();
    let eps: Vec<_> = (0..8).map(|_| side.ep()).collect();
    let (done, seen) = (AtomicBool::new(false), Mutex::new(HashSet::new()));
    let (dto, done, seen) = (side.dto.addr() as u64, &done, &seen);
    let mut posted = HashSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| take_all(dto, done, seen));
        scope.spawn(|| take_all(dto, done, seen));
        let _done = Done(done);
        let mut cookie = 0;
        for round in 0..12 {
            for pair in eps.chunks(2) {
                side.join(pair[0], pair[1]);
            }
            for n in 0..40 {
                for (k, ep) in eps.iter().enumerate() {
                    cookie += 1;
                    if receive(ep.cast(), &[], cookie) == IT_SUCCESS {
                        posted.insert(cookie);
                    }
                    cookie += 1;
                    // A message for each receive: a lack of receives would end the connection.
                    if n % 4 == 0 && n / 4 < 10 && send(*ep, &[], cookie, NOTIFY) == IT_SUCCESS {
                        posted.insert(cookie);
                    }
                    if n == 10 + round && k % 2 == 0 {
                        assert_eq!(it_ep_disconnect(*ep, null(), 0), IT_SUCCESS, "{}", last());
                    }
                }
            }
            for _ in &eps {
                let (_, event) = side.next_event();
                let ends = [IT_CM_MSG_CONN_DISCONNECT_EVENT, IT_CM_MSG_CONN_BROKEN_EVENT];
                assert!(ends.contains(&event), "{event:#x}");
            }
            eps.iter().for_each(|ep| reset(*ep));
        }
    });
    assert_eq!(*seen.lock().unwrap(), posted);
}

/// Completions without notification are returned to a poll and wake no waiter.
#[test]
fn a_quiet_completion_waits_to_be_polled() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    assert_eq!(c!(it_post_recv(b.cast(), null(), 0, 1, IT_COMPLETION_FLAG)), IT_SUCCESS);
    assert_eq!(send(a, &[], 2, IT_COMPLETION_FLAG), IT_SUCCESS, "{}", last());
    let mut event = it_event_t::zeroed();
    let waited = c!(it_evd_wait(side.dto, 20_000, &raw mut event, null_mut()));
    assert_eq!(waited, IT_ERR_TIMEOUT_EXPIRED);
    assert!(last().contains("queued: it_evd_dequeue() takes them"), "{}", last());
    let mut cookies = Vec::new();
    while cookies.len() < 2 {
        cookies.extend(side.poll().map(|dto| dto.cookie));
    }
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2]);
    // The sender may request that the receiver is woken; without any flag a receive wakes, too.
    let posted =
        [IT_COMPLETION_FLAG, 0].map(|flags| c!(it_post_recv(b.cast(), null(), 0, 3, flags)));
    assert_eq!(posted, [IT_SUCCESS; 2]);
    for flags in [IT_SOLICITED_WAIT_FLAG, 0] {
        assert_eq!(send(a, &[], 4, flags), IT_SUCCESS);
        assert_eq!(side.good().cookie, 3);
    }
}

/// An endpoint, and another that takes its receives from a shared queue, connected.
fn sharing(side: &Side, srq: it_srq_handle_t) -> [it_ep_handle_t; 2] {
    let mut with_srq = attributes();
    // SAFETY: plain data.
    let mut rc = unsafe { with_srq.srv.rc };
    rc.srq = srq;
    with_srq.srv.rc = rc;
    (with_srq.max_recv_dtos, with_srq.max_recv_segments) = (usize::MAX, usize::MAX);
    let (active, passive) = (side.ep(), side.ep_with(&with_srq, IT_EP_SRQ));
    side.join(active, passive);
    [active, passive]
}

/// A completion left over from a freed shared receive queue takes no request of the queue that now has
/// its slot in the table of handles.
#[test]
fn a_completion_of_a_freed_queue_does_not_affect_the_next() {
    let side = Side::new();
    let sharing = |srq| sharing(&side, srq);
    let slot = |srq: it_srq_handle_t| object::find::<SrqObject>(srq.cast()).unwrap().slot;
    // The completion is there, taken from the provider, and not looked up.
    let left_over = || {
        let old = make!(it_srq_create(side.pz, 2, 8));
        let before = slot(old);
        let [active, passive] = sharing(old);
        assert_eq!(receive(old.cast(), &[], 1), IT_SUCCESS, "{}", last());
        assert_eq!(send(active, &[], 100, 0), IT_SUCCESS, "{}", last());
        let evd = object::find::<EvdObject>(side.dto.cast()).unwrap();
        let mut left = [vp_api::WorkCompletion::BLANK];
        warpline_patience::until("a completion", || evd.inner.poll(&mut left).unwrap() != 0);
        assert_eq!((it_ep_free(active), it_ep_free(passive)), (IT_SUCCESS, IT_SUCCESS));
        assert_eq!(it_srq_free(old), IT_SUCCESS);
        (left, before)
    };
    // Tests beside this one take slots from the same table.
    let again = |(left, before)| {
        let mut new = (0..100).map(|_| make!(it_srq_create(side.pz, 2, 8)));
        new.find(|srq| slot(*srq) == before).map(|new| (left, new))
    };
    let (left, new) = (0..50).find_map(|_| again(left_over())).expect("the slot again");
    let [active, passive] = sharing(new);
    assert_eq!(receive(new.cast(), &[], 2), IT_SUCCESS, "{}", last());
    assert!(crate::resolve::resolve(&left[0]).is_none());
    // Nor does one whose endpoint still exists and takes its receives elsewhere.
    let [_, other] = sharing(make!(it_srq_create(side.pz, 2, 8)));
    let other = object::find::<EpObject>(other.cast()).unwrap().qp;
    let strange = vp_api::WorkCompletion { qp: other, ..left[0] };
    assert!(crate::resolve::resolve(&strange).is_none());
    assert_eq!(send(active, &[], 100, 0), IT_SUCCESS, "{}", last());
    let got = side.good();
    assert_eq!((got.ep, got.cookie), (passive, 2));
}

/// Receives that an endpoint took from a shared receive queue and did not complete are gone with it: their
/// records are free again at once, not only when the queue is freed.
#[test]
fn records_of_receives_that_a_freed_endpoint_took_are_free_again() {
    let side = Side::new();
    let srq = make!(it_srq_create(side.pz, 2, 8));
    let records = || kal_os::lock(&object::find::<SrqObject>(srq.cast()).unwrap().receives).held();
    for cookie in 0..8 {
        assert_eq!(receive(srq.cast(), &[], cookie), IT_SUCCESS, "{}", last());
    }
    assert_ne!(receive(srq.cast(), &[], 8), IT_SUCCESS);
    let [active, passive] = sharing(&side, srq);
    for _ in 0..2 {
        assert_eq!(send(active, &[], 100, 0), IT_SUCCESS, "{}", last());
    }
    // Those of the receives, which are never dequeued.
    let evd = object::find::<EvdObject>(side.dto.cast()).unwrap();
    warpline_patience::until("two completions", || evd.inner.queued() == 2);
    assert_eq!(records(), 8);
    assert_eq!(it_ep_free(passive), IT_SUCCESS);
    assert_eq!(records(), 6);
    assert_eq!(it_ep_free(active), IT_SUCCESS);
}
