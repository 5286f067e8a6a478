//! The processes of this user that share port 4791 of addresses: slots, and how a process joins the sockets of an address.
//!
//! A process has a *slot* while it listens on the slot's name, an abstract Unix socket of the network namespace; the kernel
//! frees the name when the process ends, however it ends. An address has a socket for each slot, all made by the first
//! process that uses the address. Every process holds copies of all of them, because the kernel numbers the sockets of an
//! address anew when one is closed. A process asks the others for an address's sockets and for the services that they
//! listen for there; their engines' threads reply. The lock, a name, too, serialises joining and listening.
//!
//! Who dies, at whatever point, holds nothing afterwards: neither a name nor the lock. Packets for it fill its socket and are
//! dropped, until the slot's next owner drains the socket. A process that is slow is waited for, at most ten seconds; one
//! that is stopped for a second. Then nothing is changed, and the error names it. Full: with all slots taken RoCE cannot be
//! opened. Other users cannot share an address; they are neither asked nor replied to.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kal_os::fork::Ours;
use kal_os::{is_stopped, lock, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::RoceFds;
use super::steering::{MAX_SERVICES, SLOTS};

/// How long a neighbour may take to reply before it is checked whether it is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a neighbour may take to reply if it is not stopped, and others may take turns with the lock before this process
/// has it.
const TURNS: Duration = Duration::from_secs(10);

/// How long a process waits before it asks again.
const AGAIN: Duration = Duration::from_millis(1);

/// How long a question may take behind its connection: an asker that is stopped in between delays packets by no more.
const QUESTION: Duration = Duration::from_millis(20);

/// Longest reply: the number of services, and the services.
const REPLY: usize = 4 * MAX_SERVICES;

/// This process's slot.
pub(crate) struct Slot {
    pub(crate) index: u8,
    /// `None`: the slot is left.
    listener: Mutex<Option<Arc<Ours<RoceFds, OwnedFd>>>>,
}

/// What a neighbour has at an address.
pub(crate) struct Share {
    /// Its slot.
    pub(crate) slot: u8,
    /// The address's sockets, by slot; empty if it has none.
    pub(crate) sockets: Vec<Ours<RoceFds, OwnedFd>>,
    /// The services that it listens for there: the lower halves of their ids.
    pub(crate) services: Vec<u32>,
}

/// Names of this user in the network namespace.
fn name(what: &str) -> io::Result<SocketAddrUnix> {
    let user = rustix::process::geteuid().as_raw();
    Ok(SocketAddrUnix::new_abstract_name(format!("warpline-roce/{user}/{what}").as_bytes())?)
}

/// Does not block: too many processes may wait for one that is stopped.
fn socket() -> io::Result<Ours<RoceFds, OwnedFd>> {
    Ours::make(|| {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        Ok(net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
    })
}

/// Whether the other end has this process's user.
fn is_own(socket: BorrowedFd<'_>) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Waits until there is something to read; false after that time.
fn readable(socket: BorrowedFd<'_>, within: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&timespec(within))) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready != 0),
        }
    }
}

/// The process at the other end; 0: it is in another namespace of processes.
fn peer(socket: &Ours<RoceFds, OwnedFd>) -> i32 {
    socket_peercred(&**socket).map_or(0, |peer| peer.pid.as_raw_nonzero().get())
}

/// Waits until the process at the other end replies or ends. Errors: it is stopped, or too much time has passed since `begun`.
fn wait(socket: &Ours<RoceFds, OwnedFd>, begun: Instant) -> io::Result<()> {
    while !readable(socket.as_fd(), PATIENCE) {
        if begun.elapsed() >= TURNS || is_stopped(peer(socket)) {
            return Err(stuck(socket));
        }
    }
    Ok(())
}

/// While it is held, no other process of this user joins an address or begins to listen.
pub(crate) struct Lock {
    _name: Ours<RoceFds, OwnedFd>,
}

impl Lock {
    /// Waits until the lock is free, for a bounded time.
    pub(crate) fn take() -> io::Result<Self> {
        let begun = Instant::now();
        while begun.elapsed() < TURNS {
            let own = socket()?;
            match net::bind(&*own, &name("lock")?) {
                Ok(()) => {
                    net::listen(&*own, SLOTS.into())?;
                    return Ok(Self { _name: own });
                }
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(error.into()),
            }
            // The connection ends with the lock. Refused: it has just ended, or is not listened on yet.
            let waiting = socket()?;
            if net::connect(&*waiting, &name("lock")?).is_ok() {
                wait(&waiting, begun)?;
            }
            std::thread::yield_now();
        }
        Err(late("another process keeps the lock of RoCE's port"))
    }
}

fn stuck(socket: &Ours<RoceFds, OwnedFd>) -> io::Error {
    let process = peer(socket);
    late(&format!("process {process}, which uses RoCE's port, too, does not reply"))
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what}: is it stopped?"))
}

impl Slot {
    /// Takes the first free slot.
    pub(crate) fn take() -> io::Result<Self> {
        for index in 0..SLOTS {
            let listener = socket()?;
            match net::bind(&*listener, &name(&index.to_string())?) {
                Ok(()) => {
                    net::listen(&*listener, SLOTS.into())?;
                    let listener = Mutex::new(Some(Arc::new(listener)));
                    return Ok(Self { index, listener });
                }
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let detail = format!("{SLOTS} processes of this user use RoCE in this network already");
        Err(io::Error::other(detail))
    }

    /// To be polled until the slot is left; when it is readable, [`Slot::serve`] is to be called.
    pub(crate) fn listener(&self) -> Option<Arc<Ours<RoceFds, OwnedFd>>> {
        lock(&self.listener).clone()
    }

    /// Leaves the slot, because nobody will serve it any more. Objects of the application may keep the engine alive.
    pub(crate) fn leave(&self) {
        *lock(&self.listener) = None;
    }

    /// Asks all neighbours for what they have at an address.
    pub(crate) fn ask(&self, address: IpAddr) -> io::Result<Vec<Share>> {
        if self.listener().is_none() {
            return Err(io::Error::other("the device was closed"));
        }
        let (begun, mut shares) = (Instant::now(), Vec::new());
        for slot in (0..SLOTS).filter(|slot| *slot != self.index) {
            shares.extend(ask(slot, address, begun)?);
        }
        Ok(shares)
    }

    /// Replies to questions: `what` gives the sockets and services at an address.
    pub(crate) fn serve(&self, what: impl Fn(IpAddr) -> (Vec<OwnedFd>, Vec<u32>)) {
        let Some(listener) = self.listener() else { return };
        let accept = || {
            Ours::<RoceFds, _>::make(|| Ok(net::accept_with(&**listener, SocketFlags::CLOEXEC)?))
        };
        while let Ok(asker) = accept() {
            if is_own(asker.as_fd()) && readable(asker.as_fd(), QUESTION) {
                // An asker that died needs no reply.
                let _ = reply(asker.as_fd(), &what);
            }
        }
    }
}

/// `None`: nobody has the slot. Waits until [`TURNS`] after `begun`.
fn ask(slot: u8, address: IpAddr, begun: Instant) -> io::Result<Option<Share>> {
    loop {
        let asking = socket()?;
        let connected = net::connect(&*asking, &name(&slot.to_string())?);
        let late = match connected {
            Ok(()) if is_own(asking.as_fd()) => {
                let asked = net::send(&*asking, &crate::path::gid(address), SendFlags::NOSIGNAL);
                if asked.is_ok() {
                    wait(&asking, begun)?;
                    if let Some(share) = receive(&asking, slot)? {
                        return Ok(Some(share));
                    }
                }
                // It ended, and nobody listens any more; or this process was too slow, and it did not wait for the question.
                stuck(&asking)
            }
            Ok(()) | Err(Errno::CONNREFUSED) => return Ok(None),
            // Too many wait for it.
            Err(Errno::AGAIN) => {
                late("a process that uses RoCE's port does not reply to many others")
            }
            Err(error) => return Err(error.into()),
        };
        if begun.elapsed() >= TURNS {
            return Err(late);
        }
        std::thread::sleep(AGAIN);
    }
}

/// The reply; `None`: there is none.
fn receive(asking: &Ours<RoceFds, OwnedFd>, slot: u8) -> io::Result<Option<Share>> {
    let mut octets = vec![0; REPLY];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SLOTS as usize))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut octets)];
    let read = net::recvmsg(&**asking, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC);
    let mut sockets = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            for fd in fds {
                sockets.push(Ours::make(|| Ok(fd))?);
            }
        }
    }
    let len = read.map_or(0, |read| read.bytes);
    if len == 0 {
        return Ok(None);
    }
    let words = octets[..len].chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
    let services = words.map(u32::from_ne_bytes).filter(|service| *service != 0).collect();
    Ok(Some(Share { slot, sockets, services }))
}

fn reply(
    asker: BorrowedFd<'_>,
    what: impl Fn(IpAddr) -> (Vec<OwnedFd>, Vec<u32>),
) -> io::Result<()> {
    let mut question = [0; 16];
    if net::recv(asker, &mut question[..], RecvFlags::empty())?.0 != question.len() {
        return Ok(());
    }
    let (sockets, services) = what(IpAddr::V6(Ipv6Addr::from(question)).to_canonical());
    let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    // A message of no octets would look like an end: the first word is no service.
    let mut octets = vec![0; 4];
    octets.extend(services.iter().take(MAX_SERVICES - 1).flat_map(|service| service.to_ne_bytes()));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SLOTS as usize))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(&sockets));
    }
    net::sendmsg(asker, &[IoSlice::new(&octets)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}
