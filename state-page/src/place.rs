//! Finds state pages, checks whether their writers live, and removes those of dead processes.
//!
//! A page is `PID.state` in a directory of its user, `PID.N.state` if a process has several copies of the
//! library. The socket for questions has the same name with `.sock`. The owner holds an exclusive flock(2) on
//! the page as long as it lives; the kernel releases it with the process. So a reader that gets a shared lock
//! has the page of a dead process, and removes it. The start time of the process detects a reused process id.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::layout::Process;
use crate::read::{Malformed, Octets, Page};

/// Suffix of a page's name.
pub const PAGE: &str = "state";
/// Suffix of its socket's name.
pub const SOCKET: &str = "sock";
const DIRECTORY: &str = "warpline";

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
    let names = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().take(10_000);
    for entry in names(Path::new("/run/user")) {
        if let Some(uid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            add(entry.path().join(DIRECTORY), uid);
        }
    }
    for entry in names(&std::env::temp_dir()) {
        let name = entry.file_name();
        let uid = name.to_str().and_then(|name| name.strip_prefix("warpline-"));
        if let Some(uid) = uid.and_then(|uid| uid.parse().ok()) {
            add(entry.path(), uid);
        }
    }
    all
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
    /// It is no regular file of the directory's owner.
    Foreign,
}

/// Reads every page in a directory of `uid`, in the order of the names.
///
/// # Errors
/// The directory cannot be used.
pub fn pages(directory: &Path, uid: u32) -> Result<Vec<Found>, Unusable> {
    open_directory(directory, uid)?;
    let mut names: Vec<PathBuf> = std::fs::read_dir(directory)
        .map_err(Unusable::Os)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == PAGE))
        .collect();
    names.sort();
    Ok(names.into_iter().filter_map(|path| open(path, uid)).collect())
}

/// `None`: it was removed meanwhile.
fn open(path: PathBuf, uid: u32) -> Option<Found> {
    // Follow no symbolic link, and do not block on a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&path);
    let outcome = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Outcome::Foreign,
        Err(error) => Outcome::Unreadable(error),
        Ok(file) => match file.metadata() {
            Err(error) => Outcome::Unreadable(error),
            Ok(about) if !about.is_file() || about.uid() != uid => Outcome::Foreign,
            Ok(_) => read(&path, &file)?,
        },
    };
    Some(Found { path, outcome })
}

fn read(path: &Path, file: &File) -> Option<Outcome> {
    if is_free(file) {
        return remove(path, file);
    }
    let octets = match Octets::of(file) {
        Ok(octets) => octets,
        Err(error) => return Some(Outcome::Unreadable(error)),
    };
    Some(match octets.page() {
        // A child that was forked without our handler keeps the lock after its parent's death.
        Ok(page) if is_gone(&page.process) => return remove(path, file),
        Ok(page) => Outcome::Alive(Box::new(page)),
        Err(malformed) => Outcome::Malformed(malformed),
    })
}

/// Whether no process holds the page's lock.
fn is_free(file: &File) -> bool {
    let free = flock(file.as_fd(), FlockOperation::NonBlockingLockShared).is_ok();
    if free {
        let _ = flock(file.as_fd(), FlockOperation::Unlock);
    }
    free
}

/// Whether the process of a page, in our namespace of process ids, has ended, or its id was reused.
fn is_gone(process: &Process) -> bool {
    process.boot_id == boot_id()
        && process.pid_namespace == pid_namespace()
        && start_of(process.pid) != Some(process.start)
}

fn remove(path: &Path, file: &File) -> Option<Outcome> {
    // The name may belong to another file now.
    let same = |now: std::fs::Metadata| {
        file.metadata().is_ok_and(|of| of.ino() == now.ino() && of.dev() == now.dev())
    };
    if !std::fs::symlink_metadata(path).is_ok_and(same) {
        return None;
    }
    // Before the page: a new process creates both again.
    let _ = std::fs::remove_file(path.with_extension(SOCKET));
    match std::fs::remove_file(path) {
        Ok(()) => Some(Outcome::Removed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Outcome::Stale(error)),
    }
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
