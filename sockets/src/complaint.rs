//! Tells on standard error, once, that lines of the record are lost. Never waits, and writes only where standard error was
//! when the library was loaded: a program may make its descriptor 2 anything else.
//!
//! Owner of the state: static memory.

use std::ffi::CStr;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::stdio::stderr;

use crate::kernel;
use crate::line::Line;

/// The device and number of standard error's file; 0 and 0: there is none.
static FILE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static DONE: AtomicBool = AtomicBool::new(false);

fn identity() -> Option<[u64; 2]> {
    let file = rustix::fs::fstat(stderr()).ok()?;
    Some([file.st_dev, file.st_ino])
}

/// Learns what standard error is.
pub(crate) fn begin() {
    // A client would take it for the program's reply.
    let own = identity().filter(|_| !kernel::is_tcp(libc::STDERR_FILENO));
    FILE.iter().zip(own.unwrap_or_default()).for_each(|(word, value)| word.store(value, Relaxed));
}

/// A line could not be written.
pub(crate) fn once(path: &CStr, errno: Errno) {
    let own = FILE.each_ref().map(|word| word.load(Relaxed));
    if DONE.load(Relaxed) || own == [0, 0] || identity() != Some(own) || DONE.swap(true, Relaxed) {
        return;
    }
    // One that nobody reads would block, or send SIGPIPE.
    if kernel::ready(libc::STDERR_FILENO, PollFlags::OUT) != PollFlags::OUT {
        return;
    }
    let mut line = Line::new();
    let _ = line.write_str("warpline: the record ");
    path.to_bytes().utf8_chunks().for_each(|part| {
        let _ = line.write_str(part.valid());
    });
    let pid = std::process::id();
    let _ = write!(line, " lacks lines about connections of process {pid}: {}", Reason(errno));
    let _ = rustix::io::write(stderr(), line.octets());
}

/// What an error means, without memory: a signal handler may write a line.
struct Reason(Errno);

impl Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self.0 {
            Errno::NOSPC | Errno::DQUOT => "no space left",
            Errno::ACCESS | Errno::PERM | Errno::ROFS => "the process may not write to it",
            Errno::NOENT | Errno::NOTDIR => "there is no such file",
            Errno::ISDIR => "it is a directory",
            Errno::MFILE | Errno::NFILE => "no descriptor is left",
            other => return write!(f, "errno {}", other.raw_os_error()),
        };
        f.write_str(text)
    }
}
