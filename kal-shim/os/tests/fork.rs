//! Tests of fork: which descriptors and what state of its parent a child has.
#![cfg(not(miri))] // which has no fork

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kal_os::fork::{Descriptors, Ours, Owner, PerProcess};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, fstat};
use rustix::net::{AddressFamily, SocketType, socket};

struct Here;

impl Owner for Here {
    fn table() -> &'static Descriptors {
        static TABLE: Descriptors = Descriptors::new();
        &TABLE
    }
}

/// The tests examine the descriptors of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_socket(fd: impl AsFd) -> bool {
    fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

/// A child that runs `work`; returns its process id.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: the child uses what the C library keeps whole for it, and what is tested here.
    match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends the child without what its parent had to do at its end.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        -1 => panic!("{}", io::Error::last_os_error()),
        child => child,
    }
}

fn succeeds(child: i32) {
    let mut status = 0;
    // SAFETY: a child of this process, and a number that may be written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child says that something is wrong");
}

#[test]
fn the_peer_sees_the_end_although_a_child_lives() {
    let _alone = alone();
    let (near, mut far) = UnixStream::pair().unwrap();
    Descriptors::take::<Here>(near.as_fd()).unwrap();
    let (mut hold, held) = io::pipe().unwrap();
    let mut held = Some(held);
    let child = fork(|| {
        held = None;
        assert!(!is_socket(&near));
        let _ = hold.read(&mut [0]);
    });
    drop(near);
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    drop(held);
    succeeds(child);
}

#[test]
fn descriptors_that_reuse_an_old_number_stay_open() {
    let _alone = alone();
    let old = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    Descriptors::take::<Here>(old.as_fd()).unwrap();
    let number = old.as_raw_fd();
    drop(old);
    let new = || socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    // The test harness may use the number for a moment.
    let mut own = vec![new()];
    while own.iter().all(|own| own.as_raw_fd() != number) {
        own.push(new());
    }
    succeeds(fork(|| assert!(own.iter().all(is_socket))));
}

/// The child closes the numbers of the parent's objects, which must not be reused meanwhile.
#[test]
fn inherited_objects_close_no_descriptor_of_the_child() {
    let _alone = alone();
    let ours = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    Descriptors::take::<Here>(ours.as_fd()).unwrap();
    succeeds(fork(|| {
        let many = || socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let own: Vec<OwnedFd> = (0..10).map(|_| many()).collect();
        drop(ours);
        assert!(own.iter().all(is_socket));
    }));
}

/// An epoll set or a timer of the parent is the same one in the child.
#[test]
fn the_childs_use_of_an_inherited_eventfd_is_not_seen() {
    let _alone = alone();
    let new = || Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (ours, own) = (Ours::<Here, _>::make(new).unwrap(), new().unwrap());
    succeeds(fork(|| {
        for event in [&*ours, &own] {
            rustix::io::write(event, &1u64.to_ne_bytes()).unwrap();
        }
    }));
    let mut count = [0; 8];
    assert!(rustix::io::read(&*ours, &mut count).is_err(), "the child wrote to ours");
    assert_eq!(rustix::io::read(&own, &mut count).unwrap(), 8);
}

/// Ends the threads of a test, however it ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The numbers that are sockets.
fn sockets() -> impl Iterator<Item = i32> {
    // SAFETY: asked about by their numbers only.
    (0..256).filter(|number| is_socket(unsafe { BorrowedFd::borrow_raw(*number) }))
}

/// Whatever other threads are doing when a thread forks.
#[test]
fn no_socket_slips_through_while_it_is_made() {
    let _alone = alone();
    let ends = AtomicBool::new(false);
    let made = AtomicU32::new(0);
    let new = || Ok(socket(AddressFamily::UNIX, SocketType::STREAM, None)?);
    // Possibly the standard streams.
    let others: Vec<i32> = sockets().collect();
    std::thread::scope(|scope| {
        let _ends = Ends(&ends);
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    drop::<OwnedFd>(Descriptors::make::<Here, _>(new).unwrap());
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..200 {
            succeeds(fork(|| assert!(sockets().all(|number| others.contains(&number)))));
        }
    });
    assert_ne!(made.load(Ordering::Relaxed), 0);
}

/// Although its lock was held.
#[test]
fn a_child_has_state_of_its_own() {
    static STATE: PerProcess<Mutex<u32>> = PerProcess::new();
    let _alone = alone();
    let mut held = STATE.get::<Here>().lock().unwrap();
    *held = 7;
    let generation = Descriptors::generation::<Here>();
    let grandchild = || {
        assert_eq!(*STATE.get::<Here>().lock().unwrap(), 0);
        assert_eq!(Descriptors::generation::<Here>(), generation + 2);
    };
    succeeds(fork(|| {
        assert_eq!(Descriptors::generation::<Here>(), generation + 1);
        let mut own = STATE.get::<Here>().lock().unwrap();
        assert_eq!(std::mem::replace(&mut *own, 8), 0);
        succeeds(fork(grandchild));
        assert_eq!(*own, 8);
    }));
    assert_eq!(Descriptors::generation::<Here>(), generation);
    assert_eq!(*held, 7);
    drop(held);
    assert_eq!(*STATE.get::<Here>().lock().unwrap(), 7);
}
