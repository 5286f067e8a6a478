//! The protocol core's view of memory and queues: `iwarp_proto::Host` over the RNIC's tables.
//!
//! Created for one call into the core, under the QP's lock, on whichever thread drives it. A `Use` of
//! memory lives at most as long, so a silent peer never delays deregistration.

use iwarp_proto::{
    AccessError, AtomicOp, Completion, Host, Immediate, LocalFault, Receive, Slot, Stag, Status,
    TaggedUse,
};
use vp_api::{SendFlags, Sge, WcOpcode, WcStatus, WorkCompletion};
use vp_soft::memory;
use vp_soft::memory::place;
use vp_soft::memory::stag_table::{Need, Use};
use vp_soft::memory::{invalidate, mr, mw};
use vp_soft::queue::wq::{LocalOp, Payload, pieces};

use crate::qp::context::{Context, Queues, Tagged};

/// Messages of up to this size are one segment on every path: copying them checks their buffers, and a
/// fault found then concerns the whole message. So they are not checked twice.
const ONE_SEGMENT: u32 = 64;

/// The host that the core calls.
pub(crate) struct View<'a> {
    context: &'a Context,
    queues: &'a mut Queues,
    /// The segment checked last, if it was checked during this call.
    checked: Option<Use<'a>>,
    /// The piece of a receive buffer filled last; the next is often of the same region.
    filled: Option<Use<'a>>,
    /// The piece of a send's buffers copied last.
    copied: Option<Use<'a>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(context: &'a Context, queues: &'a mut Queues) -> Self {
        Self { context, queues, checked: None, filled: None, copied: None }
    }

    /// Releases all memory: called before an STag is changed, which would wait for it.
    fn release(&mut self) {
        (self.checked, self.filled, self.copied) = (None, None, None);
    }

    /// Copies `octets` to `offset` of the current receive.
    #[inline]
    fn fill(&mut self, offset: u32, octets: &[u8]) -> Result<(), memory::AccessError> {
        // Mostly there is one element, and this is its first use.
        match self.queues.current.sgl() {
            &[Sge { stag, to, len }] if offset == 0 && octets.len() <= len as usize => {
                let Context { table, receiver, .. } = self.context;
                let (len, need) = (octets.len() as u32, Need::LocalWrite);
                let sink = table.resolve_next(&mut self.filled, stag, need, receiver, to, len)?;
                place::copy_in(sink, 0, octets)
            }
            _ => self.fill_pieces(offset, octets),
        }
    }

    #[inline(never)] // its own function, so that the common path needs fewer registers
    fn fill_pieces(&mut self, offset: u32, mut octets: &[u8]) -> Result<(), memory::AccessError> {
        let Context { table, receiver, .. } = self.context;
        for piece in pieces(self.queues.current.sgl(), offset, octets.len() as u32) {
            let Sge { stag, to, len } = piece;
            let (kept, need) = (&mut self.filled, Need::LocalWrite);
            let sink = table.resolve_next(kept, stag, need, receiver, to, len)?;
            let (now, rest) = octets.split_at(len as usize);
            place::copy_in(sink, 0, now)?;
            octets = rest;
        }
        Ok(())
    }

    #[inline(always)] // most of a short Send's way
    fn push_receive(&mut self, status: WcStatus, receive: Receive) {
        let (opcode, immediate) = match receive.immediate {
            Some(Immediate::Alone(data)) => (WcOpcode::RecvImmediate, Some(data)),
            Some(Immediate::OfSend(data)) => (WcOpcode::Recv, Some(data.into())),
            None => (WcOpcode::Recv, None),
        };
        let completion = WorkCompletion {
            wr_id: self.queues.current.wr_id,
            qp: self.context.id,
            opcode,
            status,
            solicited: receive.solicited,
            octets: receive.octets,
            invalidated: receive.invalidated.map(|stag| vp_api::Stag(stag.0)),
            immediate,
        };
        self.queues.push_receive(self.context, &completion);
    }

    fn take_receive(&mut self) -> bool {
        let (taken, limit) = match &self.context.srq {
            Some(srq) if self.context.hold.is_some() => {
                let Context { id, me, .. } = self.context;
                srq.take_or_wait(&mut self.queues.current, *id, || me.clone())
            }
            Some(srq) => srq.take(&mut self.queues.current),
            None => (self.queues.receives.take(&mut self.queues.current), false),
        };
        self.queues.deferred.srq_limit |= limit;
        self.queues.deferred.recv_limit |= taken && self.context.hold_taken();
        taken
    }

    /// The purpose of the buffers of a send-queue operation.
    fn need(&self, slot: Slot) -> Need {
        match self.queues.sends.slot(slot).opcode {
            WcOpcode::Read => Need::ReadSink,
            WcOpcode::Atomic => Need::LocalWrite,
            _ => Need::LocalRead,
        }
    }
}

impl Host for View<'_> {
    fn begin_receive(&mut self) -> Option<u32> {
        self.queues.receiving = self.take_receive();
        self.queues.receive_fault = None;
        self.queues.receiving.then(|| self.queues.current.capacity())
    }

    #[inline]
    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        self.fill(offset, octets)
            .map_err(wire)
            .inspect_err(|error| self.queues.receive_fault = Some(*error))
    }

    fn overflow_receive(&mut self) {
        self.queues.receive_fault = Some(AccessError::Bounds);
    }

    #[inline(always)] // most of a short Send's way
    fn complete_receive(&mut self, receive: Receive) {
        self.queues.receiving = false;
        self.push_receive(WcStatus::Success, receive);
    }

    fn check_tagged(
        &mut self,
        use_: TaggedUse,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        let tagged = Tagged::new(use_, stag, to);
        self.queues.tagged = Some(tagged);
        let (table, peer) = (&self.context.table, &self.queues.peer);
        let Tagged { need, stag, to } = tagged;
        table.resolve_next(&mut self.checked, stag, need, peer, to, len).map(drop).map_err(wire)
    }

    fn place_tagged(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        if let Some(checked) = &self.checked {
            return place::copy_in(checked, offset, octets).map_err(wire);
        }
        // It was checked in an earlier call, and may have been revoked since.
        let tagged = self.queues.tagged.ok_or(AccessError::InvalidStag)?;
        tagged
            .resolve(self.context, &self.queues.peer, offset, octets.len() as u32)
            .and_then(|sink| place::copy_in(&sink, 0, octets))
            .map_err(wire)
    }

    fn check_read_source(&mut self, stag: Stag, to: u64, len: u32) -> Result<(), AccessError> {
        self.queues.read_source(self.context, stag, to, len).map(drop).map_err(wire)
    }

    fn execute_atomic(&mut self, stag: Stag, to: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let stag = vp_api::Stag(stag.0);
        let (peer, octets) = (&self.queues.peer, size_of::<u64>() as u32);
        let target = self.context.table.resolve(stag, Need::RemoteAtomic, peer, to, octets);
        target.and_then(|target| place::atomic_rmw(&target, |old| op.apply(old))).map_err(wire)
    }

    fn invalidate_remote(&mut self, stag: Stag) -> Result<(), AccessError> {
        self.release();
        let (table, peer) = (&self.context.table, &self.queues.peer);
        let invalidated = invalidate::remote(table, peer, vp_api::Stag(stag.0)).map_err(wire);
        if invalidated.is_err() {
            self.queues.receive_fault = Some(AccessError::CannotInvalidate);
        }
        invalidated
    }

    // RDMAC 8.1.3.2 [VERBS-19]: elements of length 0 are not checked.
    fn begin_send(&mut self, slot: Slot) -> Result<u32, LocalFault> {
        let sgl = match self.queues.sends.payload(slot) {
            Payload::Inline(octets) => return Ok(octets.len() as u32),
            Payload::Sgl(sgl) => sgl,
        };
        let need = self.need(slot);
        let mut octets = sgl.iter().map(|sge| sge.len);
        let total = octets.try_fold(0, u32::checked_add).ok_or(LocalFault::Length)?;
        if need == Need::LocalRead && total <= ONE_SEGMENT {
            return Ok(total);
        }
        for sge in sgl.iter().filter(|sge| sge.len != 0) {
            let resolved =
                self.context.table.resolve(sge.stag, need, &self.context.caller, sge.to, sge.len);
            resolved.map_err(|error| LocalFault::Access(wire(error)))?;
        }
        match self.queues.sends.slot(slot).opcode {
            WcOpcode::Atomic if total < size_of::<u64>() as u32 => Err(LocalFault::Length),
            _ => Ok(total),
        }
    }

    #[inline]
    fn copy_send(&mut self, slot: Slot, room: &mut [u8]) -> Option<usize> {
        match self.queues.sends.payload(slot) {
            Payload::Inline(octets) => {
                room.get_mut(..octets.len())?.copy_from_slice(octets);
                Some(octets.len())
            }
            Payload::Sgl(sgl) => copy_out(self.context, &mut self.copied, sgl, room),
        }
    }

    fn execute_local(&mut self, slot: Slot) -> Result<(), LocalFault> {
        self.release();
        let Context { table, caller, windows, .. } = self.context;
        let done = match self.queues.sends.take_local(slot).ok_or(LocalFault::Wqe)? {
            LocalOp::Bind(request) => mw::bind(table, caller, windows, &request),
            LocalOp::FastRegister(request) => mr::fast_register(table, caller, &request),
            LocalOp::Invalidate(stag) => invalidate::local(table, caller, stag),
        };
        done.map_err(wire_fault)
    }

    fn invalidate_sink(&mut self, slot: Slot) -> Result<(), LocalFault> {
        self.release();
        let sink = self.queues.sgl(slot).first().copied().ok_or(LocalFault::Wqe)?;
        invalidate::local(&self.context.table, &self.context.caller, sink.stag).map_err(wire_fault)
    }

    fn place_atomic_result(&mut self, slot: Slot, original: u64) -> Result<(), AccessError> {
        let sink = self.queues.sgl(slot).first().copied().ok_or(AccessError::InvalidStag)?;
        let Context { table, caller, .. } = self.context;
        let len = size_of::<u64>() as u32;
        table
            .resolve(sink.stag, Need::LocalWrite, caller, sink.to, len)
            .and_then(|sink| place::copy_in(&sink, 0, &original.to_ne_bytes()))
            .map_err(wire)
    }

    // RDMAC 8.1.3.1 [VERBS-18]
    #[inline]
    fn complete_send(&mut self, completion: Completion) {
        let slot = *self.queues.sends.slot(completion.slot);
        let status = status_of(completion.status);
        if status != WcStatus::Success {
            // A flushed local operation releases what it held.
            drop(self.queues.sends.take_local(completion.slot));
        } else if !slot.flags.contains(SendFlags::SIGNALED) {
            return self.queues.untaken_sends.add_silent();
        }
        let completion = WorkCompletion {
            wr_id: slot.wr_id,
            qp: self.context.id,
            opcode: slot.opcode,
            status,
            solicited: false,
            octets: completion.octets,
            invalidated: None,
            immediate: None,
        };
        self.queues.push_send(self.context, &completion);
    }

    // RDMAC 6.2.4 [VERBS-11]; never those of an SRQ [VERBS-26]
    fn flush_receives(&mut self) {
        let none = Receive { octets: 0, solicited: false, invalidated: None, immediate: None };
        if std::mem::take(&mut self.queues.receiving) {
            let fault = self.queues.receive_fault.take();
            self.push_receive(fault.map_or(WcStatus::Flushed, access_status), none);
        }
        if let Some(srq) = self.context.waits_at() {
            srq.stop_waiting(self.context.id);
        }
        self.context.hold_flushed(self.queues.receives.posted());
        while self.queues.receives.take(&mut self.queues.current) {
            self.push_receive(WcStatus::Flushed, none);
        }
    }
}

/// Copies the elements of a list to the front of `room`; `None` if they do not fit or one may not be
/// read.
#[inline]
pub(super) fn copy_out<'a>(
    context: &'a Context,
    kept: &mut Option<Use<'a>>,
    sgl: &[Sge],
    room: &mut [u8],
) -> Option<usize> {
    let Context { table, caller, .. } = context;
    let mut used = 0;
    for &Sge { stag, to, len } in sgl.iter().filter(|sge| sge.len != 0) {
        let room = room[used..].get_mut(..len as usize)?;
        let source = table.resolve_next(kept, stag, Need::LocalRead, caller, to, len).ok()?;
        place::copy_out(source, 0, room).ok()?;
        used += room.len();
    }
    Some(used)
}

/// The refusal as the core knows it, which reports it to the peer.
#[inline]
pub(crate) fn wire(error: memory::AccessError) -> AccessError {
    match error {
        memory::AccessError::InvalidStag => AccessError::InvalidStag,
        memory::AccessError::Bounds => AccessError::Bounds,
        memory::AccessError::Access => AccessError::Access,
        memory::AccessError::NotAssociated => AccessError::NotAssociated,
        memory::AccessError::Wrap => AccessError::Wrap,
        memory::AccessError::Unaligned => AccessError::Unaligned,
        memory::AccessError::CannotInvalidate => AccessError::CannotInvalidate,
    }
}

fn wire_fault(fault: memory::LocalFault) -> LocalFault {
    match fault {
        memory::LocalFault::Access(error) => LocalFault::Access(wire(error)),
        memory::LocalFault::NotPrivileged => LocalFault::NotPrivileged,
        memory::LocalFault::NotInvalid => LocalFault::NotInvalid,
        memory::LocalFault::Bind => LocalFault::Bind,
    }
}

fn status_of(status: Status) -> WcStatus {
    match status {
        Status::Success => WcStatus::Success,
        Status::Flushed => WcStatus::Flushed,
        Status::RemoteTermination(_) => WcStatus::RemoteTermination,
        Status::ZeroReadResources => WcStatus::ZeroReadResources,
        Status::BadLength => WcStatus::InvalidLength,
        Status::Local(fault) => match fault {
            LocalFault::Access(error) => access_status(error),
            LocalFault::Length => WcStatus::InvalidLength,
            LocalFault::NotPrivileged => WcStatus::NotPrivileged,
            LocalFault::NotInvalid => WcStatus::StagNotInvalid,
            LocalFault::Bind => WcStatus::InvalidWindow,
            LocalFault::Wqe => WcStatus::InvalidWqe,
        },
    }
}

fn access_status(error: AccessError) -> WcStatus {
    match error {
        AccessError::InvalidStag => WcStatus::InvalidStag,
        AccessError::Bounds => WcStatus::Bounds,
        AccessError::Access => WcStatus::AccessViolation,
        AccessError::NotAssociated => WcStatus::InvalidPd,
        AccessError::Wrap => WcStatus::Wrap,
        AccessError::Unaligned => WcStatus::InvalidWqe,
        AccessError::CannotInvalidate => WcStatus::CannotInvalidate,
    }
}
