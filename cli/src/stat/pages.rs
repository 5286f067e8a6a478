//! Reads the state pages of this machine at one moment. Removes files of dead processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use state_page::place::{self, Outcome, Unusable};
use state_page::read::Page;

use crate::error::CliResult;

/// A process and its page.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Path of its socket.
    pub(crate) socket: Arc<Path>,
    pub(crate) page: Page,
}

/// All pages at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) at: Instant,
    pub(crate) processes: Vec<Seen>,
    /// Files or directories that cannot be used, and why.
    pub(crate) troubles: Vec<(String, String)>,
    /// Number of files of dead processes that were removed.
    pub(crate) removed: u32,
    directories: Vec<String>,
}

/// The directory of this user's pages.
pub(crate) fn directory() -> std::path::PathBuf {
    place::directory(|name| std::env::var_os(name), uid())
}

pub(crate) fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Name of an interface by its number.
pub(crate) fn face(number: u32) -> &'static str {
    match number {
        1 => "IT-API",
        2 => "verbs",
        _ => "?",
    }
}

impl Snapshot {
    /// Reads the pages of all processes, or of one; of this user, or of all.
    pub(crate) fn take(pid: Option<u32>, all: bool) -> CliResult<Self> {
        let (own, uid) = (directory(), uid());
        // Root may name a process of another user.
        let everywhere = all || (uid == 0 && pid.is_some());
        let directories = if everywhere { place::directories(&own, uid) } else { vec![(own, uid)] };
        let mut snapshot = Self {
            at: Instant::now(),
            processes: Vec::new(),
            troubles: Vec::new(),
            removed: 0,
            directories: Vec::new(),
        };
        for (directory, uid) in directories {
            snapshot.directories.push(directory.display().to_string());
            match place::pages(&directory, uid) {
                Ok(found) => found.into_iter().for_each(|found| snapshot.add(found)),
                // No process has published yet.
                Err(Unusable::Os(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(why) => {
                    snapshot.troubles.push((directory.display().to_string(), why.to_string()));
                }
            }
        }
        snapshot.processes.retain(|seen| pid.is_none_or(|pid| seen.page.process.pid == pid));
        snapshot.processes.sort_by_key(|seen| seen.page.process.pid);
        Ok(snapshot)
    }

    fn add(&mut self, found: place::Found) {
        let path = found.path;
        let trouble = match found.outcome {
            Outcome::Alive(page) => {
                let socket = path.with_extension(place::SOCKET).into();
                self.processes.push(Seen { socket, page: *page });
                return;
            }
            Outcome::Removed => {
                self.removed += 1;
                return;
            }
            Outcome::Stale(error) => {
                format!("its process is dead, and it cannot be removed: {error}")
            }
            Outcome::Unreadable(error) => format!("it cannot be read: {error}"),
            Outcome::Malformed(malformed) => malformed.to_string(),
            Outcome::Foreign => "it is no regular file of the directory's owner".to_owned(),
            _ => "it cannot be used".to_owned(),
        };
        self.troubles.push((path.display().to_string(), trouble));
    }

    /// Of these pages.
    #[cfg(test)]
    pub(crate) fn of(processes: Vec<Seen>) -> Self {
        let (troubles, directories) = (Vec::new(), Vec::new());
        Self { at: Instant::now(), processes, troubles, removed: 0, directories }
    }

    /// The directories that were read.
    pub(crate) fn places(&self) -> String {
        self.directories.join(", ")
    }

    /// The first entry of `troubles`, as a sentence.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.troubles.first().map(|(file, what)| format!("{file}: {what}"))
    }
}
