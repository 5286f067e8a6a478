//! Deregistering while a peer writes, reads, sends and counts at full speed: it succeeds, nothing touches the
//! memory afterwards, and the peer receives the right Terminate.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::sync::Arc;

use common::*;
use vp_api::*;

const LEN: usize = 1 << 19;
const ROUNDS: usize = 10;
/// What the memory contains once no peer may access it.
const GUARD: u8 = 0xE7;

fn setups() -> [Setup; 3] {
    [
        Setup::default(),
        Setup { crc: false, ..Setup::default() },
        Setup { crc: false, fpdu: FpduSize::Octets(60_000), ..Setup::default() },
    ]
}

/// The Terminate that the peer received, or none if the stream was reset.
type SentTerminate = Option<(u8, u8, u8)>;

/// Connects, lets `near` repeat a request until its connection ends, deregisters the region meanwhile, and
/// returns the Terminate that the peer received. From then on a guard pattern in the memory shows accesses.
fn deregistered(
    setup: &Setup,
    round: usize,
    op: impl Fn(&Region) -> SendOp + Sync,
    len: usize,
    undo: impl FnOnce(&End, &Region),
) -> SentTerminate {
    let (near, far) = pair(setup);
    let (region, local) = (far.region(Buffer::new(LEN)), near.region(Buffer::new(LEN)));
    local.buffer.write(0, &[1; LEN]);
    for wr_id in 0..far.qp.query().unwrap().recv_depth.into() {
        far.recv(wr_id, &[region.all()]);
    }
    let guard = vec![GUARD; LEN];
    std::thread::scope(|scope| {
        let (begun, begin) = std::sync::mpsc::channel();
        let (near, op, local, target) = (&near, &op, &local, &region);
        scope.spawn(move || {
            for wr_id in 0.. {
                near.post(wr_id, op(target), &[local.sge(0, len)]);
                if wr_id == round as u64 {
                    begun.send(()).unwrap();
                }
                match near.complete().status {
                    WcStatus::Success => {}
                    _ => return,
                }
            }
        });
        warpline_patience::within("the first messages to complete", || begin.recv().unwrap());
        undo(&far, target);
        target.buffer.write(0, &guard);
        assert!(Arc::strong_count(&target.buffer) == 1, "the provider holds the memory");
    });
    let terminate = match near.event() {
        AsyncEvent::TerminateReceived(t) => Some((t.layer, t.etype, t.code)),
        AsyncEvent::ConnectionReset => None,
        other => panic!("{other:?}"),
    };
    assert!(matches!(far.event(), AsyncEvent::TerminateSent(_)));
    assert!(region.buffer.read(0, LEN) == guard, "written to after deregistration");
    assert!(!local.buffer.read(0, LEN).contains(&GUARD), "read after deregistration");
    terminate
}

fn deallocate(far: &End, region: &Region) {
    far.rnic.dealloc_stag(region.stag).unwrap();
}

// [SEC-05] [DDP-21]
#[test]
fn while_a_peer_writes() {
    for setup in setups() {
        for round in 0..ROUNDS {
            let write = |region: &Region| SendOp::Write { remote: region.remote(0) };
            let terminate = deregistered(&setup, round, write, LEN, deallocate);
            assert_eq!(terminate, Some((1, 1, 0)));
        }
    }
}

// [SEC-05] [RDMAP-07] [VERBS-12]: with CRC off large responses go out from where they are; one that
// was begun cannot be finished, and no Terminate fits into it.
#[test]
fn while_a_peer_reads() {
    for setup in setups() {
        for round in 0..ROUNDS {
            let read =
                |region: &Region| SendOp::Read { remote: region.remote(0), invalidate_sink: false };
            let terminate = deregistered(&setup, round, read, LEN, deallocate);
            let in_place = !setup.crc || goes_locally();
            assert!(
                terminate == Some((0, 1, 0)) || (terminate.is_none() && in_place),
                "{terminate:?}"
            );
        }
    }
}

// [SEC-05]
#[test]
fn while_a_peer_counts() {
    for round in 0..ROUNDS {
        let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
        let add = |region: &Region| SendOp::Atomic { remote: region.remote(0), op };
        assert_eq!(deregistered(&setups()[0], round, add, 8, deallocate), Some((0, 1, 0)));
    }
}

// A source that was just copied is no longer in use when the next request of the list invalidates it.
#[test]
fn a_source_may_be_invalidated_right_behind_its_message() {
    for (len, crc) in [(100, true), (8000, true), (8000, false)] {
        let (near, far) = pair(&Setup { crc, ..Setup::default() });
        let source = near.region(Buffer::pattern(len, 3));
        let sink = far.region(Buffer::new(len));
        let sgl = [source.all()];
        let request =
            |wr_id, op, sgl| SendWr { wr_id, op, data: Data::Sgl(sgl), flags: SendFlags::SIGNALED };
        let write = || SendOp::Write { remote: sink.remote(0) };
        let invalidate = SendOp::InvalidateLocal { stag: source.stag };
        let list =
            [request(1, write(), &sgl[..]), request(2, write(), &sgl), request(3, invalidate, &[])];
        near.qp.post_send(&list).unwrap();
        (1..=3).for_each(|wr_id| assert_eq!(near.done(wr_id).wr_id, wr_id));
    }
}

// [SEC-05]: invalidated by a work request, which has the same effect.
#[test]
fn a_peer_writes_to_memory_while_it_is_invalidated() {
    for setup in setups() {
        for round in 0..ROUNDS {
            let write = |region: &Region| SendOp::Write { remote: region.remote(0) };
            let terminate = deregistered(&setup, round, write, LEN, |far, region| {
                far.post(1000, SendOp::InvalidateLocal { stag: region.stag }, &[]);
                far.done(1000);
            });
            assert_eq!(terminate, Some((1, 1, 0)));
        }
    }
}

// [SEC-05]: a receive buffer that was deregistered ends the stream with a local error.
#[test]
fn while_a_peer_sends() {
    for setup in setups() {
        // More than can be sent before the deregistration.
        let setup = Setup { init: |qp| qp.recv_depth = 8192, ..setup };
        for round in 0..ROUNDS {
            assert_eq!(deregistered(&setup, round, |_| SEND, LEN, deallocate), Some((0, 0, 0)));
        }
    }
}
