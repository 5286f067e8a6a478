//! A plain program with many connections: one write per message, to each writable one in turn; epoll says which
//! are readable. Loops of the thread that calls them. The death of a peer is an error for the sender and the
//! end of the streams for the receiver.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::{LAST, MORE, confirmed, write};
use crate::perf::case::WORKING_SET;
use crate::perf::meter::{Count, is_over};

/// Events taken per `epoll_wait`.
const EVENTS: usize = 64;

/// One connection of a sender.
#[derive(Clone, Copy, Default)]
struct Sending {
    /// Octets of the present message that are written.
    sent: usize,
    messages: u64,
    /// The present message is the last one.
    last: bool,
    done: bool,
}

/// Writes one message at a time, to one stream after the other. All streams are nonblocking.
pub(super) fn send(streams: &mut [TcpStream], size: usize, length: Duration) -> io::Result<Count> {
    let memory = vec![MORE; WORKING_SET.max(size)];
    let last = vec![LAST; size];
    let mut sources = memory.chunks_exact(size).cycle();
    let mut states = vec![Sending::default(); streams.len()];
    let begin = Instant::now();
    while states.iter().any(|state| !state.done) {
        let mut stuck = true;
        for (stream, state) in streams.iter_mut().zip(&mut states).filter(|(_, s)| !s.done) {
            state.last |= state.sent == 0 && is_over(begin, length);
            let source = if state.last { &last } else { sources.next().unwrap_or(&last) };
            match stream.write(&source[state.sent..]) {
                Ok(written) => {
                    stuck = false;
                    state.take(written, size);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if stuck {
            std::thread::yield_now();
        }
    }
    for (stream, state) in streams.iter_mut().zip(&states) {
        confirmed(stream, state.messages)?;
    }
    let messages = states.iter().map(|state| state.messages).sum();
    Ok(Count { messages, elapsed: begin.elapsed(), ..Count::default() })
}

impl Sending {
    fn take(&mut self, written: usize, size: usize) {
        self.sent += written;
        if self.sent == size {
            self.sent = 0;
            self.messages += 1;
            self.done = self.last;
        }
    }
}

/// One connection of a receiver.
struct Receiving {
    stream: TcpStream,
    /// Octets of the present message that are read.
    filled: usize,
    messages: u64,
    last: bool,
}

/// The other end of [`send`], until all its streams have ended.
pub(super) fn receive(streams: Vec<TcpStream>, size: usize, wait: bool) -> io::Result<()> {
    let mut memory = vec![0; WORKING_SET.max(size)];
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    let mut open = streams.len();
    let state = |stream| Receiving { stream, filled: 0, messages: 0, last: false };
    let mut states: Vec<_> = streams.into_iter().map(state).collect();
    for (at, state) in states.iter().enumerate() {
        epoll::add(&set, &state.stream, EventData::new_u64(at as u64), EventFlags::IN)?;
    }
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut events = [const { MaybeUninit::uninit() }; EVENTS];
    let places = memory.len() / size;
    while open > 0 {
        let ready = match epoll::wait(&set, &mut events, (!wait).then_some(&now)) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for event in ready {
            let at = event.data.u64() as usize;
            let state = &mut states[at];
            let place = &mut memory[at % places * size..][..size];
            if !state.read(place)? {
                epoll::delete(&set, &state.stream)?;
                open -= 1;
            }
        }
    }
    Ok(())
}

impl Receiving {
    /// One read; false at the end of the stream.
    fn read(&mut self, place: &mut [u8]) -> io::Result<bool> {
        let read = match self.stream.read(&mut place[self.filled..]) {
            Ok(0) => return Ok(false),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        if self.filled == 0 {
            self.last = place[0] == LAST;
        }
        self.filled += read;
        if self.filled == place.len() {
            self.filled = 0;
            self.messages += 1;
            if std::mem::take(&mut self.last) {
                write(&mut self.stream, &std::mem::take(&mut self.messages).to_be_bytes())?;
            }
        }
        Ok(true)
    }
}
