//! Refused modifications of a queue pair, which have no effect, and the attributes that a transition requires.

use ibv_sys::*;

use crate::lab::*;

/// The attributes that a transition to RTR could have set.
fn attributes(qp: *mut ibv_qp) -> String {
    let now = query(qp);
    let (path, reads) = (now.ah_attr, now.max_dest_rd_atomic);
    format!("{} {} {path:?} {reads} {}", now.qp_state, now.dest_qp_num, now.qp_access_flags)
}

#[test]
fn a_change_that_is_refused_leaves_everything_as_it_was() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = (near.qp(), far.qp());
    to_init(a);
    to_init(b);
    let before = attributes(b);
    let good = rtr(near.gid(), number(a));
    let with = |change: fn(&mut ibv_qp_attr)| {
        let mut attr = ibv_qp_attr { qp_access_flags: 0, ..good };
        change(&mut attr);
        attr
    };
    for (what, mut attr) in [
        ("a number of more than 24 bits", with(|attr| attr.dest_qp_num = 1 << 24)),
        ("a LID", with(|attr| (attr.ah_attr.is_global, attr.ah_attr.dlid) = (0, 1))),
        ("another port", with(|attr| attr.ah_attr.port_num = 2)),
        ("a GID that this end does not have", with(|attr| attr.ah_attr.grh.sgid_index = 2)),
        ("too many reads", with(|attr| attr.max_dest_rd_atomic = 255)),
        ("an invalid MTU", with(|attr| attr.path_mtu = 6)),
    ] {
        let refused = modify(b, &mut attr, RTR | IBV_QP_ACCESS_FLAGS);
        assert_eq!((refused, attributes(b)), (libc::EINVAL, before.clone()), "{what}");
        assert_eq!(state(b), IBV_QPS_INIT, "{what}");
    }
    // The rights of peers have not changed, and the queue pair connects to the right one.
    meet(b, near.gid(), number(a));
    meet(a, far.gid(), number(b));
    near.fill(0, b"as before");
    let mut sge = near.sge(0, 9);
    let mut write = wr(1, IBV_WR_RDMA_WRITE, &mut sge);
    write.wr = wr_union { rdma: wr_rdma { remote_addr: far.at(64), rkey: far.rkey() } };
    assert_eq!(near.send(a, &mut write), 0);
    near.success(1);
    warpline_patience::until("the Write", || far.read(64, 9) == b"as before");
    destroy(a);
    destroy(b);
}

/// An event of the stream before a reset may be delivered after it.
#[test]
fn a_queue_pair_that_was_reset_hears_nothing_of_before() {
    let (near, far) = (Lab::new(), Lab::new());
    // The number decides which end connects.
    let first = (near.qp(), far.qp());
    let second = (far.qp(), near.qp());
    for (turn, (a, b)) in (0..200).zip([first, (second.1, second.0)].into_iter().cycle()) {
        meet_and_send(&near, &far, (a, b), turn);
        // The far end refuses this, which an event reports.
        let mut sge = near.sge(64, 8);
        let mut read = wr(turn, IBV_WR_RDMA_READ, &mut sge);
        // Not by an invalid STag: 60 of those in a minute delay further start-ups (`invalid_stag_ends`).
        read.wr = wr_union { rdma: wr_rdma { remote_addr: far.at(ROOM), rkey: far.rkey() } };
        assert_eq!(near.send(a, &mut read), 0);
        assert_eq!(near.completion().status, IBV_WC_REM_ACCESS_ERR);
        reset(a);
        reset(b);
    }
    [first.0, first.1, second.0, second.1].into_iter().for_each(destroy);
}

#[test]
fn a_first_change_names_port_key_and_rights() {
    let lab = Lab::new();
    let qp = lab.qp();
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: 1, ..ibv_qp_attr::default() };
    for flag in [IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS] {
        assert_eq!(modify(qp, &mut attr, INIT & !flag), libc::EINVAL, "without {flag:#x}");
        assert_eq!(state(qp), IBV_QPS_RESET);
    }
    assert_eq!(modify(qp, &mut attr, INIT), 0);
    destroy(qp);
}
