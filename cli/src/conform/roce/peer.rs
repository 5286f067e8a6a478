//! Detects what kind of program the RoCE peer is, and what cases can use: messages that it reacts to, memory that it
//! grants, Reads that it posts. Main thread only.

use itapi::{RemoteRange, RmrContext};

use super::bench::{Bench, Way};
use super::incoming::Incoming;
use super::link::Link;
use crate::conform::order::{self, MAGIC, target_request};
pub(super) use crate::conform::peer::Kind;
use crate::conform::peer::OUR_SOURCE;
use crate::conform::verdict::{Needs, Play, Role, Stop, fail, skip};
use crate::ping::wire::{INFO_LEN, Info};

/// Receives that the target posts.
const RECEIVES: u8 = 16;

/// The findings of the first probe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    pub(super) kind: Kind,
    /// It acknowledges requests.
    pub(super) probes: bool,
    /// It takes Writes without octets.
    pub(super) writes: bool,
    /// Memory that the caller named.
    pub(super) memory: Option<Range>,
}

/// Memory of the peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) key: u32,
    pub(super) to: u64,
    pub(super) len: u64,
}

impl Range {
    const fn of(info: Info) -> Self {
        Self { key: info.key, to: info.address, len: info.size as u64 }
    }

    /// The part from `at` on.
    pub(super) const fn from(self, at: u64) -> Self {
        Self { to: self.to.wrapping_add(at), len: self.len.saturating_sub(at), ..self }
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

impl Peer {
    pub(super) const fn offers(&self, needs: Needs) -> bool {
        let target = matches!(self.kind, Kind::Target);
        match needs {
            Needs::Nothing | Needs::Manager => true,
            Needs::Probe => self.probes,
            Needs::Message => !matches!(self.kind, Kind::Unknown),
            Needs::Memory => {
                target || matches!(self.kind, Kind::RpingClient) || self.memory.is_some()
            }
            Needs::Reader => target || matches!(self.kind, Kind::RpingServer),
            Needs::Target => target,
        }
    }

    /// The private data of a request.
    pub(super) fn request(&self) -> Vec<u8> {
        target_request(RECEIVES, false)
    }
}

/// Memory of the tester's that the peer is told.
pub(super) const fn ours(len: u64) -> RemoteRange {
    RemoteRange { context: RmrContext(OUR_SOURCE.key), addr: OUR_SOURCE.address, len }
}

impl Bench {
    /// Probes the peer: a few connections.
    pub(super) fn probe(&mut self) -> Play {
        let mut link = match self.operating() {
            Ok(link) => link,
            Err(Stop::Fail(why) | Stop::Skip(why)) => return fail(why),
        };
        if self.way == Way::Pingpong {
            self.peer.kind = Kind::Pingpong;
        } else if self.role == Role::Responder && link.terms.private.starts_with(MAGIC) {
            self.peer.kind = Kind::Target;
        }
        if self.role == Role::Initiator {
            let wait = self.patience.min(std::time::Duration::from_secs(2));
            if let Some(Incoming::Send { data, .. }) = link.message_within(wait)?
                && Info::decode(&data).is_some()
            {
                self.peer.kind = Kind::RpingClient;
            }
        }
        link.terms.writes = self.way == Way::Manager;
        self.peer.writes = link.terms.writes && link.goes_on().is_ok();
        self.peer.probes = self.peer.writes;
        if !self.peer.probes {
            drop(link);
            link = self.operating()?;
            self.peer.probes = link.goes_on().is_ok();
        }
        drop(link);
        // It takes both: that it does not is a fault for the cases to find.
        if self.peer.kind == Kind::Target {
            (self.peer.probes, self.peer.writes) = (true, true);
        }
        if self.peer.kind == Kind::Unknown && self.role == Role::Responder {
            let mut link = self.operating()?;
            link.send_message(&OUR_SOURCE.encode());
            if let Ok(Some(Incoming::Read { address, key, .. })) =
                link.message_within(std::time::Duration::from_secs(1))
                && (address, key) == (OUR_SOURCE.address, OUR_SOURCE.key)
            {
                self.peer.kind = Kind::RpingServer;
            }
        }
        Ok(())
    }

    /// A connection in operation, and past the peer's first message if it sends one.
    pub(super) fn begun(&mut self) -> Play<Link> {
        let mut link = self.operating()?;
        if self.peer.kind == Kind::RpingClient {
            match link.message()? {
                Incoming::Send { data, .. } => link.terms.private = data,
                other => return fail(format!("the peer began with {}", other.text())),
            }
        }
        Ok(link)
    }

    /// A message that the peer reacts to.
    pub(super) fn words(&self) -> Vec<u8> {
        match self.peer.kind {
            Kind::Target => b"echo sixteen oct".to_vec(),
            Kind::RpingClient => vec![0; INFO_LEN],
            Kind::Pingpong => vec![0x70; 64],
            _ => OUR_SOURCE.encode().to_vec(),
        }
    }

    /// Fails unless the peer reacts to [`Self::words`].
    pub(super) fn reacts(&self, link: &mut Link) -> Play {
        let seen = match link.message_within(link.patience)? {
            Some(seen) => seen,
            None => return fail("the message had no effect at the peer"),
        };
        let right = match (&seen, self.peer.kind) {
            (Incoming::Send { data, .. }, Kind::Target) => *data == self.words(),
            (Incoming::Send { data, .. }, Kind::RpingClient) => Info::decode(data).is_some(),
            (Incoming::Send { .. }, Kind::Pingpong) => true,
            (Incoming::Read { address, key, .. }, Kind::RpingServer) => {
                (*address, *key) == (OUR_SOURCE.address, OUR_SOURCE.key)
            }
            _ => false,
        };
        if right { Ok(()) } else { fail(format!("the message was answered with {}", seen.text())) }
    }

    /// Fails if the peer reacts within a short time.
    pub(super) fn does_not_react(&self, link: &mut Link, what: &str) -> Play {
        match link.message_within(super::link::QUIET)? {
            None => Ok(()),
            Some(seen) => fail(format!("{what} was executed: {}", seen.text())),
        }
    }

    /// The peer's memory. An rping client sends the address of its sink only after a go-ahead.
    pub(super) fn memory(&self, link: &mut Link) -> Play<Memory> {
        if let Some(range) = self.peer.memory {
            return Ok(Memory { source: range, sink: range });
        }
        if self.peer.kind == Kind::Target {
            let grants = self.grants(link)?;
            return Ok(Memory { source: grants.both, sink: grants.both });
        }
        let Some(source) = Info::decode(&link.terms.private) else {
            return skip("the peer did not send the address of its memory");
        };
        link.read(Range::of(source), source.size)?;
        link.is_plain = false;
        link.send_message(&[0; INFO_LEN]);
        match link.message()? {
            Incoming::Send { data, .. } => match Info::decode(&data) {
                Some(sink) => Ok(Memory { source: Range::of(source), sink: Range::of(sink) }),
                None => fail("after a go-ahead the peer sent another message than its address"),
            },
            other => fail(format!("after a go-ahead the peer sent {}", other.text())),
        }
    }

    /// The target's regions.
    pub(super) fn grants(&self, link: &Link) -> Play<Grants> {
        let all: Vec<_> = link
            .terms
            .private
            .get(MAGIC.len()..)
            .unwrap_or_default()
            .chunks_exact(RemoteRange::ENCODED_LEN)
            .take(5)
            .filter_map(RemoteRange::from_octets)
            .map(|range| Range { key: range.context.0, to: range.addr, len: range.len })
            .collect();
        match all[..] {
            [both, read_only, write_only, foreign, own] => {
                Ok(Grants { both, read_only, write_only, foreign, own })
            }
            _ => skip("the target did not send the address of its memory"),
        }
    }

    /// Commands the target.
    pub(super) fn command(&self, link: &mut Link, letter: u8, number: u8, range: RemoteRange) {
        link.send_message(&order::command(letter, number, range));
    }

    /// Makes the peer read our memory of `len` octets; an rping server reads what it reads.
    pub(super) fn made_to_read(&self, link: &mut Link, len: u64) -> Play {
        match self.peer.kind {
            Kind::Target => self.command(link, b'r', 1, ours(len)),
            _ => {
                let info = Info { size: len as u32, ..OUR_SOURCE };
                link.send_message(&info.encode());
            }
        }
        Ok(())
    }
}
