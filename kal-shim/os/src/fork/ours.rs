//! Descriptors that are removed from the table before they are closed, so that their number alone identifies
//! them: those that share their inode with others, and those that live too shortly to pay for fstat(2).
//!
//! Owned like the descriptor inside; any thread. No other thread forks between the removal and the close.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use super::{Making, Owner};

/// A descriptor that a child must not keep: an epoll set, an eventfd, a timer, the socket of a stream.
pub struct Ours<O: Owner, T: AsFd> {
    fd: T,
    /// Dropped after the descriptor.
    closing: Option<Making<'static>>,
    owner: PhantomData<fn() -> O>,
}

impl<O: Owner, T: AsFd> Ours<O, T> {
    /// Makes it.
    ///
    /// # Errors
    /// Those of `make`, and no memory.
    pub fn make(make: impl FnOnce() -> io::Result<T>) -> io::Result<Self> {
        let table = O::table();
        table.watch::<O>()?;
        let _making = Making::enter(table);
        let fd = make()?;
        table.table.enter_owned(fd.as_fd())?;
        Ok(Self { fd, closing: None, owner: PhantomData })
    }
}

impl<O: Owner, T: AsFd> Deref for Ours<O, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.fd
    }
}

impl<O: Owner, T: AsFd> AsFd for Ours<O, T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<O: Owner, T: AsFd + fmt::Debug> fmt::Debug for Ours<O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fd.fmt(f)
    }
}

impl<O: Owner, T: AsFd> Drop for Ours<O, T> {
    fn drop(&mut self) {
        self.closing = Some(Making::enter(O::table()));
        O::table().table.forget(self.fd.as_fd());
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::fork::Descriptors;

    #[test]
    fn it_is_recorded_until_it_is_closed() {
        struct Here;
        impl Owner for Here {
            fn table() -> &'static Descriptors {
                static TABLE: Descriptors = Descriptors::new();
                &TABLE
            }
        }
        let pipe = || Ok(rustix::pipe::pipe()?.0);
        let ours = Ours::<Here, _>::make(pipe).unwrap();
        let (fd, table) = (ours.as_raw_fd(), &Here::table().table);
        assert_ne!(table.inode(fd), 0);
        drop(ours);
        assert_eq!(table.inode(fd), 0);
    }
}
