//! How the processor time of a connection is divided among its tasks: assumed costs of each, from the measurements in
//! docs/findings.md. Their ratios count, so a slower processor or a debug build changes little.

use crate::explain::evidence::Evidence;

/// A system call that sends or receives, with its part of TCP, in seconds.
const CALL: f64 = 4e-6;
/// An octet through TCP.
const OCTET: f64 = 0.15e-9;
/// Framing or checking an FPDU.
const FPDU: f64 = 0.3e-6;
/// Inserting or removing the markers of an octet: one copy more.
const MARKED: f64 = 0.1e-9;
/// CRC32c of an octet.
const CRC: f64 = 0.02e-9;
/// Posting or receiving a message, with its completion.
const MESSAGE: f64 = 0.3e-6;
/// Sleeping and waking up.
pub(super) const SLEEP: f64 = 25e-6;

/// How much slower than assumed a task is at most: a debug build on a slow processor.
const SLOWEST: f64 = 100.0;

/// Processor time by task, in assumed seconds.
pub(super) struct Costs {
    /// System calls and octets through TCP.
    pub(super) tcp: f64,
    /// System calls that sent.
    pub(super) send_calls: f64,
    /// FPDUs, markers and CRC.
    pub(super) framing: f64,
    messages: f64,
    /// The time in which all that was done.
    served: f64,
}

impl Costs {
    pub(super) fn of(of: &Evidence) -> Self {
        let octets = (of.octets_sent + of.octets_received) as f64;
        let each = |cost: f64, is_on: bool| if is_on { octets * cost } else { 0.0 };
        let messages = of.messages_sent + of.messages_received + of.responses_sent;
        // A call that receives nothing costs little.
        let calls = of.send_calls + of.receive_calls.min(of.fpdus_received);
        let fpdus = of.fpdus_sent + of.fpdus_received;
        Self {
            tcp: calls as f64 * CALL + octets * OCTET,
            send_calls: of.send_calls as f64 * CALL,
            framing: fpdus as f64 * FPDU + each(CRC, of.crc) + each(MARKED, of.markers),
            messages: messages as f64 * MESSAGE,
            served: of.served(),
        }
    }

    fn all(&self) -> f64 {
        self.tcp + self.framing + self.messages
    }

    /// The share that a task has of the processor time. A thread that polls runs all the time, so that a share is no more
    /// than the task can take by itself.
    pub(super) fn share(&self, task: f64) -> f64 {
        let all = self.all();
        if all <= 0.0 { 0.0 } else { (task / all).min(SLOWEST * task / self.served) }
    }
}

impl Evidence {
    /// The sampled time, without that in which the busiest thread was ready to run and had no processor. Shares of
    /// what this end does refer to this time.
    pub(super) fn served(&self) -> f64 {
        let starved = self.processor.map_or(0.0, |of| of.waited.min(self.seconds - of.ran));
        (self.seconds - starved).max(1e-6)
    }

    /// The share in which the busiest thread ran.
    pub(super) fn running(&self) -> f64 {
        let ran = self.processor.map_or_else(|| Costs::of(self).all(), |of| of.ran);
        (ran / self.served()).min(1.0)
    }

    /// The share in which TCP had octets in flight; if this end receives, or there is no TCP, that in which
    /// messages moved.
    pub(super) fn busy(&self) -> f64 {
        let receives = self.octets_received > self.octets_sent;
        match &self.tcp {
            Some(tcp) if !self.local_stream && !receives => {
                (tcp.busy_us as f64 / 1e6 / self.served()).min(1.0)
            }
            _ => self.moving(),
        }
    }

    /// The share of the samples since the last of which messages moved.
    pub(super) fn moving(&self) -> f64 {
        super::part(self.samples.moved, self.samples.taken)
    }
}
