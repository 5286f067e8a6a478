//! Finds state pages, checks whether their writers live, and removes those of dead processes.
//!
//! A page is `PID.state` in a directory of its user, `PID.N.state` if a process has several copies of the
//! library. The socket for questions has the same name with `.sock`. The owner holds an exclusive flock(2) on
//! the page as long as it lives; the kernel releases it with the process. So a reader that gets a shared lock
//! has the page of a dead process, and removes it. The start time of the process detects a reused process id.
//!
//! A user can put anything into a directory of his own and replace it at any moment, while another user, who may be root,
//! reads it. So a reader opens the directory, and reaches files through that descriptor only; it opens, reads and removes
//! nothing but files with names of pages; and [`Limits`] bound how much it reads.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::layout::Process;
use crate::read::{LARGEST, Malformed, Page, Unread};

/// Suffix of a page's name.
pub const PAGE: &str = "state";
/// Suffix of its socket's name.
pub const SOCKET: &str = "sock";
const DIRECTORY: &str = "warpline";
/// Names that are read of a directory which everybody can fill.
const MOST_NAMES: usize = 1 << 20;

/// Bounds of what a reader reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Pages, and as many other files beside each.
    pub pages: usize,
    /// Octets in pages.
    pub octets: u64,
}

impl Limits {
    /// A million queue pairs in 10,000 processes.
    pub const ALL: Self = Self { pages: 10_000, octets: LARGEST };
    /// Of one user among others.
    pub const OF_USER: Self = Self { pages: 2500, octets: LARGEST / 4 };

    /// The smaller of each bound.
    pub fn min(self, other: Self) -> Self {
        Self { pages: self.pages.min(other.pages), octets: self.octets.min(other.octets) }
    }

    /// Without what another reader has used of `given`.
    pub fn without(self, given: Self, left: Self) -> Self {
        Self {
            pages: self.pages - (given.pages - left.pages),
            octets: self.octets - (given.octets - left.octets),
        }
    }
}

/// The directory of this user's pages: in `$XDG_RUNTIME_DIR`, `/run/user/UID`, or the directory of temporary
/// files.
pub fn directory(variable: impl Fn(&str) -> Option<std::ffi::OsString>, uid: u32) -> PathBuf {
    let named = variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    match named.or_else(|| usual.is_dir().then_some(usual)) {
        Some(dir) => dir.join(DIRECTORY),
        None => std::env::temp_dir().join(format!("{DIRECTORY}-{uid}")),
    }
}

/// The directories of all users on this machine that this user may read, with their owners.
pub fn directories(own: &Path, uid: u32) -> Vec<(PathBuf, u32)> {
    let mut all = vec![(own.to_owned(), uid)];
    let mut add = |dir: PathBuf, uid: u32| {
        if dir.is_dir() && all.iter().all(|(known, _)| *known != dir) {
            all.push((dir, uid));
        }
    };
    let names =
        |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().take(MOST_NAMES);
    for entry in names(Path::new("/run/user")) {
        if let Some(uid) = entry.file_name().to_str().and_then(number) {
            add(entry.path().join(DIRECTORY), uid);
        }
    }
    for entry in names(&std::env::temp_dir()) {
        let name = entry.file_name();
        let uid = name.to_str().and_then(|name| name.strip_prefix("warpline-"));
        // Of a directory that belongs to somebody else nothing is read.
        if let Some(uid) = uid.and_then(number) {
            add(entry.path(), uid);
        }
    }
    all
}

/// A number as [`directory`] and the owners of pages write it.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}

/// Why a directory is not used.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unusable {
    /// The system's error.
    Os(io::Error),
    /// It is a symbolic link, or no directory.
    NoDirectory,
    /// It belongs to another user.
    Owner(u32),
    /// Other users may read or write it.
    Mode(u32),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Os(error) => write!(f, "{error}"),
            Self::NoDirectory => write!(f, "it is a symbolic link, or no directory"),
            Self::Owner(uid) => write!(f, "it belongs to user {uid}"),
            Self::Mode(mode) => write!(f, "its mode is {mode:o}, and must be 700"),
        }
    }
}

impl std::error::Error for Unusable {}

/// Opens a directory of pages, if only `uid` can write to it.
///
/// # Errors
/// It does not exist, or others can write to it.
pub fn open_directory(path: &Path, uid: u32) -> Result<File, Unusable> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let directory =
        opened.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::LOOP | Errno::NOTDIR) => Unusable::NoDirectory,
            _ => Unusable::Os(error),
        })?;
    let about = directory.metadata().map_err(Unusable::Os)?;
    if about.uid() != uid {
        return Err(Unusable::Owner(about.uid()));
    }
    if about.mode() & 0o077 != 0 {
        return Err(Unusable::Mode(about.mode() & 0o7777));
    }
    Ok(directory)
}

/// A page that was found.
#[derive(Debug)]
pub struct Found {
    /// The file.
    pub path: PathBuf,
    /// Its state.
    pub outcome: Outcome,
}

/// State of a page that was found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Its owner is alive.
    Alive(Box<Page>),
    /// Its owner is dead, and it was removed.
    Removed,
    /// Its owner is dead, and it cannot be removed.
    Stale(io::Error),
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is malformed, but a process holds its lock.
    Malformed(Malformed),
    /// It is no regular file of the directory's owner, or the page of a process that is another user's.
    Foreign,
    /// It was not read: it is beyond the reader's limits, which have room for so many octets.
    Skipped {
        /// Octets of the page.
        octets: u64,
        /// Octets that the limits have left.
        left: u64,
    },
    /// It is a directory, and has more pages than the limits allow: the others were not read.
    More,
}

/// Reads every page in a directory of `uid`, or those of the process `pid`, in the order of the names; takes what it reads
/// off the limits.
///
/// # Errors
/// The directory cannot be used.
pub fn pages(
    path: &Path,
    uid: u32,
    pid: Option<u32>,
    limits: &mut Limits,
) -> Result<Vec<Found>, Unusable> {
    let opened = open_directory(path, uid)?;
    let directory = Directory { path, opened: &opened, uid };
    let (names, more) = directory.names(pid, limits.pages).map_err(Unusable::Os)?;
    limits.pages -= names.len();
    let mut all: Vec<_> =
        names.into_iter().filter_map(|name| directory.found(name, limits)).collect();
    if more {
        all.push(Found { path: path.to_owned(), outcome: Outcome::More });
    }
    Ok(all)
}

/// The process id in the name of a page: `PID.state` or `PID.N.state`.
fn pid_of(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(PAGE)?.strip_suffix('.')?;
    let (pid, copy) = stem.split_once('.').map_or((stem, None), |(pid, copy)| (pid, Some(copy)));
    copy.is_none_or(|copy| number(copy).is_some()).then(|| number(pid)).flatten()
}

/// An open directory of pages.
struct Directory<'a> {
    /// For messages.
    path: &'a Path,
    opened: &'a File,
    uid: u32,
}

impl Directory<'_> {
    /// At most `most` names of pages, and whether there are more.
    fn names(&self, pid: Option<u32>, most: usize) -> io::Result<(Vec<String>, bool)> {
        let (mut names, mut others) = (Vec::new(), 0);
        for entry in Dir::read_from(self.opened)? {
            let entry = entry?;
            let name = entry
                .file_name()
                .to_str()
                .ok()
                .filter(|name| pid_of(name).is_some_and(|of| pid.is_none_or(|pid| pid == of)));
            match name {
                Some(_) if names.len() == most => return Ok((names, true)),
                Some(name) => names.push(name.to_owned()),
                // `.`, `..`, sockets.
                None if others > 2 + 2 * Limits::ALL.pages => return Ok((names, true)),
                None => others += 1,
            }
        }
        names.sort();
        Ok((names, false))
    }

    /// `None`: it was removed meanwhile.
    fn found(&self, name: String, limits: &mut Limits) -> Option<Found> {
        // Follow no symbolic link, and block neither on a pipe nor on a lease.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let outcome = match openat(self.opened, &*name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return None,
            // ELOOP: a symbolic link. ENXIO: a socket.
            Err(Errno::LOOP | Errno::NXIO) => Outcome::Foreign,
            Err(error) => Outcome::Unreadable(error.into()),
            Ok(file) => {
                let file = File::from(file);
                match file.metadata() {
                    Err(error) => Outcome::Unreadable(error),
                    Ok(about) if !about.is_file() || about.uid() != self.uid => Outcome::Foreign,
                    Ok(_) => self.read(&name, &file, limits)?,
                }
            }
        };
        Some(Found { path: self.path.join(name), outcome })
    }

    fn read(&self, name: &str, file: &File, limits: &mut Limits) -> Option<Outcome> {
        if is_free(file) {
            return self.remove(name, file);
        }
        Some(match Page::read(file, limits.octets) {
            // A child that was forked without our handler keeps the lock after its parent's death.
            Ok((page, _)) if is_gone(&page.process) => return self.remove(name, file),
            Ok((page, _)) if !self.may_publish(name, &page.process) => Outcome::Foreign,
            Ok((mut page, octets)) => {
                limits.octets -= octets;
                // As this namespace of users knows it.
                page.process.uid = self.uid;
                Outcome::Alive(Box::new(page))
            }
            Err(Unread::Malformed(malformed)) => Outcome::Malformed(malformed),
            Err(Unread::TooLarge { octets }) => Outcome::Skipped { octets, left: limits.octets },
            Err(Unread::Os(error)) => Outcome::Unreadable(error),
        })
    }

    /// Whether the process in a page is that of its name, and may be one of the directory's owner. Only root's may belong to
    /// another user by now.
    fn may_publish(&self, name: &str, process: &Process) -> bool {
        let is_own = || !is_here(process) || user_of(process.pid).is_none_or(|uid| uid == self.uid);
        pid_of(name) == Some(process.pid) && (self.uid == 0 || is_own())
    }

    fn remove(&self, name: &str, file: &File) -> Option<Outcome> {
        // The name may belong to another file now.
        let now = statat(self.opened, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if !file.metadata().is_ok_and(|of| (of.dev(), of.ino()) == (now.st_dev, now.st_ino)) {
            return None;
        }
        // Before the page: a new process creates both again.
        let socket = Path::new(name).with_extension(SOCKET);
        let _ = unlinkat(self.opened, &socket, AtFlags::empty());
        match unlinkat(self.opened, name, AtFlags::empty()) {
            Ok(()) => Some(Outcome::Removed),
            Err(Errno::NOENT) => None,
            Err(error) => Some(Outcome::Stale(error.into())),
        }
    }
}

/// Whether no process holds the page's lock.
fn is_free(file: &File) -> bool {
    let free = flock(file.as_fd(), FlockOperation::NonBlockingLockShared).is_ok();
    if free {
        let _ = flock(file.as_fd(), FlockOperation::Unlock);
    }
    free
}

/// Whether the process of a page is in our namespace of process ids.
fn is_here(process: &Process) -> bool {
    process.boot_id == boot_id() && process.pid_namespace == pid_namespace()
}

/// Whether the process of a page, in our namespace of process ids, has ended, or its id was reused.
fn is_gone(process: &Process) -> bool {
    is_here(process) && start_of(process.pid) != Some(process.start)
}

/// The effective user of a process (proc(5), status: `Uid`); `None`: there is none, or it cannot be seen.
fn user_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// When a process started, in clock ticks since boot; `None`: there is none.
pub fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain any octets.
    stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()
}

/// Identifies this boot of the machine.
pub fn boot_id() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half =
        |part: Option<&str>| part.and_then(|part| u64::from_str_radix(part, 16).ok()).unwrap_or(0);
    [half(digits.get(..16)), half(digits.get(16..32))]
}

/// The inode of this process's namespace of process ids.
pub fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}
