//! Makes packets of FPDUs: IP and TCP headers with the addresses of the connection, and sequence numbers that
//! count the octets of each direction from the first captured one on. It adds a handshake and an MPA start-up in
//! front, without which dissectors do not recognise FPDUs. No IO but the writer's.
//!
//! Dissectors show DDP and RDMAP of whole FPDUs only. So payload that was not captured is zeros in FPDUs up to
//! [`FILLED`]; larger ones are cut, unless all are to be filled. The start-up then disables CRCs, because they
//! would not match.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ual::Network;
use ual::vp_api::capture::{CRC, INITIATOR, Kind, MARKERS, Record};

use super::pcapng::Pcapng;

const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;

/// Octets of an MPA start-up frame without private data.
const FRAME: usize = 20;
/// The sequence number of the first captured octet: a SYN and a frame are before it.
const FIRST: u32 = 1 + FRAME as u32;

/// Octets of the largest FPDU that is always filled: more than a jumbo frame has.
const FILLED: usize = 9 << 10;

/// How FPDUs are written.
#[derive(Clone, Copy)]
pub(super) struct Style {
    /// Payload that was not captured is zeros.
    pub(super) fill: bool,
    /// All payload is captured.
    pub(super) whole: bool,
}

/// Which connections to write.
pub(super) struct Filter {
    pub(super) peer: Option<Network>,
    pub(super) qp: Option<u32>,
}

/// The connections of the process.
pub(super) struct Flows {
    filter: Filter,
    style: Style,
    flows: BTreeMap<u64, Flow>,
    /// Counts of streams that are not written.
    others: BTreeSet<u64>,
    marked: BTreeSet<u64>,
}

struct Flow {
    /// This end and the peer's.
    ends: [SocketAddr; 2],
    flags: u8,
    /// Position of the first octet, by sender.
    first: [Option<u64>; 2],
    /// The next sequence number, by sender.
    next: [u32; 2],
    begun: bool,
}

impl Flows {
    pub(super) fn new(filter: Filter, style: Style) -> Self {
        Self {
            filter,
            style,
            flows: BTreeMap::new(),
            others: BTreeSet::new(),
            marked: BTreeSet::new(),
        }
    }

    /// How many connections were written.
    pub(super) fn streams(&self) -> u64 {
        self.flows.values().filter(|flow| flow.begun).count() as u64
    }

    /// How many connections have markers.
    pub(super) fn marked(&self) -> u64 {
        self.marked.len() as u64
    }

    /// Writes an FPDU; false if it is not one, or of a connection that is not selected.
    pub(super) fn write(
        &mut self,
        record: &Record<'_>,
        to: &mut Pcapng<impl Write>,
    ) -> io::Result<bool> {
        let sender = match record.kind {
            Kind::Stream => {
                self.add(record);
                return Ok(false);
            }
            Kind::Dropped => return Ok(false),
            Kind::Sent => 0,
            Kind::Received => 1,
        };
        let Some(flow) = self.flows.get_mut(&record.stream) else { return Ok(false) };
        if !std::mem::replace(&mut flow.begun, true) {
            flow.start_up(record.time, to)?;
        }
        let first = *flow.first[sender].get_or_insert(record.position);
        // Modulo 2^32, as TCP's.
        let sequence = FIRST.wrapping_add(record.position.wrapping_sub(first) as u32);
        let len = record.octets as usize;
        flow.next[sender] = sequence.wrapping_add(record.octets);
        let filled;
        let content = match record.content.len() < len && (self.style.fill || len <= FILLED) {
            true => {
                filled = [record.content, &vec![0; len - record.content.len()]].concat();
                &filled
            }
            false => record.content,
        };
        flow.packet(sender, sequence, PUSH | ACK, (len, content), record.time, to)?;
        Ok(true)
    }

    fn add(&mut self, record: &Record<'_>) {
        if self.flows.contains_key(&record.stream) || self.others.contains(&record.stream) {
            return;
        }
        let text = std::str::from_utf8(record.content).unwrap_or_default();
        let (local, remote) = text.split_once(' ').unwrap_or_default();
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, record.stream as u16));
        let ends = [local, remote].map(|end| end.parse().unwrap_or(unknown));
        let wanted = self.filter.peer.is_none_or(|peer| peer.contains(ends[1].ip()))
            && self.filter.qp.is_none_or(|qp| qp == record.octets);
        if wanted && record.flags & MARKERS != 0 {
            self.marked.insert(record.stream);
        }
        // A process may have both ends of a connection: each FPDU would be written twice.
        let is_other_end = |flow: &Flow| flow.ends[0] == ends[1] && flow.ends[1] == ends[0];
        if !wanted || self.flows.values().any(is_other_end) {
            self.others.insert(record.stream);
            return;
        }
        let flags = if self.style.whole { record.flags } else { record.flags & !CRC };
        let (first, next) = ([None; 2], [0; 2]);
        self.flows.insert(record.stream, Flow { ends, flags, first, next, begun: false });
    }
}

impl Flow {
    fn start_up(&mut self, time: u64, to: &mut Pcapng<impl Write>) -> io::Result<()> {
        let initiator = usize::from(self.flags & INITIATOR == 0);
        let responder = 1 - initiator;
        self.control(initiator, SYN, time, to)?;
        self.next[initiator] = 1;
        self.control(responder, SYN | ACK, time, to)?;
        self.next[responder] = 1;
        self.control(initiator, ACK, time, to)?;
        for (sender, key) in [(initiator, b"MPA ID Req Frame"), (responder, b"MPA ID Rep Frame")] {
            let crc = if self.flags & CRC != 0 { 0x40 } else { 0 };
            let frame = [&key[..], &[crc, 1, 0, 0]].concat();
            self.packet(sender, 1, PUSH | ACK, (FRAME, &frame), time, to)?;
            self.next[sender] = FIRST;
        }
        Ok(())
    }

    fn control(
        &self,
        sender: usize,
        flags: u8,
        time: u64,
        to: &mut Pcapng<impl Write>,
    ) -> io::Result<()> {
        self.packet(sender, self.next[sender], flags, (0, &[]), time, to)
    }

    /// A segment of `content.0` octets, of which the first were captured.
    fn packet(
        &self,
        sender: usize,
        sequence: u32,
        flags: u8,
        (len, front): (usize, &[u8]),
        time: u64,
        to: &mut Pcapng<impl Write>,
    ) -> io::Result<()> {
        let [source, target] = [self.ends[sender], self.ends[1 - sender]];
        let mut packet = Vec::with_capacity(IP_HEADER + TCP_HEADER + front.len());
        put_ip_header(&mut packet, source.ip(), target.ip(), TCP_HEADER + len);
        let before = packet.len();
        packet.extend_from_slice(&source.port().to_be_bytes());
        packet.extend_from_slice(&target.port().to_be_bytes());
        packet.extend_from_slice(&sequence.to_be_bytes());
        let acknowledged = if flags & ACK != 0 { self.next[1 - sender] } else { 0 };
        packet.extend_from_slice(&acknowledged.to_be_bytes());
        // The checksum covers octets that were not captured.
        packet.extend_from_slice(&[(TCP_HEADER as u8 / 4) << 4, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        let headers = packet.len();
        debug_assert_eq!(headers - before, TCP_HEADER);
        packet.extend_from_slice(front);
        to.packet(time, headers + len, &packet)
    }
}

/// Octets of the longer IP header, IPv6's.
const IP_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const TCP: u8 = 6;

fn put_ip_header(packet: &mut Vec<u8>, source: IpAddr, target: IpAddr, len: usize) {
    match (source.to_canonical(), target.to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let total = ((20 + len) as u16).to_be_bytes();
            // No fragments, 64 hops.
            let mut header =
                [0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, TCP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            header[12..16].copy_from_slice(&source.octets());
            header[16..].copy_from_slice(&target.octets());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            packet.extend_from_slice(&header);
        }
        (source, target) => {
            let len = (len as u16).to_be_bytes();
            packet.extend_from_slice(&[0x60, 0, 0, 0, len[0], len[1], TCP, 64]);
            for address in [source, target] {
                let address = match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                packet.extend_from_slice(&address.octets());
            }
        }
    }
}

/// RFC 1071
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !((folded & 0xFFFF) + (folded >> 16)) as u16
}
