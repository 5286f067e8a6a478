//! Identifiers for datagrams, on RoCE: each test runs again in a process of its own, whose device is of RoCE.

use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::ah::*;
use ofa::verbs::mr::warpline_ibv_reg_mr;
use warpline_patience::until;

use crate::common::*;
use crate::on_roce::on_roce;

const LEN: usize = 500;
const GRH: usize = 40;

fn id_on(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let mut id = null_mut();
    done!(warpline_rdma_create_id(channel, &raw mut id, null_mut(), RDMA_PS_UDP));
    assert_eq!(shown(id).qp_type, IBV_QPT_UD);
    id
}

fn create_qp(id: *mut rdma_cm_id) {
    let mut attr = ibv_qp_init_attr { qp_type: IBV_QPT_UD, ..attr() };
    done!(warpline_rdma_create_qp(id, null_mut(), &raw mut attr));
}

/// An identifier that can ask the service at this address, with a queue pair.
fn resolved(channel: *mut rdma_event_channel, to: &str) -> *mut rdma_cm_id {
    let id = id_on(channel);
    resolve(id, channel, to);
    create_qp(id);
    id
}

fn service(channel: *mut rdma_event_channel) -> (*mut rdma_cm_id, String) {
    let id = id_on(channel);
    done!(warpline_rdma_bind_addr(id, c_address("127.0.0.1:0")));
    let at = address_of(id);
    done!(warpline_rdma_listen(id, 0));
    (id, at)
}

/// Memory of an identifier's domain, with the key; never freed.
fn region(id: *mut rdma_cm_id) -> ibv_sge {
    let memory = Box::leak(vec![0u8; GRH + LEN].into_boxed_slice()).as_mut_ptr();
    let mr = call!(warpline_ibv_reg_mr(
        shown(id).pd,
        memory.cast(),
        GRH + LEN,
        IBV_ACCESS_LOCAL_WRITE as _
    ));
    assert!(!mr.is_null());
    let (addr, length) = (memory.expose_provenance() as u64, (GRH + LEN) as u32);
    ibv_sge { addr, length, lkey: unsafe { (*mr).lkey } }
}

fn octets<'a>(of: &ibv_sge) -> &'a mut [u8] {
    let at = std::ptr::with_exposed_provenance_mut(of.addr as usize);
    unsafe { std::slice::from_raw_parts_mut(at, of.length as usize) }
}

fn receive(id: *mut rdma_cm_id, into: &mut ibv_sge) {
    let mut wr = ibv_recv_wr { wr_id: 1, next: null_mut(), sg_list: into, num_sge: 1 };
    let post = operations(shown(id).verbs).post_recv.unwrap();
    assert_eq!(unsafe { post(shown(id).qp, &raw mut wr, null_mut()) }, 0);
}

/// Sends the octets behind the header of a region.
fn send(id: *mut rdma_cm_id, from: &ibv_sge, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    let mut sge = ibv_sge { addr: from.addr + GRH as u64, length: LEN as u32, lkey: from.lkey };
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    (wr.wr_id, wr.sg_list, wr.num_sge) = (2, &raw mut sge, 1);
    (wr.opcode, wr.imm_or_rkey) = (IBV_WR_SEND_WITH_IMM, 0x0102_0304);
    wr.wr.ud = wr_ud { ah, remote_qpn: qpn, remote_qkey: qkey };
    let post = operations(shown(id).verbs).post_send.unwrap();
    assert_eq!(unsafe { post(shown(id).qp, &raw mut wr, null_mut()) }, 0);
    assert_eq!(completion(id, shown(id).send_cq).wr_id, 2);
}

fn completion(id: *mut rdma_cm_id, cq: *mut ibv_cq) -> ibv_wc {
    let poll = operations(shown(id).verbs).poll_cq.unwrap();
    let mut wc = ibv_wc::default();
    until("a completion", || unsafe { poll(cq, 1, &raw mut wc) } == 1);
    assert_eq!(wc.status, IBV_WC_SUCCESS);
    wc
}

#[test]
fn a_service_gives_a_queue_pair_and_datagrams_go_there_and_back() {
    on_roce("datagrams::a_service_gives_a_queue_pair_and_datagrams_go_there_and_back", || {
        let (near, far) = (channel(), channel());
        let (listener, at) = service(far);
        let client = resolved(near, &at);
        done!(warpline_rdma_connect(client, &mut params(b"hi")));
        let event = fetch(far);
        assert_eq!((event.event, data_of(event)), (RDMA_CM_EVENT_CONNECT_REQUEST, b"hi".to_vec()));
        let server = event.id;
        done!(warpline_rdma_ack_cm_event(event));
        create_qp(server);
        done!(warpline_rdma_accept(server, &mut params(b"yes")));
        assert!(!has_event(far), "a service gets no event of its reply");

        let event = fetch(near);
        assert_eq!((event.event, event.status), (RDMA_CM_EVENT_ESTABLISHED, 0));
        let mut ud = unsafe { event.param.ud };
        assert_eq!(
            (data_of(event), ud.qp_num),
            (b"yes".to_vec(), unsafe { (*shown(server).qp).qp_num })
        );
        done!(warpline_rdma_ack_cm_event(event));
        let (mut ours, mut theirs) = (region(client), region(server));
        receive(server, &mut theirs);
        octets(&ours)[GRH..].fill(7);
        let ah = call!(warpline_ibv_create_ah(shown(client).pd, &raw mut ud.ah_attr));
        assert!(!ah.is_null(), "{}", std::io::Error::last_os_error());
        send(client, &ours, ah, ud.qp_num, ud.qkey);
        let wc = completion(server, shown(server).recv_cq);
        assert_eq!(
            (wc.src_qp, wc.byte_len as usize),
            (unsafe { (*shown(client).qp).qp_num }, GRH + LEN)
        );
        assert_eq!((wc.wc_flags, wc.imm_or_rkey), (IBV_WC_GRH | IBV_WC_WITH_IMM, 0x0102_0304));
        assert!(octets(&theirs)[GRH..].iter().all(|octet| *octet == 7));

        receive(client, &mut ours);
        octets(&theirs)[GRH..].fill(9);
        let grh = octets(&theirs).as_ptr().cast();
        let back = call!(warpline_ibv_create_ah_from_wc(shown(server).pd, &raw const wc, grh, 1));
        assert!(!back.is_null(), "{}", std::io::Error::last_os_error());
        send(server, &theirs, back, wc.src_qp, ud.qkey);
        completion(client, shown(client).recv_cq);
        assert!(octets(&ours)[GRH..].iter().all(|octet| *octet == 9));

        refused!(libc::EINVAL, warpline_rdma_disconnect(client));
        for ah in [ah, back] {
            assert_eq!(call!(warpline_ibv_destroy_ah(ah)), 0);
        }
        for id in [client, server, listener] {
            call!(warpline_rdma_destroy_qp(id));
            done!(warpline_rdma_destroy_id(id));
        }
        assert!(!has_event(near) && !has_event(far), "there is no connection that ends");
    });
}

#[test]
fn without_a_queue_pair_of_a_service_the_reason_is_an_event() {
    on_roce("datagrams::without_a_queue_pair_of_a_service_the_reason_is_an_event", || {
        let (near, far) = (channel(), channel());
        let (listener, at) = service(far);
        let client = resolved(near, &at);
        done!(warpline_rdma_connect(client, &mut params(b"hi")));
        let server = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        done!(warpline_rdma_reject(server, b"no".as_ptr().cast(), 2));
        let seen = next(near);
        assert_eq!((seen.kind, seen.status), (RDMA_CM_EVENT_UNREACHABLE, -libc::ECONNREFUSED));
        assert_eq!(seen.data, b"no");
        // One that is not replied to, but destroyed, is rejected; one whose asker is gone causes no event.
        let (asking, gone) = (resolved(near, &at), resolved(near, &at));
        done!(warpline_rdma_connect(asking, &mut params(&[])));
        done!(warpline_rdma_destroy_id(expect(far, RDMA_CM_EVENT_CONNECT_REQUEST)));
        assert_eq!(next(near).status, -libc::ECONNREFUSED);
        done!(warpline_rdma_connect(gone, &mut params(&[])));
        let last = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
        call!(warpline_rdma_destroy_qp(gone));
        done!(warpline_rdma_destroy_id(gone));
        create_qp(last);
        done!(warpline_rdma_accept(last, &mut params(&[])));
        // The service is gone.
        done!(warpline_rdma_destroy_id(listener));
        let late = resolved(near, &at);
        done!(warpline_rdma_connect(late, &mut params(&[])));
        let seen = next(near);
        assert_eq!((seen.id, seen.kind), (late, RDMA_CM_EVENT_UNREACHABLE));
    });
}
