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
    pub(super) fin: bool,
    pub(super) rst: bool,
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

/// The segment or datagram in a packet of link type `link`.
pub(super) fn parse(link: u16, data: &[u8]) -> Option<Transport<'_>> {
    let ip = match link {
        // NULL and LOOP: address family; redundant, as the IP version says it
        0 | 108 => data.get(4..)?,
        1 => ethernet(data, 12)?,
        12 | 14 | 101 | 228 | 229 => data,
        // SLL: protocol at 14; SLL2: protocol at 0
        113 => ethernet(data, 14)?,
        276 if matches!(be16(data, 0)?, 0x0800 | 0x86dd) => data.get(20..)?,
        _ => return None,
    };
    match ip.first()? >> 4 {
        4 => ipv4(ip),
        6 => ipv6(ip),
        _ => None,
    }
}

/// Skips to the IP header, the EtherType being at `at`.
fn ethernet(data: &[u8], mut at: usize) -> Option<&[u8]> {
    while matches!(be16(data, at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    match be16(data, at)? {
        0x0800 | 0x86dd => data.get(at + 2..),
        _ => None,
    }
}

fn ipv4(ip: &[u8]) -> Option<Transport<'_>> {
    let header = usize::from(ip[0] & 15) * 4;
    // With segmentation offload the total length may be 0: the rest of the packet then.
    let total = match usize::from(be16(ip, 2)?) {
        0 => ip.len(),
        n => n,
    };
    let flags = be16(ip, 6)?;
    if header < 20 || flags & 0x3fff != 0 {
        return None;
    }
    let source: [u8; 4] = ip.get(12..16)?.try_into().ok()?;
    let destination: [u8; 4] = ip.get(16..20)?.try_into().ok()?;
    let header_of =
        Ip::V4 { source, destination, id: be16(ip, 4)?, dont_fragment: flags & 0x4000 != 0 };
    let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
    let (rest, len) = (ip.get(header..)?, total.checked_sub(header)?);
    transport(*ip.get(9)?, header_of, source.into(), destination.into(), rest, len)
}

fn ipv6(ip: &[u8]) -> Option<Transport<'_>> {
    let source: [u8; 16] = ip.get(8..24)?.try_into().ok()?;
    let destination: [u8; 16] = ip.get(24..40)?.try_into().ok()?;
    let total = match usize::from(be16(ip, 4)?) {
        0 => ip.len() - 40,
        n => n,
    };
    let (mut next, mut at) = (*ip.get(6)?, 40);
    // Hop-by-hop, routing and destination options; a fragment is not TCP that we can read.
    while matches!(next, 0 | 43 | 60) {
        next = *ip.get(at)?;
        at += (usize::from(*ip.get(at + 1)?) + 1) * 8;
    }
    let header = Ip::V6 { source, destination };
    let (source, destination) = (Ipv6Addr::from(source), Ipv6Addr::from(destination));
    let (rest, len) = (ip.get(at..)?, (total + 40).checked_sub(at)?);
    transport(next, header, source.into(), destination.into(), rest, len)
}

fn transport(
    protocol: u8,
    header: Ip,
    source: IpAddr,
    destination: IpAddr,
    rest: &[u8],
    len: usize,
) -> Option<Transport<'_>> {
    match protocol {
        6 => tcp(source, destination, rest, len).map(Transport::Segment),
        17 => udp(header, source, destination, rest, len).map(Transport::Datagram),
        _ => None,
    }
}

fn udp(
    ip: Ip,
    source: IpAddr,
    destination: IpAddr,
    udp: &[u8],
    wire: usize,
) -> Option<Datagram<'_>> {
    const HEADER: usize = 8;
    let to = SocketAddr::new(destination, be16(udp, 2)?);
    let wire_len = wire.checked_sub(HEADER)?;
    let rest = udp.get(HEADER..)?;
    (to.port() == UDP_PORT).then_some(Datagram {
        from: SocketAddr::new(source, be16(udp, 0)?),
        to,
        ip,
        payload: &rest[..rest.len().min(wire_len)],
        wire_len,
    })
}

fn tcp(source: IpAddr, destination: IpAddr, tcp: &[u8], wire: usize) -> Option<Segment<'_>> {
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    let flags = *tcp.get(13)?;
    if header < 20 {
        return None;
    }
    let wire_len = wire.checked_sub(header)?;
    let rest = tcp.get(header..)?;
    Some(Segment {
        from: SocketAddr::new(source, be16(tcp, 0)?),
        to: SocketAddr::new(destination, be16(tcp, 2)?),
        seq: be32(tcp, 4)?,
        syn: flags & 2 != 0,
        fin: flags & 1 != 0,
        rst: flags & 4 != 0,
        // Ethernet pads short frames: the IP length counts.
        payload: &rest[..rest.len().min(wire_len)],
        wire_len,
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
        match parse(link, data)? {
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
        let null = [2u8, 0, 0, 0].iter().copied().chain(ip.clone()).collect::<Vec<_>>();
        for (link, data) in [(1, &vlan), (113, &cooked), (276, &cooked2), (0, &null)] {
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
                    let _ = parse(link, &ip[..end]);
                }
            }
            for at in 0..ip.len() {
                for value in 0..=255 {
                    let mut bad = ip.clone();
                    bad[at] = value;
                    let _ = parse(101, &bad);
                }
            }
        }
    }
}
