//! Tests of the rendezvous: both ends in one process, and ends that send false messages, disconnect or belong
//! to another user.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, bind, connect, listen, send, sendmsg, socket_with,
};

use super::message::{Kind, encode};
use super::*;
use crate::sock::{local_addr, peer_addr};

struct Tcp {
    client: TcpStream,
    _server: TcpStream,
    connection: Connection,
}

fn tcp(at: &str, to: &str) -> Tcp {
    let listener = TcpListener::bind(at).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect((to, port)).unwrap();
    let (server, _) = listener.accept().unwrap();
    let connection = Connection {
        waiting: local_addr(&client).unwrap(),
        dialling: local_addr(&server).unwrap(),
    };
    assert_eq!(peer_addr(&server).unwrap(), connection.waiting);
    Tcp { client, _server: server, connection }
}

const HERE: Place = Place::Abstract("test");

fn memory() -> OwnedFd {
    let memory = memfd_create("same-host", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 4096).unwrap();
    memory
}

fn make() -> Result<(OwnedFd, [OwnedFd; 2]), NotLocal> {
    Ok((memory(), doorbells().unwrap()))
}

fn is_good(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).unwrap().st_size == 4096
}

fn advance(waiting: &mut Waiting) {
    waiting.advance(is_good, &mut |_: BorrowedFd<'_>| Ok(()));
}

fn inode(fd: impl AsFd) -> u64 {
    rustix::fs::fstat(fd).unwrap().st_ino
}

/// What tells eventfds apart: their inode is one.
fn counter_id(bell: &OwnedFd) -> String {
    let about = format!("/proc/self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(bell));
    let about = std::fs::read_to_string(about).unwrap();
    about.lines().find(|line| line.starts_with("eventfd-id:")).unwrap().to_owned()
}

/// Both ends, the usual way.
fn meet(place: &Place, connection: Connection) -> (Met, Met) {
    let mut waiting = Waiting::bind(place.clone(), connection, 1).unwrap();
    advance(&mut waiting);
    let mut dialled = Dialled::dial(place, connection, 2, make).unwrap();
    assert!(dialled.advance().is_none());
    advance(&mut waiting);
    assert_eq!(dialled.advance(), Some(Ok(())));
    advance(&mut waiting);
    assert!(!waiting.is_met());
    let own = dialled.finish().unwrap();
    advance(&mut waiting);
    assert!(waiting.is_met() && waiting.listener().is_none());
    (own, waiting.finish().unwrap())
}

#[test]
fn both_ends_share_memory_and_ring_each_other() {
    for (at, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
        let tcp = tcp(at, to);
        let (one, other) = meet(&HERE, tcp.connection);
        assert_eq!(inode(&one.memory), inode(&other.memory));
        assert_eq!((one.peer_wishes, other.peer_wishes), (1, 2));
        for (from, to) in [(&one, &other), (&other, &one)] {
            assert_eq!(counter_id(&from.peer_doorbell), counter_id(&to.doorbell));
        }
    }
}

#[test]
fn a_directory_serves_as_place_and_keeps_no_file() {
    let directory = std::env::temp_dir().join(format!("same-host-meet-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let place = Place::Directory("test", directory.clone());
    let tcp = tcp("127.0.0.1:0", "127.0.0.1");
    meet(&place, tcp.connection);
    let left = || std::fs::read_dir(&directory).unwrap().count();
    assert_eq!(left(), 0);
    // As a killed process leaves it.
    let file = directory.join(format!("test.{}.{}", place::VERSION, plain(tcp.connection)));
    let stale = raw();
    bind(&stale, &SocketAddrUnix::new(&file).unwrap()).unwrap();
    listen(&stale, 1).unwrap();
    let taken = Waiting::bind(place.clone(), tcp.connection, 1).unwrap_err();
    assert_eq!(taken, NotLocal::NameTaken);
    drop(stale);
    assert_eq!(left(), 1);
    let nobody = Dialled::dial(&place, tcp.connection, 2, make).unwrap_err();
    assert_eq!(nobody, NotLocal::PeerPlain);
    meet(&place, tcp.connection);
    assert_eq!(left(), 0);
    std::fs::remove_dir_all(&directory).unwrap();
    let gone =
        Waiting::bind(Place::Directory("test", PathBuf::from("/nowhere")), tcp.connection, 1);
    assert_eq!(gone.unwrap_err(), NotLocal::Directory);
}

#[test]
fn without_a_peer_there_is_a_reason() {
    let tcp = tcp("127.0.0.1:0", "127.0.0.1");
    let nobody = Dialled::dial(&HERE, tcp.connection, 2, make).unwrap_err();
    assert_eq!(nobody, NotLocal::PeerPlain);
    let mut waiting = Waiting::bind(HERE, tcp.connection, 1).unwrap();
    let taken = Waiting::bind(HERE, tcp.connection, 1).unwrap_err();
    assert_eq!(taken, NotLocal::NameTaken);
    advance(&mut waiting);
    assert_eq!(waiting.finish().unwrap_err(), NotLocal::PeerPlain);
    // A connection without a peer.
    let other = Connection { dialling: "127.0.0.9:9".parse().unwrap(), ..tcp.connection };
    let _waiting = Waiting::bind(HERE, other, 1).unwrap();
    let unknown = Dialled::dial(&HERE, other, 2, make).unwrap_err();
    assert_eq!(unknown, NotLocal::UnknownOwner);
}

fn raw() -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
}

/// The part of a name that belongs to the connection.
fn plain(Connection { waiting, dialling }: Connection) -> String {
    format!("{waiting}-{}", dialling.port())
}

fn name(connection: Connection) -> SocketAddrUnix {
    let name = format!("warpline/{}/test/{}", place::VERSION, plain(connection));
    SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()
}

fn send_message(socket: &OwnedFd, octets: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let octets = [std::io::IoSlice::new(octets)];
    sendmsg(socket, &octets, &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// A caller that sends these messages is dropped with this reason, and the peer can still connect.
fn is_sent_away(due: NotLocal, lie: impl Fn(&OwnedFd, &Connection)) {
    let tcp = tcp("127.0.0.1:0", "127.0.0.1");
    let mut waiting = Waiting::bind(HERE, tcp.connection, 1).unwrap();
    let liar = raw();
    connect(&liar, &name(tcp.connection)).unwrap();
    lie(&liar, &tcp.connection);
    advance(&mut waiting);
    assert_eq!((waiting.last, waiting.strangers), (due, 1));
    let mut dialled = Dialled::dial(&HERE, tcp.connection, 2, make).unwrap();
    advance(&mut waiting);
    assert_eq!(dialled.advance(), Some(Ok(())));
    drop(dialled);
    advance(&mut waiting);
    assert_eq!(waiting.finish().unwrap_err(), NotLocal::PeerLeft);
}

#[test]
fn false_messages_to_the_waiting_end_are_refused() {
    let bells = doorbells().unwrap();
    let (memory, small) = (memory(), memfd_create("small", MemfdFlags::CLOEXEC).unwrap());
    let good = [memory.as_fd(), bells[0].as_fd(), bells[1].as_fd()];
    is_sent_away(NotLocal::PeerMalformed, |liar, _| send_message(liar, b"hello", &[]));
    is_sent_away(NotLocal::PeerMalformed, |liar, _| send_message(liar, &[0xff; 4000], &good));
    is_sent_away(NotLocal::PeerMalformed, |liar, own| {
        send_message(liar, &encode(Kind::Go, 0, own), &[])
    });
    is_sent_away(NotLocal::PeerMalformed, |liar, own| {
        send_message(liar, &encode(Kind::Agree, 0, own), &good)
    });
    is_sent_away(NotLocal::PeerMalformed, |liar, own| {
        send_message(liar, &encode(Kind::Offer, 0, own), &good[..2]);
    });
    is_sent_away(NotLocal::PeerMalformed, |liar, own| {
        send_message(
            liar,
            &encode(Kind::Offer, 0, own),
            &[&good[..], &good[..], &good[..2]].concat(),
        );
    });
    is_sent_away(NotLocal::BadMemory, |liar, own| {
        send_message(liar, &encode(Kind::Offer, 0, own), &[small.as_fd(), good[1], good[2]]);
    });
    // A write to another kind of descriptor could wait.
    let (end, _other) = rustix::pipe::pipe().unwrap();
    is_sent_away(NotLocal::BadMemory, |liar, own| {
        send_message(liar, &encode(Kind::Offer, 0, own), &[good[0], end.as_fd(), good[2]]);
    });
    is_sent_away(NotLocal::OtherConnection, |liar, own| {
        let other = Connection { waiting: own.dialling, dialling: own.waiting };
        send_message(liar, &encode(Kind::Offer, 0, &other), &good);
    });
    is_sent_away(NotLocal::PeerMalformed, |liar, own| {
        send_message(liar, &encode(Kind::Offer, 0, own), &good);
        send_message(liar, &encode(Kind::Offer, 0, own), &good);
    });
    is_sent_away(NotLocal::PeerLeft, |liar, _| {
        rustix::net::shutdown(liar, rustix::net::Shutdown::Both).unwrap();
    });
}

#[test]
fn many_false_callers_end_the_wait() {
    let tcp = tcp("127.0.0.1:0", "127.0.0.1");
    let mut waiting = Waiting::bind(HERE, tcp.connection, 1).unwrap();
    while waiting.listener().is_some() {
        drop({
            let liar = raw();
            connect(&liar, &name(tcp.connection)).unwrap();
            liar
        });
        advance(&mut waiting);
        assert!(waiting.strangers <= 16);
    }
    assert_eq!(waiting.finish().unwrap_err(), NotLocal::PeerLeft);
}

/// A process of this user has bound the peer's name, and sends these messages.
fn is_not_believed(due: NotLocal, lie: impl Fn(&OwnedFd, &Connection)) {
    let tcp = tcp("127.0.0.1:0", "127.0.0.1");
    let squatter = raw();
    bind(&squatter, &name(tcp.connection)).unwrap();
    listen(&squatter, 1).unwrap();
    let mut dialled = Dialled::dial(&HERE, tcp.connection, 2, make).unwrap();
    let accepted = rustix::net::accept(&squatter).unwrap();
    lie(&accepted, &tcp.connection);
    assert_eq!(dialled.advance(), Some(Err(due)));
}

#[test]
fn false_messages_to_the_dialling_end_are_refused() {
    is_not_believed(NotLocal::PeerMalformed, |liar, _| send_message(liar, b"yes", &[]));
    is_not_believed(NotLocal::PeerMalformed, |liar, own| {
        send_message(liar, &encode(Kind::Go, 0, own), &[])
    });
    is_not_believed(NotLocal::PeerRefused, |liar, own| {
        send_message(liar, &encode(Kind::Refuse, 0, own), &[])
    });
    is_not_believed(NotLocal::OtherConnection, |liar, own| {
        let other = Connection { waiting: own.dialling, dialling: own.waiting };
        send_message(liar, &encode(Kind::Agree, 0, &other), &[]);
    });
    // With the offer unread, the end is a reset.
    is_not_believed(NotLocal::PeerLeft, |liar, _| {
        rustix::net::shutdown(liar, rustix::net::Shutdown::Both).unwrap();
    });
}

#[test]
fn a_peer_that_left_before_the_confirmation_is_reported() {
    let tcp = tcp("127.0.0.1:0", "127.0.0.1");
    let mut waiting = Waiting::bind(HERE, tcp.connection, 1).unwrap();
    let mut dialled = Dialled::dial(&HERE, tcp.connection, 2, make).unwrap();
    advance(&mut waiting);
    assert_eq!(dialled.advance(), Some(Ok(())));
    drop(waiting);
    assert_eq!(dialled.finish().unwrap_err(), NotLocal::PeerLeft);
}

#[test]
fn a_confirmation_is_there_once_it_was_sent() {
    let tcp = tcp("127.0.0.1:0", "127.0.0.1");
    let mut waiting = Waiting::bind(HERE, tcp.connection, 1).unwrap();
    let mut dialled = Dialled::dial(&HERE, tcp.connection, 2, make).unwrap();
    advance(&mut waiting);
    assert_eq!(dialled.advance(), Some(Ok(())));
    // The end that dials keeps nothing of the rendezvous.
    drop(dialled.finish().unwrap());
    advance(&mut waiting);
    waiting.finish().unwrap();
}

/// Another user on the name, or at it.
#[test]
fn another_user_is_not_the_peer() {
    const NAME: &str = "SAME_HOST_NAME";
    if let Ok(text) = std::env::var(NAME) {
        // The other user: binds the name or dials it, and stays until its input ends.
        let address = SocketAddrUnix::new_abstract_name(&text.as_bytes()[1..]).unwrap();
        let socket = raw();
        if text.starts_with('b') {
            bind(&socket, &address).unwrap();
            listen(&socket, 4).unwrap();
        } else {
            connect(&socket, &address).unwrap();
            send(&socket, b"hello", SendFlags::NOSIGNAL).unwrap();
        }
        eprintln!("ready");
        let _ = std::io::read_to_string(std::io::stdin());
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return warpline_skip::skip("another_user_is_not_the_peer", warpline_skip::NOT_ROOT);
    }
    let other = |what: &str, connection: Connection| {
        use std::io::{BufRead, BufReader};
        use std::os::unix::process::CommandExt;
        use std::process::{Command, Stdio};
        let program = std::env::temp_dir().join(format!("same-host-{}", std::process::id()));
        warpline_patience::copy_program(std::env::current_exe().unwrap(), &program);
        let mut child = Command::new(&program)
            .args(["--exact", "same_host::tests::another_user_is_not_the_peer", "--nocapture"])
            .env(NAME, format!("{what}warpline/{}/test/{}", place::VERSION, plain(connection)))
            .uid(4321)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line == "ready"));
        std::fs::remove_file(&program).unwrap();
        child
    };
    let squatted = tcp("127.0.0.1:0", "127.0.0.1");
    let mut child = other("b", squatted.connection);
    let error = Dialled::dial(&HERE, squatted.connection, 2, make).unwrap_err();
    assert_eq!(error, NotLocal::OtherUser);
    let taken = Waiting::bind(HERE, squatted.connection, 1).unwrap_err();
    assert_eq!(taken, NotLocal::NameTaken);
    drop(child.stdin.take());
    child.wait().unwrap();

    let dialled = tcp("127.0.0.1:0", "127.0.0.1");
    let mut waiting = Waiting::bind(HERE, dialled.connection, 1).unwrap();
    let mut child = other("d", dialled.connection);
    advance(&mut waiting);
    assert_eq!((waiting.last, waiting.strangers), (NotLocal::OtherUser, 1));
    drop(child.stdin.take());
    child.wait().unwrap();
    drop(dialled.client);
}

/// A message with a TCP socket that has no other reference, whose close waits until the test ends: the returned peer does
/// not read.
fn pass_what_lingers(to: &OwnedFd, octets: &[u8], with: &[BorrowedFd<'_>]) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut socket, &[0; 65_536]).is_ok() {}
    let long = Some(std::time::Duration::from_secs(60));
    rustix::net::sockopt::set_socket_linger(&socket, long).unwrap();
    send_message(to, octets, &[with, &[socket.as_fd()]].concat());
    // In flight there is another reference.
    drop(socket);
    peer
}

/// The process at the other end passes descriptors whose close waits.
#[test]
fn no_end_waits_for_what_it_closes() {
    let bells = doorbells().unwrap();
    let memory = memory();
    let offered = [memory.as_fd(), bells[0].as_fd(), bells[1].as_fd()];
    let mut peers = Vec::new();
    let begun = std::time::Instant::now();
    // With an offer: none, in place of a doorbell, one too many, beside a message that has none, unread.
    for (octets, with) in [(Kind::Offer, 0), (Kind::Offer, 2), (Kind::Offer, 3), (Kind::Go, 0)] {
        let tcp = tcp("127.0.0.1:0", "127.0.0.1");
        let mut waiting = Waiting::bind(HERE, tcp.connection, 1).unwrap();
        let liars = [(); 2].map(|()| {
            let liar = raw();
            connect(&liar, &name(tcp.connection)).unwrap();
            let octets = encode(octets, 0, &tcp.connection);
            peers.push(pass_what_lingers(&liar, &octets, &offered[..with]));
            peers.push(pass_what_lingers(&liar, &octets, &offered[..with]));
            liar
        });
        waiting.advance(is_good, &mut |_: BorrowedFd<'_>| Ok(()));
        assert_eq!(waiting.strangers, 2);
        drop(liars);
    }
    // Of an end that gives up its name while callers wait.
    let one = tcp("127.0.0.1:0", "127.0.0.1");
    let waiting = Waiting::bind(HERE, one.connection, 1).unwrap();
    let liar = raw();
    connect(&liar, &name(one.connection)).unwrap();
    peers.push(pass_what_lingers(&liar, b"x", &[]));
    drop((waiting, liar));
    // Of the end that dials.
    for agrees in [true, false] {
        let tcp = tcp("127.0.0.1:0", "127.0.0.1");
        let squatter = raw();
        bind(&squatter, &name(tcp.connection)).unwrap();
        listen(&squatter, 1).unwrap();
        let mut dialled = Dialled::dial(&HERE, tcp.connection, 2, make).unwrap();
        let accepted = rustix::net::accept(&squatter).unwrap();
        if agrees {
            send_message(&accepted, &encode(Kind::Agree, 0, &tcp.connection), &[]);
        }
        let agree = encode(Kind::Agree, 0, &tcp.connection);
        peers.push(pass_what_lingers(&accepted, &agree, &[]));
        let due = if agrees { Ok(()) } else { Err(NotLocal::PeerMalformed) };
        assert_eq!(dialled.advance(), Some(due));
        drop(dialled);
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "a close waited");
    // Those who close can end.
    drop(peers);
}
