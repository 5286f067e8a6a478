//! Text of one line, in memory of the stack: it is also made in signal handlers. No state.

use std::fmt::{self, Display, Write};

/// Octets of the longest line; longer ones are cut.
const ROOM: usize = 1024;

/// A line.
pub(crate) struct Line {
    octets: [u8; ROOM],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One octet stays for the end of the line.
        let room = self.octets.get_mut(self.len..ROOM - 1).unwrap_or_default();
        let len = text.len().min(room.len());
        room.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        self.len += len;
        Ok(())
    }
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self { octets: [0; ROOM], len: 0 }
    }

    /// Adds ` NAME=VALUE`.
    pub(crate) fn field(&mut self, name: &str, value: impl Display) {
        let blank = if self.len == 0 { "" } else { " " };
        // Never an error: what has no room is cut.
        let _ = write!(self, "{blank}{name}={value}");
    }

    /// Adds ` NAME=A,B,…`, or `-`.
    pub(crate) fn list(&mut self, name: &str, all: impl Iterator<Item = &'static str>) {
        self.field(name, "");
        let before = self.len;
        for one in all {
            let comma = if self.len == before { "" } else { "," };
            let _ = write!(self, "{comma}{one}");
        }
        if self.len == before {
            let _ = self.write_str("-");
        }
    }

    /// The line with its end.
    pub(crate) fn octets(&mut self) -> &[u8] {
        self.octets[self.len] = b'\n';
        &self.octets[..=self.len]
    }
}
