//! Work requests of a send queue: conversion from libibverbs to the provider. Plain values.

use ibv_sys::*;
use vp_api::{
    Access, Addressing, AtomicOp, BindMw, MwId, Remote, SendFlags, SendOp, Stag, VpStatus,
};

use crate::access;

/// The operation of a request, without its data and handles.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    Write,
    WriteImm(u32),
    Send,
    SendImm(u32),
    SendInv(u32),
    Read,
    CmpSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
    LocalInv(u32),
}

/// Conversion of flags.
#[inline]
pub(crate) fn flags(flags: u32, signal_all: bool) -> SendFlags {
    let mut out = SendFlags::empty();
    out.set(SendFlags::SIGNALED, signal_all || flags & IBV_SEND_SIGNALED != 0);
    out.set(SendFlags::READ_FENCE, flags & IBV_SEND_FENCE != 0);
    out
}

/// The provider's operation.
#[inline]
pub(crate) fn op(op: Op, to: u64, rkey: u32, flags: u32) -> SendOp {
    let remote = Remote { stag: Stag(rkey), to };
    let solicited = flags & IBV_SEND_SOLICITED != 0;
    match op {
        Op::Write => SendOp::Write { remote },
        // In network order, as on the wire.
        Op::WriteImm(imm) => {
            SendOp::WriteImmediate { remote, data: u32::from_be(imm).into(), solicited }
        }
        Op::Send => SendOp::Send { solicited, invalidate: None },
        Op::SendImm(imm) => SendOp::SendImmediate { data: u32::from_be(imm), solicited },
        Op::SendInv(rkey) => SendOp::Send { solicited, invalidate: Some(Stag(rkey)) },
        Op::Read => SendOp::Read { remote, invalidate_sink: false },
        Op::CmpSwap { compare, swap } => {
            let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
            SendOp::Atomic {
                remote,
                op: AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask },
            }
        }
        Op::FetchAdd { add } => SendOp::Atomic { remote, op: AtomicOp::FetchAdd { add, mask: 0 } },
        Op::LocalInv(rkey) => SendOp::InvalidateLocal { stag: Stag(rkey) },
    }
}

/// Bind a window; a length of 0 unbinds.
pub(crate) fn bind(
    window: MwId,
    rkey: u32,
    region: Stag,
    (to, len): (u64, u64),
    flags: u32,
) -> Result<SendOp, VpStatus> {
    let zero_based = flags & IBV_ACCESS_ZERO_BASED != 0;
    let addressing = if zero_based { Addressing::ZeroBased } else { Addressing::Absolute };
    let access: Access = access::of_window(flags);
    let key = rkey as u8;
    Ok(SendOp::BindMw(BindMw { window, key, region, to, len, addressing, access }))
}
