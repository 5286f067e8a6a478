//! Fork: the child has the parent's objects but none of its threads. It starts anew: the first device that it
//! opens is another one than the parent's.
//!
//! One number per process, which a handler in the child increases; installed by the first who opens a device.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Installs the handler, once.
pub(crate) fn watch() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: `in_child` is there for the whole life of the process, and only changes an atomic, which
        // is allowed between fork and exec.
        let installed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if installed != 0 {
            tracing::warn!("cannot watch for fork: error {installed}");
        }
    });
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Which process this is: the first, its child, the child's child.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}
