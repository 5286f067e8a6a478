//! Tests that the first error of an application reports why its connection ended, which end ended it, and which
//! work request was refused, at both ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use itapi::{
    Access, Addressing, AsyncEvent, ConnEvent, ConnectParams, Disconnect, Error, Ia, Lmr, Policy,
    RemoteRange, RmrContext, WcStatus, Work,
};

use crate::pair::{HANG, Side, connect, open, pair};

/// The first error that a side gets. An RDMA Write that the peer refuses completes with success first.
fn first_error(side: &Side) -> String {
    loop {
        if let Err(error) = side.evd.wait_success(HANG) {
            return error.to_string();
        }
    }
}

/// Posts a work request that the peer refuses; checks the error text here, and the one there.
fn refused(post: impl Fn(&Side, &Lmr), here: &str, there: &str) {
    let (client, server) = pair();
    let board = server.pz.lmr(64).remote_write().register().unwrap();
    refused_by((client, server), &board, post, here, there);
}

fn refused_by(
    (client, server): (Side, Side),
    board: &Lmr,
    post: impl Fn(&Side, &Lmr),
    here: &str,
    there: &str,
) {
    for side in [&client, &server] {
        side.ep.post_recv(side.pz.buffer(8).unwrap()).unwrap();
    }
    post(&client, board);
    let (ours, theirs) = (first_error(&client), first_error(&server));
    assert!(ours.contains("cm-terminated-by-peer: the connection of "), "{ours}");
    assert!(ours.contains(here), "{ours}\nshould contain\n{here}");
    assert!(theirs.contains("cm-terminated: the connection of "), "{theirs}");
    assert!(theirs.contains(there), "{theirs}\nshould contain\n{there}");
    // The connection's event has the same text, at both ends.
    for (side, text) in [(&client, here), (&server, there)] {
        let end = side.ep.ended(HANG).unwrap().unwrap();
        assert!(end.to_string().contains(text), "{end}");
    }
}

#[test]
fn a_write_beyond_a_region_is_described_at_both_ends() {
    let beyond = |client: &Side, board: &Lmr| {
        let mut remote = board.remote();
        remote.len = 4096;
        let source = client.pz.lmr(4096).register().unwrap();
        client.ep.post(Work::write(&source, remote)).unwrap();
    };
    refused(
        beyond,
        "remote access violation: this end's RDMA Write of 4,096 octets at STag 0x",
        "is beyond the region (registered 64 octets, write only) (layer 1, type 1, code 0x01)",
    );
}

#[test]
fn a_read_without_the_right_is_described_at_both_ends() {
    let read = |client: &Side, board: &Lmr| {
        client.ep.post(Work::read(board.remote(), client.pz.buffer(64).unwrap())).unwrap();
    };
    refused(
        read,
        "this end's RDMA Read of 64 octets at STag 0x",
        "the peer's RDMA Read of 64 octets at STag 0x",
    );
    refused(
        read,
        "needs the right REMOTE_READ, which the registration or link of that memory, or the endpoint there, does \
         not grant (layer 0",
        "REMOTE_READ, which the registration or link of that memory does not grant (registered 64 octets, write only)",
    );
}

/// Memory that begins four octets behind a multiple of 8.
#[derive(Debug)]
struct Unaligned(Vec<u8>);

impl AsMut<[u8]> for Unaligned {
    fn as_mut(&mut self) -> &mut [u8] {
        let begin = self.0.as_ptr().align_offset(8) + 4;
        &mut self.0[begin..begin + 64]
    }
}

// RFC 7306 8.2 [EXT-08]
#[test]
fn an_atomic_that_is_not_aligned_or_not_granted_is_described_at_both_ends() {
    let add = |client: &Side, board: &Lmr| {
        let mut remote = board.remote();
        remote.len = 8;
        client.ep.post(Work::fetch_add(remote, 2, client.pz.buffer(8).unwrap())).unwrap();
    };
    // The offset is a multiple of 8, and the memory begins at none, which only the peer knows.
    let sides = pair();
    let memory = Unaligned(vec![0; 80]);
    let board = sides.1.pz.adopt(memory).remote_atomic().zero_based().register().unwrap();
    refused_by(
        sides,
        &board,
        add,
        "this end's atomic operation of 8 octets does not address a multiple of 8 octets",
        "offset 0x0, does not address a multiple of 8 octets (registered 64 octets",
    );
    refused(
        add,
        "needs the right REMOTE_ATOMIC, which the registration or link of that memory, or the endpoint there,",
        "needs the right REMOTE_ATOMIC, which the registration or link of that memory does not grant",
    );
}

#[test]
fn a_send_without_a_receive_is_described_at_both_ends() {
    let (client, server) = pair();
    client.ep.post(Work::send(b"hello")).unwrap();
    let end = server.ep.ended(HANG).unwrap().unwrap().to_string();
    assert!(end.contains("the peer's Send of 5 octets found no receive posted"), "{end}");
    let end = client.ep.ended(HANG).unwrap().unwrap().to_string();
    assert!(end.contains("this end's Send of 5 octets found no receive posted"), "{end}");
}

#[test]
fn a_second_connection_does_not_report_the_end_of_the_first() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    connect(&ia, &client, &server);
    client.ep.post(Work::send(b"no receive")).unwrap();
    for side in [&client, &server] {
        side.ep.ended(HANG).unwrap().unwrap();
        while side.evd.poll().unwrap().is_some() {}
        side.ep.reset().unwrap();
    }
    connect(&ia, &client, &server);
    client.ep.post_recv(client.pz.buffer(8).unwrap()).unwrap();
    server.ep.start_disconnect(Disconnect::Abrupt).unwrap();
    let text = client.evd.wait_success(HANG).unwrap_err().to_string();
    assert!(text.contains("cm-reset: the connection of ") && !text.contains("Send"), "{text}");
}

#[test]
fn requests_flushed_by_an_orderly_end_say_so() {
    let (client, server) = pair();
    client.ep.post_recv(client.pz.buffer(8).unwrap()).unwrap();
    server.ep.disconnect().unwrap();
    match client.evd.wait_success(HANG).unwrap_err() {
        Error::Incomplete { status: WcStatus::Flushed, end: Some(end), .. } => {
            assert!(end.to_string().ends_with(" was closed by the peer"), "{end}");
        }
        other => panic!("{other}"),
    }
    assert!(matches!(client.ep.ended(HANG), Ok(Some(ConnEvent::Disconnected { .. }))));
}

/// A side with a receive posted, which the end of the connection flushes.
fn waiting(ia: &Ia) -> Side {
    let side = Side::new(ia, |b| b);
    side.ep.post_recv(side.pz.buffer(8).unwrap()).unwrap();
    side
}

/// Asserts that the flushed receive of a failed attempt reports the same cause as the caller's error.
fn does_not_connect(ia: &Ia, to: SocketAddr, code: &str) {
    let side = waiting(ia);
    let policy = Policy { connect_timeout: Duration::from_millis(50), ..ia.policy().clone() };
    let text = side.ep.connect_by_policy(to, b"", policy).unwrap_err().to_string();
    assert!(text.starts_with(code), "{text}");
    let flushed = first_error(&side);
    assert!(flushed.ends_with(&text), "{flushed}\nshould end with\n{text}");
    // The endpoint does not keep the cause for its next connection.
    side.ep.reset().unwrap();
    assert_eq!(side.ep.connection_end(), None);
}

#[test]
fn requests_flushed_without_a_connection_say_why() {
    let ia = open();
    let listen = ia.listen("127.0.0.1:0").unwrap();
    does_not_connect(&ia, listen.address(), "cm-reply-timeout: ");
    // A port without a listener.
    does_not_connect(&ia, ([127, 0, 0, 1], 1).into(), "cm-refused: ");
    let listen = ia.listen("127.0.0.1:0").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| listen.request().unwrap().reject(b"").unwrap());
        let side = waiting(&ia);
        let text = side.ep.connect(listen.address(), b"").unwrap_err().to_string();
        let flushed = first_error(&side);
        assert!(text.starts_with("cm-rejected: ") && flushed.ends_with(&text), "{flushed}");
    });
}

#[test]
fn requests_flushed_by_this_end_name_this_end() {
    for how in [Disconnect::Graceful, Disconnect::Abrupt] {
        let (client, _server) = pair();
        client.ep.post_recv(client.pz.buffer(8).unwrap()).unwrap();
        client.ep.start_disconnect(how).unwrap();
        let text = first_error(&client);
        assert!(text.ends_with(" was closed by this end"), "{how:?}: {text}");
    }
}

/// Peers whose process dies, or that send wrong octets, with CRC and without.
#[test]
fn requests_flushed_by_a_dead_peer_say_how_it_ended() {
    let ia = open();
    for (octets, cause) in [
        // An FPDU of 16 octets with a wrong CRC (RFC 5044 4).
        (&[&[0, 16][..], &[0; 22]].concat()[..], "cm-terminated: "),
        // Part of an FPDU, then the end of the stream.
        (&[0, 16, 0][..], "cm-closed-in-work: "),
        (&[][..], "was closed by the peer"),
    ] {
        let (side, listen) = (waiting(&ia), ia.listen("127.0.0.1:0").unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| listen.request().unwrap().accept(&side.ep, b"").unwrap());
            let mut peer = TcpStream::connect(listen.address()).unwrap();
            // Key, flags (CRC), revision, no private data (RFC 5044 7.1).
            peer.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
            peer.read_exact(&mut [0; 20]).unwrap();
            peer.write_all(octets).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            let text = first_error(&side);
            assert!(text.contains(cause) && text.contains("127.0.0.1:"), "{cause} in {text}");
        });
    }
}

#[test]
fn an_asynchronous_event_carries_the_cause() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    connect(&ia, &client, &server);
    let events = ia.async_evd(16).unwrap();
    client.ep.post(Work::send(b"hello")).unwrap();
    let mut texts = Vec::new();
    while texts.len() < 2 {
        match events.wait(HANG).unwrap().map(|event| event.event) {
            Some(AsyncEvent::TerminateSent(t) | AsyncEvent::TerminateReceived(t)) => {
                texts.push(t.to_string());
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(texts.iter().all(|text| text.contains("Send of 5 octets found no")), "{texts:?}");
    let end = client.ep.connection_end().unwrap().to_string();
    assert!(end.contains("the connection of ") && end.contains("found no receive"), "{end}");
}

#[test]
fn a_post_that_the_state_forbids_names_the_state() {
    let new = Side::new(&open(), |ep| ep);
    let text = |side: &Side| match side.ep.post(Work::send(b"x")).unwrap_err() {
        error @ Error::Post { state: Some(_), .. } => error.to_string(),
        error => panic!("{error}"),
    };
    assert_eq!(
        text(&new),
        "cannot post a Send: the endpoint is unconnected; connect or accept first"
    );
    let atomic = Work::fetch_add(
        RemoteRange { context: RmrContext(0), addr: 0, len: 8 },
        2,
        new.pz.buffer(8).unwrap(),
    );
    let refused = new.ep.post(atomic).unwrap_err().to_string();
    assert!(refused.starts_with("cannot post an atomic operation: the endpoint is"), "{refused}");
    let mut two = vec![Work::send(b"x"), Work::send(b"y")];
    let all = new.ep.post_all(&mut two).unwrap_err().to_string();
    assert!(all.contains("the endpoint is unconnected"), "{all}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    new.ep.start_connect(ConnectParams::new(silent.local_addr().unwrap())).unwrap();
    let early = text(&new);
    assert!(early.contains("the endpoint is connecting; wait until it is connected"), "{early}");
}

/// The peer's refusal and its disconnection come together: the first is the cause.
#[test]
fn a_refusal_by_roce_is_the_cause_of_the_end() {
    let ia = Ia::builder().config(itapi::Config::default()).device("vp_roce").open().unwrap();
    for _ in 0..20 {
        let (client, server) = (Side::new(&ia, |ep| ep), Side::new(&ia, |ep| ep));
        connect(&ia, &client, &server);
        let board = server.pz.lmr(8).register().unwrap();
        client.ep.post(Work::write(b"refused", board.remote().slice(0..7).unwrap())).unwrap();
        let end = client.ep.ended(HANG).unwrap().unwrap().to_string();
        assert!(end.contains("needs the right REMOTE_WRITE"), "{end}");
    }
}

/// By streams and by RoCE, whose connection ends by it: not for a message of the peer.
#[test]
fn memory_without_a_local_right_names_it() {
    for device in ["vp_softrdma", "vp_roce"] {
        let ia = Ia::builder().config(itapi::Config::default()).device(device).open().unwrap();
        let (client, server) = (Side::new(&ia, |ep| ep), Side::new(&ia, |ep| ep));
        connect(&ia, &client, &server);
        let memory = server.pz.lmr(8).register().unwrap();
        let (right, by) = (Access::LOCAL_READ, Addressing::Absolute);
        let read_only = memory.share(&server.pz, right, by).unwrap();
        server.ep.post_recv(read_only.whole()).unwrap();
        client.ep.post(Work::send(b"hello")).unwrap();
        let text = first_error(&server);
        assert!(text.contains("lacks the right LOCAL_WRITE, which `Lmr::share`"), "{text}");
        assert!(!text.contains("the other end"), "{device}: {text}");
    }
}

/// It is refused as it is posted, and the connection goes on. Of zero-based memory only the offset counts there, even if
/// the memory begins so that its address is a multiple of 8 (InfiniBand volume 1, 9.4.5).
#[test]
fn an_atomic_that_is_not_aligned_is_called_so_by_the_post() {
    for device in ["vp_softrdma", "vp_roce"] {
        let ia = Ia::builder().config(itapi::Config::default()).device(device).open().unwrap();
        let (client, server) = (Side::new(&ia, |ep| ep), Side::new(&ia, |ep| ep));
        connect(&ia, &client, &server);
        let add = |board: &Lmr, offset: u64| {
            let mut remote = board.remote();
            (remote.addr, remote.len) = (remote.addr + offset, 8);
            client.ep.post(Work::fetch_add(remote, 2, client.pz.buffer(8).unwrap()))
        };
        let is_refused = |board: &Lmr, offset: u64| {
            let error = add(board, offset).unwrap_err().to_string();
            assert!(error.contains("which is no multiple of 8 octets"), "{device}: {error}");
        };
        let board = server.pz.lmr(64).remote_atomic().register().unwrap();
        let zero_based = server.pz.lmr(64).remote_atomic().zero_based().register().unwrap();
        for board in [&board, &zero_based] {
            [1, 4, 7].iter().for_each(|offset| is_refused(board, *offset));
            add(board, 8).unwrap();
            client.evd.wait_success(HANG).unwrap();
        }
        let memory = Unaligned(vec![0; 80]);
        let board = server.pz.adopt(memory).remote_atomic().zero_based().register().unwrap();
        is_refused(&board, 4);
    }
}
