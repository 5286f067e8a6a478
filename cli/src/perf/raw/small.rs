//! The fastest stream of small messages: framed and copied into one buffer, hundreds per write; read into one
//! buffer, parsed and copied out. No CRC. Loops of the thread that calls them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{LAST, MORE, confirmed};
use crate::perf::case::WORKING_SET;
use crate::perf::meter::{Count, is_over};

/// Octets of a write, and of a read.
const BATCH: usize = 128 << 10;
/// Octets before a payload.
const HEAD: usize = 16;
/// Octets after it.
const TRAILER: usize = 4;
/// Offset of the payload's length in the header.
const LENGTH: std::ops::Range<usize> = 4..8;

pub(super) fn send(stream: &mut TcpStream, size: usize, length: Duration) -> io::Result<Count> {
    let memory = vec![1; WORKING_SET.max(size)];
    let mut sources = memory.chunks_exact(size).cycle();
    let wire = HEAD + size + TRAILER;
    let per_batch = (BATCH / wire).max(1);
    let mut batch = vec![0; per_batch * wire];
    let mut head = [MORE; HEAD];
    head[LENGTH].copy_from_slice(&(size as u32).to_be_bytes());
    let begin = Instant::now();
    let (mut messages, mut over) = (0, false);
    while !over {
        over = is_over(begin, length);
        for (frame, payload) in batch.chunks_exact_mut(wire).zip(&mut sources) {
            frame[..HEAD].copy_from_slice(&head);
            frame[HEAD..HEAD + size].copy_from_slice(payload);
        }
        if over {
            batch[(per_batch - 1) * wire] = LAST;
        }
        stream.write_all(&batch)?;
        messages += per_batch as u64;
    }
    confirmed(stream, messages)?;
    Ok(Count { messages, elapsed: begin.elapsed(), ..Count::default() })
}

/// The other end of [`send`].
pub(super) fn receive(stream: &mut TcpStream, size: usize) -> io::Result<()> {
    let mut sinks = vec![0; WORKING_SET.max(size)];
    let places = sinks.len() / size;
    let mut buffer = vec![0; 2 * (BATCH + HEAD + size + TRAILER)];
    let (mut filled, mut messages) = (0, 0_u64);
    loop {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(octets) => filled += octets,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let mut at = 0;
        while let Some(frame) = frame(&buffer[at..filled], size)? {
            let place = messages as usize % places * size;
            sinks[place..place + size].copy_from_slice(&frame[HEAD..HEAD + size]);
            messages += 1;
            at += frame.len();
            if frame[0] == LAST {
                stream.write_all(&messages.to_be_bytes())?;
                messages = 0;
            }
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
}

/// The frame at the front of `octets`, if it is complete.
fn frame(octets: &[u8], size: usize) -> io::Result<Option<&[u8]>> {
    let Some(length) = octets.get(LENGTH).and_then(|length| length.first_chunk()) else {
        return Ok(None);
    };
    if u32::from_be_bytes(*length) as usize != size {
        return Err(io::Error::other("a frame of another size"));
    }
    Ok(octets.get(..HEAD + size + TRAILER))
}
