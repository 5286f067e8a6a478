//! Sessions that are not used as they should be, or not by both ends: each end is told what was wrong, and goes on as it can.

use std::io::Write;
use std::time::Duration;

use itapi::{Ia, LocalStreams};
use warpline_channel::{Channel, Error, Listener, Options};
use warpline_patience::{until, within};

use crate::pair::message;
use crate::relay::{Cut, Relay};
use crate::resume::{RESUME, impatient};

/// Without the option.
const PLAIN: Options = Options { resume: None, ..RESUME };

/// Both ends with their options, through a relay.
fn relayed(ia: &Ia, [client, server]: [Options; 2]) -> (Channel, Channel, Relay) {
    let listener = Listener::bind_with(ia, "127.0.0.1:0", server).unwrap();
    let relay = Relay::start(listener.address(), 0, 1, &[Cut::Reset], 7);
    let (client, server) = meet(ia, &listener, &relay, client);
    (client, server, relay)
}

fn meet(ia: &Ia, listener: &Listener, relay: &Relay, options: Options) -> (Channel, Channel) {
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let client = Channel::connect_with(ia, relay.address(), options).unwrap();
        (client, accepted.join().unwrap())
    })
}

/// From now on the relay leads nowhere, and its connection is cut.
fn cut_off(relay: &Relay, client: &Channel) {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    relay.lead_to(nobody);
    relay.cut(1);
    client.send(b"before the cut").unwrap();
    until("the loss", || client.resumption().is_none_or(|it| !it.connected));
}

#[test]
fn one_end_alone_resumes_nothing() {
    let ia = impatient();
    for options in [[RESUME, PLAIN], [PLAIN, RESUME]] {
        let (client, server, relay) = relayed(&ia, options);
        assert!(client.resumption().is_none() && server.resumption().is_none());
        relay.cut(1);
        client.send(b"perhaps lost").unwrap();
        for end in [&client, &server] {
            let error = loop {
                match end.recv() {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Lost(Some(_))), "{error}");
        }
    }
}

#[test]
fn a_listener_has_sessions_with_and_without() {
    let ia = impatient();
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let relay = Relay::start(listener.address(), 0, 1, &[Cut::Reset], 7);
    let (with, with_there) = meet(&ia, &listener, &relay, RESUME);
    let (without, without_there) = meet(&ia, &listener, &relay, PLAIN);
    relay.cut(2);
    with.send(b"with").unwrap();
    without.send(b"without").unwrap();
    assert_eq!(with_there.recv().unwrap().as_deref(), Some(&b"with"[..]));
    assert_eq!(with.resumption().unwrap().moves, 1);
    assert!(matches!(without.recv().unwrap_err(), Error::Lost(_)));
    assert!(matches!(without_there.recv().unwrap_err(), Error::Lost(_)));
}

#[test]
fn an_end_that_is_dropped_while_away_is_gone() {
    let ia = impatient();
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let relay = Relay::start(listener.address(), 0, 1, &[Cut::Reset], 7);
    let (client, server) = meet(&ia, &listener, &relay, RESUME);
    cut_off(&relay, &client);
    until("the loss there", || server.resumption().is_some_and(|it| !it.connected));
    drop(server);
    relay.lead_to(listener.address());
    // At once, not after the session's time.
    let error = within("the error", || client.recv()).unwrap_err().to_string();
    assert!(error.contains("the peer does not know the session"), "{error}");

    let shortly = Options { resume: Some(Duration::from_millis(200)), ..RESUME };
    let (client, server, relay) = relayed(&ia, [shortly; 2]);
    cut_off(&relay, &client);
    drop(client);
    let error = loop {
        match server.recv() {
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("the session was not resumed within 200ms"), "{error}");
}

/// As many messages of each kind as there are slots are kept, and arrive in order.
#[test]
fn messages_are_kept_while_the_session_is_away_and_calls_are_bounded() {
    let ia = impatient();
    let patience = Some(Duration::from_millis(100));
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let relay = Relay::start(listener.address(), 0, 1, &[Cut::Reset], 7);
    let (client, server) = meet(&ia, &listener, &relay, Options { patience, ..RESUME });
    let (before, mut large) = (client.draft(20).unwrap(), client.draft(5000).unwrap());
    large.write_all(&message(9, 5000)).unwrap();
    cut_off(&relay, &client);
    // Beside the one from before the cut.
    client.send(before).unwrap();
    client.send(large).unwrap();
    client.send(message(1, 200)).unwrap();
    let full = [client.send(message(2, 20)), client.send(vec![0; 5000])];
    for error in full.map(Result::unwrap_err) {
        assert!(matches!(error, Error::Timeout(_)), "{error}");
    }
    assert!(matches!(client.try_send(b"x").unwrap_err(), Error::Full));
    assert!(matches!(client.send(vec![0; 2 << 20]).unwrap_err(), Error::TooLong { .. }));
    assert!(matches!(client.recv().unwrap_err(), Error::Timeout(_)));
    relay.lead_to(listener.address());
    for octets in [b"before the cut", &[][..], &message(9, 5000), &message(1, 200)] {
        assert!(server.recv().unwrap().unwrap()[..] == *octets, "{} octets", octets.len());
    }
}

/// Each thread's messages arrive in its order, each once.
#[test]
fn threads_share_a_session_that_is_cut() {
    let ia = impatient();
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let relay = Relay::start(listener.address(), 0, 20_000, &[Cut::Reset, Cut::Fin], 9);
    let (client, server) = meet(&ia, &listener, &relay, RESUME);
    relay.cut(30);
    const THREADS: u64 = 3;
    let next = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, relay) = (&client, &relay);
            scope.spawn(move || {
                for n in (0_u64..).take_while(|_| relay.made() < 30) {
                    let mut octets = message(n, 16 + n as usize * 7 % 1000);
                    octets[..16].copy_from_slice(&[thread.to_be_bytes(), n.to_be_bytes()].concat());
                    client.send(octets).unwrap();
                }
                client.send([thread.to_be_bytes(), u64::MAX.to_be_bytes()].concat()).unwrap();
            });
        }
        let (mut next, mut ended) = ([0; THREADS as usize], 0);
        while ended < THREADS {
            let got = server.recv().unwrap().unwrap();
            let number = |at| u64::from_be_bytes(got[at..at + 8].try_into().unwrap());
            let (thread, n) = (number(0) as usize, number(8));
            if n == u64::MAX {
                ended += 1;
                continue;
            }
            assert_eq!(n, next[thread], "of thread {thread}");
            assert!(got[16..] == message(n, 16 + n as usize * 7 % 1000)[16..], "message {n}");
            next[thread] += 1;
        }
        next
    });
    assert!(next.iter().all(|count| *count > 0), "{next:?}");
}

/// By RoCE nobody listens there: it is passed over, and its error is told if the other way fails as well.
#[test]
fn a_way_of_another_wire_is_passed_over() {
    let ia = impatient();
    let roce = || {
        let ia = Ia::builder().device("vp_roce").policy(|policy| {
            policy.local = LocalStreams::Off;
            policy.connect_timeout = Duration::from_millis(500);
            policy.answer_timeout = Duration::from_millis(500);
        });
        ia.open().unwrap()
    };
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let address = listener.address();
    let ways = [(roce(), address), (ia.clone(), address)];
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let client = Channel::connect_any(ways, RESUME).unwrap();
        assert_eq!(client.resumption().unwrap().way, 1);
        drop((client, accepted.join().unwrap()));
    });
    drop(listener);
    let error = Channel::connect_any([(roce(), address), (ia, address)], RESUME).unwrap_err();
    let Error::NoWay(causes) = &error else { panic!("{error}") };
    assert!(causes[0].to_string().contains("there is no RoCE listener"), "{error}");
    assert!(causes[1].to_string().contains("nothing listens there"), "{error}");
}
