//! Tests of rings of outstanding requests: each cookie comes back once, also from rings that wrap or are full.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn cookies_come_back_in_order_over_many_rounds() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let memory = side.memory(64, IT_PRIV_LOCAL);
    for round in 0..200 {
        assert_eq!(receive(b.cast(), &[memory.part(32, 32)], 1000 + round), IT_SUCCESS);
        assert_eq!(send(a, &[memory.part(0, 16)], round, NOTIFY), IT_SUCCESS);
        let mut both = [side.good(), side.good()];
        both.sort_by_key(|dto| dto.event);
        assert_eq!((both[0].ep, both[0].cookie), (a, round));
        assert_eq!((both[1].ep, both[1].cookie, both[1].length), (b, 1000 + round, 16));
    }
}

#[test]
fn all_of_a_long_cookie_is_returned() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let cookie = |n| zrl::it_dto_cookie_t { first: n, second: n + 1, extend: n + 2 };
    assert_eq!(c!(it_post_recv_zrl(b.cast(), null(), 0, cookie(10), NOTIFY)), IT_SUCCESS);
    assert_eq!(c!(it_post_send_zrl(a, null(), 0, cookie(20), NOTIFY)), IT_SUCCESS);
    for _ in 0..2 {
        let mut event = zrl::it_event_t::zeroed();
        let waited = c!(it_evd_wait_zrl(side.dto, HANG, &raw mut event, null_mut()));
        assert_eq!(waited, IT_SUCCESS);
        // SAFETY: plain data.
        let dto = unsafe { event.dto_cmpl };
        let first = if dto.ep == a { 20 } else { 10 };
        let got = dto.cookie;
        assert_eq!((got.first, got.second, got.extend), (first, first + 1, first + 2));
    }
}

#[test]
fn unsignalled_requests_are_done_when_a_completion_behind_them_was_dequeued() {
    let side = Side::new();
    let [a, _b] = side.pair(&attributes());
    let source = side.memory(64, IT_PRIV_LOCAL);
    let sink = side.memory(64, IT_PRIV_LOCAL | IT_PRIV_REMOTE);
    let silent = || {
        let (whole, to, context) = (source.whole(), sink.to(0), sink.context);
        c!(it_post_rdma_write(a, &whole, 1, 7, 0, to, context))
    };
    for _ in 0..100 {
        let posted = (0..15).filter(|_| silent() == IT_SUCCESS).count();
        assert_eq!((posted, write_nothing(a)), (15, IT_SUCCESS), "{}", last());
        assert_eq!((silent(), write_nothing(a)), (IT_ERR_TOO_MANY_POSTS, IT_ERR_TOO_MANY_POSTS));
        assert_eq!(side.good().cookie, 99);
    }
    assert_eq!(side.poll(), None);
}

/// Polled or not, connected or not.
#[test]
fn posts_are_bounded_by_the_depth_that_was_asked_for() {
    let side = Side::new();
    let [a, _b] = side.pair(&attributes());
    let writes = || (0..1000).take_while(|_| write_nothing(a) == IT_SUCCESS).count();
    let receives = || (0..1000).take_while(|n| receive(a.cast(), &[], *n) == IT_SUCCESS).count();
    assert_eq!((writes(), receives()), (16, 16));
    assert_eq!(it_ep_disconnect(a, null(), 0), IT_SUCCESS, "{}", last());
    assert_eq!((writes(), receives()), (0, 0));
    for _ in 0..3 {
        for _ in 0..32 {
            side.done();
        }
        assert_eq!((writes(), receives()), (16, 16));
    }
}

/// A signalled RDMA Write of nothing, which no receive needs.
fn write_nothing(ep: it_ep_handle_t) -> Status {
    c!(it_post_rdma_write(ep, null(), 0, 99, NOTIFY, 0, 0))
}

#[test]
fn a_full_queue_refuses_and_recovers() {
    let side = Side::new();
    let ep = side.ep();
    let posted = (0..100).take_while(|n| receive(ep.cast(), &[], *n) == IT_SUCCESS).count();
    assert_eq!(posted, 16);
    assert_eq!(receive(ep.cast(), &[], 0), IT_ERR_TOO_MANY_POSTS);
    assert!(last().contains("full"), "{}", last());
    // Refused posts use up no slot, however many there are.
    for _ in 0..100 {
        assert_eq!(send(ep, &[], 1, NOTIFY), IT_ERR_INVALID_EP_STATE);
    }
    let other = side.ep();
    side.join(other, ep);
    for n in 0..16 {
        assert_eq!(send(other, &[], 100 + n, NOTIFY), IT_SUCCESS, "{}", last());
        let mut both = [side.good().cookie, side.good().cookie];
        both.sort_unstable();
        assert_eq!(both, [n, 100 + n]);
    }
}

#[test]
fn the_end_of_a_connection_flushes_each_once_and_the_endpoint_is_used_again() {
    let side = Side::new();
    let [a, b] = [side.ep(), side.ep()];
    let memory = side.memory(1, IT_PRIV_ALL);
    for round in 0..3 {
        side.join(a, b);
        for n in 0..8 {
            assert_eq!(receive(a.cast(), &[], n), IT_SUCCESS);
            // Unsignalled ones succeed, and must not be taken for flushed ones after the reset.
            assert_eq!(c!(it_post_rdma_write(b, null(), 0, 50 + n, 0, 0, 0)), IT_SUCCESS);
        }
        // A close with octets in flight is a Bad Close: a round trip first.
        let (whole, to) = (memory.whole(), memory.to(0));
        let read = c!(it_post_rdma_read(b, &whole, 1, 60, NOTIFY, to, memory.context));
        assert_eq!((read, side.good().cookie), (IT_SUCCESS, 60));
        assert_eq!(it_ep_disconnect(a, null(), 0), IT_SUCCESS, "{}", last());
        for _ in 0..2 {
            assert_eq!(side.next_event().1, IT_CM_MSG_CONN_DISCONNECT_EVENT, "round {round}");
        }
        // In Nonoperational everything is taken and flushed.
        assert_eq!(send(b, &[], 8, 0), IT_SUCCESS, "{}", last());
        let flushed: HashSet<_> = (0..9)
            .map(|_| side.done())
            .inspect(|dto| assert_eq!(dto.status, IT_DTO_ERR_FLUSHED))
            .map(|dto| dto.cookie)
            .collect();
        assert_eq!(flushed, (0..9).collect());
        assert_eq!(side.poll(), None);
        for ep in [a, b] {
            assert_eq!(it_ep_reset(ep), IT_SUCCESS, "{}", last());
        }
    }
}

#[test]
fn two_threads_that_dequeue_get_each_completion_once() {
    const EACH: u64 = 3000;
    let side = Side::new();
    let pairs: Vec<_> = (0..4).map(|_| side.pair(&attributes())).collect();
    let seen = Mutex::new(HashSet::new());
    let count = AtomicUsize::new(0);
    let total = pairs.len() * EACH as usize * 2;
    let dto = side.dto.addr();
    let taker = || {
        let evd = object::handle(dto as u64);
        let bound = warpline_patience::Bound::new("all completions");
        while count.load(Ordering::Acquire) < total {
            bound.check();
            let mut events = [it_event_t::zeroed(); 5];
            let mut taken = 0;
            let status = c!(it_evd_dequeue_n(evd, 5, events.as_mut_ptr(), &raw mut taken));
            assert_eq!(status, IT_SUCCESS, "{}", last());
            for event in &events[..taken as usize] {
                let dto = Dto::of(event);
                assert_eq!(dto.status, IT_DTO_SUCCESS);
                assert!(seen.lock().unwrap().insert(dto.cookie), "{dto:?} again");
                count.fetch_add(1, Ordering::AcqRel);
            }
            if taken == 0 {
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(taker);
        scope.spawn(taker);
        for (n, [a, b]) in pairs.iter().enumerate() {
            let (a, b) = (a.addr() as u64, b.addr() as u64);
            scope.spawn(move || {
                let until_taken = |post: &dyn Fn() -> Status| {
                    warpline_patience::until("room for a post", || post() != IT_ERR_TOO_MANY_POSTS);
                };
                for k in 0..EACH {
                    let cookie = (n as u64) << 32 | k;
                    until_taken(&|| receive(object::handle(b), &[], cookie | 1 << 48));
                    until_taken(&|| send(object::handle(a), &[], cookie, NOTIFY));
                }
            });
        }
    });
    assert_eq!(seen.into_inner().unwrap().len(), total);
    assert_eq!(side.poll(), None);
}
