//! The observer of a capture, as this process has it: a ring in memory that the observer created, and a socket.
//!
//! Owner: the capture of the process, under its lock. The observer is hostile: [`shm_ring`] checks what it writes. When
//! it sleeps, it is woken by an octet over the socket. Its death is found when it cannot be woken, or when the ring is
//! full.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use kal_os::fork::{Descriptors, Foreign, Mapped};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketType,
    sockopt,
};
use shm_ring::{End, Side};
use vp_api::{VpError, VpResult, VpStatus};

use crate::fork::SoftRdmaFds;

/// While the ring is full, the observer is checked at every so manyth write.
const CHECK: u32 = 1024;

/// What became of a write.
pub(super) enum Written {
    All,
    /// There was no room.
    Nothing,
    /// There is no observer any more, or it broke the rules of the memory.
    Gone,
}

#[derive(Debug)]
pub(super) struct Observer {
    // Before the memory: it must be forgotten before it is unmapped.
    _mapped: Mapped<SoftRdmaFds>,
    ring: End,
    socket: Foreign<SoftRdmaFds>,
    /// Writes without room, since there was room.
    full: u32,
}

impl Observer {
    /// Takes the memory from the socket.
    pub(super) fn adopt(socket: BorrowedFd<'_>) -> VpResult<Self> {
        let misuse = |why: String| VpError::new(VpStatus::InvalidModifier, why);
        let kind = (sockopt::socket_domain(socket), sockopt::socket_type(socket));
        if kind != (Ok(AddressFamily::UNIX), Ok(SocketType::SEQPACKET)) {
            let why = "a capture needs a Unix socket of type SOCK_SEQPACKET beside the request";
            return Err(misuse(why.into()));
        }
        let memory = memory(socket);
        let memory = memory.map_err(|error| misuse(format!("no memory in the socket: {error}")))?;
        let map = || End::map(&memory, Side::Other).map_err(io::Error::other);
        let (mapped, ring) = Descriptors::map::<SoftRdmaFds, _>(map, End::range)
            .map_err(|error| misuse(format!("the memory of the capture: {error}")))?;
        let copy = || Ok(rustix::io::fcntl_dupfd_cloexec(socket, 3)?);
        let socket = Foreign::make(copy);
        let socket = socket.map_err(|error| VpError::os("keeping the socket", &error))?;
        Ok(Self { _mapped: mapped, ring, socket, full: 0 })
    }

    /// Whether somebody has the other end of the socket.
    pub(super) fn is_alive(&self) -> bool {
        let mut sockets = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::OUT)];
        let ready = rustix::event::poll(&mut sockets, Some(&rustix::time::Timespec::default()));
        ready.is_err() || !sockets[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Writes both, or nothing.
    pub(super) fn write(&mut self, front: &[u8], records: &[u8]) -> Written {
        let Ok(room) = self.ring.room() else { return Written::Gone };
        if (room as usize) < front.len() + records.len() {
            let checks = self.full.is_multiple_of(CHECK);
            self.full = self.full.wrapping_add(1);
            return if checks && !self.is_alive() { Written::Gone } else { Written::Nothing };
        }
        self.full = 0;
        let gone = std::cell::Cell::new(false);
        let wake = || gone.set(gone.get() || !self.wake());
        for octets in [front, records] {
            if self.ring.write_slice(octets, wake) != Ok(octets.len()) {
                return Written::Gone;
            }
        }
        if gone.get() { Written::Gone } else { Written::All }
    }

    /// False if there is nobody.
    fn wake(&self) -> bool {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // A full socket has woken it already.
        let full = [Errno::AGAIN, Errno::INTR, Errno::NOBUFS, Errno::NOMEM];
        let sent = rustix::net::send(self.socket.as_fd(), &[0], flags);
        sent.map_or_else(|error| full.contains(&error), |_| true)
    }
}

/// The memory that waits in the socket.
fn memory(socket: BorrowedFd<'_>) -> io::Result<Foreign<SoftRdmaFds>> {
    // As many as a message can have (SCM_MAX_FD): the kernel discards none here.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut octet = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut octet)], &mut beside, flags)?;
    let descriptors = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut passed: Vec<_> = descriptors.flatten().map(Foreign::received).collect();
    passed.truncate(1);
    passed.pop().ok_or_else(|| io::Error::other("there is no descriptor"))
}
