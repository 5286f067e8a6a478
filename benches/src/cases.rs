//! The first figures: which measurements there are, what each is compared with, and how the two
//! processes run one. Both have the same list and name a case by its index. No state.

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::rdma::{Client, Service, Setup, Transfer};
use crate::{Result, Waiting, raw, rdma};

/// A measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// Raw TCP, one write per message.
    RawSame,
    /// Raw TCP, the best stream.
    RawMax,
    /// Raw TCP, round trips.
    RawPing(Waiting),
    /// Ours, 64 KiB messages.
    Stream(Transfer, Setup),
    /// Ours, round trips.
    Ping(Setup),
}

const fn stream(transfer: Transfer, crc: bool) -> Case {
    Case::Stream(transfer, Setup { crc, waiting: Waiting::Wait })
}

const fn ping(waiting: Waiting, crc: bool) -> Case {
    Case::Ping(Setup { crc, waiting })
}

/// All of them, in the order of a round.
pub const CASES: [Case; 16] = [
    Case::RawSame,
    Case::RawMax,
    stream(Transfer::Write, true),
    stream(Transfer::Write, false),
    stream(Transfer::Send, true),
    stream(Transfer::Send, false),
    stream(Transfer::Read, true),
    stream(Transfer::Read, false),
    Case::RawPing(Waiting::Poll),
    ping(Waiting::Poll, true),
    ping(Waiting::Poll, false),
    Case::RawPing(Waiting::Sleep),
    ping(Waiting::Wait, true),
    ping(Waiting::Wait, false),
    ping(Waiting::Sleep, true),
    ping(Waiting::Sleep, false),
];

impl Case {
    /// The unit of its figure.
    pub fn unit(self) -> &'static str {
        if self.is_bandwidth() { "GB/s" } else { "us" }
    }

    /// True for octets per time, false for round trips.
    pub fn is_bandwidth(self) -> bool {
        matches!(self, Self::RawSame | Self::RawMax | Self::Stream(..))
    }

    /// CRC on or off, where there may be one.
    pub fn crc(self) -> Option<bool> {
        match self {
            Self::Stream(_, setup) | Self::Ping(setup) => Some(setup.crc),
            _ => None,
        }
    }

    /// The plain program of the same shape.
    pub fn raw_same(self) -> Self {
        match self {
            Self::RawSame | Self::RawMax | Self::Stream(..) => Self::RawSame,
            Self::RawPing(waiting) | Self::Ping(Setup { waiting, .. }) => match waiting {
                Waiting::Poll => Self::RawPing(Waiting::Poll),
                Waiting::Wait | Waiting::Sleep => Self::RawPing(Waiting::Sleep),
            },
        }
    }

    /// The best that the kernel allows.
    pub fn raw_max(self) -> Self {
        if self.is_bandwidth() { Self::RawMax } else { self.raw_same() }
    }

    /// Measures it against the process that serves it at `address`.
    pub fn measure(self, address: SocketAddr, slice: Duration) -> Result<f64> {
        let connect = || raw::connect(address);
        Ok(match self {
            Self::RawSame => raw::send_messages(connect()?, slice)?,
            Self::RawMax => raw::send_frames(connect()?, slice)?,
            Self::RawPing(waiting) => raw::ping(connect()?, waiting, slice)?,
            Self::Stream(transfer, setup) => {
                Client::connect(address, setup)?.stream(transfer, slice)?
            }
            Self::Ping(setup) => Client::connect(address, setup)?.ping(slice)?,
        })
    }

    /// Serves it once; `announce` gets the address.
    pub fn serve(self, announce: impl FnOnce(SocketAddr) -> std::io::Result<()>) -> Result<()> {
        match self {
            Self::Stream(_, setup) => rdma::serve(Service::Sink, setup, announce),
            Self::Ping(setup) => rdma::serve(Service::Echo, setup, announce),
            Self::RawSame | Self::RawMax | Self::RawPing(_) => {
                let listener = raw::listen()?;
                announce(listener.local_addr()?)?;
                Ok(self.serve_raw(raw::accept(&listener)?)?)
            }
        }
    }

    fn serve_raw(self, stream: TcpStream) -> std::io::Result<()> {
        match self {
            Self::RawPing(waiting) => raw::pong(stream, waiting),
            Self::RawMax => raw::receive_frames(stream),
            _ => raw::receive_messages(stream),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RawSame => "raw_same: one write per message",
            Self::RawMax => "raw_max: framed, batched",
            Self::RawPing(Waiting::Poll) => "raw TCP, spinning",
            Self::RawPing(_) => "raw TCP, blocking",
            Self::Stream(Transfer::Write, _) => "RDMA Write",
            Self::Stream(Transfer::Send, _) => "Send",
            Self::Stream(Transfer::Read, _) => "RDMA Read",
            Self::Ping(Setup { waiting: Waiting::Poll, .. }) => "Send, polling",
            Self::Ping(Setup { waiting: Waiting::Wait, .. }) => "Send, waiting",
            Self::Ping(Setup { waiting: Waiting::Sleep, .. }) => "Send, waiting, no spin",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_compared_with_one_of_its_kind() {
        for case in CASES {
            for raw in [case.raw_same(), case.raw_max()] {
                assert!(CASES.contains(&raw), "{case}");
                assert_eq!(raw.unit(), case.unit());
            }
        }
    }

    #[test]
    fn every_case_runs() {
        for case in CASES {
            let (tell, told) = std::sync::mpsc::channel();
            let server = std::thread::spawn(move || {
                case.serve(|address| tell.send(address).map_err(std::io::Error::other))
            });
            let address = told.recv().unwrap();
            let figure = case.measure(address, Duration::from_millis(10)).unwrap();
            assert!(figure > 0.0, "{case}: {figure}");
            server.join().unwrap().unwrap();
        }
    }
}
