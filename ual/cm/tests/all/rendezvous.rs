//! Peers that send false data, stop, disconnect or die at the rendezvous for a local stream: the connection uses
//! TCP and reports the reason, the peer gets the same MPA frames as without, and others are served meanwhile.
//!
//! `WARPLINE_LOCAL_RUNS` is the number of runs with each false message.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, connect, listen, recv, send, sendmsg, socket_with,
};
use ual_cm::{
    AcceptParams, ConnEvent, ConnectParams, Disconnect, FailReason, NotLocal, PeerToPeer, Policy,
};

use crate::common::{TestEndpoint, as_connectee, next, runs};
use crate::local::{Side, established, is_local, pair_of};

pub(crate) const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x40\x01\0\0";
pub(crate) const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x40\x01\0\0";

const OFFER: u8 = 1;
const AGREE: u8 = 2;
const REFUSE: u8 = 3;
const GO: u8 = 4;

/// A connection: the end that waits at its name, and the one that dials.
#[derive(Clone, Copy)]
pub(crate) struct Ends(pub(crate) SocketAddr, pub(crate) SocketAddr);

/// A message of the rendezvous.
fn message(kind: u8, Ends(waiting, dialling): Ends) -> Vec<u8> {
    let end = |of: SocketAddr| {
        let ip = match of.ip() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            std::net::IpAddr::V6(v6) => v6,
        };
        [&ip.octets()[..], &of.port().to_be_bytes()].concat()
    };
    [&[kind, 0, 0, 0][..], &end(waiting), &end(dialling)].concat()
}

pub(crate) fn unix() -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
}

pub(crate) fn name(Ends(waiting, dialling): Ends) -> SocketAddrUnix {
    let name = format!("warpline/2/mpa/{waiting}-{}", dialling.port());
    SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()
}

fn send_message(socket: &OwnedFd, octets: &[u8]) {
    // The other may have closed.
    let _ = send(socket, octets, SendFlags::NOSIGNAL);
}

pub(crate) fn offer(socket: &OwnedFd, ends: Ends, fds: &[BorrowedFd<'_>]) {
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(fds));
    let octets = message(OFFER, ends);
    let _ = sendmsg(socket, &[IoSlice::new(&octets)], &mut control, SendFlags::NOSIGNAL);
}

fn hears(socket: &OwnedFd) -> Vec<u8> {
    let mut octets = [0; 64];
    let len = recv(socket, &mut octets[..], rustix::net::RecvFlags::empty()).unwrap().1;
    octets[..len].to_vec()
}

pub(crate) fn policy() -> Policy {
    // Revision 1, as the peers here use, and nothing that needs a response.
    Policy { revision: 1, peer_to_peer: PeerToPeer::default(), ..Policy::default() }
}

/// The reason, or that this test was too slow for the other side's time limit.
fn is_due(local: Result<(), NotLocal>, due: NotLocal, what: &str) {
    assert!(local == Err(due) || local == Err(NotLocal::TimedOut), "{what}: {local:?}");
}

pub(crate) fn disconnect_and_reset(side: &Side, endpoint: &TestEndpoint) {
    let qp = endpoint.qp.id();
    side.machine.cm.forget(qp);
    side.machine.rnic.destroy_qp(qp).unwrap();
    side.forget(qp);
}

/// What a peer that is dialled does with its listening socket.
type Lie = fn(&OwnedFd, Ends) -> Option<OwnedFd>;

const OF_WHO_WAITS: &[(&str, NotLocal, Lie)] = &[
    ("does not accept", NotLocal::TimedOut, |_, _| None),
    ("accepts, and says nothing", NotLocal::TimedOut, |at, _| Some(accept(at).unwrap())),
    ("leaves", NotLocal::PeerLeft, |at, _| {
        drop(accept(at).unwrap());
        None
    }),
    ("takes the offer, and leaves", NotLocal::PeerLeft, |at, _| {
        hears(&accept(at).unwrap());
        None
    }),
    ("talks nonsense", NotLocal::PeerMalformed, |at, _| {
        let peer = accept(at).unwrap();
        send_message(&peer, &[0xA5; 4096]);
        Some(peer)
    }),
    ("answers with an offer", NotLocal::PeerMalformed, |at, ends| {
        let peer = accept(at).unwrap();
        send_message(&peer, &message(OFFER, ends));
        Some(peer)
    }),
    ("has the last word", NotLocal::PeerMalformed, |at, ends| {
        let peer = accept(at).unwrap();
        send_message(&peer, &message(GO, ends));
        Some(peer)
    }),
    ("refuses", NotLocal::PeerRefused, |at, ends| {
        let peer = accept(at).unwrap();
        send_message(&peer, &message(REFUSE, ends));
        Some(peer)
    }),
    ("means another connection", NotLocal::OtherConnection, |at, Ends(waiting, dialling)| {
        let peer = accept(at).unwrap();
        send_message(&peer, &message(AGREE, Ends(dialling, waiting)));
        Some(peer)
    }),
];

/// The other side accepts, and dials a peer that sends false data.
#[test]
fn a_false_peer_at_the_name_gets_the_reply_by_tcp() {
    let side = Side::new(policy());
    let listening = side.machine.listener();
    let mut longest = Duration::ZERO;
    for (what, due, lie) in OF_WHO_WAITS {
        for _ in 0..runs() {
            let mut tcp = TcpStream::connect(listening.address).unwrap();
            let ends = Ends(tcp.local_addr().unwrap(), listening.address);
            let liar = unix();
            bind(&liar, &name(ends)).unwrap();
            listen(&liar, 1).unwrap();
            tcp.write_all(REQUEST).unwrap();
            let request = next(&listening.requests, "request");
            let (endpoint, events) = side.machine.endpoint();
            let (begun, params) = (Instant::now(), AcceptParams::default());
            side.machine.cm.accept(&as_connectee(&endpoint), request.request, params).unwrap();
            let _stays = lie(&liar, ends);
            let made = established(next(&events, what));
            longest = longest.max(begun.elapsed());
            is_due(made.local, *due, what);
            assert!(side.local(&endpoint).is_none());
            let mut reply = [0; 20];
            tcp.read_exact(&mut reply).unwrap();
            assert_eq!(&reply[..16], &REPLY[..16], "{what}");
            side.machine.cm.disconnect(&as_connectee(&endpoint), Disconnect::Abrupt).unwrap();
            next(&events, "end");
            disconnect_and_reset(&side, &endpoint);
        }
    }
    println!("longest accept: {longest:?}");
}

/// A peer that is stopped in the rendezvous delays no other.
#[test]
fn others_are_served_while_a_peer_is_silent() {
    let (side, near) = (Side::new(policy()), Side::new(policy()));
    let listening = side.machine.listener();
    let mut silent = Vec::new();
    for _ in 0..runs().min(100) {
        let mut tcp = TcpStream::connect(listening.address).unwrap();
        let liar = unix();
        bind(&liar, &name(Ends(tcp.local_addr().unwrap(), listening.address))).unwrap();
        listen(&liar, 1).unwrap();
        tcp.write_all(REQUEST).unwrap();
        let request = next(&listening.requests, "request");
        let (endpoint, events) = side.machine.endpoint();
        let params = AcceptParams::default();
        side.machine.cm.accept(&as_connectee(&endpoint), request.request, params).unwrap();
        silent.push((tcp, liar, endpoint, events));
        let (pair, active, passive) = pair_of(&near, &side, "127.0.0.1:0");
        is_local(&near, &side, &pair, (active, passive));
    }
    for (_tcp, _liar, _endpoint, events) in &silent {
        assert_eq!(established(next(events, "event")).local, Err(NotLocal::TimedOut));
    }
}

/// A peer that dies during the rendezvous is only an end of connection.
#[test]
fn a_peer_that_dies_at_any_step_ends_the_rendezvous() {
    let side = Side::new(policy());
    let listening = side.machine.listener();
    for step in 0..5 {
        for _ in 0..runs() {
            let mut tcp = TcpStream::connect(listening.address).unwrap();
            let ends = Ends(tcp.local_addr().unwrap(), listening.address);
            let liar = unix();
            bind(&liar, &name(ends)).unwrap();
            listen(&liar, 1).unwrap();
            tcp.write_all(REQUEST).unwrap();
            let request = next(&listening.requests, "request");
            let (endpoint, events) = side.machine.endpoint();
            let params = AcceptParams::default();
            if step == 0 {
                kal_shim::sock::reset_on_close(&tcp).unwrap();
                drop((tcp, liar));
                let accepted =
                    side.machine.cm.accept(&as_connectee(&endpoint), request.request, params);
                // If not, the fault was noticed before.
                if accepted.is_ok() {
                    ends_somehow(&events);
                }
                disconnect_and_reset(&side, &endpoint);
                continue;
            }
            side.machine.cm.accept(&as_connectee(&endpoint), request.request, params).unwrap();
            let dead = match step {
                1 => None,
                2 => Some(accept(&liar).unwrap()),
                3 => {
                    let peer = accept(&liar).unwrap();
                    hears(&peer);
                    Some(peer)
                }
                _ => {
                    let peer = accept(&liar).unwrap();
                    hears(&peer);
                    send_message(&peer, &message(AGREE, ends));
                    Some(peer)
                }
            };
            kal_shim::sock::reset_on_close(&tcp).unwrap();
            drop((tcp, liar, dead));
            ends_somehow(&events);
            disconnect_and_reset(&side, &endpoint);
        }
    }
}

fn ends_somehow(events: &std::sync::mpsc::Receiver<ConnEvent>) {
    match next(events, "event") {
        ConnEvent::Established(_) => {
            let end = next(events, "end");
            assert!(!matches!(end, ConnEvent::Established(_)), "{end}");
        }
        ConnEvent::Failed(_) => {}
        other => panic!("{other}"),
    }
}

/// What a peer that dials does.
type Call = fn(Ends) -> Vec<OwnedFd>;

fn dialled(ends: Ends) -> OwnedFd {
    let caller = unix();
    connect(&caller, &name(ends)).unwrap();
    caller
}

fn bells() -> [OwnedFd; 2] {
    kal_shim::same_host::doorbells().unwrap()
}

fn calls_with(ends: Ends, memory: &OwnedFd, bells: [&OwnedFd; 2]) -> OwnedFd {
    let caller = dialled(ends);
    offer(&caller, ends, &[memory.as_fd(), bells[0].as_fd(), bells[1].as_fd()]);
    caller
}

/// Octets of memory with rings of 65,536.
const RIGHT: u64 = 4096 + 2 * 65_536;

fn sealed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// Offers memory of a size and with seals, with a valid header; it is refused, then truncated.
fn offers(ends: Ends, octets: u64, seals: SealFlags) -> Vec<OwnedFd> {
    let mut about = [0; 12];
    rustix::io::pread(shm_ring::create(65_536).unwrap(), &mut about, 0).unwrap();
    let memory = memfd_create("w", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::io::pwrite(&memory, &about, 0).unwrap();
    rustix::fs::ftruncate(&memory, octets).unwrap();
    rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
    let [one, other] = bells();
    let caller = calls_with(ends, &memory, [&one, &other]);
    is_refused(&caller);
    let shrinks = octets == 0 || !seals.contains(SealFlags::SHRINK);
    assert_eq!(rustix::fs::ftruncate(&memory, 0).is_ok(), shrinks);
    vec![caller]
}

/// The other end refuses an offer like this.
fn is_refused(caller: &OwnedFd) {
    assert_eq!(hears(caller)[0], REFUSE);
}

const OF_WHO_DIALS: &[(&str, NotLocal, Call)] = &[
    ("does not call", NotLocal::PeerPlain, |_| Vec::new()),
    ("says nothing", NotLocal::TimedOut, |ends| vec![dialled(ends)]),
    ("leaves", NotLocal::PeerLeft, |ends| {
        drop(dialled(ends));
        Vec::new()
    }),
    ("talks nonsense", NotLocal::PeerMalformed, |ends| {
        let caller = dialled(ends);
        send_message(&caller, &[0x5A; 4096]);
        is_refused(&caller);
        vec![caller]
    }),
    ("offers nothing", NotLocal::PeerMalformed, |ends| {
        let caller = dialled(ends);
        send_message(&caller, &message(OFFER, ends));
        is_refused(&caller);
        vec![caller]
    }),
    ("begins with the last word", NotLocal::PeerMalformed, |ends| {
        let caller = dialled(ends);
        send_message(&caller, &message(GO, ends));
        is_refused(&caller);
        vec![caller]
    }),
    ("means another connection", NotLocal::OtherConnection, |Ends(waiting, dialling)| {
        let (caller, bells) = (dialled(Ends(waiting, dialling)), bells());
        let memory = shm_ring::create(65_536).unwrap();
        let fds = [memory.as_fd(), bells[0].as_fd(), bells[1].as_fd()];
        offer(&caller, Ends(waiting, "127.0.0.1:1".parse().unwrap()), &fds);
        is_refused(&caller);
        vec![caller]
    }),
    ("offers memory without seals", NotLocal::BadMemory, |ends| {
        offers(ends, RIGHT, SealFlags::empty())
    }),
    ("offers memory that can shrink", NotLocal::BadMemory, |ends| {
        offers(ends, RIGHT, SealFlags::GROW | SealFlags::SEAL)
    }),
    ("offers memory that is empty", NotLocal::BadMemory, |ends| offers(ends, 0, sealed())),
    ("offers memory that is too short", NotLocal::BadMemory, |ends| {
        offers(ends, RIGHT - 1, sealed())
    }),
    ("offers memory that is too long", NotLocal::BadMemory, |ends| {
        offers(ends, RIGHT + 4096, sealed())
    }),
    ("offers a pipe for a bell", NotLocal::BadMemory, |ends| {
        let (memory, [one, _]) = (shm_ring::create(65_536).unwrap(), bells());
        let (read, write) = rustix::pipe::pipe().unwrap();
        let caller = calls_with(ends, &memory, [&one, &write]);
        is_refused(&caller);
        vec![caller, read]
    }),
    ("does not say the last word", NotLocal::TimedOut, |ends| {
        let (memory, [one, other]) = (shm_ring::create(65_536).unwrap(), bells());
        let caller = calls_with(ends, &memory, [&one, &other]);
        assert_eq!(hears(&caller), message(AGREE, ends));
        vec![caller]
    }),
    ("leaves before the last word", NotLocal::PeerLeft, |ends| {
        let (memory, [one, other]) = (shm_ring::create(65_536).unwrap(), bells());
        let caller = calls_with(ends, &memory, [&one, &other]);
        assert_eq!(hears(&caller), message(AGREE, ends));
        Vec::new()
    }),
];

pub(crate) struct Plain {
    pub(crate) tcp: TcpStream,
    pub(crate) ends: Ends,
    pub(crate) endpoint: std::sync::Arc<TestEndpoint>,
    pub(crate) events: std::sync::mpsc::Receiver<ConnEvent>,
}

/// The other side connects, and has sent its request.
pub(crate) fn asked(side: &Side, listener: &TcpListener) -> Plain {
    let (endpoint, events) = side.machine.endpoint();
    let at = listener.local_addr().unwrap();
    side.machine.cm.connect(&as_connectee(&endpoint), ConnectParams::new(at)).unwrap();
    let (mut tcp, from) = listener.accept().unwrap();
    let mut request = [0; 20];
    tcp.read_exact(&mut request).unwrap();
    assert_eq!(&request[..16], &REQUEST[..16]);
    Plain { tcp, ends: Ends(from, at), endpoint, events }
}

#[test]
fn a_false_caller_continues_over_tcp() {
    let side = Side::new(policy());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for (what, due, call) in OF_WHO_DIALS {
        for _ in 0..runs() {
            let Plain { mut tcp, ends, endpoint, events } = asked(&side, &listener);
            let _stay = call(ends);
            tcp.write_all(REPLY).unwrap();
            let made = established(next(&events, what));
            is_due(made.local, *due, what);
            assert!(side.local(&endpoint).is_none());
            side.machine.cm.disconnect(&as_connectee(&endpoint), Disconnect::Abrupt).unwrap();
            next(&events, "end");
            disconnect_and_reset(&side, &endpoint);
        }
    }
}

/// After one false caller the peer can still connect; after many no caller can.
#[test]
fn a_crowd_at_a_name_ends_the_wait() {
    let side = Side::new(policy());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for _ in 0..runs() {
        let Plain { mut tcp, ends, endpoint, events } = asked(&side, &listener);
        let gone = || {
            let caller = unix();
            connect(&caller, &name(ends)).is_err()
        };
        warpline_patience::until("the name to be given up", gone);
        tcp.write_all(REPLY).unwrap();
        assert_eq!(established(next(&events, "event")).local, Err(NotLocal::PeerLeft));
        disconnect_and_reset(&side, &endpoint);
    }
}

/// Both ends agreed on memory, and octets still arrive over TCP.
#[test]
fn octets_by_tcp_beside_a_local_stream_are_malformed() {
    let side = Side::new(policy());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for _ in 0..runs() {
        let Plain { mut tcp, ends, endpoint, events } = asked(&side, &listener);
        let (memory, [one, other]) = (shm_ring::create(65_536).unwrap(), bells());
        let caller = calls_with(ends, &memory, [&one, &other]);
        hears(&caller);
        send_message(&caller, &message(GO, ends));
        tcp.write_all(&[&REPLY[..], &[0; 24]].concat()).unwrap();
        match next(&events, "event") {
            ConnEvent::Failed(error) => {
                assert!(matches!(error.reason, FailReason::Malformed(_)), "{error}");
            }
            other => panic!("{other}"),
        }
        disconnect_and_reset(&side, &endpoint);
    }
}

/// The name is bound already: the end does not wait for the peer.
#[test]
fn with_a_taken_name_the_stream_stays_on_tcp() {
    let side = Side::new(policy());
    for _ in 0..runs() {
        // A port that is known before.
        let free = side.machine.cm.bind(&[crate::common::anywhere()], ual_cm::Serves::Connections);
        let bound = free.unwrap();
        let squatter = unix();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        bind(&squatter, &name(Ends(bound.addresses()[0], at))).unwrap();
        let (endpoint, events) = side.machine.endpoint();
        let params = ConnectParams::new(listener.local_addr().unwrap());
        side.machine.cm.connect_from(&as_connectee(&endpoint), bound, params).unwrap();
        let mut tcp = listener.accept().unwrap().0;
        tcp.write_all(REPLY).unwrap();
        assert_eq!(established(next(&events, "event")).local, Err(NotLocal::NameTaken));
        disconnect_and_reset(&side, &endpoint);
    }
}

/// A disconnect in the middle ends the attempt, and releases the name and the permit.
#[test]
fn an_accept_can_be_cancelled_while_the_peer_is_met() {
    let side = Side::new(policy());
    let listening = side.machine.listener();
    for _ in 0..runs() {
        let mut tcp = TcpStream::connect(listening.address).unwrap();
        let liar = unix();
        bind(&liar, &name(Ends(tcp.local_addr().unwrap(), listening.address))).unwrap();
        listen(&liar, 1).unwrap();
        tcp.write_all(REQUEST).unwrap();
        let request = next(&listening.requests, "request");
        let (endpoint, events) = side.machine.endpoint();
        let params = AcceptParams::default();
        side.machine.cm.accept(&as_connectee(&endpoint), request.request, params).unwrap();
        side.machine.cm.disconnect(&as_connectee(&endpoint), Disconnect::Abrupt).unwrap();
        match next(&events, "event") {
            // It may have been over in this moment.
            ConnEvent::Established(_) => {}
            ConnEvent::Failed(error) => {
                assert_eq!(error.reason, FailReason::Cancelled);
                let mut reply = [0; 20];
                tcp.read_exact(&mut reply).unwrap();
                // Rejected.
                assert_eq!(reply[16] & 0x20, 0x20);
            }
            other => panic!("{other}"),
        }
        disconnect_and_reset(&side, &endpoint);
    }
}
