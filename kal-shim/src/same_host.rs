//! Rendezvous of two processes on one machine that have a TCP connection with each other: they find each other,
//! check the peer's user, and share memory. Nothing is sent on TCP for it.
//!
//! The side that connected ([`Waiting`]) binds a unix socket whose name is the TCP address it connected from,
//! with the port it connected to. The other side ([`Dialled`]) connects to that name and offers a memfd and two
//! doorbells (SCM_RIGHTS); the first agrees; the second, unless it has given up, confirms (`go`) that both
//! continue in the memory. How octets are carried after that, and when TCP is checked for the confirmation, is
//! up to the caller: the name of the use (`mpa`, ...) is part of the name.
//!
//! | step | message | failure |
//! |---|---|---|
//! | dial | | no listener, the backlog full, another user's name |
//! | offer | connection, three descriptors | another connection, memory that is not sealed |
//! | agree | connection | refused, with the reason; no message before the caller's deadline |
//! | go | connection | the peer has left |
//!
//! Who the peer is: the user of the process at the other end of the unix socket (SO_PEERCRED) is the owner of
//! the other end of the TCP connection ([`owner`], sock_diag(7)). So a process of another user that binds or
//! dials the name gets nothing. A process of the same user could also use ptrace(2). Across network namespaces
//! ([`Place::Directory`]) sock_diag cannot see the peer: there it must be this process's own user, in a
//! directory that no other user may write to.
//!
//! Each side owns its descriptors; no call blocks, whatever descriptors others pass (`receive`), and the sockets into
//! which they write are closed where nothing waits ([`kal_os::fork::Foreign`]). A peer that dies or stops at any step delays
//! the caller until its deadline at most. Two connections share a name only while one port is connected to one port of two
//! addresses of this machine: the second is TCP then. An abstract name ends with its socket, one in a directory
//! is removed when it has no listener. A child made by fork(2) keeps none of the descriptors.

mod dialled;
mod headroom;
mod memory;
mod message;
mod not_local;
mod owner;
mod place;
mod receive;
mod waiting;

pub use dialled::Dialled;
pub use headroom::has_headroom;
pub use memory::{Met, doorbells};
pub use not_local::NotLocal;
pub use owner::owner;
pub use place::{DirectoryError, Place, check_directory, is_here};
pub use waiting::{Waiting, Watch};

use std::net::SocketAddr;

/// A TCP connection, identified by its two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The end that binds the name.
    pub waiting: SocketAddr,
    /// The end that dials it.
    pub dialling: SocketAddr,
}

#[cfg(test)]
mod tests;
