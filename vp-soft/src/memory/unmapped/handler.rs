//! The handler of SIGSEGV, for stores to memory that is registered and not mapped (sigaction(2)).

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use super::map_blank_page;
use super::tables::is_used_at;

/// `si_code` of an address that is not mapped (sigaction(2)).
const SEGV_MAPERR: c_int = 1;
/// Whether the handler can tell a store from a load. If not, it is of no use.
pub(super) const KNOWS_STORES: bool = cfg!(all(target_arch = "x86_64", not(miri)));

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// What the process did on SIGSEGV before: the handler, and its flags.
static HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FLAGS: AtomicI32 = AtomicI32::new(0);

/// Installs the handler, once. Without a lock, which a child made by fork(2) could wait for.
pub(super) fn install() {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if BEGUN.load(Ordering::Relaxed) || BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    let before = current();
    HANDLER.store(before.sa_sigaction, Ordering::Relaxed);
    FLAGS.store(before.sa_flags, Ordering::Release);
    let mut ours = before;
    ours.sa_sigaction = handle as Handler as usize;
    // The flags and the mask that the handler before expects, as it may be called.
    ours.sa_flags = (before.sa_flags | libc::SA_SIGINFO | libc::SA_ONSTACK) & !libc::SA_RESETHAND;
    // SAFETY: `handle` is a handler of that form, calls only what a handler may call, and stays loaded. Refused: the
    // process is as it was.
    unsafe { libc::sigaction(libc::SIGSEGV, &ours, null_mut()) };
}

/// The default action: the end of the process.
fn default() -> libc::sigaction {
    // SAFETY: integers and an optional function, all of which zeros are valid for.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// What the process does on SIGSEGV now.
fn current() -> libc::sigaction {
    let mut current = default();
    // SAFETY: a null action changes nothing; the call fills `current`.
    unsafe { libc::sigaction(libc::SIGSEGV, null(), &mut current) };
    current
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes what happened, which nothing changes.
    let what = unsafe { &*info };
    // SAFETY: the kernel passes the context of a fault.
    let store = unsafe { is_store(context) };
    if what.si_code == SEGV_MAPERR && store {
        // SAFETY: a fault has an address.
        let addr = unsafe { what.si_addr() }.addr();
        if is_used_at(addr) && map_blank_page(addr).is_some() {
            return;
        }
    }
    pass_on(signal, what.si_code, info, context);
}

/// Whether a fault is that of a store.
///
/// # Safety
///
/// It is the third argument of a handler with SA_SIGINFO.
unsafe fn is_store(context: *const libc::c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // The bit of a page fault's error code (Intel SDM volume 3, section 4.7).
        const STORE: i64 = 1 << 1;
        // SAFETY: the caller's promise: it is a `ucontext_t`, which is only read here.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        registers[libc::REG_ERR as usize] & STORE != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        false
    }
}

/// Does what the process did before.
fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let flags = FLAGS.load(Ordering::Acquire);
    let handler = HANDLER.load(Ordering::Relaxed);
    let is_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&handler);
    // A process sent it: no instruction raises it again.
    let sent = code <= 0;
    if sent && handler == libc::SIG_IGN {
        return;
    }
    if !is_handler || flags & libc::SA_RESETHAND != 0 {
        // SAFETY: the default action calls nothing.
        unsafe { libc::sigaction(signal, &default(), null_mut()) };
    }
    if is_handler && flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the kernel would call it in this form, by its flag.
        let handler: Handler = unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else if is_handler {
        // SAFETY: the same without the flag.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    } else if sent {
        // SAFETY: no memory is involved.
        unsafe { libc::raise(signal) };
    }
}
