//! Headers: encode then decode is the identity, no input panics; and the table of errors.
//!
//! Owner of the state: none. No thread, no IO, no peer.

use iwarp_proto::error::TerminateHeaders;
use iwarp_proto::wire::ddp::{self, Header, TaggedRepr, UntaggedRepr};
use iwarp_proto::wire::mpa::{EnhancedRepr, FrameKind, MarkerRepr, StartupRepr};
use iwarp_proto::wire::rdmap::{
    self, AtomicRequestRepr, AtomicResponseRepr, ImmediateRepr, Opcode, ReadRequestRepr, qn,
};
use iwarp_proto::wire::terminate::TerminateRepr;
use iwarp_proto::{ProtocolError, Stag, TerminateCode, WireError};
use proptest::prelude::*;

fn tagged() -> impl Strategy<Value = TaggedRepr> {
    any::<(u8, u8, u32, u64)>().prop_map(|(control, ulp, stag, to)| TaggedRepr {
        control: ddp::Control(control | 0x80),
        ulp,
        stag: Stag(stag),
        to,
    })
}

fn untagged() -> impl Strategy<Value = UntaggedRepr> {
    any::<(u8, u8, u32, u32, u32, u32)>().prop_map(|(control, ulp, ulp_word, qn, msn, mo)| {
        UntaggedRepr { control: ddp::Control(control & 0x7f), ulp, ulp_word, qn, msn, mo }
    })
}

fn header() -> impl Strategy<Value = Header> {
    prop_oneof![tagged().prop_map(Header::Tagged), untagged().prop_map(Header::Untagged)]
}

fn read_request() -> impl Strategy<Value = ReadRequestRepr> {
    any::<(u32, u64, u32, u32, u64)>().prop_map(|(sink, sink_to, size, source, source_to)| {
        ReadRequestRepr {
            sink_stag: Stag(sink),
            sink_to,
            size,
            source_stag: Stag(source),
            source_to,
        }
    })
}

fn terminate() -> impl Strategy<Value = TerminateRepr> {
    let headers = proptest::option::of((header(), proptest::option::of(read_request())));
    ((0u8..16, 0u8..16, any::<u8>()), proptest::option::of(any::<u16>()), headers).prop_map(
        |((layer, etype, code), segment_length, headers)| TerminateRepr {
            code: TerminateCode { layer, etype, code },
            segment_length,
            ddp: headers.map(|(ddp, _)| ddp),
            read_request: headers.and_then(|(_, read)| read),
        },
    )
}

proptest! {
    // [DDP-01] [DDP-03] [DDP-24]
    #[test]
    fn ddp_headers(header in header(), behind in proptest::collection::vec(any::<u8>(), 0..20)) {
        let mut octets = vec![0; header.buffer_len()];
        prop_assert_eq!(header.emit(&mut octets), Ok(octets.len()));
        for have in 0..octets.len() {
            let truncated = matches!(Header::parse(&octets[..have]), Err(WireError::Truncated { .. }));
            prop_assert!(truncated);
            prop_assert!(header.emit(&mut vec![0; have]).is_err());
        }
        octets.extend(behind);
        prop_assert_eq!(Header::parse(&octets), Ok(header));
        prop_assert_eq!(header.control().header_len(), header.buffer_len());
    }

    // [RDMAP-04] [EXT-02] [EXT-04] [EXT-10]
    #[test]
    fn rdmap_headers(
        read in read_request(),
        (operation, request_id, stag) in (0u8..16, any::<u32>(), any::<u32>()),
        (to, data, mask, compare, compare_mask) in any::<(u64, u64, u64, u64, u64)>(),
    ) {
        prop_assert_eq!(ReadRequestRepr::parse(&read.emit()), Ok(read));
        let request = AtomicRequestRepr {
            operation, request_id, stag: Stag(stag), to, data, mask, compare, compare_mask,
        };
        prop_assert_eq!(AtomicRequestRepr::parse(&request.emit()), Ok(request));
        let response = AtomicResponseRepr { request_id, original: to };
        prop_assert_eq!(AtomicResponseRepr::parse(&response.emit()), Ok(response));
        prop_assert_eq!(ImmediateRepr::parse(&ImmediateRepr(to).emit()), Ok(ImmediateRepr(to)));
    }

    // [RDMAP-20]
    #[test]
    fn terminates(terminate in terminate()) {
        let mut octets = vec![0; terminate.buffer_len()];
        prop_assert_eq!(terminate.emit(&mut octets), Ok(octets.len()));
        prop_assert!(octets.len() <= TerminateRepr::MAX_LEN);
        prop_assert_eq!(TerminateRepr::parse(&octets), Ok(terminate));
        // A truncated Terminate is still a Terminate, and nothing after the cut is read. [RDMAP-32]
        for have in 0..octets.len() {
            match TerminateRepr::parse(&octets[..have]) {
                Ok(cut) => prop_assert!(have >= 4 && cut.code == terminate.code),
                Err(error) => prop_assert_eq!(error, WireError::Truncated { need: 4, have }),
            }
            prop_assert!(terminate.emit(&mut octets.clone()[..have]).is_err());
        }
        // Headers that its flags do not announce are not read, whatever follows.
        octets.extend([0x41; 64]);
        prop_assert_eq!(TerminateRepr::parse(&octets), Ok(terminate));
    }

    // [CONN-05] [CONN-16] [CONN-20]
    #[test]
    fn startup_headers(
        request in any::<bool>(),
        [markers, crc, rejected, enhanced] in any::<[bool; 4]>(),
        (reserved, revision, private_data_len) in (0u8..16, any::<u8>(), any::<u16>()),
        [peer_to_peer, rtr_send, rtr_write, rtr_read] in any::<[bool; 4]>(),
        (ird, ord) in (0u16..0x4000, 0u16..0x4000),
    ) {
        let kind = if request { FrameKind::Request } else { FrameKind::Reply };
        let fixed = StartupRepr {
            kind, markers, crc, rejected, enhanced, reserved, revision, private_data_len,
        };
        prop_assert_eq!(StartupRepr::parse(&fixed.emit()), Ok(fixed));
        let block = EnhancedRepr { peer_to_peer, rtr_send, rtr_write, rtr_read, ird, ord };
        prop_assert_eq!(EnhancedRepr::parse(&block.emit()), Ok(block));
        let marker = MarkerRepr { reserved: ird, fpduptr: ord };
        prop_assert_eq!(MarkerRepr::parse(&marker.emit()), Ok(marker));
    }

    // [SEC-18]
    #[test]
    fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = Header::parse(&octets);
        let _ = ReadRequestRepr::parse(&octets);
        let _ = AtomicRequestRepr::parse(&octets);
        let _ = AtomicResponseRepr::parse(&octets);
        let _ = ImmediateRepr::parse(&octets);
        let _ = StartupRepr::parse(&octets);
        let _ = EnhancedRepr::parse(&octets);
        if let Ok(terminate) = TerminateRepr::parse(&octets) {
            prop_assert!(terminate.buffer_len() <= octets.len().max(4));
        }
    }
}

// Opcode, T bit and queue must match. [RDMAP-01] [RDMAP-02] [EXT-01] [EXT-17]
#[test]
fn opcodes_have_their_queue() {
    let queues = [
        None,
        Some(qn::REQUEST),
        None,
        Some(qn::SEND),
        Some(qn::SEND),
        Some(qn::SEND),
        Some(qn::SEND),
        Some(qn::TERMINATE),
        Some(qn::SEND),
        Some(qn::SEND),
        Some(qn::REQUEST),
        Some(qn::ATOMIC_RESPONSE),
    ];
    for (nibble, queue) in (0..16).zip(queues.iter().map(Some).chain([None; 4])) {
        let opcode = Opcode::from_nibble(nibble);
        assert_eq!(opcode.map(Opcode::queue).as_ref(), queue, "{nibble}");
        let Some(opcode) = opcode else { continue };
        assert_eq!(opcode.tagged(), opcode.queue().is_none());
        assert_eq!(opcode.invalidates(), matches!(nibble, 4 | 6));
        assert_eq!(opcode.solicited(), matches!(nibble, 5 | 6 | 9));
        assert_eq!(opcode.extension(), nibble >= 8);
        let control = rdmap::Control::new(opcode);
        assert_eq!((control.0, control.opcode()), (0x40 | nibble, Some(opcode)));
    }
    assert_eq!(ddp::Control::new(true, true).0, 0xc1);
    assert_eq!(ddp::Control::new(false, false).0, 0x01);
}

// Swapped nibbles are decoded for the log; a compliant Terminate is never reinterpreted.
// [ERR-26]
#[test]
fn swapped_codes_are_recognised() {
    let swapped = |layer, etype, code| {
        TerminateRepr::bare(TerminateCode { layer, etype, code }).swapped_code()
    };
    assert_eq!(swapped(0, 2, 2), Some(TerminateCode::new(2, 0, 2)));
    assert_eq!(swapped(2, 1, 5), Some(TerminateCode::new(1, 2, 5)));
    assert_eq!(swapped(2, 0, 2), None);
    assert_eq!(swapped(9, 9, 9), None);
    for error in ProtocolError::ALL {
        assert_eq!(TerminateRepr::bare(error.terminate_code()).swapped_code(), None, "{error}");
    }
}

/// The whole table as one text: error, layer/type/code, headers, sent or not.
const TABLE: &str = "\
LocalCatastrophic 0000 None true
ReadStag 0100 DdpAndRead true
ReadBounds 0101 DdpAndRead true
ReadAccess 0102 DdpAndRead true
ReadNotAssociated 0103 DdpAndRead true
ReadWrap 0104 DdpAndRead true
AtomicStag 0100 Ddp true
AtomicBounds 0101 Ddp true
AtomicAccess 0102 Ddp true
AtomicNotAssociated 0103 Ddp true
AtomicWrap 0104 Ddp true
AtomicUnaligned 0207 Ddp true
CannotInvalidate 0109 Ddp true
RdmapVersion 0205 Ddp true
Opcode 0206 Ddp true
AtomicOpcode 0206 Ddp true
UnsolicitedReadResponse 0206 Ddp true
RequestShort 0207 Ddp true
NotLast 0207 Ddp true
ImmediateLength 02ff Ddp true
AtomicResponse 02ff Ddp true
StreamCatastrophic 0207 None true
GlobalCatastrophic 0208 None true
BadLlpClose 0207 None true
UlpduLength 1000 None true
TaggedStag 1100 Ddp true
TaggedBounds 1101 Ddp true
TaggedNotAssociated 1102 Ddp true
TaggedAccess 1102 Ddp true
TaggedWrap 1103 Ddp true
TaggedVersion 1104 Ddp true
QueueNumber 1201 Ddp true
ReadDisabled 1201 Ddp true
NoBuffer 1202 Ddp true
ReadQueueOverflow 1202 Ddp true
MsnRange 1203 Ddp true
MessageOffset 1204 Ddp true
MessageTooLong 1205 Ddp true
RequestLong 1205 Ddp true
UntaggedVersion 1206 Ddp true
LlpLost 2001 None false
Crc 2002 None true
Marker 2003 None true
StrayOctets 2003 None true
StartupFrame 2004 None false
StartupCatastrophic 2005 None true
InsufficientIrd 2006 None true
NoCommonRtr 2007 None true
MalformedTerminate 02ff None false
";

// [RDMAP-21] [RDMAP-28] [MPA-37] [ERR-01] [ERR-02] [ERR-03] [ERR-04] [ERR-05] [ERR-06] [ERR-07]
// [ERR-08] [ERR-09] [ERR-10] [ERR-11] [ERR-12] [ERR-13] [ERR-14] [ERR-15] [ERR-16] [ERR-17]
// [ERR-18] [ERR-19] [ERR-20] [ERR-21] [ERR-22] [ERR-23] [ERR-24] [ERR-25] [ERR-26] [ERR-27]
// [ERR-28] [ERR-29] [ERR-30] [EXT-14] [EXT-15] [VERBS-14]
#[test]
fn the_table_of_errors_is_as_written() {
    let table: String = ProtocolError::ALL
        .iter()
        .map(|error| {
            let (code, headers) = (error.terminate_code().word(), error.headers());
            format!("{error:?} {code:04x} {headers:?} {}\n", error.sends_terminate())
        })
        .collect();
    assert_eq!(table, TABLE);
}

// Every code that we send is registered, named, and its headers follow RFC 5040 Figure 10.
// [RDMAP-21]
#[test]
fn every_code_is_registered_and_named() {
    for error in ProtocolError::ALL {
        let code = error.terminate_code();
        assert!(code.is_assigned(), "{error}");
        assert_ne!(code.name(), "unassigned code");
        if code.layer == 2 || (code.layer, code.etype) == (0, 0) {
            assert_eq!(error.headers(), TerminateHeaders::None, "{error}");
        }
        let text = error.to_string();
        assert!(text.len() > 20 && text == text.to_lowercase(), "{text}");
    }
    for layer in 0..16 {
        for (etype, code) in (0..16).flat_map(|etype| (0..=255).map(move |code| (etype, code))) {
            let triple = TerminateCode { layer, etype, code };
            assert_eq!(triple.is_assigned(), triple.name() != "unassigned code", "{triple}");
        }
    }
    assert_eq!(TerminateCode::new(2, 0, 2).to_string(), "2/0/2 (mpa crc error)");
    assert_eq!(
        WireError::Truncated { need: 4, have: 2 }.to_string(),
        "2 octets where 4 are needed"
    );
}

proptest! {
    // [RDMAP-20] a Read header is present only if the Terminate's flags say so
    #[test]
    fn octets_behind_a_terminates_headers_are_no_read_request(
        ddp in header(), read in read_request(), length in any::<u16>(),
    ) {
        let (code, read_request) = (TerminateCode::new(1, 1, 0), Some(read));
        let (segment_length, ddp) = (Some(length), Some(ddp));
        let repr = TerminateRepr { code, segment_length, ddp, read_request };
        let mut octets = [0; TerminateRepr::MAX_LEN];
        let len = repr.emit(&mut octets).unwrap();
        prop_assert_eq!(octets[2], 0xe0);
        octets[2] = 0xc0;
        let expected = TerminateRepr { read_request: None, ..repr };
        prop_assert_eq!(TerminateRepr::parse(&octets[..len]).unwrap(), expected);
    }
}

// RDMAC 7.2 [VERBS-22]
#[test]
fn an_stag_is_an_index_and_a_key() {
    let stag = Stag::new(0x12_3456, 0x78);
    assert_eq!((stag.0, stag.index(), stag.key()), (0x1234_5678, 0x12_3456, 0x78));
}
