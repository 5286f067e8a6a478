//! One thread's part of a measurement, at either side: a dispatcher, a region, endpoints. Owned by
//! that thread. When the peer dies, the receives that are always posted complete with an error.

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

/// Nothing at all from the peer for so long: a safety net, not an expectation.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How long the reason of a broken connection may take to arrive behind its completions.
pub(super) const REASON: Duration = Duration::from_millis(500);

/// Receives beyond those for messages: the empty Send that ends a phase, credits, its answer.
pub(super) const SPARE: u32 = 8;

/// Requests in each queue of a connection that is only made to be measured.
pub(super) const BARE: u32 = 4;

/// An adapter as the case wants it.
pub(super) fn open(case: &Case, device: Option<&str>, serving: bool) -> Result<Ia> {
    // The client decides; a server that does not ask for CRC does as it is asked.
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

/// See the module.
pub(super) struct Worker {
    pub(super) case: Case,
    pub(super) pz: Pz,
    pub(super) evd: Evd,
    pub(super) region: Lmr,
    pub(super) eps: Vec<Ep>,
    srq: Option<Srq>,
    /// Octets that are copied while posting.
    inline: u32,
    places: HashMap<EpId, usize>,
    /// Has the dispatcher's descriptor, where that is waited for.
    set: Option<OwnedFd>,
}

impl Worker {
    /// For `conns` connections. `receives`: how many each of them posts.
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

    /// An endpoint with its receives posted, all into the same memory: nobody looks at it.
    pub(super) fn serving_ep(&mut self) -> Result<Ep> {
        let ep = self.build(true)?;
        let size = self.case.size as usize;
        for n in 0..receives(&self.case, true) as usize {
            let at = n % (self.region.len() / size) * size;
            self.post_recv(&ep, self.region.range(at..at + size)?)?;
        }
        Ok(self.add(ep))
    }

    /// An endpoint with a few receives of its own memory posted, each of so many octets.
    pub(super) fn leading_ep(&mut self, octets: usize) -> Result<Ep> {
        let ep = self.build(false)?;
        for buffer in self.pz.buffers(SPARE as usize, octets)? {
            ep.post_recv(buffer)?;
        }
        Ok(self.add(ep))
    }

    /// An endpoint that is only made to be measured.
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

    /// The octets of a message that is copied while posting, if it is so small.
    pub(super) fn small<'a>(&self, octets: &'a [u8; INLINE as usize]) -> Option<&'a [u8]> {
        octets.get(..self.case.size as usize).filter(|octets| octets.len() <= self.inline as usize)
    }

    /// Which of the endpoints it is.
    pub(super) fn place(&self, ep: EpId) -> Option<usize> {
        // No search on the way of every message where there is nothing to search.
        if self.eps.len() == 1 { Some(0) } else { self.places.get(&ep).copied() }
    }

    /// Posts a receive where the endpoint takes them from.
    pub(super) fn post_recv(&self, ep: &Ep, local: impl Into<Local>) -> Result<()> {
        match &self.srq {
            Some(srq) => srq.post_recv(local)?,
            None => ep.post_recv(local)?,
        };
        Ok(())
    }

    /// Posts receives where the endpoint takes them from, all of them.
    pub(super) fn post_recv_all(&self, ep: &Ep, locals: &mut Vec<Local>) -> Result<()> {
        while !locals.is_empty() {
            match &self.srq {
                Some(srq) => srq.post_recv_all(locals)?,
                None => ep.post_recv_all(locals)?,
            };
        }
        Ok(())
    }

    /// The next completion; `None`: a polling side found nothing, or a waiting one lost patience.
    pub(super) fn next(&self, patience: Duration) -> Result<Option<Completion>> {
        match &self.set {
            Some(set) => self.next_in(set, patience),
            None if self.case.wait => self.evd.wait(patience),
            None => self.evd.poll(),
        }
    }

    /// As an event loop does: takes until there is none, then sleeps in epoll.
    fn next_in(&self, set: &OwnedFd, patience: Duration) -> Result<Option<Completion>> {
        let mut begin = None;
        loop {
            if let Some(completion) = self.evd.poll()? {
                return Ok(Some(completion));
            }
            let waited = begin.get_or_insert_with(Instant::now).elapsed();
            // None: longer than the system can express, so for ever.
            let timeout = rustix::event::Timespec::try_from(patience.saturating_sub(waited)).ok();
            let mut events = [const { MaybeUninit::uninit() }; 1];
            match epoll::wait(set, &mut events, timeout.as_ref()) {
                Ok(([], _)) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(os("epoll_wait", errno)),
            }
        }
    }

    /// Adds completions to `out`; a waiting side waits for one.
    pub(super) fn some(&self, out: &mut Vec<Completion>) -> Result<()> {
        if self.case.wait {
            let first = self.next(PATIENCE)?;
            out.push(first.ok_or(Error::Timeout(PATIENCE))?);
        }
        self.evd.poll_into(out)?;
        Ok(())
    }

    /// What ended the connection of an endpoint whose work failed.
    pub(super) fn broken(&self, ep: EpId, error: Error) -> CliError {
        let ep = self.place(ep).and_then(|place| self.eps.get(place));
        match ep.map(|ep| ep.ended(REASON)) {
            Some(Ok(Some(end))) => CliError::connection(Exit::Network, &end),
            _ => error.into(),
        }
    }

    /// [`Completion::check`], with what ended the connection.
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

/// Requests that a connection's send queue holds. Round trips keep unsignalled ones in their slots
/// until the next signalled one has completed and was taken.
fn sends(case: &Case) -> u32 {
    SPARE + if case.mode == Mode::Lat { case.depth.max(ping_pong::SLOTS) } else { case.depth }
}

/// Receives that a side keeps posted on each connection.
fn receives(case: &Case, serving: bool) -> u32 {
    if serving { case.window() + SPARE } else { SPARE }
}
