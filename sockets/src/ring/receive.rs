//! Receives octets that came by TCP and by the ring, in their order. No state.

use std::ffi::c_int;

use libc::{EAGAIN, ECONNRESET, EFAULT, EINTR, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use shm_ring::{Companion, Corrupt};

use super::link::Failure;
use super::pieces::Pieces;
use super::spin::{self, Seen};
use crate::connection::Connection;
use crate::next::{set_errno, system};
use crate::way::Way;
use crate::{kernel, process};

/// A pipe that is writable has room for so many octets (pipe(7), `PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// Flags of calls that do not take octets of the stream.
const ASIDE: c_int = libc::MSG_OOB | libc::MSG_ERRQUEUE;

/// One call that receives.
struct Receive<'a> {
    fd: c_int,
    connection: &'a Connection,
    ring: &'a Companion,
    pieces: Pieces,
    want: usize,
    flags: c_int,
}

/// What is not there yet.
#[derive(PartialEq, Eq)]
enum Missing {
    /// Octets that were sent by TCP before those in the ring.
    Before,
    /// The same, and they will not come: what is in the ring is not to be read.
    Lost,
    /// More octets.
    More,
}

fn failed(errno: c_int) -> isize {
    set_errno(errno);
    -1
}

/// Receives; `real` is the program's call to the C library.
#[inline]
pub(crate) fn receive(
    fd: c_int,
    connection: &Connection,
    pieces: Pieces,
    flags: c_int,
    real: impl Fn() -> isize,
) -> isize {
    connection.link.call(&real, |ring| attached(fd, connection, ring, pieces, flags, &real))
}

/// Receives by TCP, whatever it is. `None`, and nothing was done: there are octets in the ring.
pub(crate) fn by_tcp(connection: &Connection, real: impl Fn() -> c_int) -> Option<c_int> {
    let pinned = |ring: &Companion| {
        (ring.base().is_none() && ring.pin() == Ok(true)).then(|| {
            let n = real();
            ring.unpin();
            n
        })
    };
    connection.link.call(|| Some(real()), pinned)
}

fn attached(
    fd: c_int,
    connection: &Connection,
    ring: &Companion,
    pieces: Pieces,
    flags: c_int,
    real: impl Fn() -> isize,
) -> isize {
    let len = if flags & MSG_TRUNC != 0 {
        // Nobody gets the octets, and any address will do.
        Some(pieces.iter().map(|(_, len)| len).sum()).filter(|_| !matches!(pieces, Pieces::Bad))
    } else {
        pieces.len()
    };
    let want = len.unwrap_or(0);
    if want == 0 || flags & ASIDE != 0 {
        if flags & ASIDE == 0 && ring.octets().is_ok_and(|octets| octets > 0) {
            return if len.is_none() { failed(EFAULT) } else { 0 };
        }
        ring.pin_anyway();
        let n = real();
        ring.unpin();
        return n;
    }
    let call = Receive { fd, connection, ring, pieces, want, flags };
    match call.all(real) {
        Ok(n) => n,
        Err(Corrupt) => call.fail(Failure::Corrupt),
    }
}

impl Receive<'_> {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    fn fail(&self, failure: Failure) -> isize {
        self.connection.link.fail(self.fd, failure);
        failed(ECONNRESET)
    }

    fn all(&self, real: impl Fn() -> isize) -> Result<isize, Corrupt> {
        let link = &self.connection.link;
        let low = link.low_water() as usize;
        let enough = if self.has(MSG_WAITALL) { self.want } else { low.min(self.want) };
        let mut total = 0;
        loop {
            let missing = self.gather(&mut total)?;
            let blocks = !self.has(MSG_DONTWAIT) && link.blocks(self.fd);
            // An error is for the next call.
            let ends = || !blocks || self.has(MSG_PEEK) || kernel::has_failed(self.fd);
            if total >= enough || total > 0 && ends() {
                return Ok(total as isize);
            }
            if missing == Missing::Lost {
                self.ring.pin_anyway();
                let n = if total > 0 { total as isize } else { real() };
                self.ring.unpin();
                return Ok(n);
            }
            if missing == Missing::Before {
                if !blocks {
                    return Ok(failed(EAGAIN));
                }
                if !kernel::wait_readable(self.fd) {
                    return Ok(if total > 0 { total as isize } else { failed(EINTR) });
                }
                continue;
            }
            if !blocks && !self.ring.has_other() && kernel::is_quiet(self.fd) {
                return Ok(failed(EAGAIN));
            }
            if blocks && total == 0 && self.spins() || !self.ring.pin()? {
                continue;
            }
            let begin = link.patience.falls_asleep();
            let n = match total {
                0 => real(),
                _ => self.rest(total, enough - total, MSG_WAITALL),
            };
            link.patience.wakes(begin);
            let stray = n > 0 && !self.ring.has_other();
            self.ring.unpin();
            if stray {
                return Ok(self.fail(Failure::Stray));
            }
            if total == 0 {
                link.look(self.ring);
                return Ok(n);
            }
            if n <= 0 {
                return Ok(total as isize);
            }
            total += n as usize;
        }
    }

    /// Looks at the ring for a while. True: there are octets in it.
    fn spins(&self) -> bool {
        let link = &self.connection.link;
        if !link.patience.tries() || !link.look(self.ring) {
            return false;
        }
        let memory = || self.ring.octets() != Ok(0) || self.ring.base().is_some();
        let seen = spin::look(u64::MAX, memory, || !kernel::is_quiet(self.fd));
        link.patience.learn(seen);
        seen == Seen::Memory
    }

    /// Takes what is there without waiting, after the first `total` octets.
    fn gather(&self, total: &mut usize) -> Result<Missing, Corrupt> {
        if self.has(MSG_PEEK) {
            let missing;
            (*total, missing) = self.peek()?;
            return Ok(missing);
        }
        loop {
            if let Some(base) = self.ring.base() {
                let (n, missing) = self.before(base, *total);
                *total += n;
                if *total == self.want {
                    return Ok(Missing::More);
                }
                if missing != Missing::More {
                    return Ok(missing);
                }
            }
            *total += self.read_ring(*total)?;
            if *total == self.want {
                return Ok(Missing::More);
            }
            if self.ring.base().is_some() || self.ring.octets()? > 0 {
                continue;
            }
            // A call that finds nothing would take an error that the next one is to return.
            let more = *total > 0
                && self.ring.has_other()
                && kernel::unread(self.fd) > 0
                && !kernel::is_at_mark(self.fd);
            if more && self.ring.pin()? {
                let n = self.rest(*total, self.want - *total, MSG_DONTWAIT);
                self.ring.unpin();
                *total += usize::try_from(n).unwrap_or(0);
            }
            return Ok(Missing::More);
        }
    }

    /// Copies what is there, and leaves it there: octets by TCP before those of the ring, these, and those after them.
    fn peek(&self) -> Result<(usize, Missing), Corrupt> {
        // Asked in this order: the peer states a base before it writes behind it.
        let (position, in_ring) = (self.ring.position(), self.ring.octets()? as usize);
        let left = self.ring.base().map_or(0, |base| self.before_base(base, 0));
        let left = usize::try_from(left).unwrap_or(usize::MAX).min(self.want);
        let in_ring = in_ring.min(self.want - left);
        if left + in_ring == 0 {
            return Ok((0, Missing::More));
        }
        let (mut all, before) = self.pieces.vector(0, left);
        let (after, more) = self.pieces.vector(left + in_ring, self.want - left - in_ring);
        let some = more.min(all.len() - before);
        all[before..before + some].copy_from_slice(&after[..some]);
        let flags = self.flags & (MSG_PEEK | MSG_TRUNC) | MSG_DONTWAIT;
        let by_tcp = match kernel::unread(self.fd) {
            0 => 0,
            _ if left == 0 && kernel::is_at_mark(self.fd) => 0,
            _ => self.pass(&mut all, before + some, flags).unwrap_or(0),
        };
        if by_tcp < left {
            return Ok((by_tcp, if by_tcp > 0 { Missing::More } else { self.missing_before() }));
        }
        // Others in the ring may precede those by TCP that came after these.
        let by_tcp = if self.ring.position() == position { by_tcp } else { left };
        let pieces = self.pieces.part(left, in_ring);
        // SAFETY: memory that the program passed to be written.
        let in_ring = unsafe { self.ring.read(pieces, true) }?;
        Ok((by_tcp + in_ring, Missing::More))
    }

    /// What is missing when octets by TCP before those of the ring are not there.
    fn missing_before(&self) -> Missing {
        // Asked in this order: what was sent before the end has arrived.
        let lost = kernel::has_ended(self.fd) && kernel::unread(self.fd) == 0;
        if lost { Missing::Lost } else { Missing::Before }
    }

    fn read_ring(&self, total: usize) -> Result<usize, Corrupt> {
        let unwanted = self.has(MSG_TRUNC);
        let pieces = self.pieces.part(total, self.want - total);
        let pieces =
            pieces.map(|(at, len)| (if unwanted { std::ptr::null_mut() } else { at }, len));
        // SAFETY: memory that the program passed to be written, or null.
        let n = unsafe { self.ring.read(pieces, false) }?;
        self.connection.link.count(Way::In, n);
        Ok(n)
    }

    /// Octets by TCP before those of the ring: how many were taken, and which are missing.
    ///
    /// No signal handler runs meanwhile: it might leave by longjmp(3), or read the same connection.
    fn before(&self, base: u64, total: usize) -> (usize, Missing) {
        let signals = Signals::block();
        if !self.takes_turn() {
            signals.restore();
            rustix::thread::sched_yield();
            return (0, Missing::Before);
        }
        let result = self.before_alone(base, total);
        self.ring.give_back();
        signals.restore();
        result
    }

    /// Whether this call may read them: one of all processes at a time. One that was killed has no turn any more.
    fn takes_turn(&self) -> bool {
        let this = process::id();
        match self.ring.take_turn(0, this) {
            Ok(()) => true,
            Err(other) => kernel::has_exited(other) && self.ring.take_turn(other, this).is_ok(),
        }
    }

    /// Octets by TCP before those of the ring that were not read, when this call has taken `total` octets.
    fn before_base(&self, base: u64, total: usize) -> u64 {
        // Where the kernel does not tell, what this process has counted must do.
        let counted = || self.connection.octets(Way::In) + total as u64;
        let by_ring = self.connection.link.by_ring(Way::In);
        let read = kernel::read_so_far(self.fd);
        base.saturating_sub(read.unwrap_or_else(|| counted().saturating_sub(by_ring)))
    }

    fn before_alone(&self, base: u64, total: usize) -> (usize, Missing) {
        let left = self.ring.left(base, || self.before_base(base, total));
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.want - total);
        if left > 0 && kernel::unread(self.fd) == 0 {
            return (0, self.missing_before());
        }
        let n = match left {
            0 => 0,
            _ => self.system(total, most, self.flags & MSG_TRUNC | MSG_DONTWAIT).unwrap_or(0),
        };
        self.ring.took(n as u64);
        if n as u64 == left {
            self.ring.passed(base);
            return (n, Missing::More);
        }
        (n, Missing::Before)
    }

    /// A system call for at most so many octets.
    fn system(&self, total: usize, most: usize, flags: c_int) -> Result<usize, i32> {
        let (mut vector, count) = self.pieces.vector(total, most);
        self.pass(&mut vector, count, flags)
    }

    fn pass(&self, vector: &mut [libc::iovec], count: usize, flags: c_int) -> Result<usize, i32> {
        let mut message = message(vector, count);
        let at = (&raw mut message).expose_provenance();
        system(libc::SYS_recvmsg, [self.fd as usize, at, flags as usize, 0, 0, 0])
    }

    /// Takes what is there, into `octets`, and writes it to a pipe that has room for it.
    fn to_pipe(&self, to: c_int, octets: &[u8; AT_ONCE]) -> Option<isize> {
        if !kernel::wait_writable(to) {
            return Some(failed(EAGAIN));
        }
        let mut total = 0;
        if self.gather(&mut total).is_err() {
            return Some(self.fail(Failure::Corrupt));
        }
        let at = octets.as_ptr().expose_provenance();
        match system(libc::SYS_write, [to as usize, at, total, 0, 0, 0]) {
            _ if total == 0 => None,
            Ok(n) => Some(n as isize),
            Err(errno) => Some(failed(errno)),
        }
    }

    /// Receives more by TCP, as the program's call would.
    fn rest(&self, total: usize, most: usize, flags: c_int) -> isize {
        let flags = self.flags & (MSG_PEEK | MSG_TRUNC) | flags;
        match self.system(total, most, flags) {
            Ok(n) => n as isize,
            Err(_) => -1,
        }
    }
}

/// splice(2) from a connection whose ring has octets, to a pipe: at most [`AT_ONCE`]. `None`: there are none.
pub(crate) fn spliced(fd: c_int, connection: &Connection, to: c_int, len: usize) -> Option<isize> {
    let ring = connection.link.hold()?;
    let some = ring.base().is_some() || ring.octets() != Ok(0);
    let n = (some && len > 0).then(|| {
        let mut octets = [0; AT_ONCE];
        let want = octets.len().min(len);
        let pieces = Pieces::One(octets.as_mut_ptr(), want);
        let call = Receive { fd, connection, ring, pieces, want, flags: MSG_DONTWAIT };
        call.to_pipe(to, &octets)
    });
    connection.link.release();
    n.flatten()
}

/// A message of these pieces.
pub(super) fn message(pieces: &mut [libc::iovec], count: usize) -> libc::msghdr {
    // SAFETY: all octets may be 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = count as _;
    message
}

/// The signals that a thread had blocked.
struct Signals(u64);

impl Signals {
    const SIZE: usize = size_of::<u64>();

    fn block() -> Self {
        let (all, mut before) = (u64::MAX, 0_u64);
        let (set, old) =
            ((&raw const all).expose_provenance(), (&raw mut before).expose_provenance());
        let how = libc::SIG_SETMASK as usize;
        let _ = system(libc::SYS_rt_sigprocmask, [how, set, old, Self::SIZE, 0, 0]);
        Self(before)
    }

    fn restore(self) {
        let set = (&raw const self.0).expose_provenance();
        let how = libc::SIG_SETMASK as usize;
        let _ = system(libc::SYS_rt_sigprocmask, [how, set, 0, Self::SIZE, 0, 0]);
    }
}
