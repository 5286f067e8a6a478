//! Starting threads: named, and with signals blocked, so that the application's threads handle them.
//!
//! They are threads of the C library, without std's own start and end: there std takes a lock of the process, in a
//! program with its main function in Rust. A child made by fork(2) while another thread had this lock could start no
//! thread.

use std::ffi::{CString, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

/// As std's threads have by default.
const STACK_OCTETS: usize = 2 << 20;
/// Octets of a thread's name with its end (prctl(2)).
const NAME_OCTETS: usize = 16;

/// Signals that a thread raises by its own fault: blocked, they would end the process without its
/// handler.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// A thread of ours. If it is dropped, the thread continues without it.
#[derive(Debug)]
pub struct Thread {
    id: libc::pthread_t,
    joined: bool,
}

// SAFETY: any thread may join or detach another one; the id, a pointer with musl, is only passed to the C library.
unsafe impl Send for Thread {}
// SAFETY: the same; a shared reference allows nothing.
unsafe impl Sync for Thread {}

impl Thread {
    /// Waits until the thread has ended, unless the thread itself calls this. A panic of the thread was reported when it
    /// happened.
    pub fn join(mut self) {
        // SAFETY: returns the calling thread.
        if self.id != unsafe { libc::pthread_self() } {
            self.joined = true;
            // SAFETY: a thread that is neither joined nor detached, since only this value names it.
            unsafe { libc::pthread_join(self.id, null_mut()) };
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if !self.joined {
            // SAFETY: as for `pthread_join`.
            unsafe { libc::pthread_detach(self.id) };
        }
    }
}

/// What a thread begins with.
struct Start {
    name: CString,
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a thread that handles no signals but its own faults: a handler of the application runs in a
/// thread of the application, and interrupts the call there that it is meant to interrupt. Threads that
/// the new thread starts inherit that, also those that a callback of the application starts.
///
/// # Errors
/// The system cannot start a thread.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    let name = CString::new(&name.as_bytes()[..name.len().min(NAME_OCTETS - 1)])?;
    let start = Box::into_raw(Box::new(Start { name, body: Box::new(body) }));
    let attributes = Attributes::new();
    let mut id = MaybeUninit::uninit();
    let _blocked = Blocked::new();
    // SAFETY: there is room for the thread; `run` gets what it expects, and owns it.
    match unsafe { libc::pthread_create(id.as_mut_ptr(), &attributes.0, run, start.cast()) } {
        // SAFETY: the thread was started.
        0 => Ok(Thread { id: unsafe { id.assume_init() }, joined: false }),
        error => {
            // SAFETY: made above, and no thread has it.
            drop(unsafe { Box::from_raw(start) });
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` made it for this call.
    let Start { name, body } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: returns the calling thread.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: a thread that exists, and a text of at most 16 octets with its end.
    unsafe { libc::pthread_setname_np(this, name.as_ptr()) };
    // The panic was reported; there is no frame of Rust to continue it in.
    let _ = catch_unwind(AssertUnwindSafe(body));
    null_mut()
}

/// The size of a stack.
struct Attributes(libc::pthread_attr_t);

impl Attributes {
    fn new() -> Self {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: there is room for the attributes, which this initializes; it does not fail with glibc and musl.
        unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        // SAFETY: just initialized.
        let mut attributes = unsafe { attributes.assume_init() };
        // SAFETY: initialized; a size that is refused leaves the default.
        unsafe { libc::pthread_attr_setstacksize(&mut attributes, STACK_OCTETS) };
        Self(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialized by `new`.
        unsafe { libc::pthread_attr_destroy(&mut self.0) };
    }
}

/// Signals are blocked in this thread until drop; a new thread inherits the mask of the one that starts
/// it.
struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: there is room for the set that it stores.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: `sigfillset` does not fail.
        let mut all = unsafe { all.assume_init() };
        for fault in FAULTS {
            // SAFETY: the set is initialized, and these are signals.
            unsafe { libc::sigdelset(&mut all, fault) };
        }
        // SAFETY: the set is initialized, and there is room for the one that it stores.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, before.as_mut_ptr()) };
        // SAFETY: `pthread_sigmask` fails for another `how` only.
        Self { before: unsafe { before.assume_init() } }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is initialized.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signals that the calling thread blocks, one bit each, from 1 on.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_of_ours_handles_faults_alone() {
        let before = blocked();
        let (sender, inside) = std::sync::mpsc::channel();
        let thread = spawn("of-ours", move || sender.send(blocked()).unwrap()).unwrap();
        let inside = inside.recv().unwrap();
        thread.join();
        assert_eq!(blocked(), before);
        for signal in 1..32 {
            // These two are not blocked.
            let handled =
                FAULTS.contains(&signal) || [libc::SIGKILL, libc::SIGSTOP].contains(&signal);
            assert_eq!(inside >> (signal - 1) & 1 == 0, handled, "signal {signal}");
        }
    }

    #[test]
    fn a_thread_has_its_name_and_its_panic_ends_nothing_else() {
        let (sender, name) = std::sync::mpsc::channel();
        let thread = spawn("a-name-of-more-than-fifteen", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            sender.send(name.trim().to_owned()).unwrap();
            panic!("of a test");
        });
        thread.unwrap().join();
        assert_eq!(name.recv().unwrap(), "a-name-of-more-");
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let (sender, own) = std::sync::mpsc::channel::<Thread>();
        let (done, joined) = std::sync::mpsc::channel();
        let thread = spawn("self", move || {
            own.recv().unwrap().join();
            done.send(()).unwrap();
        });
        sender.send(thread.unwrap()).unwrap();
        joined.recv().unwrap();
    }
}
