//! The fastest stream of large messages: frames with header and trailer, 16 per write, each part read into its
//! place, several frames per read. Loops of the thread that calls them.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{LAST, MORE, confirmed};
use crate::perf::meter::{Count, is_over};

/// Payload octets of a frame.
pub(in crate::perf) const FRAME: usize = 65_000;
/// Frames that one `writev` sends; they make up the working set.
const FRAMES: usize = 16;
/// Frames that one `readv` asks for.
const FRAMES_READ: usize = 4;
/// Octets before a payload: MPA length, DDP and RDMAP header of a tagged segment.
const HEAD: usize = 16;
/// Octets after it, for the CRC.
const TRAILER: usize = 4;
const WIRE: usize = HEAD + FRAME + TRAILER;

/// Counts frames.
pub(super) fn send(stream: &mut TcpStream, length: Duration) -> io::Result<Count> {
    let (memory, trailer) = (vec![1; FRAMES * FRAME], [3; TRAILER]);
    let begin = Instant::now();
    let (mut messages, mut over) = (0, false);
    while !over {
        over = is_over(begin, length);
        let head = [if over { LAST } else { MORE }; HEAD];
        let frame = |payload| [&head[..], payload, &trailer].map(IoSlice::new);
        let mut pieces: Vec<_> = memory.chunks_exact(FRAME).flat_map(frame).collect();
        let mut rest = &mut pieces[..];
        while !rest.is_empty() {
            let sent = stream.write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, sent);
        }
        messages += FRAMES as u64;
    }
    confirmed(stream, messages)?;
    Ok(Count { messages, elapsed: begin.elapsed(), ..Count::default() })
}

/// Memory of a frame that is received.
struct Slot {
    head: [u8; HEAD],
    payload: Vec<u8>,
    trailer: [u8; TRAILER],
}

/// The other end of [`send`]: knows where the next frames' octets belong.
pub(super) fn receive(stream: &mut TcpStream) -> io::Result<()> {
    let slot = || Slot { head: [0; HEAD], payload: vec![1; FRAME], trailer: [0; TRAILER] };
    let mut slots: Vec<Slot> = std::iter::repeat_with(slot).take(FRAMES).collect();
    // Octets of the present pass over the slots, and earlier passes of this phase.
    let (mut at, mut turns) = (0, 0);
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
        let octets = stream.read_vectored(rest)?;
        if octets == 0 {
            return Ok(());
        }
        turns += (at + octets) / (FRAMES * WIRE);
        at = (at + octets) % (FRAMES * WIRE);
        // After the last pass of a phase nothing arrives until it is confirmed.
        if at == 0 && slots[FRAMES - 1].head[0] == LAST {
            stream.write_all(&((turns * FRAMES) as u64).to_be_bytes())?;
            turns = 0;
        }
    }
}
