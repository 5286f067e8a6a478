//! Tests of every operation, its completion, and its data.

use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::mr::*;
use ofa::verbs::srq::*;

use crate::lab::*;

#[test]
fn sends_arrive_in_order_with_their_data() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    for n in 0..4u64 {
        assert_eq!(far.recv(b, 100 + n, &mut far.sge(n as usize * 64, 64)), 0);
    }
    // A list of three, of which one is inline, and then another request.
    near.fill(0, b"onetwothree");
    let mut sges = [near.sge(0, 3), near.sge(3, 3), near.sge(6, 5)];
    let [one, two, three] = &mut sges;
    let (mut last, mut middle) = (wr(3, IBV_WR_SEND, three), wr(2, IBV_WR_SEND, two));
    middle.next = &mut last;
    middle.send_flags |= IBV_SEND_INLINE;
    let mut first = wr(1, IBV_WR_SEND, one);
    first.next = &mut middle;
    assert_eq!(near.send(a, &mut first), 0);
    assert_eq!(near.send(a, &mut wr(4, IBV_WR_SEND, &mut near.sge(0, 3))), 0);
    for wr_id in 1..=4 {
        let wc = near.success(wr_id);
        assert_eq!((wc.opcode, wc.qp_num), (IBV_WC_SEND, number(a)));
    }
    for (n, text) in ["one", "two", "three", "one"].into_iter().enumerate() {
        let wc = far.success(100 + n as u64);
        assert_eq!((wc.opcode, wc.qp_num), (IBV_WC_RECV, number(b)));
        assert_eq!(far.read(n * 64, wc.byte_len as usize), text.as_bytes());
    }
    destroy(a);
    destroy(b);
}

#[test]
fn writes_reads_and_atomics_reach_the_peers_memory() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    near.fill(0, b"written");
    far.fill(512, b"to be read");
    far.fill(1024, &40u64.to_ne_bytes());
    let remote = |at| wr_rdma { remote_addr: far.at(at), rkey: far.rkey() };

    let mut sge = near.sge(0, 7);
    let mut write = wr(1, IBV_WR_RDMA_WRITE, &mut sge);
    write.wr = wr_union { rdma: remote(0) };
    assert_eq!(near.send(a, &mut write), 0);
    assert_eq!(near.success(1).opcode, IBV_WC_RDMA_WRITE);

    let mut sge = near.sge(64, 10);
    let mut read = wr(2, IBV_WR_RDMA_READ, &mut sge);
    read.wr = wr_union { rdma: remote(512) };
    assert_eq!(near.send(a, &mut read), 0);
    assert_eq!(near.success(2).opcode, IBV_WC_RDMA_READ);
    assert_eq!(near.read(64, 10), b"to be read");
    // The Read followed the Write.
    assert_eq!(far.read(0, 7), b"written");

    for (opcode, done, compare_add, swap, before) in [
        (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, 2, 0, 40u64),
        (IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, 42, 7, 42),
        (IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, 42, 9, 7),
    ] {
        let mut sge = near.sge(128, 8);
        let mut atomic = wr(3, opcode, &mut sge);
        let (remote_addr, rkey) = (far.at(1024), far.rkey());
        atomic.wr = wr_union { atomic: wr_atomic { remote_addr, compare_add, swap, rkey } };
        assert_eq!(near.send(a, &mut atomic), 0);
        assert_eq!(near.success(3).opcode, done);
        assert_eq!(near.read(128, 8), before.to_ne_bytes());
    }
    assert_eq!(far.read(1024, 8), 7u64.to_ne_bytes());

    assert_eq!(far.recv(b, 9, &mut far.sge(0, 0)), 0);
    let mut sge = near.sge(0, 7);
    let mut write = wr(4, IBV_WR_RDMA_WRITE_WITH_IMM, &mut sge);
    write.wr = wr_union { rdma: remote(2048) };
    write.imm_or_rkey = 0x0102_0304;
    assert_eq!(near.send(a, &mut write), 0);
    near.success(4);
    let wc = far.success(9);
    assert_eq!((wc.opcode, wc.wc_flags), (IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM));
    assert_eq!(wc.imm_or_rkey, 0x0102_0304);
    assert_eq!(far.read(2048, 7), b"written");
    destroy(a);
    destroy(b);
}

#[test]
fn a_send_delivers_its_immediate_with_its_data() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    near.fill(0, b"beside");
    for (wr_id, len, flags) in [(1, 6, 0), (2, 0, 0), (3, 6, IBV_SEND_INLINE | IBV_SEND_SOLICITED)]
    {
        far.fill(0, &[0; 6]);
        assert_eq!(far.recv(b, 10 + wr_id, &mut far.sge(0, 64)), 0);
        let mut sge = near.sge(0, len);
        let mut send = wr(wr_id, IBV_WR_SEND_WITH_IMM, &mut sge);
        send.imm_or_rkey = 0x0102_0304;
        send.send_flags |= flags;
        assert_eq!(near.send(a, &mut send), 0);
        assert_eq!(near.success(wr_id).opcode, IBV_WC_SEND);
        let wc = far.success(10 + wr_id);
        assert_eq!((wc.opcode, wc.wc_flags, wc.byte_len), (IBV_WC_RECV, IBV_WC_WITH_IMM, len));
        assert_eq!(wc.imm_or_rkey, 0x0102_0304);
        assert_eq!(far.read(0, len as usize), b"beside"[..len as usize]);
    }
    // A queue pair without inline data has none.
    assert_eq!(far.recv(b, 20, &mut far.sge(0, 64)), 0);
    assert_eq!(near.send(a, &mut wr(4, IBV_WR_SEND, &mut near.sge(0, 6))), 0);
    near.success(4);
    assert_eq!(far.success(20).wc_flags, 0);
    destroy(a);
    destroy(b);
}

#[test]
fn a_send_with_immediate_waits_for_its_receive() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    near.fill(0, b"early");
    let mut sge = near.sge(0, 5);
    let mut send = wr(1, IBV_WR_SEND_WITH_IMM, &mut sge);
    send.imm_or_rkey = 7;
    assert_eq!(near.send(a, &mut send), 0);
    near.success(1);
    assert_eq!(far.recv(b, 2, &mut far.sge(0, 64)), 0);
    let wc = far.success(2);
    assert_eq!((wc.wc_flags, wc.imm_or_rkey, wc.byte_len), (IBV_WC_WITH_IMM, 7, 5));
    assert_eq!(far.read(0, 5), b"early");
    destroy(a);
    destroy(b);
}

#[test]
fn a_region_has_the_base_that_is_asked_for() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    near.fill(0, b"based");
    for iova in [0, 0x7777_0000] {
        let at = far.memory.wrapping_add(4096).cast();
        let mr = unsafe { warpline_ibv_reg_mr_iova(far.pd, at, 64, iova, ALL) };
        assert!(!mr.is_null());
        let mut sge = near.sge(0, 5);
        let mut write = wr(1, IBV_WR_RDMA_WRITE, &mut sge);
        let rkey = unsafe { (*mr).rkey };
        write.wr = wr_union { rdma: wr_rdma { remote_addr: iova + 8, rkey } };
        assert_eq!(near.send(a, &mut write), 0);
        near.success(1);
        let mut sge = near.sge(64, 5);
        let mut read = wr(2, IBV_WR_RDMA_READ, &mut sge);
        read.wr = wr_union { rdma: wr_rdma { remote_addr: iova + 8, rkey } };
        assert_eq!(near.send(a, &mut read), 0);
        near.success(2);
        assert_eq!(near.read(64, 5), b"based");
        assert_eq!(far.read(4096 + 8, 5), b"based");
        far.fill(4096, &[0; 64]);
        assert_eq!(unsafe { warpline_ibv_dereg_mr(mr) }, 0);
    }
    destroy(a);
    destroy(b);
}

#[test]
fn a_send_waits_for_its_receive() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    near.fill(0, b"early");
    assert_eq!(near.send(a, &mut wr(1, IBV_WR_SEND, &mut near.sge(0, 5))), 0);
    near.success(1);
    // The Read after it completes meanwhile.
    let mut sge = near.sge(64, 4);
    let mut read = wr(2, IBV_WR_RDMA_READ, &mut sge);
    read.wr = wr_union { rdma: wr_rdma { remote_addr: far.at(0), rkey: far.rkey() } };
    assert_eq!(near.send(a, &mut read), 0);
    near.success(2);
    assert_eq!(far.recv(b, 7, &mut far.sge(128, 64)), 0);
    assert_eq!(far.success(7).byte_len, 5);
    assert_eq!(far.read(128, 5), b"early");
    destroy(a);
    destroy(b);
}

#[test]
fn a_shared_receive_queue_serves_several_queue_pairs() {
    let (near, far) = (Lab::new(), Lab::new());
    let attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
    let srq = unsafe { warpline_ibv_create_srq(far.pd, &mut init) };
    assert!(!srq.is_null());
    let with_srq = || {
        let mut init = ibv_qp_init_attr { srq, ..far.init() };
        let qp = unsafe { ofa::verbs::qp::warpline_ibv_create_qp(far.pd, &mut init) };
        assert!(!qp.is_null());
        to_init(qp);
        qp
    };
    let theirs = [with_srq(), with_srq()];
    let ours = theirs.map(|their| {
        let our = near.qp();
        to_init(our);
        meet(our, far.gid(), number(their));
        meet(their, near.gid(), number(our));
        our
    });
    for n in 0..4 {
        let mut sge = far.sge(n * 64, 64);
        let (wr_id, next) = (n as u64, null_mut());
        let mut wr = ibv_recv_wr { wr_id, next, sg_list: &mut sge, num_sge: 1 };
        let posted = unsafe { far.ops().post_srq_recv.unwrap()(srq, &mut wr, &mut null_mut()) };
        assert_eq!(posted, 0);
    }
    // The limit event comes once fewer receives are left.
    let mut limit = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 3 };
    assert_eq!(unsafe { warpline_ibv_modify_srq(srq, &mut limit, IBV_SRQ_LIMIT) }, 0);
    for n in 0..4 {
        let our = ours[n % 2];
        near.fill(0, &[n as u8]);
        assert_eq!(near.send(our, &mut wr(n as u64, IBV_WR_SEND, &mut near.sge(0, 1))), 0);
        near.success(n as u64);
        let wc = far.success(n as u64);
        assert_eq!(wc.qp_num, number(theirs[n % 2]));
        assert_eq!(far.read(n * 64, 1), [n as u8]);
    }
    let mut event = crate::events::next(far.context);
    assert_eq!(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_eq!(unsafe { event.element.srq }, srq);
    crate::events::acknowledge(&mut event);
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, libc::EBUSY);
    ours.into_iter().chain(theirs).for_each(destroy);
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
}

#[test]
fn a_send_brings_its_immediate_to_a_shared_receive_queue() {
    let (near, far) = (Lab::new(), Lab::new());
    let attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
    let srq = unsafe { warpline_ibv_create_srq(far.pd, &mut init) };
    let mut init = ibv_qp_init_attr { srq, ..far.init() };
    let b = unsafe { ofa::verbs::qp::warpline_ibv_create_qp(far.pd, &mut init) };
    let a = near.qp();
    to_init(a);
    to_init(b);
    meet(a, far.gid(), number(b));
    meet(b, near.gid(), number(a));
    near.fill(0, b"shared");
    let send = |wr_id: u64, imm: u32| {
        let mut sge = near.sge(0, 6);
        let mut send = wr(wr_id, IBV_WR_SEND_WITH_IMM, &mut sge);
        send.imm_or_rkey = imm;
        assert_eq!(near.send(a, &mut send), 0);
        near.success(wr_id);
    };
    // With the receive posted, and before that.
    for (n, is_early) in [(0, false), (1, true)] {
        let imm = 0x0a0b_0c00 + n;
        let mut sge = far.sge(n as usize * 64, 64);
        if is_early {
            send(n.into(), imm);
        }
        assert_eq!(far.recv_shared(srq, n.into(), &mut sge), 0);
        if !is_early {
            send(n.into(), imm);
        }
        let wc = far.success(n.into());
        assert_eq!((wc.opcode, wc.wc_flags, wc.byte_len), (IBV_WC_RECV, IBV_WC_WITH_IMM, 6));
        assert_eq!((wc.imm_or_rkey, wc.qp_num), (imm, number(b)));
        assert_eq!(far.read(n as usize * 64, 6), b"shared");
    }
    destroy(a);
    destroy(b);
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
}

#[test]
fn a_window_gives_access_to_its_part_of_a_region_until_it_is_unbound() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    let mw = unsafe { far.ops().alloc_mw.unwrap()(far.pd, IBV_MW_TYPE_1) };
    assert!(!mw.is_null());
    let bind = |length| {
        let mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
        let bind_info = ibv_mw_bind_info { mr: far.mr, addr: far.at(256), length, mw_access_flags };
        let mut bind = ibv_mw_bind { wr_id: 5, send_flags: IBV_SEND_SIGNALED, bind_info };
        assert_eq!(unsafe { far.ops().bind_mw.unwrap()(b, mw, &mut bind) }, 0);
        assert_eq!(far.success(5).opcode, IBV_WC_BIND_MW);
    };
    bind(64);
    near.fill(0, b"through");
    let rkey = unsafe { (*mw).rkey };
    let mut sge = near.sge(0, 7);
    let mut write = wr(1, IBV_WR_RDMA_WRITE, &mut sge);
    write.wr = wr_union { rdma: wr_rdma { remote_addr: far.at(256), rkey } };
    assert_eq!(near.send(a, &mut write), 0);
    near.success(1);
    let mut sge = near.sge(64, 7);
    let mut read = wr(2, IBV_WR_RDMA_READ, &mut sge);
    read.wr = wr_union { rdma: wr_rdma { remote_addr: far.at(256), rkey: far.rkey() } };
    assert_eq!(near.send(a, &mut read), 0);
    near.success(2);
    assert_eq!(near.read(64, 7), b"through");
    bind(0);
    assert_ne!(unsafe { (*mw).rkey }, rkey);
    let mut sge = near.sge(0, 7);
    let mut write = wr(3, IBV_WR_RDMA_WRITE, &mut sge);
    write.wr = wr_union { rdma: wr_rdma { remote_addr: far.at(256), rkey } };
    assert_eq!(near.send(a, &mut write), 0);
    // The peer refuses it, and reports that by an event.
    let mut event = crate::events::next(far.context);
    assert_eq!(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    crate::events::acknowledge(&mut event);
    destroy(a);
    destroy(b);
    assert_eq!(unsafe { far.ops().dealloc_mw.unwrap()(mw) }, 0);
}

#[test]
fn a_queue_pair_may_meet_itself() {
    let lab = Lab::new();
    let qp = lab.qp();
    to_init(qp);
    meet(qp, lab.gid(), number(qp));
    assert_eq!(lab.recv(qp, 1, &mut lab.sge(64, 64)), 0);
    lab.fill(0, b"to myself");
    assert_eq!(lab.send(qp, &mut wr(2, IBV_WR_SEND, &mut lab.sge(0, 9))), 0);
    let mut ids = [lab.completion(), lab.completion()].map(|wc| (wc.wr_id, wc.status));
    ids.sort_unstable();
    assert_eq!(ids, [(1, IBV_WC_SUCCESS), (2, IBV_WC_SUCCESS)]);
    assert_eq!(lab.read(64, 9), b"to myself");
    let mut sge = lab.sge(256, 9);
    let mut read = wr(3, IBV_WR_RDMA_READ, &mut sge);
    read.wr = wr_union { rdma: wr_rdma { remote_addr: lab.at(64), rkey: lab.rkey() } };
    assert_eq!(lab.send(qp, &mut read), 0);
    lab.success(3);
    assert_eq!(lab.read(256, 9), b"to myself");
    destroy(qp);
}
