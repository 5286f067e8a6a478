//! Small messages beside large ones: RDMA Reads, of the same or of another connection, do not starve them, nor
//! they the Reads. Of many connections that read, none starves at any time. The tests compare counts, not times.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use vp_api::*;

const READ: usize = 1 << 20;
/// Reads under way, at any time.
const DEPTH: u64 = 8;
const PINGS: u64 = 100;
/// Reads that must be done beside them: more than are under way at first.
const READS: u64 = 4 * DEPTH;
/// Pings beside which so many reads are done in any case.
const MOST_PINGS: u64 = 200 * PINGS;
/// Reads of each of several connections, on average.
const SHARE: u64 = 800;
/// Reads of each, on average, while one waits for its next: it gets at least half of its share.
const WAITS: u64 = SHARE / 2;
const SMALL_READ: usize = 64 << 10;
const PING: u64 = 1 << 32;

fn init(init: &mut QpInit) {
    (init.ird, init.ord) = (16, 16);
    (init.send_depth, init.recv_depth) = (64, 4);
}

/// An end on the RNIC and the CQ of another.
fn beside(end: &End) -> End {
    let (rnic, events, cq) = (end.rnic.clone(), end.events.clone(), end.cq.clone());
    let mut attrs = QpInit::new(end.pd, cq.id(), cq.id());
    init(&mut attrs);
    let qp = rnic.create_qp(&attrs).unwrap();
    End { rnic, events, pd: end.pd, cq, qp }
}

/// Replies to empty Sends until stopped.
fn answer(end: &End, over: &AtomicBool) {
    let mut out = [WorkCompletion::BLANK];
    let bound = warpline_patience::Bound::new("the pings to be over");
    while !over.load(Ordering::Acquire) {
        bound.check();
        if end.cq.poll(&mut out).unwrap() != 0 && out[0].opcode == WcOpcode::Recv {
            assert_eq!(out[0].status, WcStatus::Success);
            end.recv(0, &[]);
            end.post(0, SEND, &[]);
        }
    }
}

/// Sets the flag when it is dropped, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Pings over one end while another, or the same, reads without pause, until there are enough of both;
/// returns the number of replies and of reads.
fn ping_beside_reads(near: &End, reader: &End, remote: Remote) -> (u64, u64) {
    let sink = reader.region(Buffer::new(READ));
    let read = SendOp::Read { remote, invalidate_sink: false };
    let post = |id| reader.post(id, read.clone(), &[sink.all()]);
    (0..DEPTH).for_each(post);
    let (mut pings, mut reads) = (0, 0);
    while pings < PINGS || reads < READS {
        assert!(pings < MOST_PINGS, "the reads starve: {reads} beside {pings} pings");
        near.recv(PING + pings, &[]);
        near.post(PING + pings, SEND, &[]);
        let bound = warpline_patience::Bound::new("the reply to a ping, beside the reads");
        loop {
            bound.check();
            let completion = next(&*near.cq);
            assert_eq!(completion.status, WcStatus::Success);
            match completion.opcode {
                WcOpcode::Recv => break,
                WcOpcode::Read => {
                    reads += 1;
                    post(DEPTH + reads);
                }
                _ => {}
            }
        }
        pings += 1;
    }
    (pings, reads)
}

fn storm(same: bool) {
    let setup = Setup { crc: false, init, ..Setup::default() };
    let (near, far) = pair(&setup);
    let (near_2, far_2) = (beside(&near), beside(&far));
    connect((&near_2, &far_2), &setup);
    let source = far.region(Buffer::new(READ));
    far.recv(0, &[]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| answer(&far, &over));
        let _ends = Ends(&over);
        let reader = if same { &near } else { &near_2 };
        let (pings, reads) = ping_beside_reads(&near, reader, source.remote(0));
        println!("{reads} reads of 1 MiB beside {pings} pings");
    });
}

// [IOP-13]
#[test]
fn pings_come_through_beside_reads_of_another_connection() {
    storm(false);
}

// [IOP-13]
#[test]
fn pings_come_through_beside_reads_of_the_same_connection() {
    storm(true);
}

/// Each of `count` connections on one CQ that read without pause makes progress at any time.
fn all_get_on(count: usize) {
    let setup = Setup { crc: false, init, ..Setup::default() };
    let (near, far) = pair(&setup);
    let source = far.region(Buffer::new(SMALL_READ));
    let mut ends = vec![(near, far)];
    while ends.len() < count {
        let (near, far) = (beside(&ends[0].0), beside(&ends[0].1));
        connect((&near, &far), &setup);
        ends.push((near, far));
    }
    let sink = ends[0].0.region(Buffer::new(SMALL_READ));
    let read = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
    let post = |at: usize| ends[at].0.post(at as u64, read.clone(), &[sink.all()]);
    (0..count).for_each(|at| (0..DEPTH).for_each(|_| post(at)));
    // For each, the total number of reads at its last completion.
    let mut last = vec![0; count];
    let mut done = vec![0; count];
    let bound = warpline_patience::Bound::new("reads of several connections");
    for total in 1..=SHARE * count as u64 {
        bound.check();
        let completion = next(&*ends[0].0.cq);
        assert_eq!(completion.status, WcStatus::Success);
        let at = completion.wr_id as usize;
        done[at] += 1;
        last[at] = total;
        let waits = |last: &u64| total - last > WAITS * count as u64;
        assert_eq!(last.iter().position(waits), None, "one starves after {total}: {done:?}");
        post(at);
    }
}

// [IOP-13]
#[test]
fn few_connections_that_read_get_their_shares() {
    all_get_on(3);
}

// [IOP-13]
#[test]
fn many_connections_that_read_get_their_shares() {
    all_get_on(12);
}
