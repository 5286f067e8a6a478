//! Packets of RoCE v2 in a capture, and for the renderer. Pure functions over untrusted octets.

use roce_proto::decode::{self as roce, Seal, explain};
use roce_proto::icrc::Envelope;

use super::packet::Datagram;
use super::render::{Field, Frame, Renderer, Value, Violation};
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
pub(super) fn datagram(datagram: &Datagram<'_>, renderer: &mut Renderer<'_>) -> CliResult<()> {
    let envelope = Envelope {
        ip: datagram.ip,
        source_port: datagram.from.port(),
        destination_port: datagram.to.port(),
    };
    let whole = datagram.payload.len() == datagram.wire_len;
    let seal = whole.then_some(Seal { kernel: crc32, envelope: &envelope });
    let mut frame = Frame::from(explain(datagram.payload, seal));
    frame.full_length = frame.full_length.max(datagram.wire_len);
    if !whole {
        // Octets that were not captured are no fault of the sender.
        frame.fields.iter_mut().for_each(|field| field.violation = None);
    }
    renderer.frame(Some((datagram.from, datagram.to)), 0, &frame)
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
