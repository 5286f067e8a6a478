//! Sends a request to a process's socket, possibly with a descriptor. A process that is stopped, or whose connection
//! thread hangs, does not respond: the wait ends after [`PATIENCE`] if it is stopped or its socket is full of earlier
//! requests, else after [`LONGEST_WAIT`], because it may only be slow.

use std::io::{BufRead, BufReader, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use kal_os::is_stopped;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use serde_json::Value;

/// How long a request may take to be sent, and its response before it is checked whether the process is stopped.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the response of a process may take that is not stopped.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Bound of a response, in octets.
const LONGEST: u64 = 4 << 20;

/// The response, or why there is none.
pub(crate) fn ask(
    socket: &Path,
    question: &Value,
    beside: Option<BorrowedFd<'_>>,
) -> Result<Value, String> {
    let unsent = |error: std::io::Error| match is_late(&error) {
        true => "the process does not respond: its socket is full of earlier requests; \
                 it is stopped, or its connection thread hangs"
            .to_owned(),
        false => format!("the process's socket cannot be used: {error}"),
    };
    let mut stream = connect(socket).map_err(unsent)?;
    if let Some(beside) = beside {
        // With the first octet; the rest follows.
        pass(&stream, beside).map_err(unsent)?;
        writeln!(stream, "{}", &question.to_string()[1..]).map_err(unsent)?;
    } else {
        writeln!(stream, "{question}").map_err(unsent)?;
    }
    let answer: Value = serde_json::from_slice(&response(stream)?)
        .map_err(|_| "the process closed its socket".to_owned())?;
    match answer["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(answer),
    }
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The line that the process sends.
fn response(stream: UnixStream) -> Result<Vec<u8>, String> {
    let describe = |error| format!("the process's socket cannot be used: {error}");
    // 0: it is in another namespace of processes.
    let process =
        sockopt::socket_peercred(&stream).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
    stream.set_read_timeout(Some(PATIENCE)).map_err(describe)?;
    let (begun, mut line) = (Instant::now(), Vec::new());
    let mut stream = BufReader::new(stream.take(LONGEST));
    loop {
        match stream.read_until(b'\n', &mut line) {
            Ok(_) => return Ok(line),
            Err(error) if !is_late(&error) => return Err(describe(error)),
            Err(_) if is_stopped(process) => {
                return Err(format!(
                    "the process does not respond: it is stopped; `kill -CONT {process}` continues it"
                ));
            }
            Err(_) if begun.elapsed() >= LONGEST_WAIT => {
                return Err("the process does not respond: its connection thread hangs or has no \
                            processor, or the process has no descriptors left (`ulimit -n`)"
                    .to_owned());
            }
            Err(_) => {}
        }
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
