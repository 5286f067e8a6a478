//! Detects what kind of program the peer is, and what cases can use: messages that it reacts to, memory that it
//! grants, Reads that it posts. Main thread only.

use iwarp_proto::wire::rdmap::{Opcode, ReadRequestRepr};

use super::answer;
use super::bench::Bench;
use super::frames::{self, Untagged};
use super::link::{Link, Seen};
use super::order::{MAGIC, target_request};
use super::verdict::{Needs, Play, Role, Stop, fail, skip};
use crate::ping::wire::{INFO_LEN, Info};

/// Address of the tester's memory that peers may read.
pub(super) const OUR_SOURCE: Info =
    Info { address: 0x0000_7700_0000_1000, key: 0x7e57_0100, size: 61 };

/// The peer's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Kind {
    /// `warpline conform --serve`, perhaps with `--roce`.
    Target,
    /// An rping server: reads the memory that a first Send describes.
    RpingServer,
    /// An rping client: its first Send describes its memory.
    RpingClient,
    /// ibv_rc_pingpong, over RoCE: sends a message for each that arrives.
    Pingpong,
    #[default]
    Unknown,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Target => "warpline's target",
            Self::RpingServer => "an rping server",
            Self::RpingClient => "an rping client",
            Self::Pingpong => "ibv_rc_pingpong",
            Self::Unknown => "of unknown purpose",
        }
    }
}

/// The findings of the first probe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    pub(super) kind: Kind,
    /// Responds to zero-length Reads.
    pub(super) probes: bool,
    /// Accepts revision 1 only.
    pub(super) plain: bool,
    /// Begins with the enhanced form when it connects.
    pub(super) enhanced: bool,
    /// The IRD in its start-up frame.
    pub(super) ird: Option<u16>,
}

impl Peer {
    pub(super) const fn offers(&self, needs: Needs) -> bool {
        let target = matches!(self.kind, Kind::Target);
        match needs {
            Needs::Nothing | Needs::Manager => true,
            Needs::Probe => self.probes,
            Needs::Message => !matches!(self.kind, Kind::Unknown),
            Needs::Memory => target || matches!(self.kind, Kind::RpingClient),
            Needs::Reader => target || matches!(self.kind, Kind::RpingServer),
            Needs::Target => target,
        }
    }
}

/// Memory of the peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) stag: u32,
    pub(super) to: u64,
    pub(super) len: u64,
}

impl Range {
    const fn of(info: Info) -> Self {
        Self { stag: info.key, to: info.address, len: info.size as u64 }
    }
}

/// Memory that the peer grants; the target's further regions are in [`Grants`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// May be read.
    pub(super) source: Range,
    /// May be written.
    pub(super) sink: Range,
}

/// The target's regions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grants {
    pub(super) both: Range,
    pub(super) read_only: Range,
    pub(super) write_only: Range,
    /// Of another protection domain.
    pub(super) foreign: Range,
    /// This connection's alone.
    pub(super) own: Range,
}

impl Bench {
    /// Probes the peer: one or two connections.
    pub(super) fn probe(&mut self) -> Play {
        if self.role == Role::Initiator {
            return self.probe_initiator();
        }
        self.probe_responder()
    }

    fn probe_responder(&mut self) -> Play {
        let mut spec = self.usual();
        spec.data = target_request(4, false);
        let (link, reply) = self.start_up(&spec)?;
        match reply {
            Ok(reply) if !reply.fixed.rejected => {
                self.peer.ird = reply.block.map(|block| block.ird);
                if reply.data.starts_with(MAGIC) {
                    self.peer.kind = Kind::Target;
                }
            }
            _ => self.peer.plain = true,
        }
        drop(link);
        let mut link = self.operating()?;
        self.peer.probes = self.goes_on(&mut link).is_ok();
        if self.peer.kind == Kind::Unknown {
            let mut link = self.operating()?;
            let msn = link.next_send_msn();
            link.send(&frames::send(msn, &OUR_SOURCE.encode()));
            if let Seen::Ulpdu(ulpdu) = link.next()
                && answer::read_request(&ulpdu).is_some_and(|request| is_ours(&request))
            {
                self.peer.kind = Kind::RpingServer;
            }
        }
        Ok(())
    }

    fn probe_initiator(&mut self) -> Play {
        let (link, request) = self.requested()?;
        let reply = Self::usual_reply(&request);
        let mut link = match self.replied(link, &request, &reply) {
            Err(Stop::Skip(why)) => return skip(why),
            Err(Stop::Fail(_)) => return Ok(()),
            Ok(link) => link,
        };
        let block = link.startup.as_ref().and_then(|startup| startup.block);
        (self.peer.enhanced, self.peer.ird) = (block.is_some(), block.map(|block| block.ird));
        if link.first.as_deref().is_some_and(|ulpdu| advert(ulpdu).is_some()) {
            self.peer.kind = Kind::RpingClient;
        }
        self.peer.probes = self.goes_on(&mut link).is_ok();
        Ok(())
    }

    /// Sends a message that the peer reacts to, as segments that end at `cuts`, with this opcode.
    pub(super) fn send_message(&self, link: &mut Link, opcode: Opcode, cuts: &[usize]) {
        let content = self.words();
        let msn = link.next_send_msn();
        let mut start = 0;
        for end in cuts.iter().copied().chain([content.len()]) {
            let mut segment = Untagged::new(opcode, msn, &content[start..end]);
            segment.header.mo = start as u32;
            if end < content.len() {
                segment.header.control.0 &= !0x40;
            }
            link.send(&segment.octets());
            start = end;
        }
    }

    /// The message.
    pub(super) fn words(&self) -> Vec<u8> {
        match self.peer.kind {
            Kind::Target => b"echo sixteen oct".to_vec(),
            Kind::RpingClient => vec![0; INFO_LEN],
            _ => OUR_SOURCE.encode().to_vec(),
        }
    }

    /// Fails unless the peer reacts to [`Self::send_message`].
    pub(super) fn reacts(&self, link: &mut Link) -> Play {
        let seen = link.next();
        let Seen::Ulpdu(ulpdu) = &seen else {
            return fail(format!("the message was answered with {}", seen.text()));
        };
        let right = match self.peer.kind {
            Kind::Target => answer::payload(ulpdu) == self.words(),
            Kind::RpingClient => advert(ulpdu).is_some(),
            _ => answer::read_request(ulpdu).is_some_and(|request| is_ours(&request)),
        };
        if right { Ok(()) } else { fail(format!("the message was answered with {}", seen.text())) }
    }

    /// The peer's memory. An rping client sends the address of its sink only after its source was read.
    pub(super) fn memory(&self, link: &mut Link) -> Play<Memory> {
        if self.peer.kind == Kind::Target {
            let grants = self.grants(link)?;
            return Ok(Memory { source: grants.both, sink: grants.both });
        }
        let Some(source) = link.first.as_deref().and_then(advert) else {
            return skip("the peer did not send the address of its memory");
        };
        self.read(link, Range::of(source), source.size)?;
        let msn = link.next_send_msn();
        link.send(&frames::send(msn, &[0; INFO_LEN]));
        let seen = link.next();
        let sink = if let Seen::Ulpdu(ulpdu) = &seen { advert(ulpdu) } else { None };
        match sink {
            Some(sink) => Ok(Memory { source: Range::of(source), sink: Range::of(sink) }),
            None => fail(format!("after a go-ahead the peer sent {}", seen.text())),
        }
    }

    /// The target's regions.
    pub(super) fn grants(&self, link: &Link) -> Play<Grants> {
        let data = link.startup.as_ref().map_or(&[][..], |startup| &startup.data);
        let all: Vec<_> = data
            .get(MAGIC.len()..)
            .unwrap_or_default()
            .chunks_exact(itapi::RemoteRange::ENCODED_LEN)
            .filter_map(itapi::RemoteRange::from_octets)
            .map(|range| Range { stag: range.context.0, to: range.addr, len: range.len })
            .collect();
        match all[..] {
            [both, read_only, write_only, foreign, own] => {
                Ok(Grants { both, read_only, write_only, foreign, own })
            }
            _ => skip("the target did not send the address of its memory"),
        }
    }

    /// Reads the peer's memory by one RDMA Read; checks that the response is whole and in order.
    pub(super) fn read(&self, link: &mut Link, range: Range, size: u32) -> Play<Vec<u8>> {
        let msn = link.next_read_msn();
        link.send(&frames::read_request(msn, frames::read_of(size, range.stag, range.to)));
        self.response(link, size)
    }

    /// The response to a Read of `size` octets.
    pub(super) fn response(&self, link: &mut Link, size: u32) -> Play<Vec<u8>> {
        let mut data = Vec::new();
        loop {
            let seen = link.next();
            let Seen::Ulpdu(ulpdu) = &seen else {
                return fail(format!("a Read of {size} octets was answered with {}", seen.text()));
            };
            match answer::kind(ulpdu) {
                Some(Opcode::ReadResponse) => {}
                Some(Opcode::Terminate) => {
                    return fail(format!("a Read of {size} octets got a {}", seen.text()));
                }
                _ => continue,
            }
            let Some((stag, to, payload)) = answer::tagged(ulpdu) else {
                return fail("a Read Response is not tagged");
            };
            let due = frames::SINK.1.wrapping_add(data.len() as u64);
            if (stag, to) != (frames::SINK.0, due) {
                link.record().broken(
                    &["RDMAP-05", "DDP-05", "DDP-08"],
                    format!("a Read Response names {stag:08x} {to:016x}, expected {due:016x}"),
                );
            }
            data.extend_from_slice(payload);
            let whole = data.len() >= size as usize;
            if answer::last(ulpdu) != whole || data.len() > size as usize {
                return fail(format!("L after {} of {size} octets of a Read Response", data.len()));
            }
            if whole {
                let ids = &["RDMAP-05", "DDP-02", "DDP-05", "DDP-08", "DDP-09", "DDP-11", "MPA-16"];
                link.record().kept(ids);
                return Ok(data);
            }
        }
    }

    /// Makes the peer read our memory.
    pub(super) fn made_to_read(&self, link: &mut Link) -> Play<ReadRequestRepr> {
        let msn = link.next_send_msn();
        let command = match self.peer.kind {
            Kind::Target => super::order::command(b'r', 1, OUR_SOURCE.into()),
            _ => OUR_SOURCE.encode().to_vec(),
        };
        link.send(&frames::send(msn, &command));
        let seen = link.next();
        let request =
            if let Seen::Ulpdu(ulpdu) = &seen { answer::read_request(ulpdu) } else { None };
        match request {
            Some(request) if is_ours(&request) => Ok(request),
            _ => fail(format!("commanded to read, the peer sent {}", seen.text())),
        }
    }
}

fn is_ours(request: &ReadRequestRepr) -> bool {
    (request.source_stag.0, request.source_to, request.size)
        == (OUR_SOURCE.key, OUR_SOURCE.address, OUR_SOURCE.size)
}

/// The address of an rping client's memory.
fn advert(ulpdu: &[u8]) -> Option<Info> {
    (answer::kind(ulpdu)? == Opcode::Send).then(|| Info::decode(answer::payload(ulpdu)))?
}
