//! Two processes with the library exchange octets at the same time in both directions: by blocking calls of two threads, poll,
//! select, epoll by level and by edge. All octets arrive, in order, most by the ring; also when an end is stopped for a
//! while. An end whose peer is killed notices, and has got no octet that was not sent before.

use std::ffi::c_int;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::ptr::null_mut;

use warpline_patience::seeds::play;
use warpline_patience::within;

use crate::program::Random;
use crate::support::{TempFile, field, inside, is_inside, without_rings};

const ROLE: &str = "WARPLINE_SOCKETS_ROLE";
/// Octets in each direction.
const TOTAL: u64 = 1 << 20;
/// For ever: until the peer is killed.
const ENDLESS: u64 = u64::MAX;

const WAYS: [&str; 5] = ["threads", "poll", "select", "level", "edge"];

/// The octet at a place of the stream in a direction.
fn octet(seed: u64, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ (at >> 16) as u8 ^ seed as u8
}

/// One end's progress.
struct Stream {
    fd: c_int,
    random: Random,
    seed: u64,
    sent: u64,
    received: u64,
    total: u64,
    buffer: Vec<u8>,
}

/// What a call did.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Did {
    Moved,
    Waits,
    Ended,
}

fn outcome(n: isize) -> Result<usize, c_int> {
    usize::try_from(n).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())
}

/// The peer was killed, or has closed with octets that it has not read.
fn is_reset(errno: c_int) -> bool {
    [libc::ECONNRESET, libc::EPIPE].contains(&errno)
}

impl Stream {
    fn new(fd: c_int, seed: u64, total: u64) -> Self {
        let random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { fd, random, seed, sent: 0, received: 0, total, buffer: vec![0; 200_000] }
    }

    fn size(&mut self) -> usize {
        let most = [1, 60, 4096, 70_000, 200_000][self.random.below(5)];
        1 + self.random.below(most)
    }

    fn send(&mut self, active: bool) -> Did {
        let len = (self.size() as u64).min(self.total - self.sent) as usize;
        let way = self.seed ^ u64::from(active);
        for (at, place) in self.buffer[..len].iter_mut().enumerate() {
            *place = octet(way, self.sent + at as u64);
        }
        let half = len / 2;
        let pieces = [(0, half), (half, len - half)].map(|(at, len)| libc::iovec {
            iov_base: self.buffer[at..].as_mut_ptr().cast(),
            iov_len: len,
        });
        let at = self.buffer.as_ptr().cast();
        let n = match self.random.below(3) {
            // SAFETY: octets of this end's.
            0 => unsafe { libc::send(self.fd, at, len, libc::MSG_NOSIGNAL) },
            // SAFETY: the same.
            1 => unsafe { libc::write(self.fd, at, len) },
            // SAFETY: the same.
            _ => unsafe { libc::writev(self.fd, pieces.as_ptr(), 2) },
        };
        match outcome(n) {
            Ok(n) => {
                self.sent += n as u64;
                Did::Moved
            }
            Err(libc::EAGAIN) => Did::Waits,
            Err(errno) if is_reset(errno) => Did::Ended,
            Err(errno) => panic!("a call that sends: {errno}"),
        }
    }

    fn receive(&mut self, active: bool) -> Did {
        let len = self.size();
        let at = self.buffer.as_mut_ptr().cast();
        let peek = self.random.below(8) == 0;
        let n = match self.random.below(2) {
            // SAFETY: room of this end's.
            _ if peek => unsafe { libc::recv(self.fd, at, len, libc::MSG_PEEK) },
            // SAFETY: the same.
            0 => unsafe { libc::recv(self.fd, at, len, 0) },
            // SAFETY: the same.
            _ => unsafe { libc::read(self.fd, at, len) },
        };
        match outcome(n) {
            Ok(0) => return Did::Ended,
            Ok(n) => {
                let way = self.seed ^ u64::from(!active);
                let wrong =
                    (0..n).find(|it| self.buffer[*it] != octet(way, self.received + *it as u64));
                assert_eq!(wrong, None, "a wrong octet of {n} after {}", self.received);
                self.received += if peek { 0 } else { n as u64 };
            }
            Err(libc::EAGAIN) => return Did::Waits,
            Err(errno) if is_reset(errno) => return Did::Ended,
            Err(errno) => panic!("a call that receives: {errno}"),
        }
        Did::Moved
    }

    fn sends(&self) -> bool {
        self.sent < self.total
    }

    fn receives(&self) -> bool {
        self.received < self.total
    }
}

fn poll(fd: c_int, events: i16) {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    assert!(unsafe { libc::poll(&raw mut one, 1, -1) } >= 0);
}

fn select(fd: c_int, reads: bool, writes: bool) {
    // SAFETY: all octets may be 0.
    let mut sets: [libc::fd_set; 2] = unsafe { std::mem::zeroed() };
    for set in &mut sets {
        // SAFETY: a set, and a number below 1024.
        unsafe { libc::FD_SET(fd, set) };
    }
    let [read, write] = [(reads, 0), (writes, 1)].map(|(wanted, at)| match wanted {
        true => &raw mut sets[at],
        false => null_mut(),
    });
    // SAFETY: sets or null.
    assert!(unsafe { libc::select(fd + 1, read, write, null_mut(), null_mut()) } >= 0);
}

struct Epoll {
    set: c_int,
    edge: bool,
    asked: u32,
}

impl Epoll {
    fn new(edge: bool) -> Self {
        // SAFETY: no memory.
        Self { set: unsafe { libc::epoll_create1(0) }, edge, asked: 0 }
    }

    fn wait(&mut self, fd: c_int, reads: bool, writes: bool) {
        let (reads, writes) = if self.edge { (true, true) } else { (reads, writes) };
        let mut events = libc::EPOLLRDHUP as u32;
        events |= if reads { libc::EPOLLIN as u32 } else { 0 };
        events |= if writes { libc::EPOLLOUT as u32 } else { 0 };
        events |= if self.edge { libc::EPOLLET as u32 } else { 0 };
        if events != self.asked {
            let what = if self.asked == 0 { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_MOD };
            self.asked = events;
            let mut event = libc::epoll_event { events, u64: 77 };
            // SAFETY: an event.
            assert_eq!(unsafe { libc::epoll_ctl(self.set, what, fd, &raw mut event) }, 0);
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        loop {
            // SAFETY: room for 4 events.
            let n = unsafe { libc::epoll_wait(self.set, events.as_mut_ptr(), 4, -1) };
            // After a stop it is interrupted (signal(7)).
            if outcome(n as isize) != Err(libc::EINTR) {
                assert!(n == 1 && { events[0].u64 } == 77);
                return;
            }
        }
    }
}

/// Exchanges octets until all are there, or the peer is gone. Returns how many came.
pub(crate) fn exchange(stream: &TcpStream, way: &str, seed: u64, total: u64, active: bool) -> u64 {
    let fd = stream.as_raw_fd();
    let mut one = Stream::new(fd, seed, total);
    if way == "threads" {
        let mut other = Stream::new(fd, seed, total);
        return std::thread::scope(|scope| {
            scope.spawn(move || while one.sends() && one.send(active) == Did::Moved {});
            while other.receives() && other.receive(active) == Did::Moved {}
            other.received
        });
    }
    stream.set_nonblocking(true).unwrap();
    let mut epoll = Epoll::new(way == "edge");
    while one.sends() || one.receives() {
        let mut did = Vec::new();
        if one.sends() {
            did.push(one.send(active));
        }
        if one.receives() {
            did.push(one.receive(active));
        }
        if did.contains(&Did::Ended) {
            return one.received;
        }
        if did.contains(&Did::Moved) && (way == "edge" || one.random.below(3) > 0) {
            continue;
        }
        let (reads, writes) = (one.receives(), one.sends());
        let events = if reads { libc::POLLIN } else { 0 } | if writes { libc::POLLOUT } else { 0 };
        match way {
            _ if events == 0 => {}
            "poll" => poll(fd, events),
            "select" => select(fd, reads, writes),
            _ => epoll.wait(fd, reads, writes),
        }
    }
    one.received
}

/// Sends and receives whatever there is, until the end.
fn blind(stream: &TcpStream) {
    stream.set_nonblocking(true).unwrap();
    loop {
        let mut room = [0; 5000];
        let ended = match (&*stream).read(&mut room) {
            Ok(n) => n == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        if ended {
            return;
        }
        let _ = (&*stream).write(&room[..300]);
        poll(stream.as_raw_fd(), libc::POLLIN);
    }
}

/// What a process of a pair does.
fn role(text: &str) {
    let words: Vec<_> = text.split(' ').collect();
    let (way, seed, total) = (words[1], words[2].parse().unwrap(), words[3].parse().unwrap());
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let (stream, active) = match words[0] {
        "listens" => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            println!("port {}", listener.local_addr().unwrap().port());
            (listener.accept().unwrap().0, false)
        }
        port => (TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap(), true),
    };
    println!("connected {}", stream.as_raw_fd());
    if way == "blind" {
        return blind(&stream);
    }
    let received = exchange(&stream, way, seed, total, active);
    println!("received {received}");
    if total != ENDLESS {
        // Until the peer has all, too: a close with unread octets would reset.
        stream.set_nonblocking(false).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!((&stream).read(&mut [0; 8]).unwrap(), 0);
    }
}

/// A process of a pair.
pub(crate) struct End {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl End {
    pub(crate) fn start(mut command: Command, what: &str) -> Self {
        command.env(ROLE, what).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The number behind a word, on a line of its own.
    pub(crate) fn told(&mut self, word: &str) -> Option<u64> {
        let lines = &mut self.lines;
        within("a line of an end", || {
            for line in lines.lines() {
                let line = line.unwrap();
                // The harness writes before it without an end.
                if let Some((_, number)) = line.split_once(&format!("{word} ")) {
                    return number.parse().ok();
                }
            }
            None
        })
    }

    fn signal(&self, signal: c_int) {
        // SAFETY: a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    pub(crate) fn ends(&mut self) -> bool {
        let child = &mut self.child;
        within("the end of an end", || child.wait().unwrap().success())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends of a pair, connected.
fn pair(test: &str, log: &TempFile, ways: [&str; 2], seed: u64, total: u64) -> [End; 2] {
    let mut server = End::start(inside(test, log), &format!("listens {} {seed} {total}", ways[0]));
    let port = server.told("port").unwrap();
    let mut client = End::start(inside(test, log), &format!("{port} {} {seed} {total}", ways[1]));
    for end in [&mut server, &mut client] {
        end.told("connected").unwrap();
    }
    [server, client]
}

/// Whether this process is one of a pair; then it has done its part.
pub(crate) fn is_end() -> bool {
    let text = std::env::var(ROLE);
    if is_inside()
        && let Ok(text) = &text
    {
        role(text);
    }
    is_inside()
}

#[test]
fn octets_arrive_in_order_whatever_both_ends_wait_by() {
    if is_end() || without_rings("rings::octets_arrive_in_order_whatever_both_ends_wait_by") {
        return;
    }
    let test = "rings::octets_arrive_in_order_whatever_both_ends_wait_by";
    let (mut by_ring, mut all) = (0, 0);
    let mut run = |seed: u64, stops: bool| {
        let ways = [seed as usize % 5, seed as usize / 5 % 5].map(|at| WAYS[at]);
        let log = TempFile::new();
        let mut ends = pair(test, &log, ways, seed, TOTAL);
        for end in ends.iter().filter(|_| stops) {
            for _ in 0..20 {
                end.signal(libc::SIGSTOP);
                std::thread::yield_now();
                end.signal(libc::SIGCONT);
            }
        }
        for end in &mut ends {
            assert_eq!(end.told("received"), Some(TOTAL), "{ways:?}, seed {seed}");
            assert!(end.ends(), "{ways:?}, seed {seed}");
        }
        for line in log.text().lines() {
            let ring = field(line, "ring").unwrap().split_once('+').unwrap();
            by_ring += ring.0.parse::<u64>().unwrap();
            all += field(line, "sent").unwrap().parse::<u64>().unwrap();
            assert_eq!(field(line, "reset"), None, "{line}");
        }
    };
    (0..25).for_each(|seed| run(seed, false));
    play("WARPLINE_RINGS_SEED", &[], |seed| run(seed, seed & 1 == 0));
    println!("{by_ring} of {all} octets by the ring");
    // How many depends on whether both ends have processors.
    assert!(by_ring > 0, "no octets of {all} by the ring");
}

#[test]
fn an_end_notices_that_its_peer_was_killed() {
    if is_end() || without_rings("rings::an_end_notices_that_its_peer_was_killed") {
        return;
    }
    let test = "rings::an_end_notices_that_its_peer_was_killed";
    play("WARPLINE_RINGS_SEED", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], |seed| {
        let ways = [seed as usize % 5, seed as usize / 5 % 5].map(|at| WAYS[at]);
        let log = TempFile::new();
        let [server, client] = pair(test, &log, ways, seed, ENDLESS);
        let [killed, mut left] = if seed & 1 == 0 { [server, client] } else { [client, server] };
        // At any moment of the first.
        for _ in 0..Random::new(seed).below(3000) {
            std::thread::yield_now();
        }
        if seed & 2 == 0 {
            killed.signal(libc::SIGSTOP);
        }
        killed.signal(libc::SIGKILL);
        assert!(left.told("received").is_some(), "{ways:?}, seed {seed}");
        assert!(left.ends(), "{ways:?}, seed {seed}");
    });
}
