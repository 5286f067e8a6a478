//! Tests of synchronous identifiers and endpoints: each call waits for its event; and address
//! information.

use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::thread;

use ibv_sys::*;
use ofa::rdmacm::calls::addrinfo::{warpline_rdma_freeaddrinfo, warpline_rdma_getaddrinfo};
use ofa::rdmacm::calls::endpoint::*;

use crate::common::*;

fn hints(flags: i32) -> rdma_addrinfo {
    // SAFETY: zeroes are a value of every field.
    let mut hints: rdma_addrinfo = unsafe { std::mem::zeroed() };
    (hints.ai_flags, hints.ai_port_space) = (flags, RDMA_PS_TCP as i32);
    hints.ai_qp_type = IBV_QPT_RC as i32;
    hints
}

fn info(node: &str, service: &str, flags: i32) -> *mut rdma_addrinfo {
    let [node, service] = [node, service].map(|text| CString::new(text).unwrap());
    let mut list = null_mut();
    let hints = &raw const *Box::leak(Box::new(hints(flags)));
    done!(warpline_rdma_getaddrinfo(node.as_ptr(), service.as_ptr(), hints, &raw mut list));
    list
}

#[test]
fn endpoints_connect_in_calls_that_wait() {
    let at = info("127.0.0.1", "0", RAI_PASSIVE);
    let mut listener = null_mut();
    done!(warpline_rdma_create_ep(&raw mut listener, at, null_mut(), &mut attr()));
    done!(warpline_rdma_listen(listener, 0));
    let to = address_of(listener);
    let port = to.rsplit_once(':').unwrap().1.to_owned();
    let client = thread::spawn(move || {
        let at = info("127.0.0.1", &port, 0);
        let mut id = null_mut();
        let mut wanted = ibv_qp_init_attr { qp_type: 0, ..attr() };
        done!(warpline_rdma_create_ep(&raw mut id, at, null_mut(), &raw mut wanted));
        assert_eq!(wanted.qp_type, IBV_QPT_RC);
        assert!(!shown(id).qp.is_null() && !shown(id).send_cq.is_null());
        assert!(!shown(id).recv_cq_channel.is_null() && wanted.recv_cq == shown(id).recv_cq);
        done!(warpline_rdma_connect(id, &mut params(b"hello")));
        // SAFETY: the event of the call, until the next.
        let event = unsafe { &*shown(id).event };
        assert_eq!((event.event, data_of(event)), (RDMA_CM_EVENT_ESTABLISHED, b"welcome".into()));
        done!(warpline_rdma_disconnect(id));
        // SAFETY: as above.
        assert_eq!(unsafe { (*shown(id).event).event }, RDMA_CM_EVENT_DISCONNECTED);
        // The event was returned, and the call does not wait for it again.
        done!(warpline_rdma_disconnect(id));
        call!(warpline_rdma_destroy_ep(id));
        call!(warpline_rdma_freeaddrinfo(at));
    });
    let mut id = null_mut();
    done!(warpline_rdma_get_request(listener, &raw mut id));
    assert_ne!(shown(id).channel, shown(listener).channel);
    // SAFETY: the request, until the next call.
    let event = unsafe { &*shown(id).event };
    assert_eq!((event.event, data_of(event)), (RDMA_CM_EVENT_CONNECT_REQUEST, b"hello".into()));
    assert!(!shown(id).qp.is_null() && !shown(id).recv_cq.is_null());
    done!(warpline_rdma_accept(id, &mut params(b"welcome")));
    // The end of the peer, which has arrived already or is awaited.
    done!(warpline_rdma_disconnect(id));
    // SAFETY: as above.
    assert_eq!(unsafe { (*shown(id).event).event }, RDMA_CM_EVENT_DISCONNECTED);
    call!(warpline_rdma_destroy_ep(id));
    call!(warpline_rdma_destroy_ep(listener));
    call!(warpline_rdma_freeaddrinfo(at));
    client.join().unwrap();
}

#[test]
fn the_status_of_an_event_is_the_error_of_its_call() {
    let nobody = id_on(null_mut());
    done!(warpline_rdma_bind_addr(nobody, c_address("127.0.0.1:0")));
    let id = id_on(null_mut());
    done!(warpline_rdma_resolve_addr(id, null_mut(), c_address(&address_of(nobody)), 1000));
    done!(warpline_rdma_resolve_route(id, 1000));
    create_qp(id);
    refused!(libc::ECONNREFUSED, warpline_rdma_connect(id, null_mut()));
    call!(warpline_rdma_destroy_qp(id));
    for id in [id, nobody] {
        done!(warpline_rdma_destroy_id(id));
    }
}

#[test]
fn a_synchronous_identifier_may_become_an_asynchronous_one() {
    let channel = channel();
    let id = id_on(null_mut());
    refused!(libc::EINVAL, warpline_rdma_migrate_id(id, null_mut()));
    done!(warpline_rdma_resolve_addr(id, null_mut(), c_address("127.0.0.1:9"), 1000));
    assert!(!shown(id).event.is_null());
    done!(warpline_rdma_migrate_id(id, channel));
    assert!(shown(id).event.is_null());
    done!(warpline_rdma_resolve_route(id, 1000));
    assert_eq!(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), id);
    done!(warpline_rdma_destroy_id(id));
    call!(warpline_rdma_destroy_event_channel(channel));
}

#[test]
fn names_are_resolved_for_either_side() {
    for (flags, passive) in [(0, false), (RAI_PASSIVE, true), (RAI_NUMERICHOST, false)] {
        let list = info("127.0.0.1", "4711", flags);
        // SAFETY: the list that was made.
        let entry = unsafe { &*list };
        assert_eq!((entry.ai_family, entry.ai_flags), (libc::AF_INET, flags));
        assert_eq!(entry.ai_port_space, RDMA_PS_TCP as i32);
        let (used, unused) = match passive {
            true => (entry.ai_src_addr, entry.ai_dst_addr),
            false => (entry.ai_dst_addr, entry.ai_src_addr),
        };
        assert!(!used.is_null() && unused.is_null());
        // SAFETY: an address of IPv4, as the family says.
        let port = unsafe { (*used.cast::<libc::sockaddr_in>()).sin_port };
        assert_eq!(port, 4711_u16.to_be());
        call!(warpline_rdma_freeaddrinfo(list));
    }
    // The service in the hints applies to each entry.
    let mut wanted = hints(RAI_NUMERICHOST);
    (wanted.ai_qp_type, wanted.ai_port_space) = (IBV_QPT_UC as i32, RDMA_PS_IB as i32);
    let mut list = null_mut();
    let name = c"127.0.0.1".as_ptr();
    done!(warpline_rdma_getaddrinfo(name, null(), &raw const wanted, &raw mut list));
    // SAFETY: the list that was made.
    let entry = unsafe { &*list };
    assert_eq!((entry.ai_qp_type, entry.ai_port_space), (wanted.ai_qp_type, wanted.ai_port_space));
    call!(warpline_rdma_freeaddrinfo(list));
    // Without names: the addresses in the hints.
    let mut given = hints(0);
    (given.ai_dst_addr, given.ai_dst_len) = (c_address("127.0.0.2:5"), 16);
    (given.ai_src_addr, given.ai_src_len) = (c_address("127.0.0.3:6"), 16);
    let mut list = null_mut();
    done!(warpline_rdma_getaddrinfo(null(), null(), &raw const given, &raw mut list));
    // SAFETY: as above.
    let entry = unsafe { &*list };
    assert_eq!((entry.ai_dst_len, entry.ai_src_len), (16, 16));
    assert!(entry.ai_dst_addr != given.ai_dst_addr && !entry.ai_src_addr.is_null());
    call!(warpline_rdma_freeaddrinfo(list));
    refused!(libc::EINVAL, warpline_rdma_getaddrinfo(null(), null(), null(), &raw mut list));
    let name = c"no.such.host.invalid".as_ptr();
    let numeric = hints(RAI_NUMERICHOST);
    let code = call!(warpline_rdma_getaddrinfo(name, null(), &raw const numeric, &raw mut list));
    assert_eq!(code, libc::EAI_NONAME);
}
