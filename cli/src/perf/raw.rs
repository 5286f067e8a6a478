//! Raw TCP references: a plain program, and the fastest stream that we can write.
//!
//! The client runs phase after phase; at the end of each, the server confirms all messages. Each loop belongs
//! to the thread that calls it and owns its memory. The death of a peer is an error for the sender and the end
//! of the stream for the receiver.

mod evented;
mod frames;
mod many;
mod plain;
mod small;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::set_tcp_congestion;

use self::evented::Wakes;
pub(super) use self::frames::FRAME;
use super::case::Reference;
use super::meter::Count;

/// First octet of a message: more follow.
const MORE: u8 = 0;
/// First octet of a message: it is the last one of a phase, to be confirmed.
const LAST: u8 = 1;
/// Octets of a request for a message.
const REQUEST: usize = 16;
/// Octets in each direction of a connection when connecting is measured.
const HANDSHAKE: usize = 64;

/// The client's end.
pub(super) struct Raw {
    reference: Reference,
    address: SocketAddr,
    streams: Vec<TcpStream>,
}

impl Raw {
    /// Connects to [`serve`].
    pub(super) fn connect(reference: Reference, address: SocketAddr) -> io::Result<Self> {
        let count = match reference {
            Reference::Messages { threads, .. } | Reference::Requests { threads, .. } => threads,
            Reference::Many { conns, .. } => conns,
            Reference::Connect => 0,
            _ => 1,
        };
        let streams = (0..count).map(|_| prepare(TcpStream::connect(address)?, reference));
        Ok(Self { reference, address, streams: streams.collect::<io::Result<_>>()? })
    }

    /// Measures for `length`.
    pub(super) fn phase(&mut self, length: Duration) -> io::Result<Count> {
        let (reference, address) = (self.reference, self.address);
        if let Reference::Many { size, .. } = reference {
            return many::send(&mut self.streams, size as usize, length);
        }
        match &mut self.streams[..] {
            [] => plain::connect_often(address, length),
            [one] => send(reference, one, length),
            many => std::thread::scope(|scope| {
                let start = |stream| scope.spawn(move || send(reference, stream, length));
                let threads: Vec<_> = many.iter_mut().map(start).collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, io::Result<Count>>| {
                    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
                };
                let counts = threads.into_iter().map(join).collect::<io::Result<Vec<_>>>()?;
                Ok(Count::join(counts))
            }),
        }
    }

    /// Ends the measurement.
    pub(super) fn close(self) -> io::Result<()> {
        if self.reference == Reference::Connect {
            TcpStream::connect(self.address)?.write_all(&[LAST; HANDSHAKE])?;
        }
        Ok(())
    }
}

fn send(reference: Reference, stream: &mut TcpStream, length: Duration) -> io::Result<Count> {
    match reference {
        Reference::Messages { size, .. } => plain::send_messages(stream, size as usize, length),
        Reference::Requests { size, depth, .. } => {
            plain::request(stream, size as usize, depth as usize, length)
        }
        Reference::Frames => frames::send(stream, length),
        Reference::Small { size } => small::send(stream, size as usize, length),
        Reference::Echo { size, .. } => plain::ping(stream, size as usize, size as usize, length),
        Reference::Evented { size } => evented::ping(stream, size as usize, length, Wakes::One),
        Reference::Handed { size } => evented::ping(stream, size as usize, length, Wakes::Two),
        Reference::Fetch { size, .. } => plain::ping(stream, 8, size as usize, length),
        // These have several streams.
        Reference::Many { .. } | Reference::Connect => Ok(Count::default()),
    }
}

/// The server's end: serves one measurement; `announce` gets the port.
pub(super) fn serve(
    reference: Reference,
    address: SocketAddr,
    announce: impl FnOnce(u16),
) -> io::Result<()> {
    let listener = TcpListener::bind((address.ip(), 0))?;
    announce(listener.local_addr()?.port());
    let count = match reference {
        Reference::Connect => return plain::accept_often(&listener),
        Reference::Messages { threads, .. } | Reference::Requests { threads, .. } => threads,
        Reference::Many { conns, .. } => conns,
        _ => 1,
    };
    let streams = (0..count).map(|_| prepare(listener.accept()?.0, reference));
    let streams: Vec<_> = streams.collect::<io::Result<_>>()?;
    if let Reference::Many { size, wait, .. } = reference {
        return many::receive(streams, size as usize, wait);
    }
    std::thread::scope(|scope| {
        let start = |stream| scope.spawn(move || receive(reference, stream));
        let threads: Vec<_> = streams.into_iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, io::Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        };
        threads.into_iter().try_for_each(join)
    })
}

fn receive(reference: Reference, mut stream: TcpStream) -> io::Result<()> {
    match reference {
        Reference::Messages { size, .. } => plain::receive_messages(&mut stream, size as usize),
        Reference::Requests { size, .. } => plain::pong(&mut stream, REQUEST, size as usize),
        Reference::Frames => frames::receive(&mut stream),
        Reference::Small { size } => small::receive(&mut stream, size as usize),
        Reference::Echo { size, .. } => plain::pong(&mut stream, size as usize, size as usize),
        Reference::Evented { size } => evented::pong(&mut stream, size as usize, Wakes::One),
        Reference::Handed { size } => evented::pong(&mut stream, size as usize, Wakes::Two),
        Reference::Fetch { size, .. } => plain::pong(&mut stream, 8, size as usize),
        Reference::Many { .. } | Reference::Connect => Ok(()),
    }
}

/// Socket options of a plain program; the best stream also turns off pacing, which loopback does not need.
/// Where cubic is not permitted it takes reno.
fn prepare(stream: TcpStream, reference: Reference) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    match reference {
        Reference::Frames | Reference::Small { .. } => {
            let _ = set_tcp_congestion(&stream, "cubic")
                .or_else(|_| set_tcp_congestion(&stream, "reno"));
        }
        Reference::Messages { wait, .. }
        | Reference::Requests { wait, .. }
        | Reference::Echo { wait, .. }
        | Reference::Fetch { wait, .. } => stream.set_nonblocking(!wait)?,
        Reference::Many { .. } | Reference::Evented { .. } | Reference::Handed { .. } => {
            stream.set_nonblocking(true)?;
        }
        Reference::Connect => {}
    }
    Ok(stream)
}

/// Writes all of `octets`, spinning if the stream is nonblocking.
fn write(stream: &mut TcpStream, mut octets: &[u8]) -> io::Result<()> {
    while !octets.is_empty() {
        match stream.write(octets) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => octets = &octets[written..],
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads all of `octets`, spinning if the stream is nonblocking; false at the end of the stream.
fn read(stream: &mut TcpStream, octets: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < octets.len() {
        match stream.read(&mut octets[filled..]) {
            Ok(0) => return Ok(false),
            Ok(read) => filled += read,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Waits until the receiver has all messages of a phase.
fn confirmed(stream: &mut TcpStream, sent: u64) -> io::Result<()> {
    let mut received = [0; 8];
    if !read(stream, &mut received)? {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    match u64::from_be_bytes(received) {
        received if received == sent => Ok(()),
        received => {
            Err(io::Error::other(format!("{sent} messages were sent, but {received} received")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn every_reference_runs_phase_after_phase() {
        for reference in [
            Reference::Messages { size: 4096, wait: true, threads: 2 },
            Reference::Messages { size: 3 << 20, wait: false, threads: 1 },
            Reference::Many { size: 4096, wait: true, conns: 20 },
            Reference::Many { size: 3 << 20, wait: false, conns: 3 },
            Reference::Requests { size: 64, depth: 5, wait: false, threads: 1 },
            Reference::Frames,
            Reference::Small { size: 8 },
            Reference::Small { size: 5000 },
            Reference::Echo { size: 1, wait: true },
            Reference::Evented { size: 8 },
            Reference::Handed { size: 4096 },
            Reference::Fetch { size: 4096, wait: false },
            Reference::Connect,
        ] {
            let (sender, receiver) = std::sync::mpsc::channel();
            let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let announce = move |port| sender.send(port).unwrap();
            let server = std::thread::spawn(move || serve(reference, here, announce));
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, receiver.recv().unwrap()));
            let mut raw = Raw::connect(reference, address).unwrap();
            for _ in 0..3 {
                let count = raw.phase(Duration::from_millis(5)).unwrap();
                assert!(count.messages > 0 && count.elapsed > Duration::ZERO, "{reference:?}");
            }
            raw.close().unwrap();
            server.join().unwrap().unwrap();
        }
    }
}
