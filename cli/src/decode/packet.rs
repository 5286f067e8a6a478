//! Extracts the TCP segment or RoCE v2 datagram of a captured packet: Ethernet (VLAN tags too), Linux cooked,
//! loopback or raw IP below; IPv4 or IPv6. Pure functions over untrusted octets; all else is `None`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use roce_proto::icrc::Ip;
use roce_proto::wire::UDP_PORT;

/// A TCP segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// Sequence number of the first octet of `payload` (of the SYN, if there is one).
    pub(super) seq: u32,
    pub(super) syn: bool,
    pub(super) payload: &'a [u8],
    /// Octets of payload on the wire; more than `payload` if the capture was truncated.
    pub(super) wire_len: usize,
}

/// A UDP datagram to the port of RoCE v2.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Datagram<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// Its IP header.
    pub(super) ip: Ip,
    pub(super) payload: &'a [u8],
    /// Octets of payload on the wire; more than `payload` if the capture was truncated.
    pub(super) wire_len: usize,
}

/// What a packet carries, if it can be explained.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transport<'a> {
    Segment(Segment<'a>),
    Datagram(Datagram<'a>),
}

/// An IP packet, or a fragment of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IpPacket<'a> {
    pub(super) header: Ip,
    pub(super) protocol: u8,
    pub(super) payload: &'a [u8],
    /// Octets of payload on the wire.
    pub(super) wire_len: usize,
    pub(super) fragment: Option<Fragment>,
}

/// Which part of a packet a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) id: u32,
    pub(super) offset: usize,
    pub(super) more: bool,
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]))
}

fn be32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(be16(data, at)?) << 16 | u32::from(be16(data, at + 2)?))
}

/// True if this link type is supported.
pub(super) fn link_known(link: u16) -> bool {
    matches!(link, 0 | 1 | 12 | 14 | 101 | 108 | 113 | 228 | 229 | 276)
}

/// The IP packet in a packet of link type `link` that had `wire_len` octets.
pub(super) fn parse(link: u16, data: &[u8], wire_len: usize) -> Option<IpPacket<'_>> {
    let ip = match link {
        // NULL and LOOP: address family; redundant, as the IP version says it
        0 | 108 => data.get(4..)?,
        1 => network(be16(data, 12)?, data.get(14..)?)?,
        12 | 14 | 101 | 228 | 229 => data,
        // SLL: protocol at 14; SLL2: protocol at 0
        113 => network(be16(data, 14)?, data.get(16..)?)?,
        276 => network(be16(data, 0)?, data.get(20..)?)?,
        _ => return None,
    };
    let wire_len = wire_len.saturating_sub(data.len() - ip.len());
    match ip.first()? >> 4 {
        4 => ipv4(ip, wire_len),
        6 => ipv6(ip, wire_len),
        _ => None,
    }
}

/// The IP packet behind an EtherType and VLAN tags.
fn network(mut kind: u16, mut rest: &[u8]) -> Option<&[u8]> {
    while matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
        kind = be16(rest, 2)?;
        rest = rest.get(4..)?;
    }
    matches!(kind, 0x0800 | 0x86dd).then_some(rest)
}

fn ipv4(ip: &[u8], wire_len: usize) -> Option<IpPacket<'_>> {
    let header_len = usize::from(ip[0] & 15) * 4;
    // With segmentation offload the total length may be 0: the rest of the packet then.
    let total = match usize::from(be16(ip, 2)?) {
        0 => wire_len,
        n => n,
    };
    if header_len < 20 {
        return None;
    }
    let (id, flags) = (be16(ip, 4)?, be16(ip, 6)?);
    let header = Ip::V4 {
        source: ip.get(12..16)?.try_into().ok()?,
        destination: ip.get(16..20)?.try_into().ok()?,
        id,
        dont_fragment: flags & 0x4000 != 0,
    };
    let (more, offset) = (flags & 0x2000 != 0, usize::from(flags & 0x1fff) * 8);
    let fragment = (more || offset > 0).then_some(Fragment { id: id.into(), offset, more });
    packet(header, *ip.get(9)?, ip.get(header_len..)?, total.checked_sub(header_len)?, fragment)
}

fn ipv6(ip: &[u8], wire_len: usize) -> Option<IpPacket<'_>> {
    let header = Ip::V6 {
        source: ip.get(8..24)?.try_into().ok()?,
        destination: ip.get(24..40)?.try_into().ok()?,
    };
    let total = match usize::from(be16(ip, 4)?) {
        0 => wire_len,
        n => n + 40,
    };
    let (mut next, mut at, mut fragment) = (*ip.get(6)?, 40, None);
    // Hop-by-hop, routing, fragment, authentication and destination options, mobility, HIP, shim6.
    while matches!(next, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
        let units = usize::from(*ip.get(at + 1)?);
        let len = match next {
            44 => {
                let word = be16(ip, at + 2)?;
                let (more, offset) = (word & 1 != 0, usize::from(word & 0xfff8));
                fragment = (more || offset > 0).then_some(Fragment {
                    id: be32(ip, at + 4)?,
                    offset,
                    more,
                });
                8
            }
            51 => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        next = *ip.get(at)?;
        at += len;
        // What follows is the packet's, and only its first fragment has it.
        if fragment.is_some() {
            break;
        }
    }
    packet(header, next, ip.get(at..)?, total.checked_sub(at)?, fragment)
}

/// Ethernet pads short packets: the IP length counts.
fn packet(
    header: Ip,
    protocol: u8,
    rest: &[u8],
    wire_len: usize,
    fragment: Option<Fragment>,
) -> Option<IpPacket<'_>> {
    let payload = &rest[..rest.len().min(wire_len)];
    Some(IpPacket { header, protocol, payload, wire_len, fragment })
}

/// The segment or datagram of a whole packet.
pub(super) fn transport<'a>(packet: &IpPacket<'a>) -> Option<Transport<'a>> {
    let (source, destination): (IpAddr, IpAddr) = match packet.header {
        Ip::V4 { source, destination, .. } => {
            (Ipv4Addr::from(source).into(), Ipv4Addr::from(destination).into())
        }
        Ip::V6 { source, destination } => {
            (Ipv6Addr::from(source).into(), Ipv6Addr::from(destination).into())
        }
    };
    let octets = packet.payload;
    let ports = || Some((be16(octets, 0)?, be16(octets, 2)?));
    let (source_port, destination_port) = ports()?;
    let from = SocketAddr::new(source, source_port);
    let to = SocketAddr::new(destination, destination_port);
    match packet.protocol {
        6 => tcp(from, to, octets, packet.wire_len).map(Transport::Segment),
        17 if destination_port == UDP_PORT => {
            let (payload, wire_len) = (octets.get(8..)?, packet.wire_len.checked_sub(8)?);
            let ip = packet.header;
            Some(Transport::Datagram(Datagram { from, to, ip, payload, wire_len }))
        }
        _ => None,
    }
}

fn tcp(from: SocketAddr, to: SocketAddr, tcp: &[u8], wire_len: usize) -> Option<Segment<'_>> {
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    let flags = *tcp.get(13)?;
    if header < 20 {
        return None;
    }
    Some(Segment {
        from,
        to,
        seq: be32(tcp, 4)?,
        syn: flags & 2 != 0,
        // A header with options may be cut, too.
        payload: tcp.get(header..).unwrap_or_default(),
        wire_len: wire_len.checked_sub(header)?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A TCP segment in IPv4, no checksums.
    pub(in crate::decode) fn ipv4_packet(
        ports: (u16, u16),
        seq: u32,
        flags: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1];
        let total = (40 + payload.len()) as u16;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip.extend(tcp_octets(ports, seq, flags, payload));
        ip
    }

    fn tcp_octets(ports: (u16, u16), seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut tcp = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        tcp.extend(seq.to_be_bytes());
        tcp.extend([0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        tcp.extend(payload);
        tcp
    }

    fn ipv6_packet(payload: &[u8]) -> Vec<u8> {
        let tcp = tcp_octets((1, 2), 3, 0x10, payload);
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend((tcp.len() as u16 + 8).to_be_bytes());
        ip.extend([60, 64]);
        ip.extend([0; 15]);
        ip.push(1);
        ip.extend([0; 15]);
        ip.push(1);
        ip.extend([6, 0, 1, 4, 0, 0, 0, 0]);
        ip.extend(tcp);
        ip
    }

    pub(in crate::decode) fn segment(link: u16, data: &[u8]) -> Option<Segment<'_>> {
        match transport(&parse(link, data, data.len())?)? {
            Transport::Segment(segment) => Some(segment),
            Transport::Datagram(_) => None,
        }
    }

    #[test]
    fn every_link_type_leads_to_the_same_segment() {
        let ip = ipv4_packet((1000, 2000), 7, 0x12, b"abc");
        let plain = segment(101, &ip).unwrap();
        assert_eq!((plain.seq, plain.syn, plain.payload), (7, true, &b"abc"[..]));
        assert_eq!(plain.from.to_string(), "127.0.0.1:1000");
        let mut padded = ip.clone();
        padded.extend([0; 6]);
        let vlan = [0u8; 12]
            .iter()
            .copied()
            .chain([0x81, 0, 0, 5, 8, 0])
            .chain(padded)
            .collect::<Vec<_>>();
        let cooked = [0u8; 14].iter().copied().chain([8, 0]).chain(ip.clone()).collect::<Vec<_>>();
        let cooked2 = [8u8, 0].iter().copied().chain([0; 18]).chain(ip.clone()).collect::<Vec<_>>();
        let vlan2 = [0x81u8, 0].iter().copied().chain([0; 18]).chain([0, 5, 8, 0]);
        let vlan2 = vlan2.chain(ip.clone()).collect::<Vec<_>>();
        let null = [2u8, 0, 0, 0].iter().copied().chain(ip.clone()).collect::<Vec<_>>();
        for (link, data) in [(1, &vlan), (113, &cooked), (276, &cooked2), (276, &vlan2), (0, &null)]
        {
            assert_eq!(segment(link, data).unwrap(), plain, "link type {link}");
        }
    }

    #[test]
    fn ipv6_with_extension_header() {
        let ip = ipv6_packet(b"xy");
        let segment = segment(229, &ip).unwrap();
        assert_eq!(segment.payload, b"xy");
        assert_eq!(segment.to.to_string(), "[::1]:2");
    }

    #[test]
    fn nothing_panics() {
        for ip in [ipv4_packet((1, 2), 3, 2, b"abc"), ipv6_packet(b"xy")] {
            for end in 0..=ip.len() {
                for link in 0..300 {
                    let _ = segment(link, &ip[..end]);
                }
            }
            for at in 0..ip.len() {
                for value in 0..=255 {
                    let mut bad = ip.clone();
                    bad[at] = value;
                    let _ = segment(101, &bad);
                }
            }
        }
    }
}
