//! Tests of misuse: wrong handles, wrong arguments, concurrent frees.

use std::sync::Barrier;

use super::*;
use crate::link::*;
use crate::rmr::*;
use crate::srq::*;
use crate::zrl::*;

#[test]
fn wrong_posts_have_their_status_and_no_effect() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let memory = side.memory(64, IT_PRIV_ALL);
    let (whole, context, to) = (memory.whole(), memory.context, memory.to(0));
    let stranger = it_lmr_triplet_t { lmr: a.cast(), ..whole };
    assert_eq!(send(a, &[whole; 3], 1, NOTIFY), IT_ERR_INVALID_NUM_SEGMENTS);
    assert_eq!(send(a, &[stranger], 1, NOTIFY), IT_ERR_INVALID_LMR);
    assert_eq!(send(a, &[memory.part(1, 64)], 1, NOTIFY), IT_ERR_RANGE);
    assert_eq!(send(a, &[memory.part(0, 1 << 32)], 1, NOTIFY), IT_ERR_PAYLOAD_SIZE);
    assert_eq!(send(a, &[whole], 1, 0x80), IT_ERR_INVALID_DTO_FLAGS);
    assert_eq!(c!(it_post_send(a, null(), 1, 1, NOTIFY)), IT_ERR_FAULT);
    assert_eq!(send(side.dto.cast(), &[whole], 1, NOTIFY), IT_ERR_INVALID_EP);
    assert_eq!(receive(side.dto.cast(), &[whole], 1), IT_ERR_INVALID_HANDLE);
    assert_eq!(c!(it_post_recv(b.cast(), &whole, 1, 1, 8)), IT_ERR_INVALID_DTO_FLAGS);
    let long = context | 1 << 32;
    let write = |context| c!(it_post_rdma_write(a, &whole, 1, 1, NOTIFY, to, context));
    assert_eq!(write(long), IT_ERR_INVALID_RMR);
    let two = [whole; 2];
    let read = |n| c!(it_post_rdma_read(a, two.as_ptr(), n, 1, NOTIFY, to, context));
    assert_eq!([read(0), read(2)], [IT_ERR_INVALID_NUM_SEGMENTS; 2]);
    let atomic = |op, result| c!(it_post_atomic(a, op, 1, 1, result, 1, NOTIFY, to, context));
    assert_eq!(atomic(2, &memory.part(0, 8)), IT_ERR_INVALID_ATOMIC_OP);
    assert_eq!(atomic(0, &whole), IT_ERR_INVALID_LENGTH);
    assert_eq!(atomic(0, null()), IT_ERR_FAULT);
    assert_eq!(c!(it_post_sendto(a, null(), 0, 1, 0, null())), IT_ERR_OP_NOT_SUPPORTED);
    assert_eq!(c!(it_post_recvfrom(a, null(), 0, 1, 0)), IT_ERR_OP_NOT_SUPPORTED);
    assert_eq!(side.poll(), None);
    // The queue is as empty as it was.
    for n in 0..16 {
        assert_eq!(receive(b.cast(), &[], n), IT_SUCCESS, "{}", last());
    }
}

/// The text names the limit's object, its attribute, and what the adapter allows.
#[test]
fn too_many_segments_name_the_limit() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let memory = side.memory(64, IT_PRIV_ALL);
    let segments = [memory.part(0, 1); 5];
    let (context, to) = (memory.context, memory.to(0));
    let refused = |status, limit: &str| {
        assert_eq!(status, IT_ERR_INVALID_NUM_SEGMENTS);
        assert!(last().contains(limit), "{}", last());
    };
    let allowed = "it was created with; the adapter vp_softrdma allows 16";
    let of = |whose: &str, most, attribute: &str| {
        format!("5 segments; this {whose} takes at most {most}, by the {attribute} {allowed}")
    };
    refused(send(a, &segments, 1, NOTIFY), &of("endpoint", 2, "max_send_segments"));
    refused(receive(b.cast(), &segments, 1), &of("endpoint", 2, "max_recv_segments"));
    let write = c!(it_post_rdma_write(a, segments.as_ptr(), 5, 1, NOTIFY, to, context));
    refused(write, &of("endpoint", 4, "max_rdma_write_segments"));
    let read = c!(it_post_rdma_read(a, segments.as_ptr(), 5, 1, NOTIFY, to, context));
    refused(read, "5 segments; an RDMA Read has exactly one local segment");
    let mut srq = null_mut();
    assert_eq!(c!(it_srq_create(side.pz, 1, 4, &mut srq)), IT_SUCCESS, "{}", last());
    refused(receive(srq.cast(), &segments, 1), &of("shared receive queue", 1, "max_recv_segments"));
}

#[test]
fn unaligned_arguments_are_taken() {
    let side = Side::new();
    let [a, b] = side.pair(&attributes());
    let memory = side.memory(64, IT_PRIV_ALL);
    assert_eq!(receive(b.cast(), &[], 1), IT_SUCCESS);
    let mut room = [0u8; 64];
    let odd = room.as_mut_ptr().wrapping_add(1).cast::<it_lmr_triplet_t>();
    c!(odd.write_unaligned(memory.part(0, 0)));
    assert_eq!(c!(it_post_send(a, odd, 1, 2, NOTIFY)), IT_SUCCESS, "{}", last());
    assert_eq!([side.good().length, side.good().length], [0; 2]);
    let mut params = [0u8; 300];
    let odd = params.as_mut_ptr().wrapping_add(3).cast::<it_ep_param_t>();
    assert_eq!(c!(it_ep_query(a, IT_EP_PARAM_ALL, odd)), IT_SUCCESS);
}

#[test]
fn links_check_what_they_link() {
    let side = Side::new();
    let mut plain = attributes();
    plain.priv_ops_enable = 0xCDCD;
    let [a, b] = side.pair(&plain);
    let memory = side.memory(64, IT_PRIV_ALL);
    let relative = Memory::new(side.pz, 64, IT_ADDR_MODE_RELATIVE, IT_PRIV_ALL);
    let rmr = make!(it_rmr_create20(side.pz, IT_RMR_TYPE_NARROW));
    let link = |lmr, at: *mut u8, length, mode, privs, flags| {
        c!(it_rmr_link(rmr, lmr, at, length, mode, privs, a, 1, flags, null_mut()))
    };
    let (lmr, at, read) = (memory.lmr, memory.first, IT_PRIV_REMOTE_READ);
    assert_eq!(link(lmr, at, 65, 0, read, 0), IT_ERR_RANGE);
    assert_eq!(link(lmr, at, 64, 2, read, 0), IT_ERR_INVALID_ADDR_MODE);
    assert_eq!(link(relative.lmr, null_mut(), 64, 0, read, 0), IT_ERR_INVALID_ADDR_MODE);
    assert_eq!(link(lmr, at, 64, 0, IT_PRIV_LOCAL, 0), IT_ERR_INVALID_PRIVS);
    assert_eq!(link(lmr, at, 64, 0, 0x40, 0), IT_ERR_INVALID_PRIVS);
    assert_eq!(link(lmr, at, 64, 0, read, 0x100), IT_ERR_INVALID_DTO_FLAGS);
    assert_eq!(link(null_mut(), at, 64, 0, read, 0), IT_ERR_INVALID_LMR);
    assert_eq!(c!(it_rmr_unlink(rmr, null_mut(), 1, 0)), IT_ERR_INVALID_EP);
    assert_eq!(c!(it_rmr_create20(side.pz, 3, null_mut())), IT_ERR_FAULT);
    let mut made = null_mut();
    assert_eq!(c!(it_rmr_create20(side.pz, 3, &raw mut made)), IT_ERR_INVALID_RMR_TYPE);
    let lmr = make!(it_lmr_create_unlinked(side.pz, 1, 0, 0));
    let first = memory.first;
    let linked = c!(it_lmr_link(lmr, first, null(), 64, 0, 0x1f, b, 1, 0, null_mut()));
    assert_eq!(linked, IT_ERR_PRIV_OPS_UNAVAILABLE);
    assert_eq!(c!(it_lmr_unlink(lmr, side.ia.cast(), 1, 0)), IT_ERR_INVALID_EP);
}

#[test]
fn memory_of_another_adapter_is_refused() {
    let (side, other) = (Side::new(), Side::new());
    let ep = side.ep();
    let memory = other.memory(64, IT_PRIV_ALL);
    assert_eq!(receive(ep.cast(), &[memory.whole()], 1), IT_ERR_INVALID_LMR);
    let mut context = 0;
    let got = c!(itx_get_rmr_context_for_ep(ep, memory.lmr, &raw mut context));
    assert_eq!(got, IT_ERR_INVALID_LMR);
    let mut made = null_mut();
    let (pz, dto, conn, attr) = (side.pz, side.dto, side.conn, attributes());
    let mut create = |request, recv, connect| {
        c!(it_ep_rc_create(pz, request, recv, connect, 0, &attr, &raw mut made))
    };
    assert_eq!(create(other.dto, dto, conn), IT_ERR_INVALID_REQ_EVD);
    assert_eq!(create(dto, other.dto, conn), IT_ERR_INVALID_RECV_EVD);
    assert_eq!(create(dto, dto, other.conn), IT_ERR_INVALID_CONN_EVD);
    assert_eq!(create(null_mut(), dto, conn), IT_ERR_INVALID_REQ_EVD);
    assert_eq!(create(conn, dto, conn), IT_ERR_INVALID_EVD_TYPE);
    assert_eq!(create(dto, dto, dto), IT_ERR_INVALID_EVD_TYPE);
    // Applications of the Zurich stack do this.
    assert_eq!(create(dto, dto, side.requests), IT_SUCCESS);
}

#[test]
fn endpoints_are_made_as_asked_or_not_at_all() {
    let side = Side::new();
    let mut made = null_mut();
    let mut create = |flags, attr: *const it_ep_attributes_t| {
        let (pz, dto, conn) = (side.pz, side.dto, side.conn);
        c!(it_ep_rc_create(pz, dto, dto, conn, flags, attr, &raw mut made))
    };
    let good = attributes();
    assert_eq!(create(4, &good), IT_ERR_INVALID_FLAGS);
    assert_eq!(create(0, null()), IT_ERR_FAULT);
    assert_eq!(create(IT_EP_SRQ, &good), IT_ERR_INVALID_SRQ);
    assert_eq!(create(IT_EP_REUSEADDR, &good), IT_SUCCESS);
    let ep = side.ep();
    let mut params = it_ep_param_t::zeroed();
    assert_eq!(c!(it_ep_query(ep, IT_EP_PARAM_ALL, &raw mut params)), IT_SUCCESS);
    assert_eq!((params.ia, params.pz, params.request_sevd), (side.ia, side.pz, side.dto));
    assert_eq!((params.recv_sevd, params.connect_sevd), (side.dto, side.conn));
    assert_eq!(params.attr.max_request_dtos, 16);
    assert_eq!(c!(it_ep_query_zrl(ep, 1 << 28, &raw mut params)), IT_ERR_INVALID_MASK);
    let mut new = good;
    (new.max_request_dtos, new.max_recv_dtos) = (4, 3);
    let mask = IT_EP_PARAM_MAX_REQ_DTO | IT_EP_PARAM_MAX_RECV_DTO;
    assert_eq!(c!(it_ep_modify(ep, mask, &new)), IT_SUCCESS, "{}", last());
    let posted = (0..9).take_while(|n| receive(ep.cast(), &[], *n) == IT_SUCCESS).count();
    assert_eq!(posted, 3);
    assert_eq!(c!(it_ep_modify(ep, IT_EP_PARAM_STATE, &new)), IT_ERR_INVALID_MASK);
    assert_eq!(it_ep_reset(ep), IT_ERR_INVALID_EP_STATE);
    assert_eq!(it_ep_disconnect(ep, null(), 0), IT_ERR_INVALID_EP_STATE);
    assert_eq!(it_ep_disconnect(ep, null(), 1), IT_ERR_PDATA_NOT_SUPPORTED);
}

#[test]
fn the_number_of_reads_is_changed_within_that_of_the_connection() {
    let side = Side::new();
    let [a, _] = side.pair(&attributes());
    let modify = |mask, reads: u32| {
        let mut new = attributes();
        let rc = it_rc_only_attributes_t {
            rdma_read_ird: reads,
            rdma_read_ord: reads,
            ..it_rc_only_attributes_t::zeroed()
        };
        new.srv = it_service_attributes_t { rc };
        c!(it_ep_modify(a, mask, &new))
    };
    assert_eq!(modify(IT_EP_PARAM_MAX_ORD, 9), IT_ERR_RESOURCE_ORD);
    assert_eq!(modify(IT_EP_PARAM_MAX_ORD, u32::MAX), IT_ERR_RESOURCE_ORD);
    assert_eq!(modify(IT_EP_PARAM_MAX_ORD, 2), IT_SUCCESS, "{}", last());
    assert_eq!(modify(IT_EP_PARAM_MAX_IRD, 9), IT_ERR_INVALID_EP_STATE);
}

#[test]
fn of_two_threads_that_free_one_succeeds() {
    for _ in 0..50 {
        let side = Side::new();
        let ep = side.ep().addr() as u64;
        let srq = make!(it_srq_create(side.pz, 1, 1)).addr() as u64;
        let barrier = Barrier::new(3);
        let freed: Vec<_> = std::thread::scope(|scope| {
            let free = || {
                scope.spawn(|| {
                    barrier.wait();
                    [it_ep_free(object::handle(ep)), it_srq_free(object::handle(srq))]
                })
            };
            let both = [free(), free()];
            barrier.wait();
            // A post meanwhile is refused, at the latest because it is gone.
            let posted = receive(object::handle(ep), &[], 1);
            assert!([IT_SUCCESS, IT_ERR_INVALID_EP, IT_ERR_INVALID_HANDLE].contains(&posted));
            both.map(|thread| thread.join().unwrap()).into_iter().collect()
        });
        for (kind, gone) in [IT_ERR_INVALID_EP, IT_ERR_INVALID_SRQ].into_iter().enumerate() {
            let mut statuses = [freed[0][kind], freed[1][kind]];
            statuses.sort_unstable();
            assert_eq!(statuses, [IT_SUCCESS, gone]);
        }
    }
}
