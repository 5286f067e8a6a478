//! Lines on standard error for a program that fails for a reason which no error number tells: what is wrong, and the
//! remedy. Each once in a process, in the call that is refused, or when the process exits; a program that works with a device
//! gets none.

use std::ffi::{c_int, c_void};
use std::io::{Write, stderr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use vp_api::Transport;

use crate::{device, exit, fork, record};

/// A reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    /// A path without a GRH.
    NoGid,
    /// Datagrams on a device that has none.
    NoDatagrams,
    /// A file below `/sys/class/infiniband` that is not there.
    NoView,
    /// UCX, which refuses each device that is there.
    OnlyIwarp,
    /// The peer of a queue pair was never there.
    NoPeer,
    /// The devices were listed, and none was opened.
    NoneOpened,
}

/// The lines that this process has got.
static SAID: AtomicU32 = AtomicU32::new(0);

impl Advice {
    /// Says it, unless it was said before.
    pub(crate) fn say(self) {
        let bit = 1 << self as u32;
        if SAID.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return;
        }
        let text = self.text();
        record::line("advice", text);
        // Without standard error the line is lost.
        let _ = writeln!(stderr(), "warpline: {text}");
    }

    fn text(self) -> &'static str {
        match self {
            Self::NoGid => {
                "a path without a GID is refused, because these devices have no LIDs: name a GID index \
                 (`-g 0` of ibv_rc_pingpong, `-x 0` of perftest)"
            }
            Self::NoDatagrams => {
                "datagrams are refused, because iWARP has none: choose roce0 (`-d roce0` of perftest and ibv_ud_pingpong)"
            }
            Self::NoView => {
                "the program looks for devices below /sys/class/infiniband, where none are shown: start it by \
                 `warpline run`, without --no-view"
            }
            Self::OnlyIwarp => {
                "UCX refuses devices of iWARP, and there is no other: start the program by `warpline run` without --iwarp"
            }
            Self::NoPeer => {
                "the peer of a queue pair was not there until its retries ended: is its program running on Warpline's \
                 libraries, on the same device, and are its TCP ports reachable?"
            }
            Self::NoneOpened => {
                "the program listed the devices (softrdma0 and roce0, unless chosen otherwise), and opened none: if it takes \
                 the name of a device, name one of these; they are no vendor's adapters, and have no mlx5dv"
            }
        }
    }
}

/// Datagrams are asked of a device without them. Said where another device has them, which the program did not open: it
/// may only find out what this one can.
pub(crate) fn no_datagrams() {
    if device::all().is_ok_and(|all| all.iter().any(|it| it.has_datagrams() && !it.was_opened())) {
        Advice::NoDatagrams.say();
    }
}

/// A device is opened: by UCX, which will refuse it?
pub(crate) fn opened() {
    let iwarp = |all: &'static [device::Device]| {
        all.iter().all(|device| device.transport() == Transport::Iwarp)
    };
    if device::all().is_ok_and(iwarp) && record::is_mapped("/libuct_ib.so") {
        Advice::OnlyIwarp.say();
    }
}

/// The peer of a queue pair was never there. Not said where the program has several devices open: it may pair unlike ones,
/// as Mooncake does, and go on with others.
pub(crate) fn no_peer() {
    let several =
        device::all().is_ok_and(|all| all.iter().filter(|it| it.was_opened()).count() > 1);
    if !several {
        Advice::NoPeer.say();
    }
}

/// The program gets the list of devices: what it makes of it is seen when it exits.
pub(crate) fn listed() {
    let now = fork::generation() + 1;
    let before = LISTED.swap(now, Ordering::Relaxed);
    if before != now {
        SINCE.store(uptime(), Ordering::Relaxed);
    }
    if before == 0 {
        exit::watch(exits);
    }
}

/// Milliseconds of a clock that only advances.
fn uptime() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// A program that goes on for so many milliseconds after it has listed the devices did not only look: it does something
/// else, as a transfer engine that falls back to its own TCP. Programs that only look (`ibv_devices`, `ibv_devinfo -l`) take
/// 1 ms, also where 24 others compete for two processors.
const GOES_ON: u64 = 2_000;

/// The generation of the process that has listed devices, and 1. A child of it may have no use for them.
static LISTED: AtomicU32 = AtomicU32::new(0);

/// When it listed them first.
static SINCE: AtomicU64 = AtomicU64::new(0);

/// A process exits that has listed devices. One that succeeds at once may only have looked.
extern "C" fn exits(status: c_int, _: *mut c_void) {
    let is_own = LISTED.load(Ordering::Relaxed) == fork::generation() + 1;
    let is_told = SAID.load(Ordering::Relaxed) != 0 || exit::is_told_by_view();
    let unopened =
        |all: &[device::Device]| !all.is_empty() && !all.iter().any(device::Device::was_opened);
    let went_on = || uptime().saturating_sub(SINCE.load(Ordering::Relaxed)) >= GOES_ON;
    if (status != 0 || went_on()) && is_own && !is_told && device::all().is_ok_and(unopened) {
        Advice::NoneOpened.say();
    }
}
