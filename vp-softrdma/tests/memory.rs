//! Memory protection: every refusal, seen from the other end of a real connection.

mod common;

use common::{Buffer, End, Region, SEND, Setup, connect, pair};
use vp_api::*;

const FULL: Access = Access::all();

/// The Terminate that the peer of a refused request receives.
fn refusal(end: &End) -> (u8, u8, u8) {
    match end.event() {
        AsyncEvent::TerminateReceived(t) => (t.layer, t.etype, t.code),
        other => panic!("{other:?}"),
    }
}

/// Runs one refused request on a connection of its own and checks that the buffer did not change.
fn refused(
    access: Access,
    request: impl Fn(&End, &End, &Region) -> (SendOp, u32),
    expected: (u8, u8, u8),
) {
    let (near, far) = pair(&Setup::default());
    let region = far.region_with(Buffer::pattern(64, 7), access);
    let sink = near.region(Buffer::new(64));
    let (op, len) = request(&near, &far, &region);
    near.post(1, op, &[sink.sge(0, len as usize)]);
    assert_eq!(refusal(&near), expected);
    assert_eq!(region.buffer.read(0, 64), common::pattern(64, 7));
}

/// The events at both ends for a refused request.
fn refusals(ends: (&End, &End), op: SendOp, sgl: &[Sge]) -> (RefusedSegment, RefusedSegment) {
    ends.0.post(1, op, sgl);
    match (ends.0.event(), ends.1.event()) {
        (AsyncEvent::TerminateReceived(near), AsyncEvent::TerminateSent(far)) => {
            (near.refused.expect("it is quoted"), far.refused.expect("it is known"))
        }
        other => panic!("{other:?}"),
    }
}

// RFC 5040 4.8: the operation, its octets, its target; and whether this end knows the STag.
#[test]
fn a_refusal_names_the_request() {
    let (near, far) = pair(&Setup::default());
    let read_only = Access::LOCAL | Access::REMOTE_READ;
    let region = far.region_with(Buffer::new(64), read_only);
    let source = near.region(Buffer::new(64));
    let target = region.remote(8);
    let (sent, kept) = refusals((&near, &far), write(target), &[source.sge(0, 40)]);
    let expected = RefusedSegment {
        operation: RefusedOperation::Write,
        octets: 40,
        whole: true,
        target: Some((target.stag, target.to)),
        region: None,
    };
    assert_eq!(sent, expected);
    let (octets, access) = (64, read_only);
    let memory = RefusedRegion { octets, access, window: false, associated: true };
    assert_eq!((kept.target, kept.octets), (expected.target, 40));
    assert_eq!(kept.region, Some(memory));

    let (near, far) = pair(&Setup::default());
    let region = far.region(Buffer::new(64));
    let window = far.rnic.alloc_mw(far.pd, MwKind::Wide).unwrap();
    far.post(1, SendOp::BindMw(bind(window, &region)), &[]);
    far.done(1);
    let remote = Remote { stag: Stag::new(window.0, 9), to: 4 };
    let sink = near.region(Buffer::new(64));
    let (sent, kept) = refusals((&near, &far), read(remote), &[sink.sge(0, 5)]);
    let expected = RefusedSegment {
        operation: RefusedOperation::Read,
        octets: 5,
        whole: true,
        target: Some((remote.stag, remote.to)),
        region: None,
    };
    assert_eq!(sent, expected);
    let access = Access::REMOTE_WRITE;
    let memory = RefusedRegion { octets: 16, access, window: true, associated: true };
    assert_eq!(kept, RefusedSegment { region: Some(memory), ..expected });

    // Behind a Read, the atomic waits for its turn (RFC 7306 5.4).
    for behind_a_read in [false, true] {
        let (near, far) = pair(&Setup::default());
        let region = far.region_with(Buffer::new(64), read_only);
        let sink = near.region(Buffer::new(64));
        if behind_a_read {
            near.post(9, read(region.remote(0)), &[sink.sge(16, 48)]);
        }
        let target = region.remote(8);
        let (_, kept) = refusals((&near, &far), add(target), &[sink.sge(0, 8)]);
        assert_eq!(kept.target, Some((target.stag, target.to)));
        assert_eq!(kept.region.map(|region| region.access), Some(read_only));
    }
}

// A message longer than its receive.
#[test]
fn a_refused_send_reports_how_much_was_sent() {
    // In segments of 1000 octets: the first of several is too long, the last of two, the only one.
    for (posted, room, octets, whole) in
        [(3000, 500, 1000, false), (2000, 1500, 1000, false), (30, 29, 30, true)]
    {
        let (near, far) = pair(&Setup { fpdu: FpduSize::Octets(1018), ..Setup::default() });
        let (source, sink) = (near.region(Buffer::new(3000)), far.region(Buffer::new(room)));
        far.recv(1, &[sink.all()]);
        let (sent, kept) = refusals((&near, &far), SEND, &[source.sge(0, posted)]);
        let (operation, target, region) = (RefusedOperation::Send, None, None);
        assert_eq!(kept, RefusedSegment { operation, octets, whole, target, region });
        assert_eq!(sent, kept);
    }
}

fn add(remote: Remote) -> SendOp {
    SendOp::Atomic { remote, op: AtomicOp::FetchAdd { add: 1, mask: 0 } }
}

fn write(remote: Remote) -> SendOp {
    SendOp::Write { remote }
}

fn read(remote: Remote) -> SendOp {
    SendOp::Read { remote, invalidate_sink: false }
}

// [SEC-03] [DDP-15]: octet-exact bounds of a Write.
#[test]
fn writes_outside_are_refused() {
    refused(FULL, |_, _, r| (write(r.remote(60)), 5), (1, 1, 1));
    refused(FULL, |_, _, r| (write(Remote { to: r.buffer.to() - 1, ..r.remote(0) }), 1), (1, 1, 1));
    refused(FULL, |_, _, r| (write(Remote { to: u64::MAX, ..r.remote(0) }), 2), (1, 1, 3));
}

// [SEC-03] [RDMAP-07]: and of a Read.
#[test]
fn reads_outside_are_refused() {
    refused(FULL, |_, _, r| (read(r.remote(60)), 5), (0, 1, 1));
    refused(FULL, |_, _, r| (read(Remote { to: u64::MAX, ..r.remote(0) }), 2), (0, 1, 4));
}

// [SEC-03]: the request is checked as a whole, before its first octet is sent.
#[test]
fn a_read_that_ends_outside_reads_nothing() {
    let (near, far) = pair(&Setup::default());
    let source = far.region(Buffer::pattern(1 << 20, 1));
    let sink = near.region(Buffer::new(2 << 20));
    near.post(1, read(source.remote(0)), &[sink.all()]);
    assert_eq!(refusal(&near), (0, 1, 1));
    assert!(sink.buffer.read(0, 2 << 20).iter().all(|&octet| octet == 0));
}

// [VERBS-22] [VERBS-23] [SEC-04]: a wrong key, STag 0, an STag that was deregistered.
#[test]
fn unknown_stags_are_refused() {
    let wrong_key = |r: &Region| Remote { stag: Stag(r.stag.0 ^ 1), ..r.remote(0) };
    refused(FULL, |_, _, r| (write(wrong_key(r)), 1), (1, 1, 0));
    refused(FULL, |_, _, r| (read(wrong_key(r)), 1), (0, 1, 0));
    let zero = |r: &Region| Remote { stag: Stag::PRIVILEGED, ..r.remote(0) };
    refused(FULL, |_, _, r| (write(zero(r)), 1), (1, 1, 0));
    refused(FULL, |_, _, r| (read(zero(r)), 1), (0, 1, 0));
    let gone = |far: &End, r: &Region| {
        far.rnic.dealloc_stag(r.stag).unwrap();
        r.remote(0)
    };
    refused(FULL, |_, far, r| (write(gone(far, r)), 1), (1, 1, 0));
}

// [SEC-04] [SEC-14] [ERR-17]: read and write rights are separate.
#[test]
fn rights_are_separate() {
    let write_only = Access::LOCAL | Access::REMOTE_WRITE;
    let read_only = Access::LOCAL | Access::REMOTE_READ;
    refused(write_only, |_, _, r| (read(r.remote(0)), 1), (0, 1, 2));
    refused(read_only, |_, _, r| (write(r.remote(0)), 1), (1, 1, 2));
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    refused(write_only, |_, _, r| (SendOp::Atomic { remote: r.remote(0), op: add }, 8), (0, 1, 2));
}

// [SEC-14] [RDMAP-06]: a Read of no octets is allowed with any STag.
#[test]
fn reads_of_nothing_are_allowed() {
    let (near, far) = pair(&Setup::default());
    let region = far.region_with(Buffer::new(8), Access::LOCAL | Access::REMOTE_WRITE);
    let sink = near.region(Buffer::new(8));
    near.post(1, read(region.remote(0)), &[sink.sge(0, 0)]);
    near.done(1);
    near.post(2, write(Remote { stag: Stag::PRIVILEGED, to: 3 }), &[]);
    near.done(2);
}

// [SEC-01] [SEC-16]: another PD's region, for Write, Read and invalidation.
#[test]
fn other_protection_domains_are_out_of_reach() {
    let elsewhere = |far: &End, r: &Region| {
        let pd = far.rnic.alloc_pd().unwrap();
        let init = MrInit {
            pd,
            range: r.buffer.range(),
            addressing: Addressing::Absolute,
            access: FULL,
            key: 0,
            pin: false,
        };
        Remote { stag: far.rnic.register_mr(&init).unwrap(), ..r.remote(0) }
    };
    refused(FULL, |_, far, r| (write(elsewhere(far, r)), 1), (1, 1, 2));
    refused(FULL, |_, far, r| (read(elsewhere(far, r)), 1), (0, 1, 3));
}

// [SEC-06] [RDMAP-13]: a peer cannot invalidate memory that other streams use.
#[test]
fn shared_regions_are_not_invalidated_by_a_peer() {
    let share = |_: &End, far: &End, r: &Region| {
        let access = Access::LOCAL;
        far.rnic.register_shared_mr(r.stag, far.pd, Addressing::Absolute, access, 1).unwrap();
        far.recv(1, &[]);
        (SendOp::Send { solicited: false, invalidate: Some(r.stag) }, 0)
    };
    refused(FULL, share, (0, 1, 9));
}

/// Two connections from one end's RNIC to another's: `far.0` and `far.1` share a PD.
fn two_streams() -> (End, End, End, End) {
    let setup = Setup::default();
    let (near, far) = pair(&setup);
    let near_too = End::new(|_| {});
    let pd = far.pd;
    let far_too = End::on(far.rnic.clone(), CqInit { depth: 64, handler: None }, |qp| qp.pd = pd);
    connect((&near_too, &far_too), &setup);
    assert_eq!(near_too.event(), AsyncEvent::Established);
    assert_eq!(far_too.event(), AsyncEvent::Established);
    (near, far, near_too, far_too)
}

fn bind(window: MwId, region: &Region) -> BindMw {
    BindMw {
        window,
        key: 9,
        region: region.stag,
        to: region.buffer.to() + 8,
        len: 16,
        addressing: Addressing::ZeroBased,
        access: Access::REMOTE_WRITE,
    }
}

// [DDP-20] [SEC-02]: a region serves both streams of its PD, a narrow window only its own.
#[test]
fn narrow_windows_belong_to_one_stream() {
    let (near, far, near_too, _far_too) = two_streams();
    let region = far.region(Buffer::new(64));
    let source = near.region(Buffer::pattern(16, 1));
    let source_too = near_too.region(Buffer::pattern(16, 2));
    near.post(1, write(region.remote(32)), &[source.all()]);
    near.done(1);
    near_too.post(1, write(region.remote(48)), &[source_too.all()]);
    near_too.done(1);
    let window = far.rnic.alloc_mw(far.pd, MwKind::Narrow).unwrap();
    far.post(1, SendOp::BindMw(bind(window, &region)), &[]);
    assert_eq!(far.done(1).opcode, WcOpcode::BindMw);
    let stag = far.rnic.query_mw(window).unwrap().stag.unwrap();
    assert_eq!(stag, Stag::new(window.0, 9));
    // The Send after the Write proves that the Write was placed. [RDMAP-16]
    far.recv(2, &[]);
    near.post(2, write(Remote { stag, to: 0 }), &[source.all()]);
    near.post(3, SEND, &[]);
    far.done(2);
    assert_eq!(region.buffer.read(8, 16), common::pattern(16, 1));
    near_too.post(2, write(Remote { stag, to: 0 }), &[source_too.all()]);
    assert_eq!(refusal(&near_too), (1, 1, 2));
    assert_eq!(region.buffer.read(8, 16), common::pattern(16, 1));
}

// [DDP-20]: a wide window serves the whole PD.
#[test]
fn wide_windows_serve_their_pd() {
    let (near, far, near_too, far_too) = two_streams();
    let region = far.region(Buffer::new(64));
    let window = far.rnic.alloc_mw(far.pd, MwKind::Wide).unwrap();
    far.post(1, SendOp::BindMw(bind(window, &region)), &[]);
    far.done(1);
    let remote = Remote { stag: Stag::new(window.0, 9), to: 0 };
    for (near, far, seed) in [(&near, &far, 1), (&near_too, &far_too, 2)] {
        far.recv(2, &[]);
        near.post(1, write(remote), &[near.region(Buffer::pattern(16, seed)).all()]);
        near.post(2, SEND, &[]);
        far.done(2);
        assert_eq!(region.buffer.read(8, 16), common::pattern(16, seed));
    }
}

// [VERBS-20] [VERBS-25]: bound windows keep their QP and their region; invalidation frees both.
#[test]
fn bound_windows_keep_qp_and_region() {
    let (_near, far) = pair(&Setup::default());
    let region = far.region(Buffer::new(64));
    let window = far.rnic.alloc_mw(far.pd, MwKind::Narrow).unwrap();
    far.post(1, SendOp::BindMw(bind(window, &region)), &[]);
    far.done(1);
    assert_eq!(far.rnic.query_mr(region.stag).unwrap().bound_windows, 1);
    assert_eq!(far.rnic.dealloc_stag(region.stag).unwrap_err().status, VpStatus::StagInUse);
    assert_eq!(far.rnic.destroy_qp(far.qp.id()).unwrap_err().status, VpStatus::InUse);
    far.post(2, SendOp::InvalidateLocal { stag: Stag::new(window.0, 9) }, &[]);
    assert_eq!(far.done(2).opcode, WcOpcode::InvalidateLocal);
    assert_eq!(far.rnic.query_mw(window).unwrap().stag, None);
    far.rnic.dealloc_stag(region.stag).unwrap();
    far.rnic.destroy_qp(far.qp.id()).unwrap();
}

// A bind that is refused completes with the reason; what follows is flushed (RDMAC 8.1).
#[test]
fn refused_binds_complete_with_the_reason() {
    let (_near, far) = pair(&Setup::default());
    let region = far.region(Buffer::new(64));
    let window = far.rnic.alloc_mw(far.pd, MwKind::Narrow).unwrap();
    far.post(1, SendOp::BindMw(bind(window, &region)), &[]);
    far.post(2, SendOp::BindMw(bind(window, &region)), &[]);
    far.post(3, SendOp::BindMw(bind(window, &region)), &[]);
    far.done(1);
    assert_eq!(far.complete().status, WcStatus::StagNotInvalid);
    assert_eq!(far.complete().status, WcStatus::Flushed);
}

fn fast_register(stag: Stag, buffer: &std::sync::Arc<Buffer>) -> SendOp {
    SendOp::FastRegister(Box::new(FastRegister {
        stag,
        range: buffer.range(),
        addressing: Addressing::Absolute,
        access: Access::LOCAL | Access::REMOTE,
    }))
}

// RDMAC 7.3.2.3; [VERBS-17]: registered, used, invalidated and registered again, in one list.
#[test]
fn fast_registration_through_the_queue() {
    let setup = Setup { init: |qp| qp.privileged = true, ..Setup::default() };
    let (near, far) = pair(&setup);
    let index = near.rnic.alloc_stag(near.pd, true).unwrap().index();
    let sink = far.region(Buffer::new(64));
    let buffers = [Buffer::pattern(64, 1), Buffer::pattern(64, 2)];
    for (key, buffer) in (10u8..).zip(&buffers) {
        let stag = Stag::new(index, key);
        far.recv(1, &[sink.all()]);
        near.post(1, fast_register(stag, buffer), &[]);
        near.post(2, SEND, &[Sge { stag, len: 64, to: buffer.to() }]);
        let invalidate = SendOp::InvalidateLocal { stag };
        near.post_flags(3, invalidate, &[], SendFlags::SIGNALED | SendFlags::LOCAL_FENCE);
        for wr_id in 1..=3 {
            near.done(wr_id);
        }
        far.done(1);
        assert_eq!(sink.buffer.read(0, 64), buffer.read(0, 64));
        assert_eq!(std::sync::Arc::strong_count(buffer), 1);
    }
}

#[test]
fn fast_registration_needs_privilege() {
    let (near, _far) = pair(&Setup::default());
    let stag = near.rnic.alloc_stag(near.pd, true).unwrap();
    near.post(1, fast_register(stag, &Buffer::new(8)), &[]);
    assert_eq!(near.complete().status, WcStatus::NotPrivileged);
}

// [VERBS-23]: STag 0 is valid only in local lists of privileged QPs.
#[test]
fn stag_zero_sends_and_receives() {
    let setup = Setup { init: |qp| qp.privileged = true, ..Setup::default() };
    let (near, far) = pair(&setup);
    let (from, to) = (Buffer::pattern(64, 3), Buffer::new(64));
    let whole = |buffer: &Buffer| Sge { stag: Stag::PRIVILEGED, len: 64, to: buffer.to() };
    far.recv(1, &[whole(&to)]);
    near.post(1, SEND, &[whole(&from)]);
    far.done(1);
    near.done(1);
    assert_eq!(to.read(0, 64), from.read(0, 64));
    let (near, _far) = pair(&Setup::default());
    near.post(1, SEND, &[whole(&from)]);
    assert_eq!(near.complete().status, WcStatus::InvalidStag);
}

// Zero-based regions on both ends of Write and Read.
#[test]
fn zero_based_regions() {
    let (near, far) = pair(&Setup::default());
    let register = |end: &End, buffer: &std::sync::Arc<Buffer>| {
        let init = MrInit {
            pd: end.pd,
            range: buffer.range(),
            addressing: Addressing::ZeroBased,
            access: FULL,
            key: 0,
            pin: false,
        };
        end.rnic.register_mr(&init).unwrap()
    };
    let (source, target, back) = (Buffer::pattern(64, 4), Buffer::new(64), Buffer::new(64));
    let remote = Remote { stag: register(&far, &target), to: 16 };
    let local = Sge { stag: register(&near, &source), len: 32, to: 32 };
    near.post(1, write(remote), &[local]);
    near.done(1);
    near.post(2, read(remote), &[Sge { stag: register(&near, &back), len: 32, to: 1 }]);
    near.done(2);
    assert_eq!(back.read(1, 32), source.read(32, 32));
    assert_eq!(target.read(16, 32), source.read(32, 32));
}
