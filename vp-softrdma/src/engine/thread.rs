//! The engine's own thread: guards the sockets while nobody else does, and runs the timers.
//!
//! One per engine, from its start to its end. After an application thread was inside it naps, so as not
//! to fight for the sockets: briefly at first, since who polls seldom leaves peers waiting for so long.
//! Dead peers show as events and as timers, like at any other thread.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use vp_api::LogLevel;

use super::duty::Duty;
use super::{Engine, Member};
use crate::sync::Ordering;

/// How long the engine stays away after an application thread was inside: at first, and at most,
/// while applications keep coming.
const FIRST_NAP_NS: u64 = 50_000;
pub(super) const NAP_NS: u64 = 1_000_000;

/// How long the next nap is, behind one of `nap` nanoseconds and this duty: it becomes about half as long
/// as the time between two polls.
fn next_nap(nap: u64, duty: Duty) -> u64 {
    match duty {
        Duty::Nap => NAP_NS.min(2 * nap),
        Duty::Watch => FIRST_NAP_NS.max(nap / 2),
        Duty::Rest => FIRST_NAP_NS,
    }
}

impl Engine {
    /// The engine's thread.
    pub(super) fn run(&self) {
        let (mut nap, mut apart) = (FIRST_NAP_NS, Vec::new());
        while !self.stopping.load(Ordering::Acquire) {
            self.run_timers();
            let duty = self.rota.decide(|| self.station.has_leader());
            self.end_nap(duty == Duty::Nap, &mut apart);
            if duty != Duty::Rest {
                self.poll();
            }
            self.sleep(duty, nap);
            nap = next_nap(nap, duty);
        }
    }

    /// Has sockets put back that are apart: those that nobody polled since the last call, or all if no
    /// nap follows. `apart` is empty before and after.
    pub(crate) fn end_nap(&self, napping: bool, apart: &mut Vec<u32>) {
        let ended = self.nap.fetch_add(1, Ordering::Relaxed);
        self.apart.take(napping, apart);
        for id in apart.drain(..) {
            let stays = |member: Arc<dyn Member>| member.stays_apart(napping.then_some(ended));
            if self.member(id).is_some_and(stays) {
                self.apart.add(id);
            }
        }
    }

    /// Calls the QPs whose deadlines have passed.
    pub(crate) fn run_timers(&self) {
        while let Some((id, stream, timer)) = self.timers.take_due(self.now()) {
            if let Some(member) = self.member(id) {
                member.on_timer(stream, timer);
            }
        }
    }

    fn sleep(&self, duty: Duty, nap_ns: u64) {
        let now = self.now();
        let nap = if duty == Duty::Nap { now + nap_ns } else { u64::MAX };
        self.alarm.set(self.next_timer().map_or(nap, |at| at.min(nap)), now);
        let mut fds =
            [PollFd::new(&self.alarm, PollFlags::IN), PollFd::new(&self.epoll, PollFlags::IN)];
        let watched = if duty == Duty::Watch { &mut fds[..] } else { &mut fds[..1] };
        match poll(watched, None) {
            Ok(_) if fds[0].revents().is_empty() => {}
            Ok(_) => self.alarm.acknowledge(),
            Err(Errno::INTR) => {}
            Err(errno) => {
                let message = format!("the progress engine cannot sleep: poll: {errno}");
                self.services.log(LogLevel::Error, "softrdma::engine", &message);
                std::thread::sleep(Duration::from_nanos(NAP_NS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_while_applications_poll_and_shrink_when_they_stay_away() {
        let after =
            |nap, duties: &[Duty]| duties.iter().fold(nap, |nap, &duty| next_nap(nap, duty));
        assert_eq!(after(FIRST_NAP_NS, &[Duty::Nap; 3]), 8 * FIRST_NAP_NS);
        assert_eq!(after(FIRST_NAP_NS, &[Duty::Nap; 9]), NAP_NS);
        assert_eq!(after(NAP_NS, &[Duty::Watch; 2]), NAP_NS / 4);
        assert_eq!(after(NAP_NS, &[Duty::Watch; 9]), FIRST_NAP_NS);
        assert_eq!(after(NAP_NS, &[Duty::Rest]), FIRST_NAP_NS);
    }
}
