//! Tests of dispatchers: polling, waiting, descriptors, interrupts; no event and no wake-up is lost.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kal_shim::reactor::{Interest, readable, ready_within};
use ual::vp_api::{self, VpStatus, WorkCompletion};
use ual::{Error, EvdInit, Event, NOTIFY, Stream};

use crate::common::{HANG, LOCALHOST, Side, connect, policy};

const MESSAGES: u64 = 2000;

/// Sends all messages, each when there is a receive for it.
fn send_all(client: &Side, ep: &ual::Ep, credits: mpsc::Receiver<()>) {
    for number in 0..MESSAGES {
        credits.recv_timeout(HANG).unwrap();
        client.send(ep, number, 0, 8);
        client.success();
    }
}

/// Takes all queued events; returns their number.
fn drain(side: &Side) -> u64 {
    let mut taken = 0;
    while side.completions.dequeue().unwrap().is_some() {
        taken += 1;
    }
    taken
}

/// Makes completions go through the staging queue, by letting a thread wait once.
fn stage(evd: &ual::Evd) {
    evd.set_enabled(false).unwrap();
    evd.set_enabled(true).unwrap();
}

#[test]
fn a_descriptor_leads_to_every_completion() {
    descriptor_leads(false);
}

#[test]
fn a_descriptor_leads_to_every_staged_completion() {
    descriptor_leads(true);
}

fn descriptor_leads(staged: bool) {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    if staged {
        stage(&server.completions);
    }
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    let fd = server.completions.fd().unwrap().as_fd().try_clone_to_owned().unwrap();
    // The descriptor is readable at first, because events may be queued already.
    drain(&server);
    assert!(!readable(fd.as_fd()));
    thread::scope(|scope| {
        let (credit, credits) = mpsc::channel();
        scope.spawn(|| send_all(&client, &active, credits));
        let mut received = 0;
        for number in 0..64 {
            server.post_recv(&passive, number, 0, 8);
            credit.send(()).unwrap();
        }
        while received < MESSAGES {
            assert!(ready_within(fd.as_fd(), Interest::READ, HANG), "after {received}");
            let taken = drain(&server);
            for number in 0..taken {
                server.post_recv(&passive, number, 0, 8);
                // The sender may be done already.
                let _ = credit.send(());
            }
            received += taken;
        }
    });
    assert!(!readable(fd.as_fd()));
}

#[test]
fn a_descriptor_requested_late_is_readable_if_there_are_events() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    server.post_recv(&passive, 1, 0, 8);
    client.send(&active, 2, 0, 8);
    assert!(server.completions.wait_ready(Some(HANG)).unwrap());
    let fd = server.completions.fd().unwrap();
    assert!(readable(fd));
    assert_eq!(server.success().wr_id, 1);
}

#[test]
fn several_waiters_share_the_completions() {
    waiters_share(false);
}

#[test]
fn several_waiters_share_staged_completions() {
    waiters_share(true);
}

fn waiters_share(staged: bool) {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    if staged {
        stage(&server.completions);
    }
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    let (credit, credits) = mpsc::channel();
    for number in 0..64 {
        server.post_recv(&passive, number, 0, 8);
        credit.send(()).unwrap();
    }
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        let waiters = [(); 4].map(|()| {
            let credit = credit.clone();
            let (server, passive, taken) = (&server, &passive, &taken);
            scope.spawn(move || {
                loop {
                    match server.completions.wait(Some(HANG)) {
                        Ok(Event::Completion(_)) => {}
                        Err(Error::Interrupted) => return,
                        other => panic!("{other:?}"),
                    }
                    server.post_recv(passive, 0, 0, 8);
                    let _ = credit.send(());
                    if taken.fetch_add(1, Ordering::AcqRel) + 1 == MESSAGES {
                        break;
                    }
                }
            })
        });
        send_all(&client, &active, credits);
        warpline_patience::until("all messages to be taken", || {
            taken.load(Ordering::Acquire) >= MESSAGES
        });
        // A thread that is between two waits now is interrupted by a later call.
        warpline_patience::until("the interrupted waiters to end", || {
            server.completions.interrupt();
            waiters.iter().all(thread::ScopedJoinHandle::is_finished)
        });
    });
    assert_eq!(taken.load(Ordering::Acquire), MESSAGES);
}

#[test]
fn waits_time_out_and_polls_do_not_wait() {
    let side = Side::new(policy());
    let short = Some(Duration::from_millis(5));
    assert!(matches!(side.completions.wait(short), Err(Error::Timeout(_))));
    assert!(!side.completions.wait_ready(short).unwrap());
    assert!(matches!(side.connection.wait(short), Err(Error::Timeout(_))));
    assert!(side.completions.dequeue().unwrap().is_none());
    assert_eq!(side.completions.poll(&mut [] as &mut [WorkCompletion]).unwrap(), 0);
}

/// Events that a waiting thread drops do not delay the end of the wait, and later ones are found.
#[test]
fn a_wait_that_drops_events_ends_when_its_time_is_over() {
    let side = Side::new(policy());
    let evd = side.ia.create_evd(EvdInit::new(Stream::Software, 4)).unwrap();
    let all = EvdInit { underlying: true, ..EvdInit::new(Stream::Aggregate, 1) };
    let all = side.ia.create_evd(all).unwrap();
    let timeout = Some(Duration::from_millis(1));
    for aggregate in [None, Some(&all)] {
        evd.set_aggregate(aggregate).unwrap();
        let waited = aggregate.unwrap_or(&evd);
        evd.post_software(1).unwrap();
        let bound = warpline_patience::Bound::new("the end of a wait");
        let dropped = waited.wait_for(timeout, |_, _| {
            bound.check();
            // There is always another event.
            evd.post_software(1).unwrap();
            None::<()>
        });
        assert!(matches!(dropped, Err(Error::Timeout(time)) if Some(time) == timeout));
        while evd.dequeue().unwrap().is_some() {}
        for number in 1..4 {
            evd.post_software(number).unwrap();
        }
        let third = |event, _| matches!(event, Event::Software(3)).then_some(());
        waited.wait_for(Some(Duration::ZERO), third).unwrap();
    }
}

/// Every event that woke a thread or was counted can be taken.
#[test]
fn the_events_of_a_closed_object_are_removed() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let affiliated = server.ia.create_evd(EvdInit::new(Stream::Affiliated, 8)).unwrap();
    let fds = [affiliated.fd().unwrap(), server.connection.fd().unwrap()];
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    active.disconnect(ual::Disconnect::Abrupt).unwrap();
    for evd in [&affiliated, &server.connection] {
        assert!(evd.wait_ready(Some(HANG)).unwrap());
    }
    assert!(fds.iter().all(|fd| readable(*fd)));
    passive.close().unwrap();
    assert_eq!([affiliated.queued(), server.connection.queued()], [0, 0]);
    assert!(!fds.iter().any(|fd| readable(*fd)));
}

#[test]
fn events_that_are_not_wanted_neither_wake_nor_count() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let init = EvdInit { wanted: |_| false, ..EvdInit::new(Stream::Affiliated, 8) };
    let affiliated = server.ia.create_evd(init).unwrap();
    let listen = server.listen(LOCALHOST);
    for _ in 0..2 {
        // The events of the first connection are queued before the second is made.
        let (active, passive) = connect(&client, &server, &listen);
        assert_eq!(affiliated.queued(), 0);
        assert!(!readable(affiliated.fd().unwrap()));
        active.disconnect(ual::Disconnect::Abrupt).unwrap();
        for side in [&client, &server] {
            side.conn_event();
        }
        drop((active, passive));
    }
}

#[test]
fn software_events_and_wrong_streams() {
    let side = Side::new(policy());
    let software = side.ia.create_evd(EvdInit::new(Stream::Software, 2)).unwrap();
    software.post_software(7).unwrap();
    software.post_software(8).unwrap();
    assert!(matches!(software.post_software(9), Err(Error::QueueFull { depth: 2 })));
    assert!(readable(software.fd().unwrap()));
    assert!(matches!(software.dequeue().unwrap(), Some(Event::Software(7))));
    assert_eq!(software.resize(5).unwrap(), 5);
    software.post_software(9).unwrap();
    assert_eq!(software.queued(), 2);
    assert!(side.connection.post_software(1).is_err());
    assert!(software.poll(&mut []).is_err());
    let any = std::net::SocketAddr::new(LOCALHOST, 0);
    assert!(side.ia.listen(ual::ListenInit::new(any, &software)).is_err());
    let wrong = ual::EpInit::new(&side.connection, &side.connection);
    assert!(side.pz.create_ep(wrong).is_err());
    let wrong = ual::EpInit::new(&side.completions, &side.completions);
    assert!(side.pz.create_ep(wrong).is_err());
}

#[test]
fn one_dispatcher_each_for_asynchronous_events() {
    let side = Side::new(policy());
    for stream in [Stream::Affiliated, Stream::Unaffiliated] {
        let init = EvdInit::new(stream, 8);
        let first = side.ia.create_evd(init.clone()).unwrap();
        assert!(side.ia.create_evd(init.clone()).is_err());
        first.close().unwrap();
        side.ia.create_evd(init.clone()).unwrap();
    }
    assert!(side.ia.create_evd(EvdInit::new(Stream::Request, 0)).is_err());
}

#[test]
fn a_low_srq_raises_its_event_once() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let affiliated = server.ia.create_evd(EvdInit::new(Stream::Affiliated, 8)).unwrap();
    let params = ual::SrqParams { depth: 16, max_sge: 1, low_watermark: 3 };
    let srq = server.pz.create_srq(params).unwrap();
    let listen = server.listen(LOCALHOST);
    let mut init = ual::EpInit::new(&server.completions, &server.connection);
    init.srq = Some(srq.clone());
    let passive = server.pz.create_ep(init).unwrap();
    for wr_id in 0..5 {
        let sgl = [server.sge(0, 8)];
        srq.post_recv(&[vp_api::RecvWr { wr_id: wr_id | NOTIFY, sgl: &sgl }]).unwrap();
    }
    let active = client.ep();
    active.connect(ual::ConnectParams::new(listen.addresses()[0])).unwrap();
    passive.accept(server.request().request, ual::AcceptParams::default()).unwrap();
    server.established();
    client.established();
    for wr_id in 0..5 {
        client.send(&active, wr_id, 0, 8);
        server.success();
    }
    match affiliated.wait(Some(HANG)).unwrap() {
        Event::Affiliated { source: ual::AsyncSource::Srq(id), event } => {
            assert_eq!(event, vp_api::AsyncEvent::SrqLimit);
            assert!(server.ia.srq(id).is_some_and(|found| Arc::ptr_eq(&found, &srq)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(affiliated.queued(), 0);
    assert!(matches!(srq.close(), Err(Error::InUse { .. })));
    // Another event, which is not taken.
    srq.modify(None, Some(3)).unwrap();
    assert!(affiliated.wait_ready(Some(HANG)).unwrap());
    passive.close().unwrap();
    srq.close().unwrap();
    assert_eq!(affiliated.queued(), 0);
}

#[test]
fn a_closed_dispatcher_reports_closed_and_not_overrun() {
    let side = Side::new(policy());
    let evd = side.ia.create_evd(EvdInit::new(Stream::Completion, 4)).unwrap();
    evd.close().unwrap();
    let error = evd.poll(&mut [WorkCompletion::BLANK]).unwrap_err();
    assert_eq!(error.verb_status(), Some(VpStatus::InvalidHandle), "{error}");
}
