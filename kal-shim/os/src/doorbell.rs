//! Doorbells: a thread that watches one in an epoll set is woken by another process that has a copy of the descriptor.
//!
//! A copy shares the file description, and with it the counter and the flags, so no call may depend on these. A doorbell
//! is an eventfd of semaphore kind whose counter is near its maximum. A *ring* takes 1 from the counter by a read that does
//! not wait (`RWF_NOWAIT`, whatever `O_NONBLOCK` says), which reports an edge of room to write (`EPOLLOUT`) to those who
//! watch; nobody ever writes. A write could block: at the maximum of the counter, to which asynchronous IO can bring it. So
//! could a pipe, also when opened anew: its lock is held while octets are copied from memory that another process supplies.
//! A unix socket could carry descriptors whose close blocks.
//!
//! Whoever shares a doorbell can empty or fill it: then rings in both directions have no effect until their connection's
//! time-outs. A flood of rings wakes as often as a flood of messages does. Edges are reported once: nothing spins.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{ReadWriteFlags, preadv2};

/// Creates a doorbell, to be watched for edges of `EPOLLOUT`.
///
/// # Errors
/// Those of eventfd(2), and of a kernel without reads of eventfds that do not wait (before Linux 5.8).
pub fn doorbell() -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    let bell = eventfd(0, flags)?;
    // Room to write remains: 2^64 - 2 is the most that a write can reach.
    rustix::io::write(&bell, &(u64::MAX - 2).to_ne_bytes())?;
    take_one(&bell)?;
    Ok(bell)
}

/// Rings a doorbell, whoever made it. Does not block.
pub fn ring(doorbell: impl AsFd) {
    // Another process emptied it: its rings are lost.
    let _ = take_one(doorbell);
}

fn take_one(doorbell: impl AsFd) -> rustix::io::Result<usize> {
    /// The present position (preadv2(2)): an eventfd has no other.
    const PRESENT: u64 = u64::MAX;
    let mut count = [0; 8];
    preadv2(doorbell, &mut [IoSliceMut::new(&mut count)], PRESENT, ReadWriteFlags::NOWAIT)
}

#[cfg(all(test, not(any(loom, miri))))]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::event::{PollFd, PollFlags, Timespec};
    use rustix::fs::OFlags;

    use super::*;

    fn edges(set: &OwnedFd) -> usize {
        let mut events = [std::mem::MaybeUninit::uninit(); 4];
        epoll::wait(set, &mut events, Some(&Timespec::default())).unwrap().0.len()
    }

    fn watched(bell: &OwnedFd) -> OwnedFd {
        let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, bell, EventData::new_u64(0), EventFlags::OUT | EventFlags::ET).unwrap();
        set
    }

    #[test]
    fn each_ring_is_an_edge() {
        let bell = doorbell().unwrap();
        let set = watched(&bell);
        assert_eq!((edges(&set), edges(&set)), (1, 0));
        for _ in 0..3 {
            ring(&bell);
            assert_eq!((edges(&set), edges(&set)), (1, 0));
        }
    }

    /// Whatever another process does with its copy.
    #[test]
    fn a_ring_blocks_at_no_value_of_the_counter() {
        let (finished, ring_ends) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let bell = doorbell().unwrap();
            let copy = bell.try_clone().unwrap();
            let flags = rustix::fs::fcntl_getfl(&copy).unwrap();
            rustix::fs::fcntl_setfl(&copy, flags - OFlags::NONBLOCK).unwrap();
            // Full for each who writes.
            rustix::io::write(&copy, &2u64.to_ne_bytes()).unwrap();
            let mut full = [PollFd::new(&copy, PollFlags::OUT)];
            assert_eq!(rustix::event::poll(&mut full, Some(&Timespec::default())), Ok(0));
            ring(&bell);
            // Empty, and read as a whole.
            let empty = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            ring(&empty);
            finished.send(()).unwrap();
        });
        ring_ends.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    }
}
