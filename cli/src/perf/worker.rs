//! One thread's objects in a measurement, at either side: a dispatcher, a region, endpoints. Owned by that
//! thread. When the peer dies, the posted receives complete with an error.

mod ping_pong;

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;

use itapi::{
    Completion, Crc, Ep, EpBuilder, EpId, Error, Evd, Ia, Lmr, Local, Policy, Pz, Result, Srq,
};

pub(super) use self::ping_pong::{PingPong, is_receive};
use super::case::{Case, INLINE, Mode};
use crate::device::builder;
use crate::error::{CliError, CliResult, Exit};

/// Time-out of a wait for the peer, so that nothing hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How long the reason of a broken connection may arrive after its completions.
pub(super) const REASON: Duration = Duration::from_millis(500);

/// Receives beyond those for messages: for the empty Send that ends a phase, its reply, and credits.
pub(super) const SPARE: u32 = 8;

/// Depth of each queue when connecting is measured.
pub(super) const BARE: u32 = 4;

/// Opens an adapter with the policy of the case.
pub(super) fn open(case: &Case, device: Option<&str>, serving: bool) -> Result<Ia> {
    // The client decides: a server that does not request CRC follows the client's request.
    let crc = if case.crc == Some(true) && !serving { Crc::Require } else { Crc::Off };
    let (spin, local) = (case.spin_us, case.local);
    let policy = move |policy: &mut Policy| {
        policy.crc = crc;
        policy.local = match local {
            None => policy.local,
            Some(true) => ual::LocalStreams::Require,
            Some(false) => ual::LocalStreams::Off,
        };
        if let Some(micros) = spin {
            policy.spin = Duration::from_micros(micros.into());
        }
    };
    builder(device).policy(policy).open()
}

/// The objects of one thread.
pub(super) struct Worker {
    pub(super) case: Case,
    pub(super) pz: Pz,
    pub(super) evd: Evd,
    pub(super) region: Lmr,
    pub(super) eps: Vec<Ep>,
    srq: Option<Srq>,
    /// Longest message in octets that is copied when posted.
    inline: u32,
    places: HashMap<EpId, usize>,
    /// epoll set with the dispatcher's descriptor, if the case waits for it.
    set: Option<OwnedFd>,
}

impl Worker {
    /// Objects for `conns` connections.
    pub(super) fn new(ia: &Ia, case: Case, conns: u32, serving: bool) -> Result<Self> {
        let pz = ia.pz()?;
        let receives = conns * receives(&case, serving);
        let evd = ia.evd(match case.mode {
            Mode::Connect => conns * 2 * BARE,
            _ => receives + conns * sends(&case),
        })?;
        let region = pz.lmr(case.region_len()).remote_read().remote_write().remote_atomic();
        let region = region.register()?;
        let shared = serving && case.srq;
        let srq = if shared { Some(pz.srq(receives, 1)?) } else { None };
        let inline = INLINE.min(ia.attrs().max_inline);
        let (eps, places) = (Vec::new(), HashMap::new());
        let set = if case.fd && case.wait { Some(set_of(&evd)?) } else { None };
        Ok(Self { case, pz, evd, region, eps, srq, inline, places, set })
    }

    /// An endpoint with its receives posted. They share memory, as their content is not used.
    pub(super) fn serving_ep(&mut self) -> Result<Ep> {
        let ep = self.build(true)?;
        let size = self.case.size as usize;
        for n in 0..receives(&self.case, true) as usize {
            let at = n % (self.region.len() / size) * size;
            self.post_recv(&ep, self.region.range(at..at + size)?)?;
        }
        Ok(self.add(ep))
    }

    /// An endpoint with a few posted receives of `octets` octets each, with memory of their own.
    pub(super) fn leading_ep(&mut self, octets: usize) -> Result<Ep> {
        let ep = self.build(false)?;
        for buffer in self.pz.buffers(SPARE as usize, octets)? {
            ep.post_recv(buffer)?;
        }
        Ok(self.add(ep))
    }

    /// An endpoint for measuring connecting.
    pub(super) fn bare_ep(&self) -> EpBuilder<'_> {
        self.pz.ep(&self.evd).depth(BARE, BARE).max_pieces(1)
    }

    fn build(&self, serving: bool) -> Result<Ep> {
        let builder = self.pz.ep(&self.evd).max_pieces(1).max_inline(self.inline);
        let builder = builder.depth(sends(&self.case), receives(&self.case, serving));
        match &self.srq {
            Some(srq) => builder.srq(srq).build(),
            None => builder.build(),
        }
    }

    fn add(&mut self, ep: Ep) -> Ep {
        self.places.insert(ep.id(), self.eps.len());
        self.eps.push(ep.clone());
        ep
    }

    /// The message's octets, if it is small enough to be copied when posted.
    pub(super) fn small<'a>(&self, octets: &'a [u8; INLINE as usize]) -> Option<&'a [u8]> {
        octets.get(..self.case.size as usize).filter(|octets| octets.len() <= self.inline as usize)
    }

    /// Index of an endpoint.
    pub(super) fn place(&self, ep: EpId) -> Option<usize> {
        // No search per message if there is only one.
        if self.eps.len() == 1 { Some(0) } else { self.places.get(&ep).copied() }
    }

    /// Posts a receive to the shared queue or the endpoint.
    pub(super) fn post_recv(&self, ep: &Ep, local: impl Into<Local>) -> Result<()> {
        match &self.srq {
            Some(srq) => srq.post_recv(local)?,
            None => ep.post_recv(local)?,
        };
        Ok(())
    }

    /// Posts all receives to the shared queue or the endpoint.
    pub(super) fn post_recv_all(&self, ep: &Ep, locals: &mut Vec<Local>) -> Result<()> {
        while !locals.is_empty() {
            match &self.srq {
                Some(srq) => srq.post_recv_all(locals)?,
                None => ep.post_recv_all(locals)?,
            };
        }
        Ok(())
    }

    /// The next completion; `None`: polling found none, or waiting timed out.
    pub(super) fn next(&self, patience: Duration) -> Result<Option<Completion>> {
        match &self.set {
            Some(set) => self.next_in(set, patience),
            None if self.case.wait => self.evd.wait(patience),
            None => self.evd.poll(),
        }
    }

    /// Takes a completion as an event loop does: polls until there is none, then sleeps in epoll.
    fn next_in(&self, set: &OwnedFd, patience: Duration) -> Result<Option<Completion>> {
        let mut begin = None;
        loop {
            if let Some(completion) = self.evd.poll()? {
                return Ok(Some(completion));
            }
            let waited = begin.get_or_insert_with(Instant::now).elapsed();
            // None: longer than the system can express, so no time-out.
            let timeout = rustix::event::Timespec::try_from(patience.saturating_sub(waited)).ok();
            let mut events = [const { MaybeUninit::uninit() }; 1];
            match epoll::wait(set, &mut events, timeout.as_ref()) {
                Ok(([], _)) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(os("epoll_wait", errno)),
            }
        }
    }

    /// Appends completions to `out`; a waiting side waits for one.
    pub(super) fn some(&self, out: &mut Vec<Completion>) -> Result<()> {
        if self.case.wait {
            let first = self.next(PATIENCE)?;
            out.push(first.ok_or(Error::Timeout(PATIENCE))?);
        }
        self.evd.poll_into(out)?;
        Ok(())
    }

    /// The error of a failed work request, with the cause that ended its connection.
    pub(super) fn broken(&self, ep: EpId, error: Error) -> CliError {
        let ep = self.place(ep).and_then(|place| self.eps.get(place));
        match ep.map(|ep| ep.ended(REASON)) {
            Some(Ok(Some(end))) => CliError::connection(Exit::Network, &end),
            _ => error.into(),
        }
    }

    /// [`Completion::check`], with the cause that ended the connection.
    pub(super) fn check(&self, completion: &Completion) -> CliResult<()> {
        completion.check().map_err(|error| self.broken(completion.ep, error))
    }
}

/// An epoll set with the dispatcher's descriptor.
fn set_of(evd: &Evd) -> Result<OwnedFd> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| os("epoll_create", e))?;
    let (data, events) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
    epoll::add(&set, evd.fd()?, data, events).map_err(|e| os("epoll_ctl", e))?;
    Ok(set)
}

fn os(what: &'static str, errno: Errno) -> Error {
    Error::Argument(format!("{what}: {errno}"))
}

/// Depth of a connection's send queue. In round trips, unsignalled requests keep their slots until the
/// completion of the next signalled one is taken.
fn sends(case: &Case) -> u32 {
    SPARE + if case.mode == Mode::Lat { case.depth.max(ping_pong::SLOTS) } else { case.depth }
}

/// Receives that a side keeps posted on each connection.
fn receives(case: &Case, serving: bool) -> u32 {
    if serving { case.window() + SPARE } else { SPARE }
}
