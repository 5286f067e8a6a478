//! Packets of RoCE v2 as octets: a builder that can also make wrong ones, and a reader that judges nothing
//! (InfiniBand volume 1, chapter 9; annex A17). Plain values.

/// Opcodes of reliable connections and datagrams (InfiniBand volume 1, table 38).
pub(super) mod op {
    pub(in super::super) const SEND_FIRST: u8 = 0x00;
    pub(in super::super) const SEND_MIDDLE: u8 = 0x01;
    pub(in super::super) const SEND_LAST: u8 = 0x02;
    pub(in super::super) const SEND_ONLY: u8 = 0x04;
    pub(in super::super) const SEND_ONLY_IMM: u8 = 0x05;
    pub(in super::super) const WRITE_FIRST: u8 = 0x06;
    pub(in super::super) const WRITE_MIDDLE: u8 = 0x07;
    pub(in super::super) const WRITE_LAST: u8 = 0x08;
    pub(in super::super) const WRITE_LAST_IMM: u8 = 0x09;
    pub(in super::super) const WRITE_ONLY: u8 = 0x0a;
    pub(in super::super) const WRITE_ONLY_IMM: u8 = 0x0b;
    pub(in super::super) const READ_REQUEST: u8 = 0x0c;
    pub(in super::super) const RESPONSE_FIRST: u8 = 0x0d;
    pub(in super::super) const RESPONSE_MIDDLE: u8 = 0x0e;
    pub(in super::super) const RESPONSE_LAST: u8 = 0x0f;
    pub(in super::super) const RESPONSE_ONLY: u8 = 0x10;
    pub(in super::super) const ACKNOWLEDGE: u8 = 0x11;
    pub(in super::super) const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub(in super::super) const COMPARE_SWAP: u8 = 0x13;
    pub(in super::super) const FETCH_ADD: u8 = 0x14;
    pub(in super::super) const SEND_LAST_INV: u8 = 0x16;
    pub(in super::super) const SEND_ONLY_INV: u8 = 0x17;
    pub(in super::super) const DATAGRAM: u8 = 0x64;
    pub(in super::super) const DATAGRAM_IMM: u8 = 0x65;
    pub(in super::super) const CNP: u8 = 0x81;
}

/// Octets of a base transport header.
pub(super) const BTH: usize = 12;
/// Octets of the invariant CRC.
pub(super) const ICRC: usize = 4;
/// The default partition, full member.
pub(super) const PKEY: u16 = 0xffff;
/// The 24 bits of a PSN or a queue pair number.
pub(super) const MASK: u32 = 0xff_ffff;

/// Octets of the extended headers of an opcode; `None`: not assigned to RC, UC or UD.
pub(super) const fn extended(opcode: u8) -> Option<usize> {
    Some(match opcode {
        op::CNP => 16,
        op::DATAGRAM => 8,
        op::DATAGRAM_IMM => 12,
        op::SEND_FIRST | op::SEND_MIDDLE | op::SEND_LAST | op::SEND_ONLY => 0,
        0x03 | op::SEND_ONLY_IMM | op::SEND_LAST_INV | op::SEND_ONLY_INV => 4,
        op::WRITE_FIRST | op::WRITE_ONLY | op::READ_REQUEST => 16,
        op::WRITE_MIDDLE | op::WRITE_LAST | op::RESPONSE_MIDDLE => 0,
        op::WRITE_LAST_IMM => 4,
        op::WRITE_ONLY_IMM => 20,
        op::RESPONSE_FIRST | op::RESPONSE_LAST | op::RESPONSE_ONLY | op::ACKNOWLEDGE => 4,
        op::ATOMIC_ACKNOWLEDGE => 12,
        op::COMPARE_SWAP | op::FETCH_ADD => 28,
        _ => return None,
    })
}

/// The name of an opcode.
pub(super) fn name(opcode: u8) -> String {
    let text = match opcode {
        op::SEND_FIRST => "Send First",
        op::SEND_MIDDLE => "Send Middle",
        op::SEND_LAST => "Send Last",
        0x03 => "Send Last with Immediate",
        op::SEND_ONLY => "Send Only",
        op::SEND_ONLY_IMM => "Send Only with Immediate",
        op::WRITE_FIRST => "Write First",
        op::WRITE_MIDDLE => "Write Middle",
        op::WRITE_LAST => "Write Last",
        op::WRITE_LAST_IMM => "Write Last with Immediate",
        op::WRITE_ONLY => "Write Only",
        op::WRITE_ONLY_IMM => "Write Only with Immediate",
        op::READ_REQUEST => "Read Request",
        op::RESPONSE_FIRST => "Read Response First",
        op::RESPONSE_MIDDLE => "Read Response Middle",
        op::RESPONSE_LAST => "Read Response Last",
        op::RESPONSE_ONLY => "Read Response Only",
        op::ACKNOWLEDGE => "Acknowledge",
        op::ATOMIC_ACKNOWLEDGE => "Atomic Acknowledge",
        op::COMPARE_SWAP => "Compare and Swap",
        op::FETCH_ADD => "Fetch and Add",
        op::SEND_LAST_INV => "Send Last with Invalidate",
        op::SEND_ONLY_INV => "Send Only with Invalidate",
        op::DATAGRAM => "datagram",
        op::DATAGRAM_IMM => "datagram with immediate data",
        op::CNP => "congestion notification",
        other => return format!("opcode {other:#04x}"),
    };
    text.into()
}

/// A packet to send. What a field does not say is as the standard has it.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) opcode: u8,
    pub(super) solicited: bool,
    pub(super) migrated: bool,
    /// Four bits of version.
    pub(super) version: u8,
    pub(super) pkey: u16,
    /// FECN, BECN and six reserved bits.
    pub(super) congestion: u8,
    pub(super) destination: u32,
    pub(super) ack: bool,
    pub(super) psn: u32,
    /// Extended headers.
    pub(super) extended: Vec<u8>,
    pub(super) payload: Vec<u8>,
    /// Octets of pad that the header names; `None`: those that are needed.
    pub(super) pad: Option<u8>,
}

impl Packet {
    pub(super) fn new(opcode: u8, destination: u32, psn: u32, payload: &[u8]) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            version: 0,
            pkey: PKEY,
            congestion: 0,
            destination,
            ack: false,
            psn: psn & MASK,
            extended: Vec::new(),
            payload: payload.to_vec(),
            pad: None,
        }
    }

    /// Asks for an acknowledgement.
    pub(super) fn asking(mut self) -> Self {
        self.ack = true;
        self
    }

    pub(super) fn with(mut self, extended: &[u8]) -> Self {
        self.extended.extend_from_slice(extended);
        self
    }

    /// The UDP payload, with room for the invariant CRC.
    pub(super) fn octets(&self) -> Vec<u8> {
        let pad = (self.payload.len().wrapping_neg() & 3) as u8;
        let shown = self.pad.unwrap_or(pad);
        let mut out = vec![
            self.opcode,
            u8::from(self.solicited) << 7
                | u8::from(self.migrated) << 6
                | (shown & 3) << 4
                | self.version & 15,
        ];
        out.extend(self.pkey.to_be_bytes());
        out.push(self.congestion);
        out.extend(&self.destination.to_be_bytes()[1..]);
        out.push(u8::from(self.ack) << 7);
        out.extend(&self.psn.to_be_bytes()[1..]);
        out.extend(&self.extended);
        out.extend(&self.payload);
        out.resize(out.len() + usize::from(pad) + ICRC, 0);
        out
    }
}

/// Address, key and length of an RDMA operation.
pub(super) fn reth(address: u64, key: u32, length: u32) -> Vec<u8> {
    [&address.to_be_bytes()[..], &key.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// An atomic operation.
pub(super) fn atomic(address: u64, key: u32, swap_or_add: u64, compare: u64) -> Vec<u8> {
    let (swap, compare) = (swap_or_add.to_be_bytes(), compare.to_be_bytes());
    [&address.to_be_bytes()[..], &key.to_be_bytes(), &swap, &compare].concat()
}

/// Syndrome and message sequence number.
pub(super) fn aeth(syndrome: u8, msn: u32) -> Vec<u8> {
    let [_, msn @ ..] = msn.to_be_bytes();
    [&[syndrome][..], &msn].concat()
}

/// A packet that arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) opcode: u8,
    pub(super) solicited: bool,
    pub(super) version: u8,
    pub(super) pkey: u16,
    pub(super) ack: bool,
    pub(super) psn: u32,
    pub(super) extended: Vec<u8>,
    pub(super) payload: Vec<u8>,
    /// The octets of pad.
    pub(super) padding: Vec<u8>,
    /// It is a multiple of four octets long.
    pub(super) whole: bool,
}

impl Arrived {
    /// Reads a UDP payload; the text says why it is no packet.
    pub(super) fn read(octets: &[u8]) -> Result<Self, String> {
        let length = octets.len();
        let body = length.checked_sub(ICRC).filter(|body| *body >= BTH);
        let Some(body) = body else { return Err(format!("a packet of {length} octets")) };
        let opcode = octets[0];
        let Some(headers) = extended(opcode) else {
            return Err(format!("a packet with opcode {opcode:#04x}"));
        };
        let pad = usize::from(octets[1] >> 4 & 3);
        if body < BTH + headers + pad {
            return Err(format!("{} of {length} octets with {pad} of pad", name(opcode)));
        }
        let u24 = |at: usize| u32::from_be_bytes([0, octets[at], octets[at + 1], octets[at + 2]]);
        Ok(Self {
            opcode,
            solicited: octets[1] >> 7 == 1,
            version: octets[1] & 15,
            pkey: u16::from_be_bytes([octets[2], octets[3]]),
            ack: octets[8] >> 7 == 1,
            psn: u24(9),
            extended: octets[BTH..BTH + headers].to_vec(),
            payload: octets[BTH + headers..body - pad].to_vec(),
            padding: octets[body - pad..body].to_vec(),
            whole: length.is_multiple_of(4),
        })
    }

    fn at<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        if let Some(from) = self.extended.get(at..at + N) {
            out.copy_from_slice(from);
        }
        out
    }

    /// Syndrome and message sequence number, of packets that have them.
    pub(super) fn aeth(&self) -> (u8, u32) {
        let [syndrome, a, b, c] = self.at(0);
        (syndrome, u32::from_be_bytes([0, a, b, c]))
    }

    /// Address, key and length, of packets that have them.
    pub(super) fn reth(&self) -> (u64, u32, u32) {
        let length = u32::from_be_bytes(self.at(12));
        (u64::from_be_bytes(self.at(0)), u32::from_be_bytes(self.at(8)), length)
    }

    /// The original value of an atomic acknowledgement.
    pub(super) fn original(&self) -> u64 {
        u64::from_be_bytes(self.at(4))
    }

    /// Value to add or to swap in, and to compare with, of an atomic operation.
    pub(super) fn operands(&self) -> (u64, u64) {
        (u64::from_be_bytes(self.at(12)), u64::from_be_bytes(self.at(20)))
    }

    /// The last four octets of the headers: immediate data, or the key to invalidate.
    pub(super) fn last_word(&self) -> u32 {
        u32::from_be_bytes(self.at(self.extended.len().saturating_sub(4)))
    }

    /// Queue key and source, of datagrams.
    pub(super) fn deth(&self) -> (u32, u32) {
        (u32::from_be_bytes(self.at(0)), u32::from_be_bytes(self.at(4)) & MASK)
    }

    /// Sent by a responder.
    pub(super) const fn is_response(&self) -> bool {
        matches!(self.opcode, op::RESPONSE_FIRST..=op::ATOMIC_ACKNOWLEDGE)
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let name = name(self.opcode);
        match self.opcode {
            op::ACKNOWLEDGE => format!("{} of PSN {}", syndrome(self.aeth().0), self.psn),
            _ => format!("{name} of {} octets, PSN {}", self.payload.len(), self.psn),
        }
    }
}

/// What a syndrome says.
pub(super) fn syndrome(octet: u8) -> String {
    match (octet >> 5, octet & 31) {
        (0, _) => "an acknowledgement".into(),
        (1, timer) => format!("an RNR NAK (timer {timer})"),
        (3, 0) => "a NAK (PSN sequence error)".into(),
        (3, 1) => "a NAK (invalid request)".into(),
        (3, 2) => "a NAK (remote access error)".into(),
        (3, 3) => "a NAK (remote operational error)".into(),
        _ => format!("the reserved syndrome {octet:#04x}"),
    }
}

/// How far `psn` is after `other` around the circle, from -2^23 on (InfiniBand volume 1, 9.7.1).
pub(super) const fn after(psn: u32, other: u32) -> i32 {
    ((psn.wrapping_sub(other) << 8) as i32) >> 8
}
