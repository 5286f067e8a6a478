//! What can be measured: a [`Case`] of ours, a [`Reference`] of raw TCP to compare it with. Both
//! processes know a measurement by these values. No state.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::args::Wait;

/// Octets of the memory that a side sends from or receives into repeatedly, unless one message is longer.
pub(super) const WORKING_SET: usize = 1 << 20;
/// Number of receives for small messages, and bound of their octets.
const WINDOW: u32 = 512;
const WINDOW_OCTETS: u32 = 1 << 20;
/// Longest message.
pub(super) const LONGEST: u32 = u32::MAX;
/// Octets that are copied while posting.
pub(super) const INLINE: u32 = 64;

/// The operation that transfers a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    /// Send
    Send,
    /// RDMA Write
    Write,
    /// RDMA Read
    Read,
    /// RDMA Write with Immediate Data after it
    WriteImm,
    /// Fetch and add on 8 octets
    FetchAdd,
}

impl Op {
    /// Whether the messages take receives of the peer.
    pub(super) fn takes_receives(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Whether the messages come from the peer, as responses to requests.
    pub(super) fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::FetchAdd)
    }
}

/// The quantity that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Octets per second
    Bw,
    /// Half a round trip; a whole one for reads and fetch-add
    Lat,
    /// Messages per second
    Rate,
    /// Connections per second: connect, one RDMA Write of 8 octets, close
    Connect,
}

impl Mode {
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Bw => "GB/s",
            Self::Lat => "us",
            Self::Rate => "Mmsg/s",
            Self::Connect => "conn/s",
        }
    }
}

/// What the server's application does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Server {
    /// Poll
    Poll,
    /// Wait
    Wait,
    /// Compute 10 ms at a time, and poll its dispatcher once in between
    Compute,
}

impl Server {
    /// How long the application computes at a time.
    pub(super) const SLICE: Duration = Duration::from_millis(10);
}

/// A measurement over IT-API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) op: Op,
    pub(super) mode: Mode,
    /// Octets of a message.
    pub(super) size: u32,
    /// Outstanding messages on a connection.
    pub(super) depth: u32,
    /// Connections.
    pub(super) conns: u32,
    /// Threads at either side; each has its part of the connections and one dispatcher.
    pub(super) threads: u32,
    /// Messages per post.
    pub(super) list: u32,
    /// MPA's CRC on or off; `None`: the device has no MPA.
    pub(super) crc: Option<bool>,
    /// Both sides wait; else both poll.
    pub(super) wait: bool,
    /// They wait for the dispatcher's descriptor with epoll, as event loops do. Absent in earlier builds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) fd: bool,
    /// They wait for the octets of an RDMA Write in memory, without a call into the library. Absent in earlier builds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) memory: bool,
    /// How long a waiting side spins before it sleeps; `None`: the policy's.
    pub(super) spin_us: Option<u32>,
    /// Whether connections on one host must use shared memory or must not; `None`: as the policy sets. Absent
    /// in earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) local: Option<bool>,
    /// Connections are made by path, not by a connection manager. Absent in earlier builds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) by_path: bool,
    /// The server's endpoints share one receive queue.
    pub(super) srq: bool,
    /// What the server's application does, if it differs from the client's.
    pub(super) server: Option<Server>,
}

impl Case {
    /// A case with default values for everything else.
    pub(super) fn new(op: Op, mode: Mode, size: u32) -> Self {
        let size = if op == Op::FetchAdd || mode == Mode::Connect { 8 } else { size };
        Self {
            op,
            mode,
            size,
            depth: default_depth(mode, size),
            conns: 1,
            threads: 1,
            list: 1,
            crc: Some(true),
            wait: false,
            fd: false,
            memory: false,
            spin_us: None,
            local: None,
            by_path: false,
            srq: false,
            server: None,
        }
    }

    /// The same where both sides wait so; `None`: they poll.
    pub(super) fn waiting(self, how: Option<Wait>) -> Self {
        Self {
            wait: matches!(how, Some(Wait::Call | Wait::Fd)),
            fd: how == Some(Wait::Fd),
            memory: how == Some(Wait::Memory),
            ..self
        }
    }

    /// Refuses invalid values. The server calls it, too: it does not trust the client.
    pub(super) fn check(&self) -> Result<(), String> {
        let within = |name, value: u32, most: u32| match value {
            0 => Err(format!("{name} is at least 1")),
            value if value > most => Err(format!("{name} is at most {most}, not {value}")),
            _ => Ok(()),
        };
        within("a message's size", self.size, LONGEST)?;
        within("the depth", self.depth, 1 << 14)?;
        within("the number of connections", self.conns, 100_000)?;
        within("the number of threads", self.threads, 256)?;
        within("the length of a list", self.list, self.depth)
            .map_err(|why| format!("{why}: a list is not longer than the depth"))?;
        if self.threads > self.conns {
            return Err(format!(
                "{} threads need as many connections: a connection belongs to one thread",
                self.threads
            ));
        }
        if self.server.is_some() && !(self.op.is_answered() && self.mode == Mode::Lat) {
            return Err(
                "what the server does can be said for the latency of reads and fetch-add".into()
            );
        }
        if self.memory && !(self.op == Op::Write && self.mode == Mode::Lat && self.conns == 1) {
            return Err(
                "only the latency of RDMA Writes over one connection can wait for memory; \
                        use --op write --mode lat --conns 1"
                    .into(),
            );
        }
        if self.by_path && (self.mode == Mode::Connect || self.wait || self.memory) {
            return Err("connections by path are for bw, lat and rate of ends that poll".into());
        }
        if self.op == Op::FetchAdd && self.size != 8 {
            return Err("fetch-add is for 8 octets".into());
        }
        Ok(())
    }

    /// Receives that the server keeps posted for each connection's messages.
    pub(super) fn window(&self) -> u32 {
        if !self.op.takes_receives() {
            return 0;
        }
        // As many as perftest posts, unless they would exceed the cache.
        let small = (WINDOW_OCTETS / self.size.max(1)).min(WINDOW);
        (4 * self.depth).max(small).max(8)
    }

    /// Number of receives that one credit of the server stands for.
    pub(super) fn credit(&self) -> u32 {
        (self.window() / 2).max(1)
    }

    /// One message in this many is signalled.
    pub(super) fn signal_every(&self) -> u32 {
        (self.depth / 4).clamp(1, 16)
    }

    /// Octets of a side's region: the working set; for round trips two messages.
    pub(super) fn region_len(&self) -> usize {
        (2 * self.size as usize).max(WORKING_SET)
    }

    /// The references for this case: the plain TCP program of the same shape, and the best one.
    pub(super) fn references(&self) -> [Reference; 2] {
        let (size, wait, threads) = (self.size, self.wait, self.threads);
        let same = match self.mode {
            Mode::Connect => Reference::Connect,
            Mode::Lat if self.op.is_answered() => Reference::Fetch { size, wait },
            Mode::Lat if self.fd => Reference::Handed { size },
            Mode::Lat => Reference::Echo { size, wait },
            Mode::Bw | Mode::Rate if self.op.is_answered() => {
                Reference::Requests { size, depth: self.depth, wait, threads }
            }
            Mode::Bw | Mode::Rate if self.conns > threads => {
                Reference::Many { size, wait, conns: self.conns }
            }
            Mode::Bw | Mode::Rate => Reference::Messages { size, wait, threads },
        };
        let best = match self.mode {
            Mode::Bw => Reference::Frames,
            Mode::Rate if size <= Reference::SMALL => Reference::Small { size },
            Mode::Rate => Reference::Frames,
            Mode::Lat if self.fd && !self.op.is_answered() => Reference::Evented { size },
            Mode::Lat | Mode::Connect => same,
        };
        [same, best]
    }
}

impl Case {
    /// How both sides wait for completions.
    pub(super) fn attends(&self) -> &'static str {
        match (self.wait, self.fd) {
            (false, _) if self.memory => "wait memory",
            (false, _) => "poll",
            (true, false) => "wait",
            (true, true) => "wait fd",
        }
    }

    /// The text without the size: cases that differ only in size are one line of a chart.
    pub(super) fn series(&self) -> String {
        let without = Self { depth: default_depth(self.mode, self.size), ..*self };
        without.to_string().replace(&format!(", {}", octets(self.size)), "")
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "Send",
            Self::Write => "RDMA Write",
            Self::Read => "RDMA Read",
            Self::WriteImm => "Write with Immediate",
            Self::FetchAdd => "Fetch and add",
        })
    }
}

/// As text, without default values.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.op, self.shape())
    }
}

impl Case {
    /// As text, without the operation and default values.
    pub(super) fn shape(&self) -> String {
        let mut parts = vec![octets(self.size)];
        parts.extend(self.crc.map(|crc| format!("CRC {}", if crc { "on" } else { "off" })));
        parts.extend(self.local.map(|on| format!("local {}", if on { "on" } else { "off" })));
        parts.push(self.attends().into());
        parts.extend(self.spin_us.map(|spin| format!("spin {spin} us")));
        if self.depth != default_depth(self.mode, self.size) {
            parts.push(format!("depth {}", self.depth));
        }
        let counts = [(self.list, "lists of"), (self.conns, "conns"), (self.threads, "threads")];
        let unusual = counts.into_iter().filter(|(count, _)| *count != 1);
        parts.extend(unusual.map(|(count, name)| format!("{name} {count}")));
        parts.extend(self.by_path.then(|| "by path".into()));
        parts.extend(self.srq.then(|| "SRQ".into()));
        parts.extend(self.server.map(|server| {
            let does = match server {
                Server::Poll => "polls",
                Server::Wait => "waits",
                Server::Compute => "computes",
            };
            format!("server {does}")
        }));
        parts.join(", ")
    }
}

/// `8 B`, `64 KiB`.
pub(super) fn octets(octets: u32) -> String {
    match octets {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// The default depth: small messages need many outstanding ones, large ones few.
pub(super) fn default_depth(mode: Mode, size: u32) -> u32 {
    match mode {
        Mode::Lat | Mode::Connect => 1,
        Mode::Bw | Mode::Rate if size > 16 << 10 => 16,
        Mode::Bw | Mode::Rate => 64,
    }
}

/// A measurement of raw TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Reference {
    /// One write per message, one read after the other, on one connection per thread.
    Messages { size: u32, wait: bool, threads: u32 },
    /// The same over many connections in turn, by one thread.
    Many { size: u32, wait: bool, conns: u32 },
    /// Outstanding requests of 16 octets, each with a response of one write.
    Requests { size: u32, depth: u32, wait: bool, threads: u32 },
    /// The best stream: frames of 65,000 octets, 16 per write, several per read.
    Frames,
    /// The best stream of small messages: framed, copied, hundreds per write and read.
    Small { size: u32 },
    /// Round trips of one size; the result is half a round trip.
    Echo { size: u32, wait: bool },
    /// The same, by programs that sleep in epoll.
    Evented { size: u32 },
    /// The same with two threads: one sleeps in epoll and reads, and wakes the other, which sleeps in epoll for
    /// an eventfd. Each message wakes both.
    Handed { size: u32 },
    /// A request of 8 octets there, a message back; the result is the whole round trip.
    Fetch { size: u32, wait: bool },
    /// Connect, and 64 octets there and back twice.
    Connect,
}

impl Reference {
    /// Longest message of [`Reference::Small`].
    pub(super) const SMALL: u32 = 16 << 10;

    /// As [`Case::check`].
    pub(super) fn check(&self) -> Result<(), String> {
        let (size, depth, threads) = match *self {
            Self::Messages { size, threads, .. } => (size, 1, threads),
            Self::Many { size, .. } => (size, 1, 1),
            Self::Requests { size, depth, threads, .. } => (size, depth, threads),
            Self::Echo { size, .. } | Self::Fetch { size, .. } => (size, 1, 1),
            Self::Evented { size } | Self::Handed { size } => (size, 1, 1),
            Self::Small { size } if size > Self::SMALL => {
                return Err(format!("{size} octets are not a small message"));
            }
            Self::Small { size } => (size, 1, 1),
            Self::Frames | Self::Connect => (1, 1, 1),
        };
        let mut case = Case::new(Op::Write, Mode::Bw, size);
        (case.depth, case.threads, case.conns) = (depth, threads, threads);
        if let Self::Many { conns, .. } = *self {
            case.conns = conns;
        }
        case.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_case_is_valid_and_has_its_references() {
        for op in [Op::Send, Op::Write, Op::Read, Op::WriteImm, Op::FetchAdd] {
            for mode in [Mode::Bw, Mode::Lat, Mode::Rate, Mode::Connect] {
                for size in [1, 8, 4096, LONGEST] {
                    let case = Case::new(op, mode, size);
                    assert_eq!(case.check(), Ok(()));
                    for reference in case.references() {
                        assert_eq!(reference.check(), Ok(()), "{case:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let good = Case::new(Op::Write, Mode::Bw, 4096);
        for bad in [
            Case { size: 0, ..good },
            Case { depth: 0, ..good },
            Case { list: 65, ..good },
            Case { threads: 2, ..good },
            Case { conns: 1_000_000, ..good },
            Case { op: Op::FetchAdd, ..good },
            Case { by_path: true, wait: true, ..good },
            Case { server: Some(Server::Compute), ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(Reference::Small { size: 1 << 20 }.check().is_err());
    }
}
