//! Tests of posting: a full send queue transmits what it holds, because no post can follow.

use vp_api::{Data, Qp, Remote, SendFlags, SendOp, SendWr, VpStatus};

use crate::testing::end::{End, pair};

/// An RDMA Write of no octets.
fn write(end: &End, peer: &End, flags: SendFlags) -> Result<(), VpStatus> {
    let remote = Remote { stag: peer.stag, to: peer.buffer.addr() };
    let wr = SendWr { wr_id: 1, op: SendOp::Write { remote }, data: Data::Sgl(&[]), flags };
    end.qp.post_send(&[wr]).map_err(|failure| failure.status)
}

/// A completion that is not taken occupies a slot, so that fewer posts are deferred than fill a batch.
/// The clock stands still and no engine runs.
#[test]
fn a_post_that_finds_the_queue_full_transmits_what_is_deferred() {
    let (end, peer) = pair(64);
    let deferred = || end.qp.inner.lock().coalesce.deferred();
    assert_eq!(write(&end, &peer, SendFlags::SIGNALED), Ok(()));
    let depth = end.qp.inner.lock().limits.send_depth;
    let sent = end.sends();
    assert_eq!((deferred(), sent), (0, 1), "the first is transmitted at once");
    for posted in 1..depth {
        assert_eq!(write(&end, &peer, SendFlags::empty()), Ok(()));
        assert_eq!((deferred(), end.sends()), (posted, sent), "the others are deferred");
    }
    assert_eq!(write(&end, &peer, SendFlags::empty()), Err(VpStatus::TooManyWrs));
    assert_eq!(deferred(), 0);
    assert!(end.sends() > sent, "the full queue transmits");
}

/// The clock has advanced since the connection began: a transmission records its time.
#[test]
fn a_post_right_behind_a_transmission_is_deferred() {
    let (end, peer) = pair(64);
    end.pass(1_000_000_000);
    assert_eq!(write(&end, &peer, SendFlags::SIGNALED), Ok(()));
    assert_eq!(write(&end, &peer, SendFlags::SIGNALED), Ok(()));
    assert_eq!(end.sends(), 1);
}
