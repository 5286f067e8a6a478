//! From owned work requests to the provider's: scatter/gather lists on the stack, memory into the
//! flight under the queue's lock, back to the caller if the post is refused.

use vp_api::{Data, PostFailure, RecvWr, Remote, SendOp, SendWr, Sge};

use crate::completion::{Operation, WorkId};
use crate::error::{Error, PostResult, Refused, Result};
use crate::flight::{RecvFlight, SendFlight, Sent};
use crate::lmr::RemoteRange;
use crate::work::{Kind, Local, Part, Parts, Payload, Work};

/// Pieces of memory in one work request; providers allow fewer.
const MAX_PIECES: usize = 16;

/// A scatter/gather list on the stack.
struct List {
    sges: [Sge; MAX_PIECES],
    used: usize,
}

impl List {
    fn new() -> Self {
        Self { sges: [Sge::default(); MAX_PIECES], used: 0 }
    }

    fn push(&mut self, sge: Sge) -> Result<()> {
        let room = self.sges.get_mut(self.used).ok_or_else(|| {
            Error::Argument(format!("more than {MAX_PIECES} pieces of memory in one work request"))
        })?;
        *room = sge;
        self.used += 1;
        Ok(())
    }

    /// What a Send or RDMA Write takes: valid octets of buffers, all of ranges.
    fn source(local: &Local) -> Result<Self> {
        let mut list = Self::new();
        for part in local.parts() {
            list.push(match part {
                Part::Buffer(buffer) => buffer.range().sge(buffer.len())?,
                Part::Range(range) => range.sge(range.len())?,
            })?;
        }
        Ok(list)
    }

    /// Where a receive goes: all of everything.
    fn sink(local: &Local) -> Result<Self> {
        let mut list = Self::new();
        for part in local.parts() {
            let range = match part {
                Part::Buffer(buffer) => buffer.range(),
                Part::Range(range) => range,
            };
            list.push(range.sge(range.len())?)?;
        }
        Ok(list)
    }

    /// Where `octets` of a read or atomic go: the first octets of the one piece.
    fn first(local: &Local, octets: u64) -> Result<Self> {
        let [part] = local.parts() else {
            return Err(Error::Argument(
                "a read or atomic needs exactly one piece of memory".into(),
            ));
        };
        let range = match part {
            Part::Buffer(buffer) => buffer.range(),
            Part::Range(range) => range,
        };
        if octets > range.len() as u64 {
            return Err(Error::Argument(format!(
                "{octets} octets are to be read into memory of {}",
                range.len()
            )));
        }
        let mut list = Self::new();
        list.push(range.sge(octets as usize)?)?;
        Ok(list)
    }

    fn octets(&self) -> u64 {
        self.get().iter().map(|sge| u64::from(sge.len)).sum()
    }

    fn get(&self) -> &[Sge] {
        &self.sges[..self.used]
    }
}

/// Posts a receive through `post`.
pub(crate) fn receive(
    flight: &mut RecvFlight,
    local: Local,
    post: impl FnOnce(RecvWr<'_>) -> std::result::Result<(), PostFailure>,
) -> PostResult<Local> {
    let list = match List::sink(&local) {
        Ok(list) => list,
        Err(error) => return Err(Refused::new(error, local)),
    };
    match post(RecvWr { wr_id: flight.next(), sgl: list.get() }) {
        Ok(()) => Ok(WorkId(flight.push(local))),
        Err(failure) => Err(Refused::new(
            Error::Post { operation: Operation::Recv, status: failure.status },
            local,
        )),
    }
}

/// Posts a send-queue work request through `post`.
pub(crate) fn send<'a>(
    flight: &mut SendFlight,
    work: Work<'a>,
    post: impl FnOnce(SendWr<'_>) -> std::result::Result<(), PostFailure>,
) -> PostResult<Work<'a>> {
    let operation = operation(&work.kind);
    let (op, list) = match translate(&work) {
        Ok(translated) => translated,
        Err(error) => return Err(Refused::new(error, work)),
    };
    let number = flight.next();
    let data = match &work.payload {
        Payload::Inline(octets) => Data::Inline(octets),
        Payload::Memory(_) => Data::Sgl(list.get()),
    };
    if let Err(failure) = post(SendWr { wr_id: number, op, data, flags: work.flags }) {
        return Err(Refused::new(Error::Post { operation, status: failure.status }, work));
    }
    // A completion cannot be taken before this: that needs the lock that we hold.
    flight.push(Sent { operation, local: held(work) });
    Ok(WorkId(number))
}

/// What must live until the completion.
fn held(work: Work<'_>) -> Local {
    let previous = match work.kind {
        // The window keeps its new region; until then the old one may still be linked.
        Kind::Link { rmr, range, .. } => rmr.keep(Some(range)),
        Kind::Unlink { rmr } => rmr.keep(None),
        _ => None,
    };
    match (work.payload, previous) {
        (_, Some(range)) => Local(Parts::One(Part::Range(range))),
        (Payload::Memory(local), None) => local,
        (Payload::Inline(_), None) => Local::default(),
    }
}

fn operation(kind: &Kind) -> Operation {
    match kind {
        Kind::Send { .. } => Operation::Send,
        Kind::Write { .. } => Operation::Write,
        Kind::Immediate { .. } => Operation::Immediate,
        Kind::Read { .. } => Operation::Read,
        Kind::Atomic { .. } => Operation::Atomic,
        Kind::Link { .. } | Kind::Unlink { .. } => Operation::Link,
    }
}

fn remote(range: &RemoteRange) -> Remote {
    Remote { stag: vp_api::Stag(range.context.0), to: range.addr }
}

fn translate(work: &Work<'_>) -> Result<(SendOp, List)> {
    let op = match &work.kind {
        Kind::Send { solicited, invalidate } => {
            SendOp::Send { solicited: *solicited, invalidate: *invalidate }
        }
        Kind::Write { remote: to, immediate: None, .. } => SendOp::Write { remote: remote(to) },
        Kind::Write { remote: to, immediate: Some(data), solicited } => {
            SendOp::WriteImmediate { remote: remote(to), data: *data, solicited: *solicited }
        }
        Kind::Immediate { data, solicited } => {
            SendOp::Immediate { data: *data, solicited: *solicited }
        }
        Kind::Read { remote: from, invalidate_sink } => {
            SendOp::Read { remote: remote(from), invalidate_sink: *invalidate_sink }
        }
        Kind::Atomic { remote: at, op } => SendOp::Atomic { remote: remote(at), op: *op },
        Kind::Link { rmr, range, access } => rmr.bind(range, *access),
        Kind::Unlink { rmr } => rmr.unbind(),
    };
    Ok((op, list_of(work)?))
}

fn list_of(work: &Work<'_>) -> Result<List> {
    let (local, inline) = match &work.payload {
        Payload::Memory(local) => (Some(local), 0),
        Payload::Inline(octets) => (None, octets.len() as u64),
    };
    match (&work.kind, local) {
        (Kind::Read { remote, .. }, Some(local)) => List::first(local, remote.len),
        (Kind::Atomic { .. }, Some(local)) => List::first(local, 8),
        (kind, local) => {
            let list = local.map_or(Ok(List::new()), List::source)?;
            if let Kind::Write { remote, .. } = kind {
                fits(list.octets() + inline, remote)?;
            }
            Ok(list)
        }
    }
}

/// The peer would end the connection over an RDMA Write that does not fit; say so here instead.
fn fits(octets: u64, remote: &RemoteRange) -> Result<()> {
    if octets > remote.len {
        return Err(Error::Argument(format!(
            "an RDMA Write of {octets} octets to memory of {}",
            remote.len
        )));
    }
    Ok(())
}
