//! Descriptors whose close may wait for as long as another process likes: what it passed (SCM_RIGHTS), and unix sockets
//! into which it writes. No thread of ours waits for that: see [`discard`].
//!
//! Who closes the last reference to a file waits for what its owner chose, e.g. a TCP socket with `SO_LINGER` for its octets.
//! The messages of a unix socket that nobody received carry references, too: whoever closes the socket, or receives a
//! message without room for its descriptors, closes them.

use std::io::{self, IoSliceMut};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recvmsg, shutdown, sockopt,
};

use super::{Descriptors, Owner};
use crate::discard;

const THERE: &str = "it is there until this value ends";

/// A descriptor that is closed where nothing waits.
#[derive(Debug)]
pub struct Foreign<O: Owner> {
    /// `None` at the end of its life only.
    fd: Option<OwnedFd>,
    /// It may be shut down before it is closed.
    own: bool,
    owner: PhantomData<fn() -> O>,
}

impl<O: Owner> Foreign<O> {
    /// Makes one that a child must not keep: a unix socket that others write into. When it is dropped they find it closed
    /// at once.
    ///
    /// # Errors
    /// Those of `make`, and no memory.
    pub fn make(make: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<Self> {
        let made = Descriptors::make::<O, _>(make)?;
        Ok(Self { fd: Some(made), own: true, owner: PhantomData })
    }

    /// Takes one that another process passed. Nothing is asked of it: even fstat(2) of a file of FUSE may block.
    pub fn received(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), own: false, owner: PhantomData }
    }

    /// The descriptor, which was found to be of a kind whose close does not block.
    pub fn into_harmless(mut self) -> OwnedFd {
        self.fd.take().expect(THERE)
    }
}

impl<O: Owner> AsFd for Foreign<O> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect(THERE).as_fd()
    }
}

impl<O: Owner> Drop for Foreign<O> {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        // Nothing is asked of what was received: the lock of a TCP socket may be held as long as its owner likes.
        if !(self.own && ends_empty(&fd)) {
            discard(fd);
        }
    }
}

/// Ends a unix socket; returns whether no message is left in it.
fn ends_empty(socket: &OwnedFd) -> bool {
    // From here on no message is added. With the sender's credentials even an empty message has something beside it, for
    // which there is no room: so it differs from the end of the stream. To look at it closes nothing.
    let looked = shutdown(socket, Shutdown::Both)
        .and_then(|()| sockopt::set_socket_passcred(socket, true))
        .and_then(|()| {
            let mut octet = [0];
            let mut none = RecvAncillaryBuffer::default();
            let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
            recvmsg(socket, &mut [IoSliceMut::new(&mut octet)], &mut none, flags)
        });
    looked.is_ok_and(|found| found.bytes == 0 && !found.flags.contains(ReturnFlags::CTRUNC))
}

#[cfg(all(test, not(any(loom, miri))))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::IoSlice;

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
        SocketType, sendmsg, socketpair,
    };

    use super::*;

    #[test]
    fn a_message_is_found_in_a_socket_also_if_it_is_empty() {
        let pair = || {
            let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
            socketpair(AddressFamily::UNIX, kind, flags, None).unwrap()
        };
        for octets in [&b"octets"[..], b""] {
            for with_descriptor in [true, false] {
                let (near, far) = pair();
                let fds = [far.as_fd()];
                let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut beside = SendAncillaryBuffer::new(&mut room);
                if with_descriptor {
                    assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
                }
                sendmsg(&near, &[IoSlice::new(octets)], &mut beside, SendFlags::empty()).unwrap();
                assert!(!ends_empty(&far), "{octets:?}, a descriptor: {with_descriptor}");
            }
        }
        let (near, far) = pair();
        assert!(ends_empty(&far));
        drop(near);
        let (near, far) = pair();
        drop(near);
        assert!(ends_empty(&far));
    }
}
