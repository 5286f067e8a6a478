//! Tests of aggregate dispatchers, which return the events of several others, or their names.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kal_shim::reactor::{Interest, readable, ready_within};
use ual::{Error, Evd, EvdInit, Event, Stream};

use crate::common::{HANG, LOCALHOST, Side, connect, policy};

const SHORT: Option<Duration> = Some(Duration::from_millis(2));

fn aggregate(side: &Side, underlying: bool) -> Arc<Evd> {
    let init = EvdInit { underlying, ..EvdInit::new(Stream::Aggregate, 0) };
    side.ia.create_evd(init).unwrap()
}

fn software(side: &Side, aggregate: &Arc<Evd>) -> Arc<Evd> {
    let aggregate = Some(aggregate.clone());
    let init = EvdInit { aggregate, ..EvdInit::new(Stream::Software, 16) };
    side.ia.create_evd(init).unwrap()
}

fn notifier(event: Event) -> Arc<Evd> {
    match event {
        Event::Notification { evd } => evd,
        other => panic!("{other:?}"),
    }
}

/// Two sides with a connection; the server's completions and connection events feed `aggregate`.
fn connected(aggregate: &Arc<Evd>, server: &Side) -> (Side, Arc<ual::Ep>, Arc<ual::Ep>) {
    let client = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, server, &listen);
    server.completions.set_aggregate(Some(aggregate)).unwrap();
    server.connection.set_aggregate(Some(aggregate)).unwrap();
    (client, active, passive)
}

#[test]
fn notifications_name_the_dispatchers_with_events() {
    let server = Side::new(policy());
    let all = aggregate(&server, false);
    let (client, active, passive) = connected(&all, &server);
    let own = software(&server, &all);
    let fd = all.fd().unwrap().try_clone_to_owned().unwrap();
    assert!(all.dequeue().unwrap().is_none() && !readable(fd.as_fd()));
    assert!(matches!(all.wait(SHORT), Err(Error::Timeout(_))));

    own.post_software(1).unwrap();
    assert!(readable(fd.as_fd()));
    assert!(Arc::ptr_eq(&notifier(all.wait(Some(HANG)).unwrap()), &own));
    // It still has its event, and reports it until it is taken.
    assert!(Arc::ptr_eq(&notifier(all.dequeue().unwrap().unwrap()), &own));
    own.dequeue().unwrap().unwrap();
    assert!(all.dequeue().unwrap().is_none() && !readable(fd.as_fd()));

    server.post_recv(&passive, 1, 0, 8);
    client.send(&active, 1, 0, 8);
    assert!(ready_within(fd.as_fd(), Interest::READ, HANG));
    assert!(Arc::ptr_eq(&notifier(all.wait(Some(HANG)).unwrap()), &server.completions));
    assert_eq!(server.success().wr_id, 1);

    active.disconnect(ual::Disconnect::Graceful).unwrap();
    assert!(Arc::ptr_eq(&notifier(all.wait(Some(HANG)).unwrap()), &server.connection));
    server.conn_event();
    assert!(matches!(all.wait(SHORT), Err(Error::Timeout(_))));
}

#[test]
fn every_dispatcher_with_events_gets_its_turn() {
    let side = Side::new(policy());
    let all = aggregate(&side, false);
    let children = [(); 3].map(|()| software(&side, &all));
    for child in &children {
        child.post_software(1).unwrap();
        child.post_software(2).unwrap();
    }
    assert_eq!(all.queued(), 3);
    for _ in 0..2 {
        for child in &children {
            assert!(Arc::ptr_eq(&notifier(all.wait(Some(HANG)).unwrap()), child));
        }
    }
}

#[test]
fn an_underlying_aggregate_returns_events() {
    let server = Side::new(policy());
    let all = aggregate(&server, true);
    let (client, active, passive) = connected(&all, &server);
    let own = software(&server, &all);
    thread::scope(|scope| {
        scope.spawn(|| {
            own.post_software(1).unwrap();
            client.send(&active, 1, 0, 8);
            client.success();
            active.disconnect(ual::Disconnect::Graceful).unwrap();
        });
        server.post_recv(&passive, 1, 0, 8);
        let mut seen = [0; 3];
        let bound = warpline_patience::Bound::new("one event of each child");
        while seen != [1; 3] {
            bound.check();
            match all.wait(Some(HANG)).unwrap() {
                Event::Software(1) => seen[0] += 1,
                Event::Completion(_) => seen[1] += 1,
                Event::Connection { .. } => seen[2] += 1,
                other => panic!("{other:?}"),
            }
        }
    });
    assert!(all.dequeue().unwrap().is_none());
    assert!(!readable(all.fd().unwrap()));
}

#[test]
fn once_triggered_underlying_events_come_to_the_last() {
    let side = Side::new(policy());
    let all = aggregate(&side, true);
    let own = software(&side, &all);
    own.set_threshold(3).unwrap();
    own.post_software(1).unwrap();
    own.post_software(2).unwrap();
    assert!(all.dequeue().unwrap().is_none());
    own.post_software(3).unwrap();
    assert_eq!(all.queued(), 3);
    for expected in 1..=3 {
        let event = all.wait(Some(HANG)).unwrap();
        assert!(matches!(event, Event::Software(number) if number == expected), "{event:?}");
    }
    own.post_software(4).unwrap();
    assert!(all.dequeue().unwrap().is_none());
}

#[test]
fn members_can_be_added_and_removed() {
    let side = Side::new(policy());
    let (first, second) = (aggregate(&side, false), aggregate(&side, false));
    let own = software(&side, &first);
    assert!(own.info().aggregate.is_some_and(|evd| Arc::ptr_eq(&evd, &first)));
    own.post_software(1).unwrap();
    assert!(readable(first.fd().unwrap()));
    assert!(matches!(first.close(), Err(Error::InUse { users: 1, .. })));
    assert!(first.info().bound);

    own.set_aggregate(Some(&second)).unwrap();
    assert!(!readable(first.fd().unwrap()) && readable(second.fd().unwrap()));
    first.close().unwrap();
    assert!(own.set_aggregate(Some(&first)).is_err());

    own.set_enabled(false).unwrap();
    assert!(second.dequeue().unwrap().is_none());
    own.set_enabled(true).unwrap();
    assert!(Arc::ptr_eq(&notifier(second.dequeue().unwrap().unwrap()), &own));

    own.close().unwrap();
    assert!(second.dequeue().unwrap().is_none() && !readable(second.fd().unwrap()));
    second.close().unwrap();
}

#[test]
fn only_simple_dispatchers_of_the_same_adapter_feed_an_aggregate() {
    let (side, other) = (Side::new(policy()), Side::new(policy()));
    let all = aggregate(&side, false);
    let more = aggregate(&side, false);
    assert!(more.set_aggregate(Some(&all)).is_err());
    assert!(other.completions.set_aggregate(Some(&all)).is_err());
    assert!(side.completions.set_aggregate(Some(&side.connection)).is_err());
    assert!(all.set_threshold(2).is_err() && all.resize(2).is_err());
    assert!(all.post_software(1).is_err() && all.poll(&mut []).is_err());
    let nested = EvdInit { aggregate: Some(all.clone()), ..EvdInit::new(Stream::Aggregate, 0) };
    assert!(side.ia.create_evd(nested).is_err());
}

#[test]
fn several_waiters_drain_an_aggregate_once() {
    const EVENTS: u64 = 2000;
    let side = Side::new(policy());
    let all = aggregate(&side, true);
    let children = [(); 3].map(|()| software(&side, &all));
    let taken: u64 = thread::scope(|scope| {
        let waiters = [(); 4].map(|()| {
            scope.spawn(|| {
                let mut sum = 0;
                loop {
                    match all.wait(Some(HANG)) {
                        Ok(Event::Software(0)) => return sum,
                        Ok(Event::Software(number)) => sum += number,
                        other => panic!("{other:?}"),
                    }
                }
            })
        });
        let post = |number: u64| {
            warpline_patience::until("room for an event", || {
                children[number as usize % 3].post_software(number).is_ok()
            });
        };
        (1..=EVENTS).for_each(post);
        (0..4).for_each(|_| post(0));
        waiters.into_iter().map(|waiter| waiter.join().unwrap()).sum()
    });
    // A thread that got its zero early left the other events to other threads or in the queues.
    let mut left = 0;
    while let Some(Event::Software(number)) = all.dequeue().unwrap() {
        left += number;
    }
    assert_eq!(taken + left, EVENTS * (EVENTS + 1) / 2);
}
