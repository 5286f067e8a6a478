//! Transitions of a queue pair in use: a send queue that drains, and the rights of peers.

use ibv_sys::*;
use ofa::verbs::mr::warpline_ibv_rereg_mr;
use warpline_patience::until;

use crate::events;
use crate::lab::*;

fn to(qp: *mut ibv_qp, qp_state: u32) {
    let mut attr = ibv_qp_attr { qp_state, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut attr, IBV_QP_STATE), 0);
}

/// To SQD, with an event when it is drained.
fn drain(qp: *mut ibv_qp) {
    let mut attr =
        ibv_qp_attr { qp_state: IBV_QPS_SQD, en_sqd_async_notify: 1, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    assert_eq!(state(qp), IBV_QPS_SQD);
}

fn drained(lab: &Lab, qp: *mut ibv_qp) {
    let mut event = events::next(lab.context);
    assert_eq!(event.event_type, IBV_EVENT_SQ_DRAINED);
    assert_eq!(unsafe { event.element.qp }, qp);
    events::acknowledge(&mut event);
}

#[test]
fn sends_wait_while_the_queue_is_drained() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    (0..3).for_each(|n| assert_eq!(far.recv(b, n, &mut far.sge(0, 64)), 0));
    near.fill(0, b"before");
    assert_eq!(near.send(a, &mut wr(0, IBV_WR_SEND, &mut near.sge(0, 6))), 0);
    near.success(0);
    drain(a);
    drained(&near, a);
    assert_eq!(query(a).sq_draining, 0);
    // Requests posted now wait, with elements as with inline data; receives continue.
    near.fill(0, b"behind");
    assert_eq!(near.send(a, &mut wr(1, IBV_WR_SEND, &mut near.sge(0, 6))), 0);
    let mut text = *b"inline";
    let mut sge =
        ibv_sge { addr: text.as_mut_ptr().expose_provenance() as u64, length: 6, lkey: 0 };
    let mut inline = wr(2, IBV_WR_SEND, &mut sge);
    inline.send_flags |= IBV_SEND_INLINE;
    assert_eq!(near.send(a, &mut inline), 0);
    text.fill(0);
    assert_eq!(near.recv(a, 7, &mut near.sge(64, 64)), 0);
    // A Send completes when it is sent, so that the message may still be on its way.
    assert_eq!(far.success(0).byte_len, 6);
    assert_eq!(far.send(b, &mut wr(8, IBV_WR_SEND, &mut far.sge(0, 1))), 0);
    near.success(7);
    far.success(8);
    assert!(near.poll().is_none() && far.poll().is_none());
    to(a, IBV_QPS_RTS);
    for n in 1..3 {
        near.success(n);
        far.success(n);
    }
    assert_eq!(far.read(0, 6), b"inline");
    destroy(a);
    destroy(b);
}

#[test]
fn a_queue_is_drained_when_earlier_requests_are_done() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = (near.qp(), far.qp());
    to_init(a);
    to_init(b);
    meet(a, far.gid(), number(b));
    // The peer has not connected.
    assert_eq!(near.send(a, &mut wr(0, IBV_WR_SEND, &mut near.sge(0, 6))), 0);
    drain(a);
    assert_eq!(query(a).sq_draining, 1);
    assert_eq!(far.recv(b, 1, &mut far.sge(0, 64)), 0);
    meet(b, near.gid(), number(a));
    drained(&near, a);
    near.success(0);
    far.success(1);
    // No more than the depth of the queue.
    let depth = u64::from(near.init().cap.max_send_wr);
    let mut sge = near.sge(0, 1);
    (0..depth).for_each(|n| assert_eq!(near.send(a, &mut wr(n, IBV_WR_SEND, &mut sge)), 0));
    assert_eq!(near.send(a, &mut wr(depth, IBV_WR_SEND, &mut sge)), libc::ENOMEM);
    to(a, IBV_QPS_ERR);
    for n in 0..depth {
        let wc = near.completion();
        assert_eq!((wc.wr_id, wc.status), (n, IBV_WC_WR_FLUSH_ERR));
    }
    // A reset discards them.
    to(a, IBV_QPS_RESET);
    assert_eq!(query(a).qp_access_flags, 0);
    destroy(a);
    destroy(b);
}

#[test]
fn a_queue_pair_refuses_what_its_memory_grants() {
    let words = |lab: &Lab| wr_rdma { remote_addr: lab.at(0), rkey: lab.rkey() };
    let all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    for (opcode, right) in [
        (IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE),
        (IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ),
        (IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC),
    ] {
        let (near, far) = (Lab::new(), Lab::new());
        let (a, b) = pair(&near, &far);
        let request = |wr_id| {
            let mut sge = near.sge(0, 8);
            let mut request = wr(wr_id, opcode, &mut sge);
            match opcode {
                IBV_WR_ATOMIC_FETCH_AND_ADD => {
                    let wr_rdma { remote_addr, rkey } = words(&far);
                    let atomic = wr_atomic { remote_addr, compare_add: 1, swap: 0, rkey };
                    request.wr = wr_union { atomic };
                }
                _ => request.wr = wr_union { rdma: words(&far) },
            }
            assert_eq!(near.send(a, &mut request), 0);
        };
        near.fill(0, &[7; 8]);
        request(1);
        near.success(1);
        // A Write completes when it is sent: as soon as the right is gone, it would be refused.
        let is_write = opcode == IBV_WR_RDMA_WRITE;
        until("the first Write", || !is_write || far.read(0, 8) == [7; 8]);
        let mut attr = ibv_qp_attr { qp_access_flags: all & !right, ..ibv_qp_attr::default() };
        assert_eq!(modify(b, &mut attr, IBV_QP_ACCESS_FLAGS), 0);
        assert_eq!(query(b).qp_access_flags, all & !right);
        far.fill(0, &[0; 8]);
        request(2);
        let wc = near.completion();
        // A Write completes with the refusal if that comes before it is sent (RFC 5040 section 5.5).
        let is_sent = is_write && wc.status == IBV_WC_SUCCESS;
        assert!(is_sent || wc.status == IBV_WC_REM_ACCESS_ERR, "{}", wc.status);
        assert_eq!(wc.wr_id, 2);
        let mut event = events::next(far.context);
        assert_eq!(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
        events::acknowledge(&mut event);
        assert_eq!(far.read(0, 8), [0; 8]);
        destroy(a);
        destroy(b);
    }
}

#[test]
fn a_reset_discards_completions_of_its_queue_pair_only() {
    let (near, far) = (Lab::new(), Lab::new());
    let ((a, b), (c, d)) = (pair(&near, &far), pair(&near, &far));
    (0..3).for_each(|n| assert_eq!(near.recv(a, n, &mut near.sge(0, 64)), 0));
    assert_eq!(near.recv(c, 7, &mut near.sge(0, 64)), 0);
    to(c, IBV_QPS_ERR);
    to(a, IBV_QPS_ERR);
    to(a, IBV_QPS_RESET);
    let wc = near.completion();
    assert_eq!((wc.wr_id, wc.status), (7, IBV_WC_WR_FLUSH_ERR));
    assert!(near.poll().is_none());
    [a, b, c, d].into_iter().for_each(destroy);
}

#[test]
fn a_region_that_is_registered_anew_keeps_its_keys() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    let rdma = wr_rdma { remote_addr: far.at(0), rkey: far.rkey() };
    let rights = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) as i32;
    let change = IBV_REREG_MR_CHANGE_ACCESS;
    let null = std::ptr::null_mut();
    let done = unsafe { warpline_ibv_rereg_mr(far.mr, change, null, null.cast(), 0, rights) };
    assert_eq!((done, far.rkey()), (0, rdma.rkey));
    far.fill(0, b"anew");
    let mut sge = near.sge(0, 4);
    let mut read = wr(1, IBV_WR_RDMA_READ, &mut sge);
    read.wr = wr_union { rdma };
    assert_eq!(near.send(a, &mut read), 0);
    near.success(1);
    assert_eq!(near.read(0, 4), *b"anew");
    [a, b].into_iter().for_each(destroy);
}
