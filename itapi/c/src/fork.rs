//! After `fork`: the child has the parent's handles but none of its threads. All calls are refused
//! there; a child that needs RDMA calls `exec`, or the parent forks before its first `it_ia_create`.
//!
//! One flag per process, set in the child by a handler that the first `it_ia_create` installs.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static CHILD: AtomicBool = AtomicBool::new(false);

/// Installs the handler, once.
pub(crate) fn watch() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: `in_child` is a function for the whole life of the process that only stores to an
        // atomic, which is allowed between fork and exec.
        let installed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if installed != 0 {
            tracing::warn!("cannot watch for fork: error {installed}");
        }
    });
}

extern "C" fn in_child() {
    CHILD.store(true, Ordering::Relaxed);
}

/// True in a process that was forked off a user of this library.
#[inline]
pub(crate) fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}
