//! Feature `tokio`: streams and futures, and what happens when they are dropped.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_core::Stream;
use itapi::{
    AcceptParams, ConnEvent, ConnectParams, ConvertParams, Disconnect, EpState, Error, Role, Work,
};
use tokio::runtime::{Builder, Runtime};

use crate::pair::{HANG, Side, open, pair};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs a future until it is done, or panics at a time-out.
fn run<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(async { tokio::time::timeout(HANG, future).await.expect("it ends") })
}

/// Polls once; the future must not be done.
fn poll_once(future: Pin<&mut impl Future>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.poll(&mut context).is_pending());
}

#[test]
fn completions_are_a_stream() {
    let (client, server) = pair();
    for buffer in server.pz.buffers(64, 4).unwrap() {
        server.ep.post_recv(buffer).unwrap();
    }
    run(async {
        let sender = tokio::spawn({
            let (ep, evd) = (client.ep.clone(), client.evd.clone());
            async move {
                let mut sent = evd.stream().unwrap();
                for number in 0..64u32 {
                    ep.post(Work::send(&number.to_be_bytes())).unwrap();
                    sent.next().await.unwrap().check().unwrap();
                }
            }
        });
        let mut received = pin!(server.evd.stream().unwrap());
        for number in 0..64u32 {
            let next = std::future::poll_fn(|context| received.as_mut().poll_next(context));
            let completion = next.await.unwrap().unwrap();
            assert_eq!(completion.into_buffer().unwrap().to_vec(), number.to_be_bytes());
        }
        sender.await.unwrap();
    });
}

#[test]
fn a_dropped_wait_loses_no_completion() {
    let (client, server) = pair();
    for buffer in server.pz.buffers(50, 4).unwrap() {
        server.ep.post_recv(buffer).unwrap();
    }
    run(async {
        let mut stream = server.evd.stream().unwrap();
        let mut seen = 0;
        for sent in 1..=50u32 {
            // Begun, then dropped, before and after the message.
            poll_once(pin!(stream.next()));
            client.ep.post(Work::send(b"x")).unwrap();
            let _ = tokio::time::timeout(Duration::ZERO, std::future::pending::<()>()).await;
            while seen < sent {
                match tokio::time::timeout(Duration::from_micros(50), stream.next()).await {
                    Ok(completion) => {
                        completion.unwrap().check().unwrap();
                        seen += 1;
                    }
                    Err(_elapsed) => drop(stream.next()),
                }
            }
        }
        assert!(server.evd.poll().unwrap().is_none());
    });
}

#[test]
fn two_streams_share_a_dispatcher() {
    let (client, server) = pair();
    for buffer in server.pz.buffers(40, 4).unwrap() {
        server.ep.post_recv(buffer).unwrap();
    }
    run(async {
        let mut count = 0;
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let evd = server.evd.clone();
                tokio::spawn(async move {
                    let (mut stream, mut taken) = (evd.stream().unwrap(), 0);
                    while stream.next().await.unwrap().check().is_ok() {
                        taken += 1;
                    }
                    taken
                })
            })
            .collect();
        for _ in 0..38 {
            client.ep.post(Work::send(b"x")).unwrap();
            tokio::task::yield_now().await;
        }
        // Two receives are outstanding: each task gets one flushed.
        let _sides = tokio::task::spawn_blocking(move || {
            for _ in 0..38 {
                client.success();
            }
            warpline_patience::until("the tasks to take all", || server.evd.queued() == 0);
            client.ep.disconnect().unwrap();
            (client, server)
        })
        .await
        .unwrap();
        for task in tasks {
            count += task.await.unwrap();
        }
        assert_eq!(count, 38);
    });
}

#[test]
fn connecting_accepting_and_ending_are_futures() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    let listen = ia.listen("127.0.0.1:0").unwrap();
    let address = listen.address();
    run(async {
        let accepted = tokio::spawn({
            let ep = server.ep.clone();
            async move {
                let request = listen.request_async().await.unwrap();
                assert_eq!(request.private_data(), b"hello");
                request.accept_async(&ep, AcceptParams::default()).await.unwrap();
                ep.ended_async().await.unwrap()
            }
        });
        let private_data = b"hello".to_vec();
        let params = ConnectParams { private_data, ..ConnectParams::new(address) };
        client.ep.connect_async(params).await.unwrap();
        assert_eq!(client.ep.state(), EpState::Connected);
        client.ep.disconnect_async().await.unwrap();
        let end = accepted.await.unwrap();
        assert!(matches!(end, ConnEvent::Disconnected { by_peer: true, .. }), "{end}");
        // A second call returns the same.
        assert!(matches!(server.ep.ended_async().await, Ok(ConnEvent::Disconnected { .. })));
    });
}

#[test]
fn a_dropped_connect_gives_up_and_the_endpoint_can_connect_again() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    let listen = ia.listen("127.0.0.1:0").unwrap();
    run(async {
        for _ in 0..10 {
            let params = ConnectParams::new(listen.address());
            {
                let mut connect = pin!(client.ep.connect_async(params.clone()));
                poll_once(connect.as_mut());
                // The request may have arrived or not.
                tokio::task::yield_now().await;
            }
            let end = client.ep.ended_async().await.unwrap();
            assert!(!matches!(end, ConnEvent::Established(_)), "{end}");
            client.ep.reset().unwrap();
        }
        // Requests of attempts that were given up may be queued; the last one is ours.
        let serve = tokio::spawn({
            let (listen, ep) = (listen.clone(), server.ep.clone());
            async move {
                loop {
                    let request = listen.request_async().await.unwrap();
                    if request.private_data() != b"stay" {
                        continue;
                    }
                    request.accept_async(&ep, AcceptParams::default()).await.unwrap();
                    break;
                }
            }
        });
        let private_data = b"stay".to_vec();
        let params = ConnectParams { private_data, ..ConnectParams::new(listen.address()) };
        client.ep.connect_async(params).await.unwrap();
        serve.await.unwrap();
    });
}

#[test]
fn a_dropped_accept_leaks_no_connection() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    let listen = ia.listen("127.0.0.1:0").unwrap();
    run(async {
        // Never polled: rejected.
        client.ep.start_connect(ConnectParams::new(listen.address())).unwrap();
        let request = listen.request_async().await.unwrap();
        drop(request.accept_async(&server.ep, AcceptParams::default()));
        let end = client.ep.ended_async().await.unwrap();
        assert!(matches!(end, ConnEvent::Rejected { .. }), "{end}");
        assert_eq!(server.ep.state(), EpState::Unconnected);
        client.ep.reset().unwrap();
        // Polled once: the connection is over, whether or not it was established.
        for _ in 0..10 {
            client.ep.start_connect(ConnectParams::new(listen.address())).unwrap();
            let request = listen.request_async().await.unwrap();
            {
                let mut accept = pin!(request.accept_async(&server.ep, AcceptParams::default()));
                let mut context = Context::from_waker(Waker::noop());
                if accept.as_mut().poll(&mut context).is_ready() {
                    // The attempt was over before the future was dropped.
                    server.ep.start_disconnect(Disconnect::Abrupt).unwrap();
                }
            }
            for side in [&client, &server] {
                let end = side.ep.ended_async().await.unwrap();
                assert!(!matches!(end, ConnEvent::Established(_)), "{end}");
                side.ep.reset().unwrap();
            }
        }
    });
}

#[test]
fn sockets_are_converted_by_futures() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (there, _) = listener.accept().await.unwrap();
        let (here, there) = (here.into_std().unwrap(), there.into_std().unwrap());
        let accepted = tokio::spawn({
            let ep = server.ep.clone();
            async move {
                let accepted = ep.convert_async(there, ConvertParams::new(Role::Responder)).await;
                accepted.unwrap();
            }
        });
        let connected = client.ep.convert_async(here, ConvertParams::new(Role::Initiator)).await;
        connected.unwrap();
        accepted.await.unwrap();
    });
    assert_eq!(server.ep.state(), EpState::Connected);
}

#[test]
fn other_dispatchers_are_streams_too() {
    let ia = open();
    let inbox = ia.software_evd(16).unwrap();
    run(async {
        let poster = std::thread::spawn({
            let inbox = inbox.clone();
            move || (0..100).for_each(|number| while inbox.post(number).is_err() {})
        });
        let mut numbers = inbox.stream().unwrap();
        for number in 0..100 {
            assert_eq!(numbers.next().await.unwrap(), number);
        }
        warpline_patience::within("the poster to end", || poster.join().unwrap());
        poll_once(pin!(numbers.next()));
    });
}

#[test]
fn a_busy_stream_lets_others_run() {
    let ia = open();
    let inbox = ia.software_evd(200).unwrap();
    (0..200).for_each(|number| inbox.post(number).unwrap());
    run(async {
        let mut stream = inbox.stream().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut pauses = 0;
        for _ in 0..200 {
            while pin!(stream.next()).poll(&mut context).is_pending() {
                pauses += 1;
            }
        }
        assert!(pauses >= 2);
    });
}

#[test]
fn outside_a_runtime_a_stream_is_an_error() {
    let ia = open();
    assert!(matches!(ia.evd(4).unwrap().stream(), Err(Error::Argument(_))));
}
