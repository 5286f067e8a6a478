//! Capture format of FPDUs: the messages by which a process passes copies of its FPDUs to an observer. Plain data.
//!
//! The observer gives the process one end of a pair of `SOCK_SEQPACKET` sockets. Each message begins with 8 octets,
//! the number of FPDUs dropped so far because the observer did not read in time; then follow [`Record`]s. Numbers
//! are little-endian. The process sends without waiting, and drops what does not fit.

/// Octets of a record before its content.
pub const RECORD_LEN: usize = 32;
/// Maximum octets of a message.
pub const MESSAGE_LEN: usize = 96 << 10;

/// This end connected.
pub const INITIATOR: u8 = 1;
/// The FPDUs have CRCs.
pub const CRC: u8 = 2;
/// The FPDUs are carried by shared memory.
pub const LOCAL_STREAM: u8 = 4;
/// The FPDUs have markers; such FPDUs are not captured.
pub const MARKERS: u8 = 8;

/// Kinds of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A stream, before its first FPDU. `flags` are its flags, `octets` is its queue pair, and the content is the
    /// two addresses, separated by a blank. It may be repeated.
    Stream,
    /// An FPDU passed to the stream.
    Sent,
    /// An FPDU taken from it.
    Received,
}

/// A record of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// What it is.
    pub kind: Kind,
    /// Flags of the stream.
    pub flags: u8,
    /// Octets of the FPDU on the wire.
    pub octets: u32,
    /// Number of the stream in the process.
    pub stream: u64,
    /// Octets before the FPDU in its direction of the stream, counted from an arbitrary origin.
    pub position: u64,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The first octets of the FPDU.
    pub content: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends the record to a message. The content must have less than 64 Ki octets.
    pub fn put(&self, message: &mut Vec<u8>) {
        let kind = match self.kind {
            Kind::Stream => 0,
            Kind::Sent => 1,
            Kind::Received => 2,
        };
        message.extend_from_slice(&[kind, self.flags]);
        message.extend_from_slice(&(self.content.len() as u16).to_le_bytes());
        message.extend_from_slice(&self.octets.to_le_bytes());
        for word in [self.stream, self.position, self.time] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.extend_from_slice(self.content);
    }

    /// Removes a record from the front of the rest of a message; `None` if there is none.
    pub fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let (head, behind) = rest.split_first_chunk::<RECORD_LEN>()?;
        let word = |at: usize| {
            let mut octets = [0; 8];
            octets.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(octets)
        };
        let kind = match head[0] {
            0 => Kind::Stream,
            1 => Kind::Sent,
            2 => Kind::Received,
            _ => return None,
        };
        let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let (content, behind) = behind.split_at_checked(len)?;
        *rest = behind;
        let octets = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let (stream, position, time) = (word(8), word(16), word(24));
        Some(Self { kind, flags: head[1], octets, stream, position, time, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_as_they_were_put() {
        let mut message = Vec::new();
        let sent = Record {
            kind: Kind::Sent,
            flags: 0,
            octets: 70_000,
            stream: 7,
            position: 1 << 40,
            time: 9,
            content: b"abc",
        };
        let stream = Record { kind: Kind::Stream, flags: CRC | MARKERS, content: b"", ..sent };
        [sent, stream].iter().for_each(|record| record.put(&mut message));
        let mut rest = &message[..];
        assert_eq!(Record::take(&mut rest), Some(sent));
        assert_eq!(Record::take(&mut rest), Some(stream));
        assert_eq!(Record::take(&mut rest), None);
        // Whatever a process sends, nothing beyond the message is read.
        for end in 0..message.len() {
            let mut rest = &message[..end];
            while Record::take(&mut rest).is_some() {}
        }
        message[0] = 9;
        assert_eq!(Record::take(&mut &message[..]), None);
    }
}
