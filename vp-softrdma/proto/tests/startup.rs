//! MPA start-up: every rule of RFC 5044 section 7.1 and RFC 6581, both roles against each other.
//!
//! Owner of the state: each test its own machines. No thread, no IO; the peer is the other machine.

use iwarp_proto::mpa::startup::{
    Answer, Initiator, Negotiated, Request, Responder, RtrSet, StartupConfig, StartupError, Step,
};
use iwarp_proto::mpa::{Parsed, Rx};
use iwarp_proto::wire::mpa::{EnhancedRepr, FrameKind, StartupRepr};
use iwarp_proto::wire::terminate::TerminateRepr;
use iwarp_proto::wire::{ddp, rdmap};
use iwarp_proto::{Role, RtrKind, TerminateCode};
use proptest::prelude::*;

const WRITE: RtrSet = RtrSet { send: false, write: true, read: false };
const READ: RtrSet = RtrSet { send: false, write: false, read: true };
const SEND: RtrSet = RtrSet { send: true, write: false, read: false };
const ALL: RtrSet = RtrSet { send: true, write: true, read: true };

fn crc32c(crc: u32, octets: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, octets)
}

/// Revision 1, CRC on.
fn plain() -> StartupConfig {
    StartupConfig { revision: 1, enhanced: false, ..StartupConfig::default() }
}

fn limits(ird: u16, ord: u16, max_ird: u16) -> StartupConfig {
    StartupConfig { ird, ord, max_ird, ..StartupConfig::default() }
}

fn done<T: std::fmt::Debug>(step: Result<Step<T>, StartupError>) -> T {
    match step {
        Ok(Step::Done { value, .. }) => value,
        other => panic!("not done: {other:?}"),
    }
}

/// A whole exchange; both ends' results, the initiator's before it is checked.
fn exchange(
    ours: StartupConfig,
    theirs: StartupConfig,
) -> Result<(Answer, Negotiated, Request, StartupRepr), StartupError> {
    let mut initiator = Initiator::new(ours, b"hello")?;
    let mut responder = Responder::new(theirs);
    let request = done(responder.handle(initiator.request()));
    let (reply, theirs) = responder.accept(theirs.ird, theirs.ord, b"welcome")?;
    let fixed = StartupRepr::parse(&reply).expect("a reply");
    match initiator.handle(&reply)? {
        Step::Done { value, .. } => Ok((value, theirs, request, fixed)),
        Step::NeedMore => panic!("reply is incomplete"),
    }
}

/// The same where both must succeed.
fn agree(ours: StartupConfig, theirs: StartupConfig) -> (Negotiated, Negotiated) {
    match exchange(ours, theirs) {
        Ok((Answer::Accepted { negotiated, private_data }, theirs, request, _)) => {
            assert_eq!(
                (&private_data[..], &request.private_data[..]),
                (&b"welcome"[..], &b"hello"[..])
            );
            (negotiated, theirs)
        }
        other => panic!("no agreement: {other:?}"),
    }
}

fn frame(kind: FrameKind, revision: u8, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut octets = kind.key().to_vec();
    octets.extend([flags, revision]);
    octets.extend((data.len() as u16).to_be_bytes());
    octets.extend(data);
    octets
}

fn block(ird: u16, ord: u16, rtr: Option<RtrSet>) -> EnhancedRepr {
    let set = rtr.unwrap_or_default();
    EnhancedRepr {
        peer_to_peer: rtr.is_some(),
        rtr_send: set.send,
        rtr_write: set.write,
        rtr_read: set.read,
        ird,
        ord,
    }
}

/// The block of a responder's reply to `asked`.
fn replied(config: StartupConfig, asked: EnhancedRepr) -> (EnhancedRepr, Negotiated) {
    let mut responder = Responder::new(config);
    done(responder.handle(&frame(FrameKind::Request, 2, 0x50, &asked.emit())));
    let (reply, negotiated) = responder.accept(config.ird, config.ord, b"").expect("accepted");
    (EnhancedRepr::parse(&reply[StartupRepr::LEN..]).expect("a block"), negotiated)
}

/// An initiator's result for a reply's block.
fn concluded(config: StartupConfig, reply: EnhancedRepr) -> Result<Negotiated, StartupError> {
    let mut initiator = Initiator::new(config, b"")?;
    match initiator.handle(&frame(FrameKind::Reply, 2, 0x50, &reply.emit()))? {
        Step::Done { value: Answer::Accepted { negotiated, .. }, .. } => Ok(negotiated),
        other => panic!("not accepted: {other:?}"),
    }
}

// [CONN-01] [CONN-12] [MPA-37] [MPA-39]
#[test]
fn a_wrong_key_ends_it_with_nothing_sent() {
    let mut responder = Responder::new(plain());
    let error = responder.handle(b"MPA ID Rex").expect_err("bad key");
    assert_eq!(error, StartupError::BadKey { at: 9 });
    assert_eq!(responder.reply_for(error), None);

    // The first octet that differs decides, whatever follows.
    let mut responder = Responder::new(plain());
    assert_eq!(responder.handle(b"MPA ID Rep Framx"), Err(StartupError::WrongRole));

    let mut responder = Responder::new(plain());
    let error = responder.handle(FrameKind::Reply.key()).expect_err("our own role");
    assert_eq!((error, responder.reply_for(error)), (StartupError::WrongRole, None));

    let mut initiator = Initiator::new(plain(), b"").expect("a request");
    let error = initiator.handle(FrameKind::Request.key()).expect_err("our own role");
    assert_eq!(error, StartupError::WrongRole);
    assert_eq!(initiator.terminate_for(error, crc32c), None);

    let mut initiator = Initiator::new(plain(), b"").expect("a request");
    assert_eq!(initiator.handle(b"HTTP/1.1 400"), Err(StartupError::BadKey { at: 0 }));
}

// Both ends as initiators over one connection, and both as responders: local errors, no hang.
// [CONN-12] [CONN-13]
#[test]
fn two_ends_with_the_same_role_do_not_connect() {
    let mut ours = Initiator::new(plain(), b"").expect("a request");
    let mut theirs = Initiator::new(plain(), b"").expect("a request");
    let (to_them, to_us) = (ours.request().to_vec(), theirs.request().to_vec());
    assert_eq!(ours.handle(&to_us), Err(StartupError::WrongRole));
    assert_eq!(theirs.handle(&to_them), Err(StartupError::WrongRole));
    // Two responders wait: the owner's timer ends it, and FIN is an error of its own.
    let mut waiting = Responder::new(plain());
    assert_eq!(waiting.handle(b""), Ok(Step::NeedMore));
    assert_eq!(waiting.handle_eof(), StartupError::Eof { have: 0 });
}

// M in each direction, independent of the other. [CONN-02] [MPA-28]
#[test]
fn markers_are_per_direction() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let (i, r) = agree(
            StartupConfig { markers: ours, ..plain() },
            StartupConfig { markers: theirs, ..plain() },
        );
        assert_eq!((i.markers_rx, i.markers_tx), (ours, theirs));
        assert_eq!((r.markers_rx, r.markers_tx), (theirs, ours));
    }
}

// CRC is in force in both directions if either side asks. [MPA-13] [CONN-03]
#[test]
fn crc_is_in_force_if_either_asks() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = |crc| StartupConfig { crc, ..plain() };
        let (answer, r, _, reply) = exchange(config(ours), config(theirs)).expect("agreement");
        let Answer::Accepted { negotiated: i, .. } = answer else { panic!("rejected") };
        assert_eq!((i.crc, r.crc), (ours || theirs, ours || theirs));
        // The reply to C = 1 has C = 1, whatever this end is configured to.
        assert_eq!(reply.crc, ours || theirs);
    }
}

// [MPA-12] [CONN-19]
#[test]
fn the_default_asks_for_crc_and_negotiates_reads() {
    let config = StartupConfig::default();
    let request = Initiator::new(config, b"").expect("a request").request().to_vec();
    let fixed = StartupRepr::parse(&request).expect("a frame");
    assert!(fixed.crc && fixed.enhanced && !fixed.markers && fixed.revision == 2);
    // The plain form is sent if nothing of RFC 6581 is used, and with revision 1.
    for config in
        [StartupConfig { enhanced: false, ..config }, StartupConfig { revision: 1, ..config }]
    {
        let request = Initiator::new(config, b"").expect("a request").request().to_vec();
        assert!(!StartupRepr::parse(&request).expect("a frame").enhanced);
        assert_eq!(request.len(), StartupRepr::LEN);
    }
}

// [CONN-04] [CONN-05] [CONN-16]
#[test]
fn r_and_reserved_bits_of_a_request_mean_nothing() {
    // Revision 1 has no S bit: it is reserved there.
    let mut responder = Responder::new(StartupConfig::default());
    let request = done(responder.handle(&frame(FrameKind::Request, 1, 0x7f, b"ab")));
    assert!(!request.enhanced && request.crc && !request.markers);
    assert_eq!(request.private_data, b"ab");
    let (reply, _) = responder.accept(1, 1, b"").expect("accepted");
    // Ours are sent as zero.
    assert_eq!(reply[16], 0x40);
    // Revision 2 with S = 0 is a plain frame too.
    let mut responder = Responder::new(StartupConfig::default());
    let request = done(responder.handle(&frame(FrameKind::Request, 2, 0x40, &[0xc0, 1, 0xc0, 1])));
    assert_eq!((request.ird_ord, request.private_data.len()), (None, 4));
}

// [CONN-06] [CONN-18] [CONN-31]
#[test]
fn revisions_that_do_not_fit_are_refused() {
    let ask = |highest, revision, flags| {
        let config = StartupConfig { revision: highest, ..StartupConfig::default() };
        let mut responder = Responder::new(config);
        let result = responder.handle(&frame(FrameKind::Request, revision, flags, b"\0\0\0\0"));
        let sent = result.as_ref().err().and_then(|error| responder.reply_for(*error));
        (result.map(done_or_more), sent)
    };
    assert_eq!(ask(2, 1, 0x40), (Ok(true), None));
    assert_eq!(ask(2, 2, 0x50), (Ok(true), None));
    assert_eq!(ask(2, 3, 0x40), (Err(StartupError::Revision { got: 3 }), None));
    // A responder without the enhanced form closes.
    assert_eq!(ask(1, 2, 0x50), (Err(StartupError::Revision { got: 2 }), None));
    // An RDMA Consortium peer gets revision 1.
    let (result, sent) = ask(2, 0, 0xc0);
    assert_eq!(result, Err(StartupError::Revision { got: 0 }));
    let reply = StartupRepr::parse(&sent.expect("a reply")).expect("a frame");
    assert_eq!((reply.kind, reply.revision, reply.rejected), (FrameKind::Reply, 1, true));

    for (asked, got) in [(1, 2), (2, 3), (2, 0)] {
        let config = StartupConfig { revision: asked, ..StartupConfig::default() };
        let mut initiator = Initiator::new(config, b"").expect("a request");
        let reply = frame(FrameKind::Reply, got, 0x40, b"");
        assert_eq!(initiator.handle(&reply), Err(StartupError::Revision { got }));
    }
}

fn done_or_more<T>(step: Step<T>) -> bool {
    matches!(step, Step::Done { .. })
}

// [CONN-07] [SEC-18]
#[test]
fn private_data_ends_at_512_octets() {
    let fits =
        |config: StartupConfig, len: usize| Initiator::new(config, &vec![7; len]).map(|_| ());
    assert_eq!(fits(plain(), 512), Ok(()));
    let too_long = |len, max| Err(StartupError::OurPrivateDataTooLong { len, max });
    assert_eq!(fits(plain(), 513), too_long(513, 512));
    assert_eq!(fits(StartupConfig::default(), 508), Ok(()));
    assert_eq!(fits(StartupConfig::default(), 509), too_long(509, 508));

    let mut responder = Responder::new(StartupConfig::default());
    let request = done(responder.handle(&frame(FrameKind::Request, 1, 0x40, &[9; 512])));
    assert_eq!(request.private_data, [9; 512]);
    assert!(responder.accept(1, 1, &[1; 512]).is_ok());
    assert!(matches!(
        responder.accept(1, 1, &[1; 513]),
        Err(StartupError::OurPrivateDataTooLong { .. })
    ));
    assert!(responder.reject(&[1; 512]).is_ok());

    // Refused at the length field, without waiting for what it announces.
    let mut responder = Responder::new(StartupConfig::default());
    let mut head = frame(FrameKind::Request, 1, 0x40, b"");
    head[18..].copy_from_slice(&[0xff, 0xff]);
    let error = Err(StartupError::PrivateDataTooLong { got: 0xffff });
    assert_eq!(responder.handle(&head), error);

    let mut responder = Responder::new(StartupConfig::default());
    assert_eq!(
        responder.handle(&frame(FrameKind::Request, 2, 0x50, b"ab")),
        Err(StartupError::EnhancedTooShort { got: 2 })
    );
    // Fewer octets than announced, then FIN.
    let mut responder = Responder::new(StartupConfig::default());
    let short = frame(FrameKind::Request, 1, 0x40, b"abcdefgh");
    assert_eq!(responder.handle(&short[..24]), Ok(Step::NeedMore));
    assert_eq!(responder.handle_eof(), StartupError::Eof { have: 24 });
}

// A request that arrives in pieces gets no reply before its last octet; what follows is not consumed.
// [CONN-08] [CONN-34] [MPA-42]
#[test]
fn nothing_happens_before_the_frame_is_complete() {
    let request = Initiator::new(StartupConfig::default(), b"private").expect("a request");
    let mut responder = Responder::new(StartupConfig::default());
    let (last, front) = request.request().split_last().expect("octets");
    for octet in front {
        assert_eq!(responder.handle(&[*octet]), Ok(Step::NeedMore));
        assert_eq!(responder.accept(1, 1, b"").map(|_| ()), Err(StartupError::NoRequest));
        assert_eq!(responder.reject(b"").map(|_| ()), Err(StartupError::NoRequest));
    }
    let Ok(Step::Done { consumed, value }) = responder.handle(&[*last, 0xaa, 0xbb]) else {
        panic!("not done");
    };
    assert_eq!((consumed, &value.private_data[..]), (1, &b"private"[..]));

    // The initiator's side: an FPDU directly after the reply is left to full operation.
    let (reply, _) = responder.accept(1, 1, b"welcome").expect("accepted");
    let mut initiator = request;
    let together = [&reply[..], &[0, 14, 0xc1, 0x40]].concat();
    let Ok(Step::Done { consumed, .. }) = initiator.handle(&together) else { panic!("not done") };
    assert_eq!(consumed, reply.len());
}

// [CONN-09] [CONN-10] [CONN-23] [CONN-25]
#[test]
fn a_reject_carries_data_and_limits() {
    for config in [plain(), limits(4, 40, 4)] {
        let mut initiator = Initiator::new(config, b"").expect("a request");
        let mut responder = Responder::new(limits(8, 40, 8));
        done(responder.handle(initiator.request()));
        let reject = responder.reject(b"no room").expect("a reject");
        let fixed = StartupRepr::parse(&reject).expect("a frame");
        assert!(fixed.rejected && fixed.enhanced == (config.revision == 2));
        let answer = done(initiator.handle(&reject));
        let limits = (config.revision == 2).then_some((8, 40));
        assert_eq!(
            answer,
            Answer::Rejected {
                private_data: b"no room".to_vec(),
                peer_ird_ord: limits,
                revision: config.revision
            }
        );
        // After a reject no FPDU may be sent, not even a Terminate.
        assert_eq!(initiator.terminate_for(StartupError::Local, crc32c), None);
    }
    // A reject in the other form is still a reject.
    let mut initiator = Initiator::new(StartupConfig::default(), b"").expect("a request");
    let answer = done(initiator.handle(&frame(FrameKind::Reply, 1, 0x60, b"old")));
    let expected =
        Answer::Rejected { private_data: b"old".to_vec(), peer_ird_ord: None, revision: 1 };
    assert_eq!(answer, expected);
}

// Policies that refuse reject a well-formed request. [CONN-09] [MPA-13]
#[test]
fn policy_refusals_are_rejects() {
    let refusals = [
        (StartupConfig { refuse_markers: true, ..plain() }, 0xc0, StartupError::Markers),
        (StartupConfig { crc: false, refuse_crc: true, ..plain() }, 0x40, StartupError::CrcPolicy),
    ];
    for (config, flags, expected) in refusals {
        let mut responder = Responder::new(config);
        let error =
            responder.handle(&frame(FrameKind::Request, 1, flags, b"")).expect_err("policy");
        assert_eq!(error, expected);
        let reply = responder.reply_for(error).expect("a reject");
        let fixed = StartupRepr::parse(&reply).expect("a frame");
        assert!(fixed.rejected && !fixed.markers);

        let mut initiator = Initiator::new(config, b"").expect("a request");
        let error = initiator.handle(&frame(FrameKind::Reply, 1, flags, b"")).expect_err("policy");
        assert_eq!((error, initiator.terminate_for(error, crc32c)), (expected, None));
    }
}

// RFC 5044 7.1.1: C in the request is enough. [MPA-13] [CONN-03]
#[test]
fn crc_is_in_force_although_the_reply_does_not_ask() {
    let mut initiator = Initiator::new(plain(), b"").expect("a request");
    let answer = done(initiator.handle(&frame(FrameKind::Reply, 1, 0, b"")));
    let Answer::Accepted { negotiated, .. } = answer else { panic!("{answer:?}") };
    assert!(negotiated.crc);
}

// [CONN-17]
#[test]
fn the_reply_has_the_form_of_the_request() {
    let ours = [plain(), StartupConfig::default()];
    for config in ours {
        let (answer, ..) = exchange(config, StartupConfig::default()).expect("agreement");
        assert!(matches!(answer, Answer::Accepted { .. }));
    }
    let mut initiator = Initiator::new(StartupConfig::default(), b"").expect("a request");
    let reply = frame(FrameKind::Reply, 2, 0x40, b"");
    assert_eq!(initiator.handle(&reply), Err(StartupError::FormMismatch));
    let config = StartupConfig { enhanced: false, ..StartupConfig::default() };
    let mut initiator = Initiator::new(config, b"").expect("a request");
    let reply = frame(FrameKind::Reply, 2, 0x50, &[0; 4]);
    assert_eq!(initiator.handle(&reply), Err(StartupError::FormMismatch));
}

// 16384 does not fit 14 bits: it is sent as the largest number, never as "do not negotiate".
// [CONN-20]
#[test]
fn limits_are_fourteen_bits() {
    let initiator = Initiator::new(limits(16384, 0xffff, 16), b"ulp").expect("a request");
    let data = &initiator.request()[StartupRepr::LEN..];
    let sent = EnhancedRepr::parse(data).expect("a block");
    assert_eq!((sent.ird, sent.ord), (0x3ffe, 0x3ffe));
    assert_eq!(&data[EnhancedRepr::LEN..], b"ulp");
}

// Every pair of limits ends with each ORD at or below the other's IRD.
// [CONN-21] [CONN-24] [CONN-25] [CONN-33]
#[test]
fn every_pair_of_limits_ends_consistent() {
    let values = [0, 1, 2, 4, 16, 128, 0x3ffe];
    for (a, b) in values.iter().flat_map(|a| values.map(|b| (*a, b))) {
        for (c, d) in values.iter().flat_map(|c| values.map(|d| (*c, d))) {
            let (i, r) = agree(limits(a, b, a), limits(c, d, c));
            assert!(i.ord <= r.ird && r.ord <= i.ird, "{i:?} {r:?}");
            assert_eq!((i.ird, r.ird), (a, c));
            assert_eq!((i.ord, r.ord), (b.min(c), d.min(a)));
            assert_eq!((i.peer_ird_ord, r.peer_ird_ord), (Some((r.ird, r.ord)), Some((a, b))));
            assert_eq!((i.role, r.role), (Role::Initiator, Role::Responder));
        }
    }
}

// Both ends know the revision; every one that we accept means version 1 of DDP and RDMAP. [MPA-36]
#[test]
fn both_ends_know_the_revision() {
    for config in [plain(), StartupConfig::default()] {
        let (i, r) = agree(config, StartupConfig::default());
        assert_eq!((i.revision, r.revision), (config.revision, config.revision));
    }
    assert_eq!((ddp::VERSION, rdmap::VERSION), (1, 1));
}

// [CONN-22]
#[test]
fn a_responder_may_raise_its_ird() {
    let (reply, held) = replied(limits(4, 4, 32), block(8, 20, None));
    assert_eq!((reply.ird, held.ird), (20, 20));
    let (reply, held) = replied(limits(4, 4, 10), block(8, 20, None));
    assert_eq!((reply.ird, held.ird), (10, 10));
    // A Read RTR needs an IRD of one, even if the initiator requested none.
    let config = StartupConfig { rtr: READ, ..limits(0, 4, 0) };
    let (reply, held) = replied(config, block(8, 0, Some(READ)));
    assert_eq!((reply.ird, held.ird, held.rtr), (1, 1, Some(RtrKind::Read)));
}

// [CONN-24]
#[test]
fn an_initiator_raises_its_ird_or_terminates() {
    let held = concluded(limits(4, 8, 64), block(8, 64, None)).expect("raised");
    assert_eq!((held.ird, held.ord), (64, 8));
    let held = concluded(limits(4, 8, 4), block(6, 2, None)).expect("lowered");
    assert_eq!((held.ird, held.ord), (4, 6));
    let error = concluded(limits(4, 8, 63), block(8, 64, None)).expect_err("cannot raise");
    assert_eq!(error, StartupError::InsufficientIrd { need: 64, have: 63 });
}

// [CONN-26]
#[test]
fn no_automatic_negotiation_holds_for_each_field_alone() {
    let ours = limits(4, 5, 64);
    let (reply, held) = replied(ours, block(0x3fff, 0x3fff, None));
    assert_eq!((reply.ird, reply.ord, held.ird, held.ord), (0x3fff, 0x3fff, 4, 5));
    let (reply, held) = replied(ours, block(2, 0x3fff, None));
    assert_eq!((reply.ird, reply.ord, held.ird, held.ord), (0x3fff, 2, 4, 2));
    let (reply, held) = replied(ours, block(0x3fff, 9, None));
    assert_eq!((reply.ird, reply.ord, held.ird, held.ord), (9, 0x3fff, 9, 5));

    let held = concluded(ours, block(0x3fff, 0x3fff, None)).expect("accepted");
    assert_eq!((held.ird, held.ord), (4, 5));
    let held = concluded(ours, block(2, 0x3fff, None)).expect("accepted");
    assert_eq!((held.ird, held.ord), (4, 2));
    // If this end does not negotiate, the peer's values have no effect.
    let config = StartupConfig { rtr: WRITE, ..limits(0x3fff, 0x3fff, 0) };
    let held = concluded(config, block(1, 9, Some(WRITE))).expect("accepted");
    assert_eq!((held.ird, held.ord), (0x3fff, 0x3fff));
}

// [CONN-27]
#[test]
fn the_model_is_echoed_and_flags_without_a_are_ignored() {
    let mut asked = block(4, 4, Some(ALL));
    asked.peer_to_peer = false;
    let (reply, held) = replied(limits(4, 4, 4), asked);
    assert_eq!((reply, held.rtr), (block(4, 4, None), None));
    let (reply, _) = replied(limits(4, 4, 4), block(4, 4, Some(ALL)));
    assert!(reply.peer_to_peer);
    // An initiator that requested client-server gets client-server or an error.
    let reply = block(4, 4, Some(WRITE));
    assert_eq!(concluded(limits(4, 4, 4), reply).map(|n| n.rtr), Err(StartupError::FormMismatch));
    let mut reply = block(4, 4, Some(ALL));
    reply.peer_to_peer = false;
    assert_eq!(concluded(limits(4, 4, 4), reply).map(|n| n.rtr), Ok(None));
}

// [CONN-28] [CONN-29]
#[test]
fn the_rtr_is_one_that_both_can_do() {
    let p2p = |rtr| StartupConfig { rtr, ..limits(4, 4, 4) };
    // The request names every kind that we support.
    let request = Initiator::new(p2p(ALL), b"").expect("a request").request().to_vec();
    let sent = EnhancedRepr::parse(&request[StartupRepr::LEN..]).expect("a block");
    assert_eq!(sent, block(4, 4, Some(ALL)));
    let cases = [
        (ALL, ALL, Some(RtrKind::Write)),
        (READ, ALL, Some(RtrKind::Read)),
        (ALL, READ, Some(RtrKind::Read)),
        (SEND, ALL, Some(RtrKind::Send)),
        (ALL, RtrSet::default(), Some(RtrKind::Write)),
    ];
    for (ours, theirs, kind) in cases {
        let (i, r) = agree(p2p(ours), p2p(theirs));
        assert_eq!((i.rtr, r.rtr), (kind, kind));
    }
    // No common kind: the responder still names those that it supports, and the initiator ends it.
    let (reply, _) = replied(p2p(READ), block(4, 4, Some(WRITE)));
    assert_eq!(reply, block(4, 4, Some(READ)));
    let error = exchange(p2p(WRITE), p2p(READ)).expect_err("nothing in common");
    assert_eq!(error, StartupError::NoCommonRtr);
    // Echoing A = 0 leaves no RTR; a Read RTR needs IRD at the peer.
    let refused = |reply| concluded(p2p(ALL), reply).map(|n| n.rtr);
    assert_eq!(refused(block(4, 4, None)), Err(StartupError::NoCommonRtr));
    assert_eq!(refused(block(0, 4, Some(READ))), Err(StartupError::NoCommonRtr));
    // A Read RTR needs ORD at this end.
    let config = StartupConfig { rtr: READ, ..limits(4, 0, 4) };
    assert_eq!(concluded(config, block(1, 4, Some(READ))).map(|n| n.ord), Ok(1));
}

// The three errors of RFC 6581 are sent as the first FPDU, framed as negotiated.
// [CONN-24] [CONN-29] [CONN-32]
#[test]
fn enhanced_failures_send_a_terminate() {
    let errors = [
        (StartupError::InsufficientIrd { need: 2, have: 1 }, 6),
        (StartupError::NoCommonRtr, 7),
        (StartupError::Local, 5),
    ];
    for (crc, markers) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = StartupConfig { crc, ..StartupConfig::default() };
        let mut initiator = Initiator::new(config, b"").expect("a request");
        // Nothing may be sent before the reply.
        assert_eq!(initiator.terminate_for(StartupError::Local, crc32c), None);
        let flags = 0x10 | u8::from(crc) << 6 | u8::from(markers) << 7;
        done(initiator.handle(&frame(FrameKind::Reply, 2, flags, &block(1, 1, None).emit())));
        for (error, code) in errors {
            let octets = initiator.terminate_for(error, crc32c).expect("a terminate");
            let mut rx = Rx::new(crc.then_some(crc32c), markers);
            let Parsed::Fpdu(fpdu) = rx.parse(&octets) else { panic!("no fpdu") };
            assert_eq!((fpdu.wire_len(), fpdu.ulpdu_len()), (octets.len(), 22));
            let mut scratch = [0; 22];
            let found = TerminateRepr::parse(&fpdu.head(&mut scratch)[18..]).expect("a word");
            assert_eq!(found, TerminateRepr::bare(TerminateCode::new(2, 0, code)));
        }
        assert_eq!(initiator.terminate_for(StartupError::FormMismatch, crc32c), None);
    }
}

// The memory of a connection during start-up, as documented.
#[test]
fn the_machines_are_small() {
    assert!(size_of::<Initiator>() <= 128, "{}", size_of::<Initiator>());
    assert!(size_of::<Responder>() <= 128, "{}", size_of::<Responder>());
}

// Each error says what was wrong, in lower case.
#[test]
fn errors_have_texts() {
    let errors = [
        StartupError::BadKey { at: 3 },
        StartupError::WrongRole,
        StartupError::Revision { got: 9 },
        StartupError::PrivateDataTooLong { got: 513 },
        StartupError::EnhancedTooShort { got: 2 },
        StartupError::FormMismatch,
        StartupError::Markers,
        StartupError::CrcPolicy,
        StartupError::InsufficientIrd { need: 2, have: 1 },
        StartupError::NoCommonRtr,
        StartupError::Local,
        StartupError::OurPrivateDataTooLong { len: 513, max: 512 },
        StartupError::NoRequest,
        StartupError::Eof { have: 3 },
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.len() > 20 && text == text.to_lowercase(), "{text}");
    }
}

fn config() -> impl Strategy<Value = StartupConfig> {
    let limit = prop_oneof![0u16..20, Just(0x3fff), Just(0x3ffe)];
    let rtr = any::<(bool, bool, bool)>();
    (1u8..=2, any::<[bool; 5]>(), limit.clone(), limit.clone(), limit, rtr).prop_map(
        |(
            revision,
            [crc, refuse_crc, markers, refuse_markers, enhanced],
            ird,
            ord,
            max_ird,
            rtr,
        )| {
            let (send, write, read) = rtr;
            let rtr = RtrSet { send, write, read };
            StartupConfig {
                revision,
                crc,
                refuse_crc,
                markers,
                refuse_markers,
                ird,
                ord,
                max_ird,
                enhanced,
                rtr,
            }
        },
    )
}

/// Octets half of which resemble a frame.
fn frame_like() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![Just(FrameKind::Request), Just(FrameKind::Reply)];
    let framed = (kind, any::<(u8, u8)>(), proptest::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(kind, (flags, revision), data)| frame(kind, revision % 4, flags, &data));
    prop_oneof![4 => framed, 1 => proptest::collection::vec(any::<u8>(), 0..64)]
}

proptest! {
    // Input in any pieces has the same result as at once; no input panics. [SEC-18] [CONN-33]
    #[test]
    fn chunking_changes_nothing(
        config in config(),
        octets in frame_like(),
        cuts in proptest::collection::vec(0usize..64, 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(octets.len())).collect();
        cuts.sort_unstable();
        let mut responder = Responder::new(config);
        let mut initiator = Initiator::new(config, b"x").expect("a request");
        let whole = (taken(responder.handle(&octets), 0), taken(initiator.handle(&octets), 0));
        let mut responder = Responder::new(config);
        let mut initiator = Initiator::new(config, b"x").expect("a request");
        let pieces = (
            in_pieces(&octets, &cuts, |o| responder.handle(o)),
            in_pieces(&octets, &cuts, |o| initiator.handle(o)),
        );
        prop_assert_eq!(whole, pieces);
    }

    // Two machines of ours agree, or both report why not.
    #[test]
    fn two_machines_agree(ours in config(), theirs in config()) {
        let mut initiator = Initiator::new(ours, b"pd").expect("a request");
        let mut responder = Responder::new(theirs);
        let reply = match responder.handle(initiator.request()) {
            Ok(Step::Done { value, .. }) => {
                prop_assert_eq!(&value.private_data[..], b"pd");
                let (reply, r) = responder.accept(theirs.ird, theirs.ord, b"").expect("accepted");
                match initiator.handle(&reply) {
                    Ok(Step::Done { value: Answer::Accepted { negotiated: i, .. }, .. }) => {
                        prop_assert_eq!((i.crc, i.rtr), (r.crc, r.rtr));
                        prop_assert_eq!((i.markers_rx, i.markers_tx), (r.markers_tx, r.markers_rx));
                        if let (Some((ird, ord)), true) = (i.peer_ird_ord, value.enhanced) {
                            prop_assert!(i.ord <= ird.max(1) || ird == 0x3fff || ours.ord == 0x3fff);
                            prop_assert!(i.ird >= ord || ord == 0x3fff || ours.ird == 0x3fff);
                        }
                    }
                    Ok(other) => prop_assert!(false, "{:?}", other),
                    Err(error) => {
                        let fatal = initiator.terminate_for(error, crc32c).is_some();
                        prop_assert_eq!(fatal, matches!(
                            error,
                            StartupError::InsufficientIrd { .. } | StartupError::NoCommonRtr
                        ));
                    }
                }
                None
            }
            Ok(Step::NeedMore) => panic!("a request is complete"),
            Err(error) => responder.reply_for(error),
        };
        if let Some(reply) = reply {
            let rejected = matches!(
                initiator.handle(&reply),
                Ok(Step::Done { value: Answer::Rejected { .. }, .. })
            );
            prop_assert!(rejected);
        }
    }
}

type Outcome<T> = Result<Option<(usize, T)>, StartupError>;

fn taken<T>(step: Result<Step<T>, StartupError>, before: usize) -> Outcome<T> {
    step.map(|step| match step {
        Step::NeedMore => None,
        Step::Done { consumed, value } => Some((before + consumed, value)),
    })
}

fn in_pieces<T>(
    octets: &[u8],
    cuts: &[usize],
    mut handle: impl FnMut(&[u8]) -> Result<Step<T>, StartupError>,
) -> Outcome<T> {
    let mut start = 0;
    for end in cuts.iter().copied().chain([octets.len()]) {
        let outcome = taken(handle(&octets[start..end]), start)?;
        if outcome.is_some() {
            return Ok(outcome);
        }
        start = end;
    }
    Ok(None)
}
