//! Tests of addresses and ports: known and reserved once bound, free at once after destruction; peers that
//! listen late or never.

use std::net::{TcpListener, TcpStream};
use std::ptr::null_mut;

use ibv_sys::*;
use ofa::rdmacm::calls::option::warpline_rdma_set_option;

use crate::common::*;
use crate::on_roce::on_roce;

#[test]
fn a_port_is_known_when_it_is_bound_and_is_used_once() {
    let channel = channel();
    let id = id_on(channel);
    done!(warpline_rdma_bind_addr(id, c_address("127.0.0.1:0")));
    let at = address_of(id);
    // A loopback address is of no device, as in the kernel: libfabric offers other hosts each address that is of one.
    assert!(shown(id).verbs.is_null());
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

fn a_listener_is_made_again_at_once() {
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
fn a_port_is_listened_on_again_at_once() {
    a_listener_is_made_again_at_once();
}

#[test]
fn a_port_is_listened_on_again_at_once_on_roce() {
    on_roce("ports::a_port_is_listened_on_again_at_once_on_roce", a_listener_is_made_again_at_once);
}

#[test]
fn a_service_is_listened_for_again_at_once_on_roce() {
    on_roce("ports::a_service_is_listened_for_again_at_once_on_roce", || {
        let channel = channel();
        let mut at = "127.0.0.1:0".to_owned();
        for _ in 0..20 {
            let mut id = null_mut();
            done!(warpline_rdma_create_id(channel, &raw mut id, null_mut(), RDMA_PS_UDP));
            done!(warpline_rdma_bind_addr(id, c_address(&at)));
            done!(warpline_rdma_listen(id, 3));
            at = address_of(id);
            done!(warpline_rdma_destroy_id(id));
        }
        call!(warpline_rdma_destroy_event_channel(channel));
    });
}

/// A listener at this address, if it is not refused.
fn listening(
    channel: *mut rdma_event_channel,
    address: &str,
    one_family: bool,
) -> Option<*mut rdma_cm_id> {
    let id = id_on(channel);
    if one_family {
        let (mut on, level) = (1_i32, RDMA_OPTION_ID);
        done!(warpline_rdma_set_option(id, level, RDMA_OPTION_ID_AFONLY, (&raw mut on).cast(), 4));
    }
    let bound = call!(warpline_rdma_bind_addr(id, c_address(address)));
    if bound == 0 && call!(warpline_rdma_listen(id, 8)) == 0 {
        return Some(id);
    }
    done!(warpline_rdma_destroy_id(id));
    None
}

/// Whether the listener gets a request that is sent to this address.
fn hears(listener: *mut rdma_cm_id, address: &str) -> bool {
    let (near, far) = (channel(), shown(listener).channel);
    let active = resolved(near, address);
    done!(warpline_rdma_connect(active, &mut params(&[])));
    let refused = next_of(&[near, far]) == near;
    if refused {
        assert_ne!(next(near).kind, RDMA_CM_EVENT_ESTABLISHED);
    } else {
        done!(warpline_rdma_destroy_id(expect(far, RDMA_CM_EVENT_CONNECT_REQUEST)));
    }
    call!(warpline_rdma_destroy_qp(active));
    done!(warpline_rdma_destroy_id(active));
    call!(warpline_rdma_destroy_event_channel(near));
    !refused
}

/// The channel that has an event first.
fn next_of(channels: &[*mut rdma_event_channel]) -> *mut rdma_event_channel {
    let mut ready = None;
    warpline_patience::until("an event", || {
        ready = channels.iter().copied().find(|channel| has_event(*channel));
        ready.is_some()
    });
    ready.unwrap()
}

/// As a socket of IPv6, a listener at `[::]` takes requests of both families, unless it is limited to its own.
fn families_of_a_port() {
    let channel = channel();
    let port = |id| u16::from_be(call!(warpline_rdma_get_src_port(id)));
    let both = listening(channel, "[::]:0", false).unwrap();
    let shared = port(both);
    assert!(hears(both, &format!("127.0.0.1:{shared}")));
    assert!(hears(both, &format!("[::1]:{shared}")));
    for (address, one_family) in
        [("0.0.0.0", false), ("127.0.0.1", false), ("[::]", true), ("[::1]", false)]
    {
        let second = listening(channel, &format!("{address}:{shared}"), one_family);
        assert!(second.is_none(), "{address} beside [::] for both families");
    }
    done!(warpline_rdma_destroy_id(both));
    // Each family its own listener, in either order.
    let v4 = listening(channel, &format!("0.0.0.0:{shared}"), false).unwrap();
    assert!(listening(channel, &format!("[::]:{shared}"), false).is_none());
    let v6 = listening(channel, &format!("[::]:{shared}"), true).unwrap();
    assert!(hears(v6, &format!("[::1]:{shared}")));
    assert!(hears(v4, &format!("127.0.0.1:{shared}")));
    done!(warpline_rdma_destroy_id(v4));
    assert!(!hears(v6, &format!("127.0.0.1:{shared}")));
    let v4 = listening(channel, &format!("127.0.0.1:{shared}"), false).unwrap();
    for id in [v4, v6] {
        done!(warpline_rdma_destroy_id(id));
    }
    call!(warpline_rdma_destroy_event_channel(channel));
}

#[test]
fn a_wildcard_of_ipv6_is_for_both_families_or_its_own() {
    families_of_a_port();
}

#[test]
fn a_wildcard_of_ipv6_is_for_both_families_or_its_own_on_roce() {
    on_roce(
        "ports::a_wildcard_of_ipv6_is_for_both_families_or_its_own_on_roce",
        families_of_a_port,
    );
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
