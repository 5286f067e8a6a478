//! Send queue of the protocol core: the protocol's part of each WQE, and its progress.
//!
//! Owner: the QP; touched only by the thread that drives it. When the peer dies `flush` completes
//! everything that is left.

use crate::host::{Host, LocalFault};
use crate::qp::effect::PostError;
use crate::ring::Ring;
use crate::types::{Completion, SendOp, SendWqe, Slot, Status};

/// Progress of a WQE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Not started.
    Queued,
    /// Segments are going out, or a response is awaited.
    Started,
    /// Everything was yielded; done when the LLP has accepted FPDU `sequence`.
    Yielded(u64),
    /// Done, but an earlier WQE is not.
    Done,
    /// Failed; everything after it will be flushed.
    Failed(Status),
}

/// One WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) wqe: SendWqe,
    pub(crate) phase: Phase,
    /// Length of the operation, once begun.
    pub(crate) octets: u32,
    /// MSN of its untagged message, once begun: finds the WQE that a Terminate names.
    pub(crate) msn: u32,
}

/// The ring of WQEs: completed in posting order, started in posting order.
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: Ring<Entry>,
    started: u32,
    /// A WQE failed, so those after it fail, too.
    failed: bool,
}

impl SendQueue {
    pub(crate) fn new(depth: u32) -> Self {
        Self { ring: Ring::new(depth), started: 0, failed: false }
    }
    pub(crate) fn len(&self) -> u32 {
        self.ring.len()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
    /// Whether nothing is posted, and something was before: posting needs no memory.
    pub(crate) fn is_idle(&self) -> bool {
        self.ring.is_empty() && self.ring.is_allocated()
    }
    pub(crate) fn push(&mut self, wqe: SendWqe) -> Result<Slot, PostError> {
        let entry = Entry { wqe, phase: Phase::Queued, octets: 0, msn: 0 };
        self.ring.push(entry).ok_or_else(|| match self.ring.is_full() {
            true => PostError::QueueFull,
            false => PostError::NoMemory,
        })
    }
    pub(crate) fn entry(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.ring.get_mut(slot)
    }
    /// The next WQE to start, and whether all earlier ones are complete.
    pub(crate) fn next(&mut self) -> Option<(Slot, SendWqe, bool)> {
        let first = self.started == 0;
        self.next_mut().map(|(slot, entry)| (slot, entry.wqe, first))
    }
    /// Whether a WQE is not started.
    pub(crate) fn waits(&self) -> bool {
        self.started != self.ring.len()
    }
    /// The next WQE to start, in place.
    pub(crate) fn next_mut(&mut self) -> Option<(Slot, &mut Entry)> {
        if !self.waits() {
            return None;
        }
        let slot = self.ring.position(self.started);
        self.ring.get_mut(slot).map(|entry| (slot, entry))
    }
    /// The next WQE was marked in place.
    pub(crate) fn count_started(&mut self) {
        self.started += 1;
    }
    /// Marks the next WQE as started.
    pub(crate) fn start(&mut self, slot: Slot, octets: u32, msn: u32) {
        if let Some(entry) = self.ring.get_mut(slot) {
            entry.phase = Phase::Started;
            entry.octets = octets;
            entry.msn = msn;
            self.started += 1;
        }
    }
    pub(crate) fn set_phase(&mut self, slot: Slot, phase: Phase) {
        if let Some(entry) = self.ring.get_mut(slot) {
            entry.phase = phase;
        }
    }

    /// Completes, in posting order, what is done [RDMAP-17, VERBS-16]; after a failure, nothing.
    pub(crate) fn retire<H: Host>(&mut self, accepted: u64, host: &mut H) {
        if self.failed {
            return;
        }
        while let Some(entry) = self.ring.front() {
            match entry.phase {
                // RFC 5040 5.5(9) [RDMAP-18]
                Phase::Yielded(sequence) if sequence <= accepted => {}
                Phase::Done => {}
                Phase::Failed(status) => {
                    self.complete(status, host);
                    self.failed = !self.ring.is_empty();
                    return;
                }
                _ => return,
            }
            self.complete(Status::Success, host);
        }
    }
    /// Completes everything: successful up to the first WQE that is not done, the rest as Flushed or
    /// failed [VERBS-11]. So the unsuccessful ones are the last ones, and their number identifies them.
    pub(crate) fn flush<H: Host>(&mut self, accepted: u64, host: &mut H) {
        self.retire(accepted, host);
        while let Some(entry) = self.ring.front() {
            let status = match entry.phase {
                Phase::Failed(status) => status,
                _ => Status::Flushed,
            };
            self.complete(status, host);
        }
        self.failed = false;
    }
    fn complete<H: Host>(&mut self, status: Status, host: &mut H) {
        let slot = self.ring.position(0);
        if let Some(entry) = self.ring.pop() {
            self.started = self.started.saturating_sub(1);
            host.complete_send(Completion { slot, status, octets: entry.octets });
        }
    }

    /// Marks the WQE that a received Terminate names. Called once, in RTS, where none has failed: so
    /// at most one completion has an error status of its own (RDMAC 6.2.4) [VERBS-11]. Returns its
    /// octets.
    pub(crate) fn attribute_terminate(
        &mut self,
        status: Status,
        named: impl Fn(&Entry) -> bool,
    ) -> Option<u32> {
        for index in 0..self.started {
            let slot = self.ring.position(index);
            if let Some(entry) = self.ring.get_mut(slot)
                && entry.phase != Phase::Done
                && named(entry)
            {
                entry.phase = Phase::Failed(status);
                return Some(entry.octets);
            }
        }
        None
    }
}

/// Completion status of a WQE with a local fault.
pub(crate) fn local_status(fault: LocalFault) -> Status {
    match fault {
        // RDMAC 8.1.3.2
        LocalFault::Length => Status::BadLength,
        fault => Status::Local(fault),
    }
}

/// Whether an operation is none of RFC 5040.
pub(crate) fn is_extension(op: SendOp) -> bool {
    matches!(
        op,
        SendOp::Immediate { .. }
            | SendOp::SendImmediate { .. }
            | SendOp::WriteImmediate { .. }
            | SendOp::FetchAdd { .. }
            | SendOp::CmpSwap { .. }
    )
}
