//! The rendezvous of two processes on one machine that have a TCP connection with each other: they find
//! each other, prove who they are, and come to share memory. Nothing is sent on TCP for it.
//!
//! The side that connected ([`Waiting`]) binds a unix socket whose name is the TCP address it connected
//! from. The other side ([`Dialled`]) connects to that name and offers a memfd and two doorbells
//! (SCM_RIGHTS); the first agrees; the second, if it still wants to, says that both go on there. What carries
//! the octets behind that word, and when TCP is asked whether it came, is the caller's: the word of a use
//! (`mpa`, ...) is part of the name.
//!
//! | step | message | failure |
//! |---|---|---|
//! | dial | | nobody there, the backlog full, another user's name |
//! | offer | connection, three descriptors | another connection, memory that is not sealed |
//! | agree | connection | refused, with the reason; no message before the caller's deadline |
//! | go | connection | the peer has left |
//!
//! Who the peer is: the user of the process at the other end of the unix socket (SO_PEERCRED) is the owner of
//! the other end of the TCP connection ([`owner`], sock_diag(7)). So a process of another user that sits on
//! the name, or dials it, gets nothing. A process of the same user could also use ptrace(2). Across network
//! namespaces ([`Place::Directory`]) sock_diag sees nothing: there the peer must be this process's own
//! user, in a directory that nobody else may write to.
//!
//! Each side owns its descriptors; no call waits. A peer that dies or stops at any step costs what the caller's
//! deadline allows. Names are as unique as TCP ports; an abstract name is gone with its socket, one in a
//! directory is removed when nobody listens there. A child made by fork(2) keeps none of the descriptors.

mod dialled;
mod headroom;
mod memory;
mod message;
mod not_local;
mod owner;
mod place;
mod waiting;

pub use dialled::Dialled;
pub use headroom::headroom;
pub use memory::{Met, doorbells};
pub use not_local::NotLocal;
pub use owner::owner;
pub use place::{DirectoryError, Place, check_directory, is_here};
pub use waiting::{Waiting, Watch};

use std::net::SocketAddr;

/// A TCP connection, as either of its ends sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The end that binds the name.
    pub waiting: SocketAddr,
    /// The end that dials it.
    pub dialling: SocketAddr,
}

#[cfg(test)]
mod tests;
