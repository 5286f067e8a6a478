//! How a request that fails completes on RoCE, at its end and at the peer's: as InfiniBand's transport names the refusals
//! (volume 1, 9.7.5 and 9.9), and as rxe and adapters report them. One row for each cause.

use ibv_sys::*;
use ofa::verbs::mr::*;
use ofa::verbs::pd::*;
use ofa::verbs::query::*;

use crate::events;
use crate::lab::*;
use crate::on_roce::on_roce;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// A key that names no region.
    NoRegion,
    /// A region of another domain.
    OtherDomain,
    /// A region without rights of peers.
    NoRight,
    /// The queue pair allows nothing.
    QueuePair,
    /// The last octet is behind the region.
    Bounds,
    /// The queue pair has no resources for Reads and atomic operations.
    NoResources,
    /// No receive is posted.
    NoReceive,
    /// The receive is too short.
    ShortReceive,
    /// The receive's own key names no region.
    ReceiveKey,
    /// The own key names no region.
    OwnKey,
    /// The own region ends before.
    OwnBounds,
    /// This end may have no Reads.
    NoReads,
    /// The peer does not exist.
    NoPeer,
    /// The request is behind one that fails.
    Behind,
}

const ACCESS: Option<u32> = Some(IBV_EVENT_QP_ACCESS_ERR);
const REQUEST: Option<u32> = Some(IBV_EVENT_QP_REQ_ERR);
const FLUSHED: u32 = IBV_WC_WR_FLUSH_ERR;
/// No completion of a receive.
const NONE: u32 = IBV_WC_SUCCESS;

const READ: u32 = IBV_WR_RDMA_READ;
const WRITE: u32 = IBV_WR_RDMA_WRITE;
const WRITE_IMM: u32 = IBV_WR_RDMA_WRITE_WITH_IMM;
const ATOMIC: u32 = IBV_WR_ATOMIC_FETCH_AND_ADD;
const SWAP: u32 = IBV_WR_ATOMIC_CMP_AND_SWP;
const SEND: u32 = IBV_WR_SEND;
const SEND_INV: u32 = IBV_WR_SEND_WITH_INV;

/// Cause, request and fault; the statuses of the request and of the receive that is posted at the far end, and the
/// asynchronous event there.
type Row = (&'static str, u32, Fault, u32, u32, Option<u32>);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("a Read of no region", READ, Fault::NoRegion, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a Write to no region", WRITE, Fault::NoRegion, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a Write with immediate data to no region", WRITE_IMM, Fault::NoRegion, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("an addition in no region", ATOMIC, Fault::NoRegion, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a comparison in no region", SWAP, Fault::NoRegion, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a Read of another domain", READ, Fault::OtherDomain, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a Write to another domain", WRITE, Fault::OtherDomain, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a Read without the region's right", READ, Fault::NoRight, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a Write without the region's right", WRITE, Fault::NoRight, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("an addition without the region's right", ATOMIC, Fault::NoRight, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a Read past the region", READ, Fault::Bounds, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a Write past the region", WRITE, Fault::Bounds, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("an addition past the region", ATOMIC, Fault::Bounds, IBV_WC_REM_ACCESS_ERR, FLUSHED, ACCESS),
    ("a Read without the queue pair's right", READ, Fault::QueuePair, IBV_WC_REM_INV_REQ_ERR, FLUSHED, REQUEST),
    ("a Write without the queue pair's right", WRITE, Fault::QueuePair, IBV_WC_REM_INV_REQ_ERR, FLUSHED, REQUEST),
    ("an addition without the queue pair's right", ATOMIC, Fault::QueuePair, IBV_WC_REM_INV_REQ_ERR, FLUSHED, REQUEST),
    ("a Read without resources", READ, Fault::NoResources, IBV_WC_REM_INV_REQ_ERR, FLUSHED, REQUEST),
    ("an addition without resources", ATOMIC, Fault::NoResources, IBV_WC_REM_INV_REQ_ERR, FLUSHED, REQUEST),
    ("a Send that invalidates no region", SEND_INV, Fault::NoRegion, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, ACCESS),
    ("a Send longer than its receive", SEND, Fault::ShortReceive, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR, REQUEST),
    ("a Send to a receive without a region", SEND, Fault::ReceiveKey, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR, Some(IBV_EVENT_QP_FATAL)),
    ("a Send without a receive", SEND, Fault::NoReceive, IBV_WC_RNR_RETRY_EXC_ERR, NONE, None),
    ("a Write with immediate data without a receive", WRITE_IMM, Fault::NoReceive, IBV_WC_RNR_RETRY_EXC_ERR, NONE, None),
    ("a Send from no region", SEND, Fault::OwnKey, IBV_WC_LOC_PROT_ERR, NONE, None),
    ("a Write from no region", WRITE, Fault::OwnKey, IBV_WC_LOC_PROT_ERR, NONE, None),
    ("a Read into no region", READ, Fault::OwnKey, IBV_WC_LOC_PROT_ERR, NONE, None),
    ("a Send from behind a region", SEND, Fault::OwnBounds, IBV_WC_LOC_PROT_ERR, NONE, None),
    ("a Read into behind a region", READ, Fault::OwnBounds, IBV_WC_LOC_PROT_ERR, NONE, None),
    ("a Read where there may be none", READ, Fault::NoReads, IBV_WC_LOC_QP_OP_ERR, NONE, None),
    ("a Send to nobody", SEND, Fault::NoPeer, IBV_WC_RETRY_EXC_ERR, NONE, None),
    ("a Read of nobody", READ, Fault::NoPeer, IBV_WC_RETRY_EXC_ERR, NONE, None),
    ("a Send behind a Write to no region", SEND, Fault::Behind, IBV_WC_WR_FLUSH_ERR, FLUSHED, ACCESS),
];

/// Two queue pairs, and what the far end has for the request.
struct Stage {
    near: Lab,
    far: Lab,
    a: *mut ibv_qp,
    b: *mut ibv_qp,
    /// A domain and a region of its own at the far end.
    other: *mut ibv_pd,
    region: *mut ibv_mr,
    fault: Fault,
}

impl Stage {
    fn set(fault: Fault) -> Self {
        let (near, far) = (Lab::new(), Lab::new());
        let (a, b) = (near.qp(), far.qp());
        let mut gid = ibv_gid::default();
        assert_eq!(unsafe { warpline_ibv_query_gid(near.context, 1, 0, &mut gid) }, 0);
        for (qp, peer, is_near) in [(a, b, true), (b, a, false)] {
            to_init(qp);
            let reads = |none: bool| if none { 0 } else { 8 };
            let max_dest_rd_atomic = reads(fault == Fault::NoResources && !is_near);
            let max_rd_atomic = reads(fault == Fault::NoReads && is_near);
            let mut to_rtr =
                ibv_qp_attr { max_dest_rd_atomic, min_rnr_timer: 1, ..rtr(gid, number(peer)) };
            let mut to_rts = ibv_qp_attr { max_rd_atomic, retry_cnt: 1, rnr_retry: 1, ..rts() };
            assert_eq!(modify(qp, &mut to_rtr, RTR), 0);
            assert_eq!(modify(qp, &mut to_rts, RTS), 0);
        }
        let mut none = ibv_qp_attr::default();
        match fault {
            Fault::NoPeer => destroy(b),
            Fault::QueuePair => assert_eq!(modify(b, &mut none, IBV_QP_ACCESS_FLAGS), 0),
            _ => {}
        }
        let other = unsafe { warpline_ibv_alloc_pd(far.context) };
        let pd = if fault == Fault::OtherDomain { other } else { far.pd };
        let access = if fault == Fault::NoRight { IBV_ACCESS_LOCAL_WRITE as i32 } else { ALL };
        let region = unsafe { warpline_ibv_reg_mr(pd, far.memory.cast(), ROOM, access) };
        Self { near, far, a, b, other, region, fault }
    }

    /// Posts a receive at the far end, if there is one.
    fn receive(&self) {
        let mut sge = self.far.sge(0, if self.fault == Fault::ShortReceive { 4 } else { 8 });
        sge.lkey ^= u32::from(self.fault == Fault::ReceiveKey) << 16;
        if ![Fault::NoPeer, Fault::NoReceive].contains(&self.fault) {
            assert_eq!(self.far.recv(self.b, 1, &mut sge), 0);
        }
    }

    /// Posts the request; returns its status.
    fn request(&self, opcode: u32) -> u32 {
        if self.fault == Fault::Behind {
            self.post(1, WRITE, Fault::NoRegion);
        }
        self.post(2, opcode, self.fault);
        if self.fault == Fault::Behind {
            assert_eq!(self.near.completion().wr_id, 1);
        }
        let done = self.near.completion();
        assert_eq!((done.wr_id, query(self.a).qp_state), (2, IBV_QPS_ERR));
        done.status
    }

    fn post(&self, id: u64, opcode: u32, fault: Fault) {
        let (near, far) = (&self.near, &self.far);
        let mut sge = near.sge(if fault == Fault::OwnBounds { ROOM - 4 } else { 0 }, 8);
        sge.lkey ^= u32::from(fault == Fault::OwnKey) << 16;
        let remote_addr = far.at(match fault {
            Fault::Bounds => {
                if opcode == ATOMIC {
                    ROOM
                } else {
                    ROOM - 4
                }
            }
            _ => 0,
        });
        let rkey = unsafe { (*self.region).rkey } ^ u32::from(fault == Fault::NoRegion) << 16;
        let mut wr = wr(id, opcode, &mut sge);
        wr.imm_or_rkey = rkey;
        wr.wr = match opcode {
            ATOMIC | SWAP => {
                wr_union { atomic: wr_atomic { remote_addr, compare_add: 0, swap: 0, rkey } }
            }
            _ => wr_union { rdma: wr_rdma { remote_addr, rkey } },
        };
        assert_eq!(near.send(self.a, &mut wr), 0, "{opcode} {fault:?}");
    }

    /// The event of the far end, and the status of its receive, if it refused the request.
    fn refusal(&self) -> (u32, u32) {
        let mut event = events::next(self.far.context);
        let kind = event.event_type;
        events::acknowledge(&mut event);
        (kind, self.far.completion().status)
    }

    fn clear(self) {
        destroy(self.a);
        if self.fault != Fault::NoPeer {
            destroy(self.b);
        }
        assert_eq!(unsafe { warpline_ibv_dereg_mr(self.region) }, 0);
        assert_eq!(unsafe { warpline_ibv_dealloc_pd(self.other) }, 0);
    }
}

#[test]
fn each_failure_has_the_status_that_adapters_report() {
    on_roce("statuses::each_failure_has_the_status_that_adapters_report", || {
        for (cause, opcode, fault, status, receive, event) in ROWS {
            let stage = Stage::set(*fault);
            stage.receive();
            assert_eq!(stage.request(*opcode), *status, "{cause}: the request");
            if let Some(event) = event {
                assert_eq!(stage.refusal(), (*event, *receive), "{cause}: at the far end");
            }
            stage.clear();
        }
    });
}
