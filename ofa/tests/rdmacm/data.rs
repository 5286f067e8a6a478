//! Data on connections of identifiers: registering, posting, polling; Sends that are posted early, and Sends that
//! find no receive.

use std::ffi::c_int;
use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::mr::{warpline_ibv_dereg_mr, warpline_ibv_reg_mr};

use crate::common::*;
use crate::on_roce::{on_both, on_roce};

pub(crate) fn register(id: *mut rdma_cm_id, memory: &mut [u8]) -> *mut ibv_mr {
    let access =
        (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) as c_int;
    let (at, len) = (memory.as_mut_ptr().cast(), memory.len());
    let mr = call!(warpline_ibv_reg_mr(shown(id).pd, at, len, access));
    assert!(!mr.is_null());
    mr
}

pub(crate) fn entry(memory: &mut [u8], mr: *mut ibv_mr) -> ibv_sge {
    // SAFETY: the test's registration.
    let lkey = unsafe { (*mr).lkey };
    ibv_sge { addr: memory.as_mut_ptr() as u64, length: memory.len() as u32, lkey }
}

pub(crate) fn post_recv(id: *mut rdma_cm_id, memory: &mut [u8], mr: *mut ibv_mr) {
    let mut sge = entry(memory, mr);
    let mut wr = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: &raw mut sge, num_sge: 1 };
    let qp = shown(id).qp;
    let post = operations(shown(id).verbs).post_recv.unwrap();
    done!(post(qp, &raw mut wr, &mut null_mut()));
}

pub(crate) fn post_send(id: *mut rdma_cm_id, memory: &mut [u8], mr: *mut ibv_mr) {
    let mut sge = entry(memory, mr);
    // SAFETY: zeroes are a value of every field.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    (wr.sg_list, wr.num_sge, wr.opcode) = (&raw mut sge, 1, IBV_WR_SEND);
    let qp = shown(id).qp;
    let post = operations(shown(id).verbs).post_send.unwrap();
    done!(post(qp, &raw mut wr, &mut null_mut()));
}

/// How many of the next completions are successes.
pub(crate) fn completions(cq: *mut ibv_cq, count: usize) -> usize {
    // SAFETY: the test's queue.
    let context = unsafe { (*cq).context };
    let poll = operations(context).poll_cq.unwrap();
    let (mut all, mut good) = (0, 0);
    warpline_patience::until("completions", || {
        let mut wc = ibv_wc::default();
        if call!(poll(cq, 1, &raw mut wc)) == 1 {
            all += 1;
            good += usize::from(wc.status == IBV_WC_SUCCESS);
        }
        all == count
    });
    good
}

/// The next completion.
fn completion(cq: *mut ibv_cq) -> ibv_wc {
    // SAFETY: the test's queue.
    let context = unsafe { (*cq).context };
    let poll = operations(context).poll_cq.unwrap();
    let mut wc = ibv_wc::default();
    warpline_patience::until("a completion", || call!(poll(cq, 1, &raw mut wc)) == 1);
    wc
}

/// An operation that no RFC defines, and whose peer may be any process.
#[test]
fn a_send_with_immediate_is_refused() {
    let pair = Pair::new();
    let qp = shown(pair.active).qp;
    // SAFETY: zeroes are a value of every field.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    let mut bad = null_mut();
    // SAFETY: the identifier's queue pair, and the test's request.
    let refused = unsafe { (*(*qp).context).ops.post_send.unwrap()(qp, &mut wr, &mut bad) };
    assert_eq!(refused, libc::EOPNOTSUPP);
    assert_eq!(bad, &raw mut wr);
    pair.end();
}

/// Both ends post before the event that the connection is established.
#[test]
fn sends_before_the_connection_stands_go_out_with_it() {
    let (near, far) = (channel(), channel());
    let (door, at) = listener(far);
    let active = resolved(near, &at);
    let mut ours = *b"from here";
    let mut theirs = [0u8; 9];
    let from = register(active, &mut ours);
    post_recv(active, &mut [0u8; 0], from);
    done!(warpline_rdma_connect(active, &mut params(&[])));
    post_send(active, &mut ours, from);
    let passive = requested(far);
    let into = register(passive, &mut theirs);
    post_recv(passive, &mut theirs, into);
    done!(warpline_rdma_accept(passive, &mut params(&[])));
    post_send(passive, &mut [0u8; 0], into);
    assert_eq!(completions(shown(active).send_cq, 1), 1);
    assert_eq!(completions(shown(passive).recv_cq, 1), 1);
    assert_eq!(theirs, ours);
    assert_eq!(completions(shown(passive).send_cq, 1), 1);
    assert_eq!(completions(shown(active).recv_cq, 1), 1);
    assert_eq!(expect(near, RDMA_CM_EVENT_ESTABLISHED), active);
    assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), passive);
    done!(warpline_ibv_dereg_mr(from));
    done!(warpline_ibv_dereg_mr(into));
    Pair { near, far, listener: door, active, passive }.end();
}

/// iWARP ends the stream then (RFC 5040 section 8.2), and requests behind the Send complete with the reason.
#[test]
fn a_send_that_finds_no_receive_ends_the_connection() {
    let pair = Pair::new();
    let mut outbox = *b"to nobody";
    let from = register(pair.active, &mut outbox);
    let mut source = [7u8; 8];
    let to = register(pair.passive, &mut source);
    post_send(pair.active, &mut outbox, from);
    let mut sge = ibv_sge { length: 8, ..entry(&mut outbox, from) };
    // SAFETY: zeroes are a value of every field.
    let mut read: ibv_send_wr = unsafe { std::mem::zeroed() };
    (read.wr_id, read.sg_list, read.num_sge, read.opcode) = (5, &raw mut sge, 1, IBV_WR_RDMA_READ);
    // SAFETY: the test's registration.
    let rkey = unsafe { (*to).rkey };
    let remote_addr = source.as_mut_ptr().expose_provenance() as u64;
    read.wr = wr_union { rdma: wr_rdma { remote_addr, rkey } };
    let post = operations(shown(pair.active).verbs).post_send.unwrap();
    done!(post(shown(pair.active).qp, &raw mut read, &mut null_mut()));
    let cq = shown(pair.active).send_cq;
    let (sent, lost) = (completion(cq), completion(cq));
    assert_eq!(sent.status, IBV_WC_SUCCESS, "it was sent");
    assert_eq!((lost.wr_id, lost.status), (5, IBV_WC_RNR_RETRY_EXC_ERR));
    assert_eq!(expect(pair.near, RDMA_CM_EVENT_DISCONNECTED), pair.active);
    assert_eq!(expect(pair.far, RDMA_CM_EVENT_DISCONNECTED), pair.passive);
    for mr in [from, to] {
        done!(warpline_ibv_dereg_mr(mr));
    }
    pair.end();
}

/// The peer's refusal and its disconnection may arrive at once.
fn a_read_of_no_region_names_the_cause() {
    for _ in 0..20 {
        let pair = Pair::new();
        let (mut near, mut far) = ([0u8; 8], [7u8; 8]);
        let (into, from) = (register(pair.active, &mut near), register(pair.passive, &mut far));
        // SAFETY: the test's registration.
        let rkey = unsafe { (*from).rkey } ^ 0x1_0000;
        let mut sge = entry(&mut near, into);
        // SAFETY: zeroes are a value of every field.
        let mut read: ibv_send_wr = unsafe { std::mem::zeroed() };
        (read.sg_list, read.num_sge, read.opcode) = (&raw mut sge, 1, IBV_WR_RDMA_READ);
        read.wr = wr_union { rdma: wr_rdma { remote_addr: far.as_ptr() as u64, rkey } };
        let post = operations(shown(pair.active).verbs).post_send.unwrap();
        done!(post(shown(pair.active).qp, &raw mut read, &mut null_mut()));
        // So that everything has arrived before a thread of the test receives it.
        assert_eq!(expect(pair.far, RDMA_CM_EVENT_DISCONNECTED), pair.passive);
        assert_eq!(completion(shown(pair.active).send_cq).status, IBV_WC_REM_ACCESS_ERR);
        assert_eq!(expect(pair.near, RDMA_CM_EVENT_DISCONNECTED), pair.active);
        for mr in [into, from] {
            done!(warpline_ibv_dereg_mr(mr));
        }
        pair.end();
    }
}

#[test]
fn a_refused_read_names_the_cause() {
    a_read_of_no_region_names_the_cause();
}

#[test]
fn a_refused_read_names_the_cause_on_roce() {
    on_roce("data::a_refused_read_names_the_cause_on_roce", a_read_of_no_region_names_the_cause);
}

#[test]
fn a_write_with_immediate_tells_how_many_octets_it_wrote() {
    on_both("data::a_write_with_immediate_tells_how_many_octets_it_wrote", || {
        let pair = Pair::new();
        let (mut source, mut sink) = (vec![7u8; 70_000], vec![0u8; 70_000]);
        let from = register(pair.active, &mut source);
        let to = register(pair.passive, &mut sink);
        // SAFETY: the test's registration.
        let rkey = unsafe { (*to).rkey };
        let remote_addr = sink.as_mut_ptr().expose_provenance() as u64;
        for length in [70_000, 0, 1] {
            post_recv(pair.passive, &mut [0u8; 0], to);
            let mut sge = entry(&mut source[..length], from);
            // SAFETY: zeroes are a value of every field.
            let mut write: ibv_send_wr = unsafe { std::mem::zeroed() };
            (write.sg_list, write.num_sge) = (&raw mut sge, 1);
            write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            write.wr = wr_union { rdma: wr_rdma { remote_addr, rkey } };
            let post = operations(shown(pair.active).verbs).post_send.unwrap();
            done!(post(shown(pair.active).qp, &raw mut write, &mut null_mut()));
            let wc = completion(shown(pair.passive).recv_cq);
            let expected = (IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, length as u32);
            assert_eq!((wc.status, wc.opcode, wc.byte_len), expected);
            assert_eq!(completion(shown(pair.active).send_cq).status, IBV_WC_SUCCESS);
        }
        assert!(source == sink);
        for mr in [from, to] {
            done!(warpline_ibv_dereg_mr(mr));
        }
        pair.end();
    });
}
