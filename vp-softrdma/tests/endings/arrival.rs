//! Messages that completed arrive, however the QP ends, and within a time limit.

use super::*;

// [VERBS-20]: destroy in each state; no completion is queued afterwards.
#[test]
fn destroy_in_every_state() {
    type Prepare = fn() -> (End, Option<TcpStream>);
    let prepare: [Prepare; 5] = [
        || (End::new(|_| {}), None),
        || {
            let (end, socket) = against_a_socket(|_| {});
            (end, Some(socket))
        },
        || {
            let (end, socket) = against_a_socket(|_| {});
            end.qp.modify(QpChange::Closing).unwrap();
            (end, Some(socket))
        },
        || {
            let (end, socket) = against_a_socket(|_| {});
            end.qp.modify(QpChange::Terminate).unwrap();
            (end, Some(socket))
        },
        || {
            let (end, socket) = against_a_socket(|_| {});
            end.qp.modify(QpChange::Error).unwrap();
            (end, Some(socket))
        },
    ];
    for prepare in prepare {
        let (end, socket) = prepare();
        let before = end.state();
        end.recv(1, &[]);
        let mut drained = [WorkCompletion::BLANK; 8];
        end.cq.poll(&mut drained).unwrap();
        end.rnic.destroy_qp(end.qp.id()).unwrap();
        assert_eq!(end.cq.poll(&mut drained).unwrap(), 0, "{before:?}");
        assert_eq!(end.qp.query().unwrap_err().status, VpStatus::InvalidHandle);
        let refused = end.qp.post_recv(&[RecvWr { wr_id: 0, sgl: &[] }]).unwrap_err();
        assert_eq!(refused.status, VpStatus::InvalidHandle);
        if let Some(mut socket) = socket {
            // Reset, or the FIN or Terminate that went before.
            let _ = socket.read_to_end(&mut Vec::new());
        }
        end.rnic.destroy_cq(end.cq.id()).unwrap();
        end.rnic.dealloc_pd(end.pd).unwrap();
    }
}

// [RDMAP-27]: destroyed right after its Terminate, with octets unread, a QP sends no reset.
#[test]
fn destroy_lets_the_terminate_arrive() {
    let (end, mut socket) = against_a_socket(|_| {});
    end.qp.modify(QpChange::Terminate).unwrap();
    socket.write_all(&[0; 4096]).unwrap();
    end.rnic.destroy_qp(end.qp.id()).unwrap();
    socket.write_all(&[0; 4096]).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("a FIN, no reset");
    assert_eq!(answer.len(), 28, "{answer:02x?}");
    assert_eq!(answer[3] & 0x0f, 7, "{answer:02x?}");
}

// [VERBS-10]: once the Terminate is out the QP is free, whatever its peer does; and it arrives.
#[test]
fn behind_a_terminate_the_next_stream_may_begin() {
    let (near, mut socket) = against_a_socket(|p| p.close_timeout = HANG);
    near.qp.modify(QpChange::Terminate).unwrap();
    assert_eq!(terminate_code(near.event()), (true, 0, 0, 0));
    assert_eq!(near.state(), QpState::Error);
    near.qp.modify(QpChange::Idle).unwrap();
    let (a, next) = sockets();
    near.rts(a, StreamParams::new(Role::Initiator));
    assert_eq!(near.event(), AsyncEvent::Established);
    socket.write_all(&[0; 4096]).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("a FIN, no reset");
    assert_eq!((answer.len(), answer[3] & 0x0f), (28, 7), "{answer:02x?}");
    drop(socket);
    near.qp.modify(QpChange::Closing).unwrap();
    drop(socket_to_its_end(next));
    assert_eq!(near.event(), AsyncEvent::CloseComplete);
}

/// A Read to which the peer does not respond.
pub(crate) fn post_unanswered(near: &End, sink: &Region) {
    let remote = Remote { stag: Stag(0x100), to: 0 };
    near.post(99, SendOp::Read { remote, invalidate_sink: false }, &[sink.sge(0, 8)]);
}

/// The messages that still arrive, and whether the stream came to an orderly end.
fn rest_of(socket: &mut TcpStream) -> (usize, bool) {
    let mut octets = Vec::new();
    let ended = socket.read_to_end(&mut octets);
    let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    assert!(ended.as_ref().err().is_none_or(reset), "neither end nor reset: {ended:?}");
    (octets.len(), ended.is_ok())
}

const ALL: usize = MESSAGES as usize * OCTETS;

// [VERBS-20]
#[test]
fn destroying_a_qp_loses_nothing_that_completed() {
    let (near, _, mut socket) = sent_and_unread(|_| {});
    near.rnic.destroy_qp(near.qp.id()).unwrap();
    // Sends meanwhile do not disturb it.
    socket.write_all(&[0; 4096]).unwrap();
    let (octets, in_order) = rest_of(&mut socket);
    assert!(octets > ALL && in_order, "{octets} of {ALL}, in order: {in_order}");
}

// What is lost causes a reset, behind the messages that completed.
#[test]
fn destroying_a_qp_with_work_resets_after_completed_data() {
    for closes in [false, true] {
        let (near, source, mut socket) = sent_and_unread(|_| {});
        post_unanswered(&near, &source);
        near.rnic.destroy_qp(near.qp.id()).unwrap();
        if closes {
            // A peer that sends no more may still read.
            socket.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let (octets, in_order) = rest_of(&mut socket);
        assert!(octets > ALL && !in_order, "{octets} of {ALL}, in order: {in_order}");
    }
}

// [VERBS-05]: the reset of a Bad Close discards no message that completed, and the QP is free for
// another stream at once.
#[test]
fn a_bad_close_loses_nothing_that_completed() {
    let (near, source, mut socket) = sent_and_unread(|_| {});
    post_unanswered(&near, &source);
    near.qp.modify(QpChange::Closing).unwrap();
    assert_eq!(near.event(), AsyncEvent::BadClose);
    assert_eq!(near.complete().status, WcStatus::Flushed);
    near.qp.modify(QpChange::Idle).unwrap();
    let (a, b) = sockets();
    near.rts(a, StreamParams::new(Role::Initiator));
    assert_eq!(near.event(), AsyncEvent::Established);
    let (octets, in_order) = rest_of(&mut socket);
    assert!(octets > ALL && !in_order, "{octets} of {ALL}, in order: {in_order}");
    assert_eq!(near.state(), QpState::Rts);
    near.qp.modify(QpChange::Closing).unwrap();
    drop(socket_to_its_end(b));
    assert_eq!(near.event(), AsyncEvent::CloseComplete);
}

// [VERBS-05]: the same if octets cross our FIN.
#[test]
fn octets_after_the_close_do_not_affect_completed_data() {
    let (near, _, mut socket) = sent_and_unread(|_| {});
    near.qp.modify(QpChange::Closing).unwrap();
    // No FPDU at all.
    socket.write_all(&[0; 64]).unwrap();
    assert_eq!(near.event(), AsyncEvent::BadClose);
    let (octets, _) = rest_of(&mut socket);
    assert!(octets > ALL, "{octets} of {ALL}");
}

// A peer that never reads delays nothing for longer than the time limit of a close.
#[test]
fn completed_data_has_bounded_time_to_arrive() {
    for pending in [false, true] {
        let (near, source, mut socket) = sent_and_unread(|p| p.close_timeout = SHORT);
        if pending {
            post_unanswered(&near, &source);
        }
        near.rnic.destroy_qp(near.qp.id()).unwrap();
        let begin = std::time::Instant::now();
        while socket.write_all(&[0]).is_ok() {
            assert!(begin.elapsed() < HANG, "the stream never ended, pending: {pending}");
            std::thread::yield_now();
        }
    }
}

// Only an abrupt end discards messages that completed.
#[test]
fn an_abrupt_end_resets_at_once() {
    let (near, _, mut socket) = sent_and_unread(|_| {});
    near.qp.modify(QpChange::Error).unwrap();
    let (octets, in_order) = rest_of(&mut socket);
    assert!(octets < ALL && !in_order, "{octets} of {ALL}, in order: {in_order}");
}
