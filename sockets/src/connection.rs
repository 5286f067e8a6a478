//! What a process has moved on one connection, and how.
//!
//! Owner: the table. All parts are atomics that any thread changes; a line of the record is a look at them, and may show
//! octets of a call without the call.

use std::ffi::c_int;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::kernel;
use crate::names::{Call, NAMES};
use crate::ring::link::Link;
use crate::tuning::CALL_OCTETS;
use crate::way::Way;

/// Descriptors of a connection that is being written to the record.
const ENDING: u32 = u32::MAX;

/// A use of a connection that memory shared with the peer cannot carry.
#[derive(Clone, Copy)]
pub(crate) enum Obstacle {
    OutOfBand,
    SignalDriven,
    KernelTls,
    Repair,
    ZeroCopy,
    Splice,
    Stream,
    Passed,
    IoUring,
}

impl Obstacle {
    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Names of the obstacles, in their order.
pub(crate) const OBSTACLES: [&str; 9] =
    ["oob", "sigio", "ktls", "repair", "zerocopy", "splice", "stdio", "passed", "io_uring"];

/// One direction.
struct Count {
    octets: AtomicU64,
    calls: AtomicU64,
    /// Both as of the last line about it.
    reported: [AtomicU64; 2],
}

impl Count {
    const fn new() -> Self {
        Self {
            octets: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            reported: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    fn now(&self) -> [u64; 2] {
        [self.octets.load(Ordering::Relaxed), self.calls.load(Ordering::Relaxed)]
    }

    fn report(&self) {
        let now = self.now();
        self.reported.iter().zip(now).for_each(|(it, now)| it.store(now, Ordering::Relaxed));
    }

    /// Octets and calls since the last line.
    fn fresh(&self) -> [u64; 2] {
        let [octets, calls] = self.now();
        let [o, c] = [&self.reported[0], &self.reported[1]].map(|it| it.load(Ordering::Relaxed));
        [octets.wrapping_sub(o), calls.wrapping_sub(c)]
    }

    fn clear(&self) {
        self.octets.store(0, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        self.report();
    }
}

/// Both ends, as words: each address as of IPv6, and the two ports.
struct Ends([AtomicU64; 5]);

/// One connection.
#[repr(align(64))]
pub(crate) struct Connection {
    /// Descriptors of it in this process; 0: free.
    descriptors: AtomicU32,
    /// One bit for each [`Obstacle`].
    obstacles: AtomicU32,
    /// One bit for each [`Call`].
    used: [AtomicU64; 2],
    out: Count,
    into: Count,
    /// The socket's number in this kernel; 0: nothing was moved yet, and the ends are not known.
    cookie: AtomicU64,
    ends: Ends,
    /// Its part in shared memory.
    pub(crate) link: Link,
}

impl Connection {
    pub(crate) const fn new() -> Self {
        Self {
            descriptors: AtomicU32::new(0),
            obstacles: AtomicU32::new(0),
            used: [AtomicU64::new(0), AtomicU64::new(0)],
            out: Count::new(),
            into: Count::new(),
            cookie: AtomicU64::new(0),
            ends: Ends([const { AtomicU64::new(0) }; 5]),
            link: Link::new(),
        }
    }

    /// Whether it has descriptors.
    pub(crate) fn is_open(&self) -> bool {
        self.descriptors.load(Ordering::Relaxed) != 0
    }

    /// Takes a free one, with one descriptor. False: it is not free.
    pub(crate) fn take(&self) -> bool {
        let (order, other) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.descriptors.compare_exchange(0, ENDING, order, other).is_err() {
            return false;
        }
        self.out.clear();
        self.into.clear();
        self.obstacles.store(0, Ordering::Relaxed);
        self.used.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.cookie.store(0, Ordering::Relaxed);
        self.link.clear();
        self.descriptors.store(1, Ordering::Release);
        true
    }

    /// One descriptor more. False: it was closed meanwhile.
    pub(crate) fn join(&self) -> bool {
        let more = |now| (now != 0 && now < ENDING - 1).then_some(now + 1);
        self.descriptors.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// One descriptor less; calls `last`, before it is free, if there is none left.
    pub(crate) fn leave(&self, last: impl FnOnce()) {
        let less = |now| match now {
            0 | ENDING => None,
            1 => Some(ENDING),
            more => Some(more - 1),
        };
        if self.descriptors.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) == Ok(1) {
            last();
            self.descriptors.store(0, Ordering::Release);
        }
    }

    /// A function has begun it, and it has these obstacles.
    pub(crate) fn begin(&self, call: Call, obstacles: u32) {
        self.obstacles.store(obstacles, Ordering::Relaxed);
        self.note(call);
    }

    /// A function was called on it.
    #[inline]
    pub(crate) fn note(&self, call: Call) {
        let (word, bit) = (&self.used[call as usize / 64], 1 << (call as usize % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Names of the functions that were called on it.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &'static str> {
        (0..NAMES.len()).filter(|index| self.has(*index)).map(Call::name_at)
    }

    fn has(&self, index: usize) -> bool {
        self.used[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 != 0
    }

    /// Whether the other end connected to this one.
    pub(crate) fn is_accepted(&self) -> bool {
        self.has(Call::accept as usize) || self.has(Call::accept4 as usize)
    }

    /// A call has moved octets.
    #[inline]
    pub(crate) fn count(&self, way: Way, octets: u64) {
        let count = self.way(way);
        count.octets.fetch_add(octets, Ordering::Relaxed);
        // Two threads at once may count as one: a locked addition is half of what a call costs here.
        count.calls.store(count.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn way(&self, way: Way) -> &Count {
        match way {
            Way::Out => &self.out,
            Way::In => &self.into,
        }
    }

    /// Octets and calls since the last line about it.
    pub(crate) fn fresh(&self, way: Way) -> [u64; 2] {
        self.way(way).fresh()
    }

    /// All octets of this process and of its parents before they forked.
    pub(crate) fn octets(&self, way: Way) -> u64 {
        self.way(way).octets.load(Ordering::Relaxed)
    }

    /// What it has moved, in calls: so many octets count as one.
    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        let one = |count: &Count| {
            let [octets, calls] = count.now();
            calls + octets / CALL_OCTETS
        };
        one(&self.out) + one(&self.into)
    }

    /// A line tells all so far.
    pub(crate) fn report_from_here(&self) {
        self.out.report();
        self.into.report();
    }

    /// From now on all goes by TCP.
    pub(crate) fn obstruct(&self, obstacle: Obstacle) {
        self.obstacles.fetch_or(obstacle.bit(), Ordering::Relaxed);
        self.link.close();
    }

    /// Whether anything obstructs it.
    pub(crate) fn is_obstructed(&self) -> bool {
        self.obstacles.load(Ordering::Relaxed) != 0
    }

    /// Names of what obstructs it.
    pub(crate) fn obstacles(&self) -> impl Iterator<Item = &'static str> {
        let found = self.obstacles.load(Ordering::Relaxed);
        OBSTACLES
            .into_iter()
            .enumerate()
            .filter_map(move |(i, it)| (found >> i & 1 != 0).then_some(it))
    }

    /// Whether its ends are known.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.cookie.load(Ordering::Relaxed) != 0
    }

    /// The number by which [`kernel::cookie`] names its socket.
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Acquire)
    }

    /// Learns the ends of the connection: later it may be reset, and they are lost. Two threads write the same words.
    #[cold]
    pub(crate) fn introduce(&self, fd: c_int) {
        let (Some(ends), Some(cookie)) = (kernel::ends(fd), kernel::cookie(fd)) else { return };
        for (word, value) in self.ends.0.iter().zip(words(ends)) {
            word.store(value, Ordering::Relaxed);
        }
        self.cookie.store(cookie, Ordering::Release);
    }

    /// This end and the peer's.
    pub(crate) fn ends(&self) -> [SocketAddr; 2] {
        let [a, b, c, d, ports] = self.ends.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        let end = |high: u64, low: u64, port: u64| {
            let ip = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
            SocketAddr::new(ip.to_canonical(), port as u16)
        };
        [end(a, b, ports >> 16), end(c, d, ports)]
    }
}

fn words([this, peer]: [SocketAddr; 2]) -> [u64; 5] {
    let bits = |end: SocketAddr| match end {
        SocketAddr::V4(end) => end.ip().to_ipv6_mapped().to_bits(),
        SocketAddr::V6(end) => end.ip().to_bits(),
    };
    let (a, b) = (bits(this), bits(peer));
    let ports = u64::from(this.port()) << 16 | u64::from(peer.port());
    [(a >> 64) as u64, a as u64, (b >> 64) as u64, b as u64, ports]
}
