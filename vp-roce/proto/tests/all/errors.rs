//! Tests of failures: refusals, silent peers, missing receives, revoked memory, and peers that break the
//! protocol.

use crate::common::{Pair, RKEY, Random, Weather, config};
use roce_proto::psn::Psn;
use roce_proto::rc::{
    Access, AtomicOp, Broken, Completion, Mtu, Post, PostError, RcConfig, SendOp, Status, Transmit,
};
use roce_proto::wire::aeth::{Nak, Syndrome};
use roce_proto::wire::bth::{Bth, Opcode, Operation, Position, Rider, Service};
use roce_proto::wire::extended::{AtomicEth, Reth};
use roce_proto::wire::packet::{Extended, Headers, Packet};

const SEND: SendOp = SendOp::Send { immediate: None, invalidate: None };

fn pair(config: RcConfig) -> Pair {
    let mut pair = Pair::new(config, Weather::default());
    for end in &mut pair.ends {
        end.memory.remote = vec![7; 10_000];
        end.memory.local = (0..8).map(|_| vec![1; 5_000]).collect();
    }
    pair
}

fn post(pair: &mut Pair, slot: u32, op: SendOp, len: u32) {
    pair.ends[0].qp.post(Post { slot, op, len, solicited: false }).unwrap();
}

fn done(pair: &Pair) -> Vec<Status> {
    pair.ends[0].done.iter().map(|done| done.status).collect()
}

// An acknowledgement may wait for a request, and leaves behind it; a refusal does not wait.
#[test]
fn a_lone_acknowledgement_is_not_urgent() {
    let mut pair = pair(config(Mtu::Octets256, 64));
    post(&mut pair, 0, SEND, 1);
    pair.ends[1].memory.receives.push_back(8);
    let sent = pair.ends[0].transmit(0);
    pair.ends[1].receive(0, &sent[0]);
    let qp = &mut pair.ends[1].qp;
    assert!(qp.poll_urgent(0).is_none() && qp.owes_reply());
    qp.post(Post { slot: 0, op: SEND, len: 1, solicited: false }).unwrap();
    let is_response = |transmit: Option<Transmit>| match transmit {
        Some(Transmit { headers: Headers { bth, .. }, .. }) => match bth.opcode {
            Opcode::Transport(_, operation) => operation.is_response(),
            Opcode::Cnp => false,
        },
        None => panic!("nothing is to be sent"),
    };
    assert!(!is_response(qp.poll_transmit(0)) && is_response(qp.poll_transmit(0)));
    assert!(qp.poll_transmit(0).is_none() && !qp.owes_reply());
    // Of a message without a receive.
    post(&mut pair, 1, SEND, 1);
    let sent = pair.ends[0].transmit(0);
    pair.ends[1].receive(0, &sent[0]);
    assert!(pair.ends[1].qp.poll_urgent(0).is_some());
}

// [IBRC-15]
#[test]
fn a_key_that_grants_nothing_ends_both_ends() {
    for op in [
        SendOp::Write { address: 0, rkey: RKEY + 1, immediate: None },
        SendOp::Read { address: 0, rkey: RKEY + 1 },
        SendOp::Read { address: 9_999, rkey: RKEY },
    ] {
        let mut pair = pair(config(Mtu::Octets256, 16));
        post(&mut pair, 0, op, 5_000);
        post(&mut pair, 1, SEND, 1);
        pair.run(&mut Random::new(1));
        assert_eq!(done(&pair), [Status::RemoteAccess, Status::Flushed], "{op:?}");
        assert_eq!(pair.ends[0].qp.broken(), Some(Broken::Failed(Status::RemoteAccess)));
        assert_eq!(pair.ends[1].qp.broken(), Some(Broken::Refused(Nak::RemoteAccess)));
        assert_eq!(pair.ends[1].memory.remote, vec![7; 10_000]);
        let again = Post { slot: 2, op: SEND, len: 1, solicited: false };
        assert_eq!(pair.ends[0].qp.post(again), Err(PostError::Broken));
    }
}

// [IBRC-15]
#[test]
fn what_a_queue_pair_does_not_serve_is_an_invalid_request() {
    for (disallowed, op, octets) in [
        (Access::Write, SendOp::Write { address: 0, rkey: RKEY, immediate: None }, 8),
        (Access::Write, SendOp::Write { address: 0, rkey: 0, immediate: None }, 0),
        (Access::Read, SendOp::Read { address: 0, rkey: RKEY }, 8),
        (
            Access::Atomic,
            SendOp::Atomic { address: 0, rkey: RKEY, op: AtomicOp::FetchAdd { add: 1 } },
            8,
        ),
    ] {
        let mut pair = pair(config(Mtu::Octets256, 16));
        pair.ends[1].memory.disallowed = Some(disallowed);
        post(&mut pair, 0, op, octets);
        pair.run(&mut Random::new(1));
        assert_eq!(done(&pair), [Status::RemoteInvalidRequest], "{op:?}");
        assert_eq!(pair.ends[1].memory.remote, vec![7; 10_000]);
    }
}

// [IBRC-14]
#[test]
fn a_message_longer_than_its_receive_is_an_invalid_request() {
    let mut pair = pair(config(Mtu::Octets256, 16));
    pair.ends[1].memory.receives.push_back(400);
    post(&mut pair, 0, SEND, 401);
    pair.run(&mut Random::new(1));
    assert_eq!(done(&pair), [Status::RemoteInvalidRequest]);
    assert_eq!(pair.ends[1].memory.failed_receives, 1);
    assert!(pair.ends[1].memory.delivered.is_empty());
}

// [IBRC-13, IBRC-19]
#[test]
fn without_a_receive_a_send_waits_and_is_delivered_once() {
    let mut pair = pair(config(Mtu::Octets256, 16));
    post(&mut pair, 0, SEND, 700);
    post(&mut pair, 1, SendOp::Write { address: 0, rkey: RKEY, immediate: Some(5) }, 300);
    let mut random = Random::new(1);
    for _ in 0..200 {
        pair.step(&mut random);
    }
    assert_eq!(done(&pair), []);
    pair.ends[1].memory.receives.push_back(700);
    for _ in 0..200 {
        pair.step(&mut random);
    }
    assert_eq!(done(&pair), [Status::Success]);
    pair.ends[1].memory.receives.push_back(0);
    pair.run(&mut random);
    assert_eq!(done(&pair), [Status::Success; 2]);
    let delivered = &pair.ends[1].memory.delivered;
    assert_eq!(
        delivered.iter().map(|(d, _)| (d.len, d.immediate)).collect::<Vec<_>>(),
        [(700, None), (300, Some(5))]
    );
}

// [IBRC-13]
#[test]
fn a_request_without_a_receive_fails_in_the_end() {
    let mut pair = pair(RcConfig { rnr_retry: 3, ..config(Mtu::Octets256, 16) });
    post(&mut pair, 0, SEND, 10);
    post(&mut pair, 1, SEND, 10);
    pair.run(&mut Random::new(1));
    assert_eq!(done(&pair), [Status::RnrRetryExceeded, Status::Flushed]);
}

// [IBRC-21]
#[test]
fn unlimited_repetitions_end_after_their_time() {
    let limited = RcConfig { rnr_retry: 7, rnr_limit: Some(5_000), ..config(Mtu::Octets256, 16) };
    let mut pair = pair(limited);
    post(&mut pair, 0, SEND, 10);
    pair.run(&mut Random::new(1));
    assert_eq!(done(&pair), [Status::RnrRetryExceeded]);
    assert!((5_000..6_000).contains(&pair.now), "{}", pair.now);
}

// [IBRC-21]
#[test]
fn time_in_which_both_ends_stood_still_is_no_wait_for_a_receive() {
    const LIMIT: u64 = 5_000_000;
    const STOP: u64 = 3_600_000_000;
    let limited = RcConfig {
        min_rnr_timer: 0,
        rnr_limit: Some(LIMIT),
        ack_timeout: Some(1_000_000),
        ..config(Mtu::Octets256, 16)
    };
    let mut pair = pair(limited);
    post(&mut pair, 0, SEND, 10);
    let mut random = Random::new(1);
    while pair.ends[0].qp.stats().not_ready == 0 {
        pair.step(&mut random);
    }
    pair.now += STOP;
    pair.run(&mut random);
    assert_eq!(done(&pair), [Status::RnrRetryExceeded]);
    assert!(pair.now >= STOP + LIMIT - 1_000_000, "{}", pair.now);
}

// [IBRC-12]
#[test]
fn a_silent_peer_is_given_up_after_the_configured_retries() {
    let mut pair = Pair::new(
        RcConfig { retry_count: 3, ..config(Mtu::Octets256, 64) },
        Weather { lost: 100, ..Weather::default() },
    );
    pair.ends[0].memory.local = vec![vec![0; 10]; 2];
    post(&mut pair, 0, SEND, 10);
    post(&mut pair, 1, SEND, 10);
    pair.run(&mut Random::new(1));
    assert_eq!(done(&pair), [Status::RetryExceeded, Status::Flushed]);
    // The first transmission and three repetitions, each with its time-out.
    assert_eq!((pair.ends[0].sent, pair.now), (8, 4_000));
}

#[test]
fn a_key_that_is_revoked_during_a_read_is_reported() {
    let mut pair = pair(config(Mtu::Octets256, 64));
    post(&mut pair, 0, SendOp::Read { address: 0, rkey: RKEY }, 5_000);
    // The responder has accepted the Read; its memory is revoked before the responses are built.
    let requests = pair.ends[0].transmit(0);
    requests.iter().for_each(|request| pair.ends[1].receive(0, request));
    pair.ends[1].memory.remote.truncate(1_000);
    pair.run(&mut Random::new(1));
    assert_eq!(done(&pair), [Status::RemoteAccess]);
    assert_eq!(pair.ends[0].memory.local[0][..768], [7; 768]);
}

#[test]
fn a_source_that_is_revoked_fails_its_request() {
    let mut pair = pair(config(Mtu::Octets256, 64));
    pair.ends[1].memory.receives.extend([5_000; 3]);
    (0..3).for_each(|slot| post(&mut pair, slot, SEND, 600));
    let first = pair.ends[0].qp.poll_transmit(0).unwrap();
    pair.ends[0].qp.handle_source_fault(&first);
    pair.run(&mut Random::new(1));
    assert_eq!(done(&pair), [Status::LocalProtection, Status::Flushed, Status::Flushed]);
}

#[test]
fn posts_are_bounded_and_checked() {
    let mut config = config(Mtu::Octets256, 16);
    (config.send_depth, config.initiator_depth) = (2, 0);
    let mut pair = pair(config);
    let qp = &mut pair.ends[0].qp;
    let mut post = |op, len| qp.post(Post { slot: 0, op, len, solicited: false });
    let read = SendOp::Read { address: 0, rkey: RKEY };
    let add = AtomicOp::FetchAdd { add: 1 };
    let riders = SendOp::Send { immediate: Some(1), invalidate: Some(2) };
    assert_eq!(post(read, 8), Err(PostError::NoReads));
    assert_eq!(post(SendOp::Atomic { address: 8, rkey: 0, op: add }, 8), Err(PostError::NoReads));
    assert_eq!(post(SendOp::Atomic { address: 9, rkey: 0, op: add }, 8), Err(PostError::Length));
    assert_eq!(post(SendOp::Atomic { address: 8, rkey: 0, op: add }, 4), Err(PostError::Length));
    assert_eq!(post(SEND, (1 << 31) + 1), Err(PostError::Length));
    assert_eq!(post(riders, 1), Err(PostError::Riders));
    assert_eq!((post(SEND, 1), post(SEND, 1)), (Ok(()), Ok(())));
    assert_eq!(post(SEND, 1), Err(PostError::QueueFull));
    // A slot is freed when its completion is taken, not when its request is done.
    qp.flush();
    let flushed = Completion { slot: 0, status: Status::Flushed };
    assert_eq!(qp.poll_completion(), Some(flushed));
}

/// A packet of a peer that is not this implementation.
fn forged(operation: Operation, psn: u32, extended: Extended) -> Headers {
    let bth = Bth {
        opcode: Opcode::Transport(Service::Rc, operation),
        solicited: false,
        migrated: false,
        pad: 0,
        pkey: 0xffff,
        congestion: 0,
        destination: 0x11,
        ack_request: true,
        psn: Psn::new(psn),
    };
    Headers { bth, extended }
}

/// The syndrome with which a new queue pair replies to `requests`, of which the last is invalid.
fn reply(requests: &[(Headers, usize)]) -> Option<Syndrome> {
    let mut pair = pair(config(Mtu::Octets256, 16));
    pair.ends[1].memory.receives.extend([300; 4]);
    let end = &mut pair.ends[1];
    for (headers, len) in requests {
        let payload = vec![0; *len];
        end.qp.handle_packet(0, &Packet { headers: *headers, payload: &payload }, &mut end.memory);
    }
    let replies: Vec<_> = std::iter::from_fn(|| end.qp.poll_transmit(0)).collect();
    replies.last()?.headers.extended.aeth.map(|aeth| aeth.syndrome)
}

// [IBRC-02, IBRC-03, IBRC-04, IBRC-16, IBRC-18]
#[test]
fn requests_that_break_the_protocol_are_refused() {
    const FIRST: u32 = 0xff_fff0;
    let none = Extended::default();
    let send = |position, at| forged(Operation::Send(position, Rider::None), FIRST + at, none);
    let write = |position, at, length| {
        let reth = Some(Reth { address: 0, rkey: RKEY, length });
        let extended = Extended { reth, ..none };
        forged(Operation::Write(position, Rider::None), FIRST + at, extended)
    };
    let invalid = Some(Syndrome::Nak(Nak::InvalidRequest));
    use Position::{First, Last, Middle, Only};
    for (what, requests) in [
        ("a First packet that is not full", vec![(send(First, 0), 255)]),
        ("an Only packet beyond the MTU", vec![(send(Only, 0), 257)]),
        ("a Middle packet of no message", vec![(send(Middle, 0), 256)]),
        ("a Last packet of no message", vec![(send(Last, 0), 1)]),
        ("a message within a message", vec![(send(First, 0), 256), (send(Only, 1), 1)]),
        ("an empty Last packet", vec![(send(First, 0), 256), (send(Last, 1), 0)]),
        ("a Write within a Send", vec![(send(First, 0), 256), (write(Middle, 1, 0), 256)]),
        ("a Write shorter than its length", vec![(write(Only, 0, 9), 8)]),
        (
            "a Write longer than its length",
            vec![(write(First, 0, 300), 256), (write(Middle, 1, 0), 256)],
        ),
        ("a Send within a Write", vec![(write(First, 0, 300), 256), (send(Last, 1), 44)]),
        (
            "an atomic that is not aligned",
            vec![(
                forged(
                    Operation::FetchAdd,
                    FIRST,
                    Extended {
                        atomic: Some(AtomicEth {
                            address: 4,
                            rkey: RKEY,
                            swap_or_add: 1,
                            compare: 0,
                        }),
                        ..none
                    },
                ),
                0,
            )],
        ),
        (
            "a Read beyond 2^31 octets",
            vec![(
                forged(
                    Operation::ReadRequest,
                    FIRST,
                    Extended {
                        reth: Some(Reth { address: 0, rkey: RKEY, length: (1 << 31) + 1 }),
                        ..none
                    },
                ),
                0,
            )],
        ),
    ] {
        assert_eq!(reply(&requests), invalid, "{what}");
    }
    let gap = reply(&[(send(Only, 3), 1)]);
    assert_eq!(gap, Some(Syndrome::Nak(Nak::PsnSequence)));
}

// [IBRC-05, ROCE-09]
#[test]
fn a_gap_is_reported_once_and_a_refusal_at_each_repetition() {
    let none = Extended::default();
    let send = |psn| forged(Operation::Send(Position::Only, Rider::None), psn, none);
    let mut pair = pair(config(Mtu::Octets256, 16));
    let end = &mut pair.ends[1];
    let mut take = |psn, receives: usize| {
        end.memory.receives.extend(vec![1; receives]);
        end.qp.handle_packet(0, &Packet { headers: send(psn), payload: &[0] }, &mut end.memory);
        std::iter::from_fn(|| end.qp.poll_transmit(0)).count()
    };
    assert_eq!([take(0xff_fff5, 0), take(0xff_fff6, 0), take(0xff_fff7, 0)], [1, 0, 0]);
    assert_eq!(take(0xff_fff0, 1), 1);
    assert_eq!([take(0xff_fff5, 0), take(0xff_fff6, 0)], [1, 0]);
}

#[test]
fn unexpected_responses_are_ignored() {
    let mut pair = pair(config(Mtu::Octets256, 16));
    let end = &mut pair.ends[0];
    for operation in [
        Operation::Acknowledge,
        Operation::AtomicAcknowledge,
        Operation::ReadResponse(Position::Only),
    ] {
        for psn in [0, 0xff_ffef, 0xff_fff0, 0xff_fff1, 0x7f_fff0] {
            let headers = forged(
                operation,
                psn,
                Extended {
                    aeth: Some(roce_proto::wire::aeth::Aeth {
                        syndrome: Syndrome::Nak(Nak::RemoteAccess),
                        msn: Psn::new(0),
                    }),
                    ..Extended::default()
                },
            );
            end.qp.handle_packet(0, &Packet { headers, payload: &[] }, &mut end.memory);
        }
    }
    assert_eq!((end.qp.broken(), end.qp.deadline()), (None, None));
}

#[test]
fn a_response_of_a_wrong_length_fails_its_read() {
    let mut pair = pair(config(Mtu::Octets256, 16));
    post(&mut pair, 0, SendOp::Read { address: 0, rkey: RKEY }, 100);
    let end = &mut pair.ends[0];
    assert_eq!(end.transmit(0).len(), 1);
    let headers = forged(Operation::ReadResponse(Position::Only), 0xff_fff0, Extended::default());
    end.qp.handle_packet(0, &Packet { headers, payload: &[0; 99] }, &mut end.memory);
    assert_eq!(end.qp.poll_completion().unwrap().status, Status::BadResponse);
}

/// A time-out that is shorter than what counts: the last packet of the second message is lost, and the peer is silent
/// after that.
#[test]
fn a_near_peer_is_asked_early_and_given_up_late() {
    const SOON: u64 = 1_000;
    const COUNTS: u64 = 16_000;
    for (retry_count, after) in [(2, SOON), (0, COUNTS)] {
        let config = RcConfig {
            ack_timeout: Some(SOON),
            count_after: COUNTS,
            retry_count,
            ..config(Mtu::Octets256, 16)
        };
        let mut pair = pair(config);
        pair.ends[1].memory.receives.extend([100; 2]);
        // The distance is not known yet.
        post(&mut pair, 0, SEND, 10);
        let first = pair.ends[0].transmit(0);
        assert_eq!(pair.ends[0].qp.deadline(), Some(COUNTS));
        pair.ends[1].receive(10, &first[0]);
        let reply = pair.ends[1].transmit(10);
        pair.ends[0].receive(20, &reply[0]);
        post(&mut pair, 1, SEND, 10);
        pair.ends[0].transmit(100);
        assert_eq!(pair.ends[0].qp.deadline(), Some(100 + after), "{retry_count}");
        let (mut times, mut sent) = (vec![], 0);
        while let Some(at) = pair.ends[0].qp.deadline() {
            pair.ends[0].qp.handle_timeout(at);
            sent += pair.ends[0].transmit(at).len();
            times.push(at - 100);
        }
        assert_eq!(done(&pair)[1..], [Status::RetryExceeded]);
        // As late as with a time-out that counts each time.
        assert_eq!(times.last(), Some(&((u64::from(retry_count) + 1) * COUNTS)), "{times:?}");
        if retry_count == 0 {
            assert_eq!(sent, 0, "it is never repeated");
        } else {
            assert_eq!(times[..5], [1_000, 3_000, 7_000, 15_000, 16_000]);
        }
    }
}

/// A peer that takes long to acknowledge is not asked before.
#[test]
fn a_far_peer_is_not_asked_early() {
    let config =
        RcConfig { ack_timeout: Some(1_000), count_after: 16_000, ..config(Mtu::Octets256, 16) };
    let mut pair = pair(config);
    pair.ends[1].memory.receives.extend([100; 2]);
    post(&mut pair, 0, SEND, 10);
    let first = pair.ends[0].transmit(0);
    pair.ends[1].receive(3_000, &first[0]);
    let reply = pair.ends[1].transmit(3_000);
    pair.ends[0].receive(3_000, &reply[0]);
    post(&mut pair, 1, SEND, 10);
    pair.ends[0].transmit(5_000);
    assert_eq!(pair.ends[0].qp.deadline(), Some(5_000 + 4 * 3_000));
}
