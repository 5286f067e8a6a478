//! Which verbs of a provider the threads of a process are in, written so that another process can read it when that one has
//! ended: into a file without a name, a line of fixed length for each thread.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use ual::vp_hooks::watch::Watcher;

/// Octets of a line.
const LINE: usize = 32;
/// Most lines that are read.
const MOST: usize = 4096;

/// The file.
pub(super) struct Journal(File);

impl Journal {
    /// A new one, which a child inherits.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(memfd_create("verbs", MemfdFlags::empty())?.into()))
    }

    /// Its path for that child.
    pub(super) fn path(&self) -> String {
        format!("/dev/fd/{}", self.0.as_raw_fd())
    }

    /// In the child.
    pub(super) fn open(path: &str) -> io::Result<Self> {
        File::options().read(true).write(true).open(path).map(Self)
    }

    fn write(&self, verb: &str) {
        thread_local!(static THREAD: u64 = {
            static THREADS: AtomicU64 = AtomicU64::new(0);
            THREADS.fetch_add(1, Ordering::Relaxed)
        });
        let mut line = [0; LINE];
        let len = verb.len().min(LINE);
        line[..len].copy_from_slice(&verb.as_bytes()[..len]);
        // Ignored: then the report only lacks the verb. A thread that ends has no number.
        let _ = THREAD.try_with(|thread| self.0.write_at(&line, thread * LINE as u64));
    }

    /// The verbs that were begun and have not returned, those of the youngest threads first.
    pub(super) fn verbs(&self) -> Vec<String> {
        let mut octets = vec![0; LINE * MOST];
        let read = self.0.read_at(&mut octets, 0).unwrap_or(0);
        let verbs = octets[..read].chunks(LINE).map(|line| {
            let name = line.split(|octet| *octet == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        });
        let mut verbs: Vec<_> = verbs.filter(|verb| !verb.is_empty()).collect();
        verbs.reverse();
        verbs.dedup();
        verbs
    }
}

/// These verbs as the end of a sentence; `None` if there is none.
pub(super) fn under_way(verbs: &[String]) -> Option<String> {
    (!verbs.is_empty()).then(|| format!("; under way in the provider: {}", verbs.join(", ")))
}

impl Watcher for Journal {
    fn begins(&self, verb: &'static str) {
        self.write(verb);
    }

    fn ends(&self) {
        self.write("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_that_have_not_returned_are_read() {
        let journal = Journal::new().unwrap();
        let child = Journal::open(&journal.path()).unwrap();
        assert!(journal.verbs().is_empty());
        child.begins("create_qp");
        assert_eq!(journal.verbs(), ["create_qp"]);
        std::thread::scope(|scope| {
            scope.spawn(|| child.begins("poll"));
        });
        assert_eq!(journal.verbs(), ["poll", "create_qp"]);
        child.ends();
        assert_eq!(journal.verbs(), ["poll"]);
    }
}
