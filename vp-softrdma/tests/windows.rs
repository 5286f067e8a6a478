//! Windows as sinks of Reads, invalidation from either end, and requests of no octets, over real
//! connections.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::sync::Arc;

use common::*;
use vp_api::*;

const LEN: usize = 1000;

fn read(remote: Remote, invalidate_sink: bool) -> SendOp {
    SendOp::Read { remote, invalidate_sink }
}

fn send_invalidate(stag: Stag) -> SendOp {
    SendOp::Send { solicited: false, invalidate: Some(stag) }
}

/// A window of `end`'s QP on all of a region, zero-based, bound.
fn window(end: &End, region: &Region, kind: MwKind, access: Access) -> (MwId, Stag) {
    let window = end.rnic.alloc_mw(end.pd, kind).unwrap();
    let bind = BindMw {
        window,
        key: 9,
        region: region.stag,
        to: region.buffer.to(),
        len: region.buffer.len() as u64,
        addressing: Addressing::ZeroBased,
        access,
    };
    end.post(90, SendOp::BindMw(bind), &[]);
    end.done(90);
    (window, Stag::new(window.0, 9))
}

/// A region that only windows open to peers.
fn closed_region(end: &End) -> Region {
    end.region_with(Buffer::new(LEN), Access::LOCAL | Access::BIND)
}

fn sge(stag: Stag, to: u64, len: usize) -> Sge {
    Sge { stag, to, len: len as u32 }
}

/// A second QP in the PD of an end, connected to an end of its own.
fn second_stream(far: &End) -> (End, End) {
    let pd = far.pd;
    let cq = CqInit { depth: 64, handler: None };
    let too = End { pd, ..End::on(far.rnic.clone(), cq, |qp| qp.pd = pd) };
    let near = End::new(|_| {});
    connect((&too, &near), &Setup::default());
    (too, near)
}

// IT-API it_post_rdma_read_to_rmr: the sink is a window, and only a window needs the remote right.
#[test]
fn reads_go_into_windows() {
    let (near, far) = pair(&Setup::default());
    let source = far.region(Buffer::pattern(LEN, 1));
    for kind in [MwKind::Narrow, MwKind::Wide] {
        let region = closed_region(&near);
        let (id, stag) = window(&near, &region, kind, Access::REMOTE_WRITE);
        near.post(1, read(source.remote(0), false), &[sge(stag, 0, LEN)]);
        near.done(1);
        assert!(region.buffer.read(0, LEN) == source.buffer.read(0, LEN));
        let info = near.rnic.query_mw(id).unwrap();
        assert_eq!((info.stag, info.region), (Some(stag), Some(region.stag)));
        assert_eq!((info.to, info.len), (region.buffer.to(), LEN as u64));
        assert_eq!(info.addressing, Addressing::ZeroBased);
        assert_eq!((info.kind, info.access), (kind, Access::REMOTE_WRITE));
        // The Read invalidates its sink; the region stays valid. [VERBS-25]
        near.post(2, read(source.remote(0), true), &[sge(stag, 0, LEN)]);
        near.done(2);
        let info = near.rnic.query_mw(id).unwrap();
        assert_eq!((info.stag, info.region, info.len), (None, None, 0));
        let region = near.rnic.query_mr(region.stag).unwrap();
        assert!(region.valid && region.bound_windows == 0);
    }
}

// A wide window accepts Reads of every QP of its PD.
#[test]
fn a_wide_window_is_a_sink_for_its_pd() {
    let (near, _far) = pair(&Setup::default());
    let (too, peer) = second_stream(&near);
    let region = closed_region(&near);
    let (_, stag) = window(&near, &region, MwKind::Wide, Access::REMOTE_WRITE);
    let source = peer.region(Buffer::pattern(LEN, 2));
    too.post(1, read(source.remote(0), false), &[sge(stag, 0, LEN)]);
    too.done(1);
    assert!(region.buffer.read(0, LEN) == source.buffer.read(0, LEN));
}

// [VERBS-24] [SEC-02]: rights, bounds, stream and state of a window as a sink.
#[test]
fn windows_refuse_reads_they_were_not_made_for() {
    let write = Access::REMOTE_WRITE;
    for (access, to, status) in [
        (Access::REMOTE_READ, 0, WcStatus::AccessViolation),
        (write, 1, WcStatus::Bounds),
        (write, u64::MAX, WcStatus::Wrap),
    ] {
        let (near, far) = pair(&Setup::default());
        let source = far.region(Buffer::pattern(LEN, 3));
        let region = closed_region(&near);
        let (_, stag) = window(&near, &region, MwKind::Narrow, access);
        near.post(1, read(source.remote(0), false), &[sge(stag, to, LEN)]);
        assert_eq!(near.complete().status, status);
        assert_eq!(region.buffer.read(0, LEN), [0; LEN]);
    }
    let (near, _far) = pair(&Setup::default());
    let (too, peer) = second_stream(&near);
    let (id, stag) = window(&near, &closed_region(&near), MwKind::Narrow, write);
    let source = peer.region(Buffer::pattern(LEN, 3));
    too.post(1, read(source.remote(0), false), &[sge(stag, 0, LEN)]);
    assert_eq!(too.complete().status, WcStatus::InvalidPd);
    near.rnic.dealloc_mw(id).unwrap();
    near.post(1, read(source.remote(0), false), &[sge(stag, 0, LEN)]);
    assert_eq!(near.complete().status, WcStatus::InvalidStag);
}

// rnicpi 7: no window on a zero-based region; and a window cannot be the buffer of a Send.
#[test]
fn windows_have_their_limits() {
    let (near, _far) = pair(&Setup::default());
    let buffer = Buffer::new(LEN);
    let init = MrInit {
        pd: near.pd,
        range: buffer.range(),
        addressing: Addressing::ZeroBased,
        access: Access::all(),
        key: 0,
        pin: false,
    };
    let bind = BindMw {
        window: near.rnic.alloc_mw(near.pd, MwKind::Narrow).unwrap(),
        key: 0,
        region: near.rnic.register_mr(&init).unwrap(),
        to: 0,
        len: 8,
        addressing: Addressing::ZeroBased,
        access: Access::REMOTE_READ,
    };
    near.post(1, SendOp::BindMw(bind), &[]);
    assert_eq!(near.complete().status, WcStatus::InvalidWindow);
    let (near, _far) = pair(&Setup::default());
    let region = closed_region(&near);
    let (_, stag) = window(&near, &region, MwKind::Narrow, Access::REMOTE_WRITE);
    near.post(1, SEND, &[sge(stag, 0, 8)]);
    assert_eq!(near.complete().status, WcStatus::InvalidStag);
}

// [RDMAP-13] [VERBS-27]: Send with Invalidate invalidates a narrow window, and nothing else.
#[test]
fn a_peer_unlinks_a_narrow_window() {
    let (near, far) = pair(&Setup::default());
    let region = closed_region(&far);
    let (id, stag) = window(&far, &region, MwKind::Narrow, Access::REMOTE_WRITE);
    let source = near.region(Buffer::pattern(LEN, 4));
    far.recv(1, &[]);
    near.post(1, SendOp::Write { remote: Remote { stag, to: 0 } }, &[source.all()]);
    near.post(2, send_invalidate(stag), &[]);
    assert_eq!(far.done(1).invalidated, Some(stag));
    assert!(region.buffer.read(0, LEN) == source.buffer.read(0, LEN));
    assert_eq!(far.rnic.query_mw(id).unwrap().stag, None);
    assert!(far.rnic.query_mr(region.stag).unwrap().valid);
    near.done(1);
    near.done(2);
    near.post(3, SendOp::Write { remote: Remote { stag, to: 0 } }, &[source.all()]);
    assert_eq!(terminate(&near), (1, 1, 0));
}

/// The Terminate that an end receives.
fn terminate(end: &End) -> (u8, u8, u8) {
    match end.event() {
        AsyncEvent::TerminateReceived(t) => (t.layer, t.etype, t.code),
        other => panic!("{other:?}"),
    }
}

fn register(stag: Stag, buffer: &Arc<Buffer>) -> SendOp {
    SendOp::FastRegister(Box::new(FastRegister {
        stag,
        range: buffer.range(),
        addressing: Addressing::ZeroBased,
        access: Access::LOCAL | Access::REMOTE,
    }))
}

// [RDMAP-13] [VERBS-25]: linked, used and unlinked by the peer, again and again.
#[test]
fn a_peer_unlinks_a_fast_registered_region() {
    let setup = Setup { init: |qp| qp.privileged = true, ..Setup::default() };
    let (near, far) = pair(&setup);
    let index = far.rnic.alloc_stag(far.pd, true).unwrap().index();
    let source = near.region(Buffer::pattern(LEN, 5));
    for key in 0..20 {
        let (stag, buffer) = (Stag::new(index, key), Buffer::new(LEN));
        far.recv(1, &[]);
        far.post(2, register(stag, &buffer), &[]);
        far.done(2);
        let info = far.rnic.query_mr(stag).unwrap();
        assert_eq!((info.valid, info.stag, info.len), (true, stag, LEN as u64));
        near.post(1, SendOp::Write { remote: Remote { stag, to: 0 } }, &[source.all()]);
        near.post(2, send_invalidate(stag), &[]);
        near.done(1);
        near.done(2);
        assert_eq!(far.done(1).invalidated, Some(stag));
        let info = far.rnic.query_mr(stag).unwrap();
        assert_eq!((info.valid, info.addr, info.len), (false, 0, 0));
        assert_eq!(Arc::strong_count(&buffer), 1);
        assert!(buffer.read(0, LEN) == source.buffer.read(0, LEN));
    }
    // A plain region may be unlinked and linked again, too.
    let plain = far.region(Buffer::new(LEN));
    far.post(3, SendOp::InvalidateLocal { stag: plain.stag }, &[]);
    far.done(3);
    far.post(4, register(Stag::new(plain.stag.index(), 77), &source.buffer), &[]);
    far.done(4);
    assert_eq!(far.rnic.query_mr(plain.stag).unwrap().stag.key(), 77);
}

/// A peer tries to invalidate what it may not: the stream ends, the receive reports the reason, and the
/// STag does not change.
fn cannot_invalidate(setup: &Setup, stag: impl FnOnce(&End) -> Stag) {
    let (near, far) = pair(setup);
    let stag = stag(&far);
    far.recv(1, &[]);
    far.recv(2, &[]);
    near.post(1, send_invalidate(stag), &[]);
    assert_eq!(terminate(&near), (0, 1, 9));
    let refused = far.complete();
    assert_eq!((refused.wr_id, refused.status), (1, WcStatus::CannotInvalidate));
    assert_eq!(far.complete().status, WcStatus::Flushed);
    assert_eq!(far.qp.query().unwrap().recvs_lost, 2);
}

// [SEC-06] [SEC-01] [SEC-02] [SEC-14]
#[test]
fn a_peer_unlinks_only_its_grant() {
    let setup = Setup::default();
    let write = Access::REMOTE_WRITE;
    cannot_invalidate(&setup, |_| Stag::PRIVILEGED);
    cannot_invalidate(&setup, |far| closed_region(far).stag);
    cannot_invalidate(&setup, |far| Stag(far.region(Buffer::new(8)).stag.0 ^ 1));
    cannot_invalidate(&setup, |far| window(far, &closed_region(far), MwKind::Wide, write).1);
    cannot_invalidate(&setup, |far| {
        let region = far.region(Buffer::new(LEN));
        window(far, &region, MwKind::Narrow, write);
        region.stag
    });
    cannot_invalidate(&setup, |far| {
        let (too, _peer) = second_stream(far);
        window(&too, &closed_region(far), MwKind::Narrow, write).1
    });
    let closed = Setup { init: |qp| qp.allow = Access::BIND, ..Setup::default() };
    cannot_invalidate(&closed, |far| far.region(Buffer::new(8)).stag);
}

// IT_UNLINK_FENCE_FLAG: unlinking waits for the Reads into the region before it. [VERBS-17]
#[test]
fn fenced_unlinks_wait() {
    let (near, far) = pair(&Setup::default());
    let len = 1 << 20;
    let source = far.region(Buffer::pattern(len, 6));
    let fenced = SendFlags::SIGNALED | SendFlags::LOCAL_FENCE;
    for _ in 0..10 {
        let sink = near.region(Buffer::new(len));
        near.post(1, read(source.remote(0), false), &[sink.all()]);
        near.post_flags(2, SendOp::InvalidateLocal { stag: sink.stag }, &[], fenced);
        near.done(1);
        near.done(2);
        assert!(sink.buffer.read(0, len) == source.buffer.read(0, len));
        assert!(!near.rnic.query_mr(sink.stag).unwrap().valid);
        near.rnic.dealloc_stag(sink.stag).unwrap();

        let region = near.region(Buffer::new(len));
        let (id, stag) = window(&near, &region, MwKind::Narrow, Access::REMOTE_WRITE);
        near.post(1, read(source.remote(0), false), &[sge(stag, 0, len)]);
        near.post_flags(2, SendOp::InvalidateLocal { stag }, &[], fenced);
        near.done(1);
        near.done(2);
        assert!(region.buffer.read(0, len) == source.buffer.read(0, len));
        near.rnic.dealloc_mw(id).unwrap();
    }
}

// RFC 7306 5: eight octets, at any alignment; fewer are refused here, before anything is sent.
#[test]
fn an_atomic_needs_room_for_its_response() {
    let (near, far) = pair(&Setup::default());
    let counter = far.region(Buffer::new(8));
    let sink = near.region(Buffer::new(24));
    let add =
        SendOp::Atomic { remote: counter.remote(0), op: AtomicOp::FetchAdd { add: 3, mask: 0 } };
    for (at, expected) in [(0, 0u64), (11, 3), (16, 6)] {
        near.post(1, add.clone(), &[sink.sge(at, 8)]);
        assert_eq!(near.done(1).opcode, WcOpcode::Atomic);
        assert_eq!(sink.buffer.read(at, 8), expected.to_ne_bytes());
    }
    near.post(2, read(counter.remote(0), false), &[sink.sge(0, 8)]);
    near.done(2);
    assert_eq!(sink.buffer.read(0, 8), 9u64.to_ne_bytes());
    near.post(3, add, &[sink.sge(0, 7)]);
    assert_eq!(near.complete().status, WcStatus::InvalidLength);
}

// [VERBS-19]: an operation that moves no octets checks no STag; every operation that may move none.
#[test]
fn no_operation_moves_octets() {
    let (near, far) = pair(&Setup::default());
    let nowhere = Remote { stag: Stag(0x1234_5678), to: u64::MAX };
    let bogus = sge(Stag(0x8765_4321), u64::MAX, 0);
    for list in [&[][..], &[bogus], &[bogus, bogus]] {
        far.recv(1, &[bogus]);
        far.recv(2, &[]);
        far.recv(3, &[bogus, bogus]);
        near.post(1, SEND, list);
        near.post(2, SendOp::Write { remote: nowhere }, list);
        near.post(3, read(nowhere, false), &[bogus]);
        near.post(4, SendOp::WriteImmediate { remote: nowhere, data: 7, solicited: true }, list);
        let inline =
            |wr_id, op| SendWr { wr_id, op, data: Data::Inline(&[]), flags: SendFlags::SIGNALED };
        near.qp.post_send(&[inline(5, SEND)]).unwrap();
        near.qp.post_send(&[inline(6, SendOp::Write { remote: nowhere })]).unwrap();
        for wr_id in 1..=6 {
            assert_eq!(near.done(wr_id).octets, 0);
        }
        for wr_id in 1..=3 {
            assert_eq!(far.done(wr_id).octets, 0);
        }
    }
    // A region of no octets exists, and grants no access.
    let empty = far.region(Buffer::new(0));
    assert!(far.rnic.query_mr(empty.stag).unwrap().valid);
    near.post(7, SendOp::Write { remote: empty.remote(0) }, &[]);
    near.done(7);
    let one = near.region(Buffer::new(1));
    near.post(8, SendOp::Write { remote: empty.remote(0) }, &[one.all()]);
    assert_eq!(terminate(&near), (1, 1, 1));
}
