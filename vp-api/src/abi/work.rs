//! Conversion of work requests and completions between Rust and C; the data path. No state. Allocates only for fast
//! registration.

use std::ffi::c_void;
use std::slice;

use super::memory::Lent;
use super::types::{Plain, Sized32};
use super::{codes, grow, memory, types as c};
use crate::{
    Access, AtomicOp, BindMw, Data, FastRegister, MwId, QpId, RecvWr, Remote, SendFlags, SendOp,
    SendWr, Sge, Stag, VpStatus, WorkCompletion,
};
use codes::op;

// SAFETY (of the casts between them below): both are {u32, u32, u64} in this order.
const _: () = assert!(size_of::<Sge>() == size_of::<c::Sge>());

/// Data of a request for which its struct has no room.
pub(super) enum Extra {
    Atomic(c::Atomic),
    Bind(c::BindMw),
    Fast { fast: c::FastRegister, _kept: Lent },
}

impl Extra {
    /// Whether a request has such data.
    pub(super) fn has(operation: &SendOp) -> bool {
        matches!(operation, SendOp::Atomic { .. } | SendOp::BindMw(_) | SendOp::FastRegister(_))
    }

    /// `None` for most requests.
    #[inline]
    pub(super) fn of(operation: &SendOp) -> Option<Self> {
        Some(match operation {
            SendOp::Atomic { op, .. } => Self::Atomic(atomic_to(op)),
            SendOp::BindMw(bind) => Self::Bind(bind_to(bind)),
            SendOp::FastRegister(fast) => {
                let lent = Lent::new(&fast.range);
                let (addressing, base) = codes::addressing_code(fast.addressing);
                let to = c::FastRegister {
                    stag: fast.stag.0,
                    range: lent.get(),
                    addressing,
                    base,
                    access: fast.access.bits(),
                    ..c::FastRegister::blank()
                };
                Self::Fast { fast: to, _kept: lent }
            }
            _ => return None,
        })
    }

    /// Addressing that only a device with [`Capabilities::BASED`] supports.
    pub(super) fn is_based(&self) -> bool {
        let addressing = match self {
            Self::Atomic(_) => return false,
            Self::Bind(b) => b.addressing,
            Self::Fast { fast, .. } => fast.addressing,
        };
        addressing == codes::BASED
    }

    pub(super) fn pointer(&self) -> *const c_void {
        match self {
            Self::Atomic(a) => (&raw const *a).cast(),
            Self::Bind(b) => (&raw const *b).cast(),
            Self::Fast { fast, .. } => (&raw const *fast).cast(),
        }
    }
}

fn atomic_to(operation: &AtomicOp) -> c::Atomic {
    match *operation {
        AtomicOp::FetchAdd { add, mask } => {
            c::Atomic { op: op::FETCH_ADD, operand: add, operand_mask: mask, ..c::Atomic::blank() }
        }
        AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask } => c::Atomic {
            op: op::CMP_SWAP,
            operand: swap,
            operand_mask: swap_mask,
            compare,
            compare_mask,
            ..c::Atomic::blank()
        },
    }
}

fn bind_to(bind: &BindMw) -> c::BindMw {
    let (addressing, base) = codes::addressing_code(bind.addressing);
    c::BindMw {
        window: bind.window.0,
        key: bind.key.into(),
        region: bind.region.0,
        to: bind.to,
        len: bind.len,
        addressing,
        base,
        access: bind.access.bits(),
        ..c::BindMw::blank()
    }
}

/// Converts a request; the result is valid as long as `wr` and what `extra` points to are.
#[inline]
pub(super) fn send_to(wr: &SendWr<'_>, extra: *const c_void) -> c::SendWr {
    let mut out = c::SendWr::blank();
    out.wr_id = wr.wr_id;
    // A library that does not know the hint would refuse the request.
    out.flags = (wr.flags - SendFlags::COALESCE).bits();
    (out.data, out.count) = match wr.data {
        Data::Sgl(sgl) => (sgl.as_ptr().cast(), sgl.len() as u32),
        Data::Inline(octets) => {
            out.flags |= op::INLINE;
            (octets.as_ptr().cast(), octets.len() as u32)
        }
    };
    operation_to(&wr.op, &mut out);
    out.extra = extra;
    out
}

fn operation_to(operation: &SendOp, out: &mut c::SendWr) {
    let solicits = |yes: bool| if yes { op::SOLICITED } else { 0 };
    match *operation {
        SendOp::Send { solicited, invalidate } => {
            out.opcode = op::SEND;
            out.flags |= solicits(solicited);
            if let Some(stag) = invalidate {
                out.flags |= op::INVALIDATE;
                out.stag = stag.0;
            }
        }
        SendOp::SendImmediate { data, solicited } => {
            (out.opcode, out.immediate) = (op::SEND_IMMEDIATE, data.into());
            out.flags |= solicits(solicited);
        }
        SendOp::Write { remote } => (out.opcode, out.stag, out.to) = at(op::WRITE, remote),
        SendOp::WriteImmediate { remote, data, solicited } => {
            (out.opcode, out.stag, out.to) = at(op::WRITE_IMMEDIATE, remote);
            out.immediate = data;
            out.flags |= solicits(solicited);
        }
        SendOp::Immediate { data, solicited } => {
            (out.opcode, out.immediate) = (op::IMMEDIATE, data);
            out.flags |= solicits(solicited);
        }
        SendOp::Read { remote, invalidate_sink } => {
            (out.opcode, out.stag, out.to) = at(op::READ, remote);
            out.flags |= if invalidate_sink { op::INVALIDATE } else { 0 };
        }
        SendOp::Atomic { remote, .. } => (out.opcode, out.stag, out.to) = at(op::ATOMIC, remote),
        SendOp::BindMw(_) => out.opcode = op::BIND_MW,
        SendOp::FastRegister(_) => out.opcode = op::FAST_REGISTER,
        SendOp::InvalidateLocal { stag } => {
            (out.opcode, out.stag) = (op::INVALIDATE_LOCAL, stag.0);
        }
    }
}

fn at(opcode: u32, remote: Remote) -> (u32, u32, u64) {
    (opcode, remote.stag.0, remote.to)
}

/// Converts a request; `None` if it is invalid. Borrows what `wr` points to.
///
/// # Safety
///
/// `wr` is a request as the header demands; what it names stays readable for `'a`.
#[inline]
pub(super) unsafe fn send_from<'a>(wr: &c::SendWr) -> Option<SendWr<'a>> {
    let solicited = wr.flags & op::SOLICITED != 0;
    let invalidate = wr.flags & op::INVALIDATE != 0;
    let remote = Remote { stag: Stag(wr.stag), to: wr.to };
    let operation = match wr.opcode {
        op::SEND => SendOp::Send { solicited, invalidate: invalidate.then_some(remote.stag) },
        op::SEND_IMMEDIATE => {
            SendOp::SendImmediate { data: u32::try_from(wr.immediate).ok()?, solicited }
        }
        op::WRITE => SendOp::Write { remote },
        op::WRITE_IMMEDIATE => SendOp::WriteImmediate { remote, data: wr.immediate, solicited },
        op::IMMEDIATE => SendOp::Immediate { data: wr.immediate, solicited },
        op::READ => SendOp::Read { remote, invalidate_sink: invalidate },
        op::INVALIDATE_LOCAL => SendOp::InvalidateLocal { stag: remote.stag },
        _ => {
            // SAFETY: the caller's promise.
            unsafe { extra_from(wr, remote) }?
        }
    };
    let named = !(op::SOLICITED | op::INVALIDATE | op::INLINE);
    (wr.reserved == 0).then_some(())?;
    Some(SendWr {
        wr_id: wr.wr_id,
        op: operation,
        // SAFETY: the caller's promise.
        data: unsafe { data_from(wr) },
        flags: SendFlags::from_bits(wr.flags & named)?,
    })
}

/// # Safety
///
/// As for [`send_from`].
unsafe fn data_from<'a>(wr: &c::SendWr) -> Data<'a> {
    let count = if wr.data.is_null() { 0 } else { wr.count as usize };
    let inline = wr.flags & op::INLINE != 0;
    if count == 0 {
        return if inline { Data::Inline(&[]) } else { Data::Sgl(&[]) };
    }
    if inline {
        // SAFETY: the caller's promise.
        return Data::Inline(unsafe { slice::from_raw_parts(wr.data.cast(), count) });
    }
    // SAFETY: the caller's promise; the two kinds of elements are laid out alike.
    Data::Sgl(unsafe { slice::from_raw_parts(wr.data.cast(), count) })
}

/// Converts operations that need more data than the request has room for.
///
/// # Safety
///
/// As for [`send_from`].
unsafe fn extra_from(wr: &c::SendWr, remote: Remote) -> Option<SendOp> {
    if wr.extra.is_null() {
        return None;
    }
    match wr.opcode {
        op::ATOMIC => {
            // SAFETY: the caller's promise: the operation determines the type of `extra`.
            let a = unsafe { grow::read(wr.extra.cast::<c::Atomic>()) };
            Some(SendOp::Atomic { remote, op: atomic_from(&a)? })
        }
        op::BIND_MW => {
            // SAFETY: the same.
            let bind = unsafe { grow::read(wr.extra.cast::<c::BindMw>()) };
            Some(SendOp::BindMw(BindMw {
                window: MwId(bind.window),
                key: u8::try_from(bind.key).ok()?,
                region: Stag(bind.region),
                to: bind.to,
                len: bind.len,
                addressing: codes::addressing(bind.addressing, bind.base)?,
                access: Access::from_bits(bind.access)?,
            }))
        }
        op::FAST_REGISTER => {
            // SAFETY: the same.
            let fast = unsafe { grow::read(wr.extra.cast::<c::FastRegister>()) };
            Some(SendOp::FastRegister(Box::new(FastRegister {
                stag: Stag(fast.stag),
                // SAFETY: the same.
                range: unsafe { memory::range(&fast.range) }?,
                addressing: codes::addressing(fast.addressing, fast.base)?,
                access: Access::from_bits(fast.access)?,
            })))
        }
        _ => None,
    }
}

fn atomic_from(atomic: &c::Atomic) -> Option<AtomicOp> {
    match atomic.op {
        op::FETCH_ADD => {
            Some(AtomicOp::FetchAdd { add: atomic.operand, mask: atomic.operand_mask })
        }
        op::CMP_SWAP => Some(AtomicOp::CmpSwap {
            compare: atomic.compare,
            compare_mask: atomic.compare_mask,
            swap: atomic.operand,
            swap_mask: atomic.operand_mask,
        }),
        _ => None,
    }
}

/// Converts a receive; the result is valid as long as `wr` is.
pub(super) fn recv_to(wr: &RecvWr<'_>) -> c::RecvWr {
    c::RecvWr {
        count: wr.sgl.len() as u32,
        wr_id: wr.wr_id,
        sgl: wr.sgl.as_ptr().cast(),
        ..c::RecvWr::blank()
    }
}

/// Borrows the list that `wr` points to.
///
/// # Safety
///
/// `wr` is a request as the header demands; its list stays readable for `'a`.
pub(super) unsafe fn recv_from<'a>(wr: &c::RecvWr) -> RecvWr<'a> {
    if wr.sgl.is_null() || wr.count == 0 {
        return RecvWr { wr_id: wr.wr_id, sgl: &[] };
    }
    // SAFETY: the caller's promise; the two kinds of elements are laid out alike.
    let sgl = unsafe { slice::from_raw_parts(wr.sgl.cast::<Sge>(), wr.count as usize) };
    RecvWr { wr_id: wr.wr_id, sgl }
}

/// Element `at` of a list whose elements are `stride` octets apart.
///
/// # Safety
///
/// The list has more than `at` elements, each with `stride` readable octets.
#[inline]
pub(super) unsafe fn element<T: Sized32>(first: *const T, stride: u32, at: u32) -> T {
    // SAFETY: the caller's promise: inside of the list.
    let element = unsafe { first.byte_add(stride as usize * at as usize) };
    // SAFETY: the caller's promise.
    unsafe { grow::read_as(element, stride) }
}

#[inline]
pub(super) fn completion_to(wc: &WorkCompletion) -> c::Wc {
    let flags = [
        (wc.solicited, op::WC_SOLICITED),
        (wc.invalidated.is_some(), op::WC_INVALIDATED),
        (wc.immediate.is_some(), op::WC_IMMEDIATE),
    ];
    c::Wc {
        size: c::Wc::SIZE,
        opcode: codes::wc_opcode_code(wc.opcode),
        wr_id: wc.wr_id,
        qp: wc.qp.0,
        status: codes::wc_status_code(wc.status),
        flags: flags.iter().map(|(on, bit)| if *on { *bit } else { 0 }).sum(),
        octets: wc.octets,
        immediate: wc.immediate.unwrap_or(0),
        invalidated: wc.invalidated.map_or(0, |s| s.0),
        reserved: 0,
    }
}

/// The error is an unknown operation or status.
#[inline]
pub(super) fn completion_from(wc: &c::Wc) -> Result<WorkCompletion, VpStatus> {
    Ok(WorkCompletion {
        wr_id: wc.wr_id,
        qp: QpId(wc.qp),
        opcode: codes::wc_opcode(wc.opcode).ok_or(VpStatus::NoWcOpcode(wc.opcode))?,
        status: codes::wc_status(wc.status).ok_or(VpStatus::NoWcStatus(wc.status))?,
        solicited: wc.flags & op::WC_SOLICITED != 0,
        octets: wc.octets,
        invalidated: (wc.flags & op::WC_INVALIDATED != 0).then_some(Stag(wc.invalidated)),
        immediate: (wc.flags & op::WC_IMMEDIATE != 0).then_some(wc.immediate),
    })
}

/// An array of zeroed elements.
pub(super) fn blanks<T: Plain, const N: usize>() -> [T; N] {
    [T::zeroed(); N]
}
