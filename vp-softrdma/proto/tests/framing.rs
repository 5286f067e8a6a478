//! MPA framing: every rule of RFC 5044 sections 4 to 6, both directions.
//!
//! Owner of the state: each test its own `Tx` and `Rx`. No thread, no IO; the peer is an octet string.

use iwarp_proto::mpa::{FpduPlan, Parsed, Rx, Tx, mulpdu};
use iwarp_proto::wire::mpa::{MAX_ULPDU, MarkerRepr, pad_len};
use iwarp_proto::{Crc32c, ProtocolError};
use proptest::prelude::*;

fn crc32c(crc: u32, octets: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, octets)
}

const ON: Option<Crc32c> = Some(crc32c);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |d: u8| (d as char).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

/// One FPDU of a whole ULPDU, whose first `head` octets are passed as headers.
fn encode(plan: &FpduPlan, ulpdu: &[u8], head: usize) -> Vec<u8> {
    let head = [&plan.length_field()[..], &ulpdu[..head]].concat();
    let payload = &ulpdu[head.len() - 2..];
    let (mut out, mut next) = (vec![0xee; plan.wire_len()], 0);
    let copied = plan.encode(&head, &mut out, |offset, to: &mut [u8]| {
        assert_eq!(offset as usize, next, "pieces come in order");
        assert!(!to.is_empty());
        next += to.len();
        to.copy_from_slice(&payload[offset as usize..next]);
        Ok::<(), ()>(())
    });
    assert_eq!((copied, next), (Ok(()), payload.len()));
    out
}

fn send(tx: &mut Tx, ulpdu: &[u8]) -> Vec<u8> {
    encode(&tx.plan(ulpdu.len() as u16), ulpdu, 0)
}

/// All ULPDUs of a stream and how it ends.
fn receive(rx: &mut Rx, mut stream: &[u8]) -> (Vec<Vec<u8>>, Option<ProtocolError>) {
    let mut ulpdus = Vec::new();
    loop {
        match rx.parse(stream) {
            Parsed::Fpdu(fpdu) => {
                assert!(fpdu.wire_len() > 0, "an FPDU has octets");
                ulpdus.push(fpdu.pieces(0).flatten().copied().collect());
                stream = &stream[fpdu.wire_len()..];
            }
            Parsed::Bad(error) => return (ulpdus, Some(error)),
            Parsed::Need(need) => {
                assert!(need > stream.len(), "{need} are there");
                return (ulpdus, None);
            }
        }
    }
}

// The RFC's own figures. [MPA-08] [MPA-09] [MPA-10] [MPA-24] [MPA-25]
#[test]
fn the_figures_of_rfc_5044_come_out() {
    let mut send_1 = hex("4143 00000000 00000000 00000001 00000000");
    send_1.resize(42, 0);
    let figure_5 = send(&mut Tx::new(ON, true), &send_1);
    assert_eq!(figure_5[..8], hex("00000000 002a4143"));
    assert_eq!(figure_5[48..], hex("52239983"));
    let mut send_2 = send_1.clone();
    send_2[13] = 2;
    let figure_6 = send(&mut Tx::at(ON, true, 492), &send_2);
    assert_eq!(figure_6[20..24], hex("00000014"));
    assert_eq!(figure_6[48..], hex("84925898"));
}

// [MPA-07] [MPA-08]
#[test]
fn the_crc_is_iscsis_least_octet_first() {
    assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(0, &[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
    let fpdu = send(&mut Tx::new(ON, false), b"12");
    assert_eq!(fpdu[4..], crc32c(0, &fpdu[..4]).to_le_bytes());
    let mut swapped = fpdu.clone();
    swapped[4..].reverse();
    let result = receive(&mut Rx::new(ON, false), &swapped);
    assert_eq!(result, (vec![], Some(ProtocolError::Crc)));
}

// Sizes and pad for every small ULPDU. [MPA-01] [MPA-02] [MPA-03] [MPA-05] [MPA-34]
#[test]
fn every_length_is_padded_to_four() {
    for len in 1..=4096usize {
        let ulpdu = pattern(len);
        let fpdu = send(&mut Tx::new(ON, false), &ulpdu);
        let pad = pad_len(len as u16);
        assert!(fpdu.len().is_multiple_of(4) && pad < 4);
        assert_eq!(fpdu.len(), 2 + len + pad + 4);
        assert_eq!(fpdu[..2], (len as u16).to_be_bytes());
        assert_eq!(fpdu[2 + len..][..pad], [0; 3][..pad]);
        assert_eq!(receive(&mut Rx::new(ON, false), &fpdu), (vec![ulpdu], None));
    }
}

// Pad octets may have any value, but the CRC covers them. [MPA-04]
#[test]
fn pad_is_ignored_and_covered() {
    let mut fpdu = send(&mut Tx::new(ON, false), &[5; 3]);
    fpdu[5] = 0xff;
    let (_, error) = receive(&mut Rx::new(ON, false), &fpdu);
    assert_eq!(error, Some(ProtocolError::Crc));
    let crc = crc32c(0, &fpdu[..8]).to_le_bytes();
    fpdu[8..].copy_from_slice(&crc);
    assert_eq!(receive(&mut Rx::new(ON, false), &fpdu).0, [vec![5; 3]]);
}

// Without CRC the field is still present: zero from us, any value from the peer. [MPA-06] [MPA-14]
#[test]
fn the_crc_field_stays_without_crc() {
    let mut fpdu = send(&mut Tx::new(None, false), b"ab");
    assert_eq!(fpdu, hex("0002 6162 00000000"));
    fpdu[4..].copy_from_slice(&hex("deadbeef"));
    assert_eq!(receive(&mut Rx::new(None, false), &fpdu).0, [b"ab".to_vec()]);
    // A correct CRC and a wrong one are both accepted.
    let correct = send(&mut Tx::new(ON, false), b"ab");
    assert_eq!(receive(&mut Rx::new(None, false), &correct).0, [b"ab".to_vec()]);
}

// A damaged FPDU and all octets after it are not delivered. [MPA-15] [MPA-37] [MPA-38]
#[test]
fn a_damaged_fpdu_ends_the_stream() {
    for markers in [false, true] {
        let mut tx = Tx::new(ON, markers);
        let first = send(&mut tx, &pattern(600));
        let bad = send(&mut tx, &pattern(50));
        let good = send(&mut tx, &pattern(51));
        for at in 2..bad.len() {
            let mut hurt = bad.clone();
            hurt[at] ^= 0x10;
            let stream = [&first[..], &hurt, &good].concat();
            let mut rx = Rx::new(ON, markers);
            assert_eq!(receive(&mut rx, &stream), (vec![pattern(600)], Some(ProtocolError::Crc)));
            // The error is permanent.
            assert_eq!(receive(&mut rx, &stream[first.len()..]).1, Some(ProtocolError::Crc));
        }
    }
}

/// An FPDU that announces `len` octets, possible or not, with a CRC that matches.
fn announced(len: u16, markers: bool) -> Vec<u8> {
    let plan = Tx::new(ON, markers).plan(len);
    encode(&plan, &pattern(len.into()), 0)
}

// With a CRC nothing is checked before the CRC, not even the length: a damaged FPDU is a CRC error
// whatever its length field is. RFC 5044 4.4 [MPA-04, MPA-15, MPA-16] [ERR-02, ERR-04]
#[test]
fn the_crc_is_judged_before_the_length() {
    for markers in [false, true] {
        for len in [0, MAX_ULPDU + 1, 65535] {
            let good = announced(len, markers);
            let judge = |octets: &[u8]| receive(&mut Rx::new(ON, markers), octets);
            assert_eq!(judge(&good), (vec![], Some(ProtocolError::UlpduLength)), "{len}");
            assert_eq!(judge(&good[..good.len() - 1]), (vec![], None), "{len}: not yet");
            let mut hurt = good.clone();
            hurt[good.len() - 1] ^= 1;
            assert_eq!(judge(&hurt), (vec![], Some(ProtocolError::Crc)), "{len}");
        }
    }
    let result = receive(&mut Rx::new(ON, false), &hex("00000000 deadbeef"));
    assert_eq!(result, (vec![], Some(ProtocolError::Crc)));
}

// The longest FPDU that can be announced fits a host's buffer for one.
#[test]
fn no_more_than_66_064_octets_are_waited_for() {
    for (markers, most) in [(false, 65_544), (true, 66_064)] {
        let front = &announced(65535, markers)[..6];
        let Parsed::Need(need) = Rx::new(ON, markers).parse(front) else { panic!("judged early") };
        assert_eq!(need, most);
    }
}

// [MPA-16] [ERR-04]
#[test]
fn without_crc_impossible_lengths_are_refused_at_once() {
    for len in [0, MAX_ULPDU + 1, 65535] {
        let mut rx = Rx::new(None, false);
        let result = receive(&mut rx, &len.to_be_bytes());
        assert_eq!(result, (vec![], Some(ProtocolError::UlpduLength)));
        // The same after a marker, and where none is due.
        let front = [&[0; 4][..], &len.to_be_bytes()].concat();
        let result = receive(&mut Rx::new(None, true), &front);
        assert_eq!(result, (vec![], Some(ProtocolError::UlpduLength)));
        let result = receive(&mut Rx::at(None, true, 4), &len.to_be_bytes());
        assert_eq!(result, (vec![], Some(ProtocolError::UlpduLength)));
    }
    let ulpdu = pattern(usize::from(MAX_ULPDU));
    for markers in [false, true] {
        let fpdu = send(&mut Tx::new(ON, markers), &ulpdu);
        assert_eq!(receive(&mut Rx::new(ON, markers), &fpdu), (vec![ulpdu.clone()], None));
    }
}

// Table 1 of the reference. [MPA-17] [MPA-18] [MPA-19]
#[test]
fn mulpdu_follows_the_emss() {
    let table = [
        (100, 128, 128),
        (136, 130, 128),
        (512, 506, 502),
        (536, 530, 522),
        (1440, 1434, 1422),
        (1448, 1442, 1430),
        (1460, 1454, 1442),
        (1461, 1454, 1442),
        (1462, 1454, 1442),
        (1463, 1454, 1442),
        (8948, 8942, 8870),
        (8960, 8954, 8882),
        (16384, 16378, 16250),
        (65495, 64768, 64768),
        (0, 128, 128),
        (65535, 64768, 64768),
    ];
    for (emss, without, with) in table {
        assert_eq!((mulpdu(emss, false), mulpdu(emss, true)), (without, with), "{emss}");
    }
}

// An FPDU of MULPDU octets fits the EMSS at any stream position. [MPA-17] [MPA-18] [MPA-20]
#[test]
fn an_fpdu_of_mulpdu_octets_fits_the_segment() {
    for emss in (160..9000).step_by(7) {
        for position in (0..512).step_by(4) {
            let mut tx = Tx::at(ON, true, position);
            assert!(tx.plan(mulpdu(emss, true)).wire_len() <= usize::from(emss));
        }
        assert!(Tx::new(ON, false).plan(mulpdu(emss, false)).wire_len() <= usize::from(emss));
    }
}

/// Offset and pointer of every marker in a stream that begins at `position`.
fn markers(stream: &[u8], position: usize) -> Vec<(usize, u16)> {
    let first = (512 - position % 512) % 512;
    (first..stream.len())
        .step_by(512)
        .map(|at| (at, MarkerRepr::parse(&stream[at..]).expect("a marker")))
        .map(|(at, marker)| {
            assert_eq!(marker.reserved, 0);
            (position + at, marker.fpduptr)
        })
        .collect()
}

// Table 2 of the reference. [MPA-22] [MPA-23] [MPA-24] [MPA-25] [MPA-27]
#[test]
fn several_markers_in_one_fpdu_point_at_its_header() {
    let mut tx = Tx::new(ON, true);
    let write = send(&mut tx, &pattern(1114));
    assert_eq!(write.len(), 1132);
    assert_eq!(markers(&write, 0), [(0, 0), (512, 508), (1024, 1020)]);
    // The next one begins at 1132 with no marker before it.
    let next = send(&mut tx, &pattern(1114));
    assert_eq!(next[..2], 1114u16.to_be_bytes());
    assert_eq!(markers(&next, 1132), [(1536, 404), (2048, 916)]);
    let stream = [write, next].concat();
    assert_eq!(receive(&mut Rx::new(ON, true), &stream), (vec![pattern(1114); 2], None));
}

// A marker between two FPDUs belongs to the second, and is not sent before it. [MPA-10] [MPA-29]
#[test]
fn a_marker_between_fpdus_belongs_to_the_following_one() {
    let mut tx = Tx::at(ON, true, 512 - 48);
    let first = send(&mut tx, &pattern(42));
    assert_eq!(first.len(), 48);
    let second = send(&mut tx, &pattern(42));
    assert_eq!((second.len(), &second[..4]), (52, &[0; 4][..]));
    let mut rx = Rx::at(ON, true, 512 - 48);
    // The first FPDU is complete without the marker.
    assert_eq!(receive(&mut rx, &first), (vec![pattern(42)], None));
    let mut hurt = second.clone();
    hurt[0] = 1;
    assert_eq!(receive(&mut rx.clone(), &hurt), (vec![], Some(ProtocolError::Crc)));
    assert_eq!(receive(&mut rx, &second), (vec![pattern(42)], None));
}

// [MPA-11]
#[test]
fn a_marker_between_pad_and_crc_belongs_to_this_fpdu() {
    let fpdu = send(&mut Tx::new(ON, true), &pattern(505));
    assert_eq!(fpdu.len(), 4 + 508 + 4 + 4);
    assert_eq!(markers(&fpdu, 0), [(0, 0), (512, 508)]);
    assert_eq!(fpdu[516..], crc32c(0, &fpdu[..516]).to_le_bytes());
}

// [MPA-22] [MPA-26] [MPA-30]
#[test]
fn reserved_marker_bits_are_ignored_and_covered() {
    let check = |at: usize, octet: u8, fix_crc: bool| {
        let mut fpdu = send(&mut Tx::at(ON, true, 492), &pattern(42));
        fpdu[at] = octet;
        if fix_crc {
            let end = fpdu.len() - 4;
            let crc = crc32c(0, &fpdu[..end]).to_le_bytes();
            fpdu[end..].copy_from_slice(&crc);
        }
        receive(&mut Rx::at(ON, true, 492), &fpdu).1
    };
    // Reserved half, low bits of the pointer, then the pointer itself.
    assert_eq!((check(20, 0xff, true), check(20, 0xff, false)), (None, Some(ProtocolError::Crc)));
    assert_eq!(check(23, 0x17, true), None);
    assert_eq!(check(23, 0x10, true), Some(ProtocolError::Marker));
}

// Without CRC a marker that is off still ends the stream. [MPA-30] [MPA-37] [ERR-03]
#[test]
fn markers_are_checked_without_crc() {
    let mut fpdu = send(&mut Tx::new(None, true), &pattern(600));
    assert_eq!(receive(&mut Rx::new(None, true), &fpdu), (vec![pattern(600)], None));
    fpdu[3] = 4;
    assert_eq!(receive(&mut Rx::new(None, true), &fpdu).1, Some(ProtocolError::Marker));
}

// The front of an FPDU is where a marker is due: the field read as its length is no length, and is not
// what is checked. [MPA-15] [MPA-30] [MPA-37] [ERR-02, ERR-03]
#[test]
fn octets_that_are_no_marker_are_not_a_length() {
    let mut stream = hex("0016414300000000 00000000");
    stream.resize(64, 0);
    for (crc, expected) in [(ON, ProtocolError::Crc), (None, ProtocolError::Marker)] {
        assert_eq!(receive(&mut Rx::new(crc, true), &stream), (vec![], Some(expected)));
        // However few octets arrive at once.
        let mut rx = Rx::new(crc, true);
        let judged = (0..stream.len()).find_map(|len| match rx.parse(&stream[..len]) {
            Parsed::Bad(error) => Some(error),
            _ => None,
        });
        assert_eq!(judged, Some(expected));
    }
    // Wrong marker, wrong length, correct CRC: the error is the marker.
    let mut fpdu = announced(0, true);
    fpdu[3] = 8;
    let end = fpdu.len() - 4;
    let crc = crc32c(0, &fpdu[..end]).to_le_bytes();
    fpdu[end..].copy_from_slice(&crc);
    assert_eq!(receive(&mut Rx::new(ON, true), &fpdu).1, Some(ProtocolError::Marker));
}

// Many small FPDUs share an interval. [MPA-27]
#[test]
fn a_marker_points_at_the_fpdu_that_contains_it() {
    let (mut tx, mut stream, mut starts) = (Tx::new(ON, true), Vec::new(), Vec::new());
    for len in (1..200).map(|n| n % 37 + 1) {
        starts.push(stream.len() + if stream.len() % 512 == 0 { 4 } else { 0 });
        stream.extend(send(&mut tx, &pattern(len)));
    }
    for (at, pointer) in markers(&stream, 0) {
        let header = starts.iter().rev().find(|s| **s < at);
        let between = starts.contains(&(at + 4));
        let expected = header.map_or(0, |h| if between { 0 } else { at - h });
        assert_eq!(usize::from(pointer), expected, "marker at {at}");
    }
}

// Marker positions are counted from full operation on, wherever that is in the TCP stream. [MPA-23]
// [CONN-15]
#[test]
fn the_marker_origin_is_the_first_octet_of_full_operation() {
    let stream = |position: u64| {
        let mut tx = Tx::at(ON, true, position);
        (0..40).flat_map(|_| send(&mut tx, &pattern(333))).collect::<Vec<_>>()
    };
    // TCP's 2^32 is a multiple of 512: crossing it changes nothing.
    assert_eq!(stream(0), stream(1 << 32));
    let near = (1 << 32) - 256;
    let received = receive(&mut Rx::at(ON, true, near), &stream(near));
    assert_eq!(received, (vec![pattern(333); 40], None));
}

// Gathering: length field, head, payload and trailer are the FPDU. [MPA-06] [MPA-14]
#[test]
fn gathering_gives_the_same_octets() {
    for len in 1..64 {
        let ulpdu = pattern(len);
        let plan = Tx::new(None, false).plan(len as u16);
        assert!(plan.gathers());
        let gathered = [&plan.length_field()[..], &ulpdu, plan.trailer()].concat();
        assert_eq!((gathered.len(), plan.ulpdu_len()), (plan.wire_len(), len as u16));
        assert_eq!(gathered, encode(&plan, &ulpdu, 0));
    }
    assert!(!Tx::new(ON, false).plan(9).gathers());
    assert!(!Tx::new(None, true).plan(9).gathers());
    // With markers on, an FPDU without one could be gathered.
    assert!(Tx::at(None, true, 4).plan(9).gathers());
}

// A copying caller may compute the CRC meanwhile: the FPDU is the same, with header and pad in the CRC.
#[test]
fn a_copy_may_sum_on_the_way() {
    for (crc, markers, len) in
        [(ON, false, 41), (ON, false, 3000), (ON, true, 700), (None, false, 41)]
    {
        let plan = Tx::new(crc, markers).plan(len);
        let ulpdu = pattern(len.into());
        let head = [&plan.length_field()[..], &ulpdu[..14]].concat();
        let (mut out, mut summed) = (vec![0xee; plan.wire_len()], false);
        let copied = plan.encode_summed(&head, &mut out, |offset, to, crc| {
            to.copy_from_slice(&ulpdu[14 + offset as usize..][..to.len()]);
            if let Some(crc) = crc {
                assert_eq!(*crc, crc32c(0, &head));
                *crc = crc32c(*crc, to);
                summed = true;
            }
            Ok::<(), ()>(())
        });
        assert_eq!((copied, summed), (Ok(()), crc.is_some() && !markers));
        assert_eq!(out, encode(&plan, &ulpdu, 14));
    }
}

// A failing copy fails the FPDU.
#[test]
fn a_failing_copy_is_reported() {
    for markers in [false, true] {
        let plan = Tx::new(ON, markers).plan(40);
        let mut out = vec![0; plan.wire_len()];
        assert_eq!(plan.encode(&plan.length_field(), &mut out, |_, _| Err(7)), Err(7));
    }
}

// The front of an FPDU is available before its end, so that it can be placed as it arrives.
#[test]
fn the_front_of_an_fpdu_can_be_seen_early() {
    let rx = Rx::new(None, false);
    assert!(rx.places_early());
    assert!(!Rx::new(ON, false).places_early() && !Rx::new(None, true).places_early());
    let fpdu = send(&mut Tx::new(None, false), &pattern(1000));
    assert!(matches!(rx.peek(&fpdu[..1]), Err(Parsed::Need(2))));
    for seen in 2..fpdu.len() {
        let peek = rx.peek(&fpdu[..seen]).expect("a length");
        assert_eq!((peek.ulpdu_len, peek.wire_len), (1000, fpdu.len()));
        assert_eq!(peek.ulpdu, &pattern(1000)[..(seen - 2).min(1000)]);
    }
}

// The memory of a stream per QP, as documented.
#[test]
fn the_framing_state_is_sixteen_octets_each_way() {
    assert_eq!((size_of::<Tx>(), size_of::<Rx>(), size_of::<FpduPlan>()), (16, 16, 16));
}

proptest! {
    // encode then decode is the identity, at any position, with any number of head octets; every
    // piece boundary and the contiguous head are right. [MPA-05] [MPA-23] [MPA-25] [MPA-34]
    #[test]
    fn encode_then_decode_is_the_identity(
        ulpdus in proptest::collection::vec((1usize..1600, 0usize..90), 1..12),
        position in (0u64..512).prop_map(|p| p & !3),
        crc in any::<bool>(),
        markers in any::<bool>(),
    ) {
        let kernel = crc.then_some(crc32c as Crc32c);
        let (mut tx, mut rx) = (Tx::at(kernel, markers, position), Rx::at(kernel, markers, position));
        for (len, head) in ulpdus {
            let (ulpdu, head) = (pattern(len), head.min(len));
            let octets = encode(&tx.plan(len as u16), &ulpdu, head);
            // Nothing is reported of an FPDU before its last octet.
            for cut in [0, 1, 2, octets.len() / 2, octets.len() - 1] {
                let need = match rx.parse(&octets[..cut]) {
                    Parsed::Need(need) => need,
                    other => panic!("{other:?}"),
                };
                prop_assert!(need > cut && need <= octets.len());
            }
            let Parsed::Fpdu(fpdu) = rx.parse(&octets) else { panic!("no fpdu") };
            prop_assert_eq!(fpdu.wire_len(), octets.len());
            let mut scratch = [0; 90];
            prop_assert_eq!(fpdu.head(&mut scratch), &ulpdu[..len.min(90)]);
            let payload = fpdu.pieces(head);
            prop_assert_eq!(payload.remaining(), len - head);
            let pieces: Vec<&[u8]> = payload.collect();
            prop_assert!(pieces.iter().all(|p| !p.is_empty()));
            prop_assert!(markers || pieces.len() <= 1);
            prop_assert_eq!(pieces.concat(), &ulpdu[head..]);
        }
    }

    // A stream in any pieces gives the same FPDUs, whatever its octets: the receiver passes octets that
    // were not consumed again, with more. No input panics. [MPA-31] [MPA-33] [SEC-18]
    #[test]
    fn chunking_changes_nothing(
        lens in proptest::collection::vec(1usize..700, 1..8),
        hurt in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
        steps in proptest::collection::vec(1usize..300, 1..40),
        crc in any::<bool>(),
        markers in any::<bool>(),
    ) {
        let kernel = crc.then_some(crc32c as Crc32c);
        let mut tx = Tx::new(kernel, markers);
        let mut stream: Vec<u8> = lens.iter().flat_map(|l| send(&mut tx, &pattern(*l))).collect();
        if let Some((index, octet)) = hurt {
            *index.get_mut(&mut stream) = octet;
        }
        let whole = receive(&mut Rx::new(kernel, markers), &stream);
        let (mut rx, mut got) = (Rx::new(kernel, markers), (Vec::new(), None));
        let (mut start, mut end) = (0, 0);
        for step in steps.into_iter().cycle() {
            let (ulpdus, error) = receive_some(&mut rx, &stream[start..end], &mut start);
            got.0.extend(ulpdus);
            got.1 = error;
            if error.is_some() || end == stream.len() {
                break;
            }
            end = (end + step).min(stream.len());
        }
        prop_assert_eq!(got, whole);
    }

    // Any octets: a result, never a panic, never an FPDU that was not sent. [SEC-18]
    #[test]
    fn no_octets_panic(
        octets in proptest::collection::vec(any::<u8>(), 0..300),
        position in (0u64..512).prop_map(|p| p & !3),
        markers in any::<bool>(),
    ) {
        for kernel in [None, ON] {
            let mut rx = Rx::at(kernel, markers, position);
            if let Ok(peek) = rx.peek(&octets) {
                prop_assert!(peek.ulpdu.len() <= usize::from(peek.ulpdu_len));
            }
            match rx.parse(&octets) {
                Parsed::Fpdu(fpdu) => {
                    prop_assert!(fpdu.wire_len() <= octets.len());
                    prop_assert_eq!(fpdu.pieces(0).flatten().count(), usize::from(fpdu.ulpdu_len()));
                }
                Parsed::Need(need) => prop_assert!(need > octets.len()),
                Parsed::Bad(_) => {}
            }
        }
    }
}

fn receive_some(
    rx: &mut Rx,
    mut window: &[u8],
    start: &mut usize,
) -> (Vec<Vec<u8>>, Option<ProtocolError>) {
    let mut ulpdus = Vec::new();
    loop {
        match rx.parse(window) {
            Parsed::Fpdu(fpdu) => {
                ulpdus.push(fpdu.pieces(0).flatten().copied().collect());
                window = &window[fpdu.wire_len()..];
                *start += fpdu.wire_len();
            }
            Parsed::Bad(error) => return (ulpdus, Some(error)),
            Parsed::Need(_) => return (ulpdus, None),
        }
    }
}
