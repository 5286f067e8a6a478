//! Tests of calls out of order and of unsupported ones: each is refused with the error number that
//! programs expect, and changes nothing.

use std::ffi::CStr;
use std::ptr::null_mut;

use ibv_sys::*;
use ofa::rdmacm::calls::addrinfo::warpline_rdma_getaddrinfo;
use ofa::rdmacm::calls::device::*;
use ofa::rdmacm::calls::endpoint::warpline_rdma_get_request;
use ofa::rdmacm::calls::option::warpline_rdma_set_option;

use crate::common::*;

#[test]
fn calls_out_of_order_are_refused() {
    let channel = channel();
    let id = id_on(channel);
    let invalid = libc::EINVAL;
    refused!(invalid, warpline_rdma_resolve_route(id, 0));
    refused!(invalid, warpline_rdma_connect(id, null_mut()));
    refused!(invalid, warpline_rdma_accept(id, null_mut()));
    refused!(invalid, warpline_rdma_reject(id, null_mut(), 0));
    refused!(invalid, warpline_rdma_disconnect(id));
    refused!(invalid, warpline_rdma_establish(id));
    refused!(invalid, warpline_rdma_notify(id, IBV_EVENT_COMM_EST));
    // It is bound to no device.
    refused!(invalid, warpline_rdma_create_qp(id, null_mut(), &mut attr()));
    refused!(invalid, warpline_rdma_bind_addr(id, null_mut()));
    refused!(invalid, warpline_rdma_resolve_addr(id, null_mut(), null_mut(), 0));
    refused!(invalid, warpline_rdma_get_request(id, &mut null_mut()));
    assert_eq!(call!(warpline_rdma_get_dst_port(id)), 0);

    done!(warpline_rdma_listen(id, 1));
    assert_ne!(call!(warpline_rdma_get_src_port(id)), 0);
    refused!(invalid, warpline_rdma_listen(id, 1));
    refused!(invalid, warpline_rdma_bind_addr(id, c_address("127.0.0.1:0")));
    refused!(invalid, warpline_rdma_resolve_addr(id, null_mut(), c_address("127.0.0.1:1"), 0));
    done!(warpline_rdma_destroy_id(id));

    let id = resolved(channel, "127.0.0.1:1");
    refused!(invalid, warpline_rdma_create_qp(id, null_mut(), &mut attr()));
    refused!(invalid, warpline_rdma_listen(id, 1));
    refused!(invalid, warpline_rdma_resolve_addr(id, null_mut(), c_address("127.0.0.1:1"), 0));
    let mut greedy = params(&[]);
    greedy.responder_resources = 200;
    refused!(invalid, warpline_rdma_connect(id, &raw mut greedy));
    (greedy.responder_resources, greedy.initiator_depth) = (1, 129);
    refused!(invalid, warpline_rdma_connect(id, &raw mut greedy));
    assert!(!has_event(channel));
    call!(warpline_rdma_destroy_qp(id));
    done!(warpline_rdma_destroy_id(id));
    call!(warpline_rdma_destroy_event_channel(channel));
}

#[test]
fn unsupported_calls_are_refused() {
    let channel = channel();
    let mut id = null_mut();
    for (ps, errno) in [(RDMA_PS_IPOIB, libc::EOPNOTSUPP), (0x7777, libc::EINVAL)] {
        refused!(errno, warpline_rdma_create_id(channel, &raw mut id, null_mut(), ps));
    }
    refused!(libc::EINVAL, warpline_rdma_create_id(channel, null_mut(), null_mut(), RDMA_PS_TCP));
    refused!(libc::EINVAL, warpline_rdma_destroy_id(null_mut()));
    refused!(libc::EINVAL, warpline_rdma_get_cm_event(channel, null_mut()));
    let id = id_on(channel);
    let mut value = [0u64; 8];
    let value = value.as_mut_ptr().cast();
    for (level, name, len, errno) in [
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 64, libc::EOPNOTSUPP),
        (RDMA_OPTION_ID, 99, 1, libc::ENOSYS),
        (99, RDMA_OPTION_ID_TOS, 1, libc::ENOSYS),
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 4, libc::EINVAL),
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 1, libc::EINVAL),
    ] {
        refused!(errno, warpline_rdma_set_option(id, level, name, value, len));
    }
    for (name, len) in
        [(RDMA_OPTION_ID_TOS, 1), (RDMA_OPTION_ID_ACK_TIMEOUT, 1), (RDMA_OPTION_ID_AFONLY, 4)]
    {
        done!(warpline_rdma_set_option(id, RDMA_OPTION_ID, name, value, len));
    }
    // Too late to bind an address.
    done!(warpline_rdma_bind_addr(id, c_address("127.0.0.1:0")));
    let (level, name) = (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR);
    refused!(libc::EINVAL, warpline_rdma_set_option(id, level, name, value, 4));
    done!(warpline_rdma_destroy_id(id));
    call!(warpline_rdma_destroy_event_channel(channel));
}

/// What the man pages say of second objects, of events that are not there, and of nothing to resolve.
#[test]
fn refusals_leave_the_identifier_as_it_was() {
    let invalid = libc::EINVAL;
    let channel = channel();
    let id = resolved(channel, "127.0.0.1:1");
    // rdma_create_qp(3), rdma_create_srq(3): one of each.
    let limits = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
    let mut srq = ibv_srq_init_attr { srq_context: null_mut(), attr: limits };
    done!(warpline_rdma_create_srq(id, null_mut(), &mut srq));
    let before = shown(id).srq;
    refused!(invalid, warpline_rdma_create_srq(id, null_mut(), &mut srq));
    refused!(invalid, warpline_rdma_create_qp(id, null_mut(), null_mut()));
    let qp = shown(id).qp;
    refused!(invalid, warpline_rdma_create_qp(id, null_mut(), &mut attr()));
    assert!(shown(id).srq == before && shown(id).qp == qp);
    // rdma_init_qp_attr(3): of the states of a connection.
    let mut wanted = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    refused!(invalid, warpline_rdma_init_qp_attr(id, &mut wanted, &mut 0));
    // rdma_get_cm_event(3): the descriptor's mode decides.
    assert!(!has_event(channel));
    // SAFETY: the channel's descriptor.
    let fd = unsafe { (*channel).fd };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK) }, 0);
    refused!(libc::EAGAIN, warpline_rdma_get_cm_event(channel, &mut null_mut()));
    call!(warpline_rdma_destroy_qp(id));
    call!(warpline_rdma_destroy_srq(id));
    done!(warpline_rdma_destroy_id(id));
    // rdma_migrate_id(3): an identifier that is synchronous stays so.
    let mut id = null_mut();
    done!(warpline_rdma_create_id(null_mut(), &raw mut id, null_mut(), RDMA_PS_TCP));
    refused!(invalid, warpline_rdma_migrate_id(id, null_mut()));
    done!(warpline_rdma_destroy_id(id));
    call!(warpline_rdma_destroy_event_channel(channel));
}

/// rdma_getaddrinfo(3): node, service or hints; else the resolver's code.
#[test]
fn names_that_are_none_are_not_resolved() {
    let mut list = null_mut();
    let find = |node: *const i8, hints: *const rdma_addrinfo, list| {
        call!(warpline_rdma_getaddrinfo(node, std::ptr::null(), hints, list))
    };
    refused!(
        libc::EINVAL,
        warpline_rdma_getaddrinfo(
            std::ptr::null(),
            std::ptr::null(),
            std::ptr::null(),
            &raw mut list
        )
    );
    // SAFETY: zeroes are a value of every field.
    let mut hints: rdma_addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_flags = RAI_NUMERICHOST;
    assert_eq!(find(c"no-address".as_ptr(), &hints, &raw mut list), libc::EAI_NONAME);
    hints.ai_flags |= RAI_FAMILY;
    hints.ai_family = 0x7777;
    assert_eq!(find(c"127.0.0.1".as_ptr(), &hints, &raw mut list), libc::EAI_FAMILY);
    assert!(list.is_null());
}

#[test]
fn devices_stay_open() {
    let mut count = 0;
    let list = call!(warpline_rdma_get_devices(&raw mut count));
    assert!(!list.is_null() && count >= 1);
    // SAFETY: as many as it says, and NULL.
    let found = unsafe { std::slice::from_raw_parts(list, count as usize + 1) }.to_vec();
    assert!(found[count as usize].is_null() && !found[0].is_null());
    call!(warpline_rdma_free_devices(list));
    let channel = channel();
    let id = id_on(channel);
    resolve(id, channel, "127.0.0.1:1");
    assert!(found.contains(&shown(id).verbs));
    done!(warpline_rdma_destroy_id(id));
    call!(warpline_rdma_destroy_event_channel(channel));
}

#[test]
fn events_have_names() {
    let name = |kind| {
        // SAFETY: a static string.
        unsafe { CStr::from_ptr(warpline_rdma_event_str(kind)) }.to_str().unwrap()
    };
    assert_eq!(name(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
    assert_eq!(name(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
    assert_eq!(name(99), "UNKNOWN EVENT");
}
