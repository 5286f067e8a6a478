//! Packets of the simple peer: octets, and the invariant CRC.

use std::net::Ipv4Addr;

use roce_proto::icrc::{self, Envelope, Ip};

pub(super) const PORT: u16 = 4791;
pub(super) const MASK: u32 = 0xff_ffff;

/// A packet that arrived, without its CRC.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) opcode: u8,
    pub(super) solicited: bool,
    pub(super) ack: bool,
    pub(super) qpn: u32,
    pub(super) psn: u32,
    pub(super) extended: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

pub(super) fn extended(opcode: u8) -> Option<usize> {
    Some(match opcode {
        0x00..=0x02 | 0x04 | 0x07 | 0x08 | 0x0e => 0,
        0x03 | 0x05 | 0x09 | 0x0d | 0x0f | 0x10 | 0x11 | 0x16 | 0x17 => 4,
        0x06 | 0x0a | 0x0c | 0x81 => 16,
        0x0b => 20,
        0x12 | 0x65 => 12,
        0x13 | 0x14 => 28,
        0x64 => 8,
        _ => return None,
    })
}

/// `None`: not a packet.
pub(super) fn read(octets: &[u8]) -> Option<Packet> {
    let body = octets.len().checked_sub(4).filter(|body| *body >= 12)?;
    let (opcode, pad) = (octets[0], usize::from(octets[1] >> 4 & 3));
    let end = 12 + extended(opcode)?;
    let payload = octets.get(end..body.checked_sub(pad)?)?.to_vec();
    let u24 = |at: usize| u32::from_be_bytes([0, octets[at], octets[at + 1], octets[at + 2]]);
    Some(Packet {
        opcode,
        solicited: octets[1] & 0x80 != 0,
        ack: octets[8] & 0x80 != 0,
        qpn: u24(5),
        psn: u24(9),
        extended: octets[12..end].to_vec(),
        payload,
    })
}

impl Packet {
    pub(super) fn u32(&self, at: usize) -> u32 {
        self.extended[at..at + 4].iter().fold(0, |sum, octet| sum << 8 | u32::from(*octet))
    }
    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }
}

/// A packet to send, with room for the CRC. `flags`: 0x80 solicited, 1 asks for an acknowledgement.
pub(super) fn build(
    opcode: u8,
    flags: u8,
    qpn: u32,
    psn: u32,
    extended: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let pad = (payload.len().wrapping_neg() & 3) as u8;
    let mut out = vec![opcode, flags & 0x80 | 0x40 | pad << 4, 0xff, 0xff, 0];
    out.extend(&qpn.to_be_bytes()[1..]);
    out.push(flags << 7);
    out.extend(&psn.to_be_bytes()[1..]);
    out.extend(extended);
    out.extend(payload);
    out.resize(out.len() + usize::from(pad) + 4, 0);
    out
}

fn envelope(from: Ipv4Addr, to: Ipv4Addr, source_port: u16) -> Envelope {
    let (source, destination) = (from.octets(), to.octets());
    let ip = Ip::V4 { source, destination, id: 0, dont_fragment: true };
    Envelope { ip, source_port, destination_port: PORT }
}

fn crc32(crc: u32, octets: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(octets);
    hasher.finalize()
}

pub(super) fn is_whole(from: Ipv4Addr, to: Ipv4Addr, port: u16, octets: &[u8]) -> bool {
    icrc::identify(crc32, &envelope(from, to, port), octets).is_some()
}

pub(super) fn seal(from: Ipv4Addr, to: Ipv4Addr, octets: &mut [u8]) {
    let crc = icrc::of_datagram(crc32, &envelope(from, to, PORT), octets);
    *octets.last_chunk_mut().unwrap() = crc.unwrap();
}

/// How far `psn` is after `other`.
pub(super) fn after(psn: u32, other: u32) -> i32 {
    ((psn.wrapping_sub(other) << 8) as i32) >> 8
}
