//! Sending: a queue pair's packets, several in one system call.
//!
//! Runs under the QP's lock, with the batch of the thread that posts, receives or serves timers. What the kernel does
//! not take is lost, and the core repeats it.

use roce_proto::rc::Transmit;
use vp_api::WcStatus;

use super::publish::Record;
use super::queues::Queues;
use super::{Link, RoceQp, status};
use crate::engine::{self, Batch, TooLong};
use crate::tuning::{PAUSE_FULL_US, UNPACED};

impl Link {
    /// The acknowledgement, after all else. `alone`: nothing else leaves.
    fn last_reply(&mut self, now: u64, alone: bool, may_keep: bool) -> Option<Transmit> {
        if alone && self.core.owes_reply() {
            if may_keep && self.habit.may_keep() {
                self.habit.keep();
                return None;
            }
            self.habit.leaves_alone(now);
        }
        self.core.poll_transmit(now)
    }

    /// Sends what is in the batch. Only of its own ends it is known that they notify this one of congestion.
    fn send(&mut self, batch: &mut Batch, record: &mut Record) -> Result<(), TooLong> {
        self.core.begin_call(self.near && self.socket.joins());
        record.send_calls += u64::from(!batch.is_empty());
        let class = if self.ours && self.core.is_reliable() { engine::ECN_CAPABLE } else { 0 };
        batch.send(&self.socket, self.peer, class)
    }
}

/// Why a packet does not leave.
enum Unsent {
    /// Its memory may not be read.
    Fault(WcStatus),
    /// One before it is too long for the path.
    TooLong,
}

impl RoceQp {
    /// Sends all that may be sent now. `may_keep`: an acknowledgement that would leave alone may be kept. Returns true
    /// if a packet is too long for the path.
    pub(super) fn transmit(
        &self,
        link: &mut Link,
        queues: &mut Queues,
        record: &mut Record,
        now: u64,
        may_keep: bool,
    ) -> bool {
        engine::with_batch(|batch| {
            let before = record.packets_sent;
            for sent in 0.. {
                // A full receive buffer here holds an unreliable sender back, as a link's flow control does.
                if sent % UNPACED == 0 && link.core.is_unpaced() {
                    if link.send(batch, record).is_err() {
                        return true;
                    }
                    if !link.socket.has_room(link.peer, link.destination) {
                        link.core.pause(now + PAUSE_FULL_US);
                    }
                }
                let Some(transmit) = link.core.poll_urgent(now).or_else(|| {
                    let alone = record.packets_sent == before;
                    link.last_reply(now, alone, may_keep)
                }) else {
                    break;
                };
                match self.build(batch, link, queues, record, &transmit) {
                    Ok(()) => {}
                    Err(Unsent::Fault(status)) => {
                        queues.fault = Some(status);
                        link.core.handle_source_fault(&transmit);
                    }
                    Err(Unsent::TooLong) => return true,
                }
            }
            link.send(batch, record).is_err()
        })
    }

    /// Adds a packet to the batch, with room for the invariant CRC.
    fn build(
        &self,
        batch: &mut Batch,
        link: &mut Link,
        queues: &Queues,
        record: &mut Record,
        transmit: &Transmit,
    ) -> Result<(), Unsent> {
        const CRC: usize = 4;
        let (headers, payload) = (transmit.headers.emit(), transmit.source.len() as usize);
        let at = headers.as_slice().len();
        let len = at + payload + usize::from(transmit.headers.bth.pad) + CRC;
        if !batch.takes(len) {
            link.send(batch, record).map_err(|TooLong| Unsent::TooLong)?;
        }
        let packet = batch.room(len);
        packet[..at].copy_from_slice(headers.as_slice());
        let (room, pad) = packet[at..].split_at_mut(payload);
        pad.fill(0);
        queues
            .copy_payload(&self.context, transmit.source, room)
            .map_err(|error| Unsent::Fault(status::of_access(error)))?;
        batch.push(len);
        record.packets_sent += 1;
        record.octets_sent += payload as u64;
        Ok(())
    }
}
