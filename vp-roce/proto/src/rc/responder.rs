//! The responder: executes requests once, in the order of their PSNs, and queues replies (InfiniBand volume 1,
//! 9.7.4, 9.7.5 and 9.7.8).
//!
//! A packet after the expected PSN is dropped and reported once by a NAK. One before it is a repetition: Sends
//! and Writes are acknowledged again, Reads are read again from memory, atomics get the saved results.

use alloc::collections::{TryReserveError, VecDeque};

use super::host::{Access, AtomicOp, Delivered, Host};
use super::replies::Replies;
use super::{RcConfig, Stats, Transmit};
use crate::psn::Psn;
use crate::wire::aeth::{Nak, Syndrome};
use crate::wire::bth::{Operation, Position, Rider};
use crate::wire::extended::Reth;
use crate::wire::packet::{Extended, Packet};

/// A message that is not complete.
#[derive(Clone, Copy, Debug)]
enum Incoming {
    Send { room: u64, arrived: u32 },
    Write { reth: Reth, arrived: u32 },
}

/// Why a request is not executed.
enum Refusal {
    Nak(Nak),
    NotReady,
}

impl From<super::AccessError> for Refusal {
    fn from(_: super::AccessError) -> Self {
        Self::Nak(Nak::RemoteAccess)
    }
}

const INVALID: Refusal = Refusal::Nak(Nak::InvalidRequest);

/// Longest Read (InfiniBand volume 1, 9.7.3).
const MAX_MESSAGE: u32 = 1 << 31;

#[derive(Debug)]
pub(super) struct Responder {
    expected: Psn,
    /// Messages that were finished.
    msn: Psn,
    message: Option<Incoming>,
    /// The gap, or the missing receive, was reported: no reply until `expected` arrives.
    reported: bool,
    replies: Replies,
    /// Results of the last atomics, for repetitions.
    atomics: VecDeque<(Psn, u64)>,
    refused: Option<Nak>,
    /// The message that is expected was counted among those that waited.
    waits: bool,
    pub(super) stats: Stats,
}

impl Responder {
    pub(super) fn new(config: &RcConfig) -> Result<Self, TryReserveError> {
        let mut atomics = VecDeque::new();
        atomics.try_reserve_exact(usize::from(config.responder_resources))?;
        Ok(Self {
            expected: config.receive_psn,
            msn: Psn::default(),
            message: None,
            reported: false,
            replies: Replies::new(config.responder_resources)?,
            atomics,
            refused: None,
            waits: false,
            stats: Stats::default(),
        })
    }

    pub(super) const fn refused(&self) -> Option<Nak> {
        self.refused
    }

    pub(super) fn poll_transmit(&mut self, config: &RcConfig) -> Option<Transmit> {
        self.replies.poll_transmit(config)
    }

    /// The same, unless it is the only reply and an acknowledgement.
    pub(super) fn poll_urgent(&mut self, config: &RcConfig) -> Option<Transmit> {
        if self.replies.may_wait() { None } else { self.replies.poll_transmit(config) }
    }

    pub(super) fn owes_reply(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Handles that the memory of a response is no longer readable.
    pub(super) fn source_fault(&mut self, psn: Psn) {
        // It was at the front; the peer requests what follows again, or never.
        self.replies.clear();
        self.refuse(psn, Nak::RemoteAccess);
    }

    fn refuse(&mut self, psn: Psn, nak: Nak) {
        self.refused = Some(nak);
        self.replies.refuse(psn, self.msn, Syndrome::Nak(nak));
    }

    pub(super) fn handle_request(
        &mut self,
        config: &RcConfig,
        operation: Operation,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) {
        let psn = packet.headers.bth.psn;
        if let Some(nak) = self.refused {
            // The refusal may have been lost.
            self.replies.refuse(self.expected, self.msn, Syndrome::Nak(nak));
            return;
        }
        match psn.ahead_of(self.expected) {
            0 => self.expected_request(config, operation, packet, host),
            // [IBRC-05]
            1.. if self.reported => {}
            1.. => {
                self.reported = true;
                let syndrome = Syndrome::Nak(Nak::PsnSequence);
                self.replies.refuse(self.expected, self.msn, syndrome);
            }
            _ => self.repeated(config, operation, psn, &packet.headers.extended, host),
        }
    }

    fn expected_request(
        &mut self,
        config: &RcConfig,
        operation: Operation,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) {
        self.reported = false;
        match self.execute(config, operation, packet, host) {
            Ok(()) => self.waits = false,
            Err(Refusal::NotReady) => {
                self.reported = true;
                self.stats.waited += u64::from(!self.waits);
                self.waits = true;
                let syndrome = Syndrome::Rnr { timer: config.min_rnr_timer };
                self.replies.refuse(self.expected, self.msn, syndrome);
            }
            Err(Refusal::Nak(nak)) => {
                if let Some(Incoming::Send { .. }) = self.message.take() {
                    host.fail_receive();
                }
                self.refuse(self.expected, nak);
            }
        }
    }

    fn execute(
        &mut self,
        config: &RcConfig,
        operation: Operation,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let (bth, extended) = (&packet.headers.bth, &packet.headers.extended);
        let psn = self.expected;
        match operation {
            Operation::Send(position, rider) => {
                self.check_length(config, position, packet.payload)?;
                self.send(position, rider, packet, host)?;
                self.finish_packet(position, bth.ack_request);
            }
            Operation::Write(position, rider) => {
                self.check_length(config, position, packet.payload)?;
                self.write(position, rider, packet, host)?;
                self.finish_packet(position, bth.ack_request);
            }
            Operation::ReadRequest => {
                self.check_resources(config)?;
                let reth = extended.reth.ok_or(INVALID)?;
                check_read(&reth, host)?;
                self.finish_message();
                self.stats.reads_served += 1;
                self.expected = psn.plus(config.mtu.packets(reth.length));
                self.replies.read(psn, self.msn, reth);
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                self.check_resources(config)?;
                let original = atomic(operation, extended, host)?;
                self.finish_message();
                self.stats.reads_served += 1;
                self.expected = psn.next();
                self.keep(config, psn, original);
                self.replies.atomic(psn, self.msn, original);
            }
            Operation::ReadResponse(_) | Operation::Acknowledge | Operation::AtomicAcknowledge => {}
        }
        Ok(())
    }

    /// First and Middle packets are full, Last ones are not empty (InfiniBand volume 1, 9.7.4).
    fn check_length(
        &self,
        config: &RcConfig,
        position: Position,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let mtu = config.mtu.octets() as usize;
        // [IBRC-02, IBRC-03]
        let fits = match position {
            Position::First | Position::Middle => payload.len() == mtu,
            Position::Last => (1..=mtu).contains(&payload.len()),
            Position::Only => payload.len() <= mtu,
        };
        // [IBRC-04]
        // A message begins exactly where none is incomplete.
        if fits && position.begins() == self.message.is_none() { Ok(()) } else { Err(INVALID) }
    }

    /// Reads and atomics come between messages, and only if the connection has any.
    fn check_resources(&mut self, config: &RcConfig) -> Result<(), Refusal> {
        if config.responder_resources == 0 || self.message.is_some() {
            return Err(INVALID);
        }
        self.replies.make_room(config.responder_resources);
        Ok(())
    }

    fn send(
        &mut self,
        position: Position,
        rider: Rider,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let (room, arrived) = match self.message {
            None => (host.take_receive().ok_or(Refusal::NotReady)?, 0),
            Some(Incoming::Send { room, arrived }) => (room, arrived),
            Some(Incoming::Write { .. }) => return Err(INVALID),
        };
        // From here on a refusal fails the receive.
        self.message = Some(Incoming::Send { room, arrived });
        let len = arrived.checked_add(packet.payload.len() as u32).ok_or(INVALID)?;
        // [IBRC-14]
        if u64::from(len) > room {
            return Err(INVALID);
        }
        host.place_receive(arrived, packet.payload)
            .map_err(|_| Refusal::Nak(Nak::RemoteOperational))?;
        if !position.ends() {
            self.message = Some(Incoming::Send { room, arrived: len });
            return Ok(());
        }
        let invalidated = packet.headers.extended.invalidate.filter(|_| rider == Rider::Invalidate);
        if let Some(rkey) = invalidated {
            host.invalidate(rkey)?;
        }
        self.message = None;
        host.complete_receive(Delivered {
            len,
            is_write: false,
            immediate: packet.headers.extended.immediate,
            invalidated,
            solicited: packet.headers.bth.solicited,
        });
        Ok(())
    }

    fn write(
        &mut self,
        position: Position,
        rider: Rider,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let (reth, arrived) = match self.message {
            None => {
                let reth = packet.headers.extended.reth.ok_or(INVALID)?;
                check_allowed(Access::Write, &reth, host)?;
                if reth.length != 0 {
                    // [IBRC-15]
                    host.check(reth.rkey, reth.address, reth.length, Access::Write)?;
                }
                (reth, 0)
            }
            Some(Incoming::Write { reth, arrived }) => (reth, arrived),
            Some(Incoming::Send { .. }) => return Err(INVALID),
        };
        let len = arrived.checked_add(packet.payload.len() as u32).ok_or(INVALID)?;
        // [IBRC-18]
        // The RETH has the length: neither less nor more (InfiniBand volume 1, 9.7.4).
        if len > reth.length || position.ends() != (len == reth.length) {
            return Err(INVALID);
        }
        let immediate = packet.headers.extended.immediate.filter(|_| rider == Rider::Immediate);
        // [IBRC-19]
        if immediate.is_some() {
            host.take_receive().ok_or(Refusal::NotReady)?;
        }
        if !packet.payload.is_empty() {
            let address = reth.address.wrapping_add(u64::from(arrived));
            let placed = host.place(reth.rkey, address, packet.payload);
            if placed.is_err() && immediate.is_some() {
                host.fail_receive();
            }
            placed?;
        }
        self.message = (!position.ends()).then_some(Incoming::Write { reth, arrived: len });
        if immediate.is_some() {
            host.complete_receive(Delivered {
                len,
                is_write: true,
                immediate,
                invalidated: None,
                solicited: packet.headers.bth.solicited,
            });
        }
        Ok(())
    }

    fn finish_message(&mut self) {
        self.msn = self.msn.next();
        self.stats.messages += 1;
    }

    fn finish_packet(&mut self, position: Position, ack_request: bool) {
        if position.ends() {
            self.finish_message();
        }
        if ack_request {
            self.replies.acknowledge(self.expected, self.msn);
        }
        self.expected = self.expected.next();
    }

    fn keep(&mut self, config: &RcConfig, psn: Psn, original: u64) {
        if self.atomics.len() >= usize::from(config.responder_resources) {
            self.atomics.pop_front();
        }
        self.atomics.push_back((psn, original));
    }

    fn repeated(
        &mut self,
        config: &RcConfig,
        operation: Operation,
        psn: Psn,
        extended: &Extended,
        host: &mut impl Host,
    ) {
        match (operation, extended.reth) {
            (Operation::ReadRequest, Some(reth)) => {
                let end = psn.plus(config.mtu.packets(reth.length));
                // [IBRC-07]
                // Not a repetition, or memory that it may no longer read.
                if end.ahead_of(self.expected) > 0 {
                    return;
                }
                self.replies.drop_from(psn);
                self.replies.make_room(config.responder_resources);
                match check_read(&reth, host) {
                    Ok(()) => self.replies.read(psn, self.msn, reth),
                    Err(_) => self.refuse(psn, Nak::RemoteAccess),
                }
            }
            (Operation::CompareSwap | Operation::FetchAdd, _) => {
                // [IBRC-08]
                let kept = self.atomics.iter().find(|(at, _)| *at == psn).copied();
                if let Some((_, original)) = kept {
                    self.replies.drop_from(psn);
                    self.replies.make_room(config.responder_resources);
                    self.replies.atomic(psn, self.msn, original);
                }
            }
            // [IBRC-06]
            // All before the expected PSN is done, so acknowledge that, whichever packet was repeated.
            _ => self.replies.acknowledge(self.expected.minus(1), self.msn),
        }
    }
}

/// A request that the queue pair does not serve is invalid, whatever its key grants.
fn check_allowed(access: Access, place: &Reth, host: &mut impl Host) -> Result<(), Refusal> {
    if host.allows(access, place) { Ok(()) } else { Err(INVALID) }
}

fn check_read(reth: &Reth, host: &mut impl Host) -> Result<(), Refusal> {
    check_allowed(Access::Read, reth, host)?;
    match reth.length {
        0 => Ok(()),
        1..=MAX_MESSAGE => Ok(host.check(reth.rkey, reth.address, reth.length, Access::Read)?),
        _ => Err(INVALID),
    }
}

fn atomic(operation: Operation, extended: &Extended, host: &mut impl Host) -> Result<u64, Refusal> {
    let request = extended.atomic.ok_or(INVALID)?;
    let (rkey, address) = (request.rkey, request.address);
    let place = Reth { rkey, address, length: 8 };
    check_allowed(Access::Atomic, &place, host)?;
    // [IBRC-16]
    if address % 8 != 0 {
        host.refuse_unaligned(&place);
        return Err(INVALID);
    }
    let op = match operation {
        Operation::CompareSwap => {
            AtomicOp::CompareSwap { compare: request.compare, swap: request.swap_or_add }
        }
        _ => AtomicOp::FetchAdd { add: request.swap_or_add },
    };
    host.check(rkey, address, 8, Access::Atomic)?;
    Ok(host.atomic(rkey, address, op)?)
}
