//! The decoder for people: every vector is explained completely, with the vector's expected result.
//!
//! Owner of the state: none. No thread, no IO; the peer is an octet string.

mod common;

use std::collections::BTreeMap;

use common::{VECTORS, check_each, crc32c, load, number, octets, parse};
use iwarp_proto::TerminateCode;
use iwarp_proto::decode::{DecodeOptions, Frame, Layer, Start, Value as FieldValue, explain};
use proptest::prelude::*;
use serde_json::Value;

fn options(vector: &Value) -> DecodeOptions {
    let context = &vector["context"];
    let startup = vector["kind"].as_str().is_some_and(|kind| kind.starts_with("mpa"));
    let position = number(&context["stream_pos"]).unwrap_or(0);
    DecodeOptions {
        crc: (context["crc"] != Value::Bool(false)).then_some(crc32c),
        markers: context["markers"] == Value::Bool(true),
        start: if startup { Start::Startup } else { Start::Fpdu { position } },
    }
}

fn code(value: &Value) -> Option<TerminateCode> {
    let part = |key: &str| number(&value[key]).map(|n| n as u8);
    Some(TerminateCode::new(part("layer")?, part("type")?, part("code")?))
}

/// Every octet belongs to one frame and, except for bit fields, to one field.
fn assert_complete(octets: &[u8], frames: &[Frame]) {
    let mut next = 0;
    let mut covered = vec![0u8; octets.len()];
    for frame in frames {
        assert_eq!(frame.offset, next);
        next += frame.length;
        assert!(frame.length <= frame.full_length || frame.what == "undecodable");
        for field in &frame.fields {
            assert!(field.offset >= frame.offset && field.offset < next, "{field:?}");
            if let FieldValue::Octets(held) = &field.value {
                assert_eq!(held.len(), field.length);
            }
        }
        let mut bits: BTreeMap<usize, u8> = BTreeMap::new();
        for field in &frame.fields {
            match field.bits {
                Some((first, count)) if field.length == 1 => {
                    assert_eq!(first, *bits.get(&field.offset).unwrap_or(&0), "{}", field.name);
                    bits.insert(field.offset, first + count);
                    covered[field.offset] = 1;
                }
                Some((first, _)) => {
                    assert_eq!(bits.remove(&field.offset), Some(first));
                    covered[field.offset + 1] += 1;
                }
                // Around markers a field's octets are not contiguous.
                None => covered[field.offset] += 1,
            }
        }
    }
    assert_eq!(next, octets.len());
    assert!(covered.iter().all(|times| *times <= 1), "{covered:?}");
}

// Faults that can be detected without a connection's state are reported, with the right code.
#[test]
fn every_vector_has_its_expected_result() {
    let file = load();
    check_each(file["vectors"].as_array().expect("a list of vectors"), |vector| {
        let (input, name) = (octets(vector, "hex"), vector["name"].as_str().unwrap_or("?"));
        let frames = explain(&input, options(vector));
        assert_complete(&input, &frames);
        let found = frames.iter().flat_map(Frame::violations).next();
        let Some(violation) = found else { return };
        assert_eq!(vector["valid"], Value::Bool(false), "{name}: {violation:?}");
        let error = &vector["expected_error"];
        let also = error["also_acceptable"].as_array().cloned().unwrap_or_default();
        let expected: Vec<_> = [error].into_iter().chain(&also).map(code).collect();
        let sent = violation.terminate;
        // Another file may report the other fault of a frame with two faults.
        if std::env::var_os("IWARP_VECTORS").is_none() {
            assert!(expected.contains(&sent), "{name}: {violation:?}, expected {expected:?}");
        }
    });
}

/// What is wrong with an untagged segment, without CRC.
fn faults_of(control: [u8; 2], qn: u8, mo: u32, payload: &[u8]) -> Vec<&'static str> {
    let len = 18 + payload.len() as u8;
    let mut octets = vec![0, len, control[0], control[1], 0, 0, 0, 0, 0, 0, 0, qn, 0, 0, 0, 1];
    octets.extend(mo.to_be_bytes());
    octets.extend(payload);
    octets.resize(octets.len().next_multiple_of(4) + 4, 0);
    let start = Start::Fpdu { position: 0 };
    let frames = explain(&octets, DecodeOptions { crc: None, markers: false, start });
    frames.iter().flat_map(Frame::violations).map(|fault| fault.requirement).collect()
}

const NONE: [&str; 0] = [];

// [DDP-14]: a message may end at the largest offset.
#[test]
fn the_last_offset_is_one() {
    const SEND: [u8; 2] = [0x41, 0x43];
    assert_eq!(faults_of(SEND, 0, 0xffff_fffc, &[7; 4]), NONE);
    assert_eq!(faults_of(SEND, 0, 0xffff_fffc, &[7; 5]), ["DDP-14"]);
}

// [RDMAP-07]: the source of a Read may end at the largest tagged offset.
#[test]
fn the_last_tagged_offset_is_one() {
    let read = |size: u32| {
        let sink = [&[0, 0, 1, 0][..], &[0; 8]].concat();
        let source = [&[0, 0, 2, 0][..], &(u64::MAX - 7).to_be_bytes()].concat();
        faults_of([0x41, 0x41], 1, 0, &[&sink[..], &size.to_be_bytes(), &source].concat())
    };
    assert_eq!(read(8), NONE);
    assert_eq!(read(9), ["RDMAP-07"]);
}

// [EXT-10]
#[test]
fn an_atomic_response_is_one_segment() {
    assert_eq!(faults_of([0x41, 0x4b], 3, 0, &[0; 12]), NONE);
    assert_eq!(faults_of([0x01, 0x4b], 3, 0, &[0; 12]), ["EXT-10"]);
}

// RFC 6580: the FPDU does not show whether the ends agreed on it.
#[test]
fn a_send_with_immediate_is_named() {
    for (control, name) in
        [(0x4f, "Send with Immediate"), (0x5f, "Send with Immediate and Solicited Event")]
    {
        assert_eq!(faults_of([0x41, control], 0, 0, &[7; 4]), NONE);
        assert_eq!(faults_of([0x41, control], 1, 0, &[7; 4]), ["RDMAP-02"], "the queue of Sends");
        let mut octets = vec![0, 18, 0x41, control, 1, 2, 3, 4];
        octets.extend([0; 8].iter().chain(&[0, 0, 0, 1]).chain(&[0; 8]));
        let start = Start::Fpdu { position: 0 };
        let frames = explain(&octets, DecodeOptions { crc: None, markers: false, start });
        assert_eq!(frames[0].what, name);
        let immediate = frames[0].fields.iter().find(|field| field.name == "Immediate");
        assert_eq!(immediate.map(|field| &field.value), Some(&FieldValue::Hex(0x0102_0304, 8)));
    }
}

// These need no state at all.
#[test]
fn faults_without_state_are_found() {
    let stateless = [
        ("bad_crc_byteswapped", "MPA-09"),
        ("bad_crc_zero", "MPA-09"),
        ("bad_marker_ptr", "MPA-25"),
        ("bad_ulpdu_len_0", "MPA-16"),
        ("bad_crc_ulpdu_len_0", "MPA-09"),
        ("bad_marker_absent", "MPA-09"),
        ("bad_marker_absent_no_crc", "MPA-25"),
        ("bad_ulpdu_shorter_than_untagged", "DDP-24"),
        ("bad_ddp_version_tagged", "DDP-04"),
        ("bad_ddp_version_untagged", "DDP-04"),
        ("bad_rdmap_version", "RDMAP-01"),
        ("bad_opcode_c", "RDMAP-02"),
        ("bad_opcode_send_tagged", "RDMAP-02"),
        ("bad_qn_send_on_1", "RDMAP-02"),
        ("bad_stag_zero", "VERBS-23"),
        ("bad_mo_plus_len_overflow", "DDP-14"),
        ("bad_read_to_wrap", "RDMAP-07"),
        ("bad_read_short", "RDMAP-04"),
        ("bad_read_long", "RDMAP-04"),
        ("bad_read_mo", "DDP-07"),
        ("bad_imm_short", "EXT-02"),
        ("bad_atomic_opcode1", "EXT-05"),
        ("bad_term_msn", "RDMAP-20"),
        ("bad_term_2_octets", "RDMAP-32"),
        ("bad_mpa_pd_length_513", "CONN-07"),
        ("bad_mpa_rev3", "CONN-06"),
        ("bad_mpa_rev0", "CONN-31"),
        ("bad_mpa_enh_pd_lt4", "CONN-16"),
    ];
    let file = load();
    let all = file["vectors"].as_array().expect("a list of vectors");
    for (name, requirement) in stateless {
        let Some(vector) = all.iter().find(|v| v["name"] == name) else { continue };
        let frames = explain(&octets(vector, "hex"), options(vector));
        let found = frames.iter().flat_map(Frame::violations).next();
        assert_eq!(found.map(|v| v.requirement), Some(requirement), "{name}");
    }
}

// RFC 5040 4.8 [RDMAP-20]
#[test]
fn a_terminate_is_one_segment() {
    let judge = |control: u8| {
        let mut ulpdu = vec![0, 22, control, 0x47];
        for field in [0, 2, 1, 0, 0x2002_0000u32] {
            ulpdu.extend(field.to_be_bytes());
        }
        ulpdu.extend(crc32c(0, &ulpdu).to_le_bytes());
        let start = Start::Fpdu { position: 0 };
        let frames = explain(&ulpdu, DecodeOptions { crc: Some(crc32c), markers: false, start });
        let found: Vec<_> = frames.iter().flat_map(Frame::violations).cloned().collect();
        found.iter().map(|v| (v.requirement, v.terminate)).collect::<Vec<_>>()
    };
    assert_eq!(judge(0x41), []);
    assert_eq!(judge(0x01), [("RDMAP-20", None)]);
}

/// Frames that are in no vector: a length above the largest, an Atomic Request that is too short, one
/// that is too long, and none with a detectable fault.
fn further() -> Vec<(&'static str, Vec<u8>, bool)> {
    let fpdu = |ulpdu: &[u8]| {
        let mut frame = [&(ulpdu.len() as u16).to_be_bytes()[..], ulpdu].concat();
        frame.resize(frame.len().next_multiple_of(4), 0);
        let crc = crc32c(0, &frame).to_le_bytes();
        [frame, crc.to_vec()].concat()
    };
    let untagged = |opcode: u8, queue: u8, payload: usize| {
        let mut ulpdu =
            vec![0x41, 0x40 | opcode, 0, 0, 0, 0, 0, 0, 0, queue, 0, 0, 0, 1, 0, 0, 0, 0];
        ulpdu.resize(18 + payload, 0);
        fpdu(&ulpdu)
    };
    vec![
        ("length 65535, cut off", vec![0xff, 0xff, 0x41, 0x43], false),
        ("length 64768, cut off", vec![0xfd, 0x00, 0x41, 0x43], false),
        ("length 64769, cut off", vec![0xfd, 0x01, 0x41, 0x43], false),
        ("a short Atomic Request", untagged(10, 1, 51), false),
        ("a long Atomic Request", untagged(10, 1, 53), false),
        ("a short Atomic Response", untagged(11, 3, 11), false),
        ("a short Read Request", untagged(1, 1, 27), false),
        ("a bare Terminate", untagged(7, 2, 4), false),
        ("one octet", vec![0], false),
        ("three octets where a marker is due", vec![0; 3], true),
        ("a marker and one octet", vec![0; 5], true),
        ("half a start-up frame", b"MPA ID Rep Frame\x40".to_vec(), false),
        ("half a key", b"MPA ID R".to_vec(), false),
        ("no key", b"MPA ID Rxx".to_vec(), false),
    ]
}

/// Every field of a frame, one per line.
fn rendered(frame: &Frame) -> String {
    let head = format!("  {} {} {}/{}", frame.offset, frame.what, frame.length, frame.full_length);
    let fields = frame.fields.iter().map(|field| {
        let bits = field.bits.map_or(String::new(), |(first, count)| format!(":{first}.{count}"));
        let value = match &field.value {
            FieldValue::Number(number) => format!("{number}"),
            FieldValue::Hex(number, digits) => {
                format!("{number:0width$x}", width = usize::from(*digits))
            }
            FieldValue::Octets(octets) => format!("{} octets", octets.len()),
        };
        let note = if field.note.is_empty() { String::new() } else { format!(" ({})", field.note) };
        let wrong =
            |v: &iwarp_proto::decode::Violation| format!(" !! {}: {}", v.requirement, v.text);
        let wrong = field.violation.as_ref().map_or(String::new(), wrong);
        let (at, length, layer, name) =
            (field.offset, field.length, field.layer.name(), field.name);
        format!("    {at}+{length}{bits} {layer} {name} = {value}{note}{wrong}")
    });
    std::iter::once(head).chain(fields).map(|line| line + "\n").collect()
}

// The text for every vector, field by field, was reviewed once; this test compares it. After an
// intended change: WARPLINE_UPDATE=1 cargo test -p iwarp-proto --test decode, then review the diff.
#[test]
fn every_field_is_explained_as_it_was_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/explained.txt");
    let file = parse(VECTORS);
    let all = file["vectors"].as_array().expect("a list of vectors");
    let mut text = String::new();
    for vector in all {
        text += &format!("{}\n", vector["name"].as_str().expect("a name"));
        explain(&octets(vector, "hex"), options(vector)).iter().for_each(|f| text += &rendered(f));
    }
    for (name, octets, markers) in further() {
        text += &format!("{name}\n");
        let options = DecodeOptions { crc: Some(crc32c), markers, start: Start::Detect };
        explain(&octets, options).iter().for_each(|frame| text += &rendered(frame));
    }
    if std::env::var_os("WARPLINE_UPDATE").is_some() {
        std::fs::write(path, &text).expect("the file can be written");
    }
    let held = std::fs::read_to_string(path).expect("the file that is held");
    let differs = held.lines().zip(text.lines()).position(|(held, now)| held != now);
    if let Some(line) = differs {
        let (held, now) = (held.lines().nth(line), text.lines().nth(line));
        panic!("line {}: {held:?} is now {now:?}", line + 1);
    }
    assert_eq!(held.lines().count(), text.lines().count());
}

fn names(frame: &Frame) -> Vec<&'static str> {
    frame.fields.iter().map(|field| field.name).collect()
}

#[test]
fn a_conversation_is_explained_field_by_field() {
    let mut input = b"MPA ID Req Frame".to_vec();
    input.extend([0x50, 2, 0, 6, 0x80, 4, 0xbf, 0xff, b'h', b'i']);
    input.extend([0, 14, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let crc = crc32c(0, &input[26..]).to_le_bytes();
    input.extend(crc);
    let frames =
        explain(&input, DecodeOptions { crc: Some(crc32c), markers: false, start: Start::Detect });
    assert_complete(&input, &frames);
    let [request, write] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((request.what, write.what), ("MPA Request", "RDMA Write"));
    assert_eq!(
        names(request),
        [
            "Key",
            "M",
            "C",
            "R",
            "S",
            "Res",
            "Rev",
            "PD_Length",
            "A",
            "B",
            "IRD",
            "C",
            "D",
            "ORD",
            "Private Data"
        ]
    );
    assert_eq!(
        names(write),
        [
            "ULPDU_Length",
            "T",
            "L",
            "DDP Rsvd",
            "DV",
            "RV",
            "RDMAP Rsv",
            "Opcode",
            "STag",
            "TO",
            "CRC"
        ]
    );
    let ord = &request.fields[13];
    assert_eq!(
        (&ord.value, &ord.note[..]),
        (&FieldValue::Number(0x3fff), "no automatic negotiation")
    );
    let to = &write.fields[9];
    assert_eq!((to.layer, to.offset, to.length), (Layer::Ddp, 26 + 8, 8));
    assert_eq!(to.value, FieldValue::Hex(0, 16));
    assert!(frames.iter().all(|frame| frame.violations().next().is_none()));
}

// Offsets of fields include the markers.
#[test]
fn markers_are_shown_where_they_stand() {
    let file = load();
    let all = file["vectors"].as_array().expect("a list of vectors");
    let Some(vector) = all.iter().find(|v| v["name"] == "rfc5044_fig6") else { return };
    let frames = explain(&octets(vector, "hex"), options(vector));
    let [frame] = &frames[..] else { panic!("{frames:?}") };
    let at = |name: &str| frame.fields.iter().find(|f| f.name == name).map(|f| f.offset);
    assert_eq!((at("MO"), at("FPDUPTR"), at("Payload")), (Some(16), Some(22), Some(24)));
    assert_eq!(at("CRC"), Some(48));
}

// The end of the input in the middle of a frame is noted, and is not a fault.
#[test]
fn cut_off_octets_are_named() {
    let file = load();
    check_each(file["vectors"].as_array().expect("a list of vectors"), |vector| {
        let input = octets(vector, "hex");
        if vector["valid"] != Value::Bool(true) {
            return;
        }
        for cut in 1..input.len().min(200) {
            let frames = explain(&input[..cut], options(vector));
            assert_complete(&input[..cut], &frames);
            let found = frames.iter().flat_map(Frame::violations).next();
            assert_eq!(found, None, "{} cut at {cut}", vector["name"]);
            let last = frames.last().expect("a frame");
            let explains = |note: &str| note.contains("missing") || note.contains("too few");
            let complete = last.length == last.full_length;
            assert!(complete || last.fields.iter().any(|f| explains(&f.note)), "{last:?}");
        }
    });
}

proptest! {
    // [SEC-18]
    #[test]
    fn no_octets_panic(
        mut octets in proptest::collection::vec(any::<u8>(), 0..400),
        prefix in prop_oneof![
            Just(&b""[..]), Just(&b"MPA ID Req Frame"[..]), Just(&[0, 30, 0x41, 0x47][..]),
            Just(&[0, 70, 0x41, 0x4a][..]), Just(&[0, 46, 0x41, 0x41][..]),
        ],
        crc in any::<bool>(),
        markers in any::<bool>(),
        start in prop_oneof![
            Just(Start::Startup), Just(Start::Detect),
            (0u64..512).prop_map(|p| Start::Fpdu { position: p & !3 }),
        ],
    ) {
        octets.splice(..0, prefix.iter().copied());
        let crc = crc.then_some(crc32c as iwarp_proto::Crc32c);
        let frames = explain(&octets, DecodeOptions { crc, markers, start });
        assert_complete(&octets, &frames);
    }
}
