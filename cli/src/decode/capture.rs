//! Reads capture files: classic pcap (both byte orders, micro- and nanoseconds) and pcapng
//! (sections, interfaces, enhanced, simple and obsolete packets). Streaming: one packet in memory at a time.
//!
//! The file is untrusted: every length is bounded before memory is reserved for it, and every error
//! names the offset in the file.

use std::io::Read;

use crate::error::{CliError, CliResult};

/// Longest packet; a larger length means a damaged file.
const MAX_PACKET: u32 = 1 << 20;

/// One captured packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Offset in the file.
    pub(super) offset: u64,
    /// LINKTYPE_ value of its interface.
    pub(super) link: u16,
    /// When it was captured.
    pub(super) time: Option<u64>,
    /// The octets that were captured.
    pub(super) data: Vec<u8>,
    /// Octets on the wire; more than `data` with a snap length.
    pub(super) wire_len: usize,
}

/// A capture file being read.
pub(super) struct Capture<R> {
    source: Source<R>,
    format: Format,
}

enum Format {
    Pcap { big: bool, link: u16, nanoseconds: bool },
    Ng { big: bool, interfaces: Vec<Interface> },
}

/// An interface of a pcapng section.
struct Interface {
    link: u16,
    /// Octets captured of a packet at most; 0: all.
    snap_len: u32,
    clock: Clock,
}

/// Units of time stamps.
#[derive(Clone, Copy)]
struct Clock {
    per_second: u64,
    /// Seconds to add.
    offset: i64,
}

impl Clock {
    /// Nanoseconds since 1970 of a time stamp.
    fn nanoseconds(self, stamp: u64) -> Option<u64> {
        const SECOND: i128 = 1_000_000_000;
        let time = i128::from(stamp) * SECOND / i128::from(self.per_second);
        u64::try_from(time + i128::from(self.offset) * SECOND).ok()
    }
}

/// Counts octets, so that errors have an offset.
struct Source<R> {
    inner: R,
    offset: u64,
}

impl<R: Read> Source<R> {
    /// Fills `buf`; false if the file ends before its first octet.
    fn try_fill(&mut self, buf: &mut [u8], what: &str) -> CliResult<bool> {
        let start = self.offset;
        let mut filled = 0;
        while filled < buf.len() {
            match self.inner.read(&mut buf[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(malformed(start, format!("the file ends inside {what}"))),
                Ok(n) => {
                    filled += n;
                    self.offset += n as u64;
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(malformed(start, format!("reading {what}: {e}"))),
            }
        }
        Ok(true)
    }

    fn fill(&mut self, buf: &mut [u8], what: &str) -> CliResult<()> {
        if self.try_fill(buf, what)? || buf.is_empty() {
            return Ok(());
        }
        Err(malformed(self.offset, format!("the file ends before {what}")))
    }

    fn take(&mut self, len: u32, what: &str) -> CliResult<Vec<u8>> {
        let mut data = vec![0; len as usize];
        self.fill(&mut data, what)?;
        Ok(data)
    }
}

/// The file begins like no capture.
fn no_capture(magic: [u8; 4]) -> CliError {
    let packed = match magic {
        [0x1f, 0x8b, ..] => Some(("gzip", "zcat")),
        [0x28, 0xb5, 0x2f, 0xfd] => Some(("zstd", "zstdcat")),
        [0xfd, b'7', b'z', b'X'] => Some(("xz", "xzcat")),
        [b'B', b'Z', b'h', _] => Some(("bzip2", "bzcat")),
        [0x04, 0x22, 0x4d, 0x18] => Some(("lz4", "lz4cat")),
        _ => None,
    };
    let error = match packed {
        Some((name, unpack)) => CliError::input(format!("the capture is compressed ({name})"))
            .hint(format!("unpack it first: {unpack} FILE | warpline decode --pcap -")),
        None if magic
            .iter()
            .all(|octet| octet.is_ascii_graphic() || octet.is_ascii_whitespace()) =>
        {
            CliError::input("the file is text and no capture")
                .hint("hexadecimal digits are read by: warpline decode --hex - < FILE")
        }
        None => {
            let seen = u32::from_be_bytes(magic);
            CliError::input(format!("magic number {seen:#010x} is neither pcap nor pcapng")).hint(
                "convert it with `editcap -F pcap FILE NEW`, or capture with `tcpdump -w FILE`",
            )
        }
    };
    error.at("capture file, offset 0")
}

fn malformed(offset: u64, what: String) -> CliError {
    CliError::input(what)
        .at(format!("capture file, offset {offset}"))
        .because("the file is damaged, still being written, or not a capture")
        .hint("read it with `tshark -r FILE`, or capture again with `tcpdump -w FILE`")
}

fn u16_at(data: &[u8], at: usize, big: bool) -> u16 {
    let octets = [data[at], data[at + 1]];
    if big { u16::from_be_bytes(octets) } else { u16::from_le_bytes(octets) }
}

fn u32_at(data: &[u8], at: usize, big: bool) -> u32 {
    let octets = [data[at], data[at + 1], data[at + 2], data[at + 3]];
    if big { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) }
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE: u32 = 2;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;

impl<R: Read> Capture<R> {
    /// Reads the file header.
    pub(super) fn open(inner: R) -> CliResult<Self> {
        let mut source = Source { inner, offset: 0 };
        let mut magic = [0; 4];
        source.fill(&mut magic, "the magic number")?;
        let format = match magic {
            [0xa1, 0xb2, 0xc3, 0xd4] => open_pcap(&mut source, true, false)?,
            [0xa1, 0xb2, 0x3c, 0x4d] => open_pcap(&mut source, true, true)?,
            [0xd4, 0xc3, 0xb2, 0xa1] => open_pcap(&mut source, false, false)?,
            [0x4d, 0x3c, 0xb2, 0xa1] => open_pcap(&mut source, false, true)?,
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                let big = open_section(&mut source)?;
                Format::Ng { big, interfaces: Vec::new() }
            }
            other => return Err(no_capture(other)),
        };
        Ok(Self { source, format })
    }

    /// Next packet; `None` at the end of the file.
    pub(super) fn next_packet(&mut self) -> CliResult<Option<Packet>> {
        match self.format {
            Format::Pcap { big, link, nanoseconds } => self.next_pcap(big, link, nanoseconds),
            Format::Ng { .. } => self.next_ng(),
        }
    }

    fn next_pcap(&mut self, big: bool, link: u16, nanoseconds: bool) -> CliResult<Option<Packet>> {
        let offset = self.source.offset;
        let mut head = [0; 16];
        if !self.source.try_fill(&mut head, "a packet header")? {
            return Ok(None);
        }
        let (captured, original) = (u32_at(&head, 8, big), u32_at(&head, 12, big));
        check_packet_len(offset, captured)?;
        let data = self.source.take(captured, "a packet")?;
        let (seconds, fraction) = (u64::from(u32_at(&head, 0, big)), u32_at(&head, 4, big));
        let unit = if nanoseconds { 1 } else { 1000 };
        let time = Some(seconds * 1_000_000_000 + u64::from(fraction) * unit);
        let wire_len = original.max(captured) as usize;
        Ok(Some(Packet { offset, link, time, data, wire_len }))
    }

    fn next_ng(&mut self) -> CliResult<Option<Packet>> {
        loop {
            let Format::Ng { big, ref mut interfaces } = self.format else { return Ok(None) };
            let offset = self.source.offset;
            let mut head = [0; 4];
            if !self.source.try_fill(&mut head, "a block type")? {
                return Ok(None);
            }
            let kind = u32_at(&head, 0, big);
            if kind == SECTION {
                let big = open_section(&mut self.source)?;
                self.format = Format::Ng { big, interfaces: Vec::new() };
                continue;
            }
            let body = read_block(&mut self.source, offset, big)?;
            match kind {
                INTERFACE if body.len() >= 8 => interfaces.push(interface(&body, big)),
                ENHANCED => return enhanced(offset, &body, big, interfaces).map(Some),
                SIMPLE => return simple(offset, &body, big, interfaces).map(Some),
                // The interface is 16 bits wide, and a count of drops follows.
                OBSOLETE if body.len() >= 4 => {
                    let number = u32::from(u16_at(&body, 0, big));
                    let number = if big { number.to_be_bytes() } else { number.to_le_bytes() };
                    let body = [&number, &body[4..]].concat();
                    return enhanced(offset, &body, big, interfaces).map(Some);
                }
                INTERFACE => return Err(malformed(offset, "interface block too short".into())),
                _ => {}
            }
        }
    }
}

fn open_pcap<R: Read>(source: &mut Source<R>, big: bool, nanoseconds: bool) -> CliResult<Format> {
    let mut head = [0; 20];
    source.fill(&mut head, "the file header")?;
    // The upper half of the word carries FCS flags.
    Ok(Format::Pcap { big, link: u32_at(&head, 16, big) as u16, nanoseconds })
}

/// Reads a section header after its type; returns the byte order.
fn open_section<R: Read>(source: &mut Source<R>) -> CliResult<bool> {
    let offset = source.offset.saturating_sub(4);
    let mut head = [0; 8];
    source.fill(&mut head, "a section header")?;
    let big = match head[4..8] {
        [0x1a, 0x2b, 0x3c, 0x4d] => true,
        [0x4d, 0x3c, 0x2b, 0x1a] => false,
        _ => return Err(malformed(offset, "section header without a byte-order magic".into())),
    };
    let len = u32_at(&head, 0, big);
    if !(28..=MAX_PACKET).contains(&len) || !len.is_multiple_of(4) {
        return Err(malformed(offset, format!("section header of {len} octets")));
    }
    source.take(len - 12, "a section header")?;
    Ok(big)
}

/// Reads a block after its type; returns its body.
fn read_block<R: Read>(source: &mut Source<R>, offset: u64, big: bool) -> CliResult<Vec<u8>> {
    let mut head = [0; 4];
    source.fill(&mut head, "a block length")?;
    let len = u32_at(&head, 0, big);
    if len < 12 || !len.is_multiple_of(4) || len > MAX_PACKET + 4096 {
        return Err(malformed(offset, format!("block of {len} octets")));
    }
    let mut body = source.take(len - 8, "a block")?;
    let again = u32_at(&body, body.len() - 4, big);
    if again != len {
        return Err(malformed(
            offset,
            format!("block length {len} at its start, {again} at its end"),
        ));
    }
    body.truncate(body.len() - 4);
    Ok(body)
}

/// An interface block of 8 octets at least; options that are damaged are left out.
fn interface(body: &[u8], big: bool) -> Interface {
    const RESOLUTION: u16 = 9;
    const OFFSET: u16 = 14;
    let mut clock = Clock { per_second: 1_000_000, offset: 0 };
    let mut options = &body[8..];
    while options.len() >= 4 {
        let (code, len) = (u16_at(options, 0, big), usize::from(u16_at(options, 2, big)));
        let Some(value) = options.get(4..4 + len) else { break };
        match (code, value) {
            (0, _) => break,
            (RESOLUTION, [power @ 0..=19]) => clock.per_second = 10_u64.pow(u32::from(*power)),
            (RESOLUTION, [power @ 0x80..=0xbf]) => clock.per_second = 1 << (power & 0x3f),
            (OFFSET, value) if len == 8 => {
                let word = |at| u64::from(u32_at(value, at, big));
                let (high, low) = if big { (word(0), word(4)) } else { (word(4), word(0)) };
                clock.offset = (high << 32 | low) as i64;
            }
            _ => {}
        }
        options = options.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
    }
    Interface { link: u16_at(body, 0, big), snap_len: u32_at(body, 4, big), clock }
}

fn enhanced(offset: u64, body: &[u8], big: bool, interfaces: &[Interface]) -> CliResult<Packet> {
    if body.len() < 20 {
        return Err(malformed(offset, "packet block too short".into()));
    }
    let interface = u32_at(body, 0, big);
    let Some(&Interface { link, clock, .. }) = interfaces.get(interface as usize) else {
        return Err(malformed(
            offset,
            format!("packet of interface {interface}, which is not described"),
        ));
    };
    let (captured, original) = (u32_at(body, 12, big), u32_at(body, 16, big));
    check_packet_len(offset, captured)?;
    let Some(data) = body.get(20..20 + captured as usize) else {
        return Err(malformed(offset, format!("packet of {captured} octets in a smaller block")));
    };
    let stamp = u64::from(u32_at(body, 4, big)) << 32 | u64::from(u32_at(body, 8, big));
    let wire_len = original.max(captured) as usize;
    let time = clock.nanoseconds(stamp);
    Ok(Packet { offset, link, time, data: data.to_vec(), wire_len })
}

fn simple(offset: u64, body: &[u8], big: bool, interfaces: &[Interface]) -> CliResult<Packet> {
    let (Some(&Interface { link, snap_len, .. }), true) = (interfaces.first(), body.len() >= 4)
    else {
        return Err(malformed(offset, "simple packet block without interface or length".into()));
    };
    let wire_len = u32_at(body, 0, big) as usize;
    let snap_len = if snap_len == 0 { usize::MAX } else { snap_len as usize };
    let captured = wire_len.min(snap_len).min(body.len() - 4);
    let data = body[4..4 + captured].to_vec();
    Ok(Packet { offset, link, time: None, data, wire_len })
}

fn check_packet_len(offset: u64, captured: u32) -> CliResult<()> {
    if captured > MAX_PACKET {
        return Err(malformed(offset, format!("packet of {captured} octets")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcap(records: &[&[u8]], big: bool) -> Vec<u8> {
        let word = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut file = Vec::new();
        for v in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1] {
            file.extend(word(v));
        }
        for record in records {
            for v in [1, 2, record.len() as u32, record.len() as u32] {
                file.extend(word(v));
            }
            file.extend(*record);
        }
        file
    }

    fn ng_block(kind: u32, body: &[u8]) -> Vec<u8> {
        let len = (body.len().next_multiple_of(4) + 12) as u32;
        let mut block = [kind.to_le_bytes(), len.to_le_bytes()].concat();
        block.extend(body);
        block.resize(len as usize - 4, 0);
        block.extend(len.to_le_bytes());
        block
    }

    fn ng(packet: &[u8]) -> Vec<u8> {
        let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        let mut body = Vec::new();
        for v in [0u32, 0, 0, packet.len() as u32, packet.len() as u32 + 1] {
            body.extend(v.to_le_bytes());
        }
        body.extend(packet);
        let interface = [113, 0, 0, 0, 0, 0, 4, 0];
        [
            ng_block(SECTION, &section),
            ng_block(INTERFACE, &interface),
            ng_block(5, b"stat"),
            ng_block(ENHANCED, &body),
        ]
        .concat()
    }

    fn all(file: &[u8]) -> CliResult<Vec<Packet>> {
        let mut capture = Capture::open(file)?;
        let mut packets = Vec::new();
        while let Some(packet) = capture.next_packet()? {
            packets.push(packet);
        }
        Ok(packets)
    }

    #[test]
    fn classic_in_both_byte_orders() {
        for big in [false, true] {
            let packets = all(&pcap(&[b"one", b""], big)).unwrap();
            assert_eq!(packets.len(), 2);
            assert_eq!(
                packets[0],
                Packet {
                    offset: 24,
                    link: 1,
                    time: Some(1_000_002_000),
                    data: b"one".to_vec(),
                    wire_len: 3
                }
            );
        }
    }

    #[test]
    fn pcapng_skips_unknown_blocks() {
        let packets = all(&ng(b"hello")).unwrap();
        assert_eq!(packets.len(), 1);
        assert_eq!((packets[0].link, packets[0].wire_len), (113, 6));
        assert_eq!((packets[0].data.as_slice(), packets[0].time), (&b"hello"[..], Some(0)));
    }

    /// A section of one interface with options, and a block of this kind.
    fn ng_with(big: bool, interface: &[u32], kind: u32, words: &[u32], data: &[u8]) -> Vec<u8> {
        let word = |v: &u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let block = |kind: u32, body: Vec<u8>| {
            let len = (body.len().next_multiple_of(4) + 12) as u32;
            let mut block = [word(&kind), word(&len)].concat();
            block.extend(body);
            block.resize(len as usize - 4, 0);
            block.extend(word(&len));
            block
        };
        let octets = |words: &[u32]| words.iter().flat_map(word).collect::<Vec<_>>();
        let version = if big { 0x0001_0000 } else { 1 };
        [
            block(SECTION, octets(&[0x1a2b_3c4d, version, u32::MAX, u32::MAX])),
            block(INTERFACE, octets(interface)),
            block(kind, [octets(words), data.to_vec()].concat()),
        ]
        .concat()
    }

    #[test]
    fn interfaces_have_their_own_clock_and_snap_length() {
        // Link type 1 in the first half of a word; option 9 of one octet; an offset of 5 s.
        let big = [0x0001_0000, 0, 0x0009_0001, 0x0900_0000, 0x000e_0008, 0, 5, 0];
        let little = [1, 0, 0x0001_0009, 0x83, 0x0008_000e, 5, 0, 0];
        for (big, interface, time) in [(true, big, 5_000_000_016), (false, little, 7_000_000_000)] {
            let words = [0, 0, 16, 3, 9];
            let packet =
                all(&ng_with(big, &interface, ENHANCED, &words, b"abc")).unwrap().remove(0);
            assert_eq!((packet.time, packet.wire_len), (Some(time), 9), "{big}");
            assert_eq!(packet.data, b"abc");
        }
        let interface = [1, 5];
        let packet = all(&ng_with(false, &interface, SIMPLE, &[9], b"abcde")).unwrap().remove(0);
        assert_eq!((packet.time, packet.wire_len, packet.data.len()), (None, 9, 5));
        let words = [0, 0, 16_000, 3, 9];
        let packet = all(&ng_with(false, &interface, OBSOLETE, &words, b"abc")).unwrap().remove(0);
        assert_eq!((packet.time, packet.data.as_slice()), (Some(16_000_000), &b"abc"[..]));
    }

    #[test]
    fn other_files_are_named() {
        for (magic, name) in [
            (&b"\x1f\x8b\x08\0"[..], "gzip"),
            (b"\x28\xb5\x2f\xfd", "zstd"),
            (b"\xfd7zX", "xz"),
            (b"0012", "text"),
            (b"\0asm", "0x0061736d"),
        ] {
            let error = all(magic).unwrap_err().render(80);
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn damage_is_located() {
        let error = all(b"not a capture").unwrap_err().render(80);
        assert!(error.contains("offset 0") && error.contains("text"), "{error}");
        let file = pcap(&[b"one"], false);
        let error = all(&file[..file.len() - 1]).unwrap_err().render(80);
        assert!(error.contains("offset 40") && error.contains("ends inside"), "{error}");
        let mut file = pcap(&[b"one"], false);
        file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(all(&file).unwrap_err().render(80).contains("4294967295"));
    }

    #[test]
    fn no_prefix_of_a_file_panics() {
        for file in [pcap(&[b"one", b"two"], true), ng(b"hello")] {
            for end in 0..file.len() {
                let _ = all(&file[..end]);
            }
            for at in 0..file.len() {
                let mut bad = file.clone();
                bad[at] ^= 0xff;
                let _ = all(&bad);
            }
        }
    }
}
