//! Unix socket for requests of other processes of the same user: a line, possibly with a descriptor, then one
//! response, then it is closed.
//!
//! The thread that watches [`Questions::watched`] calls [`Questions::serve`], which does not block; any thread.
//! The kernel identifies the client (`SO_PEERCRED`): this user, or root; others are closed without a response.
//! At most [`CLIENTS`] at a time, the others wait; each has [`PATIENCE`] for everything, and [`LONGEST`] octets for
//! its line. A client that dies is closed when its socket ends. Without descriptors or memory clients wait, too. What clients
//! pass is closed where nothing waits ([`Foreign`]).

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use kal_os::fork::{Descriptors, Foreign};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::fork::Host;
use crate::reactor::{Interest, Reactor, Ready, Sleeper};

/// Most clients at a time.
pub const CLIENTS: usize = 4;
/// Longest request in octets.
pub const LONGEST: usize = 64 << 10;
/// Time-out from accepting to closing a client.
pub const PATIENCE: Duration = Duration::from_secs(1);

const LISTENER: u64 = 0;

/// A request.
#[derive(Debug)]
pub struct Question {
    /// The line, without its end.
    pub line: String,
    /// The descriptor that came with it.
    pub descriptor: Option<Foreign<Host>>,
}

/// The socket, and its clients.
pub struct Questions {
    sleeper: Sleeper,
    state: Mutex<State>,
}

struct State {
    reactor: Reactor,
    listener: OwnedFd,
    clients: BTreeMap<u64, Client>,
    next: u64,
}

struct Client {
    socket: Foreign<Host>,
    line: Vec<u8>,
    descriptor: Option<Foreign<Host>>,
    answer: Vec<u8>,
    sent: usize,
}

/// The next step of a client.
#[derive(PartialEq, Eq)]
enum Next {
    Waits,
    Complete,
    Gone,
}

impl Questions {
    /// Listens at a name in a directory; removes what had the name before.
    ///
    /// # Errors
    /// Those of the system.
    pub fn listen(directory: impl AsFd, name: &CString) -> io::Result<Self> {
        let kind = SocketType::STREAM;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let listener = Descriptors::make::<Host, _>(|| {
            Ok(net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
        })?;
        let _ = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
        // The open directory itself, whatever its present path.
        let path = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd());
        let path = [path.as_bytes(), name.as_bytes()].concat();
        net::bind(&listener, &SocketAddrUnix::new(path)?)?;
        rustix::fs::chmodat(&directory, name, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
        net::listen(&listener, CLIENTS as i32)?;
        let mut reactor = Reactor::new()?;
        reactor.add(&listener, LISTENER, Interest::READ)?;
        reactor.arm()?;
        let sleeper = reactor.sleeper();
        let state = State { reactor, listener, clients: BTreeMap::new(), next: LISTENER };
        Ok(Self { sleeper, state: Mutex::new(state) })
    }

    /// Readable: there is something to serve.
    pub fn watched(&self) -> &Sleeper {
        &self.sleeper
    }

    /// Serves the clients that are ready, unless another thread does; `answer` returns a response without its
    /// end of line, and must not block.
    pub fn serve(&self, mut answer: impl FnMut(Question) -> String) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut ready = Vec::new();
        if state.reactor.poll(&mut ready).is_err() {
            return;
        }
        for ready in ready {
            match ready {
                Ready::Io { token: LISTENER } => state.accept(),
                Ready::Io { token } => state.advance(token, &mut answer),
                Ready::Timer { token: LISTENER } => state.watch_listener(Interest::READ),
                Ready::Timer { token } => state.close(token),
            }
        }
        let _ = state.reactor.arm();
    }
}

impl State {
    fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        while self.clients.len() < CLIENTS {
            let next = || Ok(net::accept_with(&self.listener, flags)?);
            match Foreign::make(next) {
                Ok(socket) if may_ask(&socket) => self.admit(socket),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // No descriptors or memory: it would be readable all the time.
                Err(_) => {
                    self.reactor.set_timer(LISTENER, Instant::now() + PATIENCE);
                    break;
                }
            }
        }
        self.watch_listener(Interest { readable: false, writable: false });
    }

    fn admit(&mut self, socket: Foreign<Host>) {
        self.next += 1;
        let token = self.next;
        if self.reactor.add(&socket, token, Interest::READ).is_ok() {
            self.reactor.set_timer(token, Instant::now() + PATIENCE);
            let (line, answer) = (Vec::new(), Vec::new());
            self.clients.insert(token, Client { socket, line, descriptor: None, answer, sent: 0 });
        }
    }

    fn watch_listener(&self, interest: Interest) {
        let _ = self.reactor.modify(&self.listener, LISTENER, interest);
    }

    fn advance(&mut self, token: u64, answer: &mut impl FnMut(Question) -> String) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        let mut next = match client.answer.is_empty() {
            true => client.read(),
            false => Next::Waits,
        };
        if next == Next::Complete {
            let line = String::from_utf8_lossy(&client.line).trim_end().to_owned();
            client.answer = answer(Question { line, descriptor: client.descriptor.take() }).into();
            client.answer.push(b'\n');
            let _ = self.reactor.modify(&client.socket, token, Interest::WRITE);
            next = Next::Waits;
        }
        if !client.answer.is_empty() && next == Next::Waits {
            next = client.write();
        }
        if next == Next::Gone {
            self.close(token);
        }
    }

    fn close(&mut self, token: u64) {
        self.reactor.clear_timer(token);
        if let Some(client) = self.clients.remove(&token) {
            let _ = self.reactor.remove(&client.socket);
            self.watch_listener(Interest::READ);
        }
    }
}

impl Client {
    fn read(&mut self) -> Next {
        loop {
            let mut room = [0; 4096];
            // As many as a message can have (SCM_MAX_FD): the kernel discards none here.
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let read =
                net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut room)], &mut beside, flags);
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    // Keep the first.
                    descriptors.map(Foreign::received).for_each(|fd| {
                        self.descriptor.get_or_insert(fd);
                    });
                }
            }
            match read.map(|read| read.bytes) {
                Ok(0) | Err(Errno::CONNRESET) => return Next::Gone,
                Ok(octets) => self.line.extend_from_slice(&room[..octets]),
                Err(Errno::AGAIN) => return Next::Waits,
                Err(Errno::INTR) => {}
                Err(_) => return Next::Gone,
            }
            if self.line.len() > LONGEST {
                return Next::Gone;
            }
            if let Some(end) = self.line.iter().position(|octet| *octet == b'\n') {
                self.line.truncate(end);
                return Next::Complete;
            }
        }
    }

    fn write(&mut self) -> Next {
        while self.sent < self.answer.len() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match net::send(&self.socket, &self.answer[self.sent..], flags) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN) => return Next::Waits,
                Err(Errno::INTR) => {}
                Err(_) => return Next::Gone,
            }
        }
        Next::Gone
    }
}

fn may_ask(socket: impl AsFd) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

#[cfg(test)]
#[path = "questions_tests.rs"]
mod tests;
