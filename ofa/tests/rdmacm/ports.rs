//! Tests of addresses and ports: known and reserved once bound, free at once after destruction; peers that
//! listen late or never.

use std::net::{TcpListener, TcpStream};
use std::ptr::null_mut;

use ibv_sys::*;
use ofa::rdmacm::calls::option::warpline_rdma_set_option;

use crate::common::*;

#[test]
fn a_port_is_known_when_it_is_bound_and_is_used_once() {
    let channel = channel();
    let id = id_on(channel);
    done!(warpline_rdma_bind_addr(id, c_address("127.0.0.1:0")));
    let at = address_of(id);
    assert!(!shown(id).verbs.is_null());
    let other = id_on(channel);
    refused!(libc::EADDRINUSE, warpline_rdma_bind_addr(other, c_address(&at)));
    assert!(TcpListener::bind(&at).is_err() && TcpStream::connect(&at).is_err());
    // It has not changed, and may bind to another address: to the wildcard, so to no device.
    done!(warpline_rdma_bind_addr(other, c_address("0.0.0.0:0")));
    assert!(shown(other).verbs.is_null());
    assert_ne!(call!(warpline_rdma_get_src_port(other)), 0);
    done!(warpline_rdma_destroy_id(id));
    let again = id_on(channel);
    done!(warpline_rdma_bind_addr(again, c_address(&at)));
    for id in [again, other] {
        done!(warpline_rdma_destroy_id(id));
    }
    call!(warpline_rdma_destroy_event_channel(channel));
}

#[test]
fn a_port_is_listened_on_again_at_once() {
    let pair = Pair::new();
    let at = address_of(pair.listener);
    let mut door = pair.listener;
    // The first one has a connection meanwhile.
    for _ in 0..20 {
        done!(warpline_rdma_destroy_id(door));
        door = id_on(pair.far);
        done!(warpline_rdma_bind_addr(door, c_address(&at)));
        done!(warpline_rdma_listen(door, 3));
    }
    Pair { listener: door, ..pair }.end();
}

#[test]
fn a_peer_that_listens_late_is_found_and_one_that_never_does_refuses() {
    let (near, far) = (channel(), channel());
    let door = id_on(far);
    done!(warpline_rdma_bind_addr(door, c_address("127.0.0.1:0")));
    let at = address_of(door);
    let active = resolved(near, &at);
    done!(warpline_rdma_connect(active, null_mut()));
    TcpStream::connect(&at).unwrap_err();
    done!(warpline_rdma_listen(door, 1));
    let passive = requested(far);
    done!(warpline_rdma_accept(passive, null_mut()));
    expect(near, RDMA_CM_EVENT_ESTABLISHED);
    expect(far, RDMA_CM_EVENT_ESTABLISHED);

    let nobody = id_on(far);
    done!(warpline_rdma_bind_addr(nobody, c_address("127.0.0.1:0")));
    let lonely = resolved(near, &address_of(nobody));
    done!(warpline_rdma_connect(lonely, null_mut()));
    let seen = next(near);
    assert_eq!((seen.kind, seen.status), (RDMA_CM_EVENT_REJECTED, -libc::ECONNREFUSED));
    for id in [lonely, nobody] {
        call!(warpline_rdma_destroy_qp(id));
        done!(warpline_rdma_destroy_id(id));
    }
    Pair { near, far, listener: door, active, passive }.end();
}

#[test]
fn unreachable_addresses_are_reported_by_an_event_or_refused() {
    let channel = channel();
    let id = id_on(channel);
    // RFC 5737: an address that no machine has.
    refused!(libc::EADDRNOTAVAIL, warpline_rdma_bind_addr(id, c_address("198.51.100.7:0")));
    // A network without a route (RFC 1112: reserved).
    done!(warpline_rdma_resolve_addr(id, null_mut(), c_address("255.255.255.255:1"), 1000));
    let seen = next(channel);
    assert_eq!((seen.kind, seen.id), (RDMA_CM_EVENT_ADDR_ERROR, id));
    assert!(seen.status < 0);
    // It may resolve another address.
    done!(warpline_rdma_resolve_addr(id, null_mut(), c_address("127.0.0.1:1"), 1000));
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    done!(warpline_rdma_destroy_id(id));
    call!(warpline_rdma_destroy_event_channel(channel));
}

#[test]
fn identifiers_with_reuseaddr_share_a_port_until_one_listens() {
    let channel = channel();
    let share = |id| {
        let mut on: i32 = 1;
        let (level, name) = (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR);
        done!(warpline_rdma_set_option(id, level, name, (&raw mut on).cast(), 4));
    };
    let [first, second] = [(); 2].map(|()| id_on(channel));
    share(first);
    share(second);
    done!(warpline_rdma_bind_addr(first, c_address("127.0.0.1:0")));
    done!(warpline_rdma_bind_addr(second, c_address(&address_of(first))));
    done!(warpline_rdma_listen(first, 1));
    refused!(libc::EADDRINUSE, warpline_rdma_listen(second, 1));
    for id in [first, second] {
        done!(warpline_rdma_destroy_id(id));
    }
    call!(warpline_rdma_destroy_event_channel(channel));
}
