//! Small messages beside large ones: neither another connection's RDMA Reads nor the same one's
//! keep them away. Counts, no times.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use vp_api::*;

const READ: usize = 1 << 20;
/// Reads under way, at any time.
const DEPTH: u64 = 8;
const PINGS: u64 = 100;
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

/// Answers empty Sends until told to stop.
fn answer(end: &End, over: &AtomicBool) {
    let mut out = [WorkCompletion::BLANK];
    while !over.load(Ordering::Acquire) {
        if end.cq.poll(&mut out).unwrap() != 0 && out[0].opcode == WcOpcode::Recv {
            assert_eq!(out[0].status, WcStatus::Success);
            end.recv(0, &[]);
            end.post_flags(0, SEND, &[], SendFlags::empty());
        }
    }
}

/// Pings over one end while another, or the same, reads without pause; answers the reads done.
fn ping_beside_reads(near: &End, reader: &End, remote: Remote) -> u64 {
    let sink = reader.region(Buffer::new(READ));
    let read = SendOp::Read { remote, invalidate_sink: false };
    let post = |id| reader.post(id, read.clone(), &[sink.all()]);
    (0..DEPTH).for_each(post);
    let mut reads = 0;
    for ping in PING..PING + PINGS {
        near.recv(ping, &[]);
        near.post_flags(ping, SEND, &[], SendFlags::empty());
        loop {
            let completion = next(&*near.cq);
            assert_eq!(completion.status, WcStatus::Success);
            if completion.opcode == WcOpcode::Recv {
                break;
            }
            reads += 1;
            post(DEPTH + reads);
        }
    }
    reads
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
        let reader = if same { &near } else { &near_2 };
        let reads = ping_beside_reads(&near, reader, source.remote(0));
        println!("{reads} reads of 1 MiB beside {PINGS} pings");
        over.store(true, Ordering::Release);
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
