//! Queues with a descriptor that readers wait on: completion channels, asynchronous events, connection
//! events.
//!
//! The descriptor is an eventfd that counts the queued items, so that poll, select and epoll (level and
//! edge), O_NONBLOCK by fcntl, and dup work as with a kernel's. Count and queue change together, under
//! one lock that is held for a few instructions and a system call that never blocks. A thread that waits
//! in a call here serves the device's sockets meanwhile. The owners bound the number of items: one per
//! armed notification, one per event of an object.
//!
//! Programs destroy a channel, and then exit, while a thread of theirs still waits at it (rping does). With
//! rdma-core that thread stays in read(2). So here: what is waited at is not freed ([`Queue::is_waited_at`]).

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::time::Duration;

use kal_os::lock;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::thread::{Pid, gettid};
use vp_api::VpStatus;

use crate::errno::Errno;
use crate::restart;
use crate::tuning::LEAD;

unsafe extern "C-unwind" {
    fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: libc::c_int) -> libc::c_int;
}

/// Sleeps until the descriptor is readable. A cancellation point, as read(2) is in rdma-core
/// (pthreads(7)): the C library then unwinds this thread from here, so no function between here and the
/// one that C called may own anything meanwhile, and that function is `extern "C-unwind"`.
fn sleep(fd: RawFd) -> Result<(), Errno> {
    let mut fds = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, in a variable of this function.
    if unsafe { poll(&raw mut fds, 1, -1) } >= 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error().into() {
        Errno(libc::EINTR) => interrupted(),
        errno => Err(errno),
    }
}

/// Sleeps for this many milliseconds, or until a signal handler ran. A cancellation point, as `sleep` is.
pub fn pause(milliseconds: libc::c_int) {
    // SAFETY: no descriptors.
    unsafe { poll(std::ptr::null_mut(), 0, milliseconds) };
}

/// A signal handler ran: decides whether the wait continues or returns EINTR.
fn interrupted() -> Result<(), Errno> {
    if restart::goes_on() { Ok(()) } else { Err(Errno(libc::EINTR)) }
}

/// The thread of this process has not ended.
fn is_alive(thread: Pid) -> bool {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: signal 0 is not delivered.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread.as_raw_nonzero().get(), 0) == 0 }
}

/// An item of a queue.
pub trait Item {
    /// Called under the queue's lock when the item is returned to a reader, so that it can no longer be
    /// discarded.
    fn taken(&self) {}
}

/// A queue with a descriptor.
pub struct Queue<T> {
    fd: OwnedFd,
    items: Mutex<VecDeque<T>>,
    /// Threads that have entered, and some that were cancelled since.
    waiting: Mutex<Vec<Pid>>,
}

impl<T: Item> Queue<T> {
    /// An empty queue.
    ///
    /// # Errors
    /// Those of eventfd(2): no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
        Ok(Self { fd: eventfd(0, flags)?, items: Mutex::default(), waiting: Mutex::default() })
    }

    /// The descriptor that applications poll.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Adds an item, and wakes a reader.
    pub fn push(&self, item: T) {
        let mut items = lock(&self.items);
        items.push_back(item);
        // This would block only at 2^64 - 1.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        lock(&self.items).is_empty()
    }

    /// Removes the items for which `unwanted` returns true, in order.
    pub fn remove(&self, mut unwanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut items = lock(&self.items);
        let (gone, kept): (VecDeque<T>, VecDeque<T>) =
            std::mem::take(&mut *items).into_iter().partition(|item| unwanted(item));
        *items = kept;
        gone.iter().for_each(|_| self.count_down());
        gone.into()
    }

    /// The next item, if there is one.
    pub fn try_take(&self) -> Option<T> {
        let mut items = lock(&self.items);
        let item = items.pop_front()?;
        self.count_down();
        item.taken();
        Some(item)
    }

    /// The next item; waits for it unless the descriptor is nonblocking. `lead` is
    /// [`vp_api::Rnic::lead`] of the device whose events end the wait.
    ///
    /// # Errors
    /// EAGAIN: there is none, and the descriptor is nonblocking. EINTR: a signal handler ran that was installed
    /// without SA_RESTART.
    pub fn take(
        &self,
        lead: impl Fn(BorrowedFd<'_>, Option<Duration>) -> Result<bool, VpStatus>,
    ) -> Result<T, Errno> {
        if let Some(item) = self.try_take() {
            return Ok(item);
        }
        self.enter();
        self.take_entered(lead)
    }

    /// Records this thread as one that waits, until it returns from [`Queue::take_entered`]. No code runs when one is
    /// cancelled, so ended threads are searched for.
    pub fn enter(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|waiting| is_alive(*waiting));
        waiting.push(gettid());
    }

    /// As [`Queue::take`], after [`Queue::enter`].
    ///
    /// # Errors
    /// As [`Queue::take`].
    pub fn take_entered(
        &self,
        lead: impl Fn(BorrowedFd<'_>, Option<Duration>) -> Result<bool, VpStatus>,
    ) -> Result<T, Errno> {
        let item = self.wait(lead);
        let thread = gettid();
        lock(&self.waiting).retain(|waiting| *waiting != thread);
        item
    }

    /// A thread has entered: the queue must not be freed.
    pub fn is_waited_at(&self) -> bool {
        lock(&self.waiting).iter().any(|waiting| is_alive(*waiting))
    }

    fn wait(
        &self,
        lead: impl Fn(BorrowedFd<'_>, Option<Duration>) -> Result<bool, VpStatus>,
    ) -> Result<T, Errno> {
        loop {
            if let Some(item) = self.try_take() {
                return Ok(item);
            }
            if fcntl_getfl(&self.fd)?.contains(OFlags::NONBLOCK) {
                return Err(Errno(libc::EAGAIN));
            }
            match lead(self.fd.as_fd(), Some(LEAD)) {
                Ok(true) => {}
                Err(VpStatus::Interrupted) => interrupted()?,
                Ok(false) | Err(_) => sleep(self.fd.as_raw_fd())?,
            }
        }
    }

    /// Counts one item down; under the lock, with the item still counted, so that this does not block.
    fn count_down(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    impl Item for u32 {}

    fn readable(queue: &Queue<u32>) -> bool {
        let mut fds = [PollFd::new(&queue.fd, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn a_thread_that_waits_is_known_until_it_returns_or_ends() {
        let queue = std::sync::Arc::new(Queue::<u32>::new().unwrap());
        let lead = |_: BorrowedFd<'_>, _| Err(VpStatus::Unsupported);
        let waiter = std::thread::spawn({
            let queue = queue.clone();
            move || queue.take(lead)
        });
        warpline_patience::until("a thread to wait", || queue.is_waited_at());
        queue.push(5);
        assert_eq!(waiter.join().unwrap(), Ok(5));
        assert!(!queue.is_waited_at());
        // As if it had been cancelled.
        std::thread::scope(|scope| scope.spawn(|| queue.enter()).join().unwrap());
        warpline_patience::until("the thread to end", || !queue.is_waited_at());
    }

    #[test]
    fn the_descriptor_counts_what_is_queued() {
        let queue = Queue::new().unwrap();
        assert!(!readable(&queue));
        (1..=3).for_each(|item| queue.push(item));
        assert_eq!(queue.remove(|item| *item == 2), [2]);
        let lead = |_: BorrowedFd<'_>, _| Err(VpStatus::Unsupported);
        assert_eq!(queue.take(lead), Ok(1));
        assert!(readable(&queue));
        assert_eq!(queue.take(lead), Ok(3));
        assert!(!readable(&queue));
        rustix::fs::fcntl_setfl(&queue.fd, OFlags::NONBLOCK).unwrap();
        assert_eq!(queue.take(lead), Err(Errno(libc::EAGAIN)));
    }
}
