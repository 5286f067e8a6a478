//! SIGINT and SIGTERM, for commands that report what they have before they end: the first is recorded, and the second
//! ends the process as by default.
//!
//! A thread waits for them. The handler that wakes it runs in any thread, whose system call may end with EINTR.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::error::{CliError, CliResult, Exit};

static CAUGHT: AtomicBool = AtomicBool::new(false);
/// What ends the waits of this process.
static AT_END: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());
/// Changes under the lock of `AT_END`.
static CHANGED: Condvar = Condvar::new();

fn at_end() -> MutexGuard<'static, Vec<Box<dyn FnOnce() + Send>>> {
    // A push cannot be left half done.
    AT_END.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the first signal instead of ending the process.
pub(crate) fn catch() -> CliResult<()> {
    static CATCHING: Once = Once::new();
    let mut result = Ok(());
    CATCHING.call_once(|| {
        result = Signals::new([SIGINT, SIGTERM]).and_then(|signals| {
            std::thread::Builder::new().name("signals".into()).spawn(|| serve(signals)).map(drop)
        });
    });
    result.map_err(|error| CliError::new(Exit::Failed, format!("cannot catch signals: {error}")))
}

fn serve(mut signals: Signals) {
    for signal in signals.forever() {
        if caught() {
            // It does not return.
            let _ = emulate_default_handler(signal);
        }
        let all = {
            let mut all = at_end();
            CAUGHT.store(true, Ordering::Release);
            std::mem::take(&mut *all)
        };
        CHANGED.notify_all();
        all.into_iter().for_each(|end| end());
    }
}

/// Leaves them to the process that started this one, and ends it after its report: a terminal sends them to both.
pub(crate) fn leave_to_parent() {
    for signal in [SIGINT, SIGTERM] {
        // Ignored: the parent's report then says that this process was killed.
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
}

/// Whether a signal was recorded.
pub(crate) fn caught() -> bool {
    CAUGHT.load(Ordering::Acquire)
}

/// Calls it when a signal is recorded, or now.
pub(crate) fn at_the_first(end: impl FnOnce() + Send + 'static) {
    let mut all = at_end();
    if caught() {
        drop(all);
        return end();
    }
    all.push(Box::new(end));
}

/// Sleeps, until a signal is recorded.
pub(crate) fn sleep(time: Duration) {
    let begun = Instant::now();
    let mut all = at_end();
    while !caught() {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return;
        }
        all = CHANGED.wait_timeout(all, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// The error of a command that a signal ended early, after it has reported.
pub(crate) fn ended_early() -> CliError {
    CliError::new(Exit::Failed, "interrupted")
        .because("SIGINT or SIGTERM; what was measured before is reported")
}
