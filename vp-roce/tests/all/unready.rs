//! Sends that find no receive at the other end, and the settings that bound them.

use vp_api::{AsyncEvent, NativeEvent, VpStatus, WcStatus};

use crate::alone::alone;
use crate::end::{End, open_with, pattern};

/// A connected pair, whose RNICs have these settings.
fn pair(near: &[(&str, &str)], far: &[(&str, &str)]) -> (End, End) {
    let [near, far] = [near, far].map(|settings| End::on(open_with(settings).unwrap(), 4096));
    let there = far.listen("127.0.0.1:0");
    std::thread::scope(|scope| {
        scope.spawn(|| far.accept());
        near.connect(there);
    });
    (near, far)
}

/// The Send fails, with the reason; the other end gets the event that the connection is over.
fn fails(near: &End, far: &End) {
    near.send(7, near.sge(0, 64));
    let wc = near.completion();
    assert_eq!((wc.wr_id, wc.status), (7, WcStatus::RemoteTermination));
    assert!(matches!(far.event(), NativeEvent::Disconnected { .. }));
    match near.events()[..] {
        [AsyncEvent::TerminateReceived(why)] => {
            assert_eq!((why.layer, why.etype, why.code), (1, 2, 2));
        }
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn unlimited_repetitions_end_after_their_time() {
    alone("unready::unlimited_repetitions_end_after_their_time", || {
        let (near, far) = pair(&[("rnr_seconds", "1")], &[]);
        fails(&near, &far);
    });
}

#[test]
fn the_receiver_says_how_often_a_send_is_repeated() {
    alone("unready::the_receiver_says_how_often_a_send_is_repeated", || {
        let (near, far) = pair(&[("rnr_seconds", "3600")], &[("rnr_retry", "3")]);
        fails(&near, &far);
        // Also the end that connects.
        let (near, far) = pair(&[("rnr_retry", "3")], &[("rnr_seconds", "3600")]);
        fails(&far, &near);
    });
}

#[test]
fn a_late_receive_is_in_time() {
    alone("unready::a_late_receive_is_in_time", || {
        let (near, far) = pair(&[], &[]);
        near.region.write_at(0, &pattern(64, 1)).unwrap();
        near.send(7, near.sge(0, 64));
        far.recv(8, far.sge(0, 64));
        assert_eq!((near.done().wr_id, far.done().wr_id), (7, 8));
        assert_eq!(far.read(0, 64), pattern(64, 1));
    });
}

#[test]
fn wrong_settings_are_refused_by_name() {
    for (settings, part) in [
        ([("rnr_retry", "8")], "`rnr_retry` is 8, not a number from 0 to 7"),
        ([("rnr_seconds", "0")], "not a number from 1 to 3600"),
        ([("rnr_seconds", "soon")], "`rnr_seconds` is soon"),
        ([("retry", "1")], "no setting `retry`"),
    ] {
        let error = open_with(&settings).err().unwrap();
        assert_eq!(error.status, VpStatus::InvalidModifier);
        assert!(error.to_string().contains(part), "{error}");
    }
}
