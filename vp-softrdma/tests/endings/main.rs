//! How connections end: gracefully, by Terminate, by reset, by a peer that vanishes, by destruction;
//! and that every posted work request completes exactly once whatever happens.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

#[path = "../common/mod.rs"]
mod common;

mod arrival;
mod memory;
mod peers;
mod reuse;
mod states;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use common::*;
use vp_api::*;
use vp_softrdma::SoftRdma;

/// A QP in RTS as the initiator, with a bare socket at the other end.
fn against_a_socket(params: impl FnOnce(&mut StreamParams)) -> (End, TcpStream) {
    let near = End::new(|_| {});
    let (a, b) = sockets();
    let mut p = StreamParams::new(Role::Initiator);
    p.kick_after = None;
    params(&mut p);
    near.rts(a, p);
    assert_eq!(near.event(), AsyncEvent::Established);
    (near, b)
}

fn terminate_code(event: AsyncEvent) -> (bool, u8, u8, u8) {
    match event {
        AsyncEvent::TerminateSent(t) | AsyncEvent::TerminateReceived(t) => {
            (t.sent, t.layer, t.etype, t.code)
        }
        other => panic!("{other:?}"),
    }
}

fn wait_for_state(end: &End, state: QpState) {
    let begin = std::time::Instant::now();
    while end.state() != state {
        end.cq.wait(Duration::ZERO, Some(Duration::from_millis(1))).unwrap();
        assert!(begin.elapsed() < HANG, "never {state:?}");
    }
}

/// Reads to the FIN, which is then the last thing to come.
fn socket_to_its_end(socket: TcpStream) -> TcpStream {
    read_to_its_end(&socket).expect("a FIN");
    socket
}

fn read_to_its_end(mut socket: &TcpStream) -> io::Result<usize> {
    socket.set_read_timeout(Some(HANG)).unwrap();
    socket.read_to_end(&mut Vec::new())
}

/// Waits until another QP of the same RNIC ends by a deadline that is set now, `after` from now: all earlier
/// deadlines have passed then.
fn pass(near: &End, after: Duration) {
    let bystander = End::on(near.rnic.clone(), CqInit { depth: 4, handler: None }, |_| {});
    let (a, _silent) = sockets();
    let mut params = StreamParams::new(Role::Initiator);
    params.close_timeout = 2 * after;
    bystander.rts(a, params);
    assert_eq!(bystander.event(), AsyncEvent::Established);
    bystander.qp.modify(QpChange::Closing).unwrap();
    assert_eq!(bystander.event(), AsyncEvent::ConnectionLost);
    near.rnic.set_async_handler(Some(near.events.clone()));
}

const SHORT: Duration = Duration::from_millis(20);

/// Number and size of messages that fit into the sockets of a peer that does not read.
const MESSAGES: u64 = 8;
const OCTETS: usize = 64 << 10;

/// A QP whose Sends have completed, though the peer has read nothing of them: they are on the way.
fn sent_and_unread(params: impl FnOnce(&mut StreamParams)) -> (End, Region, TcpStream) {
    let near = End::new(|_| {});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Only little fits into this buffer.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    let mut p = StreamParams::new(Role::Initiator);
    (p.kick_after, p.close_timeout) = (None, HANG);
    params(&mut p);
    near.rts(a, p);
    assert_eq!(near.event(), AsyncEvent::Established);
    let source = near.region(Buffer::pattern(OCTETS, 1));
    for id in 0..MESSAGES {
        near.post(id, SEND, &[source.all()]);
        near.done(id);
    }
    b.set_read_timeout(Some(HANG)).unwrap();
    (near, source, b)
}
