//! Descriptors whose close may block for as long as another process likes: what it passed (SCM_RIGHTS), and unix sockets
//! into which it writes. They are closed by threads that do nothing else.
//!
//! Who closes the last reference to a file waits for what its owner chose: a TCP socket with SO_LINGER for its octets, a
//! file of FUSE for the reply of its server. The octets of a unix socket that nobody read carry references, too: whoever
//! closes the socket, or receives a message without room for its descriptors, closes them.
//!
//! Of a [`Descriptors`] table, per process. One thread closes; a second one waits, and goes on in its place when a close
//! takes longer than [`CLOSE_PACE`]. They end after a while without work. So there are two more threads than closes that
//! block. When many block, [`Foreign::is_full`] tells the callers to make no more descriptors of this kind.

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{Descriptors, Owner};
use crate::lock;
use crate::tuning::{CLOSE_PACE, CLOSER_IDLE};

/// As many closes may block before callers make no more descriptors.
const MOST: usize = 64;

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

    /// Whether so many closes block that no more descriptors of this kind may be made.
    pub fn is_full() -> bool {
        lock(&O::table().closer.get::<O>().state).blocked >= MOST
    }
}

impl<O: Owner> AsFd for Foreign<O> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect(THERE).as_fd()
    }
}

impl<O: Owner> Drop for Foreign<O> {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            if self.own {
                // Not of what was received: the lock of a TCP socket may be held as long as its owner likes.
                let _ = rustix::net::shutdown(&fd, rustix::net::Shutdown::Both);
            }
            O::table().closer.get::<O>().close(fd);
        }
    }
}

/// The threads, and what they have to close.
#[derive(Default)]
pub(super) struct Closer {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    due: VecDeque<OwnedFd>,
    /// Threads that wait for work, or for the one that closes.
    idle: usize,
    /// Number of the close in progress, if it is not known to block.
    closing: Option<u64>,
    /// Closes so far.
    count: u64,
    /// Closes that block.
    blocked: usize,
}

impl Closer {
    fn close(&'static self, fd: OwnedFd) {
        let mut state = lock(&self.state);
        state.due.push_back(fd);
        self.wake(&state);
    }

    /// Sees to it that a thread looks at what is due.
    fn wake(&'static self, state: &State) {
        if state.idle > 0 {
            self.more.notify_one();
        } else {
            // If there is no thread for it, the next one closes this, too.
            let _ = crate::spawn("warpline-close", || self.run());
        }
    }

    fn run(&'static self) {
        let mut state = lock(&self.state);
        loop {
            let closing = state.closing;
            if closing.is_none()
                && let Some(fd) = state.due.pop_front()
            {
                state = self.close_here(state, fd);
                continue;
            }
            let pace = if state.due.is_empty() { CLOSER_IDLE } else { CLOSE_PACE };
            state.idle += 1;
            let wait = self.more.wait_timeout(state, pace);
            let (next, waited) = wait.unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            match waited.timed_out() {
                true if state.due.is_empty() => return,
                // Still the same one: it blocks.
                true if closing.is_some() && closing == state.closing => {
                    state.closing = None;
                    state.blocked += 1;
                }
                _ => {}
            }
        }
    }

    fn close_here(
        &'static self,
        mut state: MutexGuard<'static, State>,
        fd: OwnedFd,
    ) -> MutexGuard<'static, State> {
        if !state.due.is_empty() {
            self.wake(&state);
        }
        state.count += 1;
        let own = Some(state.count);
        state.closing = own;
        drop(state);
        drop(fd);
        let mut state = lock(&self.state);
        match state.closing == own {
            true => state.closing = None,
            false => state.blocked -= 1,
        }
        state
    }
}

#[cfg(all(test, not(any(loom, miri))))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use super::*;

    struct Here;
    impl Owner for Here {
        fn table() -> &'static Descriptors {
            static TABLE: Descriptors = Descriptors::new();
            &TABLE
        }
    }

    /// A socket whose close waits until its peer, which does not read, is gone; and the peer.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65_536]).is_ok() {}
        let long = Some(Duration::from_secs(60));
        rustix::net::sockopt::set_socket_linger(&socket, long).unwrap();
        (socket.into(), peer)
    }

    fn is_open(fd: &(i32, u64)) -> bool {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.0));
        link.is_ok_and(|to| to.to_string_lossy() == format!("pipe:[{}]", fd.1))
    }

    /// The end of a pipe, which is dropped.
    fn harmless() -> (i32, u64) {
        let harmless = Foreign::<Here>::make(|| Ok(rustix::pipe::pipe()?.0)).unwrap();
        (harmless.as_fd().as_raw_fd(), rustix::fs::fstat(&harmless).unwrap().st_ino)
    }

    #[test]
    fn descriptors_are_closed_while_others_block() {
        let of_one = |(socket, peer)| (Foreign::<Here>::received(socket), peer);
        let (mut sockets, peers): (Vec<_>, Vec<_>) = (0..MOST).map(|_| of_one(lingering())).unzip();
        drop(sockets.pop());
        assert!(!Foreign::<Here>::is_full());
        let behind_one = harmless();
        warpline_patience::until("it to be closed", || !is_open(&behind_one));
        drop(sockets);
        let behind_all = harmless();
        warpline_patience::until("it to be closed", || !is_open(&behind_all));
        assert!(Foreign::<Here>::is_full());
        drop(peers);
        warpline_patience::until("room", || !Foreign::<Here>::is_full());
    }
}
