//! When dispatchers notify: thresholds, completions that do not count, enabling, overflow, resizing.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kal_shim::reactor::readable;
use ual::vp_api::{
    AsyncEvent, Data, RecvWr, Remote, SendFlags, SendOp, SendWr, Stag, VpStatus, WorkCompletion,
};
use ual::{
    AcceptParams, AsyncSource, ConnEvent, ConnectParams, Ep, EpInit, Error, Evd, EvdInit, Event,
    ListenInit, NOTIFY, Overflow, Stream,
};

use crate::common::{HANG, LOCALHOST, Side, connect, policy};

const SHORT: Option<Duration> = Some(Duration::from_millis(2));

/// Waits until so many events are queued.
fn until_queued(evd: &Evd, events: usize) {
    warpline_patience::until("events to be queued", || evd.queued() >= events);
}

fn assert_quiet(evd: &Arc<Evd>) {
    assert!(matches!(evd.wait(SHORT), Err(Error::Timeout(_))));
    assert!(!evd.wait_ready(SHORT).unwrap());
    assert!(!readable(evd.fd().unwrap().as_fd()));
}

fn number(event: Event) -> u64 {
    match event {
        Event::Completion(completion) => completion.wr_id & !NOTIFY,
        Event::Software(number) => number,
        other => panic!("{other:?}"),
    }
}

fn post_quiet_recv(side: &Side, ep: &Ep, wr_id: u64) {
    ep.post_recv(&[RecvWr { wr_id, sgl: &[side.sge(0, 8)] }]).unwrap();
}

fn send(side: &Side, ep: &Ep, solicited: bool) {
    let op = SendOp::Send { solicited, invalidate: None };
    side.post(ep, 0, op, 0, 8);
    side.success();
}

#[test]
fn a_threshold_holds_back_until_enough_completions_wait() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    let evd = &server.completions;
    evd.set_threshold(3).unwrap();
    assert!(evd.set_threshold(1 << 20).is_err());
    (1..=4).for_each(|wr_id| server.post_recv(&passive, wr_id, 0, 8));
    send(&client, &active, false);
    send(&client, &active, false);
    until_queued(evd, 2);
    assert_quiet(evd);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| number(evd.wait(Some(HANG)).unwrap()));
        send(&client, &active, false);
        assert_eq!(waiter.join().unwrap(), 1);
    });
    // Two are left: not enough to wake a thread, but they can be taken.
    assert_quiet(evd);
    evd.set_threshold(2).unwrap();
    assert!(readable(evd.fd().unwrap()));
    assert_eq!(number(evd.dequeue().unwrap().unwrap()), 2);
    evd.set_threshold(0).unwrap();
    send(&client, &active, false);
    until_queued(evd, 2);
    assert_quiet(evd);
    assert_eq!(number(evd.dequeue().unwrap().unwrap()), 3);
    assert_eq!(number(evd.dequeue().unwrap().unwrap()), 4);
    assert!(evd.dequeue().unwrap().is_none());
}

#[test]
fn completions_that_do_not_count_wait_for_one_that_does() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    let evd = &server.completions;
    (1..=4).for_each(|wr_id| post_quiet_recv(&server, &passive, wr_id));
    send(&client, &active, false);
    send(&client, &active, false);
    until_queued(evd, 2);
    assert_quiet(evd);
    // A solicited completion counts; earlier ones are delivered before it.
    send(&client, &active, true);
    assert_eq!(number(evd.wait(Some(HANG)).unwrap()), 1);
    assert_eq!(number(evd.wait(Some(HANG)).unwrap()), 2);
    assert_eq!(number(evd.wait(Some(HANG)).unwrap()), 3);
    send(&client, &active, false);
    until_queued(evd, 1);
    assert_quiet(evd);
    assert_eq!(number(evd.dequeue().unwrap().unwrap()), 4);
    // A failure counts, whatever flags the request was posted with.
    post_quiet_recv(&server, &passive, 5);
    passive.disconnect(ual::Disconnect::Abrupt).unwrap();
    assert_eq!(number(evd.wait(Some(HANG)).unwrap()), 5);
}

#[test]
fn a_waiter_is_not_woken_by_a_quiet_completion_that_is_posted_meanwhile() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    for round in 0..20 {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| number(server.completions.wait(Some(HANG)).unwrap()));
            post_quiet_recv(&server, &passive, 1);
            send(&client, &active, false);
            until_queued(&server.completions, 1);
            assert!(!waiter.is_finished(), "round {round}");
            server.post_recv(&passive, 2, 0, 8);
            send(&client, &active, false);
            assert_eq!(waiter.join().unwrap(), 1);
        });
        assert_eq!(number(server.completions.dequeue().unwrap().unwrap()), 2);
    }
}

// Criteria that are set while a waiter sleeps in the provider's queue apply to it.
#[test]
fn criteria_that_change_during_a_wait_hold_for_it() {
    type Change = fn(&Evd);
    let changes: [(Change, Change); 2] = [
        (|evd| evd.set_threshold(2).unwrap(), |evd| evd.set_threshold(1).unwrap()),
        (|evd| evd.set_enabled(false).unwrap(), |evd| evd.set_enabled(true).unwrap()),
    ];
    for (hold_back, let_go) in changes {
        for round in 0..20 {
            let (client, server) = (Side::new(policy()), Side::new(policy()));
            let listen = server.listen(LOCALHOST);
            let (active, passive) = connect(&client, &server, &listen);
            server.post_recv(&passive, 1, 0, 8);
            let evd = &server.completions;
            let (begins, began) = std::sync::mpsc::channel();
            thread::scope(|scope| {
                let waiter = scope.spawn(move || {
                    begins.send(()).unwrap();
                    number(evd.wait(Some(HANG)).unwrap())
                });
                began.recv().unwrap();
                // Usually it sleeps by then.
                (0..round * 10).for_each(|_| thread::yield_now());
                hold_back(evd);
                send(&client, &active, false);
                until_queued(evd, 1);
                assert_quiet(evd);
                assert!(!waiter.is_finished(), "round {round}");
                let_go(evd);
                assert_eq!(waiter.join().unwrap(), 1);
            });
        }
    }
}

#[test]
fn quiet_sends_are_polled_like_any_others() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    for wr_id in 0..100 {
        server.post_recv(&passive, wr_id, 0, 8);
        let sgl = [client.sge(0, 8)];
        let op = SendOp::Send { solicited: false, invalidate: None };
        let wr = SendWr { wr_id, op, data: Data::Sgl(&sgl), flags: SendFlags::SIGNALED };
        active.post_send(&[wr]).unwrap();
        let mut event = None;
        warpline_patience::until("the completion of the Send", || {
            event = client.completions.dequeue().unwrap();
            event.is_some()
        });
        let event = event.unwrap();
        assert_eq!(number(event), wr_id);
        assert_eq!(server.success().wr_id, wr_id);
    }
    // No thread waited, so nothing was staged.
    assert!(client.completions.info().enabled && client.completions.info().fd.is_none());
}

// The first thing that is posted there.
#[test]
fn a_quiet_send_ends_no_wait() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let (active, passive) = connect(&client, &server, &server.listen(LOCALHOST));
    server.post_recv(&passive, 1, 0, 8);
    let op = SendOp::Send { solicited: false, invalidate: None };
    let sgl = [client.sge(0, 8)];
    let wr = SendWr { wr_id: 2, op, data: Data::Sgl(&sgl), flags: SendFlags::SIGNALED };
    active.post_send(&[wr]).unwrap();
    until_queued(&client.completions, 1);
    assert_quiet(&client.completions);
    assert_eq!(number(client.completions.dequeue().unwrap().unwrap()), 2);
}

// More than is moved at once, and all queued before a thread waits.
#[test]
fn a_threshold_counts_what_came_before_the_first_wait() {
    const SENDS: u32 = 100;
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let mut init = EpInit::new(&server.completions, &server.connection);
    init.recv_depth = SENDS;
    let passive = server.pz.create_ep(init).unwrap();
    let listen = server.listen(LOCALHOST);
    let active = begin_connect(&client, &listen);
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    server.established();
    client.established();
    (0..SENDS).for_each(|wr_id| server.post_recv(&passive, wr_id.into(), 0, 8));
    (0..SENDS).for_each(|_| send(&client, &active, false));
    until_queued(&server.completions, SENDS as usize);
    server.completions.set_threshold(SENDS).unwrap();
    let waited = warpline_patience::within("as many completions as the threshold says", || {
        server.completions.wait(Some(HANG))
    });
    assert_eq!(number(waited.unwrap()), 0);
}

#[test]
fn a_dispatcher_in_use_cannot_be_freed() {
    let side = Side::new(policy());
    assert!(!side.connection.info().bound);
    let ep = side.ep();
    assert!(side.connection.info().bound);
    drop(ep);
    assert!(!side.connection.info().bound);
}

// Each dispatcher in which a shared queue's receives complete.
#[test]
fn a_quiet_receive_of_a_shared_queue_ends_no_wait_anywhere() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let params = ual::SrqParams { depth: 16, max_sge: 1, low_watermark: 0 };
    let srq = server.pz.create_srq(params).unwrap();
    let other = server.ia.create_evd(EvdInit::new(Stream::Completion, 16)).unwrap();
    let mut init = EpInit::new(&server.completions, &server.connection);
    init.srq = Some(srq.clone());
    let passive = server.pz.create_ep(init.clone()).unwrap();
    init.recv_evd = other.clone();
    let _other = server.pz.create_ep(init).unwrap();
    srq.post_recv(&[RecvWr { wr_id: 1, sgl: &[server.sge(0, 8)] }]).unwrap();
    let listen = server.listen(LOCALHOST);
    let active = begin_connect(&client, &listen);
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    server.established();
    client.established();
    send(&client, &active, false);
    until_queued(&server.completions, 1);
    assert_quiet(&server.completions);
}

#[test]
fn a_quiet_receive_of_a_shared_queue_reaches_every_dispatcher() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let params = ual::SrqParams { depth: 16, max_sge: 1, low_watermark: 0 };
    let srq = server.pz.create_srq(params).unwrap();
    let listen = server.listen(LOCALHOST);
    let mut init = EpInit::new(&server.completions, &server.connection);
    init.srq = Some(srq.clone());
    let passive = server.pz.create_ep(init).unwrap();
    // The descriptor exists first: it must not become readable by events that do not count.
    assert!(readable(server.completions.fd().unwrap()));
    srq.post_recv(&[RecvWr { wr_id: 1, sgl: &[server.sge(0, 8)] }]).unwrap();
    let active = client.ep();
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    server.established();
    client.established();
    send(&client, &active, false);
    until_queued(&server.completions, 1);
    assert_quiet(&server.completions);
    assert_eq!(number(server.completions.dequeue().unwrap().unwrap()), 1);
}

#[test]
fn disabled_dispatchers_queue_and_do_not_notify() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    let software = server.ia.create_evd(EvdInit::new(Stream::Software, 8)).unwrap();
    for evd in [&software, &server.completions] {
        evd.set_enabled(false).unwrap();
        assert!(!evd.info().enabled);
    }
    software.post_software(1).unwrap();
    server.post_recv(&passive, 1, 0, 8);
    send(&client, &active, false);
    for evd in [&software, &server.completions] {
        until_queued(evd, 1);
        assert_quiet(evd);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| number(evd.wait(Some(HANG)).unwrap()));
            evd.set_enabled(true).unwrap();
            assert_eq!(waiter.join().unwrap(), 1);
        });
    }
}

/// A listener whose dispatcher has room for one request, and the dispatcher that reports losses.
fn narrow(side: &Side, overflow: Overflow) -> (Arc<Evd>, Arc<ual::Listen>) {
    let init = EvdInit { overflow, ..EvdInit::new(Stream::Request, 1) };
    let requests = side.ia.create_evd(init).unwrap();
    requests.tag().set(4711);
    let any = std::net::SocketAddr::new(LOCALHOST, 0);
    let listen = side.ia.listen(ListenInit::new(any, &requests)).unwrap();
    (requests, listen)
}

fn begin_connect(client: &Side, listen: &ual::Listen) -> Arc<Ep> {
    let ep = client.ep();
    ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    ep
}

fn rejected(client: &Side) {
    assert!(matches!(client.conn_event(), ConnEvent::Rejected { .. }));
}

#[test]
fn an_overflow_is_reported_once_and_ends_when_there_is_room() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let affiliated = server.ia.create_evd(EvdInit::new(Stream::Affiliated, 8)).unwrap();
    let (requests, listen) = narrow(&server, Overflow::default());
    let _first = begin_connect(&client, &listen);
    until_queued(&requests, 1);
    for _ in 0..2 {
        let _refused = begin_connect(&client, &listen);
        rejected(&client);
        assert!(requests.info().overflowed);
    }
    match affiliated.wait(Some(HANG)).unwrap() {
        Event::Affiliated { source, event } => {
            assert_eq!((source, event), (AsyncSource::Queue(4711), AsyncEvent::CqOverrun));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(affiliated.queued(), 0);
    assert!(matches!(requests.wait(Some(HANG)).unwrap(), Event::Request(_)));
    assert!(!requests.info().overflowed);
    let _second = begin_connect(&client, &listen);
    assert!(matches!(requests.wait(Some(HANG)).unwrap(), Event::Request(_)));
}

#[test]
fn without_auto_reset_an_overflow_lasts_until_it_is_cleared() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let affiliated = server.ia.create_evd(EvdInit::new(Stream::Affiliated, 8)).unwrap();
    let (requests, listen) = narrow(&server, Overflow { notify: false, auto_reset: false });
    let _first = begin_connect(&client, &listen);
    until_queued(&requests, 1);
    let _refused = begin_connect(&client, &listen);
    rejected(&client);
    assert!(matches!(requests.wait(Some(HANG)).unwrap(), Event::Request(_)));
    // There is room, but the loss is not acknowledged.
    let _refused = begin_connect(&client, &listen);
    rejected(&client);
    assert_eq!((requests.queued(), requests.info().overflowed), (0, true));
    requests.clear_overflow();
    let _second = begin_connect(&client, &listen);
    assert!(matches!(requests.wait(Some(HANG)).unwrap(), Event::Request(_)));
    assert_eq!(affiliated.queued(), 0);
}

#[test]
fn what_happens_without_room_can_be_changed() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let affiliated = server.ia.create_evd(EvdInit::new(Stream::Affiliated, 8)).unwrap();
    let (requests, listen) = narrow(&server, Overflow::default());
    requests.set_overflow(Overflow { notify: false, auto_reset: false });
    let _first = begin_connect(&client, &listen);
    until_queued(&requests, 1);
    let _refused = begin_connect(&client, &listen);
    rejected(&client);
    assert!(matches!(requests.wait(Some(HANG)).unwrap(), Event::Request(_)));
    assert!(requests.info().overflowed);
    assert_eq!(affiliated.queued(), 0);
}

// A staging queue that was full accepts more as soon as there is room.
#[test]
fn completions_beyond_a_full_staging_queue_follow() {
    const WRITES: u64 = 4;
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let small = client.ia.create_evd(EvdInit::new(Stream::Completion, WRITES as u32)).unwrap();
    let all = client.ia.create_evd(EvdInit::new(Stream::Aggregate, 0)).unwrap();
    small.set_aggregate(Some(&all)).unwrap();
    // So that it reports events of the staging queue, not of the provider's.
    small.set_threshold(WRITES as u32).unwrap();
    let mut init = EpInit::new(&client.completions, &client.connection);
    init.send_evd = small.clone();
    let (active, passive) = (client.pz.create_ep(init).unwrap(), server.ep());
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    server.established();
    client.established();
    let remote = Remote { stag: Stag(0x100), to: 0 };
    let write = |n| client.post(&active, n, SendOp::Write { remote }, 0, 0);
    (0..WRITES).for_each(write);
    // The provider's queue has no more entries: the others are posted when the first are in the staging queue.
    let fd = small.fd().unwrap();
    warpline_patience::until("a full staging queue", || readable(fd));
    (WRITES..2 * WRITES).for_each(write);
    for first in [0, WRITES] {
        // A user of the descriptor is notified of the others, too.
        warpline_patience::until("completions to be notified", || readable(fd));
        let mut batch = [WorkCompletion::BLANK; WRITES as usize];
        assert_eq!(small.poll(&mut batch).unwrap(), batch.len());
        assert!(batch.iter().map(|one| one.wr_id & !NOTIFY).eq(first..first + WRITES));
    }
}

// Of many endpoints some are named, and none that completes in another dispatcher.
#[test]
fn an_overrun_names_the_endpoints_that_complete_there() {
    for (more, counted) in [(8, None), (9, Some("and 1 more"))] {
        let (server, ep, small, _) = overrun(false, Overflow::default());
        // To drop it is not enough: the thread that delivers its last event may hold a reference.
        ep.close().unwrap();
        let mut init = EpInit::new(&small, &server.connection);
        (init.send_depth, init.recv_depth) = (3, 4);
        let _more: Vec<_> = (0..more).map(|_| server.pz.create_ep(init.clone()).unwrap()).collect();
        let elsewhere = server.ep();
        let error = loop {
            if let Err(error) = small.wait(Some(HANG)) {
                break error.to_string();
            }
        };
        // 3 sends and 4 receives of each; the endpoint that overran it is freed.
        let slots = more * 7;
        assert!(error.contains(&format!(" have {slots} work requests")), "{error}");
        assert_eq!(error.contains(" more)"), counted.is_some(), "{error}");
        assert!(counted.is_none_or(|counted| error.contains(counted)), "{error}");
        let named = error.split("queue pairs ").nth(1).and_then(|rest| rest.split(')').next());
        let elsewhere = elsewhere.id().0.to_string();
        assert!(named.unwrap().split(", ").all(|name| *name != *elsewhere), "{error}");
    }
}

#[test]
fn depths_change_while_events_flow() {
    const EVENTS: u64 = 5000;
    let side = Side::new(policy());
    let evd = side.ia.create_evd(EvdInit::new(Stream::Software, 4)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..EVENTS {
                let bound = warpline_patience::Bound::new("room for an event");
                while let Err(error) = evd.post_software(number) {
                    bound.check();
                    assert!(matches!(error, Error::QueueFull { .. }), "{error}");
                    thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            for depth in (1..100).cycle().take(1000) {
                assert_eq!(evd.resize(depth).unwrap(), depth);
            }
        });
        for expected in 0..EVENTS {
            assert_eq!(number(evd.wait(Some(HANG)).unwrap()), expected);
        }
    });
    assert!(evd.resize(0).is_err());
}

#[test]
fn a_full_staged_queue_does_not_block() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let small = server.ia.create_evd(EvdInit::new(Stream::Completion, 4)).unwrap();
    let mut init = EpInit::new(&server.completions, &server.connection);
    init.recv_evd = small.clone();
    let passive = server.pz.create_ep(init).unwrap();
    let active = client.ep();
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    server.established();
    client.established();
    let depth = u64::from(small.depth());
    small.set_threshold(small.depth()).unwrap();
    // Nothing is staged before a thread waits.
    assert!(matches!(small.wait(SHORT), Err(Error::Timeout(_))));
    for _ in 0..20 {
        (0..depth + 2).for_each(|wr_id| server.post_recv(&passive, wr_id, 0, 8));
        (0..depth).for_each(|_| send(&client, &active, false));
        // All of them are staged; there is no room for two more.
        assert!(small.wait_ready(Some(HANG)).unwrap());
        (0..2).for_each(|_| send(&client, &active, false));
        until_queued(&small, depth as usize + 2);
        small.set_threshold(1).unwrap();
        for expected in 0..depth + 2 {
            assert_eq!(number(small.wait(Some(HANG)).unwrap()), expected);
        }
        small.set_threshold(small.depth()).unwrap();
    }
    assert!(small.resize(100).unwrap() >= 100);
    server.post_recv(&passive, 1, 0, 8);
    send(&client, &active, false);
    small.set_threshold(1).unwrap();
    assert_eq!(number(small.wait(Some(HANG)).unwrap()), 1);
}

/// Loses completions of a queue that is not polled; returns what `evd` and the Ia report. The completions in the
/// queue stay as long as the endpoint.
fn overrun(staged: bool, overflow: Overflow) -> (Side, Arc<Ep>, Arc<Evd>, Arc<Evd>) {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let affiliated = server.ia.create_evd(EvdInit::new(Stream::Affiliated, 64)).unwrap();
    let init = EvdInit { overflow, ..EvdInit::new(Stream::Completion, 4) };
    let small = server.ia.create_evd(init).unwrap();
    let listen = server.listen(LOCALHOST);
    let mut init = EpInit::new(&server.completions, &server.connection);
    init.recv_evd = small.clone();
    let passive = server.pz.create_ep(init).unwrap();
    let active = client.ep();
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    server.established();
    client.established();
    if staged {
        small.set_threshold(2).unwrap();
        assert!(matches!(small.wait(SHORT), Err(Error::Timeout(_))));
    }
    for wr_id in 0..32 {
        server.post_recv(&passive, wr_id, 0, 8);
        client.send(&active, wr_id, 0, 8);
    }
    assert!(matches!(server.conn_event(), ConnEvent::Broken { .. }));
    (server, passive, small, affiliated)
}

#[test]
fn a_completion_queue_without_room_fails_behind_its_completions() {
    for staged in [false, true] {
        let (server, _ep, small, affiliated) = overrun(staged, Overflow::default());
        assert!(small.info().overflowed);
        // The dispatcher, and the endpoint whose request overran it.
        let (mut of_evd, mut of_ep) = (false, false);
        let bound = warpline_patience::Bound::new("the overrun of dispatcher and endpoint");
        while !(of_evd && of_ep) {
            bound.check();
            let Event::Affiliated { source, event } = affiliated.wait(Some(HANG)).unwrap() else {
                panic!("another stream");
            };
            assert_eq!(event, AsyncEvent::CqOverrun, "{source:?}");
            match source {
                AsyncSource::Evd(cq) => {
                    of_evd = server.ia.evd(cq).is_some_and(|evd| Arc::ptr_eq(&evd, &small));
                    assert!(of_evd);
                }
                AsyncSource::Ep(_) => of_ep = true,
                other => panic!("{other:?}"),
            }
        }
        let mut taken = 0;
        let error = loop {
            match small.wait(Some(HANG)) {
                Ok(event) => assert_eq!(number(event), taken),
                Err(error) => break error,
            }
            taken += 1;
        };
        assert_eq!(error.verb_status(), Some(VpStatus::CqOverrun), "{error}");
        assert!(taken >= 4);
        assert!(small.dequeue().is_err() && small.wait(None).is_err());
    }
}

#[test]
fn an_overrun_is_not_reported_if_that_is_disabled() {
    let overflow = Overflow { notify: false, auto_reset: true };
    let (_server, _ep, small, affiliated) = overrun(false, overflow);
    assert!(small.info().overflowed);
    while let Some(Event::Affiliated { source, event }) = affiliated.dequeue().unwrap() {
        assert!(matches!(source, AsyncSource::Ep(_)), "{event:?}");
    }
}
