//! Posting (ibv_post_send(3), ibv_post_recv(3), ibv_post_srq_recv(3)): the data path. Lists are passed
//! to the provider in pieces on the stack; nothing is allocated, and no lock is taken except the queue
//! pair's.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use ibv_sys::*;
use vp_api::{Data, PostFailure, RecvWr, Remote, SendOp, SendWr, Sge, Stag, VpStatus};

use crate::errno::Errno;
use crate::object;
use crate::qp::{Qp, takes_receives, takes_sends};
use crate::send::{self, Op};
use crate::tuning::POST_LIST;
use crate::verbs::datagrams;

/// Elements of a request, at most; the provider accepts no more either.
const SGES: usize = 16;
/// Octets of inline data that are copied for one request, at most.
const INLINE: usize = 1024;

/// Elements on the stack, in the provider's form.
pub(super) struct Elements([MaybeUninit<Sge>; SGES]);

impl Elements {
    #[inline]
    pub(super) const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; SGES])
    }

    /// Copies the caller's list.
    #[inline]
    pub(super) unsafe fn take(
        &mut self,
        list: *const ibv_sge,
        num: usize,
    ) -> Result<&[Sge], VpStatus> {
        if num > SGES {
            return Err(VpStatus::InvalidSgl);
        }
        for (at, room) in self.0[..num].iter_mut().enumerate() {
            // SAFETY: the caller's list of `num` elements.
            let sge = unsafe { list.wrapping_add(at).read() };
            room.write(Sge { stag: Stag(sge.lkey), len: sge.length, to: sge.addr });
        }
        let first: *const Sge = self.0.as_ptr().cast();
        // SAFETY: so many were written just now.
        Ok(unsafe { std::slice::from_raw_parts(first, num) })
    }
}

/// Inline data on the stack.
pub(super) struct Inline([MaybeUninit<u8>; INLINE], usize);

impl Inline {
    #[inline]
    pub(super) const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; INLINE], 0)
    }

    /// Appends octets, if they fit.
    pub(super) unsafe fn append(&mut self, from: *const u8, octets: usize) -> Result<(), VpStatus> {
        let end = self.1.checked_add(octets).filter(|end| *end <= INLINE);
        let end = end.ok_or(VpStatus::InvalidSgl)?;
        let room = &mut self.0[self.1..end];
        // SAFETY: the caller's octets; `room` has as many.
        unsafe { std::ptr::copy_nonoverlapping(from, room.as_mut_ptr().cast(), octets) };
        self.1 = end;
        Ok(())
    }

    pub(super) unsafe fn take(&mut self, list: *const ibv_sge, num: usize) -> Result<(), VpStatus> {
        for at in 0..num {
            // SAFETY: the caller's list of `num` elements.
            let sge = unsafe { list.wrapping_add(at).read() };
            let from = std::ptr::with_exposed_provenance(sge.addr as usize);
            // SAFETY: the caller's octets, whose keys do not count.
            unsafe { self.append(from, sge.length as usize) }?;
        }
        Ok(())
    }

    pub(super) fn octets(&self) -> &[u8] {
        // SAFETY: so many were written.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.1) }
    }
}

/// The provider's operation of a request. The most frequent ones are inlined.
#[inline(always)]
unsafe fn op_of(qp: &Qp, wr: &ibv_send_wr) -> Result<SendOp, VpStatus> {
    match wr.opcode {
        IBV_WR_SEND => {
            let solicited = wr.send_flags & IBV_SEND_SOLICITED != 0;
            Ok(SendOp::Send { solicited, invalidate: None })
        }
        IBV_WR_RDMA_WRITE => Ok(SendOp::Write { remote: remote(wr) }),
        IBV_WR_RDMA_READ => Ok(SendOp::Read { remote: remote(wr), invalidate_sink: false }),
        // SAFETY: the caller's request.
        _ => unsafe { other_op(qp, wr) },
    }
}

/// Where an RDMA Write or Read goes.
#[inline]
fn remote(wr: &ibv_send_wr) -> Remote {
    // SAFETY: any bits are a value of it, and the opcode says that it counts.
    let wr_rdma { remote_addr, rkey } = unsafe { wr.wr.rdma };
    Remote { stag: Stag(rkey), to: remote_addr }
}

#[inline(never)]
unsafe fn other_op(qp: &Qp, wr: &ibv_send_wr) -> Result<SendOp, VpStatus> {
    let (op, Remote { stag, to }) = match wr.opcode {
        IBV_WR_RDMA_WRITE_WITH_IMM => (Op::WriteImm(wr.imm_or_rkey), remote(wr)),
        IBV_WR_SEND_WITH_INV => (Op::SendInv(wr.imm_or_rkey), NOWHERE),
        IBV_WR_LOCAL_INV => (Op::LocalInv(wr.imm_or_rkey), NOWHERE),
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
            // SAFETY: as in `remote`.
            let wr_atomic { remote_addr, compare_add, swap, rkey } = unsafe { wr.wr.atomic };
            let op = match wr.opcode {
                IBV_WR_ATOMIC_CMP_AND_SWP => Op::CmpSwap { compare: compare_add, swap },
                _ => Op::FetchAdd { add: compare_add },
            };
            (op, Remote { stag: Stag(rkey), to: remote_addr })
        }
        // SAFETY: the request is a bind.
        IBV_WR_BIND_MW => return unsafe { super::mw::bind_op(wr.bind_mw) },
        IBV_WR_SEND_WITH_IMM if qp.sends_immediates() => (Op::SendImm(wr.imm_or_rkey), NOWHERE),
        IBV_WR_SEND_WITH_IMM => return Err(VpStatus::Unsupported),
        _ => return Err(VpStatus::InvalidWr),
    };
    Ok(send::op(op, to, stag.0, wr.send_flags))
}

/// Of a request without a peer's memory.
const NOWHERE: Remote = Remote { stag: Stag(0), to: 0 };

/// One request, with the rest of the list after it, so that all elements are on the stack when the piece
/// is passed on. Returns how many of the piece the provider accepted.
#[inline(never)]
unsafe fn post_piece(qp: &Qp, from: *mut ibv_send_wr) -> (usize, Result<(), VpStatus>) {
    let mut sges = [const { Elements::new() }; POST_LIST];
    let mut list = [const { MaybeUninit::<SendWr<'_>>::uninit() }; POST_LIST];
    let (mut next, mut count, mut refused) = (from, 0, Ok(()));
    for (elements, room) in sges.iter_mut().zip(&mut list) {
        // SAFETY: the caller's list, which ends with NULL.
        let Some(wr) = (unsafe { next.as_ref() }) else { break };
        if wr.send_flags & IBV_SEND_INLINE != 0 {
            // It needs more room, and is posted by itself.
            break;
        }
        // SAFETY: the caller's request.
        match unsafe { request(qp, wr, elements) } {
            Ok(request) => room.write(request),
            Err(status) => {
                refused = Err(status);
                break;
            }
        };
        count += 1;
        next = wr.next;
    }
    let first: *const SendWr<'_> = list.as_ptr().cast();
    // SAFETY: so many were written. What they are made of needs no drop: no operation here owns anything.
    let list = unsafe { std::slice::from_raw_parts(first, count) };
    if count > 0
        && let Err(PostFailure { posted, status }) = qp.post_send(list)
    {
        return (posted, Err(status));
    }
    (count, refused)
}

#[inline(always)]
unsafe fn request<'a>(
    qp: &Qp,
    wr: &ibv_send_wr,
    elements: &'a mut Elements,
) -> Result<SendWr<'a>, VpStatus> {
    let num = usize::try_from(wr.num_sge).map_err(|_| VpStatus::InvalidSgl)?;
    // SAFETY: the caller's request.
    let op = unsafe { op_of(qp, wr) }?;
    let num = match op {
        SendOp::BindMw(_) | SendOp::InvalidateLocal { .. } => 0,
        _ => num,
    };
    // SAFETY: the caller's list of elements.
    let sgl = unsafe { elements.take(wr.sg_list, num) }?;
    let flags = send::flags(wr.send_flags, qp.init().signal_all);
    Ok(SendWr { wr_id: wr.wr_id, op, data: Data::Sgl(sgl), flags })
}

/// One request with inline data.
#[inline(never)]
unsafe fn post_inline(qp: &Qp, wr: &ibv_send_wr) -> Result<(), VpStatus> {
    let mut inline = Inline::new();
    let num = usize::try_from(wr.num_sge).map_err(|_| VpStatus::InvalidSgl)?;
    // SAFETY: the caller's request.
    let op = unsafe { op_of(qp, wr) }?;
    let flags = send::flags(wr.send_flags, qp.init().signal_all);
    let data = match op {
        SendOp::Send { .. }
        | SendOp::SendImmediate { .. }
        | SendOp::Write { .. }
        | SendOp::WriteImmediate { .. } => {
            // SAFETY: the caller's list of elements.
            unsafe { inline.take(wr.sg_list, num) }?;
            Data::Inline(inline.octets())
        }
        SendOp::BindMw(_) | SendOp::InvalidateLocal { .. } => Data::Sgl(&[]),
        _ => return Err(VpStatus::InvalidWr),
    };
    let request = SendWr { wr_id: wr.wr_id, op, data, flags };
    qp.post_send(&[request]).map_err(|failure| failure.status)
}

/// One request without inline data and with none after it.
#[inline]
unsafe fn post_one(qp: &Qp, wr: &ibv_send_wr) -> Result<(), VpStatus> {
    let mut elements = Elements::new();
    // SAFETY: the caller's request.
    let request = unsafe { request(qp, wr, &mut elements) }?;
    qp.post_send(&[request]).map_err(|failure| failure.status)
}

unsafe fn post_each(
    qp: &Qp,
    mut next: *mut ibv_send_wr,
) -> Result<(), (*mut ibv_send_wr, VpStatus)> {
    // SAFETY: the caller's list, which ends with NULL.
    while let Some(wr) = unsafe { next.as_ref() } {
        if wr.send_flags & IBV_SEND_INLINE != 0 {
            // SAFETY: the caller's request.
            unsafe { post_inline(qp, wr) }.map_err(|status| (next, status))?;
            next = wr.next;
        } else if wr.next.is_null() {
            // SAFETY: as above.
            return unsafe { post_one(qp, wr) }.map_err(|status| (next, status));
        } else {
            // SAFETY: the caller's list from here on.
            let (took, result) = unsafe { post_piece(qp, next) };
            // SAFETY: as above.
            next = unsafe { nth(next, took) };
            result.map_err(|status| (next, status))?;
        }
    }
    Ok(())
}

unsafe fn nth(mut next: *mut ibv_send_wr, count: usize) -> *mut ibv_send_wr {
    for _ in 0..count {
        // SAFETY: the caller's list has more than `count`, or ends there.
        next = unsafe { (*next).next };
    }
    next
}

pub(super) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's queue pair.
    let refused = match unsafe { object::with(qp) } {
        Err(error) => Err((list, error)),
        Ok(qp) => {
            let ready = qp.adapter().and(takes_sends(qp.state()).map_err(Errno::from));
            let refuse = |(at, status): (_, VpStatus)| (at, status.into());
            ready.map_err(|error| (list, error)).and_then(|()| {
                let posted = match qp.datagrams() {
                    // SAFETY: the caller's list.
                    Some(own) => unsafe { datagrams::post_each(qp, &**own, list) },
                    // SAFETY: as above.
                    None => unsafe { post_each(qp, list) },
                };
                posted.map_err(refuse)
            })
        }
    };
    match refused {
        Ok(()) => 0,
        Err((at, error)) => {
            // SAFETY: NULL, or the caller's pointer.
            if let Some(bad) = unsafe { bad.as_mut() } {
                *bad = at;
            }
            error.0
        }
    }
}

/// Passes receives, in pieces, to `post`.
unsafe fn post_receives(
    mut next: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl Fn(&[RecvWr<'_>]) -> Result<(), PostFailure>,
) -> c_int {
    let refuse = |at, error: Errno| {
        // SAFETY: NULL, or the caller's pointer.
        if let Some(bad) = unsafe { bad.as_mut() } {
            *bad = at;
        }
        error.0
    };
    while !next.is_null() {
        let mut elements = [const { Elements::new() }; POST_LIST];
        let mut list = [const { MaybeUninit::<RecvWr<'_>>::uninit() }; POST_LIST];
        let mut places = [std::ptr::null_mut(); POST_LIST];
        let (mut count, mut refused) = (0, None);
        for (elements, room) in elements.iter_mut().zip(&mut list) {
            // SAFETY: the caller's list, which ends with NULL.
            let Some(wr) = (unsafe { next.as_ref() }) else { break };
            let num = usize::try_from(wr.num_sge).unwrap_or(usize::MAX);
            // SAFETY: the caller's elements.
            match unsafe { elements.take(wr.sg_list, num) } {
                Ok(sgl) => room.write(RecvWr { wr_id: wr.wr_id, sgl }),
                Err(status) => {
                    refused = Some((next, status));
                    break;
                }
            };
            places[count] = next;
            count += 1;
            next = wr.next;
        }
        let first: *const RecvWr<'_> = list.as_ptr().cast();
        // SAFETY: so many were written.
        let list = unsafe { std::slice::from_raw_parts(first, count) };
        if let Err(PostFailure { posted, status }) = post(list) {
            return refuse(places[posted.min(POST_LIST - 1)], status.into());
        }
        if let Some((at, status)) = refused {
            return refuse(at, status.into());
        }
    }
    0
}

pub(super) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's queue pair.
    let qp = match unsafe { object::with(qp) } {
        Ok(qp) => qp,
        Err(error) => return error.0,
    };
    let ready = qp.adapter().and(takes_receives(qp.state()).map_err(Errno::from));
    if let Err(error) = ready {
        // SAFETY: NULL, or the caller's pointer.
        if let Some(bad) = unsafe { bad.as_mut() } {
            *bad = list;
        }
        return error.0;
    }
    // SAFETY: the caller's list.
    unsafe { post_receives(list, bad, |list| qp.vp().post_recv(list)) }
}

pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's queue.
    let srq = match unsafe { object::with(srq) } {
        Ok(srq) => srq,
        Err(error) => return error.0,
    };
    if let Err(error) = srq.adapter() {
        // SAFETY: NULL, or the caller's pointer.
        if let Some(bad) = unsafe { bad.as_mut() } {
            *bad = list;
        }
        return error.0;
    }
    // SAFETY: the caller's list.
    unsafe { post_receives(list, bad, |list| srq.vp().post_recv(list)) }
}
