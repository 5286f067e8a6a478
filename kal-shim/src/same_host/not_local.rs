//! Why a connection stays with TCP: the reasons, their codes and texts. No state.

use std::fmt;
use std::io;

use vp_api::Shortage;

use crate::sock::shortage;

/// Why a connection has no local stream. It works without.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NotLocal {
    /// Not tried: the stream did not come from connection management.
    Untried,
    /// The policy of this end has `local = "off"`.
    Policy,
    /// A rule bounds the rate of the connection, which the kernel does in TCP.
    Rate,
    /// The provider of this end does not support local streams.
    Provider,
    /// The peer's address is not one of this machine and network namespace.
    OtherHost,
    /// The peer does not offer one: another stack, its policy, its limit, or no descriptors there.
    PeerPlain,
    /// Too many others connect to the peer's names.
    PeerBusy,
    /// The peer refused; its reason is in its own record.
    PeerRefused,
    /// The peer sent a malformed message.
    PeerMalformed,
    /// The peer disconnected during the rendezvous.
    PeerLeft,
    /// The peer sent no message in time.
    TimedOut,
    /// Another process has bound the name of this end.
    NameTaken,
    /// The process that has bound or dialled the name does not own the peer's TCP socket.
    OtherUser,
    /// The kernel does not report the owner of the peer's TCP socket.
    UnknownOwner,
    /// The peer's message is about another connection.
    OtherConnection,
    /// The peer's memory has a wrong size or wrong seals.
    BadMemory,
    /// As many local streams as the policy allows in one process.
    Limit,
    /// No memory for it.
    NoMemory,
    /// No descriptors for it.
    NoDescriptors,
    /// The policy's `local_dir` cannot be used.
    Directory,
    /// The system refused a call.
    System {
        /// Its errno.
        errno: i32,
    },
}

impl NotLocal {
    /// A stable name, for programs and logs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Untried => "untried",
            Self::Policy => "policy",
            Self::Rate => "rate",
            Self::Provider => "provider",
            Self::OtherHost => "other-host",
            Self::PeerPlain => "peer-plain",
            Self::PeerBusy => "peer-busy",
            Self::PeerRefused => "peer-refused",
            Self::PeerMalformed => "peer-malformed",
            Self::PeerLeft => "peer-left",
            Self::TimedOut => "timed-out",
            Self::NameTaken => "name-taken",
            Self::OtherUser => "other-user",
            Self::UnknownOwner => "unknown-owner",
            Self::OtherConnection => "other-connection",
            Self::BadMemory => "bad-memory",
            Self::Limit => "limit",
            Self::NoMemory => "no-memory",
            Self::NoDescriptors => "no-descriptors",
            Self::Directory => "directory",
            Self::System { .. } => "system",
        }
    }
}

impl From<io::Error> for NotLocal {
    fn from(error: io::Error) -> Self {
        match shortage(&error) {
            Some(Shortage::Memory) => Self::NoMemory,
            Some(_) => Self::NoDescriptors,
            None if error.kind() == io::ErrorKind::OutOfMemory => Self::NoMemory,
            // Where shared memory has a limit.
            None if error.kind() == io::ErrorKind::StorageFull => Self::NoMemory,
            None => Self::System { errno: error.raw_os_error().unwrap_or(0) },
        }
    }
}

impl From<rustix::io::Errno> for NotLocal {
    fn from(errno: rustix::io::Errno) -> Self {
        io::Error::from(errno).into()
    }
}

impl fmt::Display for NotLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untried => "nobody looked for a local stream",
            Self::Policy => "the policy says local = \"off\"",
            Self::Rate => "a rule bounds its rate, which only TCP keeps",
            Self::Provider => "the provider knows no local streams",
            Self::OtherHost => {
                "the peer is on another machine, or in another network namespace (see `local_dir`)"
            }
            Self::PeerPlain => "the peer does not look for a local stream",
            Self::PeerBusy => "too many want to meet the peer",
            Self::PeerRefused => "the peer refused a local stream",
            Self::PeerMalformed => "the peer's rendezvous message is malformed",
            Self::PeerLeft => "the peer left the rendezvous",
            Self::TimedOut => "the peer did not come to the rendezvous in time",
            Self::NameTaken => "somebody has bound the name of this end's rendezvous",
            Self::OtherUser => "who came to the rendezvous does not own the peer's TCP socket",
            Self::UnknownOwner => "the kernel does not tell who owns the peer's TCP socket",
            Self::OtherConnection => "the peer means another connection",
            Self::BadMemory => "the peer's memory has not the size or the seals that it must have",
            Self::Limit => "this process has as many local streams as `local_streams` allows",
            Self::NoMemory => "no memory for a local stream",
            Self::NoDescriptors => "no descriptors for a local stream",
            Self::Directory => {
                "`local_dir` is not a directory of this user that others cannot write to"
            }
            Self::System { errno } => {
                return write!(f, "{}", io::Error::from_raw_os_error(*errno));
            }
        })
    }
}
