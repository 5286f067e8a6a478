//! Tests of `warpline decode`: strings, captures, damaged input.

use serde_json::Value;

use crate::support::{TempFile, run, text};

/// An empty Send with a correct CRC.
const SEND: &str = "0012414300000000000000000000000100000000587be8c4";

/// A start-up, then two FPDUs, cut into TCP segments of a loopback capture.
fn capture() -> Vec<u8> {
    let send: Vec<u8> = SEND
        .as_bytes()
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect();
    let startup = |key: &[u8]| [key, &[0x40, 1, 0, 0][..]].concat();
    let (request, reply) = (startup(b"MPA ID Req Frame"), startup(b"MPA ID Rep Frame"));
    let (there, back) = ((40000u16, 7174u16), (7174, 40000));
    let packets = [
        packet(there, 999, 2, &[]),
        packet(back, 4999, 0x12, &[]),
        packet(there, 1000, 0x10, &request),
        packet(back, 5000, 0x10, &reply),
        packet(there, 1030, 0x10, &send[10..]),
        packet(there, 1020, 0x10, &send[..10]),
        packet(back, 5020, 0x10, &send),
    ];
    file(&packets)
}

/// A capture of IP packets.
fn file(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 101] {
        file.extend(word.to_le_bytes());
    }
    for packet in packets {
        for word in [1, 0, packet.len() as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

/// A congestion notification of an adapter, with its IP header.
fn congestion_notification() -> Vec<u8> {
    const PACKET: &str = "45c2003c718c400040119161 0a001101 0a001201 000012b700280000\
                          8100ffff4000011800000000 00000000000000000000000000000000 82fd002a";
    let digits: Vec<_> = PACKET.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn packet(ports: (u16, u16), seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1];
    ip[2..4].copy_from_slice(&((40 + payload.len()) as u16).to_be_bytes());
    ip.extend(ports.0.to_be_bytes());
    ip.extend(ports.1.to_be_bytes());
    ip.extend(seq.to_be_bytes());
    ip.extend([0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    ip.extend(payload);
    ip
}

#[test]
fn a_string_is_explained_field_by_field() {
    let output = run(&["decode", "--hex", SEND]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    for word in ["ULPDU_Length", "MSN", "QN", "Opcode", "CRC", "Send", "1 frame, 0 broken"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[test]
fn a_broken_requirement_is_named() {
    let wrong = SEND.replace("587be8c4", "587be8c5");
    let output = run(&["decode", "--hex", &wrong]);
    assert_eq!(output.status.code(), Some(1));
    let out = text(&output.stdout);
    assert!(out.contains("!! [MPA-"), "{out}");
    let output = run(&["decode", "--hex", &wrong, "--crc", "off"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

#[test]
fn json_is_one_object_per_frame() {
    let output = run(&["decode", "--json", "--hex", &SEND.repeat(2)]);
    let out = text(&output.stdout);
    let frames: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[1]["offset"], 24);
    assert!(
        frames[0]["fields"]
            .as_array()
            .unwrap()
            .iter()
            .any(|f| f["name"] == "MSN" && f["value"] == 1)
    );
}

#[test]
fn a_capture_is_put_in_order() {
    let file = TempFile::new("good.pcap", &capture());
    let output = run(&["decode", "--pcap", file.path()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    assert!(out.contains("MPA Request") && out.contains("MPA Reply"), "{out}");
    assert!(out.contains("127.0.0.1:40000 > 127.0.0.1:7174"), "{out}");
    assert!(out.contains("4 frames, 0 broken requirements"), "{out}");
    let brief = run(&["decode", "-b", "--pcap", file.path()]);
    assert_eq!(text(&brief.stdout).lines().count(), 5);
}

#[test]
fn packets_of_roce_are_explained_and_their_invariant_crc_is_checked() {
    let right = TempFile::new("roce.pcap", &file(&[congestion_notification()]));
    let output = run(&["decode", "--pcap", right.path()]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    for word in ["10.0.17.1:0 > 10.0.18.1:4791", "Congestion Notification", "BECN", "correct"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let mut damaged = congestion_notification();
    damaged[47] ^= 1;
    let damaged = TempFile::new("roce-damaged.pcap", &file(&[damaged]));
    let output = run(&["decode", "--pcap", damaged.path()]);
    assert_eq!(output.status.code(), Some(1));
    let out = text(&output.stdout);
    assert!(out.contains("[ROCE-06]") && out.contains("a receiver drops the packet"), "{out}");
}

#[test]
fn a_packet_of_roce_is_explained_from_a_string() {
    // A Read Request without its IP header: the invariant CRC is shown and not judged.
    let read = "0c40ffff000000118000002a 0000000000001000 00001234 00000400 00000000";
    let output = run(&["decode", "--roce", "--hex", read]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    for word in ["RDMA Read Request", "PSN", "42", "0x00001234", "DMALen", "1024"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[test]
fn damaged_captures_are_located() {
    let whole = capture();
    for (name, content, expected) in [
        ("empty", &[][..], "offset 0"),
        ("text", b"hello, world".as_slice(), "neither pcap nor pcapng"),
        ("short", &whole[..whole.len() - 3], "ends inside a packet"),
    ] {
        let file = TempFile::new(name, content);
        let output = run(&["decode", "--pcap", file.path()]);
        assert_eq!(output.status.code(), Some(3), "{name}");
        let err = text(&output.stderr);
        assert!(err.contains(expected) && err.contains("offset"), "{name}: {err}");
    }
    let output = run(&["decode", "--pcap", "/nowhere"]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn bad_strings() {
    for text_given in ["", "0", "xyz", "00 1"] {
        let output = run(&["decode", "--hex", text_given]);
        assert_eq!(output.status.code(), Some(3), "{text_given}");
    }
}
