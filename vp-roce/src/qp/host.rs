//! The protocol core's access to memory and queues: an implementation of `roce_proto::rc::Host`.
//!
//! Created for one packet, under the QP's lock. No reference to memory outlives a call, so a silent peer never
//! delays deregistration.

use roce_proto::rc::{Access, AccessError, AtomicOp, Delivered, Host};
use roce_proto::wire::extended::Reth;
use vp_api::{RefusedOperation, RefusedSegment, Stag, WcOpcode, WcStatus, WorkCompletion};
use vp_soft::memory;
use vp_soft::memory::stag_table::Need;
use vp_soft::memory::{invalidate, place};
use vp_soft::queue::wq::pieces;

use super::queues::{Context, Queues};
use super::status;

/// The host that the core calls.
pub(crate) struct View<'a> {
    pub(crate) context: &'a Context,
    pub(crate) queues: &'a mut Queues,
}

impl View<'_> {
    /// Copies octets to `offset` in the current receive.
    fn fill(&self, offset: u32, mut octets: &[u8]) -> Result<(), memory::AccessError> {
        let Context { table, receiver, .. } = self.context;
        for piece in pieces(self.queues.current.sgl(), offset, octets.len() as u32) {
            let (now, rest) = octets.split_at(piece.len as usize);
            let sink =
                table.resolve(piece.stag, Need::LocalWrite, receiver, piece.to, piece.len)?;
            place::copy_in(&sink, 0, now)?;
            octets = rest;
        }
        Ok(())
    }

    /// Copies octets to `offset` in the sink of a Read or an atomic.
    fn fill_sink(
        &self,
        slot: u32,
        offset: u32,
        mut octets: &[u8],
    ) -> Result<(), memory::AccessError> {
        let Context { table, caller, .. } = self.context;
        for piece in pieces(self.queues.sgl(slot), offset, octets.len() as u32) {
            let (now, rest) = octets.split_at(piece.len as usize);
            let sink = table.resolve(piece.stag, Need::LocalWrite, caller, piece.to, piece.len)?;
            place::copy_in(&sink, 0, now)?;
            octets = rest;
        }
        Ok(())
    }
}

fn need(access: Access) -> Need {
    match access {
        Access::Read => Need::RemoteRead,
        Access::Write => Need::RemoteWrite,
        Access::Atomic => Need::RemoteAtomic,
    }
}

fn apply(op: AtomicOp, old: u64) -> Option<u64> {
    match op {
        AtomicOp::CompareSwap { compare, swap } => (old == compare).then_some(swap),
        AtomicOp::FetchAdd { add } => Some(old.wrapping_add(add)),
    }
}

/// A request of the peer for memory of this end.
struct Asked {
    access: Access,
    rkey: u32,
    address: u64,
    len: u32,
}

impl View<'_> {
    /// Keeps why the request is refused, for the event of the connection's end.
    #[cold]
    fn refuse(&mut self, asked: &Asked, why: memory::AccessError) -> AccessError {
        let stag = Stag(asked.rkey);
        let region = self.context.table.describe(stag, &self.queues.peer);
        let target = Some((stag, asked.address));
        let refused = status::segment(operation(asked.access), asked.len, target);
        // The peer may have divided it. [IBRC-25]
        let whole = asked.access != Access::Write;
        let refused = RefusedSegment { whole, region, ..refused };
        self.queues.refused = Some(status::refusal(why, refused));
        AccessError
    }
}

fn operation(access: Access) -> RefusedOperation {
    match access {
        Access::Read => RefusedOperation::Read,
        Access::Write => RefusedOperation::Write,
        Access::Atomic => RefusedOperation::Atomic,
    }
}

impl Host for View<'_> {
    fn take_receive(&mut self) -> Option<u64> {
        let taken = self.queues.take_receive(self.context);
        taken.then(|| self.queues.current.capacity().into())
    }

    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        self.fill(offset, octets).map_err(|error| {
            self.queues.fault = Some(status::of_access(error));
            AccessError
        })
    }

    fn complete_receive(&mut self, delivered: Delivered) {
        let opcode = if delivered.is_write { WcOpcode::RecvImmediate } else { WcOpcode::Recv };
        let completion = WorkCompletion {
            opcode,
            status: WcStatus::Success,
            solicited: delivered.solicited,
            octets: delivered.len,
            invalidated: delivered.invalidated.map(Stag),
            immediate: delivered.immediate.map(u64::from),
            ..WorkCompletion::BLANK
        };
        self.queues.complete_receive(self.context, completion);
    }

    fn fail_receive(&mut self) {
        // Without a memory fault, the message is too long.
        let status = self.queues.fault.take().unwrap_or(WcStatus::Bounds);
        self.queues.fail_receive(self.context, status);
    }

    fn allows(&mut self, access: Access, place: &Reth) -> bool {
        let allowed = self.queues.peer.allows(need(access));
        if !allowed {
            let Reth { rkey, address, length: len } = *place;
            self.refuse(&Asked { access, rkey, address, len }, memory::AccessError::Access);
        }
        allowed
    }

    fn refuse_unaligned(&mut self, place: &Reth) {
        let Reth { rkey, address, length: len } = *place;
        let asked = Asked { access: Access::Atomic, rkey, address, len };
        self.refuse(&asked, memory::AccessError::Unaligned);
    }

    fn check(
        &mut self,
        rkey: u32,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(), AccessError> {
        let (table, peer) = (&self.context.table, &self.queues.peer);
        let checked = table.resolve(Stag(rkey), need(access), peer, address, len).map(drop);
        checked.map_err(|why| self.refuse(&Asked { access, rkey, address, len }, why))
    }

    fn place(&mut self, rkey: u32, address: u64, octets: &[u8]) -> Result<(), AccessError> {
        let (table, peer) = (&self.context.table, &self.queues.peer);
        let len = octets.len() as u32;
        let placed = table
            .resolve(Stag(rkey), Need::RemoteWrite, peer, address, len)
            .and_then(|target| place::copy_in(&target, 0, octets));
        placed.map_err(|why| self.refuse(&Asked { access: Access::Write, rkey, address, len }, why))
    }

    fn atomic(&mut self, rkey: u32, address: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let (table, peer) = (&self.context.table, &self.queues.peer);
        let len = size_of::<u64>() as u32;
        let original = table
            .resolve(Stag(rkey), Need::RemoteAtomic, peer, address, len)
            .and_then(|target| place::atomic_rmw(&target, |old| apply(op, old)));
        original
            .map_err(|why| self.refuse(&Asked { access: Access::Atomic, rkey, address, len }, why))
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError> {
        let (table, peer) = (&self.context.table, &self.queues.peer);
        invalidate::remote(table, peer, Stag(rkey)).map_err(|_| {
            // Whatever the key names: the receive's own memory is not at fault.
            self.queues.fault = Some(WcStatus::CannotInvalidate);
            AccessError
        })
    }

    fn place_response(&mut self, slot: u32, offset: u32, octets: &[u8]) -> Result<(), AccessError> {
        self.fill_sink(slot, offset, octets).map_err(|error| {
            self.queues.fault = Some(status::of_access(error));
            AccessError
        })
    }
}
