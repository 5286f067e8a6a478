//! One end of a case's connection: its objects, connecting and disconnecting. All waits have time-outs.

use std::sync::LazyLock;
use std::time::Duration;

use itapi::{
    BrokenCause, Buffer, Completion, ConnEvent, Ep, Evd, Lmr, Pz, RemoteRange, Request, Terminate,
    WcStatus, Work,
};

use crate::cases::{Case, Code, LARGE, Lead, Offer};
use crate::side::{Fail, Seen, Side};

/// Time-out of a response, also on an emulated machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Filler of private data, and its greatest length: Linux counts that of replies in an octet, with the 4 octets
/// of the enhanced block [IOP-02].
const FILLER: u8 = 0x77;
const FULL: usize = 251;

pub(crate) struct End<'a> {
    pub(crate) side: &'a Side,
    pub(crate) case: &'static Case,
    pub(crate) leads: bool,
    connects: bool,
    pub(crate) pz: Pz,
    pub(crate) ep: Ep,
    sent: Evd,
    came: Evd,
    /// This end's memory, unless it was deregistered.
    pub(crate) board: Option<Lmr>,
    /// The description of it for the other end.
    own: RemoteRange,
    /// The other end's memory.
    pub(crate) peer: RemoteRange,
}

impl<'a> End<'a> {
    fn new(side: &'a Side, case: &'static Case, lead: Lead, connects: bool) -> Result<Self, Fail> {
        let leads = connects == (lead == Lead::Connector);
        let (pz, sent, came) = (side.ia.pz()?, side.ia.evd(16)?, side.ia.evd(16)?);
        let lmr = board(side, &pz, if leads { Offer::All } else { case.offer })?;
        lmr.write_at(0, pattern(LARGE, 0))?;
        let own = lmr.remote();
        let gone = !leads && case.offer == Offer::Gone;
        let ep = pz.ep(&sent).recv_evd(&came).depth(8, 8).max_pieces(1).reads(4, 4).build()?;
        let board = (!gone).then_some(lmr);
        let end = Self { side, case, leads, connects, pz, ep, sent, came, board, own, peer: own };
        end.receive(64)?;
        for _ in 0..case.receives.0 {
            end.receive(case.receives.1)?;
        }
        Ok(end)
    }

    pub(crate) fn connect(
        side: &'a Side,
        case: &'static Case,
        lead: Lead,
        address: &str,
    ) -> Result<Self, Fail> {
        let mut end = Self::new(side, case, lead, true)?;
        let name = case.name(lead);
        let call = [name.as_bytes(), &[0], &end.own.to_octets()].concat();
        let attrs = side.ia.attrs();
        let established =
            end.ep.connect(address, &filled(call, case, attrs.max_private_connect))?;
        end.peer = range(&established.private_data, 0, case, attrs.max_private_accept)?;
        Ok(end)
    }

    pub(crate) fn accept(
        side: &'a Side,
        case: &'static Case,
        lead: Lead,
        request: Request,
    ) -> Result<Self, Fail> {
        let mut end = Self::new(side, case, lead, false)?;
        let (head, attrs) = (case.name(lead).len() + 1, side.ia.attrs());
        end.peer = range(request.private_data(), head, case, attrs.max_private_connect)?;
        let own = end.own.to_octets().to_vec();
        request.accept(&end.ep, &filled(own, case, attrs.max_private_accept))?;
        Ok(end)
    }

    /// The first message comes from the connecting end [CONN-11]; its reply shows that both ends are connected.
    /// A close before that crashes Linux's connection manager.
    pub(crate) fn begin(&self) -> Result<(), Fail> {
        if self.connects {
            self.send(b"begin")?;
            return self.take().map(drop);
        }
        self.take()?;
        self.send(b"begun")
    }

    fn receive(&self, octets: usize) -> Result<(), Fail> {
        self.ep.post_recv(self.pz.buffer(octets)?)?;
        Ok(())
    }

    /// A buffer with these octets.
    pub(crate) fn buffer(&self, octets: &[u8]) -> Result<Buffer, Fail> {
        let mut buffer = self.pz.buffer(octets.len().max(1))?;
        buffer.fill(octets)?;
        Ok(buffer)
    }

    /// Posts, and waits for its completion.
    pub(crate) fn post(&self, work: Work<'_>) -> Result<Completion, Fail> {
        self.start(work)?;
        self.done()
    }

    pub(crate) fn start(&self, work: Work<'_>) -> Result<(), Fail> {
        self.ep.post(work)?;
        Ok(())
    }

    /// The next completion of a posted request, which must be a success.
    pub(crate) fn done(&self) -> Result<Completion, Fail> {
        let completion = self.ends()?;
        completion.check()?;
        Ok(completion)
    }

    /// The next completion of a posted request.
    pub(crate) fn ends(&self) -> Result<Completion, Fail> {
        let completion = self.sent.wait(PATIENCE)?;
        Ok(completion.ok_or("what was posted does not complete")?)
    }

    pub(crate) fn send(&self, octets: &[u8]) -> Result<(), Fail> {
        self.post(Work::send(octets)).map(drop)
    }

    /// The next message; its receive is posted again.
    pub(crate) fn next_message(&self) -> Result<(Vec<u8>, Completion), Fail> {
        let (buffer, completion) = self.take()?;
        let octets = buffer.to_vec();
        self.ep.post_recv(buffer)?;
        Ok((octets, completion))
    }

    fn take(&self) -> Result<(Buffer, Completion), Fail> {
        let mut completion = self.came.wait(PATIENCE)?.ok_or("no message comes")?;
        completion.check()?;
        let local = std::mem::take(&mut completion.local);
        Ok((local.into_buffer().ok_or("a receive without its buffer")?, completion))
    }

    /// Ends the connection in order.
    pub(crate) fn close(&self) -> Result<Seen, Fail> {
        self.ep.disconnect()?;
        match self.ended()? {
            ConnEvent::Disconnected { .. } => Ok(Seen::ok("")),
            other => Err(format!("closing: {other}").into()),
        }
    }

    /// Waits until the other end disconnects in order.
    pub(crate) fn is_closed(&self) -> Result<Seen, Fail> {
        match self.ended()? {
            ConnEvent::Disconnected { by_peer: true, .. } => Ok(Seen::ok("")),
            other => Err(format!("the other end was to close: {other}").into()),
        }
    }

    /// Asserts that the other end refused what this one did. Not every provider's events have the details.
    pub(crate) fn is_terminated(&self, code: Code) -> Result<Seen, Fail> {
        let event = self.ended()?;
        Ok(match event {
            other if !self.side.is_ours => Seen::Ok(short(&other)),
            ConnEvent::Broken { cause: BrokenCause::TerminatedByPeer(t), .. } => {
                let text = format!("Terminate {} received", shown(t));
                if (t.layer, t.etype, t.code) == code {
                    Seen::Ok(text)
                } else {
                    Seen::Differs(text)
                }
            }
            other => Seen::Differs(short(&other)),
        })
    }

    /// Asserts that this end refused what the other did.
    pub(crate) fn terminates(&self, code: Code) -> Result<Seen, Fail> {
        let event = self.ended()?;
        match event {
            ConnEvent::Broken { cause: BrokenCause::Terminated(t), .. }
                if (t.layer, t.etype, t.code) == code =>
            {
                Ok(Seen::Ok(format!("Terminate {} sent", shown(t))))
            }
            other if self.side.is_ours => Err(format!("it ended in another way: {other}").into()),
            other => Ok(Seen::Ok(short(&other))),
        }
    }

    fn ended(&self) -> Result<ConnEvent, Fail> {
        Ok(self.ep.ended(PATIENCE)?.ok_or("the connection does not end")?)
    }

    /// Whether a work request was flushed or refused.
    pub(crate) fn failed(completion: &Completion) -> bool {
        completion.status != WcStatus::Success
    }
}

fn shown(terminate: Terminate) -> String {
    format!("{}/{}/{}", terminate.layer, terminate.etype, terminate.code)
}

/// Text of an end of connection, without the addresses.
fn short(event: &ConnEvent) -> String {
    match event {
        ConnEvent::Disconnected { .. } => "closed by the other end".into(),
        ConnEvent::Broken { cause, .. } => cause.code().into(),
        other => other.to_string(),
    }
}

/// The memory that an end offers.
fn board(side: &Side, pz: &Pz, offer: Offer) -> Result<Lmr, Fail> {
    let other = side.ia.pz()?;
    let builder = if offer == Offer::OtherZone { other.lmr(LARGE) } else { pz.lmr(LARGE) };
    Ok(match offer {
        Offer::ReadOnly => builder.remote_read().register()?,
        Offer::WriteOnly => builder.remote_write().register()?,
        _ => builder.remote_read().remote_write().register()?,
    })
}

/// `most`: the provider's limit; 0: large enough.
fn filled(mut octets: Vec<u8>, case: &Case, most: u32) -> Vec<u8> {
    if case.fills {
        octets.resize(full(most), FILLER);
    }
    octets
}

fn full(most: u32) -> usize {
    if most == 0 { FULL } else { FULL.min(most as usize) }
}

/// The range after the first `head` octets of private data, which must be the filler.
fn range(octets: &[u8], head: usize, case: &Case, most: u32) -> Result<RemoteRange, Fail> {
    let needed = head + RemoteRange::ENCODED_LEN;
    let len = if case.fills { full(most) } else { needed };
    let (used, rest) = octets.split_at_checked(needed).unwrap_or_default();
    if octets.len() != len || rest.iter().any(|octet| *octet != FILLER) {
        return Err(format!("{len} octets of private data were sent, not {octets:?}").into());
    }
    Ok(RemoteRange::from_octets(&used[head..]).ok_or("no memory in the private data")?)
}

/// Octets that differ from their neighbours, and by seed.
pub(crate) fn pattern(len: usize, seed: usize) -> &'static [u8] {
    static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..2 * LARGE).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8).collect()
    });
    &ALL[seed..seed + len]
}
