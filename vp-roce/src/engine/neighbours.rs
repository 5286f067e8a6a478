//! The processes of this user that share port 4791 of addresses: slots, and how a process joins the sockets of an address.
//!
//! A process has a *slot* while it has the slot's name ([`Name`]). An address has a socket for each slot, all made by the first
//! process that uses the address. Every process holds copies of all of them, because the kernel numbers the sockets of an
//! address anew when one is closed. A process asks the others for an address's sockets and for the services that they
//! listen for there; their engines' threads reply. The lock, a name, too, serialises joining and listening.
//!
//! Who dies, at whatever point, holds nothing afterwards: neither a name nor the lock. Packets for it fill its socket and are
//! dropped, until the slot's next owner drains the socket. A process that is slow is waited for, at most ten seconds; one
//! that is stopped for a second. Then nothing is changed, and the error names it. Full: with all slots taken the
//! first socket or queue pair of a process is refused. Other users cannot share an address; they are neither asked nor replied
//! to, but they can take the names.

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
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use vp_api::room;

use super::RoceFds;
use super::name::{self, Channel, Found, Name, Other};
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
    name: Mutex<Option<Arc<Name>>>,
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
fn peer(channel: &Channel) -> i32 {
    socket_peercred(&**channel).map_or(0, |peer| peer.pid.as_raw_nonzero().get())
}

/// How long this process has waited. A time in which it was stopped counts as a short wait: its neighbours may have been
/// stopped, too, and continue a moment later.
struct Waited {
    counted: Instant,
    all: Duration,
}

impl Waited {
    fn new() -> Self {
        Self { counted: Instant::now(), all: Duration::ZERO }
    }

    /// Counts the time since the last call, and returns whether this process ran.
    fn count(&mut self) -> bool {
        let passed = self.counted.elapsed();
        self.counted = Instant::now();
        let ran = passed < 2 * PATIENCE;
        self.all += if ran { passed } else { PATIENCE / 2 };
        ran
    }
}

/// Waits until the process at the other end replies or ends. Errors: it is stopped, or this took too long.
fn wait(channel: &Channel, waited: &mut Waited) -> io::Result<()> {
    while !readable(channel.as_fd(), PATIENCE) {
        let ran = waited.count();
        if waited.all >= TURNS || (ran && is_stopped(peer(channel))) {
            return Err(stuck(channel));
        }
    }
    Ok(())
}

/// While it is held, no other process of this user joins an address or begins to listen.
pub(crate) struct Lock {
    _name: Name,
}

const LOCK: &str = "lock";

impl Lock {
    /// Waits until the lock is free, for a bounded time.
    pub(crate) fn take() -> io::Result<Self> {
        let (mut waited, mut unheard) = (Waited::new(), Waited::new());
        while waited.all < TURNS {
            if let Some(name) = Name::take(LOCK)? {
                return Ok(Self { _name: name });
            }
            match name::find(LOCK)? {
                // The connection ends with the lock.
                Found::Holder(Other::Own(holder)) => {
                    wait(&holder, &mut waited)?;
                    unheard = Waited::new();
                }
                Found::Holder(Other::Stranger(user)) => return Err(name::taken(LOCK, user)),
                // It has just ended, or is not listened on yet.
                Found::Nobody if unheard.all >= PATIENCE => return Err(name::silent(LOCK)),
                Found::Nobody | Found::Crowd => std::thread::sleep(AGAIN),
            }
            waited.count();
            unheard.count();
        }
        Err(late("another process keeps the lock of RoCE's port"))
    }
}

fn stuck(channel: &Channel) -> io::Error {
    let process = peer(channel);
    late(&format!("process {process}, which uses RoCE's port, too, does not reply"))
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what}: is it stopped?"))
}

/// All slots below `end` are taken: by whom?
fn full(end: u8) -> io::Result<io::Error> {
    let mut own = 0;
    for slot in 0..end {
        let slot = slot.to_string();
        match name::find(&slot)? {
            Found::Holder(Other::Stranger(user)) => return Ok(name::taken(&slot, user)),
            Found::Nobody => return Ok(name::silent(&slot)),
            Found::Holder(Other::Own(_)) | Found::Crowd => own += 1,
        }
    }
    let detail = format!("{own} processes of this user use RoCE in this network already");
    Ok(io::Error::other(detail))
}

impl Slot {
    /// Takes the first free slot below `end`.
    pub(crate) fn take(end: u8) -> io::Result<Self> {
        for index in 0..end {
            if let Some(name) = Name::take(&index.to_string())? {
                return Ok(Self { index, name: Mutex::new(Some(Arc::new(name))) });
            }
        }
        Err(full(end)?)
    }

    /// To be polled until the slot is left; when it is readable, [`Slot::serve`] is to be called.
    pub(crate) fn name(&self) -> Option<Arc<Name>> {
        lock(&self.name).clone()
    }

    /// Leaves the slot, because nobody will serve it any more. Objects of the application may keep the engine alive.
    pub(crate) fn leave(&self) {
        *lock(&self.name) = None;
    }

    /// Asks all neighbours for what they have at an address.
    pub(crate) fn ask(&self, address: IpAddr) -> io::Result<Vec<Share>> {
        if self.name().is_none() {
            return Err(io::Error::other("the device was closed"));
        }
        let (mut waited, mut shares) = (Waited::new(), Vec::new());
        for slot in (0..SLOTS).filter(|slot| *slot != self.index) {
            shares.extend(ask(slot, address, &mut waited)?);
        }
        Ok(shares)
    }

    /// Replies to questions: `what` gives the sockets and services at an address. `None`: no memory; the neighbour asks
    /// again.
    pub(crate) fn serve(&self, what: impl Fn(IpAddr) -> Option<(Vec<OwnedFd>, Vec<u32>)>) {
        let Some(name) = self.name() else { return };
        // Packets do not wait for more at a time.
        for _ in 0..SLOTS {
            match name.accept() {
                Ok(Other::Own(asker)) if readable(asker.as_fd(), QUESTION) => {
                    // An asker that died needs no reply.
                    let _ = reply(asker.as_fd(), &what);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}

/// `None`: no process of this user has the slot.
fn ask(slot: u8, address: IpAddr, waited: &mut Waited) -> io::Result<Option<Share>> {
    loop {
        let late = match name::find(&slot.to_string())? {
            Found::Holder(Other::Own(asking)) => {
                let asked = net::send(&*asking, &crate::path::gid(address), SendFlags::NOSIGNAL);
                if asked.is_ok() {
                    wait(&asking, waited)?;
                    if let Some(share) = receive(&asking, slot)? {
                        return Ok(Some(share));
                    }
                }
                // It ended, and nobody listens any more; or this process was too slow, and it did not wait for the question.
                stuck(&asking)
            }
            Found::Holder(Other::Stranger(_)) | Found::Nobody => return Ok(None),
            Found::Crowd => late("a process that uses RoCE's port does not reply to many others"),
        };
        waited.count();
        if waited.all >= TURNS {
            return Err(late);
        }
        std::thread::sleep(AGAIN);
    }
}

/// The reply; `None`: there is none.
fn receive(asking: &Channel, slot: u8) -> io::Result<Option<Share>> {
    let mut octets = room::try_filled(REPLY, 0).ok_or(io::ErrorKind::OutOfMemory)?;
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
    let mut services = room::try_list(words.len()).ok_or(io::ErrorKind::OutOfMemory)?;
    services.extend(words.map(u32::from_ne_bytes).filter(|service| *service != 0));
    Ok(Some(Share { slot, sockets, services }))
}

fn reply(
    asker: BorrowedFd<'_>,
    what: impl Fn(IpAddr) -> Option<(Vec<OwnedFd>, Vec<u32>)>,
) -> io::Result<()> {
    let mut question = [0; 16];
    if net::recv(asker, &mut question[..], RecvFlags::empty())?.0 != question.len() {
        return Ok(());
    }
    let address = IpAddr::V6(Ipv6Addr::from(question)).to_canonical();
    let Some((sockets, services)) = what(address) else { return Ok(()) };
    let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    // A message of no octets would look like an end: the first word is no service.
    let mut octets = room::try_list(REPLY).ok_or(io::ErrorKind::OutOfMemory)?;
    octets.extend([0; 4]);
    octets.extend(services.iter().take(MAX_SERVICES - 1).flat_map(|service| service.to_ne_bytes()));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SLOTS as usize))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(&sockets));
    }
    net::sendmsg(asker, &[IoSlice::new(&octets)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_this_process_did_not_run_hardly_counts() {
        let before = |time| Instant::now().checked_sub(time).expect("the machine runs for longer");
        let mut waited = Waited { counted: before(2 * TURNS), all: Duration::ZERO };
        assert!(!waited.count());
        assert!(waited.all < PATIENCE);
        waited.counted = before(PATIENCE);
        assert!(waited.count());
        assert!(waited.all >= PATIENCE);
    }
}
