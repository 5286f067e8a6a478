//! A peer without the library that takes part in the rendezvous by hand: offers that are not taken, and memory that it scribbles
//! over. Before an offer is taken TCP goes on; after it nothing hangs, and no memory but the ring is touched.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use warpline_patience::{Guard, until, within};

use crate::program::Random;
use crate::rings::{End, exchange, is_end};
use crate::support::{TempFile, field, inside, without_rings};

const TOTAL: u64 = 1 << 20;

/// A plain end of this process, and one with the library that has connected to it.
fn connected(test: &str, log: &TempFile, way: &str) -> (TcpStream, End) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let end = End::start(inside(test, log), &format!("{port} {way} 1 {TOTAL}"));
    (listener.accept().unwrap().0, end)
}

/// What names a connection.
fn name(stream: &TcpStream) -> String {
    format!("warpline/1/sock/{}-{}", stream.peer_addr().unwrap(), stream.local_addr().unwrap())
}

/// Connects to a name and sends a text with descriptors. False: nobody listens.
fn offer(name: &str, text: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
    if rustix::net::connect(&socket, &address).is_err() {
        return false;
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(&socket, &[IoSlice::new(text)], &mut control, flags).is_ok()
}

/// Memory that is not sealed, of this many octets.
fn memory(octets: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, octets).unwrap();
    fd
}

#[test]
fn offers_that_are_wrong_are_not_taken() {
    let test = "hostile::offers_that_are_wrong_are_not_taken";
    if is_end() || without_rings(test) {
        return;
    }
    let log = TempFile::new();
    let (stream, mut end) = connected(test, &log, "threads");
    let name = name(&stream);
    let done = AtomicBool::new(false);
    let mut taken = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(exchange(&stream, "threads", 1, TOTAL, false), TOTAL);
            done.store(true, Ordering::Release);
        });
        let (small, large) = (memory(4096), memory(4096 + (512 << 10)));
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let right = shm_ring::create(256 << 10).unwrap();
        let [small, large, pipe, right] = [&small, &large, &pipe, &right].map(|fd| fd.as_fd());
        let wrong = format!("{name}1");
        let offers: [(&[u8], &[BorrowedFd<'_>]); 7] = [
            (name.as_bytes(), &[small]),
            (name.as_bytes(), &[large]),
            (name.as_bytes(), &[pipe]),
            (name.as_bytes(), &[]),
            (wrong.as_bytes(), &[right]),
            (b"", &[right]),
            (name.as_bytes(), &[pipe, pipe, pipe, small]),
        ];
        let mut at = 0;
        while !done.load(Ordering::Acquire) {
            let (text, fds) = offers[at % offers.len()];
            if offer(&name, text, fds) {
                at += 1;
            }
            std::thread::yield_now();
        }
        taken = at;
    });
    assert!(taken > 0, "nobody listened");
    assert_eq!(end.told("received"), Some(TOTAL));
    drop(stream);
    assert!(end.ends());
    let text = log.text();
    assert!(text.contains("carried=tcp ring=0+0"), "{text}");
}

/// A connection with octets that its peer does not read, whose last close waits for an hour.
fn lingering(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut lingers = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    lingers.set_nonblocking(true).unwrap();
    while lingers.write(&[0; 1 << 16]).is_ok() {}
    sockopt::set_socket_linger(&lingers, Some(Duration::from_secs(3600))).unwrap();
    (lingers, peer)
}

/// Another user finds the name, and offers what would be right, or descriptors whose close waits: in a message, and in as many as
/// a message can have.
#[test]
fn an_offer_of_another_user_is_not_taken() {
    let test = "hostile::an_offer_of_another_user_is_not_taken";
    if is_end() || without_rings(test) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        warpline_skip::skip("an_offer_of_another_user_is_not_taken", warpline_skip::NOT_ROOT);
        return;
    }
    let log = TempFile::new();
    let (stream, mut end) = connected(test, &log, "threads");
    let name = name(&stream);
    let right = shm_ring::create(256 << 10).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(exchange(&stream, "threads", 1, TOTAL, false), TOTAL);
            done.store(true, Ordering::Release);
        });
        // The rights of this thread alone.
        // SAFETY: a system call.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65533, 65533, 0) }, 0);
        let bombs = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut taken, mut peers) = (false, Vec::new());
        let _guard = Guard::new("the exchange beside another user");
        while !done.load(Ordering::Acquire) {
            taken |= offer(&name, name.as_bytes(), &[right.as_fd()]);
            if taken && peers.len() < 20 {
                let (lingers, peer) = lingering(&bombs);
                if offer(&name, name.as_bytes(), &[lingers.as_fd()]) {
                    peers.push(peer);
                } else {
                    sockopt::set_socket_linger(&lingers, None).unwrap();
                }
            }
            std::thread::yield_now();
        }
        assert!(!peers.is_empty());
        // SAFETY: the same.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 0, 0, 0) }, 0);
        assert!(taken, "nobody listened");
    });
    assert_eq!(end.told("received"), Some(TOTAL));
    drop(stream);
    assert!(end.ends());
    let text = log.text();
    assert!(text.contains("carried=tcp ring=0+0"), "{text}");
}

/// Words of the page that both ends share.
struct Page(*mut u64);

impl Page {
    fn new(memory: &OwnedFd) -> Self {
        let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let shared = rustix::mm::MapFlags::SHARED;
        // SAFETY: a new mapping, which overlaps none.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, access, shared, memory, 0) };
        Self(at.unwrap().cast())
    }

    fn read(&self, word: usize) -> u64 {
        // SAFETY: a word of the page.
        unsafe { self.0.wrapping_add(word % 512).read_volatile() }
    }

    fn write(&self, word: usize, value: u64) {
        // SAFETY: a word of the page.
        unsafe { self.0.wrapping_add(word % 512).write_volatile(value) };
    }
}

/// Whatever the memory contains, and changes to, the other end neither crashes nor hangs.
#[test]
fn a_scribbled_ring_ends_the_connection_at_most() {
    let test = "hostile::a_scribbled_ring_ends_the_connection_at_most";
    if is_end() || without_rings(test) {
        return;
    }
    let mut resets = 0;
    for seed in 0..20 {
        let log = TempFile::new();
        let (mut stream, mut end) = connected(test, &log, "blind");
        let name = name(&stream);
        let memory = shm_ring::create(256 << 10).unwrap();
        let page = Page::new(&memory);
        // Both directions begin with TCP.
        [16, 48].into_iter().for_each(|word| page.write(word, 1 << 52));
        let mut random = Random::new(seed);
        let reader = stream.try_clone().unwrap();
        let reads = std::thread::spawn(move || std::io::copy(&mut &reader, &mut std::io::sink()));
        until("a taken offer", || {
            let _ = stream.write_all(&[7; 4096]);
            offer(&name, name.as_bytes(), &[memory.as_fd()])
        });
        // It uses the memory: it looks at what it would read.
        until("a ring in use", || {
            let _ = stream.write_all(&[7; 100]);
            page.read(16) >> 53 & 1 != 0
        });
        for _ in 0..2000 {
            // The words in use, mostly.
            let word = match random.below(4) {
                0 => random.below(512),
                1 => 16 + random.below(4),
                2 => 48 + random.below(4),
                _ => 32 + random.below(64),
            };
            let value = match random.below(4) {
                0 => random.below(1 << 20) as u64,
                1 => 1 << 53 | random.below(1 << 18) as u64,
                2 => u64::MAX,
                _ => (random.below(1 << 32) as u64) << 32 | random.below(1 << 32) as u64,
            };
            page.write(word, value);
            if stream.write(&[7; 100]).is_err() {
                break;
            }
        }
        drop(stream.shutdown(std::net::Shutdown::Both));
        drop(stream);
        let _ = within("the end of a stream", || reads.join());
        assert!(end.ends(), "seed {seed}");
        let text = log.text();
        let reset = text.lines().find_map(|line| field(line, "reset"));
        assert!([None, Some("ring-corrupt"), Some("sockets-stray")].contains(&reset), "{text}");
        resets += u32::from(reset.is_some());
    }
    assert!(resets > 0, "no ring was found to be corrupt");
}
