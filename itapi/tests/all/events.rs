//! Tests of event dispatchers: notification, streams of events, overflow.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use itapi::{
    AccessError, Aevd, AnyEvd, AnyEvent, AsyncEvent, AsyncSource, ConnEvd, ConnEvent,
    ConnectParams, Error, Evd, Operation, Overflow, RequestEvd, SoftwareEvd, Stream, Work,
};

use crate::pair::{HANG, Side, connect, open, pair};

/// A time-out of zero.
const NOW: Duration = Duration::ZERO;

fn readable(evd: &itapi::Dispatcher) -> bool {
    let fd = evd.fd().unwrap();
    let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
}

// [it_evd_post_se] [it_evd_create]
#[test]
fn software_events_come_out_in_order_until_full() {
    let inbox = open().software_evd(2).unwrap();
    inbox.post(1).unwrap();
    inbox.post(u64::MAX).unwrap();
    assert_eq!(inbox.queued(), 2);
    let full = inbox.post(3).unwrap_err();
    assert!(matches!(full, Error::Access(AccessError::QueueFull { depth: 2 })), "{full}");
    // [it_evd_modify]
    assert!(inbox.resize(3).unwrap() >= 3);
    inbox.post(3).unwrap();
    for number in [1, u64::MAX, 3] {
        assert_eq!(inbox.wait(HANG).unwrap(), Some(number));
    }
    assert_eq!(inbox.poll().unwrap(), None);
    assert_eq!(inbox.wait(NOW).unwrap(), None);
}

// [it_evd_query] [it_evd_modify]
#[test]
fn info_returns_the_state_of_a_dispatcher() {
    let ia = open();
    let all = Aevd::builder(&ia).build().unwrap();
    let overflow = Overflow { notify: false, auto_reset: false };
    let evd = SoftwareEvd::builder(&ia, 8)
        .threshold(3)
        .aggregate(&all)
        .overflow(overflow)
        .disabled()
        .build()
        .unwrap();
    let info = evd.info();
    assert_eq!((info.stream, info.threshold), (Stream::Software, 3));
    assert_eq!((info.aggregate, info.overflow), (Some(all.id()), overflow));
    assert!(info.depth >= 8 && !info.enabled && !info.callback && !info.overflowed);
    assert_ne!(evd.id(), all.id());
    assert_eq!(evd.clone().id(), evd.id());
    evd.set_enabled(true).unwrap();
    evd.set_aggregate(None).unwrap();
    evd.set_threshold(1).unwrap();
    evd.set_overflow(Overflow::default());
    let info = evd.info();
    assert!(info.enabled && info.aggregate.is_none() && info.threshold == 1);
    assert_eq!(info.overflow, Overflow::default());
}

#[test]
fn a_threshold_waits_for_enough() {
    let inbox = SoftwareEvd::builder(&open(), 8).threshold(2).build().unwrap();
    inbox.post(1).unwrap();
    assert!(!readable(&inbox));
    assert_eq!(inbox.wait(NOW).unwrap(), None);
    inbox.post(2).unwrap();
    assert!(readable(&inbox));
    assert_eq!(inbox.wait(HANG).unwrap(), Some(1));
    assert_eq!(inbox.poll().unwrap(), Some(2));
    // A disabled dispatcher only queues.
    inbox.set_threshold(1).unwrap();
    inbox.set_enabled(false).unwrap();
    inbox.post(3).unwrap();
    assert!(!readable(&inbox));
    assert_eq!(inbox.wait(NOW).unwrap(), None);
    inbox.set_enabled(true).unwrap();
    assert!(readable(&inbox));
    assert_eq!(inbox.wait(HANG).unwrap(), Some(3));
}

#[test]
fn quiet_work_notifies_only_if_solicited_or_failed() {
    let (client, server) = pair();
    for buffer in server.pz.buffers(3, 8).unwrap() {
        server.ep.post_recv_quiet(buffer).unwrap();
    }
    client.ep.post(Work::send(b"1").quiet()).unwrap();
    client.ep.post(Work::send(b"2")).unwrap();
    // The second wakes; both are queued.
    assert_eq!(client.success().operation, Operation::Send);
    assert_eq!(client.success().operation, Operation::Send);
    assert!(server.evd.wait(NOW).unwrap().is_none());
    client.ep.post(Work::send(b"3").solicited()).unwrap();
    for text in [b"1", b"2", b"3"] {
        assert_eq!(server.success().into_buffer().unwrap().to_vec(), text);
    }
    server.ep.post_recv_quiet(server.pz.buffer(8).unwrap()).unwrap();
    client.ep.disconnect().unwrap();
    assert!(server.next().check().is_err());
}

// [itx_aevd_wait]
#[test]
fn one_thread_waits_for_everything() {
    let ia = open();
    let all = Aevd::builder(&ia).build().unwrap();
    let evd = Evd::builder(&ia, 16).aggregate(&all).build().unwrap();
    let events = ConnEvd::builder(&ia, 16).aggregate(&all).build().unwrap();
    let calls = RequestEvd::builder(&ia, 16).aggregate(&all).build().unwrap();
    let inbox = SoftwareEvd::builder(&ia, 16).aggregate(&all).build().unwrap();
    let pz = ia.pz().unwrap();
    let (client, server) = (
        pz.ep(&evd).conn_evd(&events).build().unwrap(),
        pz.ep(&evd).conn_evd(&events).build().unwrap(),
    );
    let listen = ia.listen_builder("127.0.0.1:0").unwrap().evd(&calls).listen().unwrap();
    client.start_connect(ConnectParams::new(listen.address())).unwrap();
    server.post_recv(pz.buffer(8).unwrap()).unwrap();
    let (mut connected, mut completed, mut reported) = (0, 0, false);
    while !reported {
        let ready = all.wait(HANG).unwrap().expect("something happens");
        if ready == calls.id() {
            while let Some(request) = calls.poll().unwrap() {
                request.start_accept(&server, b"").unwrap();
            }
        } else if ready == events.id() {
            while let Some((id, event)) = events.poll().unwrap() {
                assert!(matches!(event, ConnEvent::Established(_)), "{event}");
                connected += 1;
                if id == client.id() {
                    client.post(Work::send(b"hello")).unwrap();
                }
            }
        } else if ready == evd.id() {
            while let Some(completion) = evd.poll().unwrap() {
                completion.check().unwrap();
                completed += 1;
            }
            if completed == 2 {
                inbox.post(42).unwrap();
            }
        } else {
            assert_eq!(ready, inbox.id());
            assert_eq!(inbox.poll().unwrap(), Some(42));
            reported = true;
        }
    }
    assert_eq!((connected, completed), (2, 2));
    assert!(all.wait(NOW).unwrap().is_none());
    assert!(!readable(&all));
}

// [itx_aevd_wait] [it_evd_modify]
#[test]
fn one_dispatcher_returns_the_events_of_all() {
    let ia = open();
    let all = AnyEvd::builder(&ia).build().unwrap();
    let evd = Evd::builder(&ia, 16).aggregate(&all).build().unwrap();
    let events = ConnEvd::builder(&ia, 16).aggregate(&all).build().unwrap();
    let calls = RequestEvd::builder(&ia, 16).build().unwrap();
    calls.set_aggregate(Some(&all)).unwrap();
    let pz = ia.pz().unwrap();
    let ep = || pz.ep(&evd).conn_evd(&events).build().unwrap();
    let (client, server) = (ep(), ep());
    let listen = ia.listen_builder("127.0.0.1:0").unwrap().evd(&calls).listen().unwrap();
    client.start_connect(ConnectParams::new(listen.address())).unwrap();
    server.post_recv(pz.buffer(8).unwrap()).unwrap();
    let (mut connected, mut received, mut sent) = (0, None, 0);
    while received.is_none() || sent == 0 {
        let (origin, event) = all.wait(HANG).unwrap().expect("something happens");
        match event {
            AnyEvent::Request(request) => {
                assert_eq!(origin, calls.id());
                request.start_accept(&server, b"").unwrap();
            }
            AnyEvent::Connection(_, event) => {
                assert_eq!(origin, events.id());
                assert!(matches!(event, ConnEvent::Established(_)), "{event}");
                connected += 1;
                if connected == 2 {
                    client.post(Work::send(b"hello")).unwrap();
                }
            }
            AnyEvent::Completion(completion) => {
                assert_eq!(origin, evd.id());
                completion.check().unwrap();
                match completion.operation {
                    Operation::Send => sent += 1,
                    _ => received = completion.into_buffer(),
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received.unwrap().to_vec(), b"hello");
    assert!(all.poll().unwrap().is_none() && !readable(&all));
    calls.set_aggregate(None).unwrap();
    let other = evd.set_aggregate(Some(&Aevd::builder(&open()).build().unwrap())).unwrap_err();
    assert!(other.to_string().contains("adapter"), "{other}");
}

// [it_evd_callback_attach] [it_evd_callback_detach]
#[test]
fn a_callback_takes_the_events() {
    let (client, server) = pair();
    for buffer in server.pz.buffers(10, 4).unwrap() {
        server.ep.post_recv(buffer).unwrap();
    }
    let (sender, receiver) = channel();
    let take = move |evd: &Evd| {
        while let Ok(Some(completion)) = evd.poll() {
            sender.send(completion.octets).unwrap();
        }
    };
    server.evd.on_event(take).unwrap();
    assert!(server.evd.info().callback);
    let second = server.evd.on_event(|_| {}).unwrap_err();
    assert!(matches!(second, Error::Access(AccessError::CallbackExists)), "{second}");
    for _ in 0..10 {
        client.ep.post(Work::send(b"tick")).unwrap();
        client.success();
    }
    for _ in 0..10 {
        assert_eq!(receiver.recv_timeout(HANG).unwrap(), 4);
    }
    server.evd.detach_callback().unwrap();
    assert!(!server.evd.info().callback);

    let inbox = open().software_evd(4).unwrap();
    let sum = Arc::new(AtomicU32::new(0));
    let (adds, (done, over)) = (sum.clone(), channel());
    inbox
        .on_event(move |inbox| {
            while let Ok(Some(number)) = inbox.poll() {
                adds.fetch_add(number as u32, Ordering::Relaxed);
                done.send(()).unwrap();
            }
        })
        .unwrap();
    inbox.post(3).unwrap();
    inbox.post(4).unwrap();
    over.recv_timeout(HANG).unwrap();
    over.recv_timeout(HANG).unwrap();
    assert_eq!(sum.load(Ordering::Relaxed), 7);
}

#[test]
fn dropping_a_dispatcher_drops_its_callback() {
    let ia = open();
    let state = Arc::new(());
    let kept = state.clone();
    let evd = ia.evd(4).unwrap();
    evd.on_event(move |_| drop(kept.clone())).unwrap();
    assert_eq!(Arc::strong_count(&state), 2);
    drop(evd);
    drop(ia);
    // The adapter's thread may be at the dispatcher at this moment; then it drops the callback.
    warpline_patience::until("the callback to be dropped", || Arc::strong_count(&state) == 1);
}

#[test]
fn one_dispatcher_serves_several_listeners() {
    let ia = open();
    let calls = ia.request_evd(8).unwrap();
    let listens: Vec<_> = (0..2)
        .map(|_| ia.listen_builder("127.0.0.1:0").unwrap().evd(&calls).listen().unwrap())
        .collect();
    let clients: Vec<_> = (0..2).map(|_| Side::new(&ia, |b| b)).collect();
    let mut ports = Vec::new();
    for (client, listen) in clients.iter().zip(&listens) {
        client.ep.start_connect(ConnectParams::new(listen.address())).unwrap();
        let request = calls.wait(HANG).unwrap().unwrap();
        ports.push(request.details().port);
        request.reject(b"").unwrap();
    }
    assert_eq!(ports, [listens[0].address().port(), listens[1].address().port()]);
}

// [it_srq_modify]
#[test]
fn the_low_watermark_is_an_asynchronous_event() {
    let ia = open();
    let events = ia.async_evd(8).unwrap();
    assert!(ia.async_evd(8).is_err());
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    let srq = server.pz.srq(8, 1).unwrap();
    for buffer in server.pz.buffers(3, 8).unwrap() {
        srq.post_recv(buffer).unwrap();
    }
    srq.arm_low_watermark(3).unwrap();
    let ep = server.pz.ep(&server.evd).srq(&srq).build().unwrap();
    let server = Side { ep, ..server };
    connect(&ia, &client, &server);
    client.ep.post(Work::send(b"one less")).unwrap();
    server.success();
    let event = events.wait(HANG).unwrap().unwrap();
    assert_eq!((event.source, event.event), (AsyncSource::Srq(srq.id()), AsyncEvent::SrqLimit));
    assert!(event.to_string().contains("low watermark"), "{event}");
    assert_eq!(srq.info().unwrap().limit, 0);
}

#[test]
fn an_abort_ends_present_and_later_waits() {
    let inbox = open().software_evd(4).unwrap();
    let waiting = inbox.clone();
    let waiter = std::thread::spawn(move || waiting.wait(Duration::MAX));
    inbox.abort();
    let aborted = |end: itapi::Result<_>| matches!(end, Err(Error::Access(AccessError::Aborted)));
    assert!(aborted(warpline_patience::within("the wait to be aborted", || waiter
        .join()
        .unwrap())));
    assert!(aborted(inbox.wait(HANG)));
}

#[test]
fn the_descriptor_shows_completions() {
    let (client, server) = pair();
    server.ep.post_recv(server.pz.buffer(8).unwrap()).unwrap();
    // An event may be queued already: poll first, then wait.
    assert!(server.evd.fd().is_ok() && server.evd.poll().unwrap().is_none());
    assert!(!readable(&server.evd));
    client.ep.post(Work::send(b"x")).unwrap();
    let fd = server.evd.fd().unwrap();
    let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let bound = rustix::event::Timespec { tv_sec: HANG.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&bound)).unwrap(), 1);
    assert!(server.evd.poll().unwrap().is_some());
    assert!(server.evd.poll().unwrap().is_none());
    assert!(!readable(&server.evd));
    assert!(fd.as_fd().try_clone_to_owned().is_ok());
}

#[test]
fn an_overflow_raises_an_event_and_ends() {
    let ia = open();
    let events = ia.async_evd(8).unwrap();
    let overflow = Overflow { notify: true, auto_reset: false };
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    let small = Evd::builder(&ia, 1).overflow(overflow).build().unwrap();
    let ep = server.pz.ep(&small).recv_evd(&server.evd).build().unwrap();
    let server = Side { ep, ..server };
    connect(&ia, &client, &server);
    for buffer in client.pz.buffers(64, 1).unwrap() {
        client.ep.post_recv(buffer).unwrap();
    }
    // No thread takes the completions, so the queue becomes full.
    let depth = small.depth();
    for _ in 0..=depth {
        if server.ep.post(Work::send(b"")).is_err() {
            break;
        }
    }
    // It ends the connection, and both ends report it, in any order.
    let expected = (AsyncSource::Evd(small.id()), AsyncEvent::CqOverrun);
    let mut all = std::iter::from_fn(|| events.wait(HANG).unwrap());
    assert!(all.any(|event| (event.source, event.event) == expected));
}

// The connection event reports the same.
#[test]
fn asynchronous_events_of_an_endpoint_name_the_peer_and_the_cause() {
    let ia = open();
    let events = ia.async_evd(8).unwrap();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    connect(&ia, &client, &server);
    // No receive is posted there.
    client.ep.post(Work::send(b"lost")).unwrap();
    for _ in 0..2 {
        let event = events.wait(HANG).unwrap().unwrap();
        let here = event.source == AsyncSource::Ep(client.ep.id());
        let (side, whose) = if here { (&client, "this end's") } else { (&server, "the peer's") };
        let (text, ends) = (event.to_string(), side.ep.ends().unwrap());
        let cause = format!("{whose} Send of 4 octets found no receive posted");
        for part in [&cause, &ends.local.to_string(), &ends.remote.to_string()] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
