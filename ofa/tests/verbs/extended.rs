//! Tests of the extended interfaces: iterated completions, requests built call by call, sized queries.

use std::mem::size_of;
use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::ah::*;
use ofa::verbs::cq::*;
use ofa::verbs::qp::*;

use crate::lab::*;
use crate::on_roce::on_roce;

pub(crate) fn front(context: *mut ibv_context) -> &'static verbs_context {
    let at = context.wrapping_byte_sub(std::mem::offset_of!(verbs_context, context));
    unsafe { &*at.cast() }
}

/// Attributes of a queue pair with these operations.
fn extended(lab: &Lab, qp_type: u32, send_ops_flags: u64) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        qp_context: null_mut(),
        send_cq: lab.cq,
        recv_cq: lab.cq,
        srq: null_mut(),
        cap: lab.init().cap,
        qp_type,
        sq_sig_all: 0,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: lab.pd,
        xrcd: null_mut(),
        create_flags: 0,
        max_tso_header: 0,
        rwq_ind_tbl: null_mut(),
        rx_hash_conf: [0; 3],
        source_qpn: 0,
        send_ops_flags,
    }
}

/// A completion queue of the extended interface, of a device, whose completions have these fields.
pub(crate) fn queue(context: *mut ibv_context, wc_flags: u64) -> *mut ibv_cq_ex {
    let mut attr = ibv_cq_init_attr_ex {
        cqe: 64,
        cq_context: null_mut(),
        channel: null_mut(),
        comp_vector: 0,
        wc_flags,
        comp_mask: 0,
        flags: 0,
        parent_domain: null_mut(),
    };
    let cq = unsafe { front(context).create_cq_ex.unwrap()(context, &mut attr) };
    assert!(!cq.is_null());
    cq
}

/// Begins an iteration at the next completion.
pub(crate) fn walk(cq: *mut ibv_cq_ex) {
    let start = unsafe { (*cq).start_poll.unwrap() };
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    let mut found = libc::ENOENT;
    warpline_patience::until("a completion", || {
        found = unsafe { start(cq, &mut attr) };
        found != libc::ENOENT
    });
    assert_eq!(found, 0);
}

#[test]
fn requests_are_put_together_and_completions_walked_through() {
    let (near, far) = (Lab::new(), Lab::new());
    let cq = queue(near.context, IBV_WC_STANDARD_FLAGS);
    let mut init = extended(&near, IBV_QPT_RC, IBV_QP_EX_WITH_ALL_RC);
    (init.send_cq, init.recv_cq) = (cq.cast(), cq.cast());
    let create = front(near.context).create_qp_ex.unwrap();
    let a = unsafe { create(near.context, &mut init) };
    assert!(!a.is_null());
    let ex = unsafe { warpline_ibv_qp_to_qp_ex(a) };
    assert!(!ex.is_null());
    let b = far.qp();
    assert!(unsafe { warpline_ibv_qp_to_qp_ex(b) }.is_null());
    to_init(a);
    to_init(b);
    meet(a, far.gid(), number(b));
    meet(b, near.gid(), number(a));
    assert_eq!(far.recv(b, 70, &mut far.sge(0, 64)), 0);
    near.fill(0, b"walk");
    let lkey = unsafe { (*near.mr).lkey };
    unsafe {
        let f = &*ex;
        f.wr_start.unwrap()(ex);
        (*ex).wr_id = 1;
        (*ex).wr_flags = IBV_SEND_SIGNALED;
        f.wr_rdma_write.unwrap()(ex, far.rkey(), far.at(256));
        f.wr_set_sge.unwrap()(ex, lkey, near.at(0), 4);
        (*ex).wr_id = 2;
        f.wr_send_imm.unwrap()(ex, 0x0102_0304);
        let mut text = *b"inline";
        f.wr_set_inline_data.unwrap()(ex, text.as_mut_ptr().cast(), 6);
        assert_eq!(f.wr_complete.unwrap()(ex), 0);
        // A list with an unsupported request is not posted at all.
        f.wr_start.unwrap()(ex);
        f.wr_send.unwrap()(ex);
        f.wr_atomic_write.unwrap()(ex, 0, 0, null_mut());
        assert_eq!(f.wr_complete.unwrap()(ex), libc::EOPNOTSUPP);
        f.wr_start.unwrap()(ex);
        f.wr_send.unwrap()(ex);
        f.wr_abort.unwrap()(ex);
    }
    let wc = far.success(70);
    assert_eq!((wc.opcode, wc.wc_flags, wc.byte_len), (IBV_WC_RECV, IBV_WC_WITH_IMM, 6));
    assert_eq!(wc.imm_or_rkey, 0x0102_0304);
    assert_eq!((far.read(0, 6), far.read(256, 4)), (b"inline".to_vec(), b"walk".to_vec()));
    let f = unsafe { &*cq };
    for (wr_id, opcode) in [(1, IBV_WC_RDMA_WRITE), (2, IBV_WC_SEND)] {
        walk(cq);
        let (id, status) = unsafe { ((*cq).wr_id, (*cq).status) };
        assert_eq!((id, status), (wr_id, IBV_WC_SUCCESS));
        assert_eq!(unsafe { f.read_opcode.unwrap()(cq) }, opcode);
        assert_eq!(unsafe { f.read_qp_num.unwrap()(cq) }, number(a));
        unsafe { f.end_poll.unwrap()(cq) };
    }
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    assert_eq!(unsafe { f.start_poll.unwrap()(cq, &mut attr) }, libc::ENOENT);
    destroy(a);
    destroy(b);
    assert_eq!(unsafe { warpline_ibv_destroy_cq(cq.cast()) }, 0);
}

#[test]
fn datagrams_are_put_together() {
    on_roce("extended::datagrams_are_put_together", || {
        let lab = Lab::new();
        let create = front(lab.context).create_qp_ex.unwrap();
        let make = |ops| unsafe { create(lab.context, &mut extended(&lab, IBV_QPT_UD, ops)) };
        assert_eq!((make(IBV_QP_EX_WITH_ALL_RC).is_null(), errno()), (true, libc::EOPNOTSUPP));
        let qp = make(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
        let ex = unsafe { warpline_ibv_qp_to_qp_ex(qp) };
        assert!(!qp.is_null() && !ex.is_null());
        let ah = address_handle(&lab);
        ready_for_datagrams(qp);
        let f = unsafe { &*ex };
        let (start, complete) = (f.wr_start.unwrap(), f.wr_complete.unwrap());
        let next = |id| unsafe { ((*ex).wr_id, (*ex).wr_flags) = (id, IBV_SEND_SIGNALED) };
        let address = || unsafe { f.wr_set_ud_addr.unwrap()(ex, ah, number(qp), QKEY) };
        // Nothing is posted of a list with a request without an address, with one for connections, or with none.
        type Wrong<'a> = &'a dyn Fn();
        let without_address: Wrong<'_> = &|| unsafe { f.wr_send.unwrap()(ex) };
        let for_connections: Wrong<'_> = &|| {
            unsafe { f.wr_rdma_write.unwrap()(ex, lab.rkey(), lab.at(0)) };
            address();
        };
        for wrong in [without_address, for_connections] {
            unsafe { start(ex) };
            next(1);
            unsafe { f.wr_send.unwrap()(ex) };
            address();
            wrong();
            assert_eq!(unsafe { complete(ex) }, libc::EINVAL);
        }
        unsafe { start(ex) };
        address();
        assert_eq!(unsafe { complete(ex) }, libc::EINVAL);
        assert!(lab.poll().is_none(), "something was posted");

        lab.fill(0, b"gathered");
        (0..2).for_each(|at| assert_eq!(lab.recv(qp, 20, &mut lab.sge(100 + at * 100, 100)), 0));
        unsafe {
            start(ex);
            next(10);
            f.wr_send.unwrap()(ex);
            address();
            f.wr_set_sge.unwrap()(ex, (*lab.mr).lkey, lab.at(0), 8);
            next(11);
            f.wr_send_imm.unwrap()(ex, 0x0102_0304);
            f.wr_set_inline_data.unwrap()(ex, b"inline".as_ptr().cast_mut().cast(), 6);
            address();
            assert_eq!(complete(ex), 0);
        }
        let mut found: Vec<_> = (0..4).map(|_| lab.completion()).collect();
        assert!(found.iter().all(|wc| wc.status == IBV_WC_SUCCESS));
        found.retain(|wc| wc.wr_id == 20);
        let [plain, immediate] = found.as_slice() else { panic!("{} receives", found.len()) };
        assert_eq!((plain.byte_len, plain.wc_flags & IBV_WC_WITH_IMM), (40 + 8, 0));
        assert_eq!((immediate.byte_len, immediate.imm_or_rkey), (40 + 6, 0x0102_0304));
        assert_eq!(
            (lab.read(140, 8), lab.read(240, 6)),
            (b"gathered".to_vec(), b"inline".to_vec())
        );
        assert_eq!(unsafe { warpline_ibv_destroy_ah(ah) }, 0);
        destroy(qp);
    });
}

#[test]
fn queries_write_no_more_than_the_caller_has_room_for() {
    let lab = Lab::new();
    let query = front(lab.context).query_port.unwrap();
    for size in [48, 52, 56] {
        let mut room = [0xa5u8; 64];
        assert_eq!(unsafe { query(lab.context, 1, room.as_mut_ptr().cast(), size) }, 0);
        assert_eq!(room[size..], [0xa5; 64][size..]);
        assert_eq!(room[0], IBV_PORT_ACTIVE as u8);
    }
    let mut room = [0xa5u8; size_of::<ibv_device_attr_ex>() + 8];
    let query = front(lab.context).query_device_ex.unwrap();
    let size = room.len() - 4;
    let got = unsafe { query(lab.context, null_mut(), room.as_mut_ptr().cast(), size) };
    assert_eq!((got, &room[size..]), (0, &[0xa5; 4][..]));
    assert_eq!(room[size_of::<ibv_device_attr_ex>()..size], [0; 4]);
}
