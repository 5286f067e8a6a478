//! Frames as text or JSON. Owns the output and the counts.

use std::io::Write;
use std::net::SocketAddr;

use serde_json::{Value as Json, json};

use crate::error::CliResult;
use crate::output::count;

/// A frame or packet of any protocol.
pub(super) struct Frame {
    pub(super) what: String,
    pub(super) offset: usize,
    /// Octets that were captured.
    pub(super) length: usize,
    /// Octets that it should have.
    pub(super) full_length: usize,
    pub(super) fields: Vec<Field>,
}

impl Frame {
    fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.fields.iter().filter_map(|field| field.violation.as_ref())
    }
}

pub(super) struct Field {
    pub(super) layer: &'static str,
    pub(super) name: &'static str,
    pub(super) offset: usize,
    pub(super) length: usize,
    pub(super) bits: Option<(u8, u8)>,
    pub(super) value: Value,
    pub(super) note: String,
    pub(super) violation: Option<Violation>,
}

pub(super) enum Value {
    Number(u64),
    /// A number and its digits.
    Hex(u64, u8),
    Octets(Vec<u8>),
}

/// A broken requirement.
pub(super) struct Violation {
    pub(super) requirement: &'static str,
    pub(super) text: String,
    /// How a receiver reacts.
    pub(super) consequence: String,
    /// The first octets of the Terminate that it sends.
    pub(super) terminate: Option<u16>,
}

/// Octets of a value that are shown.
const SHOWN: usize = 32;

/// What was explained.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) frames: u64,
    pub(super) violations: u64,
}

/// Writes frames.
pub(super) struct Renderer<'a> {
    out: &'a mut dyn Write,
    json: bool,
    brief: bool,
    totals: Totals,
}

impl<'a> Renderer<'a> {
    pub(super) fn new(out: &'a mut dyn Write, json: bool, brief: bool) -> Self {
        Self { out, json, brief, totals: Totals::default() }
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// One frame of a direction whose explained octets begin at position `base` of its stream.
    pub(super) fn frame(
        &mut self,
        ends: Option<(SocketAddr, SocketAddr)>,
        base: u64,
        frame: &Frame,
    ) -> CliResult<()> {
        self.totals.frames += 1;
        self.totals.violations += frame.violations().count() as u64;
        if self.json {
            writeln!(self.out, "{}", frame_json(self.totals.frames, ends, base, frame))?;
            return Ok(());
        }
        let who = ends.map_or_else(String::new, |(from, to)| format!("{from} > {to}  "));
        let at = base + frame.offset as u64;
        let length = match frame.full_length {
            full if full > frame.length => format!("{} of {full} octets", frame.length),
            full => count(full as u64, "octet"),
        };
        writeln!(self.out, "#{}  {who}octet {at}: {}, {length}", self.totals.frames, frame.what)?;
        if !self.brief {
            let rows: Vec<_> = frame.fields.iter().map(|field| row(base, field)).collect();
            write!(self.out, "{}", fields_text(&rows))?;
        }
        for violation in frame.violations() {
            writeln!(self.out, "  !! {}", violation_text(violation))?;
        }
        Ok(())
    }

    /// Something about a direction that is not a frame.
    pub(super) fn note(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        text: &str,
    ) -> CliResult<()> {
        if self.json {
            writeln!(self.out, "{}", json!({ "from": from, "to": to, "note": text }))?;
        } else {
            writeln!(self.out, "    {from} > {to}  {text}")?;
        }
        Ok(())
    }

    /// Writes and returns the counts; as JSON they are only returned.
    pub(super) fn finish(self) -> CliResult<Totals> {
        let Totals { frames, violations } = self.totals;
        if !self.json {
            let (frames, broken) =
                (count(frames, "frame"), count(violations, "broken requirement"));
            writeln!(self.out, "{frames}, {broken}")?;
        }
        self.out.flush()?;
        Ok(self.totals)
    }
}

/// Position, layer, name, value, note.
fn row(base: u64, field: &Field) -> [String; 5] {
    let at = base + field.offset as u64;
    let place = match field.bits {
        Some((first, 1)) => format!("{at}.{first}"),
        Some((first, count)) => format!("{at}.{first}-{}", first + count - 1),
        None => at.to_string(),
    };
    let mark = if field.violation.is_some() { "!! " } else { "" };
    let note = format!("{mark}{}", field.note);
    [place, field.layer.into(), field.name.into(), value_text(&field.value), note]
}

fn fields_text(rows: &[[String; 5]]) -> String {
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let (place, layer, name, value) = (width(0), width(1), width(2), width(3));
    let mut text = String::new();
    for [p, l, n, v, note] in rows {
        let line = format!("  {p:>place$}  {l:<layer$}  {n:<name$}  {v:<value$}  {note}");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Hex(number, digits) => format!("0x{number:0width$x}", width = usize::from(*digits)),
        Value::Octets(octets) if octets.len() > SHOWN => format!("{}…", hex(&octets[..SHOWN])),
        Value::Octets(octets) => hex(octets),
    }
}

fn violation_text(violation: &Violation) -> String {
    let Violation { requirement, text, consequence, .. } = violation;
    format!("[{requirement}] {text}; {consequence}")
}

fn frame_json(
    number: u64,
    ends: Option<(SocketAddr, SocketAddr)>,
    base: u64,
    frame: &Frame,
) -> Json {
    let mut object = json!({
        "frame": number,
        "what": frame.what,
        "offset": base + frame.offset as u64,
        "length": frame.length,
        "full_length": frame.full_length,
        "fields": frame.fields.iter().map(|f| field_json(base, f)).collect::<Vec<_>>(),
    });
    if let Some((from, to)) = ends {
        object["from"] = from.to_string().into();
        object["to"] = to.to_string().into();
    }
    object
}

fn field_json(base: u64, field: &Field) -> Json {
    let mut object = json!({
        "layer": field.layer,
        "name": field.name,
        "offset": base + field.offset as u64,
        "length": field.length,
        "value": match &field.value {
            Value::Number(number) | Value::Hex(number, _) => json!(number),
            Value::Octets(octets) => json!(hex(octets)),
        },
    });
    if let Some((first, count)) = field.bits {
        object["bits"] = json!([first, count]);
    }
    if !field.note.is_empty() {
        object["note"] = field.note.as_str().into();
    }
    if let Some(violation) = &field.violation {
        object["violation"] = json!({
            "requirement": violation.requirement,
            "text": violation.text,
            "terminate": violation.terminate.map(|word| format!("{word:04x}")),
        });
    }
    object
}
