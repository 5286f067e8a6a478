//! A stream whose ends are on one host: octets by shared memory, and the TCP socket as life line.
//!
//! Owner: one QP, under its lock, or what lingers; other threads use the descriptors only ([`Sockets`]). The peer rings the
//! `doorbell`, which is in the engine's epoll set, when this end sleeps. It sleeps from the start, and whenever
//! a receive found nothing; not while a thread polls all the time ([`Local::stay_awake`]): then that
//! thread reads the memory, and neither end makes a system call.
//!
//! When the peer dies, TCP reports it. Octets that the peer wrote before are read first. An impossible
//! position in the memory ends the stream as a reset does, as [`Fault::Corrupt`].

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use kal_os::fork::{Descriptors, Mapped};
use kal_os::ring;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use shm_ring::{Corrupt, End, SHORT, Side};
use vp_api::{LocalSide, LocalStream};

use crate::fork::{Ours, SoftRdmaFds};
#[cfg(doc)]
use crate::stream::socket::Sockets;
use crate::stream::socket::{Fault, Piece, Received, Room, Sent};

/// What the life line reported: nothing, FIN, or a fault.
const ALIVE: u8 = 0;
const FIN: u8 = 1;
const RESET: u8 = 2;
const TIMED_OUT: u8 = 3;
const CORRUPT: u8 = 4;

/// The result of a check of the life line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// Nothing, or an end, which the next receive reports after the octets.
    Known,
    /// Octets, where none may be.
    Octets,
}

/// The shared memory of a stream.
#[derive(Debug)]
pub(crate) struct Local {
    // Before the memory: it must be forgotten before it is unmapped.
    _mapped: Mapped<SoftRdmaFds>,
    end: End,
    doorbell: Arc<Ours<OwnedFd>>,
    peer_doorbell: Ours<OwnedFd>,
    /// A thread polls, so the peer need not ring.
    awake: AtomicBool,
    /// The ring was full.
    full: AtomicBool,
    over: AtomicU8,
}

impl Local {
    pub(super) fn adopt(local: LocalStream) -> io::Result<Self> {
        let LocalStream { memory, side, doorbell, peer_doorbell } = local;
        let side = match side {
            LocalSide::Maker => Side::Maker,
            LocalSide::Other => Side::Other,
        };
        let map = || End::map(&memory, side).map_err(io::Error::other);
        let (mapped, end) = Descriptors::map::<SoftRdmaFds, _>(map, End::range)?;
        Ok(Self {
            _mapped: mapped,
            end,
            doorbell: Arc::new(Ours::make(|| Ok(doorbell))?),
            peer_doorbell: Ours::make(|| Ok(peer_doorbell))?,
            awake: AtomicBool::new(false),
            full: AtomicBool::new(false),
            over: AtomicU8::new(ALIVE),
        })
    }

    /// What the engine watches for octets and for room.
    pub(super) fn doorbell(&self) -> Arc<Ours<OwnedFd>> {
        self.doorbell.clone()
    }

    fn ring(&self) {
        ring(&*self.peer_doorbell);
    }

    /// A fault ends the stream for good.
    fn corrupt(&self, _: Corrupt) -> Fault {
        self.over.store(CORRUPT, Ordering::Relaxed);
        Fault::Corrupt
    }

    /// Whether the peer broke the rules of the memory.
    pub(crate) fn is_corrupt(&self) -> bool {
        self.over.load(Ordering::Relaxed) == CORRUPT
    }

    fn fault(&self) -> Option<Fault> {
        match self.over.load(Ordering::Relaxed) {
            RESET => Some(Fault::Reset),
            TIMED_OUT => Some(Fault::TimedOut),
            CORRUPT => Some(Fault::Corrupt),
            _ => None,
        }
    }

    // ---- octets ----------------------------------------------------------------------------

    /// Octets for which there is room.
    pub(crate) fn room(&self) -> usize {
        // Faults of the memory are reported when it is used.
        self.end.room().map_or(usize::MAX, |room| room as usize)
    }

    /// Sends from `pieces`, in order, as much as fits.
    pub(super) fn gather(&self, pieces: &[Piece<'_>]) -> Sent {
        if let Some(fault) = self.fault() {
            return Sent::Broken(fault);
        }
        let pieces = pieces.iter().map(Piece::raw_parts);
        // SAFETY: each piece is readable for its life time, and nothing but this file's `end` names the memory.
        self.sent(unsafe { self.end.write(pieces, || self.ring()) })
    }

    /// Whether [`Self::send`] sends up to [`shm_ring::SHORT`] octets whole.
    #[inline]
    pub(super) fn takes_short(&self) -> bool {
        self.over.load(Ordering::Relaxed) <= FIN && self.end.has_short_room()
    }

    /// Sends octets, as much as fits.
    pub(super) fn send(&self, octets: &[u8]) -> Sent {
        match self.fault() {
            Some(fault) => Sent::Broken(fault),
            None => self.sent(self.end.write_slice(octets, || self.ring())),
        }
    }

    /// Sends the first `octets` of an FPDU, after [`Self::takes_short`].
    #[inline]
    pub(super) fn send_short(&self, fpdu: &[u8; SHORT], octets: usize) {
        let whole = self.end.write_short(fpdu, octets, || self.ring());
        debug_assert!(whole, "it has room");
    }

    fn sent(&self, written: Result<usize, Corrupt>) -> Sent {
        match written {
            Ok(0) => self.await_room(),
            Ok(octets) => Sent::Octets(octets),
            Err(corrupt) => Sent::Broken(self.corrupt(corrupt)),
        }
    }

    /// The ring is full: the peer rings when it is not, unless a thread polls.
    fn await_room(&self) -> Sent {
        self.full.store(true, Ordering::Relaxed);
        if !self.awake.load(Ordering::Relaxed) {
            self.sleep();
        }
        Sent::Full
    }

    /// Whether a ring that was full has room again. If not, the peer rings, unless a thread polls.
    pub(crate) fn has_room_again(&self) -> bool {
        if !self.full.load(Ordering::Relaxed) {
            return false;
        }
        if self.room() != 0 {
            return self.full.swap(false, Ordering::Relaxed);
        }
        // It may have rung for something else.
        if !self.awake.load(Ordering::Relaxed) && !self.end.is_stalled() {
            self.sleep();
        }
        false
    }

    /// Receives what is there into `pieces`, in order. [`Received::Empty`]: the peer rings for what comes next,
    /// unless a thread polls.
    pub(super) fn scatter(&self, rooms: &[Room<'_>]) -> Received {
        loop {
            // First: the peer wrote its last octets before that end.
            let over = self.over.load(Ordering::Acquire);
            let rooms = rooms.iter().map(Room::raw_parts);
            // SAFETY: each room is writable for its life time, and nothing but this file's `end` names the memory.
            match unsafe { self.end.read(rooms, || self.ring()) } {
                Ok(0) if over != ALIVE || self.end.is_over() => {
                    return self.fault().map_or(Received::Fin, Received::Broken);
                }
                Ok(0) if self.awake.load(Ordering::Relaxed) || self.end.is_asleep() => {
                    return Received::Empty;
                }
                Ok(0) => match self.fall_asleep() {
                    Ok(false) => return Received::Empty,
                    // Octets are read now; the next visit sends.
                    Ok(true) if self.full.load(Ordering::Relaxed) => ring(&**self.doorbell),
                    Ok(true) => {}
                    Err(corrupt) => return Received::Broken(self.corrupt(corrupt)),
                },
                Ok(octets) => return Received::Octets(octets),
                Err(corrupt) => return Received::Broken(self.corrupt(corrupt)),
            }
        }
    }

    /// Receives what [`Self::is_quiet`] found, for a poller, if it is one short write of a live peer.
    #[inline]
    pub(super) fn receive_short(&self, to: &mut [u8; SHORT]) -> Option<usize> {
        let polled =
            self.awake.load(Ordering::Relaxed) && self.over.load(Ordering::Relaxed) == ALIVE;
        if polled { self.end.read_short(to, || self.ring()) } else { None }
    }

    /// A poller finds neither octets nor an end.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.awake.load(Ordering::Relaxed)
            && self.over.load(Ordering::Relaxed) == ALIVE
            && self.end.octets() == Ok(0)
            && !self.end.is_over()
    }

    /// No octets follow.
    pub(super) fn close(&self) {
        self.end.close(|| self.ring());
    }

    // ---- sleep -----------------------------------------------------------------------------

    /// A thread polls, so the peer need not ring.
    pub(crate) fn stay_awake(&self) {
        self.awake.store(true, Ordering::Relaxed);
        self.end.wake();
    }

    /// A thread polls.
    pub(crate) fn is_awake(&self) -> bool {
        self.awake.load(Ordering::Relaxed)
    }

    /// The peer rings from now on; what came meanwhile is reported.
    pub(crate) fn sleep(&self) {
        self.awake.store(false, Ordering::Relaxed);
        // The next receive reports the fault.
        if self.fall_asleep() != Ok(false) {
            ring(&**self.doorbell);
        }
    }

    fn fall_asleep(&self) -> Result<bool, Corrupt> {
        self.end.fall_asleep(self.full.load(Ordering::Relaxed), || self.ring())
    }

    // ---- life line -------------------------------------------------------------------------

    /// The TCP socket became readable.
    pub(super) fn check_life_line(&self, socket: &OwnedFd) -> Line {
        let end = loop {
            match rustix::net::recv(socket, &mut [0; 1], RecvFlags::DONTWAIT) {
                Ok((0, _)) => break FIN,
                Ok(_) => return Line::Octets,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Line::Known,
                Err(errno) => break Self::end_of(Fault::from_errno(errno.raw_os_error())),
            }
        };
        // The worse of two ends is kept.
        self.over.fetch_max(end, Ordering::AcqRel);
        Line::Known
    }

    fn end_of(fault: Fault) -> u8 {
        match fault {
            Fault::Reset | Fault::Unmapped => RESET,
            Fault::TimedOut => TIMED_OUT,
            Fault::Corrupt => CORRUPT,
        }
    }
}
