//! Descriptors that share their inode with others, and are therefore removed from the table before they
//! are closed.
//!
//! Owned like the descriptor inside; any thread.

use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use super::{Descriptors, Owner};

/// A descriptor that a child must not keep, and that shares its inode with others: an epoll set, an eventfd, a timer.
#[derive(Debug)]
pub struct Ours<O: Owner, T: AsFd>(T, PhantomData<fn() -> O>);

impl<O: Owner, T: AsFd> Ours<O, T> {
    /// Makes it.
    ///
    /// # Errors
    /// Those of `make`, and no memory.
    pub fn make(make: impl FnOnce() -> io::Result<T>) -> io::Result<Self> {
        Descriptors::make::<O, T>(make).map(|made| Self(made, PhantomData))
    }
}

impl<O: Owner, T: AsFd> Deref for Ours<O, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<O: Owner, T: AsFd> AsFd for Ours<O, T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<O: Owner, T: AsFd> Drop for Ours<O, T> {
    fn drop(&mut self) {
        O::table().table.forget(self.0.as_fd());
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn it_is_noted_until_it_is_closed() {
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
        assert_eq!(table.inode(fd), rustix::fs::fstat(&*ours).unwrap().st_ino);
        drop(ours);
        assert_eq!(table.inode(fd), 0);
    }
}
