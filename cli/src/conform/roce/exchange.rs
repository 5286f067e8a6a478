//! Messages of the connection manager as the tester sends and receives them: the codec is the house's, the exchange is
//! the case's. Main thread only; the bench owns the state.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use roce_proto::cm::mad::Mad;
use roce_proto::cm::message::{ConnectionIds, Message, Private};

use super::packet::{Packet, op};
use super::wire::{GSI, Wire};

/// The queue key of the connection manager.
pub(super) const QKEY: u32 = 0x8001_0000;

/// A message with its management datagram.
pub(super) type Told = (Mad, Message);

/// Sends a management datagram.
pub(super) fn send(wire: &Wire, to: IpAddr, octets: &[u8]) {
    wire.send_to(to, &datagram(GSI, QKEY, GSI, octets));
}

/// A datagram for queue pair `to`.
pub(super) fn datagram(to: u32, key: u32, from: u32, payload: &[u8]) -> Packet {
    let header = [key.to_be_bytes(), from.to_be_bytes()].concat();
    Packet::new(op::DATAGRAM, to, 0, payload).with(&header)
}

/// The next message of the peer's that `pick` takes. Its requests to end other connections are answered, and all else
/// is dropped.
pub(super) fn next<T>(
    wire: &Wire,
    wait: Duration,
    mut pick: impl FnMut(&Told) -> Option<T>,
) -> Option<T> {
    let until = Instant::now() + wait;
    let mut left = wait;
    loop {
        let packet = wire.next(GSI, left)?;
        // Also if the peer never stops.
        let is_over = left.is_zero();
        left = until.saturating_duration_since(Instant::now());
        let (key, source) = packet.deth();
        let mad = Mad::parse(&packet.payload);
        let (Ok(mad), true) = (mad, (key, source) == (QKEY, GSI)) else {
            let text = "a datagram for queue pair 1 is no message of the connection manager";
            wire.record().broken(&["IBCM-01"], text);
            if is_over {
                return None;
            }
            continue;
        };
        let Ok(message) = Message::parse(&mad) else {
            if is_over {
                return None;
            }
            continue;
        };
        wire.record().kept(&["IBCM-01"]);
        let told = (mad, message);
        if let Some(found) = pick(&told) {
            return Some(found);
        }
        if let Message::Dreq { ids, .. } = message {
            let ids = ConnectionIds { local: ids.remote, remote: ids.local };
            let reply = Message::Drep { ids, private: Private::default() };
            send(wire, wire.there(), &reply.emit(mad.transaction).emit());
        }
        if is_over {
            return None;
        }
    }
}

/// Whose connection a message is about, as its receiver calls it.
pub(super) const fn of(message: &Message) -> u32 {
    match message {
        Message::Req(_) | Message::SidrReq { .. } => 0,
        Message::Rep(rep) => rep.ids.remote,
        Message::SidrRep { request, .. } => *request,
        Message::Mra { ids, .. }
        | Message::Rej { ids, .. }
        | Message::Rtu { ids, .. }
        | Message::Dreq { ids, .. }
        | Message::Drep { ids, .. } => ids.remote,
    }
}
