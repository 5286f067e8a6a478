//! The two ends of a connection find each other, beside TCP, in the program's own calls: there is no thread.
//!
//! The end that connected makes its name known: an abstract unix socket whose name is the connection's two ends. The end
//! that accepted connects to that name, checks that who listens owns the other end of the TCP connection (SO_PEERCRED,
//! sock_diag(7)), sends memory (SCM_RIGHTS), and begins to use it. The first end, in one of its next calls, finds that,
//! checks in the same way, and begins. Neither waits for the other: until both look at the memory, all goes by TCP.
//!
//! Another user, who may connect to a name, or listen at one, may send descriptors whose close waits. What he may have filled is
//! [discarded](crate::discard); if the system cannot do that, connections share no memory from then on.
//!
//! Owner of the state: static memory. A name costs a descriptor, a large number, so that the program finds the numbers free that
//! it does without; the memory costs none. Full: the oldest name is given up. A child gives up its parent's names.
//! The program may close the descriptors of names: [`forget`].

use std::ffi::c_int;
use std::fmt::{self, Write};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::process::{Resource, getrlimit};
use shm_ring::{Companion, Side};

use super::link::Link;
use super::sets;
use crate::connection::Connection;
use crate::tuning::{DESCRIPTORS, NAMES, RING};
use crate::{discard, kernel, process};

/// What a connection must have moved before its ends try to meet: [`crate::tuning::MIN_CALLS`] unless that is set; 0: they never do.
static AFTER: AtomicU64 = AtomicU64::new(0);

/// Descriptors that a message can have (`SCM_MAX_FD`, unix(7)): with room for all of them the kernel discards none in the call
/// that receives it.
const MOST_PASSED: usize = 253;

/// Names that are known: the descriptor, or -1, and whose it is.
struct Name {
    fd: AtomicI32,
    owner: AtomicU32,
}

static KNOWN: [Name; NAMES] =
    [const { Name { fd: AtomicI32::new(-1), owner: AtomicU32::new(u32::MAX) } }; NAMES];
static OLDEST: AtomicUsize = AtomicUsize::new(0);

/// Connections may share memory from now on, if they have moved so much.
pub(crate) fn enable(after: u64) {
    AFTER.store(after.max(1), Relaxed);
}

pub(crate) fn is_enabled() -> bool {
    AFTER.load(Relaxed) != 0
}

/// A call has moved octets on a connection, the table's number `index`, that shares no memory.
#[inline]
pub(crate) fn advance(fd: c_int, connection: &'static Connection, index: u32) {
    let (weight, after) = (connection.weight(), AFTER.load(Relaxed));
    if after != 0 && weight >= connection.link.next.load(Relaxed).max(after) {
        attempt(fd, connection, index, weight, after);
    }
}

#[cold]
fn attempt(fd: c_int, connection: &'static Connection, index: u32, weight: u64, after: u64) {
    let link = &connection.link;
    if link.tries.swap(true, SeqCst) {
        return;
    }
    // Later than the peer, which must have made its name known.
    let dials = after + after / 2;
    let stays = connection.is_obstructed() || link.is_forked() || link.watch.is_odd();
    let next = if stays || !process::is_own() {
        weight * 4
    } else if !connection.is_accepted() {
        wait(fd, connection, index, weight);
        weight + 1 + weight / 64
    } else if weight < dials {
        dials
    } else {
        dial(fd, connection);
        weight * 4
    };
    link.next.store(next, Relaxed);
    link.tries.store(false, SeqCst);
}

// ---- names ---------------------------------------------------------------------------------

/// Text in memory of the stack.
struct Text {
    octets: [u8; 200],
    len: usize,
}

impl Text {
    /// What names a connection: its active end, and its passive one.
    fn of(active: SocketAddr, passive: SocketAddr) -> Option<Self> {
        let mut text = Self { octets: [0; 200], len: 0 };
        write!(text, "warpline/1/sock/{active}-{passive}").ok()?;
        Some(text)
    }

    fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }

    /// The name, of which only the first part fits.
    fn address(&self) -> Option<SocketAddrUnix> {
        let most = self.len.min(107);
        SocketAddrUnix::new_abstract_name(&self.octets[..most]).ok()
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.octets.get_mut(self.len..).and_then(|room| room.get_mut(..text.len()));
        room.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

fn unix_socket() -> Option<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.ok()?;
    Some(socket)
}

/// Whether the process at the other end of a unix socket owns the other end of a TCP connection.
fn is_peer(socket: &OwnedFd, this: SocketAddr, peer: SocketAddr) -> bool {
    let Ok(who) = sockopt::socket_peercred(socket) else { return false };
    let Ok(diag) = kal_os::socket_for_owners() else { return false };
    let owner = kal_os::owner_of_tcp(&diag, peer, this);
    kernel::close(diag);
    owner == Ok(Some(who.uid.as_raw()))
}

/// Whether a process of this user is at the other end of a unix socket.
fn is_own(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|who| who.uid == rustix::process::geteuid())
}

/// Closes a socket of the rendezvous.
fn part(socket: OwnedFd) {
    let is_own = is_own(&socket);
    close(socket, is_own);
}

/// Closes a descriptor, which came from this user if `is_own`.
fn close(fd: OwnedFd, is_own: bool) {
    if is_own {
        kernel::close(fd);
    } else if !discard::discard(fd) {
        AFTER.store(0, Relaxed);
    }
}

/// Closes a name, and what is queued there.
fn close_name(listener: OwnedFd) {
    // Nobody connects any more.
    let _ = rustix::net::shutdown(&listener, Shutdown::Both);
    while let Ok(socket) = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC) {
        part(socket);
    }
    kernel::close(listener);
}

fn is_local([this, peer]: [SocketAddr; 2]) -> bool {
    let same = this.ip() == peer.ip() || peer.ip().is_loopback() || kernel::is_here(peer.ip());
    this != peer && same
}

// ---- the end that accepted -----------------------------------------------------------------

fn dial(fd: c_int, connection: &'static Connection) {
    let ends @ [this, peer] = connection.ends();
    if !is_local(ends) || !kernel::is_established(fd) || !Link::permit() {
        return;
    }
    let Some(text) = Text::of(peer, this) else { return Link::give_permit() };
    let socket = unix_socket();
    let attached = socket.as_ref().is_some_and(|socket| {
        let found = text.address().is_some_and(|name| rustix::net::connect(socket, &name).is_ok());
        found && is_peer(socket, this, peer) && offer(fd, socket, &text, connection)
    });
    if let Some(socket) = socket {
        part(socket);
    }
    if attached {
        sets::attached(&connection.link);
    } else {
        Link::give_permit();
    }
}

/// Makes memory, begins to use it, and sends it.
fn offer(fd: c_int, socket: &OwnedFd, text: &Text, connection: &'static Connection) -> bool {
    let Ok(memory) = shm_ring::create(RING) else { return false };
    let attached = Companion::map(&memory, Side::Maker).is_ok_and(|companion| {
        // SAFETY: mapped above.
        unsafe { companion.as_ref() }.begin();
        let sent = send_memory(socket, text, &memory);
        let attached = sent && connection.link.attach(fd, companion);
        if !attached {
            // SAFETY: mapped above, and not used.
            unsafe { Companion::unmap(companion) };
        }
        attached
    });
    kernel::close(memory);
    attached
}

fn send_memory(socket: &OwnedFd, text: &Text, memory: &OwnedFd) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [memory.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(text.octets())], &mut control, flags);
    sent == Ok(text.len)
}

// ---- the end that connected ----------------------------------------------------------------

fn wait(fd: c_int, connection: &'static Connection, index: u32, weight: u64) {
    let ends = connection.ends();
    if let Some(name) = KNOWN.iter().find(|it| it.owner.load(SeqCst) == index) {
        accept(fd, name.fd.load(SeqCst), connection);
        if connection.link.is_attached() {
            give_up(name, index);
            sets::attached(&connection.link);
        }
    } else if weight >= connection.link.known.load(Relaxed) {
        connection.link.known.store(weight * 4, Relaxed);
        if is_local(ends) && kernel::is_established(fd) {
            make_known(ends, index);
        }
    }
}

/// Binds the name, in the place of the oldest one.
fn make_known([this, peer]: [SocketAddr; 2], index: u32) {
    let Some(address) = Text::of(this, peer).and_then(|text| text.address()) else { return };
    let Some(socket) = unix_socket() else { return };
    let listens =
        rustix::net::bind(&socket, &address).and_then(|()| rustix::net::listen(&socket, 4));
    // Room for the program's own descriptors stays below.
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).min(DESCRIPTORS as u64);
    let from = (most as c_int).saturating_sub(2 * NAMES as c_int);
    let large = listens.ok().and_then(|()| rustix::io::fcntl_dupfd_cloexec(&socket, from).ok());
    kernel::close(socket);
    let Some(large) = large else { return };
    let name = &KNOWN[OLDEST.fetch_add(1, Relaxed) % NAMES];
    give_up(name, name.owner.load(SeqCst));
    name.fd.store(large.into_raw_fd(), SeqCst);
    name.owner.store(index, SeqCst);
}

/// Takes a name's descriptor out of the list, if it is still this connection's.
fn take(name: &Name, index: u32) -> Option<OwnedFd> {
    let is_its =
        index != u32::MAX && name.owner.compare_exchange(index, u32::MAX, SeqCst, SeqCst).is_ok();
    let fd = if is_its { name.fd.swap(-1, SeqCst) } else { -1 };
    // SAFETY: this library's own, which nobody else closes.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes a name, if it is still this connection's.
fn give_up(name: &Name, index: u32) {
    if let Some(listener) = take(name, index) {
        close_name(listener);
    }
}

/// A connection is closed here.
pub(crate) fn end(index: u32) {
    if is_enabled() {
        KNOWN.iter().for_each(|name| give_up(name, index));
    }
}

/// The program closes a descriptor, which may be one of these.
#[inline]
pub(crate) fn forget(fd: c_int) {
    if is_enabled() {
        for name in KNOWN.iter().filter(|name| name.fd.load(Relaxed) == fd) {
            let _ = name.fd.compare_exchange(fd, -1, SeqCst, SeqCst);
            name.owner.store(u32::MAX, SeqCst);
        }
    }
}

/// In a child: the names are its parent's.
pub(crate) fn renew() {
    discard::renew();
    for name in &KNOWN {
        // Its parent has it, too, and who is queued there waits for the parent.
        if let Some(listener) = take(name, name.owner.load(SeqCst)) {
            kernel::close(listener);
        }
    }
}

/// Looks for an offer.
fn accept(fd: c_int, listener: c_int, connection: &'static Connection) {
    if listener < 0 || !Link::permit() {
        return;
    }
    // SAFETY: open as long as the name is known.
    let listener = unsafe { BorrowedFd::borrow_raw(listener) };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let Ok(socket) = rustix::net::accept_with(listener, flags) else {
        return Link::give_permit();
    };
    let [this, peer] = connection.ends();
    let memory = if is_peer(&socket, this, peer) {
        Text::of(this, peer).and_then(|text| receive_memory(&socket, &text))
    } else {
        None
    };
    let is_own = is_own(&socket);
    close(socket, is_own);
    let companion = memory.and_then(|memory| {
        let companion = Companion::map(&memory, Side::Other).ok();
        close(memory, is_own || companion.is_some());
        companion
    });
    if let Some(companion) = companion {
        if connection.link.attach(fd, companion) {
            return;
        }
        // SAFETY: mapped above, and not used.
        unsafe { Companion::unmap(companion) };
    }
    Link::give_permit();
}

/// The descriptor that the peer sent with the text; further ones are closed.
fn receive_memory(socket: &OwnedFd, text: &Text) -> Option<OwnedFd> {
    let mut octets = [0; 201];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut pieces = [IoSliceMut::new(&mut octets)];
    let received = rustix::net::recvmsg(socket, &mut pieces, &mut control, flags).ok()?;
    let is_right = octets.get(..received.bytes) == Some(text.octets());
    let mut memory = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            for fd in fds {
                if is_right && memory.is_none() {
                    memory = Some(fd);
                } else {
                    close(fd, is_own(socket));
                }
            }
        }
    }
    memory
}
