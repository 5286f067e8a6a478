//! Tests of the shared receive queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vp_api::{AsyncEvent, AsyncHandler, CqId, EventSource, RecvWr, Srq, SrqId, SrqInit, VpStatus};

use crate::events::EventSink;
use crate::queue::srq::{Completes, SoftSrq};
use crate::queue::wq::RecvWqe;
use crate::testing::{PD, hold};

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

// [SEC-11] [VERBS-26]: one event when fewer receives than the limit remain, and none until it is armed again.
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
    // Armed with a limit above the present number: due at once.
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

// RDMAC 6.3: a slot is occupied from when a QP takes the receive until its completion was polled, if it has one.
#[test]
fn a_receive_that_a_qp_fills_occupies_its_slot() {
    let (srq, _) = srq(2, 0);
    let post = || srq.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).map_err(|e| e.status);
    assert_eq!([post(), post()], [Ok(()), Ok(())]);
    assert!(take(&srq));
    assert_eq!(post(), Err(VpStatus::TooManyWrs));
    srq.complete(CqId(1), || None);
    assert_eq!(post(), Ok(()));
}

struct Nothing;

impl Completes for Nothing {
    fn taken(&self) -> u64 {
        0
    }
}

#[test]
fn a_completion_queue_is_listed_once_and_while_it_exists() {
    let (srq, _) = srq(2, 0);
    let known = || crate::sync::lock(&srq.state).as_ref().map(|state| state.cqs.len());
    let completes = |id, cq: &Arc<Nothing>| {
        srq.completes_to(CqId(id), Arc::<Nothing>::downgrade(cq)).unwrap();
    };
    let cq = Arc::new(Nothing);
    for _ in 0..2 {
        completes(5, &cq);
        assert_eq!(known(), Some(1));
    }
    let other = Arc::new(Nothing);
    completes(2, &other);
    assert_eq!(known(), Some(2));
    drop(other);
    completes(5, &cq);
    assert_eq!(known(), Some(1), "of the one that is gone nothing is left");
}

#[test]
fn destroyed_is_an_error() {
    let (srq, _) = srq(2, 0);
    srq.destroy();
    assert_eq!(srq.query().unwrap_err().status, VpStatus::InvalidHandle);
    assert_eq!(srq.post_recv(&[]).unwrap_err().status, VpStatus::InvalidHandle);
    assert!(!take(&srq));
}
