//! Invariant CRC (ICRC) of RoCE v2, and its check where the IPv4 identification is unknown (InfiniBand volume
//! 1, 7.8.1; annex A17).
//!
//! The CRC is Ethernet's CRC-32 over eight octets of ones, the IP header, the UDP header and the packet up to
//! its pad, with ones instead of the fields that routers change: TOS or traffic class, TTL or hop limit, flow
//! label, both checksums, and the BTH's octet of congestion bits. It follows the pad, least significant octet
//! first.
//!
//! A socket does not report the IPv4 identification of a received packet, but the CRC covers it. As the CRC is
//! linear, each of the 65,536 identifications changes it differently, so that [`identify`] can find the
//! identification with which the CRC is correct, if there is one. 2^-16 of randomly damaged packets pass this
//! test, compared with 2^-32 for IPv6 and known identifications.
//!
//! Owner of the state: none, pure functions. Any thread.

use crate::wire::bth::Bth;

/// A CRC-32 kernel (IEEE 802.3, reflected), as zlib's `crc32`: extends the CRC of the preceding octets, 0 for
/// none, by `octets`.
pub type Crc32 = fn(crc: u32, octets: &[u8]) -> u32;

/// The IP header as far as the invariant CRC covers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ip {
    /// IPv4 without options.
    V4 {
        /// Source address.
        source: [u8; 4],
        /// Destination address.
        destination: [u8; 4],
        /// Identification.
        id: u16,
        /// DF, without which an identification would not be arbitrary.
        dont_fragment: bool,
    },
    /// IPv6 without extension headers.
    V6 {
        /// Source address.
        source: [u8; 16],
        /// Destination address.
        destination: [u8; 16],
    },
}

/// The headers before a packet, as far as the invariant CRC covers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// IP header.
    pub ip: Ip,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
}

const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP: u8 = 17;
/// Offset of the identification in an IPv4 header.
const IPV4_ID_AT: usize = 4;

/// What precedes the BTH of packets of one length between two ends, whose CRC is computed once for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    kernel: Crc32,
    crc: u32,
    has_id: bool,
    datagram_len: usize,
}

impl Front {
    /// Ignores the identification in `envelope`. `datagram_len`: octets of the UDP datagram's payload, the invariant CRC
    /// included; at most 65,507.
    pub fn new(kernel: Crc32, envelope: &Envelope, datagram_len: usize) -> Self {
        // InfiniBand volume 1, 7.8.1 [ROCE-06]
        let udp_len = (UDP_LEN + datagram_len) as u16;
        let crc = kernel(0, &[0xff; 8]);
        let crc = match envelope.ip {
            Ip::V4 { source, destination, dont_fragment, .. } => {
                let mut ip = [0; IPV4_LEN];
                ip[0] = 0x45;
                ip[1] = 0xff;
                ip[2..4].copy_from_slice(&(udp_len + IPV4_LEN as u16).to_be_bytes());
                ip[6] = u8::from(dont_fragment) << 6;
                ip[8] = 0xff;
                ip[9] = UDP;
                ip[10..12].fill(0xff);
                ip[12..16].copy_from_slice(&source);
                ip[16..].copy_from_slice(&destination);
                kernel(crc, &ip)
            }
            Ip::V6 { source, destination } => {
                let mut ip = [0; IPV6_LEN];
                ip[0] = 0x6f;
                ip[1..4].fill(0xff);
                ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
                ip[6] = UDP;
                ip[7] = 0xff;
                ip[8..24].copy_from_slice(&source);
                ip[24..].copy_from_slice(&destination);
                kernel(crc, &ip)
            }
        };
        let mut udp = [0xff; UDP_LEN];
        udp[..2].copy_from_slice(&envelope.source_port.to_be_bytes());
        udp[2..4].copy_from_slice(&envelope.destination_port.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        let has_id = matches!(envelope.ip, Ip::V4 { .. });
        Self { kernel, crc: kernel(crc, &udp), has_id, datagram_len }
    }

    /// The invariant CRC of `datagram` with this IPv4 identification; its last four octets are ignored. `None` if it is of
    /// another length, or shorter than a BTH with an invariant CRC.
    pub fn of(&self, id: u16, datagram: &[u8]) -> Option<[u8; 4]> {
        let body = &datagram[..datagram.len().checked_sub(4)?];
        if body.len() < Bth::LEN || datagram.len() != self.datagram_len {
            return None;
        }
        let crc = if self.has_id { self.crc ^ effect(id) } else { self.crc };
        // Of a short packet all at once: a call of the kernel takes as long as some octets.
        let mut masked = [0; SHORT];
        let (now, rest) = body.split_at(if body.len() <= SHORT { body.len() } else { Bth::LEN });
        masked[..now.len()].copy_from_slice(now);
        masked[Bth::CONGESTION_AT] = 0xff;
        let mut crc = (self.kernel)(crc, &masked[..now.len()]);
        if !rest.is_empty() {
            crc = (self.kernel)(crc, rest);
        }
        // [ROCE-07]
        Some(crc.to_le_bytes())
    }
}

/// A packet of so many octets is short.
const SHORT: usize = 64;

/// What an identification changes in the CRC up to the UDP header, compared with 0: the CRC is linear.
fn effect(id: u16) -> u32 {
    match EFFECTS.get(usize::from(id)) {
        Some(effect) => *effect,
        None => effect_of(id),
    }
}

/// Of the identifications that this provider sends.
static EFFECTS: [u32; 64] = {
    let (mut effects, mut id) = ([0; 64], 0);
    while id < 64 {
        effects[id] = effect_of(id as u16);
        id += 1;
    }
    effects
};

const fn effect_of(id: u16) -> u32 {
    const AFTER: usize = IPV4_LEN - IPV4_ID_AT + UDP_LEN;
    // As if the register held it there.
    let (mut register, mut bits) = (id.swap_bytes() as u32, 8 * AFTER);
    while bits != 0 {
        register = gf::times_x(register);
        bits -= 1;
    }
    register
}

/// The invariant CRC of `datagram`, whose last four octets are ignored; `None` if it is shorter than a BTH with
/// an invariant CRC.
pub fn of_datagram(kernel: Crc32, envelope: &Envelope, datagram: &[u8]) -> Option<[u8; 4]> {
    let id = if let Ip::V4 { id, .. } = envelope.ip { id } else { 0 };
    Front::new(kernel, envelope, datagram.len()).of(id, datagram)
}

/// The IPv4 identification with which `datagram`'s invariant CRC is correct, if there is one. Ignores the
/// identification in `envelope`. Also `None` for IPv6 and for a datagram that is too short.
pub fn identify(kernel: Crc32, envelope: &Envelope, datagram: &[u8]) -> Option<u16> {
    let Ip::V4 { source, destination, dont_fragment, .. } = envelope.ip else { return None };
    let ip = Ip::V4 { source, destination, id: 0, dont_fragment };
    let with_zero = of_datagram(kernel, &Envelope { ip, ..*envelope }, datagram)?;
    let actual = datagram.last_chunk()?;
    let difference = u32::from_le_bytes(with_zero) ^ u32::from_le_bytes(*actual);
    let covered = IPV4_LEN + UDP_LEN + datagram.len() - 4;
    // [ROCE-08]
    // Two octets instead of zeros have the effect of starting there with them in the register's lower half.
    let register = gf::times(difference, gf::back(covered - IPV4_ID_AT));
    let [first, second, 0, 0] = register.to_le_bytes() else { return None };
    Some(u16::from_be_bytes([first, second]))
}

/// Polynomials over GF(2) modulo Ethernet's, reflected: bit 31 is the coefficient of 1.
mod gf {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    const ONE: u32 = 1 << 31;
    const X: u32 = 1 << 30;
    /// The order of X, as the polynomial is primitive.
    const ORDER: u32 = u32::MAX;

    pub(super) const fn times_x(a: u32) -> u32 {
        a >> 1 ^ if a & 1 == 1 { POLYNOMIAL } else { 0 }
    }

    pub(super) const fn times(a: u32, mut b: u32) -> u32 {
        let (mut product, mut bit) = (0, ONE);
        while bit != 0 {
            if a & bit != 0 {
                product ^= b;
            }
            b = times_x(b);
            bit >>= 1;
        }
        product
    }

    /// The factor that takes a register back over `octets` octets of zeros: X to the power of -8 · `octets`.
    pub(super) const fn back(octets: usize) -> u32 {
        let mut exponent = ORDER - (octets as u32).wrapping_mul(8);
        let (mut power, mut square) = (ONE, X);
        while exponent != 0 {
            if exponent & 1 == 1 {
                power = times(power, square);
            }
            square = times(square, square);
            exponent >>= 1;
        }
        power
    }
}
