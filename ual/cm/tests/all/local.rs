//! Local streams: which connections get one, which do not and why; none sends anything for it over TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use ual_cm::{
    AcceptParams, ConnEvent, ConnectParams, ConvertParams, Crc, Disconnect, Established,
    FailReason, LocalStreams, NotLocal, PeerToPeer, Policy,
};
use vp_api::{LocalSide, LocalStream, QpId, RecvWr, Role};

use crate::common::{Machine, TestEndpoint, as_connectee, next, open, send};
use crate::takes::{Taken, Takes};

/// A machine whose provider takes local streams.
pub(crate) struct Side {
    pub(crate) machine: Machine,
    taken: Arc<Taken>,
}

impl Side {
    pub(crate) fn new(policy: Policy) -> Self {
        let rnic = Takes::new(open());
        let taken = rnic.taken.clone();
        Self { machine: Machine::of(Arc::new(rnic), policy), taken }
    }

    fn plain(policy: Policy) -> Self {
        let rnic = Takes::none(open());
        Self { machine: Machine::of(Arc::new(rnic), policy), taken: Arc::default() }
    }

    /// What a test keeps of a queue pair.
    pub(crate) fn forget(&self, qp: QpId) {
        self.taken.of(qp);
    }

    pub(crate) fn local(&self, endpoint: &TestEndpoint) -> Option<LocalStream> {
        Some(self.taken.of(endpoint.qp.id())?.0)
    }
}

fn with(local: LocalStreams) -> Policy {
    Policy { local, ..Policy::default() }
}

/// Both ends of one connection.
pub(crate) struct Pair {
    pub(crate) active: (Arc<TestEndpoint>, Receiver<ConnEvent>),
    pub(crate) passive: (Arc<TestEndpoint>, Receiver<ConnEvent>),
}

/// Connects; returns the event of each end.
pub(crate) fn pair_of(near: &Side, far: &Side, at: &str) -> (Pair, ConnEvent, ConnEvent) {
    let bound = [at.parse().unwrap()];
    let bound = far.machine.cm.bind(&bound, ual_cm::Serves::Connections).unwrap();
    let listener = far.machine.listener_of(bound, |_| true);
    let pair = Pair { active: near.machine.endpoint(), passive: far.machine.endpoint() };
    near.machine
        .cm
        .connect(&as_connectee(&pair.active.0), ConnectParams::new(listener.address))
        .unwrap();
    let request = next(&listener.requests, "request");
    far.machine
        .cm
        .accept(&as_connectee(&pair.passive.0), request.request, AcceptParams::default())
        .unwrap();
    let passive = next(&pair.passive.1, "event of the passive end");
    let active = next(&pair.active.1, "event of the active end");
    far.machine.cm.unlisten(listener.id);
    (pair, active, passive)
}

pub(crate) fn established(event: ConnEvent) -> Established {
    match event {
        ConnEvent::Established(made) => made,
        other => panic!("{other}"),
    }
}

fn talk(near: &Side, far: &Side, pair: &Pair) {
    let (active, passive) = (&pair.active.0, &pair.passive.0);
    for (from, from_at, to, to_at) in [(active, near, passive, far), (passive, far, active, near)] {
        to.qp.post_recv(&[RecvWr { wr_id: 5, sgl: &[] }]).unwrap();
        send(from);
        assert_eq!(from_at.machine.completion().wr_id, 7);
        assert_eq!(to_at.machine.completion().wr_id, 5);
    }
}

fn inode(fd: impl AsFd) -> u64 {
    let file = std::fs::File::from(fd.as_fd().try_clone_to_owned().unwrap());
    std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap())
}

/// Both ends have the same memory, from different sides, and the octets flow.
pub(crate) fn is_local(near: &Side, far: &Side, pair: &Pair, events: (ConnEvent, ConnEvent)) {
    assert_eq!(established(events.0).local, Ok(()));
    assert_eq!(established(events.1).local, Ok(()));
    let one = near.local(&pair.active.0).expect("a local stream");
    let other = far.local(&pair.passive.0).expect("a local stream");
    assert_eq!((one.side, other.side), (LocalSide::Other, LocalSide::Maker));
    assert_eq!(inode(&one.memory), inode(&other.memory));
    assert_eq!(shm_ring::verify(&one.memory).unwrap(), 256 << 10);
    talk(near, far, pair);
}

fn is_tcp(near: &Side, far: &Side, at: &str, due: (NotLocal, NotLocal)) {
    let (pair, active, passive) = pair_of(near, far, at);
    assert_eq!(established(active).local, Err(due.0));
    assert_eq!(established(passive).local, Err(due.1));
    assert!(near.local(&pair.active.0).is_none() && far.local(&pair.passive.0).is_none());
    talk(near, far, &pair);
}

#[test]
fn both_ends_on_this_host_have_a_local_stream() {
    let (near, far) = (Side::new(Policy::default()), Side::new(Policy::default()));
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let (pair, active, passive) = pair_of(&near, &far, at);
        is_local(&near, &far, &pair, (active, passive));
    }
}

#[test]
fn every_start_up_has_it() {
    let none = PeerToPeer::default();
    let rtr = |send, write, read| PeerToPeer { send, write, read };
    for policy in [
        Policy { revision: 1, ..Policy::default() },
        Policy { peer_to_peer: none, ..Policy::default() },
        Policy { peer_to_peer: rtr(true, false, false), ..Policy::default() },
        Policy { peer_to_peer: rtr(false, true, false), ..Policy::default() },
        Policy { peer_to_peer: rtr(false, false, true), ..Policy::default() },
        with(LocalStreams::Require),
    ] {
        let (near, far) = (Side::new(policy.clone()), Side::new(policy));
        let (pair, active, passive) = pair_of(&near, &far, "127.0.0.1:0");
        is_local(&near, &far, &pair, (active, passive));
    }
}

#[test]
fn an_ipv4_address_in_an_ipv6_socket_is_the_same() {
    let (near, far) = (Side::new(Policy::default()), Side::new(Policy::default()));
    let bound = ["[::]:0".parse().unwrap()];
    let bound = far.machine.cm.bind(&bound, ual_cm::Serves::Connections).unwrap();
    let listener = far.machine.listener_of(bound, |_| true);
    let pair = Pair { active: near.machine.endpoint(), passive: far.machine.endpoint() };
    let at = SocketAddr::new("127.0.0.1".parse().unwrap(), listener.address.port());
    near.machine.cm.connect(&as_connectee(&pair.active.0), ConnectParams::new(at)).unwrap();
    let request = next(&listener.requests, "request");
    let accept = AcceptParams::default();
    far.machine.cm.accept(&as_connectee(&pair.passive.0), request.request, accept).unwrap();
    let passive = next(&pair.passive.1, "event");
    let active = next(&pair.active.1, "event");
    is_local(&near, &far, &pair, (active, passive));
}

/// CRCs in shared memory only where an end requires them; markers never.
#[test]
fn crc_is_on_where_one_end_requires_it() {
    for (near_crc, far_crc, due) in [
        (Crc::Prefer, Crc::Prefer, false),
        (Crc::Require, Crc::Prefer, true),
        (Crc::Prefer, Crc::Require, true),
        (Crc::Off, Crc::Off, false),
    ] {
        let markers = ual_cm::Markers::Prefer;
        let policy = |crc| Policy { crc, markers, ..Policy::default() };
        let (near, far) = (Side::new(policy(near_crc)), Side::new(policy(far_crc)));
        let (pair, active, passive) = pair_of(&near, &far, "127.0.0.1:0");
        for (side, endpoint, event) in
            [(&near, &pair.active.0, active), (&far, &pair.passive.0, passive)]
        {
            let made = established(event);
            assert_eq!((made.crc, made.markers_tx, made.markers_rx), (due, false, false));
            let (_, params) = side.taken.of(endpoint.qp.id()).unwrap();
            assert_eq!((params.crc, params.markers_tx, params.markers_rx), (due, false, false));
        }
        talk(&near, &far, &pair);
    }
}

#[test]
fn an_end_that_does_not_want_one_has_tcp_with_the_reason() {
    let at = "127.0.0.1:0";
    let auto = || Side::new(Policy::default());
    let off = || Side::new(with(LocalStreams::Off));
    let plain = || Side::plain(Policy::default());
    use NotLocal::{PeerPlain, Provider};
    is_tcp(&auto(), &off(), at, (PeerPlain, NotLocal::Policy));
    is_tcp(&off(), &auto(), at, (NotLocal::Policy, PeerPlain));
    is_tcp(&auto(), &plain(), at, (PeerPlain, Provider));
    is_tcp(&plain(), &auto(), at, (Provider, PeerPlain));
    let none = || Side::new(Policy { local_streams: 0, ..Policy::default() });
    is_tcp(&none(), &auto(), at, (NotLocal::Limit, PeerPlain));
    is_tcp(&auto(), &none(), at, (PeerPlain, NotLocal::Limit));
}

fn failed(event: ConnEvent) -> FailReason {
    match event {
        ConnEvent::Failed(error) => {
            assert!(error.to_string().contains("cm-no-local-stream"), "{error}");
            error.reason
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_end_that_demands_one_has_no_connection_without() {
    let (auto, off) = (Side::new(Policy::default()), Side::new(with(LocalStreams::Off)));
    let (demanding, at) = (Side::new(with(LocalStreams::Require)), "127.0.0.1:0");
    let lacks = |why| FailReason::NoLocalStream(why);
    // The peer accepted the request, so it gets an event for a connection that ends.
    let (_pair, active, passive) = pair_of(&demanding, &off, at);
    assert_eq!(failed(active), lacks(NotLocal::PeerPlain));
    established(passive);
    // The peer is rejected.
    let (_pair, active, passive) = pair_of(&off, &demanding, at);
    assert!(matches!(active, ConnEvent::Rejected { .. }), "{active}");
    assert_eq!(failed(passive), lacks(NotLocal::PeerPlain));
    let (pair, active, passive) = pair_of(&auto, &demanding, at);
    is_local(&auto, &demanding, &pair, (active, passive));
    // Nothing is sent where the reason is known before.
    let without = Side::plain(with(LocalStreams::Require));
    let listener = TcpListener::bind(at).unwrap();
    let (endpoint, events) = without.machine.endpoint();
    let params = ConnectParams::new(listener.local_addr().unwrap());
    without.machine.cm.connect(&as_connectee(&endpoint), params).unwrap();
    assert_eq!(failed(next(&events, "event")), lacks(NotLocal::Provider));
    let mut octets = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut octets).unwrap();
    assert_eq!(octets, b"");
}

/// An end releases its permit when its stream has ended.
#[test]
fn places_are_released() {
    // Other tests of this process have streams, too. On a busy machine an end that does not demand one has TCP now and then.
    let policy = Policy { local_streams: 100, ..with(LocalStreams::Require) };
    let (near, far) = (Side::new(policy.clone()), Side::new(policy));
    for _ in 0..60 {
        let (pair, active, passive) = pair_of(&near, &far, "127.0.0.1:0");
        assert_eq!(established(active).local, Ok(()));
        assert_eq!(established(passive).local, Ok(()));
        near.machine.cm.disconnect(&as_connectee(&pair.active.0), Disconnect::Graceful).unwrap();
        next(&pair.active.1, "end");
        next(&pair.passive.1, "end");
    }
}

fn sockets() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    for socket in [&one, &other] {
        socket.set_nonblocking(true).unwrap();
    }
    (one.into(), other.into())
}

fn convert(at: &Side, endpoint: &Arc<TestEndpoint>, socket: OwnedFd, role: Role, startup: bool) {
    let params = ConvertParams { startup, ..ConvertParams::new(role) };
    at.machine.cm.convert(&as_connectee(endpoint), socket, params).unwrap();
}

fn waits(address: SocketAddr) -> bool {
    let names = std::fs::read_to_string("/proc/net/unix").unwrap();
    names.lines().any(|line| line.contains(&format!("@warpline/2/bare/{address}-")))
}

#[test]
fn converted_sockets_have_it() {
    for startup in [true, false] {
        let (near, far) = (Side::new(Policy::default()), Side::new(Policy::default()));
        let pair = Pair { active: near.machine.endpoint(), passive: far.machine.endpoint() };
        let (one, other) = sockets();
        let address = TcpStream::from(other.try_clone().unwrap()).local_addr().unwrap();
        convert(&far, &pair.passive.0, other, Role::Responder, startup);
        if !startup {
            warpline_patience::until("the end that waits", || waits(address));
        }
        convert(&near, &pair.active.0, one, Role::Initiator, startup);
        let active = next(&pair.active.1, "event of the end that begins");
        let passive = next(&pair.passive.1, "event of the end that waits");
        assert_eq!(established(active).local, Ok(()));
        assert_eq!(established(passive).local, Ok(()));
        let one = near.local(&pair.active.0).expect("a local stream");
        let other = far.local(&pair.passive.0).expect("a local stream");
        assert_eq!(inode(&one.memory), inode(&other.memory));
        // The end that connects at the rendezvous allocates the memory.
        assert_eq!(one.side == LocalSide::Maker, !startup);
        assert_ne!(one.side, other.side);
    }
}

#[test]
fn without_start_up_an_end_that_begins_before_its_peer_has_tcp() {
    let (near, far) = (Side::new(Policy::default()), Side::new(Policy::default()));
    let pair = Pair { active: near.machine.endpoint(), passive: far.machine.endpoint() };
    let (one, other) = sockets();
    convert(&near, &pair.active.0, one, Role::Initiator, false);
    let made = established(next(&pair.active.1, "event of the end that begins"));
    assert_eq!(made.local, Err(NotLocal::PeerPlain));
    send(&pair.active.0);
    convert(&far, &pair.passive.0, other, Role::Responder, false);
    pair.passive.0.qp.post_recv(&[RecvWr { wr_id: 5, sgl: &[] }]).unwrap();
    let made = established(next(&pair.passive.1, "event of the end that waits"));
    assert_eq!(made.local, Err(NotLocal::PeerPlain));
    assert_eq!(far.machine.completion().wr_id, 5);
}

/// A peer without local streams gets the octets that it would get with `local = "off"`, and its own octets
/// have the same effect: the request of a side that connects, and the reply of one that accepts.
#[test]
fn a_plain_peer_sees_the_same_octets() {
    let reply = b"MPA ID Rep Frame\x40\x01\0\0";
    let ask = |local| {
        let side = Side::new(Policy { revision: 1, ..with(local) });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (endpoint, events) = side.machine.endpoint();
        let params = ConnectParams::new(listener.local_addr().unwrap());
        side.machine.cm.connect(&as_connectee(&endpoint), params).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let mut request = vec![0; 20];
        peer.read_exact(&mut request).unwrap();
        peer.write_all(reply).unwrap();
        let made = established(next(&events, "event"));
        assert!(made.local.is_err());
        send(&endpoint);
        let mut fpdu = vec![0; 24];
        peer.read_exact(&mut fpdu).unwrap();
        drop((side.machine.cm.disconnect(&as_connectee(&endpoint), Disconnect::Abrupt), endpoint));
        let mut rest = Vec::new();
        let _ = peer.read_to_end(&mut rest);
        (request, fpdu, rest)
    };
    let answer = |local| {
        let side = Side::new(with(local));
        let listener = side.machine.listener();
        let mut peer = TcpStream::connect(listener.address).unwrap();
        peer.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
        let request = next(&listener.requests, "request");
        let (endpoint, events) = side.machine.endpoint();
        let accept = AcceptParams::default();
        side.machine.cm.accept(&as_connectee(&endpoint), request.request, accept).unwrap();
        let made = established(next(&events, "event"));
        assert!(made.local.is_err());
        let mut reply = vec![0; 20];
        peer.read_exact(&mut reply).unwrap();
        reply
    };
    assert_eq!(ask(LocalStreams::Auto), ask(LocalStreams::Off));
    assert_eq!(answer(LocalStreams::Auto), answer(LocalStreams::Off));
}
