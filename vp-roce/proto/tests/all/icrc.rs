//! Tests of the invariant CRC: its coverage, and finding an unknown IPv4 identification.

use crate::common::{ENVELOPE, Random, crc32};
use roce_proto::icrc::{Envelope, Front, Ip, identify, of_datagram};

fn with(id: u16) -> Envelope {
    let ip = Ip::V4 { source: [10, 0, 0, 1], destination: [10, 0, 0, 2], id, dont_fragment: true };
    Envelope { ip, ..ENVELOPE }
}

fn sealed(envelope: &Envelope, random: &mut Random, len: usize) -> Vec<u8> {
    let mut datagram: Vec<_> = (0..len).map(|_| random.next() as u8).collect();
    let icrc = of_datagram(crc32, envelope, &datagram).unwrap();
    datagram.splice(len - 4.., icrc);
    datagram
}

// [ROCE-08]
#[test]
fn every_identification_is_found() {
    let mut random = Random::new(1);
    for id in [0, 1, 255, 256, 0x1234, 0xffff].into_iter().chain(0x8000..0x8400) {
        let len = 16 + random.below(4_200) as usize;
        let datagram = sealed(&with(id), &mut random, len);
        assert_eq!(identify(crc32, &with(0), &datagram), Some(id), "{len} octets");
    }
}

#[test]
fn few_damaged_packets_match_an_identification() {
    let mut random = Random::new(2);
    let mut passed = 0;
    for _ in 0..20_000 {
        let mut datagram = sealed(&with(7), &mut random, 64);
        let at = random.below(60) as usize;
        // The congestion octet is not covered.
        if at == 4 {
            continue;
        }
        datagram[at] ^= 1 + random.below(255) as u8;
        assert_ne!(of_datagram(crc32, &with(7), &datagram).unwrap(), datagram[60..]);
        passed += usize::from(identify(crc32, &with(0), &datagram).is_some());
    }
    // 2^-16 of them: 0.3 are expected, and more than 6 once in 10^10 runs.
    assert!(passed <= 6, "{passed} of 20,000");
}

// [ROCE-06]
#[test]
fn every_bit_except_congestion_is_covered() {
    let mut random = Random::new(3);
    for envelope in
        [with(9), Envelope { ip: Ip::V6 { source: [1; 16], destination: [2; 16] }, ..ENVELOPE }]
    {
        let datagram = sealed(&envelope, &mut random, 40);
        for bit in 0..40 * 8 {
            let mut changed = datagram.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let right = of_datagram(crc32, &envelope, &changed).unwrap() == changed[36..];
            assert_eq!(right, bit / 8 == 4, "bit {bit}");
        }
    }
}

#[test]
fn addresses_ports_and_lengths_are_covered() {
    let mut random = Random::new(4);
    let datagram = sealed(&with(9), &mut random, 40);
    let icrc = &datagram[36..];
    let v4 = |source, destination, id, dont_fragment| Envelope {
        ip: Ip::V4 { source, destination, id, dont_fragment },
        ..ENVELOPE
    };
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    for other in [
        v4(b, b, 9, true),
        v4(a, a, 9, true),
        v4(a, b, 8, true),
        v4(a, b, 9, false),
        Envelope { source_port: 1, ..with(9) },
        Envelope { destination_port: 1, ..with(9) },
    ] {
        assert_ne!(of_datagram(crc32, &other, &datagram).unwrap(), icrc, "{other:?}");
    }
    assert_eq!(of_datagram(crc32, &v4(a, b, 9, true), &datagram).unwrap(), icrc);
}

#[test]
fn what_precedes_packets_of_one_length_is_computed_once() {
    let mut random = Random::new(5);
    let front = Front::new(crc32, &with(0), 84);
    for id in [0, 1, 63, 64, 0xffff] {
        let datagram = sealed(&with(id), &mut random, 84);
        assert_eq!(front.of(id, &datagram).unwrap(), datagram[80..], "{id}");
        assert_ne!(front.of(id ^ 1, &datagram).unwrap(), datagram[80..], "{id}");
        assert_eq!(front.of(id, &datagram[..83]), None);
    }
}

#[test]
fn short_packets_have_no_invariant_crc() {
    for len in 0..16 {
        assert_eq!(of_datagram(crc32, &ENVELOPE, &vec![0; len]), None);
        assert_eq!(identify(crc32, &ENVELOPE, &vec![0; len]), None);
    }
}
