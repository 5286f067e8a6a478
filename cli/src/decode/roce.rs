//! Packets of RoCE v2 in a capture, and for the renderer. Pure functions over untrusted octets.

use roce_proto::decode::{self as roce, Seal, explain, explain_front};
use roce_proto::icrc::{Envelope, Ip, of_datagram};
use roce_proto::wire::ICRC_LEN;
use roce_proto::wire::bth::Bth;
use roce_proto::wire::packet::Headers;

use super::packet::Datagram;
use super::render::{Field, Frame, Origin, Renderer, Stamp, Value, Violation};
use crate::error::CliResult;

/// The kernel of invariant CRCs.
fn crc32(crc: u32, octets: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(octets);
    hasher.finalize()
}

/// Explains the payload of a UDP datagram without its IP header: the invariant CRC is not judged.
pub(super) fn bare(octets: &[u8]) -> Frame {
    explain(octets, None).into()
}

/// Explains a datagram of a capture.
pub(super) fn datagram(
    datagram: &Datagram<'_>,
    packet: Stamp,
    renderer: &mut Renderer<'_>,
) -> CliResult<()> {
    let envelope = Envelope {
        ip: datagram.ip,
        source_port: datagram.from.port(),
        destination_port: datagram.to.port(),
    };
    let origin = Some(Origin { from: datagram.from, to: datagram.to, packet });
    if datagram.payload.len() < datagram.wire_len {
        renderer.missing((datagram.wire_len - datagram.payload.len()) as u64);
        let frame = explain_front(datagram.payload, datagram.wire_len);
        return renderer.frame(origin, 0, &frame.into());
    }
    let len = packet_len(&envelope, datagram.payload).max(1);
    for (number, packet) in datagram.payload.chunks(len).enumerate() {
        let envelope = nth(envelope, number, packet);
        let frame = explain(packet, Some(Seal { kernel: crc32, envelope: &envelope }));
        renderer.frame(origin, (number * len) as u64, &frame.into())?;
    }
    Ok(())
}

/// Octets of the first packet in a datagram. A capture on the sender's host has several in one, which the kernel or
/// the adapter divides (UDP segmentation offload): all but the last have the length of a full one.
fn packet_len(envelope: &Envelope, datagram: &[u8]) -> usize {
    let whole = datagram.len();
    let Ok((_, headers)) = Headers::parse(datagram) else { return whole };
    // The next packet goes to the same queue pair, with the same partition.
    let follows = |at: usize| {
        let next = datagram.get(at..at + Bth::LEN);
        next.is_some_and(|next| next[2..4] == datagram[2..4] && next[5..8] == datagram[5..8])
    };
    let mut ends = (headers + ICRC_LEN..whole).step_by(4);
    ends.find(|&len| follows(len) && sealed(envelope, &datagram[..len])).unwrap_or(whole)
}

/// The envelope of a packet of such a datagram: its identification is counted on, or not.
fn nth(envelope: Envelope, number: usize, packet: &[u8]) -> Envelope {
    match envelope.ip {
        Ip::V4 { source, destination, id, dont_fragment } if !sealed(&envelope, packet) => {
            let id = id.wrapping_add(number as u16);
            Envelope { ip: Ip::V4 { source, destination, id, dont_fragment }, ..envelope }
        }
        _ => envelope,
    }
}

fn sealed(envelope: &Envelope, packet: &[u8]) -> bool {
    of_datagram(crc32, envelope, packet).is_some_and(|right| packet.ends_with(&right))
}

impl From<roce::Frame> for Frame {
    fn from(frame: roce::Frame) -> Self {
        let roce::Frame { what, length, full_length, fields } = frame;
        let fields = fields.into_iter().map(Field::from).collect();
        Self { what, offset: 0, length, full_length, fields }
    }
}

impl From<roce::Field> for Field {
    fn from(field: roce::Field) -> Self {
        let roce::Field { layer, name, offset, length, bits, value, note, violation } = field;
        let value = match value {
            roce::Value::Number(number) => Value::Number(number),
            roce::Value::Hex(number, digits) => Value::Hex(number, digits),
            roce::Value::Octets(octets) => Value::Octets(octets),
        };
        let violation = violation.map(|roce::Violation { requirement, text }| Violation {
            requirement,
            text,
            consequence: "a receiver drops the packet".into(),
            terminate: None,
        });
        Self { layer: layer.name(), name, offset, length, bits, value, note, violation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // On the sender's host a capture has several packets in one datagram.
    #[test]
    fn packets_that_are_divided_later_are_explained_one_by_one() {
        let ip = |id| Ip::V4 { source: [1; 4], destination: [2; 4], id, dont_fragment: true };
        let envelope = |id| Envelope { ip: ip(id), source_port: 5, destination_port: 4791 };
        for step in [0, 1] {
            let packet = |psn: u8, len: usize| {
                let mut packet = vec![4, 0, 0xff, 0xff, 0, 0, 1, 0x18, 0, 0, 0, psn];
                packet.resize(12 + len, psn);
                packet.extend([0; ICRC_LEN]);
                let envelope = envelope(7 + u16::from(psn) * step);
                let right = of_datagram(crc32, &envelope, &packet).unwrap();
                packet.splice(12 + len.., right);
                packet
            };
            let payload = [packet(0, 64), packet(1, 64), packet(2, 8)].concat();
            let (from, to) = (([1; 4], 5).into(), ([2; 4], 4791).into());
            let datagram =
                Datagram { from, to, ip: ip(7), payload: &payload, wire_len: payload.len() };
            let mut out = Vec::new();
            let mut renderer = Renderer::new(&mut out, false, true);
            self::datagram(&datagram, Stamp { number: 1, time: None }, &mut renderer).unwrap();
            renderer.finish().unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("octet 80: RC Send Only, 80 octets"), "{text}");
            assert!(text.ends_with("3 frames, 0 broken requirements\n"), "{text}");
        }
    }
}
