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
    assert!(out.contains("#3  packet 5, 0.000000 s"), "{out}");
    let brief = run(&["decode", "-b", "--pcap", file.path()]);
    assert_eq!(text(&brief.stdout).lines().count(), 5);
    let json = run(&["decode", "--json", "--pcap", file.path()]);
    let frame: Value = serde_json::from_str(text(&json.stdout).lines().next().unwrap()).unwrap();
    assert_eq!((&frame["packet"], &frame["time"]), (&3.into(), &"1.000000000".into()));
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
    for word in ["RC RDMA Read Request", "PSN", "42", "0x00001234", "DMALen", "1024"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[test]
fn damaged_captures_are_located() {
    let whole = capture();
    for (name, content, expected) in [
        ("empty", &[][..], "offset 0"),
        ("text", b"hello, world".as_slice(), "text and no capture"),
        ("packed", b"\x1f\x8b\x08\0".as_slice(), "zcat FILE | warpline decode --pcap -"),
        ("other", b"\0\0\0\0".as_slice(), "neither pcap nor pcapng"),
        ("short", &whole[..whole.len() - 3], "ends inside a packet"),
    ] {
        let file = TempFile::new(name, content);
        let output = run(&["decode", "--pcap", file.path()]);
        assert_eq!(output.status.code(), Some(3), "{name}");
        let err = text(&output.stderr);
        assert!(err.contains(expected) && err.contains("offset"), "{name}: {err}");
    }
    for (path, expected) in [("/nowhere", "No such file"), ("/", "it is a directory")] {
        let output = run(&["decode", "--pcap", path]);
        assert_eq!(output.status.code(), Some(3));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

// What comes before the damage is explained.
#[test]
fn a_capture_that_ends_early_is_explained_as_far_as_it_goes() {
    let whole = capture();
    let file = TempFile::new("early.pcap", &whole[..whole.len() - 3]);
    let output = run(&["decode", "-b", "--pcap", file.path()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).contains("3 frames, 0 broken"), "{}", text(&output.stdout));
}

#[test]
fn packets_of_a_cut_capture_are_shown_as_far_as_they_go() {
    let mut packets = file(&[congestion_notification()]);
    // 20 octets of it were captured behind 28 of IP and UDP.
    packets[32..36].copy_from_slice(&48_u32.to_le_bytes());
    packets.truncate(40 + 48);
    let file = TempFile::new("cut.pcap", &packets);
    let output = run(&["decode", "--pcap", file.path()]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert!(out.contains("Congestion Notification, 20 of 32 octets"), "{out}");
    assert!(out.ends_with("1 frame, 0 broken requirements; 12 octets not captured\n"), "{out}");
}

// The first fragment has the headers of UDP and RoCE, the second the end of the packet.
#[test]
fn fragments_of_ip_are_put_together() {
    let whole = congestion_notification();
    let fragment = |flags: u16, from: usize, to: usize| {
        let mut ip = [&whole[..20], &whole[20 + from..20 + to]].concat();
        ip[2..4].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&(flags | (from / 8) as u16).to_be_bytes());
        ip
    };
    let file = TempFile::new("parts.pcap", &file(&[fragment(0, 24, 40), fragment(0x2000, 0, 24)]));
    let output = run(&["decode", "-b", "--pcap", file.path()]);
    let out = text(&output.stdout);
    assert!(out.contains("packet 2, 0.000000 s  10.0.17.1:0 > 10.0.18.1:4791"), "{out}");
    assert!(out.contains("Congestion Notification, 32 octets"), "{out}");
}

#[test]
fn a_capture_without_either_protocol_names_both() {
    let file = TempFile::new("none.pcap", &file(&[packet((1, 2), 3, 2, &[])]));
    let output = run(&["decode", "--pcap", file.path()]);
    assert_eq!(output.status.code(), Some(3));
    let error = text(&output.stderr);
    assert!(error.contains("iWARP") && error.contains("RoCE"), "{error}");
}

#[test]
fn bad_strings() {
    for text_given in ["", "0", "xyz", "00 1"] {
        let output = run(&["decode", "--hex", text_given]);
        assert_eq!(output.status.code(), Some(3), "{text_given}");
    }
}
