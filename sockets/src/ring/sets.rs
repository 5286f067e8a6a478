//! Sets of epoll(7) with connections that share memory.
//!
//! A connection that is in one set, once, is looked at by the thread that waits for that set, and by nobody else. What the
//! kernel does not tell, the set's list does: which connections have memory, and for each what the program asked for.
//! To all others octets come by TCP, as the kernel tells: connections in two sets or twice in one, `EPOLLONESHOT` and
//! `EPOLLEXCLUSIVE`, sets with a duplicate, sets of a parent, sets for which two threads have waited at once, or one by another set,
//! poll(2) or select(2). Only octets that
//! were in a ring before are reported to these, too.
//!
//! Owner of the state: static memory. Any thread may change a set while another waits for it. Full: a set beyond the bound is not
//! followed, and its connections stay with TCP.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDNORM, epoll_event};
use shm_ring::Companion;

use super::limit::Limit;
use super::link::Link;
use super::several::is_ready;
use super::spin::{self, Patience, Seen};
use crate::next::system;
use crate::tuning::{ATTACHED, FAIR_NS, SETS};

const READS: c_int = EPOLLIN | EPOLLRDNORM;
/// Registrations of one connection that are followed.
const MOST: usize = 4;

/// What a set is to be told of a connection.
struct Asked {
    /// The set's key, or 0.
    set: AtomicU32,
    fd: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
    /// For edges: the ring's position that was reported.
    seen: AtomicU32,
    /// For edges: the next look reports in any case.
    fresh: AtomicBool,
    /// It was reported for what is in the ring; and, of one event, the kernel does not know.
    by_ring: AtomicBool,
    silent: AtomicBool,
    /// The kernel was asked for room to write, too, to wake who waits.
    woken: AtomicBool,
}

impl Asked {
    const fn new() -> Self {
        Self {
            set: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
            events: AtomicU32::new(0),
            data: AtomicU64::new(0),
            seen: AtomicU32::new(0),
            fresh: AtomicBool::new(false),
            by_ring: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            woken: AtomicBool::new(false),
        }
    }

    /// The set, if there still is that one.
    fn set(&self) -> Option<&'static Set> {
        let key = self.set.load(SeqCst);
        let set = &SET[key as usize % SETS];
        (key != 0 && set.key() == key).then_some(set)
    }

    fn ask(&self, fd: c_int, event: epoll_event) {
        self.fd.store(fd, SeqCst);
        self.data.store(event.u64, SeqCst);
        self.events.store(event.events, SeqCst);
        self.fresh.store(true, SeqCst);
        self.silent.store(false, SeqCst);
        self.by_ring.store(false, SeqCst);
        self.woken.store(false, SeqCst);
    }

    /// Tells the kernel what it is to wait for.
    fn tell_kernel(&self, set: c_int, events: u32) {
        let event = epoll_event { events, u64: self.data.load(SeqCst) };
        let (what, fd) = (libc::EPOLL_CTL_MOD as usize, self.fd.load(SeqCst) as usize);
        let at = (&raw const event).expose_provenance();
        let _ = system(libc::SYS_epoll_ctl, [set as usize, what, fd, at, 0, 0]);
    }

    fn asks(&self, events: c_int) -> bool {
        self.events.load(SeqCst) & events as u32 != 0
    }

    /// Whether there is something new to tell.
    fn tells(&self, link: &Link, ring: &Companion) -> bool {
        let new = || self.fresh.load(SeqCst) || self.seen.load(SeqCst) != ring.position();
        self.asks(READS)
            && !self.silent.load(SeqCst)
            && is_ready(self.fd.load(SeqCst), link, ring)
            && (!self.asks(EPOLLET) || new())
    }

    /// It was told, when the ring was at this position.
    fn told(&self, position: u32) {
        self.fresh.store(false, SeqCst);
        self.seen.store(position, SeqCst);
        self.by_ring.store(true, SeqCst);
    }
}

/// Where a connection is registered.
pub(crate) struct Watch {
    all: [Asked; MOST],
    /// In a way with which only the kernel may bring octets.
    odd: AtomicBool,
}

impl Watch {
    pub(crate) const fn new() -> Self {
        Self { all: [const { Asked::new() }; MOST], odd: AtomicBool::new(false) }
    }

    pub(crate) fn clear(&self) {
        self.all.iter().for_each(|it| it.set.store(0, SeqCst));
        self.odd.store(false, SeqCst);
    }

    /// Whether a set waits for it.
    pub(crate) fn is_set(&self) -> bool {
        self.odd.load(SeqCst) || self.live().next().is_some()
    }

    /// Whether octets must come by TCP for the sets that wait for it.
    pub(crate) fn is_odd(&self) -> bool {
        self.odd.load(SeqCst)
    }

    fn live(&self) -> impl Iterator<Item = &Asked> {
        self.all.iter().filter(|it| it.set().is_some())
    }

    fn find(&self, set: &Set, fd: c_int) -> Option<&Asked> {
        let is = |it: &&Asked| it.set.load(SeqCst) == set.key() && it.fd.load(SeqCst) == fd;
        self.all.iter().find(is)
    }
}

/// One set.
struct Set {
    /// How often this place was used, times [`SETS`], plus its number: never 0 in use.
    key: AtomicU32,
    used: AtomicBool,
    /// Only the kernel can follow it.
    shared: AtomicBool,
    /// It has a duplicate: the place is never free again.
    kept: AtomicBool,
    /// A thread waits.
    busy: AtomicBool,
    /// No connection looks at its ring, or has octets there, since a wait slept.
    rests: AtomicBool,
    /// A connection is in it for one event, and one is to wake who waits.
    once: AtomicBool,
    wakes: AtomicBool,
    /// Connections with memory, which are in static memory; null: none.
    list: [AtomicPtr<Link>; ATTACHED as usize],
    len: AtomicUsize,
    /// When the kernel was asked last.
    asked: AtomicU64,
    patience: Patience,
}

static SET: [Set; SETS] = [const { Set::new() }; SETS];

impl Set {
    const fn new() -> Self {
        Self {
            key: AtomicU32::new(0),
            used: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            once: AtomicBool::new(false),
            wakes: AtomicBool::new(false),
            list: [const { AtomicPtr::new(null_mut()) }; ATTACHED as usize],
            len: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            patience: Patience::new(),
        }
    }

    fn key(&self) -> u32 {
        self.key.load(SeqCst)
    }

    /// The registrations of connections with memory, each for the length of `act`.
    fn each(&self, mut act: impl FnMut(&Asked, &Link, &Companion)) {
        for entry in self.list.iter().take(self.len.load(SeqCst)) {
            let at = entry.load(SeqCst);
            // SAFETY: null, or what `list` got, which lives for ever.
            let Some(link) = (unsafe { at.as_ref() }) else { continue };
            let mut found = false;
            if let Some(ring) = link.hold() {
                let mine = |it: &&Asked| it.set.load(SeqCst) == self.key();
                link.watch.all.iter().filter(mine).for_each(|it| {
                    found = true;
                    act(it, link, ring);
                });
                link.release();
            }
            if !found {
                // Closed, or removed from the set.
                let _ = entry.compare_exchange(at, null_mut(), SeqCst, SeqCst);
            }
        }
    }

    fn list(&self, link: &'static Link) {
        let at = std::ptr::from_ref(link).cast_mut();
        if self.list.iter().any(|entry| entry.load(SeqCst) == at) {
            return;
        }
        let free = |entry: &AtomicPtr<Link>| {
            entry.compare_exchange(null_mut(), at, SeqCst, SeqCst).is_ok()
        };
        if let Some(at) = self.list.iter().position(free) {
            self.len.fetch_max(at + 1, SeqCst);
        }
    }
}

/// A set was made: its number, for the table. `None`: it is not followed.
pub(crate) fn made() -> Option<u32> {
    let free = |set: &Set| set.used.compare_exchange(false, true, SeqCst, SeqCst).is_ok();
    let index = SET.iter().position(free)?;
    let set = &SET[index];
    for flag in [&set.shared, &set.busy, &set.once, &set.wakes] {
        flag.store(false, SeqCst);
    }
    set.rests.store(true, SeqCst);
    set.patience.clear();
    let uses = set.key() / SETS as u32 + 1;
    set.key.store((uses % (1 << 20)).max(1) * SETS as u32 + index as u32, SeqCst);
    Some(index as u32)
}

/// A set's descriptor is closed.
pub(crate) fn end(index: u32) {
    let Some(set) = SET.get(index as usize) else { return };
    if set.kept.load(SeqCst) {
        return;
    }
    // Connections that name this use are in no set from now on.
    set.key.fetch_add(SETS as u32, SeqCst);
    set.list.iter().take(set.len.swap(0, SeqCst)).for_each(|entry| entry.store(null_mut(), SeqCst));
    set.used.store(false, SeqCst);
}

/// A set's descriptor has a duplicate.
pub(crate) fn duplicated(index: u32) {
    if let Some(set) = SET.get(index as usize) {
        set.kept.store(true, SeqCst);
        share(set);
    }
}

/// It is waited for as a part of another wait.
pub(crate) fn nested(index: u32) {
    if let Some(set) = SET.get(index as usize).filter(|set| !set.shared.load(SeqCst)) {
        share(set);
    }
}

/// Only the kernel can follow a set from now on.
fn share(set: &Set) {
    set.shared.store(true, SeqCst);
    set.each(|_, _, ring| look_away(ring));
}

fn look_away(ring: &Companion) {
    while !ring.look_away(ring.position()) {}
}

/// In a child: its parent waits for them, too.
pub(crate) fn renew() {
    SET.iter().for_each(|set| set.shared.store(true, SeqCst));
}

/// A connection has memory from now on.
pub(super) fn attached(link: &'static Link) {
    link.watch.live().filter_map(Asked::set).for_each(|set| set.list(link));
}

/// epoll_ctl(2) of this descriptor, perhaps a set, has succeeded.
pub(crate) fn controlled(
    at: c_int,
    set: Option<u32>,
    what: c_int,
    fd: c_int,
    event: Option<epoll_event>,
    link: &'static Link,
) {
    let watch = &link.watch;
    let set = set.and_then(|set| SET.get(set as usize));
    let asked = set.and_then(|set| watch.find(set, fd));
    let odd = |event: &epoll_event| event.events as i32 & (EPOLLONESHOT | EPOLLEXCLUSIVE) != 0;
    match (what, event, set, asked) {
        (libc::EPOLL_CTL_DEL, _, _, Some(asked)) => asked.set.store(0, SeqCst),
        (libc::EPOLL_CTL_DEL, ..) => {}
        (_, Some(event), Some(set), asked) => {
            let odd = odd(&event) || set.kept.load(SeqCst) || asked.is_none() && watch.is_set();
            watch.odd.fetch_or(odd, SeqCst);
            let free = || watch.all.iter().find(|it| it.set().is_none());
            set.once.fetch_or(event.events & EPOLLONESHOT as u32 != 0, SeqCst);
            match asked.or_else(free) {
                Some(asked) => {
                    asked.ask(fd, event);
                    asked.set.store(set.key(), SeqCst);
                }
                None => watch.odd.store(true, SeqCst),
            }
            if link.is_attached() {
                set.list(link);
            }
        }
        _ => watch.odd.store(true, SeqCst),
    }
    if let Some(ring) = link.hold() {
        look_away(ring);
        if let Some(set) = set.filter(|_| ring.octets() != Ok(0)) {
            set.rests.store(false, SeqCst);
            watch.find(set, fd).into_iter().for_each(|asked| wake(at, set, asked));
        }
        link.release();
    }
}

/// A thread that waits for a set in the kernel is to see what a ring has had before.
fn wake(at: c_int, set: &Set, asked: &Asked) {
    if set.busy.load(SeqCst) && asked.asks(READS) && !asked.asks(EPOLLOUT) {
        asked.woken.store(true, SeqCst);
        set.wakes.store(true, SeqCst);
        asked.tell_kernel(at, asked.events.load(SeqCst) | EPOLLOUT as u32);
    }
}

/// Where the program wants events.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) set: c_int,
    pub(crate) events: *mut epoll_event,
    pub(crate) most: c_int,
}

impl Room {
    /// What the kernel shows now.
    fn now(self) -> c_int {
        let (set, at, most) = (self.set as usize, self.events.expose_provenance(), self.most);
        let done = system(libc::SYS_epoll_pwait, [set, at, most as usize, 0, 0, 8]);
        done.map_or(0, |n| n as c_int)
    }

    /// Removes parts of an event among the first `n`; returns how many there are then.
    ///
    /// # Safety
    /// The room is what the program passed to epoll_wait(2).
    unsafe fn remove(self, n: c_int, events: u32, data: u64) -> c_int {
        let mut left = 0;
        for place in 0..n as usize {
            // SAFETY: the caller's promise: `n` events were written.
            let mut event = unsafe { self.events.wrapping_add(place).read_unaligned() };
            if event.u64 == data {
                event.events &= !events;
            }
            if event.events != 0 {
                // SAFETY: the same, of a place before.
                unsafe { self.events.wrapping_add(left).write_unaligned(event) };
                left += 1;
            }
        }
        left as c_int
    }

    /// Adds an event to the first `n`; returns how many there are then. `None`: there is no room.
    ///
    /// # Safety
    /// The room is what the program passed to epoll_wait(2).
    unsafe fn add(self, n: c_int, events: u32, data: u64) -> Option<c_int> {
        for place in 0..n as usize {
            let place = self.events.wrapping_add(place);
            // SAFETY: the caller's promise: `n` events were written.
            let mut event = unsafe { place.read_unaligned() };
            if event.u64 == data {
                event.events |= events;
                // SAFETY: the same.
                unsafe { place.write_unaligned(event) };
                return Some(n);
            }
        }
        if n >= self.most {
            return None;
        }
        let place = self.events.wrapping_add(n as usize);
        // SAFETY: the caller's promise: there is room for `most`.
        unsafe { place.write_unaligned(epoll_event { events, u64: data }) };
        Some(n + 1)
    }
}

/// Waits for a set: at most for `limit`, by `real`, the program's call; without a look at memory first if it is
/// `masked`.
///
/// # Safety
/// The room and the limit are what the program passed.
pub(crate) unsafe fn wait(
    index: Option<u32>,
    room: Room,
    limit: Limit,
    masked: bool,
    real: impl Fn() -> c_int,
) -> c_int {
    let set = index.and_then(|index| SET.get(index as usize));
    let Some(set) = set.filter(|_| room.most > 0) else { return real() };
    let alone = !set.busy.swap(true, SeqCst);
    if !alone && !set.shared.load(SeqCst) {
        share(set);
    }
    // SAFETY: the caller's promise.
    let limit = unsafe { limit.nanos() };
    let asleep = masked || set.shared.load(SeqCst);
    let n = loop {
        // SAFETY: the caller's promise.
        let n = unsafe { wait_for(set, room, limit, asleep, &real) };
        if n <= 0 || !set.wakes.swap(false, SeqCst) {
            break n;
        }
        // SAFETY: the same; so many events were written.
        let n = unsafe { woken(set, room, n) };
        if n > 0 {
            break n;
        }
    };
    // SAFETY: the same; so many events were written.
    let n = if set.once.load(SeqCst) { unsafe { fired(set, room, n) } } else { n };
    if alone {
        set.busy.store(false, SeqCst);
    }
    n
}

/// # Safety
/// That of [`wait`].
unsafe fn wait_for(
    set: &Set,
    room: Room,
    limit: u64,
    asleep: bool,
    real: impl Fn() -> c_int,
) -> c_int {
    loop {
        let may_look = || !asleep && limit > 0 && set.len.load(SeqCst) > 0 && set.patience.tries();
        let rests = set.rests.load(SeqCst) && !set.shared.load(SeqCst);
        let looks = rests.then(may_look);
        if looks == Some(false) {
            return sleep(set, limit, real);
        }
        if limit == 0 {
            let n = real();
            // SAFETY: the caller's promise.
            return if n < 0 { n } else { unsafe { report(set, room, n) } };
        }
        if any(set) {
            // SAFETY: the caller's promise.
            return unsafe { report(set, room, kernel_too(set, room)) };
        }
        if looks.unwrap_or_else(may_look) {
            set.rests.store(false, SeqCst);
            set.each(|asked, link, ring| {
                if asked.asks(READS) && !link.watch.is_odd() && link.may_look() {
                    ring.look();
                }
            });
            // Another thread may have begun to wait meanwhile.
            if set.shared.load(SeqCst) {
                share(set);
                continue;
            }
            let mut found = 0;
            let kernel = || {
                found = room.now();
                found != 0
            };
            let seen = spin::look(limit, || any(set), kernel);
            set.patience.learn(seen);
            if seen == Seen::Kernel {
                // SAFETY: the caller's promise.
                return unsafe { report(set, room, found) };
            }
            if seen == Seen::Memory {
                continue;
            }
        }
        // Before the look: another thread may add a connection meanwhile.
        set.rests.store(true, SeqCst);
        if !none_looks(set) {
            set.rests.store(false, SeqCst);
            continue;
        }
        return sleep(set, limit, real);
    }
}

/// Waits in the kernel.
fn sleep(set: &Set, limit: u64, real: impl Fn() -> c_int) -> c_int {
    let waits = limit > 0 && set.len.load(SeqCst) > 0;
    let begin = if waits { set.patience.falls_asleep() } else { 0 };
    let n = real();
    set.patience.wakes(begin);
    n
}

/// Takes room to write, of which the kernel was asked to wake this thread, from `n` events; adds what a ring has instead.
///
/// # Safety
/// That of [`wait`]; `n` events were written.
unsafe fn woken(set: &Set, room: Room, mut n: c_int) -> c_int {
    set.each(|asked, _, _| {
        if asked.woken.swap(false, SeqCst) {
            asked.tell_kernel(room.set, asked.events.load(SeqCst));
            // SAFETY: the caller's promise; so many events were written.
            n = unsafe { room.remove(n, EPOLLOUT as u32, asked.data.load(SeqCst)) };
        }
    });
    // SAFETY: the same.
    unsafe { report(set, room, n) }
}

/// Registrations for one event that had it get no other. Returns how many events remain.
///
/// # Safety
/// That of [`wait`]; `n` events were written.
unsafe fn fired(set: &Set, room: Room, mut n: c_int) -> c_int {
    set.each(|asked, _, _| {
        if !asked.asks(EPOLLONESHOT) {
            return;
        }
        let data = asked.data.load(SeqCst);
        let at = |place: c_int| room.events.wrapping_add(place as usize);
        // SAFETY: the caller's promise.
        let of = |place| unsafe { at(place).read_unaligned() };
        let Some(place) = (0..n).find(|place| of(*place).u64 == data) else { return };
        if asked.silent.load(SeqCst) {
            n -= 1;
            // SAFETY: the same.
            unsafe { at(place).write_unaligned(of(n)) };
        } else if asked.by_ring.swap(false, SeqCst) {
            asked.silent.store(true, SeqCst);
            // The kernel, which does not know that an event was reported, is to report no other.
            asked.tell_kernel(room.set, (EPOLLONESHOT | EPOLLET) as u32);
        } else {
            asked.events.store(EPOLLONESHOT as u32, SeqCst);
        }
    });
    n
}

fn any(set: &Set) -> bool {
    let mut any = false;
    set.each(|asked, link, ring| any |= asked.tells(link, ring));
    any
}

/// No connection of a set looks at its ring any more. False: one has something to tell.
fn none_looks(set: &Set) -> bool {
    let mut all = true;
    set.each(|asked, link, ring| {
        let position = ring.position();
        all = all && !asked.tells(link, ring) && ring.look_away(position);
    });
    all
}

/// Events of the kernel beside those of memory, if it is time to ask for them.
fn kernel_too(set: &Set, room: Room) -> c_int {
    let now = spin::now();
    let mut asks = now.wrapping_sub(set.asked.load(Relaxed)) >= FAIR_NS;
    set.each(|asked, _, _| asks |= asked.asks(EPOLLOUT));
    if !asks {
        return 0;
    }
    set.asked.store(now, Relaxed);
    room.now()
}

/// Adds what memory shows to `n` events of the kernel.
///
/// # Safety
/// That of [`wait`].
unsafe fn report(set: &Set, room: Room, mut n: c_int) -> c_int {
    set.each(|asked, link, ring| {
        let position = ring.position();
        if asked.tells(link, ring) {
            let events = asked.events.load(SeqCst) & READS as u32;
            // SAFETY: the caller's promise.
            if let Some(now) = unsafe { room.add(n, events, asked.data.load(SeqCst)) } {
                n = now;
                asked.told(position);
            }
        }
    });
    n
}
