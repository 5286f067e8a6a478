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

/// A packet of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    /// Its number in the file, from 1 on.
    pub(super) number: u64,
    /// Nanoseconds since 1970, if the file says.
    pub(super) time: Option<u64>,
}

/// Where a frame comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// The packet that ends the frame.
    pub(super) packet: Stamp,
}

/// What was explained.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) frames: u64,
    pub(super) violations: u64,
    /// Octets of connections and packets that were not captured.
    pub(super) missing: u64,
    /// Octets that were captured, and belong to no frame that was explained.
    pub(super) skipped: u64,
    /// Packets that were not understood.
    pub(super) unknown: u64,
}

impl Totals {
    /// What was not explained, after a semicolon.
    fn gaps(&self) -> String {
        let Self { missing, skipped, unknown, .. } = *self;
        let parts = [
            (missing, count(missing, "octet") + " not captured"),
            (skipped, count(skipped, "octet") + " skipped"),
            (unknown, count(unknown, "packet") + " not understood"),
        ];
        let parts: Vec<_> =
            parts.into_iter().filter(|(n, _)| *n > 0).map(|(_, text)| text).collect();
        if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) }
    }
}

/// Writes frames.
pub(super) struct Renderer<'a> {
    out: &'a mut dyn Write,
    json: bool,
    brief: bool,
    /// Time of the first packet of the file.
    first: Option<u64>,
    totals: Totals,
}

impl<'a> Renderer<'a> {
    pub(super) fn new(out: &'a mut dyn Write, json: bool, brief: bool) -> Self {
        Self { out, json, brief, first: None, totals: Totals::default() }
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Times are shown since this packet.
    pub(super) fn starts_at(&mut self, packet: Stamp) {
        self.first = packet.time;
    }

    /// Counts octets that were not captured.
    pub(super) fn missing(&mut self, octets: u64) {
        self.totals.missing += octets;
    }

    /// Counts octets that were captured and are not explained.
    pub(super) fn skipped(&mut self, octets: u64) {
        self.totals.skipped += octets;
    }

    /// Counts a packet that is not understood.
    pub(super) fn unknown(&mut self) {
        self.totals.unknown += 1;
    }

    /// One frame of a direction whose explained octets begin at position `base` of its stream.
    pub(super) fn frame(
        &mut self,
        origin: Option<Origin>,
        base: u64,
        frame: &Frame,
    ) -> CliResult<()> {
        self.totals.frames += 1;
        self.totals.violations += frame.violations().count() as u64;
        if self.json {
            writeln!(self.out, "{}", frame_json(self.totals.frames, origin, base, frame))?;
            return Ok(());
        }
        let who = origin.map_or_else(String::new, |origin| self.origin_text(&origin));
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

    fn origin_text(&self, Origin { from, to, packet }: &Origin) -> String {
        let time = packet.time.zip(self.first).map(|(time, first)| {
            let since = i128::from(time) - i128::from(first);
            let sign = if since < 0 { "-" } else { "" };
            let since = since.unsigned_abs() / 1000;
            format!(", {sign}{}.{:06} s", since / 1_000_000, since % 1_000_000)
        });
        format!("packet {}{}  {from} > {to}  ", packet.number, time.unwrap_or_default())
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

    /// Writes and returns the counts; as JSON only those of what was not explained are written.
    pub(super) fn finish(self) -> CliResult<Totals> {
        let Totals { frames, violations, missing, skipped, unknown } = self.totals;
        let gaps = self.totals.gaps();
        if !self.json {
            let (frames, broken) =
                (count(frames, "frame"), count(violations, "broken requirement"));
            writeln!(self.out, "{frames}, {broken}{gaps}")?;
        } else if !gaps.is_empty() {
            let gaps = json!({
                "octets_not_captured": missing,
                "octets_skipped": skipped,
                "packets_not_understood": unknown,
            });
            writeln!(self.out, "{gaps}")?;
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

fn frame_json(number: u64, origin: Option<Origin>, base: u64, frame: &Frame) -> Json {
    let mut object = json!({
        "frame": number,
        "what": frame.what,
        "offset": base + frame.offset as u64,
        "length": frame.length,
        "full_length": frame.full_length,
        "fields": frame.fields.iter().map(|f| field_json(base, f)).collect::<Vec<_>>(),
    });
    if let Some(Origin { from, to, packet }) = origin {
        object["from"] = from.to_string().into();
        object["to"] = to.to_string().into();
        object["packet"] = packet.number.into();
        // As text: a number of JSON does not hold nanoseconds since 1970.
        object["time"] =
            packet.time.map(|t| format!("{}.{:09}", t / 1_000_000_000, t % 1_000_000_000)).into();
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
