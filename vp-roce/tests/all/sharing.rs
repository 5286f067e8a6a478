//! Several processes of one user on one address: they find one another's sockets, each gets its own packets, and one that
//! is killed, at whatever point, disturbs no other.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vp_api::*;
use warpline_patience::until;

use crate::alone::{Other, alone, beside_strangers, other, part, stranger};
use crate::end::{End, pattern};
use crate::ud_end::UdEnd;

const HERE: &str = "127.0.0.1:0";

/// Another process: serves connections one after the other, each with one Send that comes back. It stops at the
/// point that its part names, to be killed there.
#[test]
fn serves() {
    let point = match part() {
        Some(part) if part.starts_with("serve") => part,
        _ => return,
    };
    let at = |here: &str| {
        if point == format!("serve until {here}") {
            println!("there");
            loop {
                std::thread::park();
            }
        }
    };
    let mut end = End::new(4096);
    at("opened");
    let (ud, service) = UdEnd::listening(HERE);
    at("joined");
    let address = end.listen(HERE);
    println!("listening {address} {service}");
    at("listening");
    loop {
        end.recv(1, end.sge(0, 64));
        end.accept().unwrap();
        at("accepted");
        assert_eq!(end.done().wr_id, 1);
        end.send(2, end.sge(0, 64));
        end.done();
        at("replied");
        assert!(matches!(end.event(), NativeEvent::Disconnected { .. }));
        ud.recv(3, 0, 64);
        ud.answer();
        at("resolved");
        assert_eq!(ud.completion().0.wr_id, 3);
        println!("arrived");
        end = end.renewed();
    }
}

/// A process with its two addresses.
struct Server {
    process: Other,
    connections: SocketAddr,
    datagrams: SocketAddr,
}

fn server(part: &str) -> Server {
    let mut process = other("sharing::serves", part);
    let said = process.says("listening");
    let (connections, datagrams) = said.split_once(' ').unwrap();
    let (connections, datagrams) = (connections.parse().unwrap(), datagrams.parse().unwrap());
    Server { process, connections, datagrams }
}

/// A connection and a datagram reach that process, and no other.
fn reach(server: &mut Server, seed: u8) {
    let end = End::new(4096);
    end.recv(1, end.sge(1024, 64));
    end.connect(server.connections);
    end.region.write_at(0, &pattern(64, seed)).unwrap();
    end.send(2, end.sge(0, 64));
    let mut ids = [end.done().wr_id, end.done().wr_id];
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
    assert_eq!(end.read(1024, 64), pattern(64, seed));
    end.cm.disconnect(end.qp.id()).unwrap();
    let ud = UdEnd::new();
    let way = ud.resolve(server.datagrams);
    ud.send(4, way, ud.sge(0, 64), None);
    server.process.says("arrived");
}

#[test]
fn four_processes_share_an_address() {
    alone("sharing::four_processes_share_an_address", || {
        let mut servers: Vec<Server> = (0..3).map(|_| server("serve")).collect();
        for round in 0..3 {
            servers.iter_mut().for_each(|server| reach(server, round));
        }
        // A port that another process has is taken.
        let end = End::new(64);
        let taken = end.cm.listen(servers[1].connections, 1).unwrap_err();
        assert_eq!(taken.status, VpStatus::InUse);
        // The process that made the sockets ends, then another; the rest goes on, and others join.
        for gone in [0, 1] {
            servers[gone].process.kill();
            servers[gone] = server("serve");
            servers.iter_mut().for_each(|server| reach(server, 9));
        }
        // A port is free again when its process is gone.
        let free = servers[2].connections;
        servers[2].process.kill();
        end.cm.listen(free, 1).unwrap();
    });
}

#[test]
fn a_process_that_is_killed_at_any_point_disturbs_no_other() {
    alone("sharing::a_process_that_is_killed_at_any_point_disturbs_no_other", || {
        let mut lasting = server("serve");
        for point in ["opened", "joined"] {
            let mut process = other("sharing::serves", &format!("serve until {point}"));
            process.says("there");
            process.kill();
            reach(&mut lasting, 1);
        }
        for point in ["listening", "accepted", "replied", "resolved"] {
            let mut killed = server(&format!("serve until {point}"));
            let (end, ud) = (End::new(4096), UdEnd::new());
            end.recv(1, end.sge(1024, 64));
            if point != "listening" {
                end.connect(killed.connections);
            }
            if point == "replied" || point == "resolved" {
                end.send(2, end.sge(0, 64));
                end.done();
                end.done();
            }
            if point == "resolved" {
                end.cm.disconnect(end.qp.id()).unwrap();
                ud.resolve(killed.datagrams);
            }
            killed.process.says("there");
            killed.process.kill();
            reach(&mut lasting, 2);
            let mut next = server("serve");
            reach(&mut next, 3);
            next.process.kill();
        }
    });
}

/// A socket for a question to a neighbour.
fn question() -> OwnedFd {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
    net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap()
}

/// The name of a slot.
fn slot(number: u8) -> SocketAddrUnix {
    let user = rustix::process::geteuid().as_raw();
    SocketAddrUnix::new_abstract_name(format!("warpline-roce/{user}/{number}").as_bytes()).unwrap()
}

/// A process that is stopped keeps its slot; who must ask it gets an error that names it, in bounded time.
#[test]
fn a_process_that_does_not_reply_is_named() {
    alone("sharing::a_process_that_does_not_reply_is_named", || {
        let mut stopped = server("serve");
        let end = End::new(64);
        end.listen(HERE);
        let process = stopped.process.id();
        let signal = |name: &str| {
            let sent = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
            assert!(sent.success());
        };
        signal("-STOP");
        until("all threads to be stopped", || {
            let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
            let stat =
                |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat"));
            threads.map(Result::unwrap).map(stat).all(|stat| stat.unwrap().contains(") T "))
        });
        let error = end.cm.listen(HERE.parse().unwrap(), 1).unwrap_err();
        assert!(error.detail.contains(&format!("process {process},")), "{error}");
        // Questions that nobody waits for any more are too many at some time.
        while net::connect(question(), &slot(0)).is_ok() {}
        let error = end.cm.listen(HERE.parse().unwrap(), 1).unwrap_err();
        assert!(error.detail.contains("does not reply to many others"), "{error}");
        signal("-CONT");
        end.listen(HERE);
        reach(&mut stopped, 1);
    });
}

/// A neighbour in the last slot that first ends a connection before the question arrives, as if the asker was slow, and
/// then replies after two seconds. Returns how often it was connected to.
fn slow_neighbour() -> Arc<AtomicU32> {
    let listener = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    net::bind(&listener, &slot(15)).unwrap();
    net::listen(&listener, 1).unwrap();
    let connections = Arc::new(AtomicU32::new(0));
    let count = connections.clone();
    std::thread::spawn(move || {
        loop {
            let asker = net::accept(&listener).unwrap();
            let before = count.fetch_add(1, Relaxed);
            if before == 0 {
                continue;
            }
            let mut question = [0; 16];
            net::recv(&asker, &mut question[..], net::RecvFlags::empty()).unwrap();
            let patience = Timespec { tv_sec: if before == 1 { 2 } else { 0 }, tv_nsec: 0 };
            // Ends early if the asker gives up.
            poll(&mut [PollFd::new(&asker, PollFlags::IN)], Some(&patience)).unwrap();
            let _ = net::send(&asker, &[0; 4], net::SendFlags::NOSIGNAL);
        }
    });
    connections
}

/// A process that is slow is waited for, and asked again if it did not wait for the question.
#[test]
fn a_slow_process_is_waited_for() {
    alone("sharing::a_slow_process_is_waited_for", || {
        let connections = slow_neighbour();
        let end = End::new(64);
        end.listen(HERE);
        let first = connections.swap(2, Relaxed);
        end.listen("127.0.0.2:0");
        assert_eq!(first - 1, connections.load(Relaxed) - 2);
    });
}

/// A queue pair that the application still has keeps no slot that nobody serves.
#[test]
fn a_closed_device_leaves_its_slot() {
    alone("sharing::a_closed_device_leaves_its_slot", || {
        let end = End::new(64);
        end.listen(HERE);
        let _kept = (end.cm.clone(), end.qp.clone());
        drop(end);
        until("the port to be free", || UdpSocket::bind("127.0.0.1:4791").is_ok());
        reach(&mut server("serve"), 1);
    });
}

#[test]
fn a_process_more_than_there_are_slots_is_refused() {
    alone("sharing::a_process_more_than_there_are_slots_is_refused", || {
        let mut all: Vec<Other> = (0..16)
            .map(|_| {
                let mut process = other("sharing::serves", "serve until joined");
                process.says("there");
                process
            })
            .collect();
        // Opening a device takes none.
        let end = End::new(64);
        let error = end.cm.listen(HERE.parse().unwrap(), 1).unwrap_err();
        assert!(error.detail.contains("16 processes of this user"), "{error}");
        all[7].kill();
        end.listen(HERE);
    });
}

/// A process of another user has the port.
#[test]
fn holds() {
    if part().as_deref() != Some("hold") {
        return;
    }
    let end = End::new(64);
    println!("holding {}", end.listen(HERE));
    std::thread::park();
}

#[test]
fn the_user_who_has_an_address_is_named() {
    beside_strangers("sharing::the_user_who_has_an_address_is_named", || {
        let mut stranger = stranger("sharing::holds", "hold");
        stranger.says("holding");
        let end = End::new(64);
        let error = end.cm.listen(HERE.parse().unwrap(), 1).unwrap_err();
        for part in ["4791", "127.0.0.1", "user 65534", "namespace"] {
            assert!(error.detail.contains(part), "{error}");
        }
        stranger.kill();
        end.listen(HERE);
    });
}

/// A listener that stands aside takes no slot of the second half, and not many descriptors.
#[test]
fn a_listener_aside_leaves_room() {
    alone("sharing::a_listener_aside_leaves_room", || {
        let mut all: Vec<Other> = (0..8)
            .map(|_| {
                let mut process = other("sharing::serves", "serve until joined");
                process.says("there");
                process
            })
            .collect();
        let here: SocketAddr = HERE.parse().unwrap();
        let end = End::new(64);
        let error = end.cm.listen_aside(here, 1).unwrap_err();
        assert!(error.detail.contains("8 processes of this user"), "{error}");
        all[7].kill();
        end.cm.listen_aside(here, 1).unwrap();
        // The address is open now, and another one takes 17 descriptors.
        let other = SocketAddr::from(([127, 0, 0, 2], 0));
        let (before, few) = (getrlimit(Resource::Nofile), Some(4 * 16));
        setrlimit(Resource::Nofile, Rlimit { current: few, ..before }).unwrap();
        end.cm.listen_aside(here, 1).unwrap();
        let error = end.cm.listen_aside(other, 1).unwrap_err();
        assert_eq!(error.status, VpStatus::InsufficientResources, "{error}");
        setrlimit(Resource::Nofile, before).unwrap();
        end.cm.listen_aside(other, 1).unwrap();
    });
}
