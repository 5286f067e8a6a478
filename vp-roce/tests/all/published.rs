//! What queue pairs write to their records of the state page.

use std::sync::atomic::Ordering::Relaxed;

use vp_api::state_page::layout::{Slot, end, flag, state};
use vp_api::{NativeEvent, QpChange, SlotRef};
use warpline_patience::until;

use crate::alone::alone;
use crate::end::{End, open, open_with};

fn end(settings: &[(&str, &str)]) -> (End, SlotRef) {
    let rnic = if settings.is_empty() { open() } else { open_with(settings).unwrap() };
    let (end, record) = (End::on(rnic, 4096), SlotRef::default());
    end.qp.publish(record.clone());
    (end, record)
}

fn connect(near: &End, far: &End) {
    let there = far.listen("127.0.0.1:0");
    std::thread::scope(|scope| {
        scope.spawn(|| far.accept());
        near.connect(there);
    });
}

fn sends(near: &End, far: &End, count: u64) {
    for id in 0..count {
        far.recv(id, far.sge(0, 64));
        near.send(id, near.sge(0, 64));
        near.done();
        far.done();
    }
}

fn messages(of: &Slot) -> [u64; 2] {
    [of.messages_sent.load(Relaxed), of.messages_received.load(Relaxed)]
}

#[test]
fn both_ends_agree_and_counts_go_on_with_the_next_connection() {
    alone("published::both_ends_agree_and_counts_go_on_with_the_next_connection", || {
        let ((near, a), (far, b)) = (end(&[]), end(&[]));
        assert_eq!(a.flags.load(Relaxed), flag::WRITTEN | flag::ROCE);
        assert_eq!((a.state.load(Relaxed), a.send_depth.load(Relaxed)), (state::IDLE, 256));
        connect(&near, &far);
        let roles = [&a, &b].map(|of| of.flags.load(Relaxed) & (flag::INITIATOR | flag::RESPONDER));
        assert_eq!(roles, [flag::INITIATOR, flag::RESPONDER]);
        sends(&near, &far, 5);
        let round_trip = near.qp.query().unwrap().round_trip.unwrap();
        assert!(round_trip.shortest <= round_trip.recent && !round_trip.shortest.is_zero());
        assert_eq!([a.state.load(Relaxed), b.state.load(Relaxed)], [state::RTS; 2]);
        // The thread that pushes a completion publishes afterwards.
        until("counts", || (messages(&a), messages(&b)) == ([5, 0], [0, 5]));
        assert_eq!(a.octets_sent.load(Relaxed), 5 * 64);
        assert_eq!(b.octets_received.load(Relaxed), 5 * 64);
        assert!(a.fpdus_sent.load(Relaxed) >= 5 && a.send_calls.load(Relaxed) >= 5);
        let [mine, theirs] = [&a, &b].map(|of| of.numbers.load(Relaxed));
        assert_eq!(mine.rotate_left(32), theirs);
        assert_ne!(mine as u32, 0);
        let began = a.began.load(Relaxed);
        assert_ne!(began, 0);

        near.qp.modify(QpChange::Error).unwrap();
        assert_eq!(a.state.load(Relaxed), state::ERROR);
        assert_eq!(a.terminate.load(Relaxed), 0);
        for end in [&near, &far] {
            assert!(matches!(end.event(), NativeEvent::Disconnected { .. }));
        }
        let (near, far) = (near.renewed(), far.renewed());
        assert_eq!(a.state.load(Relaxed), state::IDLE);
        connect(&near, &far);
        sends(&near, &far, 2);
        until("counts", || (messages(&a), messages(&b)) == ([7, 0], [0, 7]));
        assert!(a.began.load(Relaxed) > began);
    });
}

#[test]
fn a_peer_without_a_receive_is_the_reason() {
    alone("published::a_peer_without_a_receive_is_the_reason", || {
        let ((near, a), (far, b)) = (end(&[("rnr_seconds", "1")]), end(&[]));
        connect(&near, &far);
        near.send(7, near.sge(0, 64));
        near.completion();
        assert!(matches!(far.event(), NativeEvent::Disconnected { .. }));
        assert_eq!(a.terminate.load(Relaxed), end::NOT_READY);
        assert!(a.not_ready.load(Relaxed) > 0);
        assert_eq!(b.waited_for_receive.load(Relaxed), 1);
        assert_eq!((messages(&a), messages(&b)), ([0, 0], [0, 0]));
    });
}
