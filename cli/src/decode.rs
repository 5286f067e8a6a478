//! `warpline decode`: explains octets of iWARP and RoCE v2, from a string or from a capture. All input is
//! untrusted.

mod args;
mod capture;
mod connection;
mod direction;
mod fragments;
mod iwarp;
mod packet;
mod render;
mod roce;
mod stream;

use std::fs::File;
use std::io::{BufReader, Read, Write, stdin};
use std::path::Path;

use iwarp_proto::decode::{DecodeOptions, Start, explain};

pub(crate) use self::args::DecodeArgs;
use self::capture::{Capture, Packet};
use self::connection::Connections;
use self::fragments::Fragments;
use self::packet::{IpPacket, Transport};
use self::render::{Renderer, Stamp, Totals};
use crate::error::{CliError, CliResult, Exit};
use crate::output::count;
use crate::values::Switch;

/// Standard input, as a file name or a string.
const STDIN: &str = "-";

/// Bound of what `--hex -` reads.
const MAX_HEX: u64 = 64 << 20;

/// The kernel for CRC fields.
fn crc32c(crc: u32, octets: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, octets)
}

/// Explains the input; fails if a requirement is broken.
pub(crate) fn run(args: &DecodeArgs, out: &mut dyn Write) -> CliResult<()> {
    let mut renderer = Renderer::new(out, args.json, args.brief);
    match (&args.hex, &args.pcap) {
        (Some(text), _) => decode_hex(text, args, &mut renderer)?,
        (None, Some(path)) => {
            let read = decode_capture(path, &mut renderer);
            if read.is_err() && renderer.totals().frames == 0 {
                return read;
            }
            let totals = renderer.finish()?;
            return read.and_then(|()| verdict(&totals));
        }
        (None, None) => {}
    }
    let totals = renderer.finish()?;
    verdict(&totals)
}

fn verdict(totals: &Totals) -> CliResult<()> {
    if totals.violations == 0 {
        return Ok(());
    }
    let (wrong, frames) =
        (count(totals.violations, "broken requirement"), count(totals.frames, "frame"));
    Err(CliError::new(Exit::Failed, format!("{wrong} in {frames}"))
        .at("decode, the fields marked !!")
        .because("the sender is wrong, the octets were changed, or they do not begin where a frame begins"))
}

fn decode_hex(text: &str, args: &DecodeArgs, renderer: &mut Renderer<'_>) -> CliResult<()> {
    let octets = match text {
        STDIN => {
            let mut text = String::new();
            let read = stdin().take(MAX_HEX).read_to_string(&mut text);
            read.map_err(|e| CliError::input(format!("cannot read standard input: {e}")))?;
            parse_hex(&text)?
        }
        text => parse_hex(text)?,
    };
    if args.roce {
        return renderer.frame(None, 0, &roce::bare(&octets));
    }
    let crc = match args.crc {
        Some(switch) => switch == Switch::On,
        None => direction::startup_flags(&octets).is_none_or(|flags| flags.crc),
    };
    let crc = crc.then_some(crc32c as fn(u32, &[u8]) -> u32);
    let options = DecodeOptions { crc, markers: args.markers, start: Start::Detect };
    for frame in explain(&octets, options) {
        renderer.frame(None, 0, &frame.into())?;
    }
    Ok(())
}

/// Octets from hexadecimal digits; blanks, colons, commas and `0x` between octets do not count.
fn parse_hex(text: &str) -> CliResult<Vec<u8>> {
    let mut octets = Vec::new();
    let mut high = None;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        if high.is_none() && (c.is_whitespace() || matches!(c, ':' | ',')) {
            continue;
        }
        if high.is_none()
            && c == '0'
            && characters.next_if(|(_, x)| matches!(x, 'x' | 'X')).is_some()
        {
            continue;
        }
        let digit = c.to_digit(16).ok_or_else(|| {
            CliError::input(format!("{c:?} is not a hexadecimal digit"))
                .at(format!("decode --hex, character {at}"))
                .hint("write two digits per octet, e.g. 00124143")
        })? as u8;
        high = match high {
            None => Some(digit),
            Some(high) => {
                octets.push(high << 4 | digit);
                None
            }
        };
    }
    if high.is_some() {
        return Err(CliError::input("the last octet has one digit only")
            .at(format!("decode --hex, octet {}", octets.len()))
            .hint("write two digits per octet, e.g. 00124143"));
    }
    if octets.is_empty() {
        return Err(CliError::input("there is no octet to explain").at("decode --hex"));
    }
    Ok(octets)
}

fn decode_capture(path: &Path, renderer: &mut Renderer<'_>) -> CliResult<()> {
    let mut packets = Packets::default();
    let read = open(path).and_then(|input| {
        let mut capture = Capture::open(BufReader::with_capacity(1 << 18, input))?;
        while let Some(packet) = capture.next_packet()? {
            packets.take(&packet, renderer)?;
        }
        Ok(())
    });
    // Of a file that is damaged at its end the rest is explained.
    packets.connections.finish(renderer)?;
    read?;
    match packets.foreign_link {
        _ if renderer.totals().frames > 0 => Ok(()),
        Some((link, offset)) => {
            Err(CliError::input(format!("packets of link type {link} are not understood"))
                .at(format!("capture file, offset {offset}"))
                .hint("capture on an Ethernet or loopback interface, or on `any`"))
        }
        None => Err(CliError::input(
            "neither an iWARP connection nor a packet of RoCE v2 in the capture",
        )
        .at("decode --pcap")
        .because(
            "a connection of iWARP is recognised by its MPA start-up or the CRC of an FPDU, a packet of RoCE by UDP port 4791",
        )
        .hint("start the capture before the connection, with its port and all octets (tcpdump -s 0)")),
    }
}

fn open(path: &Path) -> CliResult<Box<dyn Read>> {
    if path == Path::new(STDIN) {
        return Ok(Box::new(stdin()));
    }
    let wrong = |why: String| {
        CliError::input(format!("cannot read {}: {why}", path.display())).at("decode --pcap")
    };
    let file = File::open(path).map_err(|e| wrong(e.to_string()))?;
    if file.metadata().is_ok_and(|data| data.is_dir()) {
        return Err(wrong("it is a directory".into()).hint("name the file of a capture in it"));
    }
    Ok(Box::new(file))
}

/// What the packets of a capture have shown.
#[derive(Default)]
struct Packets {
    number: u64,
    connections: Connections,
    fragments: Fragments,
    /// The first packet of a link type that is not understood: the type, and the offset in the file.
    foreign_link: Option<(u16, u64)>,
}

impl Packets {
    fn take(&mut self, packet: &Packet, renderer: &mut Renderer<'_>) -> CliResult<()> {
        self.number += 1;
        let stamp = Stamp { number: self.number, time: packet.time };
        if self.number == 1 {
            renderer.starts_at(stamp);
        }
        if !packet::link_known(packet.link) {
            self.foreign_link.get_or_insert((packet.link, packet.offset));
            renderer.unknown();
            return Ok(());
        }
        match packet::parse(packet.link, &packet.data, packet.wire_len) {
            Some(part) if part.fragment.is_some() => match self.fragments.push(&part) {
                Some(whole) => self.transport(&whole.packet(), stamp, renderer),
                None => Ok(()),
            },
            Some(whole) => self.transport(&whole, stamp, renderer),
            None => Ok(()),
        }
    }

    fn transport(
        &mut self,
        packet: &IpPacket<'_>,
        stamp: Stamp,
        renderer: &mut Renderer<'_>,
    ) -> CliResult<()> {
        match packet::transport(packet) {
            Some(Transport::Segment(segment)) => self.connections.push(&segment, stamp, renderer),
            Some(Transport::Datagram(datagram)) => roce::datagram(&datagram, stamp, renderer),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_in_every_common_form() {
        for text in ["00124f", "00 12 4F", "00:12:4f\n", "0x00, 0x12, 0x4f", "0x00124f"] {
            assert_eq!(parse_hex(text).unwrap(), [0, 0x12, 0x4f], "{text}");
        }
    }

    #[test]
    fn bad_hex_is_located() {
        assert!(parse_hex("00 1g").unwrap_err().render(80).contains("character 4"));
        assert!(parse_hex("00123").unwrap_err().render(80).contains("octet 2"));
        assert!(parse_hex(" \n").unwrap_err().render(80).contains("no octet"));
        assert!(parse_hex("0 0").is_err());
        assert!(parse_hex("é").is_err());
    }
}
