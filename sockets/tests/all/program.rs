//! Random programs over the table of calls, each step made in both lanes, with the same results. Owner: the test's stack.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr::{from_mut, from_ref, null, null_mut};

use libc::{
    EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP, MSG_DONTWAIT,
    MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
};

use crate::ends::{End, Ends, Fds};
use crate::lane::{LANES, Lane, Outcome};

/// Most octets on their way in one direction, and most calls that sent them: never so many that a buffer is full.
const MOST: u64 = 16 << 10;
const MOST_CALLS: u32 = 24;
const CONNECTIONS: usize = 4;

/// Choices that a seed repeats (Marsaglia's xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// What one end has moved, as the record should show.
pub(crate) struct Moved {
    pub(crate) names: [String; 2],
    pub(crate) octets: [u64; 2],
    pub(crate) urgent: bool,
}

/// A program's objects.
pub(crate) struct Program {
    random: Random,
    /// No call that keeps connections with TCP, and fewer connections: these then share memory.
    gentle: bool,
    ends: Ends,
    listener: Fds,
    addresses: [SocketAddr; 2],
    epoll: Fds,
    file: Fds,
    pipe: [Fds; 2],
    pub(crate) steps: u64,
    pub(crate) moved: Vec<Moved>,
}

fn address(octets: &mut libc::sockaddr_in, to: SocketAddr) -> (*const c_void, u32) {
    let SocketAddr::V4(to) = to else { unreachable!("the tests listen on IPv4") };
    octets.sin_family = libc::AF_INET as u16;
    octets.sin_port = to.port().to_be();
    octets.sin_addr.s_addr = u32::from(*to.ip()).to_be();
    ((&raw const *octets).cast(), size_of::<libc::sockaddr_in>() as u32)
}

fn zeroed<T>() -> T {
    // SAFETY: structures of C whose octets may all be 0.
    unsafe { std::mem::zeroed() }
}

/// The address at one end of a socket, and the port at most.
fn name(fd: c_int, peer: bool) -> SocketAddr {
    let mut octets: libc::sockaddr_in = zeroed();
    let mut len = size_of::<libc::sockaddr_in>() as u32;
    let (at, room) = ((&raw mut octets).cast(), &raw mut len);
    let done = if peer {
        Lane::Kernel.getpeername(fd, at, room)
    } else {
        Lane::Kernel.getsockname(fd, at, room)
    };
    assert_eq!(done, 0);
    (octets.sin_addr.s_addr.to_be().to_be_bytes(), octets.sin_port.to_be()).into()
}

impl Program {
    pub(crate) fn new(seed: u64) -> Self {
        let both = |make: &dyn Fn(Lane) -> Outcome| {
            LANES.map(|lane| {
                let fd = make(lane);
                assert!(fd >= 0, "{fd}");
                fd as c_int
            })
        };
        let listener = both(&|lane| lane.socket(libc::AF_INET, libc::SOCK_STREAM, 0));
        let addresses = listener.map(|fd| {
            let mut octets = zeroed();
            let (at, len) = address(&mut octets, ([127, 0, 0, 1], 0).into());
            // SAFETY: an address and its length.
            assert_eq!(unsafe { libc::bind(fd, at.cast(), len) }, 0);
            // SAFETY: no memory.
            assert_eq!(unsafe { libc::listen(fd, 16) }, 0);
            name(fd, false)
        });
        let pipes = LANES.map(|lane| {
            let mut ends = [0; 2];
            assert_eq!(lane.pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK), 0);
            ends
        });
        let file = both(&|lane| lane.memfd_create(c"file".as_ptr(), 0));
        let content: Vec<u8> = (0..MOST).map(|at| ((at * 7) >> 3) as u8).collect();
        for fd in file {
            let wrote = Lane::Kernel.write(fd, content.as_ptr().cast(), content.len());
            assert_eq!(wrote, MOST as Outcome);
        }
        Self {
            random: Random::new(seed),
            gentle: seed & 2 != 0,
            ends: Ends::default(),
            listener,
            addresses,
            epoll: both(&|lane| lane.epoll_create1(0)),
            file,
            pipe: [0, 1].map(|end| pipes.map(|ends| ends[end])),
            steps: 0,
            moved: Vec::new(),
        }
    }

    /// Makes so many steps, and closes everything.
    pub(crate) fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
        for end in 0..self.ends.0.len() {
            while self.ends.0[end].is_open() {
                self.close(end);
            }
        }
        let rest = [self.listener, self.epoll, self.file, self.pipe[0], self.pipe[1]];
        for fds in rest {
            self.same("close", fds, |lane, fd| lane.close(fd));
        }
    }

    /// The same call in both lanes, with the same result, which is returned.
    fn same(&mut self, what: &str, fds: Fds, call: impl Fn(Lane, c_int) -> Outcome) -> Outcome {
        self.steps += 1;
        let [kernel, library] = [0, 1].map(|lane| call(LANES[lane], fds[lane]));
        assert_eq!(
            library, kernel,
            "{what} by the library and by the kernel, after {}",
            self.steps
        );
        library
    }

    /// The same call, which also gives octets.
    fn same_octets(
        &mut self,
        what: &str,
        fds: Fds,
        call: impl Fn(Lane, c_int, &mut [u8]) -> Outcome,
    ) -> Outcome {
        let mut all = [[0xa5_u8; 4096]; 2];
        self.steps += 1;
        let [kernel, library] = [0, 1].map(|at| call(LANES[at], fds[at], &mut all[at]));
        assert_eq!(
            library, kernel,
            "{what} by the library and by the kernel, after {}",
            self.steps
        );
        assert!(all[0] == all[1], "octets of {what}, after {}", self.steps);
        library
    }

    /// A call that makes descriptors.
    fn fresh(
        &mut self,
        what: &str,
        fds: Fds,
        call: impl Fn(Lane, c_int) -> Outcome,
    ) -> Option<Fds> {
        self.steps += 1;
        let [kernel, library] = [0, 1].map(|lane| call(LANES[lane], fds[lane]));
        assert_eq!(library.min(0), kernel.min(0), "{what}, after {}", self.steps);
        (library >= 0).then_some([kernel as c_int, library as c_int])
    }

    fn step(&mut self) {
        let open: Vec<_> =
            (0..self.ends.0.len()).filter(|end| self.ends.0[*end].is_open()).collect();
        let most = if self.gentle { 1 } else { CONNECTIONS };
        if open.is_empty() || open.len() < 2 * most && self.random.once_in(24) {
            return self.connect();
        }
        let end = self.random.pick(&open);
        match self.random.below(40) {
            0..11 => self.send(end),
            11..24 => self.receive(end),
            24..27 => self.poll(&open),
            27..29 => self.select(&open),
            29..31 if self.gentle && !self.random.once_in(20) => self.send(end),
            29..31 => self.watch(end),
            31..33 => self.wait(),
            33..35 => self.ask(end),
            35 => self.set(end),
            36 => self.duplicate(end),
            37 => self.wrong(end),
            38 if self.random.once_in(if self.gentle { 10 } else { 2 }) => self.shutdown(end),
            39 if self.gentle && !self.random.once_in(4) => self.receive(end),
            _ if self.random.once_in(3) => self.close(end),
            _ => self.receive(end),
        }
        self.ends.settle(end);
    }

    fn connect(&mut self) {
        let blocks = self.random.once_in(2);
        let kind = libc::SOCK_STREAM | if blocks { 0 } else { libc::SOCK_NONBLOCK };
        let protocol = self.random.pick(&[0, libc::IPPROTO_TCP]);
        let socket = |lane: Lane, _| lane.socket(libc::AF_INET, kind, protocol);
        let client = self.fresh("socket", [0, 0], socket).unwrap();
        let (addresses, twin) = (self.addresses, self.random.once_in(2));
        self.same("connect", client, |lane, fd| {
            let mut octets = zeroed();
            let (at, len) = address(&mut octets, addresses[usize::from(lane == Lane::Library)]);
            if twin { lane.__connect(fd, at, len) } else { lane.connect(fd, at, len) }
        });
        let (newer, flags) = (self.random.once_in(2), kind & libc::SOCK_NONBLOCK);
        let accept = |lane: Lane, fd| match newer {
            true => lane.accept4(fd, null_mut(), null_mut(), flags),
            false => lane.accept(fd, null_mut(), null_mut()),
        };
        let server = self.fresh("accept", self.listener, accept).unwrap();
        let at = self.ends.0.len();
        for (fds, active) in [(client, true), (server, false)] {
            // Small messages leave at once, and reads end.
            self.option(fds, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1_i32);
            let limit = libc::timeval { tv_sec: 0, tv_usec: 1000 };
            self.option(fds, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &limit);
            let mut error = [0_i32; 2];
            for (lane, fd) in fds.into_iter().enumerate() {
                let (at, mut len) = ((&raw mut error[lane]).cast(), 4);
                LANES[lane].getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, at, &raw mut len);
            }
            assert_eq!(error, [0, 0]);
            let names = [name(fds[1], false), name(fds[1], true)].map(|it| it.to_string());
            let (peer, blocks) =
                (if active { at + 1 } else { at }, active && blocks || !active && flags == 0);
            self.ends.0.push(End {
                fds: vec![fds],
                peer,
                active,
                sent: 0,
                taken: 0,
                is_shut: false,
                reset_due: false,
                urgent: false,
                blocks: blocks || !active && !newer,
                queued: 0,
                names,
            });
        }
        self.ends.settle(at);
    }

    fn option<T>(&mut self, fds: Fds, level: c_int, name: c_int, value: &T) -> Outcome {
        let (at, len) = ((&raw const *value).cast(), size_of::<T>() as u32);
        self.same("setsockopt", fds, |lane, fd| lane.setsockopt(fd, level, name, at, len))
    }

    /// One of an end's descriptors.
    fn one(&mut self, end: usize) -> Fds {
        let all = self.ends.0[end].fds.clone();
        self.random.pick(&all)
    }

    fn send(&mut self, end: usize) {
        let fds = self.one(end);
        let (this, peer) = (&self.ends.0[end], &self.ends.0[self.ends.0[end].peer]);
        let room = (MOST + peer.taken).saturating_sub(this.sent);
        if room == 0 || this.queued >= MOST_CALLS {
            return self.receive(self.ends.0[end].peer);
        }
        let len = self.random.pick(&[0, 1, 2, 7, 48, 64, 300, 1500, 4096]).min(room as usize);
        let octets: Vec<u8> = (0..len).map(|_| self.random.below(256) as u8).collect();
        let (from, half) = (octets.as_ptr().cast::<c_void>(), len / 3);
        let mut flags = MSG_NOSIGNAL | self.random.pick(&[0, 0, MSG_DONTWAIT]);
        // The kernel makes of a second urgent octet what the reads so far, by TCP, let it.
        if !self.gentle && !self.ends.0[end].urgent && self.random.once_in(64) {
            flags |= MSG_OOB;
        }
        let pieces = [(0, half), (half, len - half)].map(|(at, len)| libc::iovec {
            iov_base: octets[at..].as_ptr().cast_mut().cast(),
            iov_len: len,
        });
        let pieces = pieces.as_ptr();
        let message = || {
            let mut message: libc::msghdr = zeroed();
            (message.msg_iov, message.msg_iovlen) = (pieces.cast_mut(), 2);
            message
        };
        let files = self.file;
        let file = |lane| files[usize::from(lane == Lane::Library)];
        let kind = self.random.below(SENDS.len());
        if kind == 8 {
            // It would send two.
            flags &= !MSG_OOB;
        }
        let urgent = flags & MSG_OOB != 0 && (3..9).contains(&kind);
        let done = self.same(SENDS[kind], fds, |lane, fd| match kind {
            0 => lane.write(fd, from, len),
            1 => lane.__write(fd, from, len),
            2 => lane.writev(fd, pieces, 2),
            3 => lane.send(fd, from, len, flags),
            4 => lane.__send(fd, from, len, flags),
            5 => lane.sendto(fd, from, len, flags, null(), 0),
            6 => lane.sendmsg(fd, from_ref(&message()), flags),
            7 => lane.sendmsg(fd, null(), flags),
            8 => {
                let mut all = [(); 2].map(|()| libc::mmsghdr { msg_hdr: message(), msg_len: 0 });
                let done = lane.sendmmsg(fd, all.as_mut_ptr(), 2, flags);
                // The number of octets tells more than that of messages.
                if done < 0 {
                    done
                } else {
                    all.iter().take(done as usize).map(|it| Outcome::from(it.msg_len)).sum()
                }
            }
            9 => lane.pwritev2(fd, pieces, 2, -1, 0),
            10 => lane.pwritev64v2(fd, pieces, 2, -1, 0),
            11 => lane.sendfile(fd, file(lane), from_mut(&mut 5), len),
            12 => lane.sendfile64(fd, file(lane), from_mut(&mut 0), len),
            13 => lane.write(fd, null(), len),
            14 => lane.direct(libc::SYS_write, fd, from, len),
            15 => lane.direct(libc::SYS_sendto, fd, from, len),
            _ => lane.direct(libc::SYS_sendmsg, fd, from_ref(&message()).cast(), 0),
        });
        let this = &mut self.ends.0[end];
        this.urgent |= urgent;
        let peer = this.peer;
        if done > 0 {
            this.sent += done as u64;
            this.queued += 1;
            self.ends.0[end].reset_due |= !self.ends.0[peer].is_open();
        }
        self.ends.0[peer].urgent |= urgent;
    }

    fn receive(&mut self, end: usize) {
        if !self.ends.0[end].is_open() {
            return;
        }
        let fds = self.one(end);
        let waiting = crate::ends::ready(Lane::Kernel, fds[0]) & libc::POLLIN == 0;
        if self.ends.0[end].blocks && waiting && !self.random.once_in(200) {
            return;
        }
        let len = self.random.pick(&[0, 1, 3, 48, 100, 1000, 4096]);
        let mut flags =
            self.random.pick(&[0, 0, 0, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL]);
        let kind = match self.random.below(RECEIVES.len()) {
            14 if self.gentle => 0,
            // What a call that fails does with an urgent octet is the kernel's secret.
            11 | 12 if self.ends.0[end].urgent => 0,
            other => other,
        };
        if flags == MSG_WAITALL && self.ends.0[end].blocks && !self.random.once_in(50) {
            flags = 0;
        }
        if !self.gentle && self.random.once_in(64) {
            flags = MSG_OOB;
        }
        let flagged = (5..13).contains(&kind);
        let pipe = self.pipe[1];
        let to_pipe = |lane| pipe[usize::from(lane == Lane::Library)];
        let done = self.same_octets(RECEIVES[kind], fds, |lane, fd, room| {
            let to = room.as_mut_ptr().cast::<c_void>();
            let third = len / 3;
            let pieces = [(0, third), (third, len - third)].map(|(at, len)| libc::iovec {
                iov_base: room[at..].as_mut_ptr().cast(),
                iov_len: len,
            });
            let mut message: libc::msghdr = zeroed();
            (message.msg_iov, message.msg_iovlen) = (pieces.as_ptr().cast_mut(), 2);
            match kind {
                0 => lane.read(fd, to, len),
                1 => lane.__read(fd, to, len),
                2 => lane.__read_chk(fd, to, len, 4096),
                3 => lane.readv(fd, pieces.as_ptr(), 2),
                4 => lane.preadv2(fd, pieces.as_ptr(), 2, -1, 0),
                5 => lane.recv(fd, to, len, flags),
                6 => lane.__recv_chk(fd, to, len, 4096, flags),
                7 => lane.recvfrom(fd, to, len, flags, null_mut(), null_mut()),
                8 => lane.__recvfrom_chk(fd, to, len, 4096, flags, null_mut(), null_mut()),
                9 => lane.recvmsg(fd, &raw mut message, flags),
                10 => {
                    let mut all = libc::mmsghdr { msg_hdr: message, msg_len: 0 };
                    let done = lane.recvmmsg(fd, &raw mut all, 1, flags, null_mut());
                    if done < 0 { done } else { Outcome::from(all.msg_len) }
                }
                11 => lane.recvmsg(fd, null_mut(), flags),
                12 => lane.recv(fd, null_mut(), len, flags),
                13 => lane.preadv64v2(fd, pieces.as_ptr(), 2, -1, 0),
                14 => lane.splice(fd, null_mut(), to_pipe(lane), null_mut(), len, 2),
                15 => lane.direct(libc::SYS_read, fd, to, len),
                16 => lane.direct(libc::SYS_recvfrom, fd, to, len),
                _ => lane.direct(libc::SYS_recvmsg, fd, from_ref(&message).cast(), 0),
            }
        });
        if kind == 14 && done > 0 {
            let drained = self.same_octets("read", self.pipe[0], |lane, fd, room| {
                lane.read(fd, room.as_mut_ptr().cast(), room.len())
            });
            assert_eq!(drained, done);
        }
        let takes = !flagged || flags & MSG_PEEK == 0;
        if done > 0 && takes {
            self.ends.0[end].taken += done as u64;
            let peer = self.ends.0[end].peer;
            self.ends.0[peer].queued = 0;
        }
        if flagged && flags == MSG_OOB && done > 0 {
            self.ends.0[end].urgent = true;
        }
    }

    /// Some descriptors of both lanes, and numbers that are none.
    fn some(&mut self, open: &[usize]) -> Vec<Fds> {
        let mut all = vec![self.listener, [-1, -1]];
        for _ in 0..self.random.below(6) {
            let end = self.random.pick(open);
            all.push(self.one(end));
        }
        all
    }

    fn poll(&mut self, open: &[usize]) {
        let some = self.some(open);
        let events = self.random.pick(&[1, 4, 5, 0x2001, 0x2007, 0]);
        let kind = self.random.below(5);
        let mut shown: [Vec<i16>; 2] = Default::default();
        let mut counts = [0; 2];
        for (at, lane) in LANES.into_iter().enumerate() {
            let entry = |fds: &Fds| libc::pollfd { fd: fds[at], events, revents: 0 };
            let mut all: Vec<_> = some.iter().map(entry).collect();
            let (list, n) = (all.as_mut_ptr(), all.len());
            let mut zero: libc::timespec = zeroed();
            let limit = (&raw mut zero).cast();
            counts[at] = match kind {
                0 => lane.poll(list, n as u64, 0),
                1 => lane.__poll(list, n as u64, 0),
                2 => lane.__poll_chk(list, n as u64, 0, n * 8),
                3 => lane.ppoll(list, n as u64, limit, null()),
                _ => lane.__ppoll_chk(list, n as u64, limit, null(), n * 8),
            };
            shown[at] = all.iter().map(|it| it.revents).collect();
        }
        self.steps += 1;
        assert_eq!((counts[1], &shown[1]), (counts[0], &shown[0]), "poll, after {}", self.steps);
    }

    fn select(&mut self, open: &[usize]) {
        let some: Vec<_> = self.some(open).into_iter().filter(|fds| fds[0] >= 0).collect();
        let kind = self.random.below(3);
        let which = self.random.below(8);
        let mut shown: [Vec<bool>; 2] = Default::default();
        let mut counts = [0; 2];
        for (at, lane) in LANES.into_iter().enumerate() {
            let mut sets: [libc::fd_set; 3] = zeroed();
            for fds in &some {
                for set in &mut sets {
                    // SAFETY: a set, and a number below 1024.
                    unsafe { libc::FD_SET(fds[at], set) };
                }
            }
            let end = some.iter().map(|fds| fds[at]).max().unwrap() + 1;
            let mut zero = [0_i64; 2];
            let limit = zero.as_mut_ptr().cast();
            let [read, write, except] = [0, 1, 2].map(|it| match which >> it & 1 {
                0 => null_mut(),
                _ => &raw mut sets[it],
            });
            counts[at] = match kind {
                0 => lane.select(end, read, write, except, limit),
                1 => lane.__select(end, read, write, except, limit),
                _ => lane.pselect(end, read, write, except, limit, null()),
            };
            let places = sets.iter().flat_map(|set| some.iter().map(move |fds| (set, fds[at])));
            // SAFETY: the same.
            shown[at] = places.map(|(set, fd)| unsafe { libc::FD_ISSET(fd, set) }).collect();
        }
        self.steps += 1;
        assert_eq!((counts[1], &shown[1]), (counts[0], &shown[0]), "select, after {}", self.steps);
    }

    fn watch(&mut self, end: usize) {
        let fds = self.one(end);
        let what =
            self.random.pick(&[libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_DEL, 9]);
        let mut events = self.random.pick(&[0, EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT]);
        events |= self.random.pick(&[
            0,
            EPOLLET,
            EPOLLRDHUP,
            EPOLLET | EPOLLRDHUP,
            EPOLLONESHOT,
            EPOLLEXCLUSIVE,
        ]);
        let sets = self.epoll;
        let copy = self.ends.0[end].fds.iter().position(|it| *it == fds).unwrap();
        self.same("epoll_ctl", fds, |lane, fd| {
            let set = sets[usize::from(lane == Lane::Library)];
            let u64 = (end * 16 + copy) as u64 | if events & EPOLLET != 0 { EDGE } else { 0 };
            let mut event = libc::epoll_event { events: events as u32, u64 };
            lane.epoll_ctl(set, what, fd, &raw mut event)
        });
    }

    fn wait(&mut self) {
        let newer = self.random.once_in(2);
        let mut shown: [Vec<(u64, u32)>; 2] = Default::default();
        for (at, lane) in LANES.into_iter().enumerate() {
            let mut room = [libc::epoll_event { events: 0, u64: 0 }; 64];
            let (set, to) = (self.epoll[at], room.as_mut_ptr());
            let count = match newer {
                true => lane.epoll_pwait(set, to, 64, 0, null()),
                false => lane.epoll_wait(set, to, 64, 0),
            };
            // With octets that arrive, and were read since, the kernel reports an edge of what was there all the time: room to
            // write. Octets of a ring are no event of the kernel's.
            let all = room[..count as usize].iter().map(|it| match it.u64 & EDGE {
                0 => (it.u64, it.events),
                _ => (it.u64, it.events & !(EPOLLOUT as u32)),
            });
            shown[at] = all.filter(|(_, events)| *events != 0).collect();
            shown[at].sort_unstable();
        }
        self.steps += 1;
        assert_eq!(shown[1], shown[0], "epoll_wait, after {}", self.steps);
    }

    fn ask(&mut self, end: usize) {
        let fds = self.one(end);
        let kind = self.random.below(10);
        let name = self.random.pick(&[
            libc::SO_TYPE,
            libc::SO_ERROR,
            libc::SO_RCVLOWAT,
            libc::SO_KEEPALIVE,
            9999,
        ]);
        self.same_octets("a question", fds, |lane, fd, room| {
            let to = room.as_mut_ptr().cast::<c_void>();
            let (mut len, half) = (4, 2_u32);
            match kind {
                0 => lane.getsockopt(fd, libc::SOL_SOCKET, name, to, &raw mut len),
                1 => lane.ioctl(fd, libc::FIONREAD, to),
                2 => lane.ioctl(fd, SIOCATMARK, to),
                3 => lane.fcntl(fd, libc::F_GETFL, 0),
                4 => lane.__fcntl(fd, libc::F_GETFD, 0),
                5 => lane.fcntl64(fd, libc::F_SETFD, 1),
                // The family; ports are not the same.
                6 => lane.getsockname(fd, to, from_mut(&mut { half })),
                7 => lane.getpeername(fd, to, from_mut(&mut { half })),
                8 => lane.ioctl(fd, libc::FIONREAD, null_mut()),
                _ => lane.ioctl(fd, 0xdead, to),
            }
        });
    }

    fn set(&mut self, end: usize) {
        let fds = self.one(end);
        match self.random.below(6) {
            0 => {
                let value = self.random.pick(&[0, 1, 100, 5000]);
                self.option(fds, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &value);
            }
            1 => {
                let value = libc::linger { l_onoff: self.random.below(2) as i32, l_linger: 0 };
                self.option(fds, libc::SOL_SOCKET, libc::SO_LINGER, &value);
            }
            2 => {
                self.option(fds, libc::SOL_SOCKET, 9999, &1);
            }
            3 => {
                self.option(fds, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1_u8);
            }
            4 => {
                let on: c_int = self.random.below(2) as c_int;
                self.same("FIONBIO", fds, |lane, fd| {
                    lane.ioctl(fd, libc::FIONBIO, from_mut(&mut { on }).cast())
                });
                self.ends.0[end].blocks = on == 0;
            }
            _ => {
                let on = self.random.once_in(2);
                let flags = i64::from(if on { libc::O_NONBLOCK } else { 0 });
                self.same("F_SETFL", fds, |lane, fd| lane.fcntl(fd, libc::F_SETFL, flags));
                self.ends.0[end].blocks = !on;
            }
        }
    }

    fn duplicate(&mut self, end: usize) {
        let fds = self.one(end);
        if self.ends.0[end].fds.len() >= 4 {
            return;
        }
        let kind = self.random.below(8);
        let spare = self.fresh("dup", self.file, |lane, fd| lane.dup(fd)).unwrap();
        let new = self.fresh(DUPLICATES[kind], fds, |lane, fd| {
            let to = spare[usize::from(lane == Lane::Library)];
            match kind {
                0 => lane.dup(fd),
                1 => lane.dup2(fd, to),
                2 => lane.__dup2(fd, to),
                3 => lane.dup3(fd, to, libc::O_CLOEXEC),
                4 => lane.fcntl(fd, libc::F_DUPFD, 20),
                5 => lane.fcntl64(fd, libc::F_DUPFD_CLOEXEC, 0),
                6 => lane.dup3(fd, fd, 0),
                _ => lane.direct(libc::SYS_dup, fd, null(), 0),
            }
        });
        if !(1..=3).contains(&kind) {
            self.same("close", spare, |lane, fd| lane.close(fd));
        }
        self.ends.0[end].fds.extend(new);
    }

    /// Calls that fail.
    fn wrong(&mut self, end: usize) {
        let fds = self.one(end);
        let (kind, file) = (self.random.below(8), self.file);
        self.same_octets("a wrong call", fds, |lane, fd, room| {
            let to = room.as_mut_ptr().cast::<c_void>();
            let other = file[usize::from(lane == Lane::Library)];
            match kind {
                0 => lane.recv(other, to, 8, MSG_DONTWAIT),
                1 => lane.read(-1, to, 8),
                2 => lane.write(1 << 20, to, 8),
                3 => lane.shutdown(fd, 7),
                4 => lane.dup2(-1, fd),
                5 => lane.close_range(9, 3, 0),
                6 => lane.close(1 << 20),
                _ => lane.getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, null_mut(), null_mut()),
            }
        });
    }

    fn shutdown(&mut self, end: usize) {
        let fds = self.one(end);
        let how = self.random.pick(&[libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR]);
        let done = self.same("shutdown", fds, |lane, fd| lane.shutdown(fd, how));
        self.ends.0[end].is_shut |= done == 0 && how != libc::SHUT_RD;
    }

    fn close(&mut self, end: usize) {
        let at = self.random.below(self.ends.0[end].fds.len());
        let fds = self.ends.0[end].fds.swap_remove(at);
        let kind = self.random.below(4);
        let done = self.same("close", fds, |lane, fd| match kind {
            0 => lane.close(fd),
            1 => lane.__close(fd),
            2 => lane.direct(libc::SYS_close, fd, null(), 0),
            _ => lane.close_range(fd as u32, fd as u32, 0),
        });
        assert_eq!(done, 0);
        let this = &self.ends.0[end];
        if !this.is_open() && this.sent + this.taken > 0 {
            let octets = [this.sent, this.taken];
            self.moved.push(Moved { names: this.names.clone(), octets, urgent: this.urgent });
        }
        self.ends.settle(end);
    }
}

/// In what a program wants back with an event: it asked for edges.
const EDGE: u64 = 1 << 32;

const SIOCATMARK: libc::Ioctl = 0x8905;

const SENDS: [&str; 17] = [
    "write",
    "__write",
    "writev",
    "send",
    "__send",
    "sendto",
    "sendmsg",
    "sendmsg of nothing",
    "sendmmsg",
    "pwritev2",
    "pwritev64v2",
    "sendfile",
    "sendfile64",
    "write from nowhere",
    "syscall of write",
    "syscall of sendto",
    "syscall of sendmsg",
];
const RECEIVES: [&str; 18] = [
    "read",
    "__read",
    "__read_chk",
    "readv",
    "preadv2",
    "recv",
    "__recv_chk",
    "recvfrom",
    "__recvfrom_chk",
    "recvmsg",
    "recvmmsg",
    "recvmsg to nowhere",
    "recv to nowhere",
    "preadv64v2",
    "splice",
    "syscall of read",
    "syscall of recvfrom",
    "syscall of recvmsg",
];
const DUPLICATES: [&str; 8] = [
    "dup",
    "dup2",
    "__dup2",
    "dup3",
    "F_DUPFD",
    "F_DUPFD_CLOEXEC",
    "dup3 of itself",
    "syscall of dup",
];
