//! Tests of batches: a batch takes all that is queued and fits, in few runs; and what happens to a batch whose
//! memory is deregistered.

use vp_api::{AsyncEvent, Data, Qp, QpChange, QpState, Remote, SendFlags, SendOp, SendWr, Sge};
use vp_soft::memory::invalidate;
use warpline_patience::until;

use super::{Batch, Run};
use crate::engine::{Member, Ready};
use crate::testing::caller;
use crate::testing::end::{End, connected, pair};
use crate::tuning::{BATCH_FPDUS, GATHER_MIN};

/// Octets of an FPDU around the payload of an RDMA Write: length, header, CRC.
const AROUND: usize = 2 + 14 + 4;

/// Gives an end in Idle room for this many send requests.
fn deepen(end: &End, requests: u32) {
    let (ord, ird, recv_depth, recv_limit) = (None, None, None, None);
    let send_depth = Some(requests);
    let deeper = QpChange::Limits { ord, ird, send_depth, recv_depth, recv_limit };
    end.qp.modify(deeper).expect("in Idle");
}

/// Posts RDMA Writes of these lengths, to the same place of the peer's buffer, with these flags.
fn post_with(end: &End, peer: &End, lens: &[u32], flags: SendFlags) {
    let remote = Remote { stag: peer.stag, to: peer.buffer.addr() };
    let lists: Vec<_> =
        lens.iter().map(|&len| [Sge { stag: end.stag, to: end.buffer.addr(), len }]).collect();
    let wr = |(list, wr_id)| SendWr {
        wr_id,
        op: SendOp::Write { remote },
        data: Data::Sgl(list),
        flags,
    };
    let wrs: Vec<_> = lists.iter().map(|list| &list[..]).zip(0..).map(wr).collect();
    end.qp.post_send(&wrs).expect("room");
}

/// The same, where some are deferred.
fn post(end: &End, peer: &End, lens: &[u32]) {
    post_with(end, peer, lens, SendFlags::COALESCE);
    assert_eq!(end.sends(), 0, "they are held");
}

/// The same, posted one by one, with no Read before them.
fn post_fenced(end: &End, peer: &End, lens: &[u32]) {
    post_with(end, peer, lens, SendFlags::COALESCE | SendFlags::READ_FENCE);
}

/// Fills a batch, and passes it to `check`.
fn filled<R>(end: &End, check: impl FnOnce(&Batch) -> R) -> R {
    end.qp.inside(|inner, context| {
        let link = inner.link.as_mut().expect("connected");
        let (outbox, stream) = (&mut link.outbox, &link.stream);
        assert!(outbox.fill(stream, &mut inner.core, context));
        check(outbox.batch.as_ref().expect("something to send"))
    })
}

/// Lengths of the runs, and whether they are in registered memory.
fn runs(batch: &Batch) -> Vec<(usize, bool)> {
    batch.runs.iter().map(|run| (run.len(), matches!(run, Run::Payload(_)))).collect()
}

#[test]
fn copied_payloads_are_one_run() {
    let (end, peer) = pair(64 << 10);
    post_fenced(&end, &peer, &[1000, 500, 2000, 500]);
    let all = 4000 + 4 * AROUND;
    filled(&end, |batch| {
        assert_eq!((runs(batch), batch.ends.len()), (vec![(all, false)], 4));
        assert_eq!((batch.octets, batch.used), (all, all));
    });
}

#[test]
fn large_payloads_stay_where_they_are() {
    let (end, peer) = pair(64 << 10);
    post_fenced(&end, &peer, &[GATHER_MIN, GATHER_MIN - 4, GATHER_MIN + 4]);
    let (large, small) = (GATHER_MIN as usize, AROUND - 4);
    let between = 4 + small + (large - 4) + 4 + small;
    filled(&end, |batch| {
        let expected =
            [(small, false), (large, true), (between, false), (large + 4, true), (4, false)];
        assert_eq!((runs(batch), batch.ends.len()), (expected.to_vec(), 3));
    });
}

/// Short messages, which take the fast path, and others share a call.
#[test]
fn all_posts_are_sent_in_one_system_call() {
    for lens in [&[8, 8, 1000, 8, 1000][..], &[1000, 8], &[8, 8], &[9000, 8, 9000, 1000, 8]] {
        let (end, peer) = pair(64 << 10);
        for fence in [SendFlags::empty(), SendFlags::READ_FENCE] {
            let before = end.sends();
            post_with(&end, &peer, lens, SendFlags::COALESCE | fence);
            end.qp.flush();
            assert_eq!(end.sends() - before, 1, "{lens:?}, {fence:?}");
        }
    }
}

#[test]
fn a_batch_has_a_bounded_number_of_fpdus() {
    let ends = (End::new(64 << 10), End::new(64 << 10));
    deepen(&ends.0, 2 * BATCH_FPDUS as u32);
    let (end, peer) = connected(ends);
    // The first takes another path.
    let mut lens = [8; BATCH_FPDUS + 9];
    lens[0] = 2 * GATHER_MIN;
    post(&end, &peer, &lens);
    filled(&end, |batch| assert_eq!(batch.ends.len(), BATCH_FPDUS));
}

/// Short messages are added until there is no room for another. What follows begins the next batch.
#[test]
fn an_fpdu_that_a_full_batch_has_no_room_for_waits() {
    let ends = (End::new(64 << 10), End::new(64 << 10));
    deepen(&ends.0, 128);
    let (end, peer) = connected(ends);
    let lens = [GATHER_MIN - 4; 90];
    post(&end, &peer, &lens);
    filled(&end, |batch| assert!(batch.ends.len() < lens.len()));
    end.qp.flush();
    assert_eq!(end.qp.query().expect("it is there").state, QpState::Rts);
}

/// A message that was begun is completed, and a Terminate gives the reason why no more follows.
#[test]
fn a_source_that_is_gone_before_its_segment_begins_ends_in_a_terminate() {
    let (end, peer) = pair(4 << 20);
    post_with(&end, &peer, &[4 << 20], SendFlags::empty());
    until("the first batch to be sent", || {
        peer.qp.poll();
        end.qp.inside(|inner, context| {
            let link = inner.link.as_mut().expect("connected");
            link.outbox.send(&link.stream, context, &inner.core.queues);
            link.outbox.batch.is_none()
        })
    });
    let table = end.qp.inside(|_, context| context.table.clone());
    invalidate::local(&table, &caller(1), end.stag).expect("it is not in use");
    end.qp.on_ready(Ready { writable: true, ..Ready::default() });
    until("the end of the stream", || {
        peer.qp.poll();
        peer.qp.query().expect("it is there").ended.is_some()
    });
    let ended = peer.qp.query().expect("it is there").ended;
    assert!(matches!(ended, Some(AsyncEvent::TerminateReceived(_))), "{ended:?}");
}

// RDMAC 6.4 [VERBS-12]: nothing can follow an FPDU that cannot be completed.
#[test]
fn a_source_that_is_gone_within_its_segment_ends_in_a_reset() {
    let (end, peer) = pair(64 << 10);
    post(&end, &peer, &[32 << 10]);
    filled(&end, |_| ());
    let table = end.qp.inside(|_, context| context.table.clone());
    invalidate::local(&table, &caller(1), end.stag).expect("it is not in use");
    end.qp.flush();
    let info = end.qp.query().expect("it is there");
    assert_eq!(info.state, QpState::Error);
    assert!(matches!(info.ended, Some(AsyncEvent::TerminateSent(_))), "{info:?}");
    until("the peer to see the reset", || {
        peer.qp.poll();
        peer.engine.poll();
        peer.qp.query().expect("it is there").ended == Some(AsyncEvent::ConnectionReset)
    });
}
