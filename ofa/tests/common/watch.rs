//! Descriptors of channels, watched as programs do it: poll, level-triggered and edge-triggered epoll, O_NONBLOCK,
//! dup. The same for every kind of channel: `cause` causes one more event, which may come later, and `take`
//! takes the next one, or returns the error number.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use warpline_patience::until;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Whether poll(2) reports it, now.
pub(crate) fn readable(fd: impl AsFd) -> bool {
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&NOW)).unwrap() == 1
}

/// A set with one descriptor.
struct Watch(OwnedFd);

impl Watch {
    fn new(fd: impl AsFd, how: EventFlags) -> Self {
        let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, fd, EventData::new_u64(0), EventFlags::IN | how).unwrap();
        Self(set)
    }

    /// Whether epoll_wait(2) reports it, now.
    fn reports(&self) -> bool {
        let mut events = Vec::with_capacity(1);
        epoll::wait(&self.0, spare_capacity(&mut events), Some(&NOW)).unwrap() == 1
    }
}

/// Level-triggered: reported as long as an event is queued.
pub(crate) fn by_level(
    fd: BorrowedFd<'_>,
    mut cause: impl FnMut(),
    mut take: impl FnMut() -> Result<(), i32>,
) {
    let watch = Watch::new(fd, EventFlags::empty());
    assert!(!watch.reports() && !readable(fd));
    (0..2).for_each(|_| cause());
    for _ in 0..2 {
        until("an event", || watch.reports() && readable(fd));
        assert!(watch.reports(), "again, because nobody has taken it");
        assert_eq!(take(), Ok(()));
    }
    assert!(!watch.reports() && !readable(fd));
}

/// Edge-triggered: reported once for each event, also if earlier ones are not taken yet, and for nothing else.
pub(crate) fn by_edge(
    fd: BorrowedFd<'_>,
    mut cause: impl FnMut(),
    mut take: impl FnMut() -> Result<(), i32>,
) {
    let watch = Watch::new(fd, EventFlags::ET);
    for _ in 0..3 {
        cause();
        until("an edge", || watch.reports());
        assert!(!watch.reports(), "one event, one edge");
    }
    for _ in 0..3 {
        assert_eq!(take(), Ok(()));
        assert!(!watch.reports(), "a taken event is not reported");
    }
    cause();
    until("an edge", || watch.reports());
    assert_eq!(take(), Ok(()));
    assert!(!watch.reports() && !readable(fd));
}

/// A duplicate reports the same.
pub(crate) fn duplicated(
    fd: BorrowedFd<'_>,
    mut cause: impl FnMut(),
    mut take: impl FnMut() -> Result<(), i32>,
) {
    let copy = rustix::io::dup(fd).unwrap();
    let (level, edge) = (Watch::new(&copy, EventFlags::empty()), Watch::new(&copy, EventFlags::ET));
    assert!(!readable(&copy) && !level.reports() && !edge.reports());
    cause();
    until("an event at the duplicate", || readable(&copy));
    assert!(readable(fd) && level.reports() && edge.reports() && !edge.reports());
    assert_eq!(take(), Ok(()));
    assert!(!readable(&copy) && !readable(fd) && !level.reports());
}

/// O_NONBLOCK, which belongs to the open file and so to all of its descriptors: EAGAIN instead of a wait.
pub(crate) fn nonblocking(
    fd: BorrowedFd<'_>,
    mut cause: impl FnMut(),
    mut take: impl FnMut() -> Result<(), i32>,
) {
    let copy = rustix::io::dup(fd).unwrap();
    let before = fcntl_getfl(&copy).unwrap();
    fcntl_setfl(&copy, before | OFlags::NONBLOCK).unwrap();
    assert_eq!(take(), Err(libc::EAGAIN));
    cause();
    until("an event", || readable(fd));
    assert_eq!((take(), take()), (Ok(()), Err(libc::EAGAIN)));
    fcntl_setfl(&copy, before).unwrap();
    cause();
    // Blocks until it is there.
    assert_eq!(take(), Ok(()));
}
