//! Round trips of programs that sleep in epoll: for the socket itself, or for an eventfd that a reading thread
//! signals. The loops belong to the thread that calls them; the reading thread ends with the phase or the
//! stream.

use std::io::{self, ErrorKind, Read};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use super::{LAST, MORE, write};
use crate::perf::meter::{Count, Rounds};

/// Which threads each message wakes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wakes {
    /// One, which reads the socket and consumes the message.
    One,
    /// One that reads the socket, then one that consumes the message.
    Two,
}

/// Stored instead of a message's first octet when the stream has ended.
const ENDED: u8 = LAST + 1;

/// Measures round trips for `length`.
pub(super) fn ping(
    stream: &mut TcpStream,
    size: usize,
    length: Duration,
    wakes: Wakes,
) -> io::Result<Count> {
    let mut rounds = Rounds::new(length);
    let mut message = vec![MORE; size];
    with_messages(stream, size, wakes, |stream, next| {
        loop {
            write(stream, &message)?;
            match next()? {
                ENDED => return Err(ErrorKind::UnexpectedEof.into()),
                LAST => return Ok(rounds.count()),
                _ if rounds.ended() => message[0] = LAST,
                _ => {}
            }
        }
    })
}

/// The other end: sends messages back until the stream ends.
pub(super) fn pong(stream: &mut TcpStream, size: usize, wakes: Wakes) -> io::Result<()> {
    let mut message = vec![MORE; size];
    let mut phase = || {
        with_messages(stream, size, wakes, |stream, next| {
            loop {
                message[0] = next()?;
                if message[0] == ENDED {
                    return Ok(false);
                }
                write(stream, &message)?;
                if message[0] == LAST {
                    return Ok(true);
                }
            }
        })
    };
    while phase()? {}
    Ok(())
}

/// Runs `run` with a function that returns the next message's first octet.
fn with_messages<T>(
    stream: &mut TcpStream,
    size: usize,
    wakes: Wakes,
    run: impl FnOnce(&mut TcpStream, &mut dyn FnMut() -> io::Result<u8>) -> io::Result<T>,
) -> io::Result<T> {
    let mut reader = Reader::new(stream.try_clone()?, size)?;
    if wakes == Wakes::One {
        return run(stream, &mut || reader.next());
    }
    let arrived = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let (first, set) = (AtomicU8::new(ENDED), set_of(&arrived)?);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let next = reader.next().unwrap_or(ENDED);
                first.store(next, Ordering::Release);
                // Each octet is read before the next is written, so it cannot be full.
                let _ = rustix::io::write(&arrived, &1u64.to_ne_bytes());
                if next != MORE {
                    return;
                }
            }
        });
        run(stream, &mut || {
            sleep(&set)?;
            rustix::io::read(&arrived, &mut [0; 8])?;
            Ok(first.load(Ordering::Acquire))
        })
    })
}

/// Reads messages of one size, sleeping in epoll.
struct Reader {
    stream: TcpStream,
    set: OwnedFd,
    memory: Vec<u8>,
}

impl Reader {
    fn new(stream: TcpStream, size: usize) -> io::Result<Self> {
        let set = set_of(&stream)?;
        Ok(Self { stream, set, memory: vec![0; size] })
    }

    /// The first octet of the next message.
    fn next(&mut self) -> io::Result<u8> {
        let mut filled = 0;
        sleep(&self.set)?;
        while filled < self.memory.len() {
            match self.stream.read(&mut self.memory[filled..]) {
                Ok(0) => return Ok(ENDED),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(&self.set)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.memory[0])
    }
}

fn set_of(fd: impl AsFd) -> io::Result<OwnedFd> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    Ok(set)
}

fn sleep(set: &OwnedFd) -> io::Result<()> {
    loop {
        match epoll::wait(set, &mut [const { MaybeUninit::uninit() }; 1], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
