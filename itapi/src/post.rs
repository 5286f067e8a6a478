//! From owned work requests to the provider's: scatter/gather lists on the stack, memory into the
//! flight under the queue's lock, back to the caller if the post is refused. No allocation.

use ual::NOTIFY;
use vp_api::{
    Data, PostFailure, QpId, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, Stag, VpStatus,
};

use crate::completion::{Operation, WorkId};
use crate::error::{Error, PostResult, Refused, Result};
use crate::flight::{RecvFlight, SendFlight, Sent};
use crate::lmr::LmrRange;
use crate::remote::RemoteRange;
use crate::work::{Kind, Local, Part, Parts, Payload, Work};

/// Pieces of memory in one work request; providers allow fewer.
const MAX_PIECES: usize = 16;

/// Work requests that go to the provider in one call.
const BATCH: usize = 8;

/// A scatter/gather list on the stack.
struct List {
    sges: [Sge; MAX_PIECES],
    used: usize,
}

impl List {
    fn new() -> Self {
        Self { sges: [Sge::default(); MAX_PIECES], used: 0 }
    }

    fn one(sge: Sge) -> Self {
        let mut list = Self::new();
        (list.sges[0], list.used) = (sge, 1);
        list
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
            let range = memory(part);
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
        let range = memory(part);
        if octets > range.len() as u64 {
            return Err(Error::Argument(format!(
                "{octets} octets are to be read into memory of {}",
                range.len()
            )));
        }
        Ok(Self::one(range.sge(octets as usize)?))
    }

    fn octets(&self) -> u64 {
        self.get().iter().map(|sge| u64::from(sge.len)).sum()
    }

    fn get(&self) -> &[Sge] {
        &self.sges[..self.used]
    }
}

fn memory(part: &Part) -> &LmrRange {
    match part {
        Part::Buffer(buffer) => buffer.range(),
        Part::Range(range) => range,
    }
}

/// `number` as the access layer takes it.
fn wr_id(number: u64, notify: bool) -> u64 {
    if notify { number | NOTIFY } else { number }
}

/// Posts a receive through `post`.
pub(crate) fn receive(
    flight: &mut RecvFlight,
    local: Local,
    notify: bool,
    post: impl FnOnce(&[RecvWr<'_>]) -> std::result::Result<(), PostFailure>,
) -> PostResult<Local> {
    let list = match List::sink(&local) {
        Ok(list) => list,
        Err(error) => return Err(Refused::new(error, local)),
    };
    // A completion cannot be taken before this returns: that needs the lock that the caller holds.
    let number = flight.push(local);
    match post(&[RecvWr { wr_id: wr_id(number, notify), sgl: list.get() }]) {
        Ok(()) => Ok(WorkId(number)),
        Err(failure) => {
            let local = flight.complete(number).unwrap_or_default();
            Err(Refused::new(refusal(Operation::Recv, failure.status), local))
        }
    }
}

/// Posts receives from the front of `locals` through `post`, as many as it takes.
pub(crate) fn receive_all(
    flight: &mut RecvFlight,
    locals: &mut Vec<Local>,
    post: impl Fn(&[RecvWr<'_>]) -> std::result::Result<(), PostFailure>,
) -> Result<usize> {
    let mut posted = 0;
    while !locals.is_empty() {
        let (taken, end) = receive_batch(flight, locals, &post);
        posted += taken;
        match end {
            Some(error) if posted == 0 => return Err(error),
            Some(_) => break,
            None => {}
        }
    }
    Ok(posted)
}

/// Posts one batch; answers how many were taken, and why not all.
fn receive_batch(
    flight: &mut RecvFlight,
    locals: &mut Vec<Local>,
    post: impl Fn(&[RecvWr<'_>]) -> std::result::Result<(), PostFailure>,
) -> (usize, Option<Error>) {
    let mut lists = [const { None }; BATCH];
    let mut bad = None;
    for (room, local) in lists.iter_mut().zip(locals.iter()) {
        match List::sink(local) {
            Ok(list) => *room = Some(list),
            Err(error) => {
                bad = Some(error);
                break;
            }
        }
    }
    let wanted = lists.iter().flatten().count();
    let mut numbers = [0; BATCH];
    for (number, local) in numbers.iter_mut().zip(locals.drain(..wanted)) {
        *number = flight.push(local);
    }
    let wrs: [RecvWr<'_>; BATCH] = std::array::from_fn(|n| RecvWr {
        wr_id: wr_id(numbers[n], true),
        sgl: lists[n].as_ref().map_or(&[], List::get),
    });
    let Err(failure) = post(&wrs[..wanted]) else { return (wanted, bad) };
    let posted = failure.posted.min(wanted);
    let back = numbers[posted..wanted].iter().filter_map(|&number| flight.complete(number));
    let back: Vec<Local> = back.collect();
    locals.splice(..0, back);
    (posted, Some(refusal(Operation::Recv, failure.status)))
}

/// Posts a send-queue work request of `qp` through `post`.
pub(crate) fn send<'a>(
    flight: &mut SendFlight,
    qp: QpId,
    work: Work<'a>,
    post: impl FnOnce(&[SendWr<'_>]) -> std::result::Result<(), PostFailure>,
) -> PostResult<Work<'a>> {
    let (op, list) = match translate(&work) {
        Ok(translated) => translated,
        Err(error) => return Err(Refused::new(error, work)),
    };
    let number = flight.next();
    if let Err(failure) = post(&[request(number, op, &work, &list)]) {
        return Err(Refused::new(refusal(operation(&work.kind), failure.status), work));
    }
    // A completion cannot be taken before this: that needs the lock that the caller holds.
    flight.push(held(work, qp));
    Ok(WorkId(number))
}

/// Posts work requests of `qp` from the front of `works` through `post`, as many as it takes.
/// Answers the number of the first, and how many.
pub(crate) fn send_all(
    flight: &mut SendFlight,
    qp: QpId,
    works: &mut Vec<Work<'_>>,
    post: impl Fn(&[SendWr<'_>]) -> std::result::Result<(), PostFailure>,
) -> Result<(u64, u64)> {
    let (first, mut posted) = (flight.next(), 0);
    while !works.is_empty() {
        let (taken, end) = send_batch(flight, qp, works, &post);
        posted += taken as u64;
        match end {
            Some(error) if posted == 0 => return Err(error),
            Some(_) => break,
            None => {}
        }
    }
    Ok((first, posted))
}

/// Posts one batch; answers how many were taken, and why not all.
fn send_batch(
    flight: &mut SendFlight,
    qp: QpId,
    works: &mut Vec<Work<'_>>,
    post: impl Fn(&[SendWr<'_>]) -> std::result::Result<(), PostFailure>,
) -> (usize, Option<Error>) {
    let mut ops = [const { None }; BATCH];
    let mut lists = [const { None }; BATCH];
    let mut bad = None;
    let mut wanted = 0;
    for (n, work) in works.iter().take(BATCH).enumerate() {
        // A region's new key, or a window's, counts only once its link is posted.
        if wanted > 0 && names_memory_anew(&works[n - 1].kind) {
            break;
        }
        match translate(work) {
            Ok((op, list)) => (ops[n], lists[n]) = (Some(op), Some(list)),
            Err(error) => {
                bad = Some(error);
                break;
            }
        }
        wanted += 1;
    }
    let first = flight.next();
    let (empty, nothing) = (List::new(), Work::immediate(0));
    let wrs: [SendWr<'_>; BATCH] = std::array::from_fn(|n| match ops[n].take() {
        Some(op) => request(first + n as u64, op, &works[n], lists[n].as_ref().unwrap_or(&empty)),
        None => request(0, SendOp::Immediate { data: 0, solicited: false }, &nothing, &empty),
    });
    let (posted, end) = match post(&wrs[..wanted]) {
        Ok(()) => (wanted, bad),
        Err(failure) => {
            let posted = failure.posted.min(wanted);
            let refused = works.get(posted).map_or(Operation::Send, |w| operation(&w.kind));
            (posted, Some(refusal(refused, failure.status)))
        }
    };
    drop(wrs);
    works.drain(..posted).for_each(|work| flight.push(held(work, qp)));
    (posted, end)
}

fn names_memory_anew(kind: &Kind) -> bool {
    matches!(kind, Kind::LinkLmr { .. } | Kind::Link { .. })
}

fn refusal(operation: Operation, status: VpStatus) -> Error {
    Error::Post { operation, status }
}

fn request<'a>(number: u64, op: SendOp, work: &Work<'a>, list: &'a List) -> SendWr<'a> {
    let data = match work.payload {
        Payload::Inline(octets) => Data::Inline(octets),
        Payload::Memory(_) => Data::Sgl(list.get()),
    };
    let notify = work.notify && work.flags.contains(SendFlags::SIGNALED);
    SendWr { wr_id: wr_id(number, notify), op, data, flags: work.flags }
}

/// What must live until the completion.
fn held(work: Work<'_>, qp: QpId) -> Sent {
    let operation = operation(&work.kind);
    let mut local = match work.payload {
        Payload::Memory(local) => local,
        Payload::Inline(_) => Local::default(),
    };
    let window = match work.kind {
        Kind::Link { rmr, range, .. } => Some(rmr.linking(&range, qp)),
        Kind::Unlink { rmr } | Kind::ReadToWindow { rmr, .. } => Some(rmr.using()),
        Kind::LinkLmr { lmr } => {
            lmr.linking();
            local = Local(Parts::One(Part::Range(lmr.whole())));
            None
        }
        Kind::UnlinkLmr { lmr } => {
            local = Local(Parts::One(Part::Range(lmr.whole())));
            None
        }
        _ => None,
    };
    Sent { operation, local, _window: window }
}

fn operation(kind: &Kind) -> Operation {
    match kind {
        Kind::Send { .. } => Operation::Send,
        Kind::Write { .. } => Operation::Write,
        Kind::Immediate { .. } => Operation::Immediate,
        Kind::Read { .. } | Kind::ReadToWindow { .. } => Operation::Read,
        Kind::Atomic { .. } => Operation::Atomic,
        Kind::Link { .. } => Operation::Link,
        Kind::Unlink { .. } => Operation::Unlink,
        Kind::LinkLmr { .. } => Operation::LinkLmr,
        Kind::UnlinkLmr { .. } => Operation::UnlinkLmr,
    }
}

fn remote(range: &RemoteRange) -> Remote {
    Remote { stag: Stag(range.context.0), to: range.addr }
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
        Kind::Read { remote: from, unlink_sink }
        | Kind::ReadToWindow { remote: from, unlink_sink, .. } => {
            SendOp::Read { remote: remote(from), invalidate_sink: *unlink_sink }
        }
        Kind::Atomic { remote: at, op } => SendOp::Atomic { remote: remote(at), op: *op },
        Kind::Link { rmr, range, access, addressing } => rmr.bind(range, *access, *addressing),
        Kind::Unlink { rmr } => rmr.unbind(),
        Kind::LinkLmr { lmr } => lmr.link(),
        Kind::UnlinkLmr { lmr } => SendOp::InvalidateLocal { stag: lmr.stag() },
    };
    Ok((op, list_of(work)?))
}

fn list_of(work: &Work<'_>) -> Result<List> {
    let (local, inline) = match &work.payload {
        Payload::Memory(local) => (Some(local), 0),
        Payload::Inline(octets) => (None, octets.len() as u64),
    };
    match (&work.kind, local) {
        (Kind::Read { remote, unlink_sink }, Some(local)) => {
            if *unlink_sink && matches!(local.parts(), [Part::Buffer(_)]) {
                return Err(Error::Argument(
                    "a buffer cannot be unlinked: read into a range of a region".into(),
                ));
            }
            List::first(local, remote.len)
        }
        (Kind::ReadToWindow { remote, rmr, offset, .. }, _) => {
            Ok(List::one(rmr.sink(*offset, remote.len)?))
        }
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
