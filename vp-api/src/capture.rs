//! Capture format of FPDUs: the records by which a process passes copies of its FPDUs to an observer. Plain data.
//!
//! The observer creates two rings in shared memory (`shm_ring::create`), and a pair of Unix sockets of the type
//! `SOCK_SEQPACKET`. It sends the memory over its socket, beside one octet, and gives the process the other socket. The
//! process writes [`Record`]s into its ring, without waiting; it drops those that do not fit. It sends an octet over
//! the socket when the observer sleeps. An end is closed, or dead, when its socket is. Numbers are little-endian.

/// Octets of a record before its content.
pub const RECORD_LEN: usize = 32;
/// Maximum octets of a record's content.
pub const CONTENT_MAX: usize = u16::MAX as usize;

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
    /// FPDUs were dropped: `position` is how many so far, since the capture began.
    Dropped,
}

/// These octets are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRecord;

/// A record.
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
    /// Octets before the FPDU in its direction of the stream, from an arbitrary origin.
    pub position: u64,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The first octets of the FPDU.
    pub content: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends the record. The content must have at most [`CONTENT_MAX`] octets.
    pub fn put(&self, to: &mut Vec<u8>) {
        let kind = match self.kind {
            Kind::Stream => 0,
            Kind::Sent => 1,
            Kind::Received => 2,
            Kind::Dropped => 3,
        };
        to.extend_from_slice(&[kind, self.flags]);
        to.extend_from_slice(&(self.content.len() as u16).to_le_bytes());
        to.extend_from_slice(&self.octets.to_le_bytes());
        for word in [self.stream, self.position, self.time] {
            to.extend_from_slice(&word.to_le_bytes());
        }
        to.extend_from_slice(self.content);
    }

    /// Removes a record from the front of `rest`; `None` if it is not complete.
    ///
    /// # Errors
    /// What is there is no record: nor is anything behind it.
    pub fn take(rest: &mut &'a [u8]) -> Result<Option<Self>, NoRecord> {
        let Some((head, behind)) = rest.split_first_chunk::<RECORD_LEN>() else { return Ok(None) };
        let word = |at: usize| {
            let mut octets = [0; 8];
            octets.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(octets)
        };
        let kind = match head[0] {
            0 => Kind::Stream,
            1 => Kind::Sent,
            2 => Kind::Received,
            3 => Kind::Dropped,
            _ => return Err(NoRecord),
        };
        let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let Some((content, behind)) = behind.split_at_checked(len) else { return Ok(None) };
        *rest = behind;
        let octets = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let (stream, position, time) = (word(8), word(16), word(24));
        Ok(Some(Self { kind, flags: head[1], octets, stream, position, time, content }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_as_they_were_put() {
        let mut octets = Vec::new();
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
        let dropped = Record { kind: Kind::Dropped, ..stream };
        let all = [sent, stream, dropped];
        all.iter().for_each(|record| record.put(&mut octets));
        let mut rest = &octets[..];
        for record in all {
            assert_eq!(Record::take(&mut rest), Ok(Some(record)));
        }
        assert_eq!(Record::take(&mut rest), Ok(None));
        // Incomplete records stay.
        for end in 0..octets.len() {
            let mut rest = &octets[..end];
            while let Some(record) = Record::take(&mut rest).unwrap() {
                assert!(all.contains(&record));
            }
            assert!(rest.len() < RECORD_LEN + sent.content.len());
        }
        octets[0] = 9;
        assert_eq!(Record::take(&mut &octets[..]), Err(NoRecord));
    }
}
