//! Tests of sockets that the kernel refuses to watch: at its limit of watches, or without memory.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use vp_api::Access;

use crate::event::{EvdInit, Event, Stream};
use crate::{
    AcceptParams, Config, ConnEvent, EpInit, Evd, Ia, Listen, ListenInit, LmrInit, Policy, Region,
    Ual,
};

const HANG: Duration = Duration::from_secs(60);

/// No timer closes anything before a test has given up.
fn open() -> (Arc<Ia>, Arc<Evd>) {
    let policy = Policy { request_timeout: 10 * HANG, ..Policy::default() };
    let config = Config { policy, ..Config::default() };
    let ia = Ual::with_config(config).open_any().unwrap();
    let requests = ia.create_evd(EvdInit::new(Stream::Request, 16)).unwrap();
    (ia, requests)
}

fn listen(ia: &Arc<Ia>, requests: &Arc<Evd>) -> crate::Result<Arc<Listen>> {
    ia.listen(ListenInit::new("127.0.0.1:0".parse().unwrap(), requests))
}

/// A connection whose request arrives before it is accepted.
fn send_request(ia: &Ia, address: SocketAddr) -> TcpStream {
    let _held = ia.cm().testing().hold();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
    stream
}

#[test]
fn a_listener_that_cannot_be_watched_is_not_created() {
    let (ia, requests) = open();
    ia.cm().testing().refuse_watches(true);
    let error = listen(&ia, &requests).unwrap_err().to_string();
    assert!(error.contains("listen on 127.0.0.1:"), "{error}");
    assert!(error.contains("No space left"), "{error}");
    ia.cm().testing().refuse_watches(false);
    let listen = listen(&ia, &requests).unwrap();
    let _stream = send_request(&ia, listen.addresses()[0]);
    assert!(matches!(requests.wait(Some(HANG)).unwrap(), Event::Request(_)));
}

#[test]
fn a_request_that_cannot_be_watched_is_accepted_all_the_same() {
    let (ia, requests) = open();
    let listen = listen(&ia, &requests).unwrap();
    ia.cm().testing().refuse_watches(true);
    let mut stream = send_request(&ia, listen.addresses()[0]);
    let Event::Request(request) = requests.wait(Some(HANG)).unwrap() else { panic!() };
    let pz = ia.create_pz().unwrap();
    let memory = Region::new(64).unwrap();
    let _lmr = pz.create_lmr(LmrInit::new(memory.mem_range(), Access::LOCAL)).unwrap();
    let evd = |stream| ia.create_evd(EvdInit::new(stream, 16)).unwrap();
    let (completions, connection) = (evd(Stream::Completion), evd(Stream::Connection));
    let ep = pz.create_ep(EpInit::new(&completions, &connection)).unwrap();
    ep.accept(request.request, AcceptParams::default()).unwrap();
    match connection.wait(Some(HANG)).unwrap() {
        Event::Connection { event, .. } => {
            assert!(matches!(*event, ConnEvent::Established(_)), "{event}");
        }
        other => panic!("{other:?}"),
    }
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
}

// A part of its request has arrived; the rest would never be read.
#[test]
fn a_connection_that_cannot_be_watched_is_dropped() {
    let (ia, requests) = open();
    let listen = listen(&ia, &requests).unwrap();
    ia.cm().testing().refuse_watches(true);
    let mut stream = TcpStream::connect(listen.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.write_all(b"MPA ID").unwrap();
    let ended = stream.read(&mut [0]);
    let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
    assert!(ended.as_ref().map_or_else(reset, |octets| *octets == 0), "{ended:?}");
}

#[test]
fn a_rejection_that_cannot_be_watched_arrives() {
    let (ia, requests) = open();
    let listen = listen(&ia, &requests).unwrap();
    ia.cm().testing().refuse_watches(true);
    let mut stream = send_request(&ia, listen.addresses()[0]);
    let Event::Request(request) = requests.wait(Some(HANG)).unwrap() else { panic!() };
    ia.reject(request.request, b"no").unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert_eq!(&reply[20..], b"no");
}

#[test]
fn a_paused_listener_tries_until_it_is_watched() {
    let (ia, requests) = open();
    let device_events = ia.create_evd(EvdInit::new(Stream::Unaffiliated, 16)).unwrap();
    let listen = listen(&ia, &requests).unwrap();
    let _first = send_request(&ia, listen.addresses()[0]);
    assert!(matches!(requests.wait(Some(HANG)).unwrap(), Event::Request(_)));
    ia.cm().testing().refuse_watches(true);
    ia.cm().testing().resume(listen.id());
    let Event::Unaffiliated { port: None, event } = device_events.wait(Some(HANG)).unwrap() else {
        panic!()
    };
    let (listener, lacks) = (listen.addresses()[0], vp_api::Shortage::Watches);
    assert_eq!(event, vp_api::AsyncEvent::ListenShortage { listener, lacks });
    assert!(event.to_string().contains("max_user_watches"), "{event}");
    ia.cm().testing().refuse_watches(false);
    let _stream = send_request(&ia, listen.addresses()[0]);
    assert!(matches!(requests.wait(Some(HANG)).unwrap(), Event::Request(_)));
    // Reported once, however often it tries.
    assert_eq!(device_events.queued(), 0);
}
