//! The vectors of the start-up frames, and every frame of the others decoded and encoded again.
//!
//! Effects of FPDUs on a QP are tested elsewhere. Owner of the state: none. No peer.

mod common;

use common::{check_each, crc32c, load, named, number, octets};
use iwarp_proto::TerminateCode;
use iwarp_proto::mpa::startup::{
    Answer, Initiator, Responder, RtrSet, StartupConfig, StartupError, Step,
};
use iwarp_proto::mpa::{Parsed, Rx, RxFpdu, Tx};
use iwarp_proto::wire::ddp::Header;
use iwarp_proto::wire::mpa::{EnhancedRepr, MARKER_INTERVAL, StartupRepr, pad_len};
use iwarp_proto::wire::rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, Control, ImmediateRepr, Opcode, ReadRequestRepr,
};
use iwarp_proto::wire::terminate::TerminateRepr;
use serde_json::Value;

fn of_kind(kinds: &[&str]) -> Vec<Value> {
    let file = load();
    let all = file["vectors"].as_array().expect("a list of vectors");
    all.iter()
        .filter(|v| kinds.contains(&v["kind"].as_str().unwrap_or_default()))
        .cloned()
        .collect()
}

fn name(vector: &Value) -> &str {
    vector["name"].as_str().unwrap_or("?")
}

fn valid(vector: &Value) -> bool {
    vector["valid"] == Value::Bool(true)
}

/// `found` equals the vector's `field`, if it has one.
fn same(vector: &Value, fields: &Value, field: &str, found: u64) {
    if let Some(expected) = number(&fields[field]) {
        assert_eq!(found, expected, "{}: {field}", name(vector));
    }
}

/// Passes the same octets at once, one by one, and split at every position; all results must agree.
fn every_chunking<T: PartialEq + std::fmt::Debug>(
    frame: &[u8],
    run: impl Fn(&[&[u8]]) -> Result<Option<T>, StartupError>,
) -> Result<Option<T>, StartupError> {
    let whole = run(&[frame]);
    assert_eq!(run(&frame.chunks(1).collect::<Vec<_>>()), whole, "octet by octet");
    for at in 0..frame.len() {
        let (front, back) = frame.split_at(at);
        assert_eq!(run(&[front, back]), whole, "split at {at}");
    }
    whole
}

/// Drives a start-up machine; returns its value and the number of octets taken in all.
fn drive<T>(
    chunks: &[&[u8]],
    mut handle: impl FnMut(&[u8]) -> Result<Step<T>, StartupError>,
) -> Result<Option<(T, usize)>, StartupError> {
    let mut before = 0;
    for chunk in chunks {
        if let Step::Done { consumed, value } = handle(chunk)? {
            return Ok(Some((value, before + consumed)));
        }
        before += chunk.len();
    }
    Ok(None)
}

// Start-up frames, decoded and encoded again octet for octet.
// [CONN-01] [CONN-05] [CONN-07] [CONN-16] [CONN-20]
#[test]
fn startup_frames_round_trip() {
    let all = of_kind(&["mpa_req", "mpa_rep"]);
    check_each(all.iter().filter(|v| valid(v)), |vector| {
        let (frame, fields) = (octets(vector, "hex"), &vector["fields"]);
        let fixed = StartupRepr::parse(&frame).expect("a frame");
        same(vector, fields, "M", fixed.markers.into());
        same(vector, fields, "C", fixed.crc.into());
        same(vector, fields, "R", fixed.rejected.into());
        same(vector, fields, "S", fixed.enhanced.into());
        same(vector, fields, "res", fixed.reserved.into());
        same(vector, fields, "rev", fixed.revision.into());
        same(vector, fields, "pd_length", fixed.private_data_len.into());
        let (mut again, mut data) = (fixed.emit().to_vec(), &frame[StartupRepr::LEN..]);
        if fixed.enhanced && fixed.revision >= 2 {
            let block = EnhancedRepr::parse(data).expect("an enhanced block");
            same(vector, fields, "A", block.peer_to_peer.into());
            same(vector, fields, "B", block.rtr_send.into());
            same(vector, fields, "Cw", block.rtr_write.into());
            same(vector, fields, "Dr", block.rtr_read.into());
            same(vector, fields, "ird", block.ird.into());
            same(vector, fields, "ord", block.ord.into());
            again.extend(block.emit());
            data = &data[EnhancedRepr::LEN..];
            same(vector, fields, "ulp_pd_length", data.len() as u64);
        }
        again.extend(data);
        assert_eq!(again, frame, "{}", name(vector));
    });
}

// Requests as a responder sees them. [CONN-06] [CONN-07] [CONN-08] [CONN-31] [ERR-01]
#[test]
fn requests_give_the_expected_action() {
    check_each(&of_kind(&["mpa_req"]), |vector| {
        let (frame, case) = (octets(vector, "hex"), name(vector));
        let fresh = || Responder::new(StartupConfig::default());
        let result = every_chunking(&frame, |chunks| {
            let mut responder = fresh();
            drive(chunks, |octets| responder.handle(octets))
        });
        if valid(vector) {
            let (request, consumed) = result.expect(case).expect(case);
            assert_eq!(consumed, frame.len(), "{case}");
            let mut responder = fresh();
            responder.handle(&frame).expect(case);
            let (reply, negotiated) = responder.accept(16, 16, b"").expect(case);
            let reply = StartupRepr::parse(&reply).expect(case);
            assert_eq!((reply.crc, reply.enhanced), (true, request.enhanced), "{case}");
            assert_eq!(negotiated.markers_tx, request.markers, "{case}");
            if let Some(data) = vector["fields"]["private_data"].as_str() {
                let expected = octets(&vector["fields"], "private_data");
                assert_eq!(request.private_data, expected, "{case}: {data}");
            }
            return;
        }
        let mut responder = fresh();
        let error = match responder.handle(&frame) {
            Ok(Step::NeedMore) => responder.handle_eof(),
            other => other.expect_err(case),
        };
        let sent = responder.reply_for(error);
        match vector["expected_action"].as_str() {
            Some("close_tcp_report_local_error") => assert_eq!(sent, None, "{case}"),
            Some("reply_rev1_then_close_or_close") => {
                let reply = StartupRepr::parse(&sent.expect(case)).expect(case);
                assert_eq!((reply.revision, reply.rejected), (1, true), "{case}");
            }
            other => panic!("{case}: action {other:?} is unknown for a request"),
        }
    });
}

/// An initiator whose request fits a reply without a named request.
fn asker_of(vector: &Value) -> StartupConfig {
    let default = StartupConfig::default();
    let frame = octets(vector, "hex");
    let Some(fixed) = StartupRepr::parse(&frame).ok().filter(|_| valid(vector)) else {
        return default;
    };
    let config = StartupConfig { revision: fixed.revision, enhanced: false, ..default };
    match EnhancedRepr::parse(&frame[StartupRepr::LEN..]) {
        Ok(block) if fixed.enhanced => {
            let rtr = RtrSet {
                send: block.peer_to_peer && block.rtr_send,
                write: block.peer_to_peer && block.rtr_write,
                read: block.peer_to_peer && block.rtr_read,
            };
            enhanced(config, block.ord, block.ird, rtr)
        }
        _ => config,
    }
}

/// The initiator that a reply vector is for.
fn initiator(vector: &Value) -> Initiator {
    let context = &vector["context"];
    let named = context["request"].as_str().map(|wanted| {
        let frame = octets(&named(&load(), wanted), "hex");
        let fixed = StartupRepr::parse(&frame).expect("a request");
        let block = EnhancedRepr::parse(&frame[StartupRepr::LEN..]).ok();
        (fixed, block.filter(|_| fixed.enhanced))
    });
    let mut config = asker_of(vector);
    if let Some((fixed, block)) = named {
        config.revision = fixed.revision;
        config.enhanced = false;
        config.crc = fixed.crc;
        config.markers = fixed.markers;
        if let Some(block) = block {
            let rtr = RtrSet { send: block.rtr_send, write: block.rtr_write, read: block.rtr_read };
            config = enhanced(config, block.ird, block.ord, rtr);
        }
    }
    if let Some(asked) = context["request_enh"].as_object() {
        let field = |key: &str| asked.get(key).and_then(number).unwrap_or(0);
        let rtr = RtrSet { send: field("B") == 1, write: field("C") == 1, read: field("D") == 1 };
        config = enhanced(config, field("ird") as u16, field("ord") as u16, rtr);
    }
    if let Some(kinds) = context["local_rtr"].as_array() {
        let has = |kind: &str| kinds.iter().any(|k| k == kind);
        config.rtr = RtrSet { send: has("send"), write: has("write"), read: has("read") };
    }
    if let Some(max) = number(&context["local_max_ird"]) {
        config.max_ird = max as u16;
    }
    Initiator::new(config, b"").expect("a request")
}

fn enhanced(config: StartupConfig, ird: u16, ord: u16, rtr: RtrSet) -> StartupConfig {
    StartupConfig { revision: 2, enhanced: true, ird, ord, rtr, ..config }
}

// Replies as an initiator sees them.
// [CONN-10] [CONN-12] [CONN-17] [CONN-24] [CONN-25] [CONN-29] [ERR-01]
#[test]
fn replies_give_the_expected_action() {
    check_each(&of_kind(&["mpa_rep"]), |vector| {
        let (frame, case) = (octets(vector, "hex"), name(vector));
        let result = every_chunking(&frame, |chunks| {
            let mut machine = initiator(vector);
            drive(chunks, |octets| machine.handle(octets))
        });
        let fields = &vector["fields"];
        match vector["expected_action"].as_str() {
            Some("accept") => {
                let (answer, consumed) = result.expect(case).expect(case);
                assert_eq!(consumed, frame.len(), "{case}");
                let Answer::Accepted { negotiated, .. } = answer else {
                    panic!("{case}: rejected");
                };
                same(vector, fields, "M", negotiated.markers_tx.into());
                same(vector, fields, "A", negotiated.rtr.is_some().into());
                if let Some((ird, ord)) = negotiated.peer_ird_ord {
                    same(vector, fields, "ird", ird.into());
                    same(vector, fields, "ord", ord.into());
                    let free = |ours: u16, theirs: u16| ours == 0x3fff || theirs == 0x3fff;
                    assert!(negotiated.ord <= ird || free(negotiated.ord, ird), "{case}");
                    assert!(negotiated.ird >= ord || free(negotiated.ird, ord), "{case}");
                }
            }
            Some("report_reject") => {
                let (answer, _) = result.expect(case).expect(case);
                let Answer::Rejected { peer_ird_ord, .. } = answer else {
                    panic!("{case}: accepted");
                };
                if let Some((ird, ord)) = peer_ird_ord {
                    same(vector, fields, "ird", ird.into());
                    same(vector, fields, "ord", ord.into());
                }
            }
            action => {
                let mut machine = initiator(vector);
                let error = match machine.handle(&frame) {
                    Ok(Step::NeedMore) => machine.handle_eof(),
                    other => other.expect_err(case),
                };
                let sent = machine.terminate_for(error, crc32c);
                match action {
                    Some("close_tcp_report_local_error") => assert_eq!(sent, None, "{case}"),
                    Some("send_terminate_then_close") => {
                        expect_terminate(vector, &sent.expect(case));
                    }
                    other => panic!("{case}: action {other:?} is unknown for a reply"),
                }
            }
        }
    });
}

/// `fpdu` (CRC on, no markers) is the Terminate that the vector expects.
fn expect_terminate(vector: &Value, fpdu: &[u8]) {
    let Parsed::Fpdu(found) = Rx::new(Some(crc32c), false).parse(fpdu) else {
        panic!("{}: no valid fpdu", name(vector));
    };
    let mut scratch = [0; 64];
    let terminate = TerminateRepr::parse(&found.head(&mut scratch)[18..]).expect("a terminate");
    let expected = code(&vector["expected_error"]);
    assert_eq!(terminate, TerminateRepr::bare(expected), "{}", name(vector));
    if vector["expected_terminate_hex"].is_string() {
        assert_eq!(fpdu, octets(vector, "expected_terminate_hex"), "{}", name(vector));
    }
}

fn code(value: &Value) -> TerminateCode {
    let part = |key: &str| number(&value[key]).expect("layer, type and code") as u8;
    TerminateCode::new(part("layer"), part("type"), part("code"))
}

// A bad vector hides no other; a name is searched in the file in use, then in the project's.
#[test]
fn every_bad_vector_is_reported_and_names_are_found() {
    let file = serde_json::json!({ "vectors": [{"name": "a"}, {"name": "b"}, {"name": "c"}] });
    let all = file["vectors"].as_array().expect("a list");
    let checked = std::panic::catch_unwind(|| {
        check_each(all, |vector| assert_eq!(name(vector), "b", "not as expected"));
    });
    let text = checked.expect_err("two fail").downcast::<String>().expect("a text");
    assert!(text.starts_with("2 of 3 vectors fail:\na: ") && text.contains("\nc: "), "{text}");
    assert_eq!(named(&file, "b")["name"], "b");
    let project = named(&file, "quirk_siw_term_le_ddp");
    assert!(project["hex"].is_string(), "{project}");
}

/// The expected code; for a foreign file, also one of its alternatives.
fn allowed(vector: &Value, found: TerminateCode) -> bool {
    let expected = &vector["expected_error"];
    let others = expected["also_acceptable"].as_array().into_iter().flatten();
    let foreign = std::env::var_os("IWARP_VECTORS").is_some();
    found == code(expected) || foreign && others.map(code).any(|other| other == found)
}

/// Framing as the vector's context sets it.
struct Framing {
    crc: bool,
    markers: bool,
    position: u64,
}

impl Framing {
    fn of(vector: &Value, file: &Value) -> Self {
        let base = &file["contexts"][vector["context"]["base"].as_str().unwrap_or("rx0")];
        let get = |key: &str| match &vector["context"][key] {
            Value::Null => &base[key],
            own => own,
        };
        Self {
            crc: get("crc") == &Value::Bool(true),
            markers: get("markers") == &Value::Bool(true),
            position: number(get("stream_pos")).unwrap_or(0),
        }
    }
    fn rx(&self) -> Rx {
        Rx::at(self.crc.then_some(crc32c), self.markers, self.position)
    }
    fn tx(&self) -> Tx {
        Tx::at(self.crc.then_some(crc32c), self.markers, self.position)
    }
}

// Every frame with valid framing, decoded to values and encoded from them again, octet for octet.
// [MPA-01] [MPA-02] [MPA-03] [MPA-08] [MPA-09] [MPA-10] [MPA-11] [MPA-22] [MPA-23] [MPA-24]
// [MPA-25] [MPA-27] [MPA-34] [DDP-01] [DDP-03] [RDMAP-03] [RDMAP-04] [RDMAP-20] [EXT-01] [EXT-02]
// [EXT-04] [EXT-10]
#[test]
fn frames_round_trip() {
    let file = load();
    check_each(&of_kind(&["fpdu", "stream"]), |vector| {
        let (framing, case) = (Framing::of(vector, &file), name(vector));
        let (mut rx, mut tx) = (framing.rx(), framing.tx());
        let stream = octets(vector, "hex");
        let (mut rest, mut index) = (&stream[..], 0);
        while !rest.is_empty() {
            let fpdu = match rx.parse(rest) {
                Parsed::Fpdu(fpdu) => fpdu,
                Parsed::Bad(error) => {
                    assert!(!valid(vector), "{case}: {error}");
                    assert!(allowed(vector, error.terminate_code()), "{case}: {error}");
                    break;
                }
                Parsed::Need(need) => {
                    assert!(!valid(vector), "{case}: {} octets, {need} needed", rest.len());
                    break;
                }
            };
            let (wire, behind) = rest.split_at(fpdu.wire_len());
            let fields = match &vector["fields"]["fpdus"] {
                Value::Array(list) => &list[index],
                _ => &vector["fields"],
            };
            let ulpdu: Vec<u8> = fpdu.pieces(0).flatten().copied().collect();
            assert_eq!(ulpdu.len(), usize::from(fpdu.ulpdu_len()), "{case}");
            same(vector, fields, "ulpdu_length", ulpdu.len() as u64);
            let again = encode(&mut tx, &reencode(vector, fields, &ulpdu, &fpdu));
            let at = framing.position + (stream.len() - rest.len()) as u64;
            assert_same_wire(case, &framing, at, wire, &again);
            assert!(behind.len() < rest.len(), "{case}: an FPDU has octets");
            (rest, index) = (behind, index + 1);
        }
    });
}

/// The ULPDU built again from the values in it.
fn reencode(vector: &Value, fields: &Value, ulpdu: &[u8], fpdu: &RxFpdu<'_>) -> Vec<u8> {
    let Ok(header) = Header::parse(ulpdu) else {
        assert!(!valid(vector), "{}: no ddp header", name(vector));
        return ulpdu.to_vec();
    };
    let mut scratch = [0; 96];
    assert!(ulpdu.starts_with(fpdu.head(&mut scratch)), "{}", name(vector));
    let (head, payload) = ulpdu.split_at(header.buffer_len());
    let control = Control(header.ulp());
    same(vector, fields, "T", header.control().tagged().into());
    same(vector, fields, "L", header.control().last().into());
    same(vector, fields, "DV", header.control().version().into());
    same(vector, fields, "ddp_rsvd", header.control().reserved().into());
    same(vector, fields, "RV", control.version().into());
    same(vector, fields, "opcode", control.nibble().into());
    same(vector, fields, "rdmap_rsv", control.reserved().into());
    same(vector, fields, "payload_len", payload.len() as u64);
    match header {
        Header::Tagged(h) => {
            same(vector, fields, "stag", h.stag.0.into());
            same(vector, fields, "to", h.to);
        }
        Header::Untagged(h) => {
            same(vector, fields, "inval_stag", h.ulp_word.into());
            same(vector, fields, "qn", h.qn.into());
            same(vector, fields, "msn", h.msn.into());
            same(vector, fields, "mo", h.mo.into());
        }
    }
    let mut again = vec![0; head.len()];
    assert_eq!(header.emit(&mut again), Ok(head.len()));
    again.extend(reencode_payload(vector, fields, control.opcode(), payload));
    again
}

fn reencode_payload(
    vector: &Value,
    fields: &Value,
    opcode: Option<Opcode>,
    payload: &[u8],
) -> Vec<u8> {
    match (opcode, payload.len()) {
        (Some(Opcode::ReadRequest), ReadRequestRepr::LEN) => {
            let repr = ReadRequestRepr::parse(payload).expect("28 octets");
            same(vector, fields, "sink_stag", repr.sink_stag.0.into());
            same(vector, fields, "sink_to", repr.sink_to);
            same(vector, fields, "rdmardsz", repr.size.into());
            same(vector, fields, "src_stag", repr.source_stag.0.into());
            same(vector, fields, "src_to", repr.source_to);
            repr.emit().to_vec()
        }
        (Some(Opcode::AtomicRequest), AtomicRequestRepr::LEN) => {
            let repr = AtomicRequestRepr::parse(payload).expect("52 octets");
            same(vector, fields, "aopcode", repr.operation.into());
            same(vector, fields, "request_id", repr.request_id.into());
            same(vector, fields, "remote_stag", repr.stag.0.into());
            same(vector, fields, "remote_to", repr.to);
            repr.emit().to_vec()
        }
        (Some(Opcode::AtomicResponse), AtomicResponseRepr::LEN) => {
            AtomicResponseRepr::parse(payload).expect("12 octets").emit().to_vec()
        }
        (Some(Opcode::Immediate | Opcode::ImmediateSolicited), ImmediateRepr::LEN) => {
            ImmediateRepr::parse(payload).expect("8 octets").emit().to_vec()
        }
        (Some(Opcode::Terminate), _) if valid(vector) => {
            let repr = TerminateRepr::parse(payload).expect("a control word");
            if fields["term"].is_object() {
                assert_eq!(repr.code, code(&fields["term"]), "{}", name(vector));
            }
            let meaning = &fields["siw_meaning"];
            if meaning.is_object() {
                // Swapping changes nothing where layer and type are equal.
                let meant = repr.swapped_code().unwrap_or(repr.code);
                assert_eq!(meant, code(meaning), "{}", name(vector));
            }
            let mut again = vec![0; repr.buffer_len()];
            assert_eq!(repr.emit(&mut again), Ok(again.len()));
            // A peer that sets reserved bits, or announces headers that it does not send, is decoded
            // and never imitated.
            if again[2..4] == payload[2..4] { again } else { payload.to_vec() }
        }
        _ => payload.to_vec(),
    }
}

fn encode(tx: &mut Tx, ulpdu: &[u8]) -> Vec<u8> {
    let plan = tx.plan(ulpdu.len() as u16);
    let mut out = vec![0xee; plan.wire_len()];
    plan.encode(&plan.length_field(), &mut out, |offset, to: &mut [u8]| {
        to.copy_from_slice(&ulpdu[offset as usize..][..to.len()]);
        Ok::<(), ()>(())
    })
    .expect("no copy fails");
    out
}

/// Equal octet for octet. A frame whose pad, marker bits or unused CRC field hold what a sender of
/// ours never writes may differ there, and in the CRC over it.
fn assert_same_wire(case: &str, framing: &Framing, at: u64, wire: &[u8], again: &[u8]) {
    if wire == again {
        return;
    }
    assert_eq!(wire.len(), again.len(), "{case}");
    let crc_at = wire.len() - 4;
    let header = if framing.markers && at.is_multiple_of(MARKER_INTERVAL as u64) { 4 } else { 0 };
    let pad = pad_len(u16::from_be_bytes([wire[header], wire[header + 1]]));
    for i in (0..crc_at).filter(|i| wire[*i] != again[*i]) {
        let in_marker = framing.markers && (at + i as u64) % MARKER_INTERVAL as u64 <= 3;
        assert!(in_marker || i + pad + 4 >= crc_at, "{case}: octet {i} differs");
    }
    let quiet = wire[..crc_at] == again[..crc_at];
    assert!(!(quiet && framing.crc), "{case}: only the crc differs");
}
