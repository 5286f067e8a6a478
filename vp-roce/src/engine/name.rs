//! Names of this user in the network namespace: abstract Unix sockets that its processes listen on.
//!
//! Any user can take such a name first, connect to it, and send descriptors there. So whoever has a name, or connects to
//! one, counts only if it is of this user. From others nothing is received, and what they have sent is closed where
//! nothing waits ([`discard`]): a thread that discards a message waits for sockets in it that linger. Owner: the engine;
//! any thread. The kernel frees the name when its process ends, however it ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use kal_os::discard;
use kal_os::fork::Ours;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{self, AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use super::RoceFds;
use super::owner::owner;
use super::steering::SLOTS;

/// A socket with such a name, or a connection to one. No call on it waits.
pub(super) type Channel = Ours<RoceFds, OwnedFd>;

/// The other end of a connection.
pub(super) enum Other {
    /// A process of this user.
    Own(Channel),
    /// One of another user, with its number. The connection was closed.
    Stranger(u32),
}

/// What is found at a name.
pub(super) enum Found {
    /// Who listens.
    Holder(Other),
    /// Nobody listens.
    Nobody,
    /// Too many connections wait to be accepted.
    Crowd,
}

/// A name that this process has; it is free when this is dropped.
pub(super) struct Name(Option<Channel>);

fn socket() -> io::Result<Channel> {
    Ours::make(|| {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        Ok(net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
    })
}

fn text(what: &str) -> String {
    format!("warpline-roce/{}/{what}", rustix::process::geteuid().as_raw())
}

fn address(what: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(text(what).as_bytes())?)
}

impl Other {
    fn of(channel: Channel) -> Self {
        // Unknown: nobody's.
        let user = socket_peercred(&*channel).map_or(u32::MAX, |peer| peer.uid.as_raw());
        if user == rustix::process::geteuid().as_raw() {
            return Self::Own(channel);
        }
        discard(channel);
        Self::Stranger(user)
    }
}

/// Connects to a name.
pub(super) fn find(what: &str) -> io::Result<Found> {
    let channel = socket()?;
    match net::connect(&*channel, &address(what)?) {
        Ok(()) => Ok(Found::Holder(Other::of(channel))),
        Err(Errno::CONNREFUSED) => Ok(Found::Nobody),
        Err(Errno::AGAIN) => {
            Ok(stranger(what).map_or(Found::Crowd, |user| Found::Holder(Other::Stranger(user))))
        }
        Err(error) => Err(error.into()),
    }
}

/// The other user who has a name that cannot be connected to.
fn stranger(what: &str) -> Option<u32> {
    owner(&text(what)).filter(|user| *user != rustix::process::geteuid().as_raw())
}

/// The error of a name that another user has.
pub(super) fn taken(what: &str, user: u32) -> io::Error {
    let name = text(what);
    io::Error::other(format!(
        "the name @{name}, which processes of this user take for RoCE, is taken by a process of user {user}: end it, or \
         use a network namespace of your own"
    ))
}

/// The error of a name that somebody has who does not listen.
pub(super) fn silent(what: &str) -> io::Error {
    if let Some(user) = stranger(what) {
        return taken(what, user);
    }
    let name = text(what);
    io::Error::other(format!(
        "the name @{name}, which processes of this user take for RoCE, is taken by a process that does not listen, \
         perhaps another user's: end it, or use a network namespace of your own"
    ))
}

impl Name {
    /// Takes it; `None`: it is taken.
    pub(super) fn take(what: &str) -> io::Result<Option<Self>> {
        let channel = socket()?;
        match net::bind(&*channel, &address(what)?) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        net::listen(&*channel, SLOTS.into())?;
        Ok(Some(Self(Some(channel))))
    }

    /// Who has connected; `EAGAIN`: nobody.
    pub(super) fn accept(&self) -> io::Result<Other> {
        let Some(listener) = &self.0 else { return Err(Errno::INVAL.into()) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ours::make(|| Ok(net::accept_with(&**listener, flags)?)).map(Other::of)
    }
}

impl AsFd for Name {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("there until drop").as_fd()
    }
}

impl Drop for Name {
    /// The close of a listener closes the connections that were not accepted.
    fn drop(&mut self) {
        let shut = self.0.as_ref().map(|listener| net::shutdown(&**listener, Shutdown::Read));
        let end = loop {
            match self.accept() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        let nobody = [Errno::AGAIN, Errno::INVAL].map(|errno| Some(errno.raw_os_error()));
        let is_empty = shut == Some(Ok(())) && nobody.contains(&end.raw_os_error());
        if let Some(listener) = self.0.take().filter(|_| !is_empty) {
            discard(listener);
        }
    }
}
