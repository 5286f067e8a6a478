//! The measuring side over IT-API: streams of RDMA Writes, Sends and RDMA Reads, and round trips.
//!
//! All objects belong to the thread that measures. When the peer dies, the receives that are always
//! posted complete with an error.
//!
//! The measuring side ends with an empty Send, which the other answers: then all octets have been
//! placed. Sends are under
//! credit, because iWARP ends a connection whose Sends find no receive (RFC 5041 section 7).

use std::net::SocketAddr;
use std::time::Duration;

use itapi::{
    Completion, Config, Crc, Ep, Error, Evd, Ia, Lmr, LmrRange, Operation, RemoteRange, Result,
    Work,
};

use crate::meter::{Laps, Meter};
pub use crate::rdma_serve::{Service, serve};
use crate::{DEPTH, MESSAGE, PING, WORKING_SET, Waiting};

/// A safety net, not an expectation.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Receives of 64 KiB at the serving side.
pub(crate) const RECEIVES: usize = 2 * DEPTH;
/// Receives that one credit message gives back.
pub(crate) const CREDIT: usize = RECEIVES / 4;
/// Octets of a receive for everything else.
pub(crate) const SMALL: usize = 64;
/// Of so many pings one asks for a completion.
pub(crate) const SIGNAL_EVERY: u64 = 16;

/// What moves 64 KiB messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// RDMA Write.
    Write,
    /// Send.
    Send,
    /// RDMA Read.
    Read,
}

/// How a connection is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// CRC on.
    pub crc: bool,
    /// Both sides wait so.
    pub waiting: Waiting,
}

impl Setup {
    /// An adapter with the default policy, but for this.
    pub(crate) fn open(self) -> Result<Ia> {
        let change = move |policy: &mut itapi::Policy| {
            policy.crc = if self.crc { Crc::Prefer } else { Crc::Off };
            if self.waiting == Waiting::Sleep {
                policy.spin = Duration::ZERO;
            }
        };
        Ia::builder().config(Config::default()).policy(change).open()
    }
}

/// Where completions come from.
pub(crate) struct Source {
    pub(crate) evd: Evd,
    pub(crate) waiting: Waiting,
}

impl Source {
    /// The next completion, a success.
    pub(crate) fn next(&self) -> Result<Completion> {
        if self.waiting != Waiting::Poll {
            return self.evd.wait_success(PATIENCE);
        }
        loop {
            if let Some(completion) = self.evd.poll()? {
                completion.check()?;
                return Ok(completion);
            }
            std::hint::spin_loop();
        }
    }

    /// The next receive, a success; other completions before it are dropped.
    pub(crate) fn received(&self) -> Result<Completion> {
        loop {
            let completion = self.next()?;
            if completion.operation == Operation::Recv {
                return Ok(completion);
            }
        }
    }
}

/// The measuring side of a connection.
pub struct Client {
    ep: Ep,
    source: Source,
    region: Lmr,
    remote: RemoteRange,
}

impl Client {
    /// Connects to [`serve`].
    pub fn connect(address: SocketAddr, setup: Setup) -> Result<Self> {
        let ia = setup.open()?;
        let (pz, evd) = (ia.pz()?, ia.evd(512)?);
        let region = pz.lmr(WORKING_SET).register()?;
        region.write_at(0, &vec![1; WORKING_SET])?;
        let ep = pz.ep(&evd).depth(64, 64).build()?;
        for buffer in pz.buffers(RECEIVES / CREDIT + 1, SMALL)? {
            ep.post_recv(buffer)?;
        }
        let established = ep.connect(address, &[])?;
        let remote = RemoteRange::from_octets(&established.private_data)
            .ok_or_else(|| Error::Argument("the second process sent no key".into()))?;
        Ok(Self { ep, source: Source { evd, waiting: setup.waiting }, region, remote })
    }

    /// 64 KiB messages, 16 under way. GB/s.
    pub fn stream(self, transfer: Transfer, slice: Duration) -> Result<f64> {
        let (mut posted, mut done, mut credits) = (0, 0, RECEIVES);
        let mut meter = Meter::new(slice);
        loop {
            let over = meter.is_over();
            if over && posted == done {
                break;
            }
            while !over && posted - done < DEPTH && credits > 0 {
                self.ep.post(self.message(transfer, posted % DEPTH)?)?;
                posted += 1;
                credits -= usize::from(transfer == Transfer::Send);
            }
            let completion = self.source.next()?;
            if completion.operation == Operation::Recv {
                self.post_again(completion)?;
                credits += CREDIT;
            } else {
                done += 1;
                meter.add(MESSAGE);
            }
        }
        let received = self.confirm()?;
        let figure = meter.gigabytes_per_second();
        if transfer == Transfer::Send {
            meter.check(received).map_err(Error::Argument)?;
        }
        self.ep.disconnect()?;
        Ok(figure)
    }

    fn message(&self, transfer: Transfer, slot: usize) -> Result<Work<'static>> {
        let start = slot * MESSAGE;
        let local: LmrRange = self.region.range(start..start + MESSAGE)?;
        let remote = || self.remote.slice(start as u64..(start + MESSAGE) as u64);
        Ok(match transfer {
            Transfer::Write => Work::write(local, remote()?),
            Transfer::Send => Work::send(local),
            Transfer::Read => Work::read(remote()?, local),
        })
    }

    /// Small Sends there and back; half a round trip in microseconds.
    pub fn ping(self, slice: Duration) -> Result<f64> {
        let mut laps = Laps::new(slice);
        for number in 0.. {
            self.ep.post(ping(number))?;
            self.post_again(self.source.received()?)?;
            if laps.lap() {
                break;
            }
        }
        self.confirm()?;
        self.ep.disconnect()?;
        Ok(laps.half_round_trip())
    }

    /// An empty Send there, and back how many octets came in Sends. Credits, which are shorter, may
    /// still be on their way.
    fn confirm(&self) -> Result<u64> {
        self.ep.post(Work::send(&[]))?;
        loop {
            let buffer = self.source.received()?.into_buffer();
            if let Some(Ok(count)) = buffer.map(|buffer| buffer.to_vec().try_into()) {
                return Ok(u64::from_be_bytes(count));
            }
        }
    }

    fn post_again(&self, completion: Completion) -> Result<()> {
        if let Some(buffer) = completion.into_buffer() {
            self.ep.post_recv(buffer)?;
        }
        Ok(())
    }
}

/// A small Send.
pub(crate) fn ping(number: u64) -> Work<'static> {
    let ping = Work::send(&[1; PING]);
    if number.is_multiple_of(SIGNAL_EVERY) { ping } else { ping.unsignalled() }
}
