//! Reads the state pages of this machine at one moment. Removes files of dead processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use state_page::layout::printable;
use state_page::place::{self, Limits, Outcome, Unusable};
use state_page::read::Page;

use super::program::arguments;
use crate::error::CliResult;

/// A process and its page.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Path of its socket.
    pub(crate) socket: Arc<Path>,
    pub(crate) page: Page,
    /// Arguments of the program.
    pub(crate) arguments: Vec<String>,
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

/// A path for people.
fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
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
    /// Reads the pages of all processes, or of one; of this user, or of all. Those of other users together have limits as
    /// large as this user's own.
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
        let mut others = Limits::ALL;
        let mut directories = directories.into_iter();
        if let Some((own, uid)) = directories.next() {
            snapshot.read(&own, uid, pid, &mut { Limits::ALL });
        }
        for (directory, uid) in directories {
            let given = others.min(Limits::OF_USER);
            let mut left = given;
            snapshot.read(&directory, uid, pid, &mut left);
            others = others.without(given, left);
        }
        snapshot.processes.retain(|seen| pid.is_none_or(|pid| seen.page.process.pid == pid));
        snapshot.processes.sort_by_key(|seen| seen.page.process.pid);
        Ok(snapshot)
    }

    fn read(&mut self, directory: &Path, of: u32, pid: Option<u32>, limits: &mut Limits) {
        let shown = shown(directory);
        match place::pages(directory, of, pid, limits) {
            Ok(found) => found.into_iter().for_each(|found| self.add(found)),
            // No process has published yet.
            Err(Unusable::Os(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(why) => self.troubles.push((shown.clone(), why.to_string())),
        }
        self.directories.push(shown);
    }

    fn add(&mut self, found: place::Found) {
        let path = found.path;
        let trouble = match found.outcome {
            Outcome::Alive(page) => {
                let socket = path.with_extension(place::SOCKET).into();
                let arguments = arguments(page.process.pid);
                self.processes.push(Seen { socket, page: *page, arguments });
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
            Outcome::Foreign => {
                "it is no regular file of the directory's owner, or names another's process"
                    .to_owned()
            }
            Outcome::Skipped { octets, left } => {
                format!("skipped: it has {octets} octets, and the limit for its user leaves {left}")
            }
            Outcome::More => "it has too many files: only some pages were read".to_owned(),
            _ => "it cannot be used".to_owned(),
        };
        self.troubles.push((shown(&path), trouble));
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
