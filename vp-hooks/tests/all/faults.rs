//! Tests of refused calls, failing connections, and exhausted resources.

use std::io::Read;
use std::sync::Arc;

use vp_api::*;
use vp_hooks::wrap;
use vp_softrdma::{NAME, SoftRdma};

use crate::common::*;

#[test]
fn the_third_post_is_refused_and_no_other() {
    let side = Side::new(&["fault:post_send@3=QueueFull"]);
    let qp = side.qp();
    let far = Side::new(&[]);
    let peer = far.qp();
    (0..6).for_each(|n| recv(&peer, n));
    connect(&qp, &peer);
    let refused = PostFailure { posted: 0, status: VpStatus::TooManyWrs };
    let results: Vec<_> = (0..6).map(|n| send(&qp, n)).collect();
    assert_eq!(results, [Ok(()), Ok(()), Err(refused), Ok(()), Ok(()), Ok(())]);
    assert_eq!(of(&qp, &side.complete(5)), [0, 1, 3, 4, 5]);
    assert_eq!(far.complete(5).len(), 5);
}

#[test]
fn a_rule_for_one_qp_leaves_others_alone() {
    let side = Side::new(&["fault:post_recv#2@1..=InvalidSgl"]);
    let (one, two) = (side.qp(), side.qp());
    let post = |qp: &Arc<dyn Qp>| qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]);
    let refused = PostFailure { posted: 0, status: VpStatus::InvalidSgl };
    for _ in 0..3 {
        assert_eq!((post(&one), post(&two)), (Ok(()), Err(refused)));
    }
}

#[test]
fn counts_start_at_zero_with_each_rnic() {
    let provider = provider(&["fault:alloc_pd@2=InsufficientResources"]);
    for _ in 0..2 {
        let side = Side::of(&*provider);
        let error = side.rnic.alloc_pd().unwrap_err();
        assert_eq!(error.status, VpStatus::InsufficientResources);
        assert!(error.detail.contains("`alloc_pd@2=InsufficientResources`"), "{error}");
        side.rnic.alloc_pd().unwrap();
    }
}

#[test]
fn opening_counts_for_the_whole_wrapper() {
    let provider = provider(&["fault:open@2=Os"]);
    let open = || provider.open(NAME, Arc::new(Host::default())).map(|_| ());
    assert_eq!(open(), Ok(()));
    assert_eq!(open().unwrap_err().status, VpStatus::Os);
    assert_eq!(open(), Ok(()));
}

#[test]
fn a_connection_that_fails_closes_its_stream() {
    let side = Side::new(&["fault:connect@1=InvalidStream"]);
    let qp = side.qp();
    let (near, mut far) = sockets();
    let error = qp.modify(stream(near, Role::Initiator)).unwrap_err();
    assert_eq!(error.status, VpStatus::InvalidStream);
    assert_eq!(qp.query().unwrap().state, QpState::Idle);
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
    let (near, _far) = sockets();
    qp.modify(stream(near, Role::Initiator)).unwrap();
}

#[test]
fn limits_are_reported_and_enforced() {
    let side = Side::new(&["fault:max_qp=2;max_mr=1;max_pd=3"]);
    let attrs = side.rnic.attrs();
    assert_eq!((attrs.max_qp, attrs.max_mr, attrs.max_pd), (2, 1, 3));
    let (one, _two) = (side.qp(), side.qp());
    let init = QpInit::new(side.pd, side.cq.id(), side.cq.id());
    let third = || side.rnic.create_qp(&init).map(|qp| qp.id());
    assert_eq!(third().unwrap_err().status, VpStatus::InsufficientResources);
    side.rnic.destroy_qp(one.id()).unwrap();
    third().unwrap();
    assert!(third().unwrap_err().detail.contains("`max_qp=2`"));

    let stag = side.rnic.alloc_stag(side.pd, true).unwrap();
    side.rnic.alloc_stag(side.pd, true).unwrap_err();
    side.rnic.dealloc_stag(stag).unwrap();
    side.rnic.alloc_stag(side.pd, true).unwrap();
    // A kind without a rule has the provider's own limit.
    assert_eq!(attrs.max_cq, Side::new(&[]).rnic.attrs().max_cq);
}

#[test]
fn limits_hold_when_many_ask_at_once() {
    let side = Side::new(&["fault:max_qp=3"]);
    let made = std::thread::scope(|scope| {
        let init = QpInit::new(side.pd, side.cq.id(), side.cq.id());
        let make = |_| {
            let (side, init) = (&side, init.clone());
            scope.spawn(move || side.rnic.create_qp(&init).is_ok())
        };
        let threads: Vec<_> = (0..8).map(make).collect();
        threads.into_iter().map(|t| t.join().unwrap()).filter(|ok| *ok).count()
    });
    assert_eq!(made, 3);
}

#[test]
fn mistakes_in_a_text_are_named() {
    let refuse = |text: &str| wrap(Arc::new(SoftRdma), text).err().unwrap().to_string();
    assert!(refuse("tarce").contains("`tarce`: there is no `tarce`; there are `trace`"));
    assert!(refuse("trace:all").contains("there is no option `all`"));
    assert!(refuse("stats:every=x").contains("`x` is not a number"));
    assert!(refuse("fault").contains("it has no rules"));
    assert!(refuse("fault:poll@1").contains("rule `poll@1`: it needs `=STATUS`"));
}

#[test]
fn a_wrapped_provider_has_the_name_of_what_it_wraps() {
    let provider = provider(&["trace", "stats", "fault:seed=1"]);
    assert_eq!(provider.name(), NAME);
    assert_eq!(provider.version(), SoftRdma.version());
    assert_eq!(provider.devices().unwrap()[0].name, NAME);
}
