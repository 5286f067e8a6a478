//! Tests of the work queues.

use vp_api::{
    Access, Addressing, BindMw, Data, MwId, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, Stag,
    VpStatus, WcOpcode,
};

use crate::queue::wq::{LocalOp, Payload, RecvRing, RecvWqe, SendRing, pieces};

const SEND: SendOp = SendOp::Send { solicited: false, invalidate: None };
const REMOTE: Remote = Remote { stag: Stag(1), to: 0 };

fn sge(to: u64, len: u32) -> Sge {
    Sge { stag: Stag(0x100), to, len }
}

fn wr(op: SendOp, data: Data<'_>) -> SendWr<'_> {
    SendWr { wr_id: 42, op, data, flags: SendFlags::SIGNALED }
}

// [VERBS-19]: lengths of lists, their sum, and the one sink of a Read.
#[test]
fn lists_are_checked() {
    let mut ring = SendRing::new(2, 4, 8).unwrap();
    let sgl = [sge(0, 1); 5];
    let huge = [sge(0, u32::MAX), sge(0, 1)];
    let read = || SendOp::Read { remote: REMOTE, invalidate_sink: false };
    let mut check = |op, data| ring.check(&wr(op, data));
    assert_eq!(check(SEND, Data::Sgl(&sgl[..4])), Ok(()));
    assert_eq!(check(SEND, Data::Sgl(&[])), Ok(()));
    assert_eq!(check(SEND, Data::Sgl(&sgl)), Err(VpStatus::InvalidSgl));
    assert_eq!(check(SEND, Data::Sgl(&huge)), Err(VpStatus::InvalidSgl));
    assert_eq!(check(SEND, Data::Sgl(&huge[..1])), Ok(()));
    assert_eq!(check(SEND, Data::Inline(&[0; 8])), Ok(()));
    assert_eq!(check(SEND, Data::Inline(&[0; 9])), Err(VpStatus::InvalidSgl));
    assert_eq!(check(read(), Data::Sgl(&sgl[..1])), Ok(()));
    assert_eq!(check(read(), Data::Sgl(&sgl[..2])), Err(VpStatus::InvalidSgl));
    assert_eq!(check(read(), Data::Sgl(&[])), Err(VpStatus::InvalidSgl));
    assert_eq!(check(read(), Data::Inline(&[0; 8])), Err(VpStatus::InvalidSgl));
    let immediate = SendOp::Immediate { data: 1, solicited: false };
    assert_eq!(check(immediate, Data::Sgl(&sgl[..1])), Err(VpStatus::InvalidSgl));
}

#[test]
fn slots_keep_what_was_posted() {
    let mut ring = SendRing::new(3, 2, 8).unwrap();
    let sgl = [sge(1, 2), sge(3, 4)];
    ring.check(&wr(SEND, Data::Sgl(&sgl))).unwrap();
    ring.store(2, &wr(SEND, Data::Sgl(&sgl)));
    ring.check(&wr(SEND, Data::Inline(b"inline"))).unwrap();
    ring.store(0, &wr(SendOp::Write { remote: REMOTE }, Data::Inline(b"inline")));
    assert!(matches!(ring.payload(2), Payload::Sgl(got) if got == sgl));
    assert!(matches!(ring.payload(0), Payload::Inline(b"inline")));
    assert_eq!((ring.slot(0).wr_id, ring.slot(0).opcode), (42, WcOpcode::Write));
    assert_eq!(ring.slot(2).flags, SendFlags::SIGNALED);
    let bind = BindMw {
        window: MwId(7),
        key: 1,
        region: Stag(2),
        to: 0,
        len: 8,
        addressing: Addressing::ZeroBased,
        access: Access::REMOTE_READ,
    };
    ring.check(&wr(SendOp::BindMw(bind), Data::Sgl(&[]))).unwrap();
    ring.store(1, &wr(SendOp::BindMw(bind), Data::Sgl(&[])));
    assert!(matches!(ring.take_local(1), Some(LocalOp::Bind(got)) if got == bind));
    // Each slot has its own inline octets.
    ring.store(1, &wr(SEND, Data::Inline(b"other")));
    assert!(matches!(ring.payload(1), Payload::Inline(b"other")));
    assert!(matches!(ring.payload(0), Payload::Inline(b"inline")));
    assert!(ring.take_local(1).is_none());
    assert!(ring.take_local(2).is_none());
    // A later request in the same slot keeps nothing of the earlier one.
    ring.store(2, &wr(SEND, Data::Sgl(&sgl[..1])));
    assert!(matches!(ring.payload(2), Payload::Sgl(got) if got == &sgl[..1]));
}

#[test]
fn receives_come_in_order_and_wrap() {
    let mut ring = RecvRing::new(3, 2).unwrap();
    let mut wqe = RecvWqe::new(2).unwrap();
    assert!(!ring.take(&mut wqe));
    let post = |ring: &mut RecvRing, id: u64| {
        ring.post(&RecvWr { wr_id: id, sgl: &[sge(id, 10), sge(0, 5)] })
    };
    for round in 0..5 {
        for id in 0..3 {
            post(&mut ring, round * 3 + id).unwrap();
        }
        assert_eq!(post(&mut ring, 99), Err(VpStatus::TooManyWrs));
        for id in 0..3 {
            assert!(ring.take(&mut wqe));
            assert_eq!((wqe.wr_id, wqe.sgl()[0].to), (round * 3 + id, round * 3 + id));
            assert_eq!(wqe.capacity(), 15);
        }
    }
}

#[test]
fn resize_keeps_receives() {
    let mut ring = RecvRing::new(4, 1).unwrap();
    for id in 0..3 {
        ring.post(&RecvWr { wr_id: id, sgl: &[sge(id, 1)] }).unwrap();
    }
    assert_eq!(ring.resize(2), Err(VpStatus::CannotChange));
    ring.resize(3).unwrap();
    assert_eq!((ring.depth(), ring.posted(), ring.max_sge()), (3, 3, 1));
    let mut wqe = RecvWqe::new(1).unwrap();
    for id in 0..3 {
        assert!(ring.take(&mut wqe));
        assert_eq!(wqe.wr_id, id);
    }
}

// [VERBS-19]: elements of length 0 are skipped.
#[test]
fn pieces_cover_the_range() {
    let sgl = [sge(100, 4), sge(1, 0), sge(200, 6), sge(300, 2)];
    let cut = |offset, len| pieces(&sgl, offset, len).map(|p| (p.to, p.len)).collect::<Vec<_>>();
    assert_eq!(cut(0, 12), [(100, 4), (200, 6), (300, 2)]);
    assert_eq!(cut(3, 3), [(103, 1), (200, 2)]);
    assert_eq!(cut(4, 6), [(200, 6)]);
    assert_eq!(cut(11, 1), [(301, 1)]);
    assert_eq!(cut(0, 0), []);
    assert_eq!(cut(12, 5), []);
}

/// The first long list makes room in every slot, and the other slots keep their contents.
#[test]
fn longer_lists_widen_the_ring() {
    let mut ring = RecvRing::new(3, 4).unwrap();
    let long = [sge(10, 1), sge(11, 1), sge(12, 1), sge(13, 1)];
    let room = |ring: &RecvRing| ring.sges.elements.len();
    for (id, len) in [1, 4, 2].into_iter().enumerate() {
        assert_eq!(room(&ring), if id < 2 { 3 } else { 3 * 4 });
        ring.post(&RecvWr { wr_id: id as u64, sgl: &long[..len] }).unwrap();
    }
    let mut wqe = RecvWqe::new(4).unwrap();
    for (id, len) in [1, 4, 2].into_iter().enumerate() {
        assert!(ring.take(&mut wqe));
        assert_eq!((wqe.wr_id, wqe.sgl()), (id as u64, &long[..len]));
    }
}
