//! What a process does at one moment: it is stopped, or looks for completions, or neither. Reads its page and /proc.

use std::time::Duration;

use state_page::read::QueuePair;

use crate::stat::pages::Seen;

/// A thread that polls without pause polls often within this time.
const MOMENT: Duration = Duration::from_millis(1);
/// Polls in vain for each message: one that takes what has come, and then does something else, polls once.
const OFTEN: u64 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Glance {
    pub(super) stopped: bool,
    /// A thread waits for completions, or polls and finds none.
    pub(super) looking: bool,
    /// Polls in vain so far.
    vain_polls: u64,
}

impl Glance {
    /// `again` reads the page once more.
    pub(super) fn take(
        before: Self,
        seen: &Seen,
        of: &QueuePair,
        again: impl FnOnce() -> Option<(Seen, QueuePair)>,
    ) -> Self {
        let stopped = kal_os::is_stopped(seen.page.process.pid as i32);
        let (waiting, vain_polls) = looks(seen, of);
        let polls = || {
            std::thread::sleep(MOMENT);
            again().is_some_and(|(seen, later)| {
                let (waiting, polls) = looks(&seen, &later);
                let moved = messages(&later).wrapping_sub(messages(of)).min(u64::from(u32::MAX));
                waiting > 0 || polls.wrapping_sub(vain_polls) > OFTEN * (moved + 1)
            })
        };
        let looking = !stopped && (waiting > 0 || vain_polls != before.vain_polls && polls());
        Self { stopped, looking, vain_polls }
    }
}

/// Of the adapter: threads that wait, and polls in vain.
fn looks(seen: &Seen, of: &QueuePair) -> (u64, u64) {
    let mut devices = seen.page.devices.iter();
    let device = devices.find(|(index, _)| *index == of.device);
    device.map_or((0, 0), |(_, of)| (of.waiting, of.vain_polls))
}

fn messages(of: &QueuePair) -> u64 {
    of.messages_sent.wrapping_add(of.messages_received)
}
