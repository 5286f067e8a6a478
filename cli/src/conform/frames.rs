//! Builds ULPDUs and start-up frames, correct and wrong. Pure functions over the codec of `iwarp-proto`.

use iwarp_proto::Stag;
use iwarp_proto::wire::ddp::{Control, TaggedRepr, UntaggedRepr};
use iwarp_proto::wire::mpa::{EnhancedRepr, FrameKind, StartupRepr};
use iwarp_proto::wire::rdmap::{AtomicRequestRepr, Opcode, ReadRequestRepr, qn};

/// The kernel of CRC32c.
pub(super) fn crc32c(crc: u32, octets: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, octets)
}

/// RDMAP's control octet for an opcode, assigned or not.
pub(super) const fn rdmap(nibble: u8) -> u8 {
    0x40 | nibble
}

/// An untagged segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Untagged<'a> {
    pub(super) header: UntaggedRepr,
    pub(super) payload: &'a [u8],
}

impl<'a> Untagged<'a> {
    pub(super) fn new(opcode: Opcode, msn: u32, payload: &'a [u8]) -> Self {
        let header = UntaggedRepr {
            control: Control::new(false, true),
            ulp: rdmap(opcode as u8),
            ulp_word: 0,
            qn: opcode.queue().unwrap_or(qn::SEND),
            msn,
            mo: 0,
        };
        Self { header, payload }
    }

    pub(super) fn octets(&self) -> Vec<u8> {
        [&self.header.emit()[..], self.payload].concat()
    }
}

/// A tagged segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tagged<'a> {
    pub(super) header: TaggedRepr,
    pub(super) payload: &'a [u8],
}

impl<'a> Tagged<'a> {
    pub(super) fn new(opcode: Opcode, stag: u32, to: u64, payload: &'a [u8]) -> Self {
        let header = TaggedRepr {
            control: Control::new(true, true),
            ulp: rdmap(opcode as u8),
            stag: Stag(stag),
            to,
        };
        Self { header, payload }
    }

    pub(super) fn octets(&self) -> Vec<u8> {
        [&self.header.emit()[..], self.payload].concat()
    }
}

/// An RDMA Write in one segment.
pub(super) fn write(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    Tagged::new(Opcode::Write, stag, to, payload).octets()
}

/// A Send in one segment.
pub(super) fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    Untagged::new(Opcode::Send, msn, payload).octets()
}

/// The sink of the tester's Reads. It is no memory: responses are checked as they arrive.
pub(super) const SINK: (u32, u64) = (0x5173_a600, 0x0000_1234_5678_9abc);

/// A Read of `size` octets of the peer's.
pub(super) fn read_of(size: u32, stag: u32, to: u64) -> ReadRequestRepr {
    ReadRequestRepr {
        sink_stag: Stag(SINK.0),
        sink_to: SINK.1,
        size,
        source_stag: Stag(stag),
        source_to: to,
    }
}

pub(super) fn read_request(msn: u32, request: ReadRequestRepr) -> Vec<u8> {
    Untagged::new(Opcode::ReadRequest, msn, &request.emit()).octets()
}

pub(super) fn atomic_request(msn: u32, request: AtomicRequestRepr) -> Vec<u8> {
    Untagged::new(Opcode::AtomicRequest, msn, &request.emit()).octets()
}

/// The fields of a start-up frame of ours.
#[derive(Clone, Debug)]
pub(super) struct FrameSpec {
    pub(super) kind: FrameKind,
    pub(super) revision: u8,
    pub(super) crc: bool,
    pub(super) markers: bool,
    pub(super) rejected: bool,
    pub(super) reserved: u8,
    pub(super) block: Option<EnhancedRepr>,
    pub(super) data: Vec<u8>,
    /// PD_Length, if it is to be wrong.
    pub(super) length: Option<u16>,
}

/// Client-server, with these limits of ours.
pub(super) const fn limits(ird: u16, ord: u16) -> EnhancedRepr {
    EnhancedRepr {
        peer_to_peer: false,
        rtr_send: false,
        rtr_write: false,
        rtr_read: false,
        ird,
        ord,
    }
}

impl FrameSpec {
    /// Revision 1, CRC on.
    pub(super) const fn plain(kind: FrameKind) -> Self {
        Self {
            kind,
            revision: 1,
            crc: true,
            markers: false,
            rejected: false,
            reserved: 0,
            block: None,
            data: Vec::new(),
            length: None,
        }
    }

    /// Revision 2, CRC on, client-server.
    pub(super) const fn enhanced(kind: FrameKind, ird: u16, ord: u16) -> Self {
        let mut spec = Self::plain(kind);
        spec.revision = 2;
        spec.block = Some(limits(ird, ord));
        spec
    }

    pub(super) fn octets(&self) -> Vec<u8> {
        let block = self.block.map(|block| block.emit());
        let block = block.as_ref().map_or(&[][..], |block| &block[..]);
        let length = (block.len() + self.data.len()) as u16;
        let fixed = StartupRepr {
            kind: self.kind,
            markers: self.markers,
            crc: self.crc,
            rejected: self.rejected,
            enhanced: self.block.is_some(),
            reserved: self.reserved,
            revision: self.revision,
            private_data_len: self.length.unwrap_or(length),
        };
        [&fixed.emit()[..], block, &self.data].concat()
    }
}
