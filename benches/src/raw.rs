//! Raw TCP, the measure of all: what a plain program does, and the best stream that we can write.
//!
//! Each loop belongs to the thread that calls it and owns its memory. A peer that dies is an error
//! for the sender and the end of the stream for the receiver.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::meter::{Laps, Meter};
use crate::{MESSAGE, PING, WORKING_SET, Waiting};

/// Payload octets of a frame of the best stream.
const FRAME: usize = 65_000;
/// Frames that one `writev` sends; they make up the working set.
const FRAMES: usize = 16;
/// Frames that one `readv` asks for.
const FRAMES_READ: usize = 4;
/// Octets before a payload: MPA length, DDP and RDMAP header of a tagged segment.
const HEAD: usize = 16;
/// Octets behind it: the CRC's place.
const TRAILER: usize = 4;
const WIRE: usize = HEAD + FRAME + TRAILER;

/// Listens at a free port.
pub fn listen() -> io::Result<TcpListener> {
    TcpListener::bind("127.0.0.1:0")
}

/// A connection as a plain program makes it.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    plain(TcpStream::connect(address)?)
}

/// The other end of [`connect`].
pub fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    plain(listener.accept()?.0)
}

fn plain(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// `raw_same`: one write per message. GB/s.
pub fn send_messages(mut stream: TcpStream, slice: Duration) -> io::Result<f64> {
    let memory = vec![1; WORKING_SET];
    let mut messages = memory.chunks_exact(MESSAGE).cycle();
    let mut meter = Meter::new(slice);
    while !meter.is_over()
        && let Some(message) = messages.next()
    {
        stream.write_all(message)?;
        meter.add(message.len());
    }
    confirm(stream, &meter)?;
    Ok(meter.gigabytes_per_second())
}

/// The other end of [`send_messages`]: one read after the other, message by message.
pub fn receive_messages(mut stream: TcpStream) -> io::Result<()> {
    let mut memory = vec![1; WORKING_SET];
    let mut received = 0_u64;
    loop {
        for message in memory.chunks_exact_mut(MESSAGE) {
            if !receive(&mut stream, message)? {
                return stream.write_all(&received.to_be_bytes());
            }
            received += message.len() as u64;
        }
    }
}

/// `raw_max`: frames with head and trailer, 16 per system call. GB/s of payload.
pub fn send_frames(mut stream: TcpStream, slice: Duration) -> io::Result<f64> {
    unpaced(&stream);
    let (memory, head, trailer) = (vec![1; FRAMES * FRAME], [2; HEAD], [3; TRAILER]);
    let mut meter = Meter::new(slice);
    while !meter.is_over() {
        let frame = |payload| [&head[..], payload, &trailer].map(IoSlice::new);
        let mut pieces: Vec<_> = memory.chunks_exact(FRAME).flat_map(frame).collect();
        let mut rest = &mut pieces[..];
        while !rest.is_empty() {
            let sent = stream.write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, sent);
        }
        meter.add(memory.len());
    }
    confirm(stream, &meter)?;
    Ok(meter.gigabytes_per_second())
}

/// Memory of a frame that is received.
struct Slot {
    head: [u8; HEAD],
    payload: Vec<u8>,
    trailer: [u8; TRAILER],
}

/// The other end of [`send_frames`]: knows where the next frames' octets belong, and reads several
/// frames in one system call, each part into its place.
pub fn receive_frames(mut stream: TcpStream) -> io::Result<()> {
    unpaced(&stream);
    let slot = || Slot { head: [0; HEAD], payload: vec![1; FRAME], trailer: [0; TRAILER] };
    let mut slots: Vec<Slot> = std::iter::repeat_with(slot).take(FRAMES).collect();
    // Octets of the present round over the slots, and rounds before it.
    let (mut at, mut rounds) = (0, 0);
    loop {
        let (before, from) = slots.split_at_mut(at / WIRE);
        let mut pieces: Vec<_> = from
            .iter_mut()
            .chain(before)
            .take(FRAMES_READ)
            .flat_map(|slot| [&mut slot.head[..], &mut slot.payload, &mut slot.trailer])
            .map(IoSliceMut::new)
            .collect();
        let mut rest = &mut pieces[..];
        IoSliceMut::advance_slices(&mut rest, at % WIRE);
        match stream.read_vectored(rest)? {
            0 => {
                let frames = rounds * FRAMES + at / WIRE;
                return stream.write_all(&((frames * FRAME) as u64).to_be_bytes());
            }
            octets => {
                rounds += (at + octets) / (FRAMES * WIRE);
                at = (at + octets) % (FRAMES * WIRE);
            }
        }
    }
}

/// Loopback needs no pacing. A system without cubic keeps its own congestion control.
fn unpaced(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_tcp_congestion(stream, "cubic");
}

/// Ends the stream, waits until the receiver has all of it, and compares.
fn confirm(mut stream: TcpStream, meter: &Meter) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let mut received = [0; 8];
    stream.read_exact(&mut received)?;
    meter.check(u64::from_be_bytes(received)).map_err(io::Error::other)
}

/// Small messages there and back; half a round trip in microseconds.
pub fn ping(mut stream: TcpStream, waiting: Waiting, slice: Duration) -> io::Result<f64> {
    stream.set_nonblocking(waiting == Waiting::Poll)?;
    let mut message = [1; PING];
    let mut laps = Laps::new(slice);
    loop {
        stream.write_all(&message)?;
        if !receive(&mut stream, &mut message)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if laps.lap() {
            return Ok(laps.half_round_trip());
        }
    }
}

/// The other end of [`ping`].
pub fn pong(mut stream: TcpStream, waiting: Waiting) -> io::Result<()> {
    stream.set_nonblocking(waiting == Waiting::Poll)?;
    let mut message = [0; PING];
    while receive(&mut stream, &mut message)? {
        stream.write_all(&message)?;
    }
    Ok(())
}

/// Receives all of `message`, spinning if the stream is nonblocking; false at the end of the stream.
fn receive(stream: &mut TcpStream, message: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < message.len() {
        match stream.read(&mut message[filled..]) {
            Ok(0) => return Ok(false),
            Ok(octets) => filled += octets,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
