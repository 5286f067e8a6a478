//! Sessions over local streams: their connections are cut from outside, in a network namespace of the test, and the process
//! of the accepting end is killed.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use itapi::{Config, Ia, LocalStreams};
use warpline_channel::{Channel, End, Error, Listener, Options};
use warpline_patience::until;

use crate::killed::{Other, call};
use crate::links::{alone, ip};
use crate::pair::{HANG, TIGHT};
use crate::relay::Random;
use crate::resume::{RESUME, cuts, exchange};

/// An adapter without connections over TCP.
fn local() -> Ia {
    let ia = Ia::builder().config(Config::default());
    ia.policy(|policy| policy.local = LocalStreams::Require).open().unwrap()
}

/// Aborts the connections of a port as the kernel does for an administrator, at one of their ends; false: there was none.
fn abort(end: &str, port: u16) -> bool {
    let filter = format!("{end} = :{port}");
    let output = Command::new("ss").args(["-HtnK", "state", "established", &filter]).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "ss: {errors}");
    !output.stdout.is_empty()
}

/// Whether this kernel aborts a connection when `ss` asks for it.
fn can_abort() -> bool {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let accepted = listener.accept().unwrap();
    let killed = abort("dport", address.port());
    drop(accepted);
    // Else its end is the peer's.
    killed && std::io::Read::read(&mut stream, &mut [0]).is_err()
}

/// Both directions busy over local streams, which are cut again and again.
fn cut_again_and_again(options: Options, large: u64) {
    ip(&[], "link set lo up");
    if !can_abort() {
        return warpline_skip::skip(
            "cuts of local streams",
            "this kernel has no INET_DIAG_DESTROY",
        );
    }
    let ia = local();
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", options).unwrap();
    let address = listener.address();
    let (client, server) = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let client = Channel::connect_with(&ia, address, options).unwrap();
        (client, accepted.join().unwrap())
    });
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let one = scope.spawn(|| exchange(client, [1, 2], large, &stop, &done));
        let other = scope.spawn(|| exchange(server, [2, 1], large, &stop, &done));
        let mut random = Random::new(11);
        for cut in 0..cuts() {
            // Each connection carries some messages.
            let wanted = done.load(Ordering::Relaxed) + 1 + random.below(100);
            until("messages", || {
                let failed = one.is_finished() || other.is_finished();
                failed || done.load(Ordering::Relaxed) >= wanted
            });
            let end = ["sport", "dport"][random.below(2) as usize];
            until("a connection", || {
                one.is_finished() || other.is_finished() || abort(end, address.port())
            });
            assert!(!one.is_finished() && !other.is_finished(), "it ended at cut {cut}");
        }
        stop.store(true, Ordering::SeqCst);
        let (one, other) = (one.join().unwrap(), other.join().unwrap());
        assert_eq!(one, (other.1, other.0));
    });
}

fn cut_in_a_namespace(test: &str, body: fn()) {
    if Command::new("ss").arg("-V").output().is_err() {
        return warpline_skip::skip(test, warpline_skip::missing("iproute2"));
    }
    alone(test, body);
}

#[test]
fn cuts_of_local_streams_lose_nothing() {
    cut_in_a_namespace("local::cuts_of_local_streams_lose_nothing", || {
        cut_again_and_again(RESUME, 1);
    });
}

/// With receives that have room for most messages after a while.
#[test]
fn cuts_of_local_streams_with_long_messages_lose_nothing() {
    cut_in_a_namespace("local::cuts_of_local_streams_with_long_messages_lose_nothing", || {
        cut_again_and_again(Options { slots: 16, large: 8, ..RESUME }, 6);
    });
}

#[test]
fn a_killed_acceptor_is_named_at_once() {
    let ia = local();
    let mut other = Other::resuming();
    let address = other.line("listening at ");
    // For longer than the test waits.
    let options = Options { resume: Some(HANG * 100), ..TIGHT };
    let channel = Channel::connect_with(&ia, &address, options).unwrap();
    (0..20).for_each(|n| call(&channel, n));
    other.kill();
    let error = loop {
        match channel.recv() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let Error::Lost(Some(end)) = &error else { panic!("{error}") };
    let End::Unresumed(unresumed) = &**end else { panic!("{error}") };
    let text = error.to_string();
    // The loss first, and at last that nobody listens: its port may be closed a little later.
    let causes: Vec<_> = unresumed.causes().iter().map(ToString::to_string).collect();
    assert!(causes[0].contains("closed") && causes[0].contains(&address), "{text}");
    let last = &causes[causes.len() - 1];
    assert!(last.contains("connection refused") && last.contains(&address), "{text}");
    // Nobody waited for the session's time.
    assert!(text.contains("the session was not resumed in "), "{text}");
}
