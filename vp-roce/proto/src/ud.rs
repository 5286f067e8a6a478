//! Unreliable datagrams (UD): one packet each, accepted if the queue key is correct (InfiniBand volume 1, 9.8).
//!
//! Owner of the state: none, pure functions. Any thread.

use core::fmt;

use crate::icrc::{Envelope, Ip};
use crate::psn::Psn;
use crate::wire::bth::{Bth, DEFAULT_PKEY, Opcode, Operation, Position, Rider, Service};
use crate::wire::extended::Deth;
use crate::wire::packet::{Extended, Headers, Packet, pad};

/// A datagram to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The queue pair to which it goes.
    pub destination: u32,
    /// The queue pair that sends.
    pub source: u32,
    /// The destination's queue key.
    pub qkey: u32,
    /// Packet sequence number, counted by the sender; receivers ignore it.
    pub psn: Psn,
    /// Immediate data, in network order.
    pub immediate: Option<u32>,
    /// Asks for a solicited event at the receiver.
    pub solicited: bool,
    /// Octets of payload, at most the path MTU.
    pub len: u32,
}

impl Outgoing {
    /// The headers of its packet.
    pub fn headers(&self) -> Headers {
        let rider = if self.immediate.is_some() { Rider::Immediate } else { Rider::None };
        Headers {
            bth: Bth {
                opcode: Opcode::Transport(Service::Ud, Operation::Send(Position::Only, rider)),
                solicited: self.solicited,
                migrated: true,
                pad: pad(self.len),
                pkey: DEFAULT_PKEY,
                congestion: 0,
                destination: self.destination,
                ack_request: false,
                psn: self.psn,
            },
            extended: Extended {
                deth: Some(Deth { qkey: self.qkey, source: self.source }),
                immediate: self.immediate,
                ..Extended::default()
            },
        }
    }
}

/// A datagram that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming<'a> {
    /// The queue pair that sent it.
    pub source: u32,
    /// Immediate data, in network order.
    pub immediate: Option<u32>,
    /// The sender asked for a solicited event.
    pub solicited: bool,
    /// Its octets.
    pub payload: &'a [u8],
}

/// Why a datagram is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// A packet of another service.
    Service,
    /// Another queue key than the queue pair's.
    Qkey {
        /// The key of the datagram.
        came: u32,
    },
    /// Longer than the path MTU.
    Length {
        /// Octets of payload.
        len: usize,
    },
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service => write!(f, "a packet of a connection at a queue pair for datagrams"),
            Self::Qkey { came } => write!(f, "queue key {came:#010x} is not the queue pair's"),
            Self::Length { len } => write!(f, "{len} octets are more than the path MTU"),
        }
    }
}

impl core::error::Error for Dropped {}

/// Accepts a packet of at most `mtu` octets of payload for a queue pair with `qkey`.
pub fn accept<'a>(packet: &Packet<'a>, qkey: u32, mtu: usize) -> Result<Incoming<'a>, Dropped> {
    let Packet { headers: Headers { bth, extended }, payload } = packet;
    let Some(deth) = extended.deth else { return Err(Dropped::Service) };
    // [IBUD-01]
    if deth.qkey != qkey {
        return Err(Dropped::Qkey { came: deth.qkey });
    }
    // [IBUD-03]
    if payload.len() > mtu {
        return Err(Dropped::Length { len: payload.len() });
    }
    Ok(Incoming {
        source: deth.source,
        immediate: extended.immediate,
        solicited: bth.solicited,
        payload,
    })
}

/// Octets before each received datagram in its receive.
pub const GRH_LEN: usize = 40;

/// The octets before a received datagram in its receive: the IPv6 header, or 20 zeros and the IPv4 header
/// (InfiniBand annex A17). Fields that a socket does not report have their default values. `datagram_len`:
/// octets of UDP payload, the invariant CRC included.
pub fn grh(envelope: &Envelope, datagram_len: usize, traffic_class: u8, hops: u8) -> [u8; GRH_LEN] {
    const UDP: u8 = 17;
    // [IBUD-02]
    let udp_len = (8 + datagram_len) as u16;
    let mut grh = [0; GRH_LEN];
    match envelope.ip {
        Ip::V4 { source, destination, id, dont_fragment } => {
            let ip = &mut grh[20..];
            ip[..2].copy_from_slice(&[0x45, traffic_class]);
            ip[2..4].copy_from_slice(&(udp_len + 20).to_be_bytes());
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[6] = u8::from(dont_fragment) << 6;
            ip[8..10].copy_from_slice(&[hops, UDP]);
            ip[12..16].copy_from_slice(&source);
            ip[16..].copy_from_slice(&destination);
            let sum = checksum(ip);
            grh[30..32].copy_from_slice(&sum.to_be_bytes());
        }
        Ip::V6 { source, destination } => {
            grh[..2].copy_from_slice(&[0x60 | traffic_class >> 4, traffic_class << 4]);
            grh[4..6].copy_from_slice(&udp_len.to_be_bytes());
            grh[6..8].copy_from_slice(&[UDP, hops]);
            grh[8..24].copy_from_slice(&source);
            grh[24..].copy_from_slice(&destination);
        }
    }
    grh
}

/// The Internet checksum (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
