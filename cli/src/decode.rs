//! `warpline decode`: explains octets of iWARP and RoCE v2, from a string or from a capture. All input is
//! untrusted.

mod args;
mod capture;
mod connection;
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
use self::capture::Capture;
use self::connection::Connections;
use self::packet::Transport;
use self::render::{Renderer, Totals};
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
        (None, Some(path)) => decode_capture(path, &mut renderer)?,
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
        None => connection::startup_flags(&octets).is_none_or(|flags| flags.crc),
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
    let input: Box<dyn Read> = if path == Path::new(STDIN) {
        Box::new(stdin())
    } else {
        Box::new(File::open(path).map_err(|e| {
            CliError::input(format!("cannot read {}: {e}", path.display())).at("decode --pcap")
        })?)
    };
    let mut capture = Capture::open(BufReader::with_capacity(1 << 18, input))?;
    let mut connections = Connections::default();
    let mut foreign_link = None;
    while let Some(packet) = capture.next_packet()? {
        if !packet::link_known(packet.link) {
            foreign_link.get_or_insert((packet.link, packet.offset));
            continue;
        }
        match packet::parse(packet.link, &packet.data) {
            Some(Transport::Segment(segment)) => connections.push(&segment, renderer)?,
            Some(Transport::Datagram(datagram)) => roce::datagram(&datagram, renderer)?,
            None => {}
        }
    }
    connections.finish(renderer)?;
    match foreign_link {
        Some((link, offset)) => {
            Err(CliError::input(format!("packets of link type {link} are not understood"))
                .at(format!("capture file, offset {offset}"))
                .hint("capture on an Ethernet or loopback interface, or on `any`"))
        }
        None if renderer.totals().frames == 0 => Err(CliError::input(
            "no iWARP connection in the capture",
        )
        .at("decode --pcap")
        .because("a connection is recognised by its MPA start-up; the capture may begin after it")
        .hint("start the capture before the connection")),
        None => Ok(()),
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
