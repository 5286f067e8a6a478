//! Tests of converted sockets, and of requests handed to another listener.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use itapi::{AccessError, ConnEvent, ConvertParams, EpState, Error, Handoff, Role, Work};

use crate::pair::{HANG, Side, open};

/// Two connected sockets.
fn sockets(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    for socket in [&one, &other] {
        socket.set_read_timeout(Some(HANG)).unwrap();
    }
    (one, other)
}

fn params(role: Role, startup: bool) -> ConvertParams {
    ConvertParams { startup, ..ConvertParams::new(role) }
}

// [it_socket_convert]
#[test]
fn a_socket_is_converted_after_a_dialogue() {
    for (address, startup) in [("127.0.0.1:0", true), ("[::1]:0", true), ("127.0.0.1:0", false)] {
        let ia = open();
        let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
        let (mut here, mut there) = sockets(address);
        server.ep.post_recv(server.pz.buffer(8).unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut asked = [0; 7];
                there.read_exact(&mut asked).unwrap();
                assert_eq!(&asked, b"upgrade");
                let last_message = b"switching".to_vec();
                let accept = ConvertParams { last_message, ..params(Role::Responder, startup) };
                server.ep.convert(there, accept).unwrap();
            });
            here.write_all(b"upgrade").unwrap();
            let mut answer = [0; 9];
            here.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"switching");
            client.ep.convert(here, params(Role::Initiator, startup)).unwrap();
            client.ep.post(Work::send(b"rdma")).unwrap();
            client.success();
        });
        assert_eq!(server.success().into_buffer().unwrap().to_vec(), b"rdma");
        assert_eq!(client.ep.state(), EpState::Connected);
    }
}

// [itw_socket_convert]
#[test]
fn private_data_travels_with_a_conversion() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    let (here, there) = sockets("127.0.0.1:0");
    let params_with = |role, octets: &[u8]| ConvertParams {
        private_data: octets.to_vec(),
        ..ConvertParams::new(role)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let accepted = server.ep.convert(there, params_with(Role::Responder, b"pong"));
            assert_eq!(accepted.unwrap().private_data, b"ping");
        });
        let connected = client.ep.convert(here, params_with(Role::Initiator, b"ping"));
        assert_eq!(connected.unwrap().private_data, b"pong");
    });
}

#[test]
fn a_refused_socket_is_returned_and_works() {
    let ia = open();
    let side = Side::new(&ia, |b| b);
    let (here, mut there) = sockets("127.0.0.1:0");
    there.write_all(b"not for rdma").unwrap();
    let mut peeked = [0; 12];
    warpline_patience::until("12 octets", || here.peek(&mut peeked).unwrap() == peeked.len());
    let refused = side.ep.convert(here, ConvertParams::new(Role::Initiator)).unwrap_err();
    assert!(matches!(refused.error, Error::Access(AccessError::Socket(_))), "{}", refused.error);
    let mut here = refused.given.unwrap();
    assert_eq!(side.ep.state(), EpState::Unconnected);
    let mut octets = [0; 12];
    here.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"not for rdma");
    here.write_all(b"fine").unwrap();
    let mut answer = [0; 4];
    there.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"fine");
}

#[test]
fn a_peer_that_disconnects_fails_the_conversion() {
    let ia = open();
    let side = Side::new(&ia, |b| b);
    let (here, there) = sockets("127.0.0.1:0");
    side.ep.start_convert(here, ConvertParams::new(Role::Responder)).unwrap();
    drop(there);
    let end = side.ep.ended(HANG).unwrap().unwrap();
    assert!(matches!(end, ConnEvent::Failed(_)), "{end}");
    side.ep.reset().unwrap();
    assert_eq!(side.ep.state(), EpState::Unconnected);
}

// [it_handoff]
#[test]
fn a_request_moves_to_another_listener() {
    let (ia, another) = (open(), open());
    let client = Side::new(&ia, |b| b);
    let server = Side::new(&another, |b| b);
    let front = ia.listen("127.0.0.1:0").unwrap();
    let back = another.listen("127.0.0.1:0").unwrap();
    let address = front.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = front.request().unwrap();
            // No listener there: the request is returned, and can still be rejected.
            let request = request.handoff(Handoff::new(1)).unwrap_err().given;
            request.handoff(Handoff::new(back.address().port())).unwrap();
            let request = back.request().unwrap();
            assert_eq!(request.private_data(), b"who?");
            assert_eq!(request.details().port, back.address().port());
            request.accept(&server.ep, b"the other one").unwrap();
        });
        let established = client.ep.connect(address, b"who?").unwrap();
        assert_eq!(established.private_data, b"the other one");
    });
}
