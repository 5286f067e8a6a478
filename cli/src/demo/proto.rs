//! Messages between the two processes of the demo. No state, no IO.
//!
//! The parent connects with a [`Hello`] as private data; the child replies with the range of its store. Each
//! operation moves the chunks in its own way; [`Message`]s (16 octets, by Send) say which chunk is where. Two
//! chunks are outstanding at a time, each in its own half of the memory on both sides:
//!
//! | operation | there | back |
//! |---|---|---|
//! | Send/Recv | parent sends the chunk | child sends the very buffer back |
//! | RDMA Write | parent writes to the store, `Done` | child writes to the parent's sink, `Ack` |
//! | RDMA Read | `Ready`; child reads the parent's source, `Done` | parent reads the child's store |
//!
//! After the last chunk of an operation the parent sends `End`, and the child replies with the `Checksum` of
//! what it received.

use itapi::RemoteRange;

/// Chunks outstanding.
pub(super) const WINDOW: u64 = 2;

/// Receives that each side keeps posted at most. Two chunks in flight, two whose echo is not sent yet, one
/// message, and one spare, so that every message finds a receive.
pub(super) const RECEIVES: usize = 6;

/// Octets of a [`Message`].
pub(super) const MESSAGE_LEN: usize = 16;

/// The three operations, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    SendRecv,
    Write,
    Read,
}

impl Operation {
    pub(super) const ALL: [Self; 3] = [Self::SendRecv, Self::Write, Self::Read];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SendRecv => "Send/Recv",
            Self::Write => "RDMA Write",
            Self::Read => "RDMA Read",
        }
    }
}

/// Size of the file and of its chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) octets: u64,
    pub(super) chunk: u32,
}

impl Plan {
    pub(super) fn chunks(self) -> u64 {
        self.octets.div_ceil(u64::from(self.chunk))
    }

    /// Octets of chunk `index`.
    pub(super) fn len_of(self, index: u64) -> u32 {
        let start = index * u64::from(self.chunk);
        (self.octets - start).min(u64::from(self.chunk)) as u32
    }

    /// The range of chunk `index` in memory of [`WINDOW`] chunks.
    pub(super) fn place_of(self, index: u64) -> std::ops::Range<usize> {
        let start = (index % WINDOW) as usize * self.chunk as usize;
        start..start + self.len_of(index) as usize
    }

    /// The same as part of the peer's memory.
    pub(super) fn remote_place(self, index: u64, all: RemoteRange) -> itapi::Result<RemoteRange> {
        let place = self.place_of(index);
        all.slice(place.start as u64..place.end as u64)
    }

    /// Octets of memory for [`WINDOW`] chunks.
    pub(super) fn window_len(self) -> usize {
        self.chunk as usize * WINDOW as usize
    }

    /// Octets of a receive buffer: a chunk or a message.
    pub(super) fn receive_len(self) -> usize {
        (self.chunk as usize).max(MESSAGE_LEN)
    }
}

/// The parent's private data. Both memories have [`Plan::window_len`] octets, so their lengths are not sent:
/// private data on InfiniBand has 53 octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) plan: Plan,
    /// Memory that the child may read.
    pub(super) source: RemoteRange,
    /// Memory that the child may write.
    pub(super) sink: RemoteRange,
}

/// Octets of a [`RemoteRange`] before its length.
const PLACE: usize = RemoteRange::ENCODED_LEN - size_of::<u64>();

const MAGIC: [u8; 8] = *b"wldemo01";

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut octets = MAGIC.to_vec();
        octets.extend(self.plan.octets.to_be_bytes());
        octets.extend(self.plan.chunk.to_be_bytes());
        octets.extend(&self.source.to_octets()[..PLACE]);
        octets.extend(&self.sink.to_octets()[..PLACE]);
        octets
    }

    pub(super) fn decode(octets: &[u8]) -> Option<Self> {
        let rest = octets.strip_prefix(&MAGIC)?;
        let (size, rest) = rest.split_first_chunk()?;
        let (chunk, rest) = rest.split_first_chunk()?;
        let (source, sink) = rest.split_at_checked(PLACE)?;
        let plan = Plan { octets: u64::from_be_bytes(*size), chunk: u32::from_be_bytes(*chunk) };
        if plan.chunk == 0 {
            return None;
        }
        let len = (plan.window_len() as u64).to_be_bytes();
        let range = |place: &[u8]| RemoteRange::from_octets(&[place, &len].concat());
        Some(Self { plan, source: range(source)?, sink: range(sink)? })
    }
}

/// A message between the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// This chunk may be read from the source.
    Ready(u64),
    /// This chunk is in the store.
    Done(u64),
    /// This chunk is back in the sink.
    Ack(u64),
    /// The operation is over.
    End,
    /// CRC32c of all octets that the child received.
    Checksum(u32),
    /// The demo is over; nothing follows.
    Bye,
}

impl Message {
    pub(super) fn encode(self) -> [u8; MESSAGE_LEN] {
        let (kind, value) = match self {
            Self::Ready(index) => (1, index),
            Self::Done(index) => (2, index),
            Self::Ack(index) => (3, index),
            Self::End => (4, 0),
            Self::Checksum(sum) => (5, u64::from(sum)),
            Self::Bye => (6, 0),
        };
        (u128::from(kind as u64) << 64 | u128::from(value)).to_be_bytes()
    }

    pub(super) fn decode(octets: &[u8]) -> Option<Self> {
        let word = u128::from_be_bytes(octets.try_into().ok()?);
        let value = word as u64;
        Some(match word >> 64 {
            1 => Self::Ready(value),
            2 => Self::Done(value),
            3 => Self::Ack(value),
            4 => Self::End,
            5 => Self::Checksum(u32::try_from(value).ok()?),
            6 => Self::Bye,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use itapi::RmrContext;

    use super::*;

    #[test]
    fn plans() {
        let plan = Plan { octets: 10, chunk: 4 };
        assert_eq!(plan.chunks(), 3);
        assert_eq!([0, 1, 2].map(|i| plan.len_of(i)), [4, 4, 2]);
        assert_eq!(plan.place_of(1), 4..8);
        assert_eq!(plan.place_of(2), 0..2);
        assert_eq!(plan.receive_len(), 16);
        assert_eq!(Plan { octets: 0, chunk: 4 }.chunks(), 0);
    }

    #[test]
    fn messages_survive_encoding() {
        let plan = Plan { octets: 1 << 33, chunk: 65536 };
        let len = plan.window_len() as u64;
        let source = RemoteRange { context: RmrContext(7), addr: 1 << 40, len };
        let hello = Hello { plan, source, sink: RemoteRange { addr: 1 << 41, ..source } };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        let octets = hello.encode();
        assert!(octets.len() <= 53, "InfiniBand carries 53 octets of private data");
        for end in 0..octets.len() {
            assert_eq!(Hello::decode(&octets[..end]), None);
        }
        use Message::*;
        for message in [Ready(1), Done(u64::MAX), Ack(0), End, Checksum(u32::MAX), Bye] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        assert_eq!(Message::decode(&[0; 16]), None);
        assert_eq!(Message::decode(&[4; 15]), None);
    }
}
