//! Sends a request to a process's socket, possibly with a descriptor. A process that hangs or is stopped does not
//! respond: the wait for it ends after [`PATIENCE`], also if its socket is full of earlier requests.

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use serde_json::Value;

/// How long a response may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bound of a response, in octets.
const LONGEST: u64 = 4 << 20;

/// The response, or why there is none.
pub(crate) fn ask(
    socket: &Path,
    question: &Value,
    beside: Option<BorrowedFd<'_>>,
) -> Result<Value, String> {
    let describe = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            "the process does not respond: it is stopped, or its connection thread hangs".to_owned()
        }
        _ => format!("the process's socket cannot be used: {error}"),
    };
    let mut stream = connect(socket).map_err(describe)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(describe)?;
    if let Some(beside) = beside {
        // With the first octet; the rest follows.
        pass(&stream, beside).map_err(describe)?;
        writeln!(stream, "{}", &question.to_string()[1..]).map_err(describe)?;
    } else {
        writeln!(stream, "{question}").map_err(describe)?;
    }
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).map_err(describe)?;
    let answer: Value =
        serde_json::from_str(&line).map_err(|_| "the process closed its socket".to_owned())?;
    match answer["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(answer),
    }
}

/// Sends the brace that begins a request, and a descriptor beside it.
fn pass(stream: &UnixStream, descriptor: BorrowedFd<'_>) -> std::io::Result<()> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL;
    net::sendmsg(stream, &[IoSlice::new(b"{")], &mut beside, flags)?;
    Ok(())
}

/// Through the directory's descriptor: the name of a socket may have 108 octets only.
fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let directory = std::fs::File::open(socket.parent().unwrap_or(Path::new("/")))?;
    let name = socket.file_name().unwrap_or_default();
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    let flags = SocketFlags::CLOEXEC;
    let stream = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Of connecting, too, where it waits for room.
    sockopt::set_socket_timeout(&stream, Timeout::Send, Some(PATIENCE))?;
    net::connect(&stream, &SocketAddrUnix::new(short)?)?;
    Ok(stream.into())
}
