//! Tests of the shared receive queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vp_api::{AsyncEvent, AsyncHandler, EventSource, RecvWr, Srq, SrqId, SrqInit, VpStatus};

use crate::events::EventSink;
use crate::srq::SoftSrq;
use crate::testing::{PD, hold};
use crate::wq::RecvWqe;

#[derive(Default)]
struct Count(AtomicU32);

impl AsyncHandler for Count {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        assert_eq!((source, event), (EventSource::Srq(SrqId(5)), AsyncEvent::SrqLimit));
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn srq(depth: u32, limit: u32) -> (Arc<SoftSrq>, Arc<Count>) {
    let count = Arc::new(Count::default());
    let events = Arc::new(EventSink::default());
    events.set(Some(count.clone()));
    let init = SrqInit { pd: PD, depth, max_sge: 1, limit };
    (SoftSrq::create(SrqId(5), &init, hold(), events).expect("within limits"), count)
}

fn take(srq: &SoftSrq) -> bool {
    let (taken, limit) = srq.take(&mut RecvWqe::new(srq.max_sge()).expect("room"));
    if limit {
        srq.raise_limit();
    }
    taken
}

// [SEC-11] [VERBS-26]: one event when fewer than the limit remain, and no more until armed again.
#[test]
fn limit_is_one_shot() {
    let (srq, count) = srq(8, 3);
    let wrs = [RecvWr { wr_id: 1, sgl: &[] }; 8];
    srq.post_recv(&wrs[..5]).unwrap();
    let events = |n: u32| assert_eq!(count.0.load(Ordering::Relaxed), n);
    for (taken, expected) in [(true, 0), (true, 0), (true, 1), (true, 1), (true, 1), (false, 1)] {
        assert_eq!(take(&srq), taken);
        events(expected);
    }
    assert_eq!(srq.query().unwrap().limit, 0);
    srq.post_recv(&wrs[..2]).unwrap();
    assert_eq!(srq.modify(None, Some(2)).unwrap().limit, 2);
    events(1);
    take(&srq);
    events(2);
    // Armed above what is there: due at once.
    srq.modify(None, Some(2)).unwrap();
    events(3);
}

#[test]
fn a_list_stops_at_the_first_refused() {
    let (srq, _) = srq(2, 0);
    let failure = srq.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }; 3]).unwrap_err();
    assert_eq!((failure.posted, failure.status), (2, VpStatus::TooManyWrs));
    assert_eq!(srq.query().unwrap().posted, 2);
}

#[test]
fn depth_changes_keep_receives() {
    let (srq, _) = srq(2, 0);
    srq.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }; 2]).unwrap();
    assert_eq!(srq.modify(Some(1), None).unwrap_err().status, VpStatus::CannotChange);
    assert_eq!(srq.modify(Some(70_000), None).unwrap_err().status, VpStatus::TooManyWrs);
    assert_eq!(srq.modify(Some(4), None).unwrap().depth, 4);
    assert!(take(&srq) && take(&srq) && !take(&srq));
}

#[test]
fn destroyed_is_an_error() {
    let (srq, _) = srq(2, 0);
    srq.destroy();
    assert_eq!(srq.query().unwrap_err().status, VpStatus::InvalidHandle);
    assert_eq!(srq.post_recv(&[]).unwrap_err().status, VpStatus::InvalidHandle);
    assert!(!take(&srq));
}
