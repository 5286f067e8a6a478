//! The record: one line of a file for each connection on which this process has moved octets, when it closes the connection's
//! last descriptor, ends, or becomes another program.
//!
//! Owner of the state: static memory, written when the library is loaded. The file is opened for each line, so that the
//! program finds the same numbers free as ever, and may close all it does not know. Lines of several processes do not mix
//! (`O_APPEND`). A line that cannot be written is lost: no descriptor or space left, or a process that gave up
//! the rights to the file. Of the first one standard error tells.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Display, Write};
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::connection::Connection;
use crate::line::Line;
use crate::ring::link::Link;
use crate::ring::meet;
use crate::tuning::{MIN_CALLS, MIN_OCTETS};
use crate::way::Way;
use crate::{complaint, kernel};

/// Absolute path of the file, a string that is never freed; null: there is no record.
static FILE: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
const VARIABLE: &CStr = c"WARPLINE_SOCKETS_LOG";

/// Finds the file. False: the variable is not set.
pub(crate) fn begin() -> bool {
    // SAFETY: a string. Nothing changes the environment before the program starts.
    let path = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if path.is_null() {
        return false;
    }
    // The program may change its environment later, or overwrite it (setproctitle).
    // SAFETY: a string of the environment.
    let kept = unsafe { libc::strdup(path) };
    FILE.store(kept, Ordering::Release);
    complaint::begin();
    !kept.is_null()
}

/// Writes a line about a connection, unless nothing was moved since the last.
pub(crate) fn write(fd: c_int, connection: &Connection) {
    let ([out, sends], [into, receives]) = (connection.fresh(Way::Out), connection.fresh(Way::In));
    if sends + receives == 0 || !connection.is_known() {
        return;
    }
    let [this, peer] = connection.ends();
    let mut line = begin_line();
    line.field("local", this);
    line.field("peer", peer);
    line.field("sent", out);
    line.field("sends", sends);
    line.field("received", into);
    line.field("receives", receives);
    let by_tcp = [Way::Out, Way::In]
        .map(|way| connection.octets(way).wrapping_sub(connection.link.by_ring(way)));
    let same = kernel::cookie(fd) == Some(connection.cookie());
    match kernel::others(fd, connection.is_accepted(), by_tcp).filter(|_| same) {
        Some([written, read]) => line.field("other", Pair(written, read)),
        None => line.field("other", "?"),
    }
    let link = &connection.link;
    let ring = [Way::Out, Way::In].map(|way| link.by_ring(way));
    line.field("carried", if ring == [0, 0] { "tcp" } else { "ring" });
    line.field("ring", Pair(ring[0], ring[1]));
    if let Some(failure) = link.failure() {
        line.field("reset", failure);
    }
    line.list("obstacles", obstacles(connection, [this, peer]));
    line.list("calls", connection.calls());
    append(&mut line);
}

/// Writes how many connections were not followed, if any.
pub(crate) fn write_missed(number: u64) {
    if number > 0 {
        let mut line = begin_line();
        line.field("not-followed", number);
        append(&mut line);
    }
}

/// What two numbers look like.
struct Pair(u64, u64);

impl Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.0, self.1)
    }
}

/// Why memory that the two ends share could not carry the connection's octets.
fn obstacles(connection: &Connection, ends: [SocketAddr; 2]) -> impl Iterator<Item = &'static str> {
    let octets = connection.octets(Way::Out) + connection.octets(Way::In);
    let calls = connection.fresh(Way::Out)[1] + connection.fresh(Way::In)[1];
    let short = octets < MIN_OCTETS && calls < MIN_CALLS;
    let [this, peer] = ends.map(|end| end.ip());
    let here = this == peer || peer.is_loopback() || kernel::is_here(peer);
    let remote = (!here).then_some("peer-remote");
    // Nothing else keeps it from shared memory.
    let plain = || here && !short && !connection.is_obstructed();
    let reason = never_shared(connection).filter(|reason| *reason != "peer-plain" || plain());
    let local = remote.into_iter().chain(short.then_some("too-short"));
    local.chain(connection.obstacles()).chain(reason)
}

/// Why it has never had shared memory.
fn never_shared(connection: &Connection) -> Option<&'static str> {
    let link = &connection.link;
    let never = link.no_delay().is_none() && meet::is_enabled();
    let reason = if link.is_forked() {
        "forked"
    } else if link.watch.is_odd() {
        "epoll"
    } else if Link::is_full() {
        "limit"
    } else {
        "peer-plain"
    };
    never.then_some(reason)
}

fn begin_line() -> Line {
    let mut line = Line::new();
    line.field("pid", std::process::id());
    line.field("program", Program);
    line
}

/// The program's name, without what would divide the line.
struct Program;

impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the C library's variable, which a program may set, too, to a string.
        let name = unsafe { program_invocation_short_name };
        if name.is_null() {
            return f.write_str("?");
        }
        // SAFETY: a string that lives as long as the process.
        let name = unsafe { CStr::from_ptr(name) };
        let plain = |octet: &u8| if octet.is_ascii_graphic() { char::from(*octet) } else { '?' };
        name.to_bytes().iter().take(64).map(plain).try_for_each(|one| f.write_char(one))
    }
}

unsafe extern "C" {
    /// The program's name without its path (program_invocation_name(3)).
    static program_invocation_short_name: *const c_char;
}

fn append(line: &mut Line) {
    let path = FILE.load(Ordering::Acquire);
    if path.is_null() {
        return;
    }
    // SAFETY: a string that is never freed.
    let path = unsafe { CStr::from_ptr(path) };
    let how = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    // One call writes all, or there is no space; either way nobody waits for it.
    let written = open(path, how, Mode::empty()).and_then(|file| {
        let written = rustix::io::write(&file, line.octets());
        kernel::close(file);
        written
    });
    match written {
        Ok(n) if n < line.octets().len() => complaint::once(path, Errno::NOSPC),
        Ok(_) => {}
        Err(errno) => complaint::once(path, errno),
    }
}
