//! A plain TCP program: one write per message, one read after the other, round trips, connections. Loops of the
//! thread that calls them.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{HANDSHAKE, LAST, MORE, REQUEST, confirmed, read, write};
use crate::perf::case::WORKING_SET;
use crate::perf::meter::{Count, Rounds, is_over};

/// Writes one message at a time, from consecutive places of the working set.
pub(super) fn send_messages(
    stream: &mut TcpStream,
    size: usize,
    length: Duration,
) -> io::Result<Count> {
    let mut memory = vec![MORE; WORKING_SET.max(size)];
    let begin = Instant::now();
    let (mut messages, mut over) = (0, false);
    while !over {
        for message in memory.chunks_exact_mut(size) {
            over = is_over(begin, length);
            message[0] = if over { LAST } else { MORE };
            write(stream, message)?;
            messages += 1;
            if over {
                break;
            }
        }
    }
    confirmed(stream, messages)?;
    Ok(Count { messages, elapsed: begin.elapsed(), ..Count::default() })
}

/// The other end of [`send_messages`].
pub(super) fn receive_messages(stream: &mut TcpStream, size: usize) -> io::Result<()> {
    let mut memory = vec![MORE; WORKING_SET.max(size)];
    let mut messages = 0_u64;
    loop {
        for message in memory.chunks_exact_mut(size) {
            if !read(stream, message)? {
                return Ok(());
            }
            messages += 1;
            if message[0] == LAST {
                write(stream, &messages.to_be_bytes())?;
                messages = 0;
            }
        }
    }
}

/// Keeps `depth` requests outstanding, each of which gets a message; the other end is [`pong`].
pub(super) fn request(
    stream: &mut TcpStream,
    size: usize,
    depth: usize,
    length: Duration,
) -> io::Result<Count> {
    let mut memory = vec![1; WORKING_SET.max(size)];
    let begin = Instant::now();
    let (mut asked, mut messages) = (0, 0);
    loop {
        for message in memory.chunks_exact_mut(size) {
            let over = is_over(begin, length);
            while !over && asked - messages < depth as u64 {
                write(stream, &[MORE; REQUEST])?;
                asked += 1;
            }
            if asked == messages {
                return Ok(Count { messages, elapsed: begin.elapsed(), ..Count::default() });
            }
            if !read(stream, message)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            messages += 1;
        }
    }
}

/// One round trip: `there` octets there and `back` octets back.
pub(super) fn ping(
    stream: &mut TcpStream,
    there: usize,
    back: usize,
    length: Duration,
) -> io::Result<Count> {
    let (there, mut back) = (vec![1; there], vec![1; back]);
    let mut rounds = Rounds::new(length);
    loop {
        write(stream, &there)?;
        if !read(stream, &mut back)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if rounds.ended() {
            return Ok(rounds.count());
        }
    }
}

/// The other end of [`ping`] and [`request`].
pub(super) fn pong(stream: &mut TcpStream, there: usize, back: usize) -> io::Result<()> {
    let (mut there, back) = (vec![1; there], vec![1; back]);
    while read(stream, &mut there)? {
        write(stream, &back)?;
    }
    Ok(())
}

/// Makes one connection after the other, each with 64 octets there and back twice.
pub(super) fn connect_often(address: SocketAddr, length: Duration) -> io::Result<Count> {
    let mut rounds = Rounds::new(length);
    let mut answer = [0; HANDSHAKE];
    loop {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        for _ in 0..2 {
            write(&mut stream, &[MORE; HANDSHAKE])?;
            if !read(&mut stream, &mut answer)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if rounds.ended() {
            return Ok(rounds.count());
        }
    }
}

/// The other end of [`connect_often`], until the last connection.
pub(super) fn accept_often(listener: &TcpListener) -> io::Result<()> {
    let mut message = [0; HANDSHAKE];
    loop {
        let mut stream = listener.accept()?.0;
        stream.set_nodelay(true)?;
        for _ in 0..2 {
            let complete = read(&mut stream, &mut message)?;
            if complete && message[0] == LAST {
                return Ok(());
            }
            write(&mut stream, &message)?;
        }
    }
}
