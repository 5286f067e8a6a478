//! Writes with Immediate on both devices: what the completion of their receive says.

use ibv_sys::*;
use ofa::verbs::cq::*;
use ofa::verbs::qp::*;
use ofa::verbs::srq::*;

use crate::extended::{queue, walk};
use crate::lab::*;
use crate::on_roce::on_both;

/// Longer than an FPDU and than a packet, at most half of the region.
const LENGTHS: [u32; 4] = [7, 0, 32_000, 1];

/// How the receiver polls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polls {
    Each,
    Walks,
}

/// Both ends, and the queue of the far one's completions.
struct Ends {
    near: Lab,
    far: Lab,
    a: *mut ibv_qp,
    b: *mut ibv_qp,
    srq: *mut ibv_srq,
    cq: *mut ibv_cq_ex,
}

impl Ends {
    fn new(shared: bool) -> Self {
        let (near, far) = (Lab::new(), Lab::new());
        let cq = queue(far.context, IBV_WC_STANDARD_FLAGS);
        let srq = if shared { far.srq() } else { std::ptr::null_mut() };
        let mut init = ibv_qp_init_attr { srq, recv_cq: cq.cast(), ..far.init() };
        let (a, b) = (near.qp(), unsafe { warpline_ibv_create_qp(far.pd, &mut init) });
        assert!(!b.is_null());
        [a, b].into_iter().for_each(to_init);
        meet(a, far.gid(), number(b));
        meet(b, near.gid(), number(a));
        Self { near, far, a, b, srq, cq }
    }

    fn recv(&self, id: u64) {
        let mut sge = self.far.sge(0, 0);
        let posted = match self.srq.is_null() {
            true => self.far.recv(self.b, id, &mut sge),
            false => self.far.recv_shared(self.srq, id, &mut sge),
        };
        assert_eq!(posted, 0);
    }

    fn write(&self, opcode: u32, length: u32) {
        let mut sge = self.near.sge(0, length);
        let mut write = wr(1, opcode, &mut sge);
        let remote_addr = self.far.at(ROOM / 2);
        write.wr = wr_union { rdma: wr_rdma { remote_addr, rkey: self.far.rkey() } };
        write.imm_or_rkey = !length;
        assert_eq!(self.near.send(self.a, &mut write), 0);
        self.near.success(1);
    }

    /// The receiver's next completion: id, operation, length and immediate.
    fn received(&self, polls: Polls) -> (u64, u32, u32, u32) {
        if polls == Polls::Each {
            let mut wc = ibv_wc::default();
            let poll = self.far.ops().poll_cq.unwrap();
            warpline_patience::until("a completion", || {
                (unsafe { poll(self.cq.cast(), 1, &mut wc) }) == 1
            });
            assert_eq!((wc.status, wc.wc_flags), (IBV_WC_SUCCESS, IBV_WC_WITH_IMM));
            return (wc.wr_id, wc.opcode, wc.byte_len, wc.imm_or_rkey);
        }
        walk(self.cq);
        unsafe {
            let f = &*self.cq;
            let (cq, id, status) = (self.cq, f.wr_id, f.status);
            assert_eq!((status, f.read_wc_flags.unwrap()(cq)), (IBV_WC_SUCCESS, IBV_WC_WITH_IMM));
            let (opcode, octets) = (f.read_opcode.unwrap()(cq), f.read_byte_len.unwrap()(cq));
            let immediate = f.read_imm_data.unwrap()(cq);
            f.end_poll.unwrap()(cq);
            (id, opcode, octets, immediate)
        }
    }

    fn end(self) {
        [self.a, self.b].into_iter().for_each(destroy);
        assert_eq!(unsafe { warpline_ibv_destroy_cq(self.cq.cast()) }, 0);
        if !self.srq.is_null() {
            assert_eq!(unsafe { warpline_ibv_destroy_srq(self.srq) }, 0);
        }
    }
}

#[test]
fn a_write_with_immediate_tells_how_many_octets_it_wrote() {
    on_both("immediates::a_write_with_immediate_tells_how_many_octets_it_wrote", || {
        for (shared, polls) in [(false, Polls::Each), (true, Polls::Each), (true, Polls::Walks)] {
            let ends = Ends::new(shared);
            for (id, length) in (10..).zip(LENGTHS) {
                ends.near.fill(0, &vec![id as u8; length as usize]);
                // One without takes no receive, and is not counted.
                ends.write(IBV_WR_RDMA_WRITE, 3);
                ends.recv(id);
                ends.write(IBV_WR_RDMA_WRITE_WITH_IMM, length);
                let expected = (id, IBV_WC_RECV_RDMA_WITH_IMM, length, !length);
                assert_eq!(ends.received(polls), expected, "shared {shared}");
                let there = ends.far.read(ROOM / 2, length as usize);
                assert!(there.iter().all(|octet| *octet == id as u8), "it is placed by then");
            }
            ends.end();
        }
    });
}

#[test]
fn a_write_with_immediate_that_waits_for_a_receive_tells_how_many_octets_it_wrote() {
    on_both(
        "immediates::a_write_with_immediate_that_waits_for_a_receive_tells_how_many_octets_it_wrote",
        || {
            let ends = Ends::new(false);
            let post = |length| {
                let mut sge = ends.near.sge(0, length);
                let mut write = wr(length.into(), IBV_WR_RDMA_WRITE_WITH_IMM, &mut sge);
                let remote_addr = ends.far.at(ROOM / 2);
                write.wr = wr_union { rdma: wr_rdma { remote_addr, rkey: ends.far.rkey() } };
                assert_eq!(ends.near.send(ends.a, &mut write), 0);
            };
            LENGTHS.into_iter().for_each(post);
            for (id, length) in (0..).zip(LENGTHS) {
                ends.recv(id);
                let (found, _, octets, _) = ends.received(Polls::Each);
                assert_eq!((found, octets), (id, length));
            }
            for length in LENGTHS {
                ends.near.success(length.into());
            }
            ends.end();
        },
    );
}
