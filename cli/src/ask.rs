//! Sends a request to a process's socket, possibly with a descriptor. A process that is stopped, or whose connection
//! thread hangs, does not respond: the wait ends after [`PATIENCE`] if it is stopped or its socket is full of earlier
//! requests, else after [`LONGEST_WAIT`], because it may only be slow.
//!
//! The process may belong to another user, and be hostile: only the socket of the page's owner is asked, and a response
//! that comes octet by octet, is long or has no end ends the wait, too.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use kal_os::is_stopped;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use state_page::layout::printable;
use state_page::place;
use ual::observe::questions::{Question, Refused};

use crate::stat::pages::Seen;

/// How long a request may take to be sent, and its response before it is checked whether the process is stopped.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the response of a process may take that is not stopped.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Bound of a response, in octets.
const LONGEST: usize = 4 << 20;

/// The response, or why there is none.
pub(crate) fn ask<T: DeserializeOwned>(
    seen: &Seen,
    question: &Question,
    beside: Option<BorrowedFd<'_>>,
) -> Result<T, String> {
    let unsent = |error: std::io::Error| match is_late(&error) {
        true => "the process does not respond: its socket is full of earlier requests; \
                 it is stopped, or its connection thread hangs"
            .to_owned(),
        false => unusable(&error),
    };
    let line = serde_json::to_string(question).map_err(|error| error.to_string())?;
    let mut stream = connect(&seen.socket, seen.page.process.uid).map_err(unsent)?;
    // With the first octet; the rest follows.
    let (first, rest) = line.split_at(1);
    match beside {
        Some(beside) => pass(&stream, first, beside),
        None => stream.write_all(first.as_bytes()),
    }
    .map_err(unsent)?;
    writeln!(stream, "{rest}").map_err(unsent)?;
    understand(&response(stream)?)
}

/// The response in a line.
fn understand<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    let answer: Value =
        serde_json::from_slice(line).map_err(|_| "the process closed its socket".to_owned())?;
    if let Ok(Refused { error }) = serde_json::from_value(answer.clone()) {
        return Err(printable(&error));
    }
    serde_json::from_value(answer).map_err(|error| {
        let error = printable(&error.to_string());
        format!("the process's response cannot be understood: {error}; its version may be another")
    })
}

fn unusable(error: &std::io::Error) -> String {
    format!("the process's socket cannot be used: {error}")
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The line that the process sends.
fn response(mut stream: UnixStream) -> Result<Vec<u8>, String> {
    // 0: it is in another namespace of processes.
    let process =
        sockopt::socket_peercred(&stream).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| unusable(&error))?;
    let (begun, mut line, mut room) = (Instant::now(), Vec::new(), [0; 16 << 10]);
    loop {
        match stream.read(&mut room) {
            Ok(0) => return Ok(line),
            Ok(octets) => {
                line.extend_from_slice(&room[..octets]);
                if room[..octets].contains(&b'\n') {
                    return Ok(line);
                }
                if line.len() > LONGEST {
                    return Err("the process's response is too long".to_owned());
                }
            }
            Err(error) if is_late(&error) && is_stopped(process) => {
                return Err(format!(
                    "the process does not respond: it is stopped; `kill -CONT {process}` continues it"
                ));
            }
            Err(error) if is_late(&error) || error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(unusable(&error)),
        }
        if begun.elapsed() >= LONGEST_WAIT {
            return Err("the process does not respond: its connection thread hangs or has no \
                        processor, or the process has no descriptors left (`ulimit -n`)"
                .to_owned());
        }
    }
}

/// Sends the begin of a request, and a descriptor beside it.
fn pass(stream: &UnixStream, begin: &str, descriptor: BorrowedFd<'_>) -> std::io::Result<()> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL;
    let begin = [IoSlice::new(begin.as_bytes())];
    retry_on_intr(|| net::sendmsg(stream, &begin, &mut beside, flags))?;
    Ok(())
}

/// Through the directory's descriptor: the name of a socket may have 108 octets only. The name may be a link to somebody
/// else's socket; then nothing is sent.
fn connect(socket: &Path, uid: u32) -> std::io::Result<UnixStream> {
    let directory = place::open_directory(socket.parent().unwrap_or(Path::new("/")), uid)
        .map_err(std::io::Error::other)?;
    let name = socket.file_name().unwrap_or_default();
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    let flags = SocketFlags::CLOEXEC;
    let stream = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Of connecting, too, where it waits for room.
    sockopt::set_socket_timeout(&stream, Timeout::Send, Some(PATIENCE))?;
    let address = SocketAddrUnix::new(short)?;
    retry_on_intr(|| net::connect(&stream, &address))?;
    let owner = sockopt::socket_peercred(&stream)?.uid.as_raw();
    if owner != uid {
        return Err(std::io::Error::other(format!(
            "it is of user {owner}, and the page of user {uid}"
        )));
    }
    Ok(stream.into())
}

#[cfg(test)]
mod tests {
    use ual::observe::questions::{CaptureEnded, QueuePairs};

    use super::understand;

    #[test]
    fn a_response_without_a_field_is_an_error_and_no_zero() {
        assert_eq!(understand::<CaptureEnded>(b"{\"dropped\":7}\n").unwrap().dropped, 7);
        for lacking in ["{}", "{\"queue_pairs\":[{}],\"more\":false}", "[]", "7"] {
            let why = understand::<QueuePairs>(lacking.as_bytes()).unwrap_err();
            assert!(why.contains("cannot be understood"), "{lacking}: {why}");
        }
        assert_eq!(understand::<QueuePairs>(b"").unwrap_err(), "the process closed its socket");
        let refusal = "{\"error\":\"\u{1b}[2Jno\"}".replace('\u{1b}', "\\u001b");
        assert_eq!(understand::<QueuePairs>(refusal.as_bytes()).unwrap_err(), "?[2Jno");
    }
}
