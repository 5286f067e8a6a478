//! The work requests that move data: sends, receives, RDMA, atomics, Immediate Data. No state of its
//! own; the caller's thread.

use kal_os::lock;
use ual::vp_api::{AtomicOp, Capabilities, RecvWr, Remote, SendOp, VpStatus};

use super::ep::EpObject;
use super::failure::{Failure, Outcome};
use super::object::Ref;
use super::post::{Cookie, Posting, both, need, receive_notifies, refused};
use super::ptr;
use super::ring::Request;
use super::sgl::{Limit, Sgl, of_region, stag_of};
use super::srq::SrqObject;
use super::status;
use super::types::*;
use super::ud::post::{receive as datagram_receive, send as datagram_send};
use super::{object, wr_id};

fn endpoint(handle: it_ep_handle_t) -> Outcome<Ref<EpObject>> {
    object::find::<EpObject>(handle.cast())
}

both! {
    it_post_send, it_post_send_zrl = send(
        ep_handle: it_ep_handle_t,
        local_segments: *const it_lmr_triplet_t,
        num_segments: usize;
        dto_flags: it_dto_flags_t);
    it_post_send_and_unlink, it_post_send_and_unlink_zrl = send_and_unlink(
        ep_handle: it_ep_handle_t,
        local_segments: *const it_lmr_triplet_t,
        num_segments: usize;
        dto_flags: it_dto_flags_t,
        rmr_context: it_rmr_context_t);
    it_post_rdma_write, it_post_rdma_write_zrl = write(
        ep_handle: it_ep_handle_t,
        local_segments: *const it_lmr_triplet_t,
        num_segments: usize;
        dto_flags: it_dto_flags_t,
        rdma_addr: it_rdma_addr_t,
        rmr_context: it_rmr_context_t);
    itw_post_rdma_write_with_immediate, itw_post_rdma_write_with_immediate_zrl = write_immediate(
        ep_handle: it_ep_handle_t,
        local_segments: *const it_lmr_triplet_t,
        num_segments: usize;
        dto_flags: it_dto_flags_t,
        rdma_addr: it_rdma_addr_t,
        rmr_context: it_rmr_context_t,
        data: u64);
    itw_post_immediate, itw_post_immediate_zrl = immediate(
        ep_handle: it_ep_handle_t,
        data: u64;
        dto_flags: it_dto_flags_t);
    it_post_rdma_read, it_post_rdma_read_zrl = read(
        ep_handle: it_ep_handle_t,
        local_segments: *const it_lmr_triplet_t,
        num_segments: usize;
        dto_flags: it_dto_flags_t,
        rdma_addr: it_rdma_addr_t,
        rmr_context: it_rmr_context_t);
    it_post_rdma_read_to_rmr, it_post_rdma_read_to_rmr_zrl = read_to_rmr(
        ep_handle: it_ep_handle_t,
        local_segments: *const it_rmr_triplet_t,
        num_segments: usize;
        dto_flags: it_dto_flags_t,
        rdma_addr: it_rdma_addr_t,
        rmr_context: it_rmr_context_t);
    it_post_atomic, it_post_atomic_zrl = atomic(
        ep_handle: it_ep_handle_t,
        op: it_atomic_op_t,
        swap_or_add: u64,
        compare: u64,
        result: *const it_lmr_triplet_t;
        dto_flags: it_dto_flags_t,
        rdma_addr: it_rdma_addr_t,
        rmr_context: it_rmr_context_t);
    it_post_recv, it_post_recv_zrl = receive(
        handle: it_handle_t,
        local_segments: *const it_lmr_triplet_t,
        num_segments: usize;
        dto_flags: it_dto_flags_t);
    it_post_sendto, it_post_sendto_zrl = datagram_send(
        ep_handle: it_ep_handle_t,
        local_segments: *const it_lmr_triplet_t,
        num_segments: usize;
        dto_flags: it_dto_flags_t,
        remote_ep_addr: *const it_dg_remote_ep_addr_t);
    it_post_recvfrom, it_post_recvfrom_zrl = datagram_receive(
        ep_handle: it_ep_handle_t,
        local_segments: *const it_lmr_triplet_t,
        num_segments: usize;
        dto_flags: it_dto_flags_t);
}

/// # Safety
/// As the entry point.
unsafe fn send(
    ep_handle: it_ep_handle_t,
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    let posting = Posting::new(cookie, dto_flags, IT_DTO_SEND_CMPL_EVENT)?;
    // SAFETY: same contract.
    let sgl =
        unsafe { Sgl::read(local_segments, num_segments, Limit::send(ep.segments[0]), ep.ia) }?;
    let op = SendOp::Send { solicited: posting.is_solicited(), invalidate: None };
    posting.run(&ep, op, sgl.elements())
}

/// # Safety
/// As the entry point.
unsafe fn send_and_unlink(
    ep_handle: it_ep_handle_t,
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    rmr_context: it_rmr_context_t,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    need(&ep, Capabilities::INVALIDATE, "unlink a peer's memory by a send")?;
    let posting = Posting::new(cookie, dto_flags, IT_DTO_SEND_CMPL_EVENT)?;
    // SAFETY: same contract.
    let sgl =
        unsafe { Sgl::read(local_segments, num_segments, Limit::send(ep.segments[0]), ep.ia) }?;
    let invalidate = Some(stag_of(rmr_context)?);
    posting.run(&ep, SendOp::Send { solicited: posting.is_solicited(), invalidate }, sgl.elements())
}

/// # Safety
/// As the entry point.
unsafe fn write(
    ep_handle: it_ep_handle_t,
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    rdma_addr: it_rdma_addr_t,
    rmr_context: it_rmr_context_t,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    let posting = Posting::new(cookie, dto_flags, IT_DTO_RDMA_WRITE_CMPL_EVENT)?;
    // SAFETY: same contract.
    let sgl =
        unsafe { Sgl::read(local_segments, num_segments, Limit::write(ep.segments[2]), ep.ia) }?;
    let remote = Remote { stag: stag_of(rmr_context)?, to: rdma_addr };
    posting.run(&ep, SendOp::Write { remote }, sgl.elements())
}

/// # Safety
/// As the entry point.
#[allow(clippy::too_many_arguments)] // the C function's
unsafe fn write_immediate(
    ep_handle: it_ep_handle_t,
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    rdma_addr: it_rdma_addr_t,
    rmr_context: it_rmr_context_t,
    data: u64,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    need(&ep, Capabilities::IMMEDIATE, "send immediate data")?;
    let posting = Posting::new(cookie, dto_flags, IT_DTO_RDMA_WRITE_CMPL_EVENT)?;
    // SAFETY: same contract.
    let sgl =
        unsafe { Sgl::read(local_segments, num_segments, Limit::write(ep.segments[2]), ep.ia) }?;
    let remote = Remote { stag: stag_of(rmr_context)?, to: rdma_addr };
    let op = SendOp::WriteImmediate { remote, data, solicited: posting.is_solicited() };
    posting.run(&ep, op, sgl.elements())
}

/// # Safety
/// As the entry point.
unsafe fn immediate(
    ep_handle: it_ep_handle_t,
    data: u64,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    need(&ep, Capabilities::IMMEDIATE, "send immediate data")?;
    let posting = Posting::new(cookie, dto_flags, IT_DTO_SEND_CMPL_EVENT)?;
    posting.run(&ep, SendOp::Immediate { data, solicited: posting.is_solicited() }, &[])
}

/// An RDMA Read into the one segment, which is unlinked afterwards if the flags request it.
fn read_into(
    ep: &EpObject,
    sgl: &Sgl,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    remote: Remote,
) -> Outcome {
    if sgl.elements().len() != 1 {
        let text = "an RDMA Read has exactly one local segment on iWARP";
        return Err(Failure::new(status::IT_ERR_INVALID_NUM_SEGMENTS, text));
    }
    let flags = dto_flags & !IT_UNLINK_LOCAL_SINK;
    let posting = Posting::new(cookie, flags, IT_DTO_RDMA_READ_CMPL_EVENT)?;
    let invalidate_sink = dto_flags & IT_UNLINK_LOCAL_SINK != 0;
    if invalidate_sink {
        need(ep, Capabilities::READ_SINK_STAG, "unlink the sink of an RDMA Read")?;
    }
    let unlinks = if invalidate_sink { sgl.first } else { 0 };
    Posting { unlinks, ..posting }.run(ep, SendOp::Read { remote, invalidate_sink }, sgl.elements())
}

/// # Safety
/// As the entry point.
unsafe fn read(
    ep_handle: it_ep_handle_t,
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    rdma_addr: it_rdma_addr_t,
    rmr_context: it_rmr_context_t,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    // SAFETY: same contract.
    let sgl = unsafe { Sgl::read(local_segments, num_segments, Limit::READ, ep.ia) }?;
    let remote = Remote { stag: stag_of(rmr_context)?, to: rdma_addr };
    read_into(&ep, &sgl, cookie, dto_flags, remote)
}

/// # Safety
/// As the entry point.
unsafe fn read_to_rmr(
    ep_handle: it_ep_handle_t,
    local_segments: *const it_rmr_triplet_t,
    num_segments: usize,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    rdma_addr: it_rdma_addr_t,
    rmr_context: it_rmr_context_t,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    need(&ep, Capabilities::READ_SINK_STAG, "read into memory windows")?;
    // SAFETY: same contract.
    let sgl = unsafe { Sgl::read_windows(local_segments, num_segments, Limit::READ, ep.ia) }?;
    let remote = Remote { stag: stag_of(rmr_context)?, to: rdma_addr };
    read_into(&ep, &sgl, cookie, dto_flags, remote)
}

/// # Safety
/// As the entry point.
#[allow(clippy::too_many_arguments)] // the C function's
unsafe fn atomic(
    ep_handle: it_ep_handle_t,
    op: it_atomic_op_t,
    swap_or_add: u64,
    compare: u64,
    result: *const it_lmr_triplet_t,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    rdma_addr: it_rdma_addr_t,
    rmr_context: it_rmr_context_t,
) -> Outcome {
    let ep = endpoint(ep_handle)?;
    need(&ep, Capabilities::ATOMICS, "atomic operations")?;
    // RFC 7306 5: a mask of 0 adds one 64-bit field, a mask of ones compares and swaps all bits.
    let (op, event) = match op {
        IT_FETCH_AND_ADD => {
            (AtomicOp::FetchAdd { add: swap_or_add, mask: 0 }, IT_DTO_FETCH_ADD_CMPL_EVENT)
        }
        IT_COMPARE_AND_SWAP => {
            let (swap, mask) = (swap_or_add, u64::MAX);
            let op = AtomicOp::CmpSwap { compare, compare_mask: mask, swap, swap_mask: mask };
            (op, IT_DTO_CMP_SWAP_CMPL_EVENT)
        }
        _ => {
            let text = format!("op is {op}, which is no atomic operation");
            return Err(Failure::new(status::IT_ERR_INVALID_ATOMIC_OP, text));
        }
    };
    let posting = Posting::new(cookie, dto_flags, event)?;
    // SAFETY: same contract.
    let result = unsafe { ptr::read(result, "result") }?;
    if result.length != 8 {
        let text = format!("the result has {} octets; it must have 8", result.length);
        return Err(Failure::new(status::IT_ERR_INVALID_LENGTH, text));
    }
    // SAFETY: plain data: an address is a number, too.
    let to = unsafe { result.addr.rel };
    let sink = of_region(result.lmr, ep.ia, to, 8)?;
    let remote = Remote { stag: stag_of(rmr_context)?, to: rdma_addr };
    posting.run(&ep, SendOp::Atomic { remote, op }, &[sink])
}

/// # Safety
/// As the entry point.
unsafe fn receive(
    handle: it_handle_t,
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
) -> Outcome {
    let (count, event) = (num_segments, IT_DTO_RC_RECV_CMPL_EVENT);
    let request = Request { cookie: cookie.words, unlinks: 0, event, terminate: None };
    if let Ok(ep) = object::find::<EpObject>(handle) {
        let notify = receive_notifies(dto_flags)?;
        // SAFETY: same contract.
        let sgl =
            unsafe { Sgl::read(local_segments, count, Limit::receive(ep.segments[1]), ep.ia) }?;
        let post = |number| {
            let wr_id = wr_id::id(ep.slot, true, number, notify);
            ep.inner.post_recv(&[RecvWr { wr_id, sgl: sgl.elements() }])
        };
        let refused = |failure| refused(failure, status::IT_ERR_INVALID_RECV_DTO);
        return ep.receives.post(request, true, post, refused, || ep.inner.count_refusal());
    }
    let srq =
        object::find_or::<SrqObject>(handle, status::IT_ERR_INVALID_HANDLE).map_err(|_| {
            let text = "the handle is of no endpoint and no shared receive queue; was it freed?";
            Failure::new(status::IT_ERR_INVALID_HANDLE, text)
        })?;
    let notify = receive_notifies(dto_flags)?;
    // SAFETY: same contract.
    let sgl = unsafe { Sgl::read(local_segments, count, Limit::shared(srq.max_segments), srq.ia) }?;
    let mut receives = lock(&srq.receives);
    let no_room = |verb| Failure::verb(verb, status::IT_ERR_RESOURCES, "post a receive");
    receives.make_room(1).map_err(no_room)?;
    let number = receives.hold(request);
    let wr_id = wr_id::id(srq.slot, true, number, notify);
    srq.inner.post_recv(&[RecvWr { wr_id, sgl: sgl.elements() }]).map_err(|failure| {
        receives.refused(number);
        match failure.status {
            VpStatus::InvalidHandle => {
                let text = "the shared receive queue was freed during the call";
                Failure::new(status::IT_ERR_INVALID_SRQ, text)
            }
            _ => refused(failure, status::IT_ERR_INVALID_RECV_DTO),
        }
    })
}
