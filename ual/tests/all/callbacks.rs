//! Callbacks: called for every arrival, one call at a time, never after they are detached.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use ual::{Error, Evd, EvdInit, Event, Stream};

use crate::common::{HANG, LOCALHOST, Side, connect, policy, thread_name};

fn software(side: &Side) -> Arc<Evd> {
    side.ia.create_evd(EvdInit::new(Stream::Software, 4096)).unwrap()
}

/// A callback that passes on every event.
fn pass_on(to: &mpsc::Sender<Event>) -> impl Fn(&Arc<Evd>) + Send + Sync + use<> {
    let to = std::sync::Mutex::new(to.clone());
    move |evd| {
        while let Some(event) = evd.dequeue().unwrap() {
            to.lock().unwrap().send(event).unwrap();
        }
    }
}

#[test]
fn a_callback_gets_every_event() {
    let side = Side::new(policy());
    let evd = software(&side);
    let (to, events) = mpsc::channel();
    evd.post_software(0).unwrap();
    evd.attach_callback(Box::new(pass_on(&to))).unwrap();
    assert!(evd.info().callback);
    assert!(matches!(evd.attach_callback(Box::new(|_| {})), Err(Error::CallbackExists)));
    for number in 1..1000 {
        evd.post_software(number).unwrap();
    }
    for expected in 0..1000 {
        let event = events.recv_timeout(HANG).unwrap();
        assert!(matches!(event, Event::Software(number) if number == expected), "{event:?}");
    }
    evd.detach_callback().unwrap();
    assert!(!evd.info().callback);
    evd.post_software(7).unwrap();
    assert!(matches!(evd.wait(Some(HANG)).unwrap(), Event::Software(7)));
    evd.detach_callback().unwrap();
}

// A polling application needs no thread of the library.
#[test]
fn a_poll_finds_completions_while_a_callback_blocks() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let (active, passive) = connect(&client, &server, &server.listen(LOCALHOST));
    // From here on completions go through the staging queue.
    let all = server.ia.create_evd(EvdInit::new(Stream::Aggregate, 0)).unwrap();
    server.completions.set_aggregate(Some(&all)).unwrap();
    server.completions.wait_ready(Some(std::time::Duration::ZERO)).unwrap();
    let busy = software(&server);
    let (entered, inside) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let (entered, gate) = (std::sync::Mutex::new(entered), std::sync::Mutex::new(gate));
    busy.attach_callback(Box::new(move |evd: &Arc<Evd>| {
        evd.dequeue().unwrap();
        entered.lock().unwrap().send(()).unwrap();
        let _ = gate.lock().unwrap().recv();
    }))
    .unwrap();
    busy.post_software(1).unwrap();
    inside.recv_timeout(HANG).unwrap();
    server.post_recv(&passive, 1, 0, 8);
    client.send(&active, 2, 0, 8);
    client.success();
    warpline_patience::until("the completion to be there", || server.completions.queued() == 1);
    assert!(server.completions.dequeue().unwrap().is_some());
    drop(go);
}

// A thread that waits moves completions, and runs no callback; after its wait, callbacks still run.
#[test]
fn a_callback_runs_in_its_thread_while_another_thread_leads() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let (active, passive) = connect(&client, &server, &server.listen(LOCALHOST));
    let all = server.ia.create_evd(EvdInit::new(Stream::Aggregate, 0)).unwrap();
    let waited = software(&server);
    waited.set_aggregate(Some(&all)).unwrap();
    let (to, calls) = mpsc::channel();
    let to = std::sync::Mutex::new(to);
    let callback = move |evd: &Arc<Evd>| {
        while evd.dequeue().unwrap().is_some() {
            to.lock().unwrap().send(thread_name()).unwrap();
        }
    };
    server.completions.attach_callback(Box::new(callback)).unwrap();
    thread::scope(|scope| {
        let leader = scope.spawn(|| all.wait(Some(HANG)));
        for n in 0..200 {
            server.post_recv(&passive, n, 0, 8);
            client.send(&active, n, 0, 8);
            client.success();
            assert_eq!(calls.recv_timeout(HANG).unwrap(), "warpline-events");
            if n == 100 {
                waited.post_software(1).unwrap();
            }
        }
        assert!(matches!(leader.join().unwrap(), Ok(Event::Notification { .. })));
    });
}

// Notified again during a callback, and long after it: each time the callback is called once more.
#[test]
fn events_during_a_callback_cause_another() {
    let side = Side::new(policy());
    let evd = software(&side);
    let (entered, calls) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let (entered, gate) = (std::sync::Mutex::new(entered), std::sync::Mutex::new(gate));
    evd.attach_callback(Box::new(move |evd: &Arc<Evd>| {
        let mut seen = Vec::new();
        while let Some(Event::Software(number)) = evd.dequeue().unwrap() {
            seen.push(number);
        }
        entered.lock().unwrap().send(seen).unwrap();
        gate.lock().unwrap().recv().unwrap();
    }))
    .unwrap();
    for round in 0..10 {
        let numbers = [1, 2, 3].map(|n| 3 * round + n);
        evd.post_software(numbers[0]).unwrap();
        assert_eq!(calls.recv_timeout(HANG).unwrap(), numbers[..1]);
        // It is running, and has taken all events.
        evd.post_software(numbers[1]).unwrap();
        evd.post_software(numbers[2]).unwrap();
        go.send(()).unwrap();
        assert_eq!(calls.recv_timeout(HANG).unwrap(), numbers[1..]);
        go.send(()).unwrap();
    }
    evd.detach_callback().unwrap();
    assert!(calls.try_recv().is_err(), "called without an event");
}

#[test]
fn a_callback_gets_every_completion() {
    const MESSAGES: u64 = 1000;
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    let (to, events) = mpsc::channel();
    server.completions.attach_callback(Box::new(pass_on(&to))).unwrap();
    for number in 0..MESSAGES {
        server.post_recv(&passive, number, 0, 8);
        client.send(&active, number, 0, 8);
        client.success();
        match events.recv_timeout(HANG).unwrap() {
            Event::Completion(completion) => {
                assert_eq!(completion.wr_id & !ual::NOTIFY, number);
            }
            other => panic!("{other:?}"),
        }
    }
    server.completions.detach_callback().unwrap();
}

#[test]
fn an_aggregates_callback_runs_for_its_members() {
    let side = Side::new(policy());
    let all = side.ia.create_evd(EvdInit::new(Stream::Aggregate, 0)).unwrap();
    let own = software(&side);
    own.set_aggregate(Some(&all)).unwrap();
    let (to, events) = mpsc::channel();
    let to = std::sync::Mutex::new(to);
    all.attach_callback(Box::new(move |all| {
        while let Some(Event::Notification { evd }) = all.dequeue().unwrap() {
            to.lock().unwrap().send(evd.dequeue().unwrap()).unwrap();
        }
    }))
    .unwrap();
    own.post_software(5).unwrap();
    assert!(matches!(events.recv_timeout(HANG).unwrap(), Some(Event::Software(5))));
}

#[test]
fn detaching_waits_for_the_running_call() {
    let side = Side::new(policy());
    let evd = software(&side);
    let (begun, wait_begun) = mpsc::channel();
    let (end, wait_end) = mpsc::channel::<()>();
    let channels = std::sync::Mutex::new((begun, wait_end));
    let running = Arc::new(AtomicBool::new(false));
    let inside = running.clone();
    evd.attach_callback(Box::new(move |_| {
        let channels = channels.lock().unwrap();
        inside.store(true, Ordering::SeqCst);
        channels.0.send(()).unwrap();
        channels.1.recv().unwrap();
        inside.store(false, Ordering::SeqCst);
    }))
    .unwrap();
    evd.post_software(1).unwrap();
    wait_begun.recv_timeout(HANG).unwrap();
    thread::scope(|scope| {
        let detacher = scope.spawn(|| {
            evd.detach_callback().unwrap();
            assert!(!running.load(Ordering::SeqCst));
        });
        // It is detached at once, but still running.
        warpline_patience::until("the callback to be removed", || !evd.info().callback);
        assert!(!detacher.is_finished());
        end.send(()).unwrap();
        warpline_patience::within("the callback to be detached", || detacher.join().unwrap());
    });
    // The values that it owned are dropped, too.
    assert_eq!(Arc::strong_count(&running), 1);
}

#[test]
fn a_callback_may_detach_itself() {
    let side = Side::new(policy());
    let evd = software(&side);
    let (to, done) = mpsc::channel();
    let to = std::sync::Mutex::new(to);
    evd.attach_callback(Box::new(move |evd| {
        evd.detach_callback().unwrap();
        to.lock().unwrap().send(evd.attach_callback(Box::new(|_| {}))).unwrap();
    }))
    .unwrap();
    evd.post_software(1).unwrap();
    done.recv_timeout(HANG).unwrap().unwrap();
    evd.close().unwrap();
}

#[test]
fn a_callback_may_close_its_dispatcher_and_a_panic_is_caught() {
    let side = Side::new(policy());
    let (bad, good) = (software(&side), software(&side));
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    bad.attach_callback(Box::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        panic!("a callback that panics, as this test intends");
    }))
    .unwrap();
    let (to, closed) = mpsc::channel();
    let to = std::sync::Mutex::new(to);
    good.attach_callback(Box::new(move |evd| to.lock().unwrap().send(evd.close()).unwrap()))
        .unwrap();
    bad.post_software(1).unwrap();
    bad.post_software(2).unwrap();
    good.post_software(1).unwrap();
    closed.recv_timeout(HANG).unwrap().unwrap();
    assert!(calls.load(Ordering::SeqCst) >= 1);
    assert!(bad.info().callback);
}

#[test]
fn an_adapter_with_a_busy_callback_goes_in_order() {
    let side = Side::new(policy());
    let evd = software(&side);
    evd.attach_callback(Box::new(|evd| while evd.dequeue().unwrap().is_some() {})).unwrap();
    (0..100).for_each(|number| evd.post_software(number).unwrap());
    // The last references are dropped, perhaps in the callback's thread.
    drop((side, evd));
}

#[test]
fn a_threshold_counts_for_callbacks_and_descriptors_alike() {
    let side = Side::new(policy());
    let evd = software(&side);
    evd.set_threshold(2).unwrap();
    let (to, events) = mpsc::channel();
    evd.attach_callback(Box::new(pass_on(&to))).unwrap();
    evd.post_software(1).unwrap();
    assert!(!kal_shim::reactor::readable(evd.fd().unwrap().as_fd()));
    assert!(events.try_recv().is_err());
    evd.post_software(2).unwrap();
    assert!(matches!(events.recv_timeout(HANG).unwrap(), Event::Software(1)));
    assert!(matches!(events.recv_timeout(HANG).unwrap(), Event::Software(2)));
}

// The thread that runs callbacks is notified of completions, too, whatever the criteria.
#[test]
fn a_callback_is_not_called_below_the_threshold() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    server.completions.set_threshold(2).unwrap();
    let (to, calls) = mpsc::channel();
    let to = std::sync::Mutex::new(to);
    let call = move |_: &Arc<Evd>| to.lock().unwrap().send(()).unwrap();
    server.completions.attach_callback(Box::new(call)).unwrap();
    let other = software(&server);
    let (to, passed) = mpsc::channel();
    other.attach_callback(Box::new(pass_on(&to))).unwrap();
    for number in 0..2 {
        server.post_recv(&passive, number, 0, 8);
        client.send(&active, number, 0, 8);
        client.success();
        let queued = number as usize + 1;
        warpline_patience::until("the completion", || server.completions.queued() == queued);
        if number == 0 {
            // After everything that the thread was notified of.
            other.post_software(1).unwrap();
            passed.recv_timeout(HANG).unwrap();
            assert!(calls.try_recv().is_err());
        }
    }
    calls.recv_timeout(HANG).unwrap();
}
