//! Serving the sockets until a descriptor is readable: [`Engine::lead`].
//!
//! For a thread that blocks until one of its armed CQs has a completion, for example on a completion
//! channel. The caller owns the descriptor and lends it for the call; nothing of it is kept. If another
//! thread is the leader, this one sleeps on the descriptor alone, and whichever thread serves the
//! sockets notifies it. A peer that dies is detected as by any leader.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use vp_api::VpStatus;

use super::{By, Engine};
use crate::sync::Ordering;

/// The calling thread is the leader until this is dropped; then a follower or the engine's thread takes
/// over.
struct Lead<'a>(&'a Engine);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let left = self.0.leadership.end_lead();
        // The thread mostly comes back soon. Without this delay each message would wake the engine's
        // thread.
        self.0.hand_back(left, self.0.absence.load(Ordering::Relaxed));
    }
}

impl Engine {
    /// Serves the sockets until `until` is readable, for at most `timeout`; returns true if it is
    /// readable. [`VpStatus::Interrupted`]: a signal handler ran in this thread.
    pub(crate) fn lead(
        &self,
        until: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<bool, VpStatus> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.count_sleep();
        let lead = self.leadership.try_lead().then(|| Lead(self));
        let mut fds = [PollFd::new(&until, PollFlags::IN), PollFd::new(&self.epoll, PollFlags::IN)];
        let watched = if lead.is_some() { &mut fds[..] } else { &mut fds[..1] };
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match poll(watched, left.map(kal_os::timespec).as_ref()) {
                Ok(0) => return Ok(false),
                // Also true if the descriptor was closed: the caller finds that out when it reads.
                Ok(_) if !watched[0].revents().is_empty() => return Ok(true),
                Ok(_) => {
                    self.serve(Some(Duration::ZERO), &|| {}, By::Leader, |_| {});
                }
                Err(Errno::INTR) => return Err(VpStatus::Interrupted),
                Err(_) => return Err(VpStatus::Os),
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests {
    use std::io::{PipeReader, PipeWriter, Write, pipe};
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use super::super::{Member, Ready, Timer, Watched};
    use super::*;
    use crate::sync::{Mutex, lock};
    use crate::testing::services;

    impl Watched for PipeReader {}

    /// Writes to the pipe when it is called, as the handler of a CQ does.
    struct Notifies(Mutex<PipeWriter>);

    impl Member for Notifies {
        fn on_ready(&self, _: Ready) {
            lock(&self.0).write_all(b"n").unwrap();
        }

        fn on_timer(&self, _: u32, _: Timer) {}
    }

    /// An engine that only the test's thread serves.
    fn engine() -> Arc<Engine> {
        let engine = Engine::start(services(0), "leads").expect("an engine");
        engine.stop();
        engine
    }

    fn is_readable(fd: impl AsFd, timeout: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut fds, timeout.map(kal_os::timespec).as_ref()).unwrap() == 1
    }

    #[test]
    fn the_leader_serves_the_sockets_until_its_descriptor_is_readable() {
        let (engine, (until, notify)) = (engine(), pipe().unwrap());
        let (socket, mut far) = pipe().unwrap();
        let member = Arc::new(Notifies(Mutex::new(notify)));
        engine.attach(1, member, &socket).unwrap();
        assert_eq!(engine.lead(until.as_fd(), Some(Duration::ZERO)), Ok(false));
        far.write_all(b"x").unwrap();
        assert_eq!(engine.lead(until.as_fd(), None), Ok(true));
        assert!(!engine.leadership.has_leader());
    }

    #[test]
    fn beside_a_leader_a_thread_sleeps_on_its_descriptor_alone() {
        let (engine, (until, notify)) = (engine(), pipe().unwrap());
        let (socket, mut far) = pipe().unwrap();
        let member = Arc::new(Notifies(Mutex::new(notify.try_clone().unwrap())));
        engine.attach(1, member, &socket).unwrap();
        assert!(engine.leadership.try_lead());
        far.write_all(b"x").unwrap();
        assert_eq!(engine.lead(until.as_fd(), Some(Duration::from_millis(5))), Ok(false));
        let mut notify = notify;
        notify.write_all(b"n").unwrap();
        assert_eq!(engine.lead(until.as_fd(), None), Ok(true));
        assert!(engine.leadership.has_leader(), "the other still leads");
    }

    #[test]
    fn the_engines_thread_is_called_when_the_leader_leaves() {
        let (engine, (until, _notify)) = (engine(), pipe().unwrap());
        engine.progress.decide(|| true);
        engine.alarm.acknowledge();
        assert!(!is_readable(&engine.alarm, Some(Duration::ZERO)));
        assert_eq!(engine.lead(until.as_fd(), Some(Duration::ZERO)), Ok(false));
        assert!(is_readable(&engine.alarm, None));
    }
}
