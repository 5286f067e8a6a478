//! Posting of the runner: requests that the oracle allows, those that a full queue must refuse, and those that end
//! the connection.

use vp_api::*;

use super::oracle::{Message, Receive, Sent};
use super::program::{Kind, NUMBERS, REGION, Step, Wrong};
use super::runner::{CHUNK, Play, pair};
use crate::Fail;
use crate::fail::refused;
use crate::rig::pattern;

impl Play<'_> {
    pub(super) fn receive(&mut self, at: usize, lens: [u16; 2]) -> Result<(), Fail> {
        let (id, stream) = (self.id(), self.stream);
        let (party, side) = (&self.parties[at], &mut self.sides[at]);
        let chunk = side.chunk()?;
        let lens = match self.rig.attrs.max_sge_recv {
            0 | 1 => [lens[0], 0],
            _ => lens,
        };
        let sgl = [party.part(chunk, 0, lens[0]), party.part(chunk, CHUNK / 2, lens[1])];
        let sgl = if lens[1] == 0 { &sgl[..1] } else { &sgl[..] };
        let posted = party.post_recv(&[RecvWr { wr_id: id, sgl }]);
        if side.receives.is_full() {
            return refused("a receive of a full queue", posted, VpStatus::TooManyWrs);
        }
        posted?;
        side.receive(id, stream, Receive { lens, chunk });
        Ok(())
    }

    pub(super) fn post(&mut self, at: usize, step: Step) -> Result<(), Fail> {
        let Step::Post { kind, len, at: to, signaled, fenced, inline } = step else {
            return Ok(());
        };
        let attrs = &self.rig.attrs;
        let (id, stream) = (self.id(), self.stream);
        let seed = id as u8;
        let [side, peer] = pair(&mut self.sides, at);
        let takes = matches!(kind, Kind::Send { .. } | Kind::WriteImmediate);
        let mut len = usize::from(len);
        // A message without a receive would end the connection.
        if let (true, false) = (takes, self.over) {
            let Some(receive) = peer.next_receive(stream) else { return Ok(()) };
            len = if matches!(kind, Kind::Send { .. }) { len.min(receive.room()) } else { len };
        }
        let offers = |what| self.rig.offers(what);
        if (kind == Kind::Add && !offers(Capabilities::ATOMICS))
            || (kind == Kind::WriteImmediate && !offers(Capabilities::IMMEDIATE))
            || (len as u64 > u64::from(attrs.max_message))
        {
            return Ok(());
        }
        let (party, other) = (&self.parties[at], &self.parties[1 - at]);
        let chunk = side.chunk()?;
        let to = usize::from(to);
        let number = REGION - 8 * (NUMBERS - to.min(NUMBERS - 1));
        let add = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (op, len) = match kind {
            Kind::Send { solicited } => (SendOp::Send { solicited, invalidate: None }, len),
            Kind::Write => (SendOp::Write { remote: other.open.remote(to) }, len),
            Kind::WriteImmediate => {
                let remote = other.open.remote(to);
                (SendOp::WriteImmediate { remote, data: id & 0xffff, solicited: false }, len)
            }
            Kind::Read => {
                let remote = other.open.remote(to);
                (SendOp::Read { remote, invalidate_sink: false }, len)
            }
            Kind::Add => {
                let op = AtomicOp::FetchAdd { add, mask: 0 };
                (SendOp::Atomic { remote: other.open.remote(number), op }, 8)
            }
        };
        let octets = pattern(len, seed);
        let is_sink = matches!(kind, Kind::Read | Kind::Add);
        if !is_sink {
            party.own.region.write_at(chunk * CHUNK, &octets)?;
        }
        let sgl = [party.part(chunk, 0, len as u16)];
        let inline = inline && !is_sink && len <= party.max_inline;
        let data = if inline { Data::Inline(&octets) } else { Data::Sgl(&sgl) };
        // A queue of unsignaled requests only would be full for ever.
        let signaled = signaled || side.sends.list.len() as u32 + 1 >= side.sends.depth;
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, signaled);
        let overtakes = !matches!(kind, Kind::Send { .. } | Kind::Read) && side.reads();
        match (overtakes || fenced, id % 2) {
            (false, _) => {}
            (true, 0) => flags.insert(SendFlags::READ_FENCE),
            (true, _) => flags.insert(SendFlags::LOCAL_FENCE),
        }
        let opcode = op.completion();
        let posted = party.end.qp.post_send(&[SendWr { wr_id: id, op, data, flags }]);
        if side.sends.is_full() {
            return refused("a post to a full queue", posted, VpStatus::TooManyWrs);
        }
        posted?;
        let brings = match kind {
            Kind::Read => Some(peer.region[to..to + len].to_vec()),
            Kind::Add => Some(peer.add(to.min(NUMBERS - 1), add)),
            _ => None,
        };
        if matches!(kind, Kind::Write | Kind::WriteImmediate) {
            peer.write(to, &octets);
        }
        if takes {
            let immediate = (kind == Kind::WriteImmediate).then_some(id & 0xffff);
            peer.expect(Message::new(len, seed, immediate), stream);
        }
        side.send(id, signaled, stream, Sent { opcode, chunk, brings });
        Ok(())
    }

    /// A request that must end the connection.
    pub(super) fn wrong(&mut self, at: usize, wrong: Wrong) -> Result<(), Fail> {
        let (id, stream) = (self.id(), self.stream);
        let [side, peer] = pair(&mut self.sides, at);
        if side.sends.is_full() {
            return Ok(());
        }
        let (party, other) = (&self.parties[at], &self.parties[1 - at]);
        let write = |remote| SendOp::Write { remote };
        let read = |remote| SendOp::Read { remote, invalidate_sink: false };
        let open = &other.open;
        let Remote { stag, to } = open.remote(0);
        let (op, len) = match wrong {
            Wrong::WriteWithoutRight => (write(other.readable.remote(8)), 8),
            Wrong::ReadWithoutRight => (read(other.writable.remote(8)), 8),
            Wrong::WriteBehindEnd => (write(open.remote(REGION - 4)), 8),
            Wrong::ReadBehindEnd => (read(open.remote(REGION - 4)), 8),
            Wrong::OtherKey => {
                let stag = Stag::new(stag.index(), stag.key() ^ 0x55);
                (write(Remote { stag, to }), 8)
            }
            Wrong::TooLong => match peer.next_receive(stream).map(Receive::room) {
                Some(room) if room < CHUNK => (crate::rig::SEND, room + 1),
                _ => return Ok(()),
            },
        };
        let chunk = side.chunk()?;
        party.own.region.write_at(chunk * CHUNK, &pattern(len, id as u8 | 1))?;
        let (opcode, sgl) = (op.completion(), [party.own.sge(chunk * CHUNK, len)]);
        let (data, flags) = (Data::Sgl(&sgl), SendFlags::SIGNALED);
        party.end.qp.post_send(&[SendWr { wr_id: id, op, data, flags }])?;
        side.send(id, true, stream, Sent { opcode, chunk, brings: None });
        self.over = true;
        self.await_end()
    }
}
