//! Tests of every operation: its effect, and its event.

use super::*;
use crate::immediate::*;
use crate::link::*;
use crate::rmr::*;
use crate::srq::*;

const ALL: it_mem_priv_t = IT_PRIV_ALL;

#[test]
fn what_is_written_is_read_back_in_both_addressing_modes() {
    let side = Side::new();
    let [a, _b] = side.pair(&attributes());
    for mode in [IT_ADDR_MODE_ABSOLUTE, IT_ADDR_MODE_RELATIVE] {
        let here = Memory::new(side.pz, 64, mode, ALL);
        let there = Memory::new(side.pz, 64, mode, ALL);
        here.fill(7);
        let parts = [here.part(0, 10), here.part(20, 6)];
        let (to, context) = (there.to(8), there.context);
        assert_eq!(
            c!(it_post_rdma_write(a, parts.as_ptr(), 2, 1, NOTIFY, to, context)),
            IT_SUCCESS
        );
        assert_eq!(side.good().event, IT_DTO_RDMA_WRITE_CMPL_EVENT);
        let sink = here.part(32, 32);
        let read = c!(it_post_rdma_read(a, &sink, 1, 2, NOTIFY, there.to(0), context));
        assert_eq!(read, IT_SUCCESS, "{}", last());
        assert_eq!(side.good().event, IT_DTO_RDMA_READ_CMPL_EVENT);
        let octets: Vec<_> = (32..64).map(|n| here.octet(n)).collect();
        assert_eq!(octets, [[0; 8], [7; 8], [7; 8], [0; 8]].concat());
    }
}

#[test]
fn atomics_return_the_original_value() {
    let side = Side::new();
    let [a, _b] = side.pair(&attributes());
    let (here, there) = (side.memory(8, ALL), side.memory(8, ALL));
    let value = |memory: &Memory| c!(memory.first.cast::<u64>().read_unaligned());
    let (to, context) = (there.to(0), there.context);
    let whole = here.whole();
    let run = |op, swap_or_add, compare| {
        let posted =
            c!(it_post_atomic(a, op, swap_or_add, compare, &whole, 3, NOTIFY, to, context));
        assert_eq!(posted, IT_SUCCESS, "{}", last());
        side.good().event
    };
    assert_eq!(run(IT_FETCH_AND_ADD, 5, 0), IT_DTO_FETCH_ADD_CMPL_EVENT);
    assert_eq!((value(&here), value(&there)), (0, 5));
    assert_eq!(run(IT_COMPARE_AND_SWAP, 9, 5), IT_DTO_CMP_SWAP_CMPL_EVENT);
    assert_eq!((value(&here), value(&there)), (5, 9));
    assert_eq!(run(IT_COMPARE_AND_SWAP, 1, 5), IT_DTO_CMP_SWAP_CMPL_EVENT);
    assert_eq!((value(&here), value(&there)), (9, 9));
}

/// Waits for a receive; returns its event.
fn received(side: &Side) -> it_event_t {
    loop {
        let event = wait(side.dto);
        if Dto::of(&event).event == IT_DTO_RC_RECV_CMPL_EVENT {
            return event;
        }
    }
}

#[test]
fn immediate_data_comes_with_the_event() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let memory = side.memory(16, ALL);
    let immediate = |event: &it_event_t| {
        let mut data = 0;
        (c!(itw_event_immediate(event, &raw mut data)), data)
    };
    for n in 1..=3 {
        assert_eq!(receive(b.cast(), &[], n), IT_SUCCESS);
    }
    let data = 0x0102_0304_0506_0708;
    assert_eq!(c!(itw_post_immediate(a, data, 4, 0)), IT_SUCCESS, "{}", last());
    assert_eq!(immediate(&received(&side)), (IT_SUCCESS, data));
    let (part, to, context) = (memory.part(0, 8), memory.to(8), memory.context);
    memory.fill(3);
    let posted =
        c!(itw_post_rdma_write_with_immediate(a, &part, 1, 5, NOTIFY, to, context, u64::MAX));
    assert_eq!(posted, IT_SUCCESS, "{}", last());
    assert_eq!(immediate(&received(&side)), (IT_SUCCESS, u64::MAX));
    assert_eq!(send(a, &[], 6, 0), IT_SUCCESS);
    let plain = received(&side);
    assert_eq!(immediate(&plain).0, IT_ERR_QUEUE_EMPTY);
    let other = it_event_t { event_number: IT_DTO_SEND_CMPL_EVENT };
    assert_eq!(immediate(&other).0, IT_ERR_INVALID_EVD_TYPE);
    assert_eq!(c!(itw_event_immediate(null(), null_mut())), IT_ERR_FAULT);
}

#[test]
fn a_send_unlinks_the_peers_memory() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let memory = side.memory(16, ALL);
    assert_eq!(receive(b.cast(), &[], 1), IT_SUCCESS);
    let sent = c!(it_post_send_and_unlink(a, null(), 0, 2, NOTIFY, memory.context));
    assert_eq!(sent, IT_SUCCESS, "{}", last());
    let event = Dto::of(&received(&side));
    assert_eq!((event.status, event.unlinked), (IT_DTO_SUCCESS, memory.lmr.cast()));
    let mut params = it_lmr_param_t::zeroed();
    assert_eq!(c!(it_lmr_query(memory.lmr, IT_LMR_PARAM_ALL, &raw mut params)), IT_SUCCESS);
    assert_eq!((params.linked, params.rmr_context), (IT_FALSE, 0));
}

#[test]
fn a_read_unlinks_its_sink() {
    let side = Side::new();
    let [a, _b] = side.pair(&attributes());
    let (here, there) = (side.memory(16, ALL), side.memory(16, ALL));
    let (whole, flags) = (here.whole(), NOTIFY | IT_UNLINK_LOCAL_SINK);
    let read = c!(it_post_rdma_read(a, &whole, 1, 2, flags, there.to(0), there.context));
    assert_eq!(read, IT_SUCCESS, "{}", last());
    assert_eq!(side.good().unlinked, here.lmr.cast());
    // Other requests have nothing to unlink.
    assert_eq!(send(a, &[], 1, flags), IT_ERR_INVALID_DTO_FLAGS);
}

#[test]
fn a_window_opens_a_part_and_closes_it() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let (here, there) = (side.memory(64, ALL), side.memory(64, IT_PRIV_LOCAL));
    here.fill(9);
    for (kind, mode) in [
        (IT_RMR_TYPE_NARROW, IT_ADDR_MODE_ABSOLUTE),
        (IT_RMR_TYPE_WIDE, IT_ADDR_MODE_RELATIVE),
        (IT_RMR_TYPE_DEFAULT, IT_ADDR_MODE_ABSOLUTE),
    ] {
        let rmr = make!(it_rmr_create20(side.pz, kind));
        let (lmr, at) = (there.lmr, there.first.wrapping_add(16));
        let (privs, mut context) = (IT_PRIV_REMOTE, 0);
        let link = c!(it_rmr_link(rmr, lmr, at, 32, mode, privs, b, 1, NOTIFY, &raw mut context));
        assert_eq!(link, IT_SUCCESS, "{}", last());
        let linked = side.good();
        assert_eq!((linked.event, linked.cookie, linked.ep), (IT_RMR_LINK_CMPL_EVENT, 1, b));
        let mut params = it_rmr_param_t::zeroed();
        assert_eq!(c!(it_rmr_query(rmr, IT_RMR_PARAM_ALL, &raw mut params)), IT_SUCCESS);
        assert_eq!((params.linked, params.lmr, params.length), (IT_TRUE, lmr, 32));
        assert_eq!((params.rmr_context, params.r#type), (context, kind));
        assert_eq!((params.addr.cast(), params.addr_mode, params.privs), (at, mode, privs));
        assert_eq!(it_lmr_free(lmr), IT_ERR_LMR_BUSY);
        let to = if mode == IT_ADDR_MODE_RELATIVE { 0 } else { at.addr() as u64 };
        let part = here.part(0, 8);
        assert_eq!(c!(it_post_rdma_write(a, &part, 1, 2, NOTIFY, to, context)), IT_SUCCESS);
        side.good();
        // The write is placed before the response to the read after it.
        let sink = here.part(60, 1);
        assert_eq!(c!(it_post_rdma_read(a, &sink, 1, 2, NOTIFY, to, context)), IT_SUCCESS);
        side.good();
        assert_eq!(c!(it_rmr_unlink(rmr, b, 3, NOTIFY | IT_UNLINK_FENCE_FLAG)), IT_SUCCESS);
        assert_eq!(side.good().event, IT_RMR_LINK_CMPL_EVENT);
        assert_eq!(c!(it_rmr_query(rmr, IT_RMR_PARAM_ALL, &raw mut params)), IT_SUCCESS);
        assert_eq!((params.linked, params.lmr), (IT_FALSE, null_mut()));
        assert_eq!(it_rmr_free(rmr), IT_SUCCESS);
        assert_eq!(it_rmr_free(rmr), IT_ERR_INVALID_RMR);
    }
    assert_eq!(there.octet(16), 9);
}

#[test]
fn version_one_binds_again_and_unbinds_by_length_0() {
    let side = Side::new();
    let [a, _b] = side.pair(&attributes());
    let memory = side.memory(64, ALL);
    let rmr = make!(it_rmr_create10(side.pz));
    let mut contexts = [0; 2];
    for context in &mut contexts {
        let (lmr, at, privs) = (memory.lmr, memory.first, IT_PRIV_REMOTE_READ);
        let bound = c!(it_rmr_bind10(rmr, lmr, at, 64, privs, a, 1, NOTIFY, &raw mut *context));
        assert_eq!(bound, IT_SUCCESS, "{}", last());
        side.good();
    }
    assert_ne!(contexts[0], contexts[1]);
    let none = (null_mut(), null_mut());
    let unbound = c!(it_rmr_bind10(rmr, none.0, none.1, 0, 0, a, 1, NOTIFY, null_mut()));
    assert_eq!(unbound, IT_SUCCESS, "{}", last());
    side.good();
    assert_eq!(it_lmr_free(memory.lmr), IT_SUCCESS);
}

#[test]
fn an_unlinked_region_is_linked_used_and_unlinked() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let (source, plain) = (side.memory(32, ALL), vec![0u8; 32].into_boxed_slice());
    let plain = Box::into_raw(plain).cast::<u8>();
    let lmr = make!(it_lmr_create_unlinked(side.pz, 1, IT_LMR_FLAG_NON_SHAREABLE, 0));
    let part = it_lmr_triplet_t { lmr, ..source.part(0, 1) };
    assert_eq!(receive(b.cast(), &[part], 1), IT_ERR_RANGE);
    let mut old = 0;
    for _ in 0..2 {
        let (privs, mut context) = (ALL, 0);
        let mode = IT_ADDR_MODE_RELATIVE;
        let out = &raw mut context;
        let linked = c!(it_lmr_link(lmr, plain, null(), 32, mode, privs, b, 1, NOTIFY, out));
        assert_eq!(linked, IT_SUCCESS, "{}", last());
        assert_eq!(side.good().event, IT_LMR_LINK_CMPL_EVENT);
        assert_ne!(context, old);
        old = context;
        let whole = source.whole();
        assert_eq!(c!(it_post_rdma_write(a, &whole, 1, 2, NOTIFY, 0, context)), IT_SUCCESS);
        side.good();
        // The write is placed before the response to the read after it.
        let sink = source.part(0, 1);
        assert_eq!(c!(it_post_rdma_read(a, &sink, 1, 3, NOTIFY, 31, context)), IT_SUCCESS);
        side.good();
        assert_eq!(c!(it_lmr_unlink(lmr, b, 3, NOTIFY)), IT_SUCCESS, "{}", last());
        let unlinked = side.good();
        assert_eq!((unlinked.event, unlinked.cookie), (IT_LMR_LINK_CMPL_EVENT, 3));
    }
    assert_eq!(it_lmr_free(lmr), IT_SUCCESS);
    let octets = std::ptr::slice_from_raw_parts_mut(plain, 32);
    drop(c!(Box::from_raw(octets)));
}

#[test]
fn endpoints_share_receives() {
    let side = Side::new();
    let srq = make!(it_srq_create(side.pz, 2, 8));
    let mut with_srq = attributes();
    // SAFETY: plain data.
    let mut rc = unsafe { with_srq.srv.rc };
    rc.srq = srq;
    with_srq.srv.rc = rc;
    (with_srq.max_recv_dtos, with_srq.max_recv_segments) = (usize::MAX, usize::MAX);
    let memory = side.memory(64, IT_PRIV_LOCAL);
    for n in 0..8 {
        assert_eq!(receive(srq.cast(), &[memory.part(32, 4)], n), IT_SUCCESS, "{}", last());
    }
    assert_eq!(receive(srq.cast(), &[], 8), IT_ERR_TOO_MANY_POSTS);
    let pairs = [0, 1].map(|_| {
        let (active, passive) = (side.ep(), side.ep_with(&with_srq, IT_EP_SRQ));
        side.join(active, passive);
        (active, passive)
    });
    assert_eq!(receive(pairs[0].1.cast(), &[], 9), IT_ERR_INVALID_RECV_DTO);
    let mut cookies = Vec::new();
    for n in 0..8 {
        let (active, passive) = pairs[n % 2];
        assert_eq!(send(active, &[memory.part(0, 4)], 100, 0), IT_SUCCESS);
        let got = side.good();
        assert_eq!((got.ep, got.length), (passive, 4));
        cookies.push(got.cookie);
    }
    cookies.sort_unstable();
    assert_eq!(cookies, (0..8).collect::<Vec<_>>());
    let mut params = it_srq_param_t::zeroed();
    params.max_recv_dtos = 16;
    params.low_watermark = 4;
    let mask = IT_SRQ_PARAM_MAX_RECV_DTO | IT_SRQ_PARAM_LOW_WATERMARK;
    assert_eq!(c!(it_srq_modify(srq, mask, &params)), IT_SUCCESS, "{}", last());
    assert_eq!(c!(it_srq_query(srq, IT_SRQ_PARAM_ALL, &raw mut params)), IT_SUCCESS);
    assert_eq!((params.max_recv_dtos, params.max_recv_segs, params.pz), (16, 2, side.pz));
    assert_eq!(it_srq_free(srq), IT_ERR_SRQ_BUSY);
    for (active, passive) in pairs {
        assert_eq!((it_ep_free(active), it_ep_free(passive)), (IT_SUCCESS, IT_SUCCESS));
    }
    assert_eq!(it_srq_free(srq), IT_SUCCESS);
}
