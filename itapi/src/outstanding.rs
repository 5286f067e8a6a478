//! Outstanding work requests of an endpoint, and the completions made of them. The endpoint and the directories
//! of its event dispatchers share them; a lock per queue. When the stream is over, they complete as flushed;
//! dropping the endpoint drops those that have not completed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ual::NOTIFY;
use vp_api::{QpId, WcOpcode, WcStatus, WorkCompletion};

use crate::completion::Completion;
use crate::flight::{RecvFlight, SendFlight, Sent};
use crate::ids::{EpId, Operation, WorkId};
use crate::remote::RmrContext;
use crate::srq::Srq;
use crate::work::Local;

/// The outstanding work requests of an endpoint.
pub(crate) struct Flights {
    send: Mutex<SendFlight>,
    recv: Receives,
    /// Set when the endpoint was destroyed.
    gone: AtomicBool,
}

/// The source of an endpoint's receives.
pub(crate) enum Receives {
    Own(Mutex<RecvFlight>),
    Shared(Srq),
    /// Receives of datagrams, whose completions name the sender.
    Datagrams(Mutex<RecvFlight>, Arc<ual::UdEp>),
}

impl Flights {
    /// Of an endpoint with a send queue of `depth`.
    pub(crate) fn new(depth: u32, recv: Receives) -> Arc<Self> {
        let (send, gone) = (Mutex::new(SendFlight::new(depth)), AtomicBool::new(false));
        Arc::new(Self { send, recv, gone })
    }

    #[cfg(test)]
    pub(crate) fn idle() -> Arc<Self> {
        let recv = RecvFlight::new(0).expect("room for none");
        Self::new(0, Receives::Own(Mutex::new(recv)))
    }

    /// Lets all dispatchers forget the endpoint.
    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn send(&self) -> MutexGuard<'_, SendFlight> {
        // Nothing panics while the lock is held.
        self.send.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn recv(&self) -> MutexGuard<'_, RecvFlight> {
        match &self.recv {
            Receives::Own(flight) | Receives::Datagrams(flight, _) => {
                flight.lock().unwrap_or_else(PoisonError::into_inner)
            }
            Receives::Shared(srq) => srq.flight(),
        }
    }

    /// Records that the endpoint was destroyed.
    pub(crate) fn left(&self, qp: QpId) {
        if let Receives::Shared(srq) = &self.recv {
            srq.left(qp);
        }
    }

    /// The completion for the application; `None` if its request is unknown, which happens only if a provider
    /// completes a request twice.
    #[inline]
    pub(crate) fn complete(&self, wc: &WorkCompletion) -> Option<Completion> {
        if is_receive(wc) { self.received(wc) } else { sent(&mut self.send(), wc) }
    }

    #[inline(never)] // so that completions of sends need fewer registers
    fn received(&self, wc: &WorkCompletion) -> Option<Completion> {
        match &self.recv {
            Receives::Datagrams(_, ep) => datagram(&mut self.recv(), ep, wc),
            _ => received(&mut self.recv(), wc),
        }
    }

    /// The same for completions of one queue, under one lock.
    pub(crate) fn complete_run(&self, run: &[WorkCompletion], out: &mut Vec<Completion>) {
        if run.first().is_some_and(is_receive) {
            let mut flight = self.recv();
            match &self.recv {
                Receives::Datagrams(_, ep) => {
                    out.extend(run.iter().filter_map(|wc| datagram(&mut flight, ep, wc)));
                }
                _ => out.extend(run.iter().filter_map(|wc| received(&mut flight, wc))),
            }
        } else {
            let mut flight = self.send();
            out.extend(run.iter().filter_map(|wc| sent(&mut flight, wc)));
        }
    }
}

pub(crate) fn is_receive(wc: &WorkCompletion) -> bool {
    receive_of(wc.opcode).is_some()
}

/// The kind of receive that a provider's opcode means; `None`: it is of the send queue.
fn receive_of(opcode: WcOpcode) -> Option<Operation> {
    match opcode {
        WcOpcode::Recv => Some(Operation::Recv),
        WcOpcode::RecvImmediate => Some(Operation::RecvImmediate),
        _ => None,
    }
}

fn received(flight: &mut RecvFlight, wc: &WorkCompletion) -> Option<Completion> {
    let operation = receive_of(wc.opcode)?;
    let mut local = flight.complete(wc.wr_id & !NOTIFY, wc.qp)?;
    // A Write's octets are not the receive's.
    let octets = if operation == Operation::RecvImmediate { 0 } else { wc.octets };
    local.set_received(if wc.status == WcStatus::Success { octets as usize } else { 0 });
    Some(Completion { octets, ..completion(wc, operation, local, Vec::new()) })
}

fn datagram(flight: &mut RecvFlight, ep: &ual::UdEp, wc: &WorkCompletion) -> Option<Completion> {
    let source = ep.take_sender(wc.wr_id).map(Box::new);
    Some(Completion { source, ..received(flight, wc)? })
}

#[inline]
fn sent(flight: &mut SendFlight, wc: &WorkCompletion) -> Option<Completion> {
    let good = wc.status == WcStatus::Success;
    let Sent { operation, mut local, .. } = flight.complete(wc.wr_id & !NOTIFY, good)?;
    let earlier = flight.take_earlier();
    let arrives = matches!(operation, Operation::Read | Operation::Atomic);
    if arrives && good {
        local.set_received(wc.octets as usize);
    }
    Some(completion(wc, operation, local, earlier))
}

#[inline]
fn completion(
    wc: &WorkCompletion,
    operation: Operation,
    local: Local,
    earlier: Vec<Local>,
) -> Completion {
    Completion {
        ep: EpId(wc.qp.0),
        id: WorkId(wc.wr_id & !NOTIFY),
        operation,
        status: wc.status,
        octets: wc.octets,
        solicited: wc.solicited,
        invalidated: wc.invalidated.map(|stag| RmrContext(stag.0)),
        immediate: wc.immediate,
        source: None,
        end: None,
        local,
        earlier,
    }
}
