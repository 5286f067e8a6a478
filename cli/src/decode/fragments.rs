//! Puts fragments of IP packets together (RFC 791 section 3.2, RFC 8200 section 4.5). Owns those of packets that are
//! not whole yet, bounded in number.

use std::collections::{BTreeMap, HashMap, VecDeque};

use roce_proto::icrc::Ip;

use super::packet::IpPacket;

/// Packets that are not whole yet; the oldest makes room.
const MAX_PACKETS: usize = 256;

/// A packet's addresses, protocol and identification.
type Key = (Vec<u8>, u8, u32);

#[derive(Default)]
pub(super) struct Fragments {
    partial: HashMap<Key, Partial>,
    /// In the order in which they began.
    keys: VecDeque<Key>,
}

#[derive(Default)]
struct Partial {
    pieces: BTreeMap<usize, Vec<u8>>,
    /// Octets of the whole, once the last fragment was seen.
    len: Option<usize>,
}

/// A packet that was put together.
pub(super) struct Whole {
    header: Ip,
    protocol: u8,
    payload: Vec<u8>,
}

impl Whole {
    pub(super) fn packet(&self) -> IpPacket<'_> {
        let Self { header, protocol, ref payload } = *self;
        IpPacket { header, protocol, payload, wire_len: payload.len(), fragment: None }
    }
}

impl Fragments {
    /// Takes a fragment; returns the packet that it completes. Those that were cut complete none.
    pub(super) fn push(&mut self, packet: &IpPacket<'_>) -> Option<Whole> {
        let fragment = packet.fragment?;
        if packet.payload.len() < packet.wire_len {
            return None;
        }
        let addresses = match packet.header {
            Ip::V4 { source, destination, .. } => [source, destination].concat(),
            Ip::V6 { source, destination } => [source, destination].concat(),
        };
        let key = (addresses, packet.protocol, fragment.id);
        if !self.partial.contains_key(&key) {
            self.keys.push_back(key.clone());
        }
        let partial = self.partial.entry(key.clone()).or_default();
        partial.pieces.insert(fragment.offset, packet.payload.to_vec());
        if !fragment.more {
            partial.len = Some(fragment.offset + packet.payload.len());
        }
        let payload = partial.whole();
        if payload.is_some() {
            self.partial.remove(&key);
            self.keys.retain(|other| *other != key);
        } else if self.keys.len() > MAX_PACKETS
            && let Some(oldest) = self.keys.pop_front()
        {
            self.partial.remove(&oldest);
        }
        let (header, protocol) = (packet.header, packet.protocol);
        payload.map(|payload| Whole { header, protocol, payload })
    }
}

impl Partial {
    /// The payload, if no fragment is missing.
    fn whole(&self) -> Option<Vec<u8>> {
        let len = self.len?;
        let mut whole = Vec::new();
        for (&offset, piece) in &self.pieces {
            let skip = whole.len().checked_sub(offset)?;
            whole.extend_from_slice(piece.get(skip..).unwrap_or_default());
        }
        (whole.len() == len).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Fragment;
    use super::*;

    fn push(
        all: &mut Fragments,
        id: u32,
        offset: usize,
        more: bool,
        data: &[u8],
    ) -> Option<Vec<u8>> {
        let fragment = Some(Fragment { id, offset, more });
        let header = Ip::V6 { source: [1; 16], destination: [2; 16] };
        let packet =
            IpPacket { header, protocol: 17, payload: data, wire_len: data.len(), fragment };
        all.push(&packet).map(|whole| whole.packet().payload.to_vec())
    }

    #[test]
    fn fragments_in_any_order_make_a_packet() {
        let mut all = Fragments::default();
        assert_eq!(push(&mut all, 1, 16, false, b"cc"), None);
        assert_eq!(push(&mut all, 2, 0, true, b"AAAAAAAA"), None);
        assert_eq!(push(&mut all, 1, 0, true, b"aaaaaaaa"), None);
        assert_eq!(push(&mut all, 1, 0, true, b"aaaaaaaa"), None);
        assert_eq!(push(&mut all, 1, 8, true, b"bbbbbbbb").unwrap(), b"aaaaaaaabbbbbbbbcc");
        assert_eq!(push(&mut all, 2, 8, false, b"B").unwrap(), b"AAAAAAAAB");
        assert!(all.partial.is_empty() && all.keys.is_empty());
    }

    #[test]
    fn packets_that_are_never_whole_are_bounded() {
        let mut all = Fragments::default();
        for id in 0..1000 {
            assert_eq!(push(&mut all, id, 0, true, b"aaaaaaaa"), None);
        }
        assert_eq!((all.partial.len(), all.keys.len()), (MAX_PACKETS, MAX_PACKETS));
    }
}
