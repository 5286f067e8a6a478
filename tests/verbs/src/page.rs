//! What a running program publishes: its state page, as `warpline stat` reads it. No state.

use state_page::place::{self, Outcome};
use state_page::read::QueuePair;

/// The queue pairs for connections of a process; `None`: it has no page.
pub fn queue_pairs(process: u32) -> Option<Vec<QueuePair>> {
    let user = rustix::process::geteuid().as_raw();
    let directory = place::directory(|name| std::env::var_os(name), user);
    let pages = place::pages(&directory, user).ok()?;
    pages.into_iter().find_map(|found| match found.outcome {
        Outcome::Alive(page) if page.process.pid == process => Some(page.queue_pairs),
        _ => None,
    })
}
