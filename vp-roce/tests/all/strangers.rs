//! A process of another user takes the names by which the processes of this user find one another, connects to them, and
//! sends what whoever closes it must wait for.

use std::io::{IoSlice, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use vp_api::*;

use crate::alone::{beside_strangers, other, part, stranger};
use crate::end::End;

const HERE: &str = "127.0.0.1:0";

/// Longer than a test may take.
const LINGER: Duration = Duration::from_secs(600);

/// A name of root's.
fn name(what: &str) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(format!("warpline-roce/0/{what}").as_bytes()).unwrap()
}

fn socket() -> OwnedFd {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap()
}

/// A connection with octets that its peer does not read, and whose close waits for that.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(HERE).unwrap();
    let mut lingers = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    lingers.set_nonblocking(true).unwrap();
    while lingers.write(&[0; 1 << 16]).is_ok() {}
    lingers.set_nonblocking(false).unwrap();
    (lingers, peer)
}

/// Sends a connection that lingers, and closes it; whether it was sent. If the receiver has closed it before, this process
/// waits: in a thread.
fn bomb(to: OwnedFd) -> bool {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (lingers, _peer) = lingering();
        let fds = [lingers.as_fd()];
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
        // From now on the process that closes it last waits.
        sockopt::set_socket_linger(&lingers, Some(LINGER)).unwrap();
        let question = [IoSlice::new(&[0; 16])];
        let sent = net::sendmsg(&to, &question, &mut beside, SendFlags::NOSIGNAL).is_ok();
        tell.send(sent).unwrap();
        if !sent {
            return sockopt::set_socket_linger(&lingers, Some(Duration::ZERO)).unwrap();
        }
        drop(lingers);
        // The octets are still not read.
        std::thread::park();
    });
    told.recv().unwrap()
}

/// Another user's process: sends to whoever listens at the names, and to whoever connects to a slot that it has taken.
#[test]
fn attacks() {
    if part().as_deref() != Some("attack") {
        return;
    }
    let own = socket();
    net::bind(&own, &name("15")).unwrap();
    net::listen(&own, 64).unwrap();
    std::thread::spawn(move || {
        loop {
            bomb(net::accept(&own).unwrap());
        }
    });
    // Nobody has the lock for long.
    for (what, bombs) in [("0", 10), ("1", 10), ("lock", 2)] {
        let mut queued = 0;
        while queued < bombs {
            let to = socket();
            if net::connect(&to, &name(what)).is_ok() {
                queued += usize::from(bomb(to));
            }
        }
        println!("attacked {what};");
    }
    std::thread::park();
}

/// Another process of this user: it has a connection that stands, and serves new ones.
#[test]
fn serves() {
    if part().as_deref() != Some("serve") {
        return;
    }
    let end = End::new(4096);
    let (standing, new) = (end.listen(HERE), End::new(4096));
    println!("listening {standing} {}", new.listen(HERE));
    end.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&end));
        let mut new = new;
        loop {
            new.recv(1, new.sge(0, 64));
            new.accept().unwrap();
            assert_eq!(new.done().wr_id, 1);
            new.send(2, new.sge(0, 64));
            new.done();
            assert!(matches!(new.event(), NativeEvent::Disconnected { .. }));
            new = new.renewed();
        }
    });
}

/// Returns each message.
fn echo(end: &End) -> ! {
    loop {
        end.recv(1, end.sge(0, 64));
        while end.done().wr_id != 1 {}
        end.send(2, end.sge(0, 64));
    }
}

/// A message there and back.
fn round_trip(end: &End) {
    end.recv(1, end.sge(1024, 64));
    end.send(2, end.sge(0, 64));
    let mut ids = [end.done().wr_id, end.done().wr_id];
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}

/// How long it takes.
fn time<T>(act: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

#[test]
fn what_a_stranger_sends_delays_nobody() {
    const SOON: Duration = Duration::from_millis(100);
    beside_strangers("strangers::what_a_stranger_sends_delays_nobody", || {
        let mut server = other("strangers::serves", "serve");
        let said = server.says("listening");
        let (standing, new) = said.split_once(' ').unwrap();
        let (standing, new): (SocketAddr, SocketAddr) =
            (standing.parse().unwrap(), new.parse().unwrap());
        let stands = End::new(4096);
        stands.connect(standing);
        let mut attacker = stranger("strangers::attacks", "attack");
        let attacked = std::thread::spawn(move || {
            ["0;", "1;", "lock;"].iter().for_each(|what| drop(attacker.says(what)));
            attacker
        });
        let mut times = [const { Vec::new() }; 3];
        while !attacked.is_finished() {
            let fresh = End::new(4096);
            times[0].push(time(|| round_trip(&stands)));
            times[1].push(time(|| fresh.connect(new)));
            // Takes the lock, and asks at the slots.
            times[2].push(time(|| fresh.listen(HERE)));
            round_trip(&fresh);
            fresh.cm.disconnect(fresh.qp.id()).unwrap();
            assert!(matches!(fresh.event(), NativeEvent::Disconnected { .. }));
        }
        for (times, what) in times.iter_mut().zip(["a round trip", "a connection", "listening"]) {
            times.sort_unstable();
            // A machine that is busy delays some.
            let usual = times[times.len() / 2];
            assert!(
                usual < SOON,
                "{what} took {usual:?}, the {} others up to {:?}",
                times.len(),
                times.last()
            );
        }
        drop(attacked.join().unwrap());
    });
}

/// Another user's process: takes the names of its part, and listens there or not.
#[test]
fn takes() {
    let Some(names) = part().and_then(|part| part.strip_prefix("take ").map(str::to_owned)) else {
        return;
    };
    let (listens, names) = names.split_once(' ').unwrap();
    let take = |what: &str| {
        let own = socket();
        net::bind(&own, &name(what)).unwrap();
        if listens == "listening" {
            net::listen(&own, 64).unwrap();
        }
        own
    };
    let _taken: Vec<OwnedFd> = names.split(' ').map(take).collect();
    println!("taken");
    std::thread::park();
}

fn taking(listens: &str, names: &str) -> crate::alone::Other {
    let mut taker = stranger("strangers::takes", &format!("take {listens} {names}"));
    taker.says("taken");
    taker
}

#[test]
fn a_stranger_who_has_a_name_is_named() {
    beside_strangers("strangers::a_stranger_who_has_a_name_is_named", || {
        let end = End::new(64);
        let refused = || {
            let begun = Instant::now();
            let error = end.cm.listen(HERE.parse().unwrap(), 1).unwrap_err();
            (error.detail, begun.elapsed())
        };
        let mut taker = taking("listening", "lock");
        let (error, _) = refused();
        assert!(error.contains("user 65534") && error.contains("warpline-roce/0/lock"), "{error}");
        taker.kill();
        let mut taker = taking("silently", "lock");
        let (error, _) = refused();
        assert!(error.contains("user 65534") && error.contains("warpline-roce/0/lock"), "{error}");
        taker.kill();
        end.listen(HERE);
        // A slot that a stranger has is no neighbour, also if many wait for the stranger.
        let mut taker = taking("listening", "1 2 3");
        let nonblocking = || {
            let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
            net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap()
        };
        while net::connect(nonblocking(), &name("2")).is_ok() {}
        end.listen(HERE);
        let mut server = other("strangers::serves", "serve");
        server.says("listening");
        server.kill();
        taker.kill();
        drop(end);
        let all: Vec<String> = (0..16).map(|slot: u8| slot.to_string()).collect();
        warpline_patience::until("the slot to be free", || net::bind(socket(), &name("0")).is_ok());
        let _taker = taking("listening", &all.join(" "));
        let error = End::new(64).cm.listen(HERE.parse().unwrap(), 1).unwrap_err().detail;
        assert!(error.contains("user 65534") && error.contains("warpline-roce/0/0"), "{error}");
    });
}
