//! The RoCE send queue: conversion of work requests for the protocol core, fences, operations on local memory, and
//! the payload of packets.
//!
//! Runs under the QP's lock, in the thread that posts or receives. Requests that must wait stay in
//! [`Queues::pending`]. All requests after them wait, too, so the order is that of the posts.

use roce_proto::rc::{AtomicOp, Post, SendOp, Source};
use vp_api::{Data, SendFlags, SendWr, VpStatus, WcOpcode};
use vp_soft::memory;
use vp_soft::memory::stag_table::Need;
use vp_soft::memory::{LocalFault, invalidate, mr, mw, place};
use vp_soft::queue::wq::{LocalOp, Payload, pieces};

use super::queues::{Context, Pending, Queues};
use crate::limits::MAX_MESSAGE;

/// Converts a work request for the core; `None` for an operation on local memory.
pub(crate) fn post_of(wr: &SendWr<'_>, slot: u32) -> Result<Option<Post>, VpStatus> {
    use vp_api::SendOp as Op;
    let len = len_of(&wr.data)?;
    let immediate = |data: u64| u32::try_from(data).map_err(|_| VpStatus::InvalidWr);
    let (op, solicited, len) = match wr.op {
        Op::Send { solicited, invalidate } => {
            let invalidate = invalidate.map(|stag| stag.0);
            (SendOp::Send { immediate: None, invalidate }, solicited, len)
        }
        Op::SendImmediate { data, solicited } => {
            (SendOp::Send { immediate: Some(data), invalidate: None }, solicited, len)
        }
        Op::Write { remote } => {
            let (address, rkey) = (remote.to, remote.stag.0);
            (SendOp::Write { address, rkey, immediate: None }, false, len)
        }
        Op::WriteImmediate { remote, data, solicited } => {
            let (address, rkey, immediate) = (remote.to, remote.stag.0, Some(immediate(data)?));
            (SendOp::Write { address, rkey, immediate }, solicited, len)
        }
        // A zero-length Write, which needs no key.
        Op::Immediate { data, solicited } => {
            let immediate = Some(immediate(data)?);
            (SendOp::Write { address: 0, rkey: 0, immediate }, solicited, 0)
        }
        Op::Read { invalidate_sink: true, .. } => return Err(VpStatus::Unsupported),
        Op::Read { remote, .. } => {
            (SendOp::Read { address: remote.to, rkey: remote.stag.0 }, false, len)
        }
        Op::Atomic { remote, op } => {
            const LEN: u32 = size_of::<u64>() as u32;
            if len < LEN {
                return Err(VpStatus::InvalidSgl);
            }
            if !remote.to.is_multiple_of(LEN.into()) {
                return Err(VpStatus::InvalidWr);
            }
            let (address, rkey, op) = (remote.to, remote.stag.0, plain(op)?);
            (SendOp::Atomic { address, rkey, op }, false, LEN)
        }
        Op::BindMw(_) | Op::FastRegister(_) | Op::InvalidateLocal { .. } => return Ok(None),
    };
    Ok(Some(Post { slot, op, len, solicited }))
}

fn len_of(data: &Data<'_>) -> Result<u32, VpStatus> {
    let len = match data {
        Data::Sgl(sgl) => sgl.iter().map(|sge| u64::from(sge.len)).sum(),
        Data::Inline(octets) => octets.len() as u64,
    };
    u32::try_from(len).ok().filter(|len| *len <= MAX_MESSAGE).ok_or(VpStatus::InvalidSgl)
}

/// InfiniBand's atomics have no masks.
fn plain(op: vp_api::AtomicOp) -> Result<AtomicOp, VpStatus> {
    match op {
        vp_api::AtomicOp::FetchAdd { add, mask: 0 } => Ok(AtomicOp::FetchAdd { add }),
        vp_api::AtomicOp::CmpSwap {
            compare,
            compare_mask: u64::MAX,
            swap,
            swap_mask: u64::MAX,
        } => Ok(AtomicOp::CompareSwap { compare, swap }),
        _ => Err(VpStatus::Unsupported),
    }
}

impl Queues {
    /// Removes the first pending request, if it need not wait.
    pub(crate) fn next_ready(&mut self) -> Option<Pending> {
        let first = self.pending.front()?;
        let before = self.outstanding - self.pending.len() as u32;
        let waits = match first.post {
            None => before != 0,
            Some(_) if first.flags.contains(SendFlags::LOCAL_FENCE) => before != 0,
            Some(_) if first.flags.contains(SendFlags::READ_FENCE) => self.reads_before(before),
            Some(_) => false,
        };
        if waits { None } else { self.pending.pop_front() }
    }

    /// Whether one of the `before` requests in the core is an RDMA Read or an atomic.
    fn reads_before(&self, before: u32) -> bool {
        let Some(first) = self.pending.front() else { return false };
        let depth = self.send_depth();
        (1..=before).any(|back| {
            let slot = (first.slot + depth - back) % depth;
            matches!(self.sends.slot(slot).opcode, WcOpcode::Read | WcOpcode::Atomic)
        })
    }

    /// Executes an operation on local memory.
    pub(crate) fn execute_local(&mut self, context: &Context, slot: u32) -> Result<(), LocalFault> {
        let Context { table, caller, windows, .. } = context;
        match self.sends.take_local(slot) {
            Some(LocalOp::Bind(request)) => mw::bind(table, caller, windows, &request),
            Some(LocalOp::FastRegister(request)) => mr::fast_register(table, caller, &request),
            Some(LocalOp::Invalidate(stag)) => invalidate::local(table, caller, stag),
            None => Ok(()),
        }
    }

    /// Copies the payload of a packet to `room`, which has the same length.
    pub(crate) fn copy_payload(
        &self,
        context: &Context,
        source: Source,
        room: &mut [u8],
    ) -> Result<(), memory::AccessError> {
        let Context { table, caller, .. } = context;
        // A probe has no octets, and its slot belongs to no request.
        if source.is_empty() {
            return Ok(());
        }
        match source {
            Source::None => Ok(()),
            Source::Memory { rkey, address, len } => {
                let stag = vp_api::Stag(rkey);
                let source = table.resolve(stag, Need::RemoteRead, &self.peer, address, len)?;
                place::copy_out(&source, 0, room)
            }
            Source::Request { slot, offset, len } => match self.sends.payload(slot) {
                Payload::Inline(octets) => {
                    let from = octets.get(offset as usize..).and_then(|o| o.get(..room.len()));
                    room.copy_from_slice(from.ok_or(memory::AccessError::Bounds)?);
                    Ok(())
                }
                Payload::Sgl(sgl) => {
                    let mut room = room;
                    for piece in pieces(sgl, offset, len) {
                        let (now, rest) = room.split_at_mut(piece.len as usize);
                        let (stag, need) = (piece.stag, Need::LocalRead);
                        let source = table.resolve(stag, need, caller, piece.to, piece.len)?;
                        place::copy_out(&source, 0, now)?;
                        room = rest;
                    }
                    Ok(())
                }
            },
        }
    }
}
