//! Frames of iWARP for the renderer. Pure functions.

use iwarp_proto::decode as iwarp;

use super::render::{Field, Frame, Value, Violation};

impl From<iwarp::Frame> for Frame {
    fn from(frame: iwarp::Frame) -> Self {
        let iwarp::Frame { what, offset, length, full_length, fields } = frame;
        let fields = fields.into_iter().map(Field::from).collect();
        Self { what: what.into(), offset, length, full_length, fields }
    }
}

impl From<iwarp::Field> for Field {
    fn from(field: iwarp::Field) -> Self {
        let iwarp::Field { layer, name, offset, length, bits, value, note, violation } = field;
        let value = match value {
            iwarp::Value::Number(number) => Value::Number(number),
            iwarp::Value::Hex(number, digits) => Value::Hex(number, digits),
            iwarp::Value::Octets(octets) => Value::Octets(octets),
        };
        let (layer, violation) = (layer.name(), violation.map(Violation::from));
        Self { layer, name, offset, length, bits, value, note, violation }
    }
}

impl From<iwarp::Violation> for Violation {
    fn from(violation: iwarp::Violation) -> Self {
        let iwarp::Violation { requirement, terminate, text } = violation;
        let consequence = match terminate {
            Some(code) => format!("a receiver terminates with {code}"),
            None => "a receiver closes the connection".into(),
        };
        Self { requirement, text, consequence, terminate: terminate.map(|code| code.word()) }
    }
}
