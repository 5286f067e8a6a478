//! Translates work requests for the provider and posts them. Scatter/gather lists are on the stack. The memory
//! of posted requests moves to the queue's flight, under its lock; that of refused ones returns to the caller.
//! Only the flight allocates.

use ual::{EpState, NOTIFY};
use vp_api::{
    Data, PostFailure, QpId, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, Stag, VpError,
    VpStatus,
};

use crate::error::{Error, PostResult, Refused, Result};
use crate::flight::{RecvFlight, SendFlight, Sent};
use crate::ids::{Operation, WorkId};
use crate::remote::RemoteRange;
use crate::rmr::Pending;
use crate::tuning::POST_BATCH;
use crate::work::{Kind, Local, Part, Parts, Payload, Work};

/// Pieces of memory in one work request; providers allow fewer.
const MAX_PIECES: usize = 16;

/// A scatter/gather list on the stack. Most have one element, and only that is initialized.
#[expect(clippy::large_enum_variant, reason = "on the stack, and never moved")]
enum List {
    Empty,
    One(Sge),
    Many { sges: [Sge; MAX_PIECES], used: usize },
}

impl List {
    /// The source of a Send or RDMA Write: valid octets of buffers, whole ranges.
    fn source(&mut self, local: &Local) -> Result<()> {
        self.each(local, |part| match part {
            Part::Buffer(buffer) => buffer.sge(buffer.len()),
            Part::Range(range) => range.sge(range.len()),
        })
    }

    /// The sink of a receive: whole buffers and ranges.
    fn sink(&mut self, local: &Local) -> Result<()> {
        self.each(local, |part| part.sge(part.room()))
    }

    fn each(&mut self, local: &Local, sge: impl Fn(&Part) -> Result<Sge>) -> Result<()> {
        *self = match local.parts() {
            [] => Self::Empty,
            [part] => Self::One(sge(part)?),
            parts if parts.len() > MAX_PIECES => {
                return Err(Error::Argument(format!(
                    "more than {MAX_PIECES} pieces of memory in one work request"
                )));
            }
            parts => {
                let mut sges = [Sge::default(); MAX_PIECES];
                for (room, part) in sges.iter_mut().zip(parts) {
                    *room = sge(part)?;
                }
                Self::Many { sges, used: parts.len() }
            }
        };
        Ok(())
    }

    /// The sink of a read or atomic of `octets`: the first octets of its one piece.
    fn first(&mut self, local: &Local, octets: u64) -> Result<()> {
        let [part] = local.parts() else {
            return Err(Error::Argument(
                "a read or atomic needs exactly one piece of memory".into(),
            ));
        };
        if octets > part.room() as u64 {
            return Err(Error::Argument(format!(
                "{octets} octets are to be read into memory of {}",
                part.room()
            )));
        }
        *self = Self::One(part.sge(octets as usize)?);
        Ok(())
    }

    fn octets(&self) -> u64 {
        self.get().iter().map(|sge| u64::from(sge.len)).sum()
    }

    fn get(&self) -> &[Sge] {
        match self {
            Self::Empty => &[],
            Self::One(sge) => std::slice::from_ref(sge),
            Self::Many { sges, used } => &sges[..*used],
        }
    }
}

/// Empty lists for a batch; only their tags are written.
fn lists() -> [List; POST_BATCH] {
    std::array::from_fn(|_| List::Empty)
}

/// `number` with the flag by which the access layer notifies.
fn wr_id(number: u64, notify: bool) -> u64 {
    if notify { number | NOTIFY } else { number }
}

/// Posts a receive of `poster` through `post`.
pub(crate) fn receive(
    flight: &mut RecvFlight,
    local: Local,
    notify: bool,
    post: impl FnOnce(&[RecvWr<'_>]) -> std::result::Result<(), PostFailure>,
    poster: &impl Poster,
) -> PostResult<Local> {
    let mut list = List::Empty;
    if let Err(error) = list.sink(&local) {
        return Err(Refused::new(error, local));
    }
    if let Err(why) = flight.room(1) {
        return Err(Refused::new(no_room(Operation::Recv, why, poster), local));
    }
    // A completion cannot be taken before this returns: that needs the lock that the caller holds.
    let number = flight.push(local);
    match post(&[RecvWr { wr_id: wr_id(number, notify), sgl: list.get() }]) {
        Ok(()) => Ok(WorkId(number)),
        Err(failure) => {
            let local = flight.refused(number).unwrap_or_default();
            Err(Refused::new(refusal(Operation::Recv, failure.status, poster), local))
        }
    }
}

/// Posts receives of `poster` from the front of `locals` through `post`, as many as it takes.
pub(crate) fn receive_all(
    flight: &mut RecvFlight,
    locals: &mut Vec<Local>,
    post: impl Fn(&[RecvWr<'_>]) -> std::result::Result<(), PostFailure>,
    poster: &impl Poster,
) -> Result<usize> {
    let mut posted = 0;
    while !locals.is_empty() {
        let (taken, end) = receive_batch(flight, locals, &post, poster);
        posted += taken;
        match end {
            Some(error) if posted == 0 => return Err(error),
            Some(_) => break,
            None => {}
        }
    }
    Ok(posted)
}

/// Posts one batch; returns how many were taken, and why not all.
fn receive_batch(
    flight: &mut RecvFlight,
    locals: &mut Vec<Local>,
    post: impl Fn(&[RecvWr<'_>]) -> std::result::Result<(), PostFailure>,
    poster: &impl Poster,
) -> (usize, Option<Error>) {
    let room = match flight.room(locals.len().min(POST_BATCH)) {
        Ok(room) => room,
        Err(why) => return (0, Some(no_room(Operation::Recv, why, poster))),
    };
    let (mut lists, mut bad, mut wanted) = (lists(), None, 0);
    for (list, local) in lists.iter_mut().zip(locals.iter()).take(room) {
        if let Err(error) = list.sink(local) {
            bad = Some(error);
            break;
        }
        wanted += 1;
    }
    let mut numbers = [0; POST_BATCH];
    for (number, local) in numbers.iter_mut().zip(locals.drain(..wanted)) {
        *number = flight.push(local);
    }
    let wrs: [RecvWr<'_>; POST_BATCH] =
        std::array::from_fn(|n| RecvWr { wr_id: wr_id(numbers[n], true), sgl: lists[n].get() });
    let Err(failure) = post(&wrs[..wanted]) else { return (wanted, bad) };
    let posted = failure.posted.min(wanted);
    let back = numbers[posted..wanted].iter().filter_map(|&number| flight.refused(number));
    let back: Vec<Local> = back.collect();
    locals.splice(..0, back);
    (posted, Some(refusal(Operation::Recv, failure.status, poster)))
}

/// Posts a send-queue work request of `qp`, which `poster` has, through `post`.
pub(crate) fn send<'a>(
    flight: &mut SendFlight,
    qp: QpId,
    work: Work<'a>,
    post: impl FnOnce(&[SendWr<'_>]) -> std::result::Result<(), PostFailure>,
    poster: &impl Poster,
) -> PostResult<Work<'a>> {
    let (mut list, mut wr) = (List::Empty, BLANK);
    let number = match flight.room(1, is_quiet(&work)) {
        Ok((number, _)) => number,
        Err(why) => return Err(Refused::new(no_room(operation(&work.kind), why, poster), work)),
    };
    let link = match to_link(&work.kind) {
        Ok(link) => link,
        Err(error) => return Err(Refused::new(error, work)),
    };
    if let Err(error) = translate(number, &work, &mut list, &mut wr) {
        return Err(Refused::new(error, work));
    }
    if let Err(failure) = post(&[wr]) {
        return Err(Refused::new(refusal_of(&work, failure.status, poster), work));
    }
    // A completion cannot be taken before this: that needs the lock that the caller holds.
    hold(flight, work, link, qp);
    Ok(WorkId(number))
}

/// Posts work requests of `qp` from the front of `works` through `post`, as many as it takes.
/// Returns the number of the first, and how many.
pub(crate) fn send_all(
    flight: &mut SendFlight,
    qp: QpId,
    works: &mut Vec<Work<'_>>,
    post: impl Fn(&[SendWr<'_>]) -> std::result::Result<(), PostFailure>,
    poster: &impl Poster,
) -> Result<(u64, u64)> {
    let Some(work) = works.first() else { return Ok((0, 0)) };
    let refused = |why| no_room(operation(&work.kind), why, poster);
    let quiet = works.iter().any(is_quiet);
    let (first, mut room) = flight.room(works.len(), quiet).map_err(refused)?;
    let (mut posted, mut taken, mut end) = (0, 0, None);
    while end.is_none() && taken < room {
        let number = first + posted + taken as u64;
        let batch = send_batch(number, &works[taken..room], &post, poster);
        let mut link = batch.link;
        taken += batch.posted;
        end = batch.end;
        // A link gives a region or window a new key, valid once it is posted, so its batch ends here. Other
        // requests move to the flight together.
        let anew = taken > 0 && names_memory_anew(&works[taken - 1].kind);
        if anew || end.is_some() || taken == room {
            for work in works.drain(..taken) {
                let link = if is_link(&work.kind) { link.take() } else { None };
                hold(flight, work, link, qp);
            }
            posted += taken as u64;
            room -= std::mem::take(&mut taken);
        }
    }
    match end {
        Some(error) if posted == 0 => Err(error),
        _ => Ok((first, posted)),
    }
}

/// The outcome of posting a batch.
struct Batch {
    /// Requests that were taken.
    posted: usize,
    /// Why not all.
    end: Option<Error>,
    /// The pending link of a window, if the last request is one.
    link: Option<Pending>,
}

/// Posts one batch, the first request as `number`.
fn send_batch(
    number: u64,
    works: &[Work<'_>],
    post: impl Fn(&[SendWr<'_>]) -> std::result::Result<(), PostFailure>,
    poster: &impl Poster,
) -> Batch {
    let mut lists = lists();
    let mut wrs: [SendWr<'_>; POST_BATCH] = std::array::from_fn(|_| BLANK);
    let (mut end, mut wanted, mut link) = (None, 0, None);
    for ((wr, list), work) in wrs.iter_mut().zip(&mut lists).zip(works) {
        if wanted > 0 && names_memory_anew(&works[wanted - 1].kind) {
            break;
        }
        let translated = translate(number + wanted as u64, work, list, wr);
        match translated.and_then(|()| to_link(&work.kind)) {
            Ok(linked) => link = linked,
            Err(error) => {
                end = Some(error);
                break;
            }
        }
        wanted += 1;
    }
    // The rest of the list follows at once.
    if wanted == POST_BATCH && works.len() > POST_BATCH {
        wrs[POST_BATCH - 1].flags.insert(SendFlags::COALESCE);
    }
    match post(&wrs[..wanted]) {
        Ok(()) => Batch { posted: wanted, end, link },
        Err(failure) => {
            let posted = failure.posted.min(wanted);
            let link = link.filter(|_| posted == wanted);
            let end = works.get(posted).map_or_else(
                || refusal(Operation::Send, failure.status, poster),
                |work| refusal_of(work, failure.status, poster),
            );
            let end = Some(end);
            Batch { posted, end, link }
        }
    }
}

/// Placeholder in an array of requests; never posted.
const BLANK: SendWr<'static> = SendWr {
    wr_id: 0,
    op: SendOp::Immediate { data: 0, solicited: false },
    data: Data::Sgl(&[]),
    flags: SendFlags::empty(),
};

fn names_memory_anew(kind: &Kind) -> bool {
    matches!(kind, Kind::LinkLmr { .. }) || is_link(kind)
}

fn is_link(kind: &Kind) -> bool {
    matches!(kind, Kind::Link { .. })
}

/// Makes the window of a link keep the region before the link is posted.
fn to_link(kind: &Kind) -> Result<Option<Pending>> {
    match kind {
        Kind::Link { rmr, range, .. } => rmr.to_link(range).map(Some),
        Kind::LinkLmr { lmr } => lmr.not_lent("linked").map(|()| None),
        _ => Ok(None),
    }
}

fn is_quiet(work: &Work<'_>) -> bool {
    !work.flags.contains(SendFlags::SIGNALED)
}

/// What work requests are posted to.
pub(crate) trait Poster {
    /// Counts a request for which there was no room.
    fn count_refusal(&self) {}

    /// Its state, if requests are refused in that, and what to do.
    fn unready(&self) -> Option<&'static str> {
        None
    }
}

impl Poster for ual::Ep {
    fn count_refusal(&self) {
        Self::count_refusal(self);
    }

    fn unready(&self) -> Option<&'static str> {
        match self.state() {
            EpState::Unconnected => Some("unconnected; connect or accept first"),
            EpState::ActivePending => Some("connecting; wait until it is connected"),
            EpState::PassivePending => Some("accepting; wait until it is connected"),
            EpState::PassiveWait => Some("waiting for the peer to begin; so wait, too"),
            EpState::Nonoperational => Some(
                "nonoperational, its connection is over or is being closed; reset it and connect again",
            ),
            // Since the refusal.
            EpState::Connected => None,
        }
    }
}

impl Poster for ual::UdEp {
    fn unready(&self) -> Option<&'static str> {
        Some("stopped; reset it")
    }
}

impl Poster for ual::Srq {}

#[cold]
fn refusal(operation: Operation, status: VpStatus, poster: &impl Poster) -> Error {
    let state = if status == VpStatus::InvalidState { poster.unready() } else { None };
    Error::Post { operation, status, state }
}

/// The refusal of a request of the send queue.
#[cold]
fn refusal_of(work: &Work<'_>, status: VpStatus, poster: &impl Poster) -> Error {
    match &work.kind {
        Kind::Atomic { remote, .. } if status == VpStatus::InvalidWr && remote.addr % 8 != 0 => {
            let addr = remote.addr;
            Error::Argument(format!("an atomic at {addr:#x}, which is no multiple of 8 octets"))
        }
        kind => refusal(operation(kind), status, poster),
    }
}

/// The queue is full, or there is no memory to remember the request.
#[cold]
fn no_room(operation: Operation, why: VpError, poster: &impl Poster) -> Error {
    match why.status {
        VpStatus::InsufficientResources => Error::no_room(why),
        status => {
            poster.count_refusal();
            refusal(operation, status, poster)
        }
    }
}

/// Stores what must live until the completion.
#[inline]
fn hold(flight: &mut SendFlight, work: Work<'_>, link: Option<Pending>, qp: QpId) {
    let signalled = !is_quiet(&work);
    flight.push(held(work, link, qp), signalled);
}

#[inline]
fn held(work: Work<'_>, link: Option<Pending>, qp: QpId) -> Sent {
    let operation = operation(&work.kind);
    let mut local = match work.payload {
        Payload::Memory(local) => local,
        Payload::Inline(_) => Local::default(),
    };
    let window = match work.kind {
        Kind::Link { rmr, .. } => {
            rmr.linking(qp);
            link
        }
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
    Sent { operation, local, window }
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

/// `work` as the provider takes it, as request `number`; its memory goes to `list`.
fn translate<'a>(
    number: u64,
    work: &Work<'a>,
    list: &'a mut List,
    wr: &mut SendWr<'a>,
) -> Result<()> {
    fill(list, work)?;
    let data = match work.payload {
        Payload::Inline(octets) => Data::Inline(octets),
        Payload::Memory(_) => Data::Sgl(list.get()),
    };
    let notify = work.notify && work.flags.contains(SendFlags::SIGNALED);
    *wr = SendWr { wr_id: wr_id(number, notify), op: op(&work.kind), data, flags: work.flags };
    Ok(())
}

#[inline]
fn op(kind: &Kind) -> SendOp {
    match kind {
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
    }
}

/// The memory of `work`.
#[inline]
fn fill(list: &mut List, work: &Work<'_>) -> Result<()> {
    match (&work.kind, &work.payload) {
        (Kind::Write { remote, .. }, Payload::Memory(local)) => {
            list.source(local)?;
            fits(list.octets(), remote)
        }
        (Kind::Write { remote, .. }, Payload::Inline(octets)) => fits(octets.len() as u64, remote),
        (Kind::Read { remote, unlink_sink }, Payload::Memory(local)) => {
            if *unlink_sink && matches!(local.parts(), [Part::Buffer(_)]) {
                return Err(Error::Argument(
                    "a buffer cannot be unlinked: read into a range of a region".into(),
                ));
            }
            list.first(local, remote.len)
        }
        (Kind::ReadToWindow { remote, rmr, offset, .. }, _) => {
            *list = List::One(rmr.sink(*offset, remote.len)?);
            Ok(())
        }
        (Kind::Atomic { .. }, Payload::Memory(local)) => list.first(local, 8),
        (_, Payload::Memory(local)) => list.source(local),
        (_, Payload::Inline(_)) => Ok(()),
    }
}

/// Refuses an RDMA Write that does not fit: the peer would end the connection.
fn fits(octets: u64, remote: &RemoteRange) -> Result<()> {
    if octets > remote.len {
        return Err(Error::Argument(format!(
            "an RDMA Write of {octets} octets to memory of {}",
            remote.len
        )));
    }
    Ok(())
}
