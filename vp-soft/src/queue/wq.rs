//! Work queues: posted work requests, in rings that are allocated at creation.
//!
//! Owner: a QP (under its lock), or an SRQ (under its own). The protocol core numbers the slots of the send ring
//! and decides their order; the receive ring is first in, first out. If the peer dies, the QP flushes both.

use vp_api::{
    BindMw, Data, FastRegister, RecvWr, SendFlags, SendOp, SendWr, Sge, Stag, VpResult, VpStatus,
    WcOpcode, room,
};

/// A send-queue operation that does not leave this RNIC.
#[derive(Clone, Debug)]
pub enum LocalOp {
    /// Bind Memory Window.
    Bind(BindMw),
    /// Fast-Register Non-Shared MR.
    FastRegister(Box<FastRegister>),
    /// Invalidate Local STag.
    Invalidate(Stag),
}

/// The work request of a send-queue slot.
#[derive(Clone, Copy, Debug)]
pub struct SendSlot {
    /// The consumer's id of the work request.
    pub wr_id: u64,
    /// The operation that its completion reports.
    pub opcode: WcOpcode,
    /// The flags, as posted.
    pub flags: SendFlags,
    /// SGEs, or octets inline.
    count: u16,
    inline: bool,
}

/// Payload of a slot.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Scatter/gather list.
    Sgl(&'a [Sge]),
    /// Inline octets, copied when the request was posted.
    Inline(&'a [u8]),
}

const SGES: &str = "scatter/gather elements of a queue";

/// The scatter/gather lists of a ring's slots. Each slot has room for one element until the first longer list is
/// posted; then all slots get the full room, once. So many idle QPs need little memory.
struct SgeRing {
    elements: Box<[Sge]>,
    depth: usize,
    room: usize,
    max: usize,
}

impl SgeRing {
    fn new(depth: usize, max: usize) -> VpResult<Self> {
        let room = max.min(1);
        let elements = room::filled(SGES, depth * room, Sge::default())?;
        Ok(Self { elements, depth, room, max })
    }

    /// Makes room in each slot for a list of at most `max` elements.
    #[inline]
    fn make_room(&mut self, elements: usize) -> Result<(), VpStatus> {
        if elements > self.room { self.widen() } else { Ok(()) }
    }

    /// Stores a list. There must be room for it.
    #[inline]
    fn put(&mut self, slot: usize, list: &[Sge]) {
        copy(&mut self.elements[slot * self.room..], list);
    }

    /// The first `count` elements of what was stored.
    fn get(&self, slot: usize, count: usize) -> &[Sge] {
        &self.elements[slot * self.room..][..count]
    }

    #[cold]
    fn widen(&mut self) -> Result<(), VpStatus> {
        let elements = self.depth * self.max;
        let mut wide = room::filled(SGES, elements, Sge::default()).map_err(|e| e.status)?;
        for (old, new) in self.elements.chunks(self.room).zip(wide.chunks_mut(self.max)) {
            new[..self.room].copy_from_slice(old);
        }
        (self.elements, self.room) = (wide, self.max);
        Ok(())
    }
}

/// Copies a list to the front of another. Most lists have one element, which needs no call.
#[inline]
fn copy(to: &mut [Sge], from: &[Sge]) {
    match from {
        [one] => to[0] = *one,
        _ => to[..from.len()].copy_from_slice(from),
    }
}

/// Send ring. Inline data and local operations get their rings on first use, because few QPs need them.
pub struct SendRing {
    slots: Box<[SendSlot]>,
    sges: SgeRing,
    inline: Box<[u8]>,
    max_inline: usize,
    locals: Box<[Option<LocalOp>]>,
}

const BLANK: SendSlot = SendSlot {
    wr_id: 0,
    opcode: WcOpcode::Send,
    flags: SendFlags::empty(),
    count: 0,
    inline: false,
};

impl SendRing {
    /// An empty ring of `depth` slots.
    pub fn new(depth: u32, max_sge: u32, max_inline: u32) -> VpResult<Self> {
        Ok(Self {
            slots: room::filled("requests of the send queue", depth as usize, BLANK)?,
            sges: SgeRing::new(depth as usize, max_sge as usize)?,
            inline: Box::default(),
            max_inline: max_inline as usize,
            locals: Box::default(),
        })
    }

    /// Checks that a work request can be stored, and makes room for it. Called before the core assigns a slot.
    #[inline]
    pub fn check(&mut self, wr: &SendWr<'_>) -> Result<(), VpStatus> {
        let single_sink = matches!(wr.op, SendOp::Read { .. } | SendOp::Atomic { .. });
        let no_payload = matches!(
            wr.op,
            SendOp::Immediate { .. }
                | SendOp::BindMw(_)
                | SendOp::FastRegister(_)
                | SendOp::InvalidateLocal { .. }
        );
        match wr.data {
            Data::Sgl(sgl) if no_payload => {
                check(sgl.is_empty(), VpStatus::InvalidSgl)?;
                self.make_room_for_locals()
            }
            // RDMAC 8.1.3.2: exactly one local buffer for Reads. [VERBS-19]
            Data::Sgl(sgl) if single_sink => {
                check(sgl.len() == 1, VpStatus::InvalidSgl)?;
                check(is_aligned(&wr.op), VpStatus::InvalidWr)
            }
            Data::Sgl(sgl) => {
                check_sgl(sgl, self.sges.max)?;
                self.sges.make_room(sgl.len())
            }
            Data::Inline(_) if single_sink || no_payload => Err(VpStatus::InvalidSgl),
            Data::Inline(octets) => {
                check(octets.len() <= self.max_inline, VpStatus::InvalidSgl)?;
                self.make_room_inline()
            }
        }
    }

    #[inline]
    fn make_room_for_locals(&mut self) -> Result<(), VpStatus> {
        if self.locals.is_empty() { self.add_locals() } else { Ok(()) }
    }

    #[cold]
    fn add_locals(&mut self) -> Result<(), VpStatus> {
        let what = "local operations of the send queue";
        self.locals = room::filled(what, self.slots.len(), None).map_err(|e| e.status)?;
        Ok(())
    }

    #[inline]
    fn make_room_inline(&mut self) -> Result<(), VpStatus> {
        if self.inline.is_empty() { self.add_inline() } else { Ok(()) }
    }

    #[cold]
    fn add_inline(&mut self) -> Result<(), VpStatus> {
        let octets = self.slots.len() * self.max_inline;
        let what = "octets of inline data of the send queue";
        self.inline = room::filled(what, octets, 0).map_err(|e| e.status)?;
        Ok(())
    }

    /// Stores a work request that passed `check`, at the slot that the core gave it.
    #[inline]
    pub fn store(&mut self, slot: u32, wr: &SendWr<'_>) {
        let at = slot as usize;
        let (count, inline) = match wr.data {
            Data::Sgl(sgl) => {
                self.sges.put(at, sgl);
                (sgl.len(), false)
            }
            Data::Inline([]) => (0, true),
            Data::Inline(octets) => {
                self.inline[at * self.max_inline..][..octets.len()].copy_from_slice(octets);
                (octets.len(), true)
            }
        };
        self.slots[at] = SendSlot {
            wr_id: wr.wr_id,
            opcode: wr.op.completion(),
            flags: wr.flags,
            count: count as u16,
            inline,
        };
        if is_local(&wr.op) {
            self.store_local(at, &wr.op);
        }
    }

    #[cold]
    fn store_local(&mut self, at: usize, op: &SendOp) {
        self.locals[at] = local_op(op);
    }

    /// The work request that was last stored at a slot.
    #[inline]
    pub fn slot(&self, slot: u32) -> &SendSlot {
        &self.slots[slot as usize]
    }

    /// Its payload.
    #[inline]
    pub fn payload(&self, slot: u32) -> Payload<'_> {
        let at = slot as usize;
        let SendSlot { count, inline, .. } = self.slots[at];
        let count = count as usize;
        if inline && count == 0 {
            Payload::Inline(&[])
        } else if inline {
            Payload::Inline(&self.inline[at * self.max_inline..][..count])
        } else {
            Payload::Sgl(self.sges.get(at, count))
        }
    }

    /// Whether local operations were posted.
    pub fn has_locals(&self) -> bool {
        !self.locals.is_empty()
    }

    /// Removes a slot's local operation, to execute it or, if flushed, to drop it.
    pub fn take_local(&mut self, slot: u32) -> Option<LocalOp> {
        self.locals.get_mut(slot as usize)?.take()
    }
}

#[inline]
fn is_local(op: &SendOp) -> bool {
    matches!(op, SendOp::BindMw(_) | SendOp::FastRegister(_) | SendOp::InvalidateLocal { .. })
}

fn local_op(op: &SendOp) -> Option<LocalOp> {
    match op {
        SendOp::BindMw(bind) => Some(LocalOp::Bind(*bind)),
        SendOp::FastRegister(register) => Some(LocalOp::FastRegister(register.clone())),
        SendOp::InvalidateLocal { stag } => Some(LocalOp::Invalidate(*stag)),
        _ => None,
    }
}

/// One receive, taken out of its queue.
#[derive(Clone, Debug)]
pub struct RecvWqe {
    /// The consumer's id of the work request.
    pub wr_id: u64,
    sges: Box<[Sge]>,
    count: usize,
}

impl RecvWqe {
    /// Room for one receive of up to `max_sge` elements.
    pub fn new(max_sge: u32) -> VpResult<Self> {
        let sges = room::filled(SGES, max_sge as usize, Sge::default())?;
        Ok(Self { wr_id: 0, sges, count: 0 })
    }

    /// Its scatter/gather list.
    pub fn sgl(&self) -> &[Sge] {
        &self.sges[..self.count]
    }

    /// The number of octets that fit. The post checked that the sum does not overflow.
    pub fn capacity(&self) -> u32 {
        self.sgl().iter().fold(0, |sum, sge| sum.saturating_add(sge.len))
    }
}

/// Receive ring.
pub struct RecvRing {
    /// Work request id and number of SGEs.
    slots: Box<[(u64, u32)]>,
    sges: SgeRing,
    head: usize,
    posted: usize,
}

impl RecvRing {
    /// An empty ring for `depth` receives of up to `max_sge` elements.
    pub fn new(depth: u32, max_sge: u32) -> VpResult<Self> {
        Ok(Self {
            slots: room::filled("receives of a queue", depth as usize, (0, 0))?,
            sges: SgeRing::new(depth as usize, max_sge as usize)?,
            head: 0,
            posted: 0,
        })
    }

    /// The number of receives that fit.
    pub fn depth(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The maximum number of elements of a receive.
    pub fn max_sge(&self) -> u32 {
        self.sges.max as u32
    }

    /// The number of receives that are posted and not taken.
    pub fn posted(&self) -> u32 {
        self.posted as u32
    }

    /// Returns `InvalidSgl` for a wrong list. Called first: the refusal of a wrong receive does not depend on
    /// whether the ring is full.
    #[inline]
    pub fn check(&self, wr: &RecvWr<'_>) -> Result<(), VpStatus> {
        check_sgl(wr.sgl, self.sges.max)
    }

    /// Adds a receive that passed `check`; `TooManyWrs` if the ring is full.
    #[inline]
    pub fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), VpStatus> {
        check(self.posted < self.slots.len(), VpStatus::TooManyWrs)?;
        self.sges.make_room(wr.sgl.len())?;
        let at = self.slot_after(self.posted);
        self.sges.put(at, wr.sgl);
        self.slots[at] = (wr.wr_id, wr.sgl.len() as u32);
        self.posted += 1;
        Ok(())
    }

    /// The slot this many places after the oldest, at most the ring's length. A division would cost more.
    #[inline]
    fn slot_after(&self, places: usize) -> usize {
        let (at, depth) = (self.head + places, self.slots.len());
        if at < depth { at } else { at - depth }
    }

    /// Moves the oldest receive to `into`; false if none is posted.
    pub fn take(&mut self, into: &mut RecvWqe) -> bool {
        if self.posted == 0 {
            return false;
        }
        let (wr_id, count) = self.slots[self.head];
        into.wr_id = wr_id;
        into.count = count as usize;
        copy(&mut into.sges, self.sges.get(self.head, into.count));
        self.head = self.slot_after(1);
        self.posted -= 1;
        true
    }

    /// Changes the depth and keeps what is posted; `CannotChange` if the posted receives would not fit.
    pub fn resize(&mut self, depth: u32) -> Result<(), VpStatus> {
        check(depth as usize >= self.posted, VpStatus::CannotChange)?;
        let mut new = Self::new(depth, self.max_sge()).map_err(|e| e.status)?;
        let mut wqe = RecvWqe::new(self.max_sge()).map_err(|e| e.status)?;
        new.sges.make_room(self.sges.room)?;
        while self.take(&mut wqe) {
            new.post(&RecvWr { wr_id: wqe.wr_id, sgl: wqe.sgl() })?;
        }
        *self = new;
        Ok(())
    }
}

/// Whether every peer can execute it, if it is an atomic. InfiniBand (volume 1, 9.4.5) requires an address that is a
/// multiple of 8. RFC 7306 5.1 requires that of the memory only: of zero-based memory this end knows the offset and not
/// the address, so this is stricter where such memory begins at no multiple of 8. [EXT-08]
#[inline]
fn is_aligned(op: &SendOp) -> bool {
    !matches!(op, SendOp::Atomic { remote, .. } if !remote.to.is_multiple_of(8))
}

#[inline]
fn check(ok: bool, status: VpStatus) -> Result<(), VpStatus> {
    ok.then_some(()).ok_or(status)
}

// RDMAC 8.1.3.2: the sum is at most 2^32 - 1. [VERBS-19]
#[inline]
fn check_sgl(sgl: &[Sge], max_sge: usize) -> Result<(), VpStatus> {
    check(sgl.len() <= max_sge, VpStatus::InvalidSgl)?;
    if sgl.len() <= 1 {
        return Ok(());
    }
    let sum: u64 = sgl.iter().map(|sge| u64::from(sge.len)).sum();
    check(sum <= u64::from(u32::MAX), VpStatus::InvalidSgl)
}

/// The elements, cut to size, that cover `len` octets at `offset` of a list. Elements of length 0 are omitted:
/// their STags are not checked. // [VERBS-19]
#[inline]
pub fn pieces(sgl: &[Sge], offset: u32, len: u32) -> impl Iterator<Item = Sge> {
    let mut skip = offset;
    let mut left = len;
    sgl.iter().filter_map(move |sge| {
        if skip >= sge.len {
            skip -= sge.len;
            return None;
        }
        let piece = Sge {
            stag: sge.stag,
            to: sge.to.wrapping_add(u64::from(skip)),
            len: left.min(sge.len - skip),
        };
        skip = 0;
        left -= piece.len;
        (piece.len != 0).then_some(piece)
    })
}

#[cfg(test)]
#[path = "wq_tests.rs"]
mod tests;
