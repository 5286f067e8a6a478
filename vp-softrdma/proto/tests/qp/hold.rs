//! Tests of messages that wait for a receive: they are buffered in order, and everything else continues.
//!
//! Owner of the state: each test its own; one thread. The peer is another QP or a list of octets.

use iwarp_proto::wire::ddp::UntaggedRepr;
use iwarp_proto::wire::rdmap::Opcode;
use iwarp_proto::{
    Immediate, LlpFault, ProtocolError, QpConfig, QpEvent, Role, RtrKind, SendOp, Stag, State,
    Status, StreamConfig,
};

use crate::craft::{
    fpdu, header, opcodes, read_of, read_request, send, terminate, untagged, verdict,
};
use crate::craft::{wrap, write};
use crate::pair::{short_script, streams};
use crate::script::{LATE, Script};
use crate::sim::memory::{Call, Region, Work};
use crate::sim::{CONFIG, End, STREAM, Sim, gather, plain};

const HOLD: QpConfig = QpConfig { hold: 4096, ..CONFIG };

fn end_with(stream: StreamConfig) -> End {
    let mut end = End::new(HOLD);
    end.memory.regions.push(Region::new(0x100, 0x1000, 0x1000));
    end.qp.start(stream).expect("Idle");
    end
}
fn end() -> End {
    end_with(STREAM)
}
fn received(end: &End) -> Vec<Vec<u8>> {
    end.memory.received.iter().map(|receive| receive.octets.clone()).collect()
}
/// A receive that is posted while messages wait.
fn receive(end: &mut End, len: usize) {
    end.receive(len);
    end.qp.handle_receives(&mut end.memory);
}
/// No message is held any more, and all posted requests have completed.
fn assert_dropped(end: &mut End) {
    assert_eq!((end.qp.waiting(), end.qp.hold_room()), (None, None));
    assert_eq!(received(end), Vec::<Vec<u8>>::new());
    end.assert_all_complete();
}

// [RDMAP-12, RDMAP-16] one buffer each, in the order of their numbers
#[test]
fn kept_messages_are_delivered_in_order() {
    let mut end = end();
    for (msn, payload) in [(1, &b"first"[..]), (2, b""), (3, b"third")] {
        end.feed(&send(msn, payload));
    }
    assert_eq!((end.qp.state(), end.qp.waiting()), (State::Rts, Some(1)));
    assert_eq!(end.memory.calls, []);
    receive(&mut end, 64);
    assert_eq!(received(&end), [b"first".to_vec()]);
    assert_eq!(end.qp.waiting(), Some(2));
    // Two messages wait, so this one waits after them.
    end.feed(&send(4, b"fourth"));
    end.receive(64);
    end.receive(64);
    receive(&mut end, 64);
    assert_eq!(received(&end)[1..], [b"".to_vec(), b"third".to_vec(), b"fourth".to_vec()]);
    assert_eq!((end.qp.waiting(), end.qp.hold_room()), (None, None));
    // After that, messages do not wait.
    end.receive(64);
    end.feed(&send(5, b"fifth"));
    assert_eq!(received(&end)[4], b"fifth");
}

#[test]
fn later_messages_on_other_queues_go_on() {
    let mut sim = Sim::with(HOLD, [STREAM, StreamConfig { role: Role::Responder, ..STREAM }]);
    for end in &mut sim.ends {
        end.memory.regions.push(Region::new(0x100, 0x1000, 0x2000));
    }
    // Both ends send without a receive; later messages must not wait for one.
    for end in &mut sim.ends {
        end.memory.region(0x100).octets[..5].copy_from_slice(b"there");
        end.send(&[7; 600]);
        end.write(0x100, 0x1800, b"here");
        end.read((0x100, 0x1900), (0x100, 0x1000), 5);
        let add = SendOp::FetchAdd { stag: Stag(0x100), to: 0x1a00, add: 3, mask: 0 };
        end.post(plain(add), Work { len: 8, ..Work::default() });
    }
    sim.run();
    for end in &mut sim.ends {
        assert_eq!(end.statuses(), [Status::Success; 4]);
        let octets = &end.memory.region(0x100).octets;
        assert_eq!((&octets[0x800..0x804], &octets[0x900..0x905]), (&b"here"[..], &b"there"[..]));
        assert_eq!(end.qp.waiting(), Some(1));
        receive(end, 1000);
        assert_eq!(received(end), [vec![7; 600]]);
    }
    sim.close(0);
}

// [RDMAP-13, VERBS-27] the STag is valid as long as the message is not delivered
#[test]
fn effects_of_a_message_happen_at_its_delivery() {
    let mut end = end();
    let h = header(Opcode::SendSolicitedInvalidate, 1, 0, true);
    end.feed(&untagged(UntaggedRepr { ulp_word: 0x100, ..h }, b"bye"));
    let immediate = header(Opcode::ImmediateSolicited, 2, 0, true);
    end.feed(&untagged(immediate, &0x0102_0304_0506_0708u64.to_be_bytes()));
    end.feed(&write(0x100, 0x1000, b"still"));
    assert_eq!(&end.memory.region(0x100).octets[..5], b"still");
    end.receive(8);
    receive(&mut end, 8);
    let stag = Stag(0x100);
    let calls = [Call::Place(3), Call::Invalidate(stag), Call::Complete(Some(stag))];
    assert_eq!(end.memory.calls, [&calls[..], &[Call::Complete(None)]].concat());
    let [first, second] = &end.memory.received[..] else { panic!("two receives") };
    assert!(first.receive.solicited && second.receive.solicited);
    assert_eq!(first.receive.immediate, None);
    assert_eq!(second.receive.immediate, Some(Immediate::Alone(0x0102_0304_0506_0708)));
    assert_eq!((second.receive.octets, second.octets.len()), (0, 0));
}

// [ERR-25]
#[test]
fn an_stag_that_cannot_be_invalidated_ends_the_stream_at_delivery() {
    let mut end = end();
    let h = header(Opcode::SendInvalidate, 1, 0, true);
    end.feed(&untagged(UntaggedRepr { ulp_word: 0x999, ..h }, b"bye"));
    assert_eq!(end.qp.state(), State::Rts);
    receive(&mut end, 8);
    assert_eq!(verdict(&end.take()), (0x0109, 0b110));
    assert_dropped(&mut end);
}

#[test]
fn reports_how_much_more_may_be_read() {
    let mut end = end();
    assert_eq!(end.qp.hold_room(), None);
    let mut kept = 0;
    for msn in 1.. {
        let frame = send(msn, &[1; 500]);
        kept += frame.len() as u32;
        end.feed(&frame);
        assert_eq!(end.qp.hold_room(), Some(HOLD.hold.saturating_sub(kept)), "{msn}");
        // Octets that were read are accepted, also beyond the bound.
        if kept > 2 * HOLD.hold {
            break;
        }
    }
    let before = kept;
    end.feed(&write(0x100, 0x1000, b"not counted"));
    assert_eq!(end.qp.waiting(), Some(1));
    while let Some(msn) = end.qp.waiting() {
        receive(&mut end, 500);
        kept -= send(msn, &[1; 500]).len() as u32;
        let room = (kept > 0).then(|| HOLD.hold.saturating_sub(kept));
        assert_eq!(end.qp.hold_room(), room, "{before}");
    }
}

// [ERR-09] as without a hold, and the Terminate names the oldest message
#[test]
fn a_message_that_waited_too_long_ends_the_stream() {
    let mut end = end();
    end.qp.handle_hold_timeout(&mut end.memory);
    assert_eq!(end.qp.state(), State::Rts, "nothing waits");
    end.receive(64);
    (1..=3).for_each(|msn| end.feed(&send(msn, b"message")));
    assert_eq!(end.qp.waiting(), Some(2));
    end.qp.handle_hold_timeout(&mut end.memory);
    let out = end.take();
    assert_eq!(verdict(&out), (0x1202, 0b110));
    let Some(iwarp_proto::wire::ddp::Header::Untagged(named)) = terminate(&out).ddp else {
        panic!("an untagged header")
    };
    assert_eq!((named.qn, named.msn, named.mo), (0, 2, 0));
    assert!(end.events.contains(&QpEvent::TerminateSent(ProtocolError::NoBuffer)));
    assert_eq!(received(&end), [b"message".to_vec()]);
    assert_eq!((end.qp.waiting(), end.qp.hold_room()), (None, None));
    // A receive posted now has no message.
    end.qp.handle_receives(&mut end.memory);
    end.qp.handle_hold_timeout(&mut end.memory);
    assert!(end.take().is_empty());
}

// [ERR-12] nothing of it is placed
#[test]
fn a_message_that_does_not_fit_ends_the_stream_at_delivery() {
    let mut end = end();
    end.feed(&send(1, &[1; 65]));
    receive(&mut end, 64);
    assert_eq!(verdict(&end.take()), (0x1205, 0b110));
    assert!(end.memory.overflowed);
    assert_eq!(end.memory.placed, 0);
    assert_dropped(&mut end);
}

#[test]
fn a_buffer_that_cannot_be_filled_is_our_own_fault() {
    let mut end = end();
    end.feed(&send(1, b"x"));
    end.memory.broken_buffers = true;
    receive(&mut end, 64);
    assert_eq!(verdict(&end.take()), (0x0000, 0));
    assert_dropped(&mut end);
}

/// Segments of one message of 20, 20 and 10 octets.
fn in_three() -> [Vec<u8>; 3] {
    [(0, false, 20), (20, false, 20), (40, true, 10)]
        .map(|(mo, last, len)| untagged(header(Opcode::Send, 1, mo, last), &[mo as u8; 20][..len]))
}

// [DDP-12] the buffer is posted before or after each of its segments
#[test]
fn a_message_in_parts_gets_its_buffer_in_the_middle() {
    for before in 1..=3 {
        let mut end = end();
        for (at, frame) in in_three().iter().enumerate() {
            end.feed(frame);
            if at + 1 == before {
                assert_eq!(end.qp.waiting(), Some(1));
                receive(&mut end, 50);
                assert_eq!(end.qp.waiting(), None);
            }
        }
        assert_eq!(received(&end), [[&[0; 20][..], &[20; 20], &[40; 10]].concat()], "{before}");
        end.receive(8);
        end.feed(&send(2, b"next"));
        assert_eq!(received(&end)[1], b"next");
    }
}

// [ERR-10, ERR-11, ERR-12, EXT-03] the rules of the queue hold while it waits
#[test]
fn out_of_order_messages_are_refused_while_others_wait() {
    let segment = |msn, mo, last| untagged(header(Opcode::Send, msn, mo, last), &[0; 20]);
    let immediate = untagged(header(Opcode::Immediate, 1, 0, true), &[0; 8]);
    let cases = [
        (vec![send(1, b"x")], send(3, b"x"), 0x1203),
        (vec![send(1, b"x")], send(1, b"x"), 0x1203),
        (vec![send(1, b"x")], segment(2, 4, true), 0x1204),
        (vec![segment(1, 0, false)], segment(1, 21, true), 0x1204),
        (vec![segment(1, 0, false)], segment(1, 0, true), 0x1204),
        (vec![segment(1, 0, false)], segment(2, 0, true), 0x1203),
        (vec![segment(1, 0, false)], immediate, 0x1204),
    ];
    for (good, bad, code) in cases {
        let mut end = end();
        good.iter().for_each(|frame| end.feed(frame));
        assert_eq!(end.qp.state(), State::Rts);
        end.feed(&bad);
        assert_eq!(verdict(&end.take()), (code, 0b110), "{bad:02x?}");
        assert_dropped(&mut end);
    }
}

// Without CRC a large payload is placed as it arrives: its buffer may be posted at any octet
#[test]
fn a_payload_that_streams_in_goes_on_in_its_buffer() {
    let payload: Vec<u8> = (0..6000u32).map(|octet| octet as u8).collect();
    let first = untagged_without_crc(header(Opcode::Send, 1, 0, false), &payload[..3000]);
    let last = untagged_without_crc(header(Opcode::Send, 1, 3000, true), &payload[3000..]);
    let octets = [first, last].concat();
    let stream = StreamConfig { crc: false, ..STREAM };
    for at in [1, 20, 21, 900, 3019, 3050, 5000, octets.len()] {
        let mut end = end_with(stream);
        end.direct = true;
        end.feed_direct(&octets[..at]);
        let waits = end.qp.waiting().is_some();
        end.receive(6000);
        end.qp.handle_receives(&mut end.memory);
        assert_eq!(end.qp.waiting(), None);
        end.feed_direct(&octets[at..]);
        assert!(received(&end) == [payload.clone()], "{at}");
        assert_eq!(waits, at >= 20 && at != 3019, "{at}");
    }
    // An earlier message is complete, and gets a buffer while this one arrives.
    let mut end = end_with(stream);
    end.direct = true;
    end.feed(&untagged_without_crc(header(Opcode::Send, 1, 0, true), b"before"));
    end.feed_direct(&untagged_without_crc(header(Opcode::Send, 2, 0, true), &payload)[..900]);
    receive(&mut end, 8);
    assert_eq!((received(&end), end.qp.waiting()), (vec![b"before".to_vec()], Some(2)));
    end.feed_direct(&untagged_without_crc(header(Opcode::Send, 2, 0, true), &payload)[900..]);
    receive(&mut end, 6000);
    assert!(received(&end)[1] == payload);
    // The whole segment in flight must fit.
    let mut end = end_with(stream);
    end.feed_direct(&octets[..900]);
    receive(&mut end, 2999);
    let out = end.take();
    assert_eq!(end.qp.state(), State::Terminate, "{out:02x?}");
    assert_eq!(end.memory.placed, 0);
    assert!(end.memory.overflowed);
}
fn untagged_without_crc(header: UntaggedRepr, payload: &[u8]) -> Vec<u8> {
    wrap(&[&header.emit()[..], payload].concat(), false)
}

// [CONN-30] the empty Send of the start-up takes no buffer, and waits for none
#[test]
fn the_empty_send_of_the_start_up_does_not_wait() {
    let role = Role::Responder;
    let mut end = end_with(StreamConfig { role, rtr: Some(RtrKind::Send), ..STREAM });
    end.feed(&send(1, b""));
    assert_eq!(end.qp.waiting(), None);
    end.feed(&send(2, b""));
    assert_eq!(end.qp.waiting(), Some(2));
}

// [MPA-41] it is delivered after the messages that arrived before it
#[test]
fn a_fin_waits_for_kept_messages() {
    let mut end = end();
    end.feed(&send(1, b"one"));
    end.feed(&send(2, b"two"));
    end.fin();
    receive(&mut end, 8);
    assert_eq!(end.qp.state(), State::Rts);
    receive(&mut end, 8);
    end.pump();
    assert_eq!(received(&end), [b"one", b"two"]);
    assert_eq!((end.qp.state(), end.closing, end.reset), (State::Idle, true, false));
    assert!(end.events.contains(&QpEvent::CloseComplete));
}

// [ERR-09, VERBS-09] a FIN after a kept Send, which gets no receive
#[test]
fn a_fin_after_kept_messages_ends_the_stream() {
    let mut end = end();
    end.feed(&send(1, b"one"));
    end.fin();
    end.qp.handle_hold_timeout(&mut end.memory);
    assert_eq!(verdict(&end.take()), (0x1202, 0b110));
    assert_eq!((end.qp.state(), end.detached), (State::Error, true));
    assert_dropped(&mut end);
}

// [ERR-29, DDP-19] the peer ends in the middle
#[test]
fn a_fin_within_a_kept_message_is_a_loss() {
    let mut end = end();
    end.feed(&in_three()[0]);
    end.fin();
    end.take();
    assert!(end.events.contains(&QpEvent::ConnectionLost(LlpFault::UnexpectedFin)));
    assert_dropped(&mut end);
}

// Held messages are dropped with the stream, however it ends; the next stream starts without any
#[test]
fn every_end_drops_kept_messages() {
    type Ending = (&'static str, fn(&mut End));
    let endings: [Ending; 7] = [
        ("close", |end| assert_eq!(end.qp.close(&mut end.memory), Ok(()))),
        ("terminate", |end| assert_eq!(end.qp.terminate(&mut end.memory), Ok(()))),
        ("abort", |end| end.qp.abort(&mut end.memory)),
        ("reset", |end| end.fault(LlpFault::Reset)),
        ("bad frame", |end| end.feed(&fpdu(&[0xff; 64]))),
        ("local error", |end| {
            end.qp.handle_local_error(ProtocolError::StreamCatastrophic, &mut end.memory);
        }),
        ("peer's Terminate", |end| {
            let h = header(Opcode::Terminate, 1, 0, true);
            end.feed(&untagged(h, &[0x12, 0x02, 0, 0]));
        }),
    ];
    for (ending, end_it) in endings {
        let mut end = end();
        end.feed(&send(1, b"dropped"));
        end.feed(&untagged(header(Opcode::Send, 2, 0, false), b"too"));
        end_it(&mut end);
        end.take();
        assert_dropped(&mut end);
        if ending == "close" {
            assert_eq!((end.reset, end.events.last()), (true, Some(&QpEvent::BadClose)));
        }
        end.qp.abort(&mut end.memory);
        end.pump();
        (end.detached, end.reset, end.closing) = (false, false, false);
        end.qp.reset().unwrap_or_else(|state| panic!("{ending}: {state:?}"));
        end.qp.start(STREAM).expect("Idle");
        end.qp.handle_receives(&mut end.memory);
        end.feed(&send(1, b"anew"));
        receive(&mut end, 8);
        assert_eq!(received(&end), [b"anew".to_vec()], "{ending}");
    }
}

// [RDMAP-08] the peer's Read gets its response while its Send waits
#[test]
fn a_read_request_after_a_waiting_message_gets_its_response() {
    let mut end = end();
    end.feed(&send(1, b"waits"));
    end.feed(&read_request(1, read_of(0x100, 0x1000, 16)));
    assert_eq!(opcodes(&end.take()), [Opcode::ReadResponse]);
}

// Every option, every chunk size: late receives do not change the data received
#[test]
fn late_receives_get_the_kept_messages() {
    let config = QpConfig { hold: 1 << 20, ..CONFIG };
    for stream in streams() {
        for chunk in [1, 3, 64, usize::MAX] {
            let peer = StreamConfig {
                role: Role::Responder,
                markers_tx: stream.markers_rx,
                markers_rx: stream.markers_tx,
                ..stream
            };
            let mut script = Script::new(Sim::with(config, [stream, peer]), LATE);
            script.sim.ends.iter_mut().for_each(|end| end.direct = chunk == 64);
            short_script(&mut script);
            script.sim.ends[0].qp.kick();
            script.sim.run_chunked(chunk);
            for end in &mut script.sim.ends {
                assert!(end.qp.waiting().is_some());
                (0..6).for_each(|_| receive(end, 0x200));
            }
            script.finish();
        }
    }
}

#[test]
fn a_peer_that_sends_and_closes_loses_nothing() {
    let mut sim = Sim::with(HOLD, [STREAM, StreamConfig { role: Role::Responder, ..STREAM }]);
    sim.ends[0].post(plain(SendOp::Send { solicited: true, invalidate: None }), gather(b"last"));
    sim.run();
    assert_eq!(sim.ends[0].qp.close(&mut sim.ends[0].memory), Ok(()));
    while sim.accept(0, 7) | sim.deliver(0, 7) {}
    receive(&mut sim.ends[1], 8);
    sim.run();
    assert_eq!(received(&sim.ends[1]), [b"last".to_vec()]);
    for end in &sim.ends {
        assert_eq!(
            (end.qp.state(), end.events.last()),
            (State::Idle, Some(&QpEvent::CloseComplete))
        );
    }
}
