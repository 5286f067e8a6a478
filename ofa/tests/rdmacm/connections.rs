//! Tests of connection requests, connections and rejections: events, their parameters, and requests
//! without a reply.

use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::cq::*;
use ofa::verbs::qp::*;

use crate::common::*;
use crate::on_roce::on_roce;

#[test]
fn both_ends_get_the_private_data_of_the_other() {
    let (near, far) = (channel(), channel());
    let (door, at) = listener(far);
    let active = resolved(near, &at);
    assert!(!shown(active).verbs.is_null() && !shown(active).pd.is_null());
    assert_eq!((shown(active).port_num, shown(active).route.num_paths), (1, 1));
    assert!(!shown(active).route.path_rec.is_null());
    assert_eq!(address_in(&shown(active).route.addr.dst_storage).to_string(), at);
    let asking = b"three octets or more";
    done!(warpline_rdma_connect(active, &mut params(asking)));

    let event = fetch(far);
    assert_eq!((event.event, event.status), (RDMA_CM_EVENT_CONNECT_REQUEST, 0));
    assert_eq!((event.listen_id, data_of(event)), (door, asking.to_vec()));
    let conn = conn_of(event);
    // The reads that the peer will have outstanding, and those that it serves.
    assert_eq!((conn.responder_resources, conn.initiator_depth), (2, 4));
    let passive = event.id;
    done!(warpline_rdma_ack_cm_event(event));
    assert_eq!(shown(passive).channel, far);
    assert_eq!(shown(passive).verbs, shown(active).verbs);
    let (theirs, ours) = (&shown(passive).route.addr, &shown(active).route.addr);
    assert_eq!(address_in(&theirs.src_storage), address_in(&ours.dst_storage));
    assert_eq!(address_in(&theirs.dst_storage), address_in(&ours.src_storage));
    create_qp(passive);
    done!(warpline_rdma_accept(passive, &mut params(b"come in")));

    let seen = next(near);
    assert_eq!((seen.kind, seen.status, seen.id), (RDMA_CM_EVENT_ESTABLISHED, 0, active));
    assert_eq!(seen.data, b"come in");
    let seen = next(far);
    assert_eq!((seen.kind, seen.status, seen.id), (RDMA_CM_EVENT_ESTABLISHED, 0, passive));
    assert_eq!(seen.data, b"");
    for id in [active, passive] {
        // SAFETY: the identifier's queue pair.
        assert_eq!(unsafe { (*shown(id).qp).state }, IBV_QPS_RTS);
    }
    Pair { near, far, listener: door, active, passive }.end();
}

#[test]
fn parameters_may_be_left_out() {
    let (near, far) = (channel(), channel());
    let (door, at) = listener(far);
    let active = resolved(near, &at);
    done!(warpline_rdma_connect(active, null_mut()));
    let event = fetch(far);
    let conn = conn_of(event);
    assert!(conn.private_data.is_null() && conn.private_data_len == 0);
    // As many reads as the device supports.
    assert_eq!((conn.responder_resources, conn.initiator_depth), (128, 128));
    let passive = event.id;
    done!(warpline_rdma_ack_cm_event(event));
    create_qp(passive);
    let mut most = params(&[]);
    (most.responder_resources, most.initiator_depth) = (RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);
    done!(warpline_rdma_accept(passive, &raw mut most));
    expect(near, RDMA_CM_EVENT_ESTABLISHED);
    expect(far, RDMA_CM_EVENT_ESTABLISHED);
    Pair { near, far, listener: door, active, passive }.end();
}

#[test]
fn a_rejection_carries_its_private_data() {
    let (near, far) = (channel(), channel());
    let (door, at) = listener(far);
    let active = resolved(near, &at);
    done!(warpline_rdma_connect(active, &mut params(&[])));
    let passive = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
    done!(warpline_rdma_reject(passive, b"no".as_ptr().cast(), 2));
    let seen = next(near);
    assert_eq!((seen.kind, seen.status), (RDMA_CM_EVENT_REJECTED, -libc::ECONNRESET));
    assert_eq!((seen.id, seen.data), (active, b"no".to_vec()));
    // It gets a response.
    refused!(libc::EINVAL, warpline_rdma_reject(passive, null_mut(), 0));
    Pair { near, far, listener: door, active, passive }.end();
}

/// Rejected by its identifier, by its listener while it is queued, and because the backlog is full.
#[test]
fn a_request_without_a_reply_is_rejected() {
    let (near, far) = (channel(), channel());
    let (door, at) = listener(far);
    let rejected = |id: *mut rdma_cm_id| {
        let seen = next(near);
        assert_eq!((seen.kind, seen.id), (RDMA_CM_EVENT_REJECTED, id));
        call!(warpline_rdma_destroy_qp(id));
        done!(warpline_rdma_destroy_id(id));
    };
    let first = resolved(near, &at);
    done!(warpline_rdma_connect(first, &mut params(&[])));
    let passive = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
    done!(warpline_rdma_destroy_id(passive));
    rejected(first);

    let second = resolved(near, &at);
    done!(warpline_rdma_connect(second, &mut params(&[])));
    warpline_patience::until("the request", || has_event(far));
    done!(warpline_rdma_destroy_id(door));
    assert!(!has_event(far));
    rejected(second);

    let narrow = id_on(far);
    done!(warpline_rdma_bind_addr(narrow, c_address("127.0.0.1:0")));
    done!(warpline_rdma_listen(narrow, 1));
    let ids = [(); 2].map(|()| resolved(near, &address_of(narrow)));
    for id in ids {
        done!(warpline_rdma_connect(id, &mut params(&[])));
    }
    // One of them is queued, and the other is not.
    let seen = next(near);
    assert_eq!(seen.kind, RDMA_CM_EVENT_REJECTED);
    assert!(has_event(far));
    done!(warpline_rdma_destroy_id(narrow));
    let seen = next(near);
    assert_eq!(seen.kind, RDMA_CM_EVENT_REJECTED);
    for id in ids {
        call!(warpline_rdma_destroy_qp(id));
        done!(warpline_rdma_destroy_id(id));
    }
    for channel in [near, far] {
        call!(warpline_rdma_destroy_event_channel(channel));
    }
}

/// The attributes that rdma_init_qp_attr(3) returns suffice for the transition to INIT.
#[test]
fn a_queue_pair_of_the_applications_gets_its_attributes_from_the_identifier() {
    let channel = channel();
    let id = id_on(channel);
    done!(warpline_rdma_resolve_addr(id, null_mut(), c_address("127.0.0.1:9"), 1000));
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    let cq = call!(warpline_ibv_create_cq(shown(id).verbs, 4, null_mut(), null_mut(), 0));
    let mut init = ibv_qp_init_attr { send_cq: cq, recv_cq: cq, ..attr() };
    let qp = call!(warpline_ibv_create_qp(shown(id).pd, &raw mut init));
    assert!(!qp.is_null());
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_INIT, ..ibv_qp_attr::default() };
    let mut mask = 0;
    done!(warpline_rdma_init_qp_attr(id, &raw mut attr, &raw mut mask));
    done!(warpline_ibv_modify_qp(qp, &raw mut attr, mask));
    done!(warpline_ibv_destroy_qp(qp));
    done!(warpline_ibv_destroy_cq(cq));
    done!(warpline_rdma_destroy_id(id));
    call!(warpline_rdma_destroy_event_channel(channel));
}

/// On iWARP a connection is the only way to the peer (rping -q).
#[test]
fn on_iwarp_a_queue_pair_in_init_is_connected_by_its_number() {
    let pair = Pair::new();
    let (door, at) = listener(pair.far);
    let id = id_on(pair.near);
    resolve(id, pair.near, &at);
    // A queue pair without an identifier.
    let other = resolved(pair.near, &at);
    let qp = std::mem::replace(&mut shown(other).qp, null_mut());
    refused!(libc::EINVAL, warpline_rdma_connect(id, null_mut()));
    let mut param = params(&[]);
    // SAFETY: it lives.
    param.qp_num = unsafe { (*qp).qp_num };
    done!(warpline_rdma_connect(id, &raw mut param));
    let passive = requested(pair.far);
    done!(warpline_rdma_accept(passive, null_mut()));
    assert_eq!(expect(pair.near, RDMA_CM_EVENT_ESTABLISHED), id);
    expect(pair.far, RDMA_CM_EVENT_ESTABLISHED);
    // As rping does.
    done!(warpline_rdma_establish(id));
    // A queue pair belongs to one connection: another identifier cannot use it.
    let third = resolved(pair.near, &at);
    let own = std::mem::replace(&mut shown(third).qp, qp);
    refused!(libc::EINVAL, warpline_rdma_connect(third, null_mut()));
    shown(third).qp = own;
    for id in [third, id] {
        call!(warpline_rdma_destroy_qp(id));
        done!(warpline_rdma_destroy_id(id));
    }
    shown(other).qp = qp;
    for id in [passive, door, other] {
        call!(warpline_rdma_destroy_qp(id));
        done!(warpline_rdma_destroy_id(id));
    }
    pair.end();
}

#[test]
fn without_a_queue_pair_the_number_is_only_carried() {
    carries(0);
}

#[test]
fn on_roce_without_a_queue_pair_the_number_is_carried_to_the_peer() {
    on_roce("connections::on_roce_without_a_queue_pair_the_number_is_carried_to_the_peer", || {
        carries(u32::MAX);
    });
}

/// Two ends without queue pairs; `seen`: the bits of the numbers that the peer sees. iWARP's messages have no field for
/// them.
fn carries(seen: u32) {
    let (near, far) = (channel(), channel());
    let (door, at) = listener(far);
    // In RESET, so that it takes no part on iWARP, either.
    let other = id_on(near);
    resolve(other, near, &at);
    let cq = call!(warpline_ibv_create_cq(shown(other).verbs, 4, null_mut(), null_mut(), 0));
    let mut init = ibv_qp_init_attr { send_cq: cq, recv_cq: cq, ..attr() };
    let qp = call!(warpline_ibv_create_qp(shown(other).pd, &raw mut init));
    // SAFETY: it lives.
    let own = unsafe { (*qp).qp_num };
    for (number, is_established) in [(0x4321, true), (own, true), (own, false)] {
        let active = id_on(near);
        resolve(active, near, &at);
        refused!(libc::EINVAL, warpline_rdma_establish(active));
        let mut param = params(b"client");
        param.qp_num = number;
        done!(warpline_rdma_connect(active, &raw mut param));
        let request = fetch(far);
        assert_eq!(
            (request.event, data_of(request)),
            (RDMA_CM_EVENT_CONNECT_REQUEST, b"client".to_vec())
        );
        assert_eq!(conn_of(request).qp_num, number & seen);
        let passive = request.id;
        done!(warpline_rdma_ack_cm_event(request));
        param = params(b"server");
        param.qp_num = 0x8765;
        done!(warpline_rdma_accept(passive, &raw mut param));
        let response = fetch(near);
        assert_eq!((response.event, response.status), (RDMA_CM_EVENT_CONNECT_RESPONSE, 0));
        assert_eq!((response.id, data_of(response)), (active, b"server".to_vec()));
        assert_eq!(conn_of(response).qp_num, 0x8765 & seen);
        done!(warpline_rdma_ack_cm_event(response));
        // rdma_establish(3): the peer gets its event only now.
        assert!(!has_event(far));
        let mut ended = Vec::new();
        if is_established {
            done!(warpline_rdma_establish(active));
            assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), passive);
            refused!(libc::EINVAL, warpline_rdma_establish(active));
            done!(warpline_rdma_disconnect(active));
            assert_eq!(expect(near, RDMA_CM_EVENT_DISCONNECTED), active);
            assert_eq!(expect(far, RDMA_CM_EVENT_DISCONNECTED), passive);
        } else {
            done!(warpline_rdma_destroy_id(active));
            ended.push(active);
            let seen = next(far);
            assert_eq!((seen.kind, seen.id), (RDMA_CM_EVENT_REJECTED, passive));
            assert!(seen.status != 0);
        }
        for id in [active, passive].into_iter().filter(|id| !ended.contains(id)) {
            done!(warpline_rdma_destroy_id(id));
        }
    }
    // Nothing has happened to it.
    // SAFETY: it lives.
    assert_eq!(unsafe { (*qp).state }, IBV_QPS_RESET);
    done!(warpline_ibv_destroy_qp(qp));
    done!(warpline_ibv_destroy_cq(cq));
    for id in [other, door] {
        done!(warpline_rdma_destroy_id(id));
    }
    for channel in [near, far] {
        assert!(!has_event(channel));
        call!(warpline_rdma_destroy_event_channel(channel));
    }
}
