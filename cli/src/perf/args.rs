//! The command line of `warpline perf` for clap. No state, no IO.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::case::{Case, LONGEST, Mode, Op, Server};
use crate::error::{CliError, CliResult, Exit};
use crate::values::{Switch, parse_seconds};

#[derive(Args, Debug)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    pub(crate) command: PerfCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum PerfCommand {
    /// Serve measurements for `perf run` until stopped
    Serve(ServeArgs),
    /// Measure against `perf serve` on another machine, interleaved with raw TCP
    Run(RunArgs),
    /// Measure against a second process on this machine, interleaved with raw TCP
    Local(LocalArgs),
    /// Measure the costs of RDMA besides data transfer: registration, objects, connections
    Costs(CostsArgs),
    /// Measure many connections, threads, idle connections, and fairness
    Scale(ScaleArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    // As an attribute: in a documentation comment the brackets would be a link.
    #[arg(
        default_value = "",
        hide_default_value = true,
        help = "Where clients find us: ADDR, ADDR:PORT, [IPV6]:PORT or :PORT; the port defaults to \
                18515, 0 picks a free one. Measurements use further free ports of the same address"
    )]
    pub(crate) address: String,
    /// Device, or provider, by name [default: the first usable one]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Be the second process of `perf local`
    #[arg(long, hide = true)]
    pub(crate) follow: bool,
    /// Pin to the nth processor
    #[arg(long, hide = true)]
    pub(crate) cpu: Option<usize>,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[arg(
        value_name = "HOST[:PORT]",
        help = "Where `perf serve` runs: HOST, HOST:PORT or [IPV6]:PORT; the port defaults to 18515"
    )]
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) what: WhatArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LocalArgs {
    #[command(flatten)]
    pub(crate) what: WhatArgs,
    /// Let the scheduler place the two processes [default: each has its own processor, if there are
    /// two and neither has several threads]
    #[arg(long)]
    pub(crate) unpinned: bool,
    /// Address of this machine that connections go to, for devices that are not on loopback
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) address: std::net::IpAddr,
    /// Compare a device of RoCE, polling, with SoftRDMA over TCP with CRC in turn: connections by
    /// path, for which both ends exchange addresses and numbers, and by the connection manager
    #[arg(long, conflicts_with_all = ["wait", "spin", "crc", "local", "hold", "targets", "plot"])]
    pub(crate) paths: bool,
}

/// Whether connections go through shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Local {
    /// They must.
    On,
    /// They must not.
    Off,
    /// Each case with and without.
    Both,
}

#[derive(Args, Debug)]
pub(crate) struct CostsArgs {
    /// Seconds of each figure
    #[arg(long, visible_aliases = ["duration", "slice"], default_value = "0.1", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,
    /// Device, or provider, by name [default: the first usable one]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Plot time against size
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ScaleArgs {
    /// Most connections that send at once
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) connections: u32,
    /// Idle connections
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(crate) idle: u32,
    /// MiB that are read during the round trips of small messages
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) read: u32,
    /// Octets of a large one of these reads: as much memory on both sides; 4095m is the longest
    #[arg(long, default_value = "128m", value_parser = parse_size, value_name = "SIZE")]
    pub(crate) read_size: u32,
    /// Seconds of each measurement, warm-up included
    #[arg(long, visible_aliases = ["duration", "slice"], default_value = "0.5", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,
    /// Rounds of all measurements; the result is the median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Device, or provider, by name [default: the first usable one]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Also report which of this project's own targets were met; JSON always does
    #[arg(long)]
    pub(crate) targets: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a side waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Wait {
    /// In a call that spins, then sleeps
    Call,
    /// For the dispatcher's descriptor, with epoll
    Fd,
    /// For the octets of an RDMA Write in memory, without a call into the library
    Memory,
}

/// What to measure. Without --op, --mode and --size: the matrix of the documentation.
#[derive(Args, Debug, Clone)]
pub(crate) struct WhatArgs {
    /// Operations; several with commas [default: write, read and send]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) op: Vec<Op>,
    /// Quantities to measure; several with commas [default: bw, lat and rate]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) mode: Vec<Mode>,
    /// Octets of a message, with an optional suffix k or m; several with commas [default: 4k, 64k
    /// and 1m for bw, 8 and 4k for lat, 8 for rate]
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    pub(crate) size: Vec<u32>,
    /// Outstanding messages on each connection [default: 64, of more than 16k 16, lat 1]
    #[arg(long)]
    pub(crate) depth: Option<u32>,
    /// Messages per post [default: 1]
    #[arg(long)]
    pub(crate) list: Option<u32>,
    /// Connections; several numbers with commas; with connect all but one are made before and stay
    /// [default: 1]
    #[arg(long, value_delimiter = ',')]
    pub(crate) conns: Vec<u32>,
    /// Threads of either side, each with its part of the connections and one event dispatcher
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u32,
    /// The server's endpoints share one receive queue
    #[arg(long)]
    pub(crate) srq: bool,
    /// CRC32c on every FPDU [default: both]
    #[arg(long, value_enum)]
    pub(crate) crc: Option<Switch>,
    /// Shared memory where both sides are on one host: whether connections must use it; `both`
    /// measures each case with and without [default: as the policy sets]
    #[arg(long, value_enum)]
    pub(crate) local: Option<Local>,
    /// Both sides poll [default: one after the other, poll and wait]
    #[arg(long, conflicts_with = "wait")]
    pub(crate) poll: bool,
    /// Both sides wait: in a call that spins as the policy sets, then sleeps; for the dispatcher's
    /// descriptor, in epoll; or for the octets that the peer writes into memory, which the
    /// library's own thread then receives [without a value: call]
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, default_missing_value = "call")]
    pub(crate) wait: Option<Wait>,
    /// Microseconds that a waiting side spins before it sleeps [default: as the policy sets]
    #[arg(long, value_name = "US", conflicts_with = "poll")]
    pub(crate) spin: Option<u32>,
    /// What the server's application does during the measurement [default: the same as the client's]
    #[arg(long, value_enum)]
    pub(crate) server: Option<Server>,
    /// Seconds of each measurement, warm-up included [default: 1; the matrix takes 80 in all]
    #[arg(long, visible_alias = "duration", value_parser = parse_seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Rounds of all measurements; the result is the median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Do not measure raw TCP
    #[arg(long)]
    pub(crate) no_raw: bool,
    /// Print what each connection of the last measurement carried, and keep these connections until
    /// standard input ends: to compare with `warpline stat`; for bw and rate
    #[arg(long, requires = "no_raw")]
    pub(crate) hold: bool,
    /// Device, or provider, by name [default: the first usable one]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Also report which of this project's own targets were met; JSON always does
    #[arg(long)]
    pub(crate) targets: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Plot bandwidth, latency and rate against size, with raw TCP
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

impl WhatArgs {
    /// True if the command line does not choose cases.
    pub(super) fn is_matrix(&self) -> bool {
        self.op.is_empty()
            && self.mode.is_empty()
            && self.size.is_empty()
            && self.conns.is_empty()
            && self.depth.is_none()
            && self.list.is_none()
            && self.spin.is_none()
            && self.threads == 1
            && !self.srq
            && self.server.is_none()
    }

    /// The cases that the command line names.
    pub(super) fn cases(&self) -> CliResult<Vec<Case>> {
        let some = |given: &[_], usual: &[_]| if given.is_empty() { usual } else { given }.to_vec();
        let mut cases = Vec::new();
        let modes = some(&self.mode, &[Mode::Bw, Mode::Lat, Mode::Rate]);
        let idle: Option<Vec<_>> = modes.iter().map(|mode| self.idle_option(*mode)).collect();
        if let Some(why) = idle.and_then(|all| all.into_iter().next()) {
            return Err(CliError::new(Exit::Usage, why).at("perf"));
        }
        for mode in modes {
            let sizes = if self.size.is_empty() { usual_sizes(mode) } else { &self.size };
            for (size, conns) in
                pairs(sizes, if self.conns.is_empty() { &[1] } else { &self.conns })
            {
                for how in self.waits() {
                    let ops = match mode {
                        Mode::Connect => vec![Op::Write],
                        _ if self.op.is_empty() => vec![Op::Write, Op::Read, Op::Send],
                        _ => self.op.clone(),
                    };
                    let kinds = pairs(&ops, self.crcs());
                    for ((op, crc), local) in pairs(&kinds, self.locals()) {
                        let case = self.with(Case {
                            conns,
                            crc: Some(crc),
                            local,
                            ..Case::new(op, mode, size).waiting(how)
                        });
                        case.check().map_err(|why| CliError::new(Exit::Usage, why).at("perf"))?;
                        if !cases.contains(&case) {
                            cases.push(case);
                        }
                    }
                }
            }
        }
        Ok(cases)
    }

    /// Why an option would have no effect on the measurements of a mode.
    fn idle_option(&self, mode: Mode) -> Option<String> {
        let not = |name: &str, why: &str| Some(format!("{name}: {why}; leave it out"));
        let other_size = self.size.iter().any(|size| *size != 8);
        let connect =
            "connect makes one connection after the other, each with one RDMA Write of 8 octets";
        match mode {
            Mode::Connect if self.op.iter().any(|op| *op != Op::Write) => not("--op", connect),
            Mode::Connect if other_size => not("--size", connect),
            Mode::Connect if self.threads != 1 => not("--threads", connect),
            Mode::Connect if self.srq => not("--srq", connect),
            Mode::Connect if self.is_given(self.depth) => not("--depth", connect),
            Mode::Connect if self.is_given(self.list) => not("--list", connect),
            Mode::Lat if self.is_given(self.depth) => {
                not("--depth", "lat has one message under way")
            }
            Mode::Lat if self.is_given(self.list) => {
                not("--list", "lat posts one message at a time")
            }
            _ if other_size && self.op == [Op::FetchAdd] => {
                not("--size", "fetch-add is for 8 octets")
            }
            _ if self.spin.is_some() && matches!(self.wait, Some(Wait::Fd | Wait::Memory)) => {
                not("--spin", "only a wait in a call spins")
            }
            _ => None,
        }
    }

    /// Whether it differs from what it is for one message at a time.
    fn is_given(&self, count: Option<u32>) -> bool {
        count.is_some_and(|count| count > 1)
    }

    /// Options of all cases, as far as they have an effect on the case.
    fn with(&self, case: Case) -> Case {
        let many = matches!(case.mode, Mode::Bw | Mode::Rate);
        let connects = case.mode == Mode::Connect;
        Case {
            depth: self.depth.filter(|depth| many || *depth == 0).unwrap_or(case.depth),
            list: self.list.filter(|list| many || *list == 0).unwrap_or(case.list),
            threads: if connects { 1 } else { self.threads },
            spin_us: self.spin,
            srq: self.srq && !connects,
            server: self.server,
            ..case
        }
    }

    pub(super) fn locals(&self) -> &'static [Option<bool>] {
        match self.local {
            None => &[None],
            Some(Local::On) => &[Some(true)],
            Some(Local::Off) => &[Some(false)],
            Some(Local::Both) => &[Some(true), Some(false)],
        }
    }

    pub(super) fn crcs(&self) -> &'static [bool] {
        match self.crc {
            None => &[true, false],
            Some(Switch::On) => &[true],
            Some(Switch::Off) => &[false],
        }
    }

    /// How both sides wait; `None`: they poll.
    pub(super) fn waits(&self) -> Vec<Option<Wait>> {
        match (self.poll, self.wait) {
            (true, _) => vec![None],
            (false, Some(how)) => vec![Some(how)],
            (false, None) if self.spin.is_some() => vec![Some(Wait::Call)],
            (false, None) => vec![None, Some(Wait::Call)],
        }
    }
}

fn pairs<A: Copy, B: Copy>(first: &[A], second: &[B]) -> Vec<(A, B)> {
    first.iter().flat_map(|&a| second.iter().map(move |&b| (a, b))).collect()
}

pub(super) fn usual_sizes(mode: Mode) -> &'static [u32] {
    match mode {
        Mode::Bw => &[4 << 10, 64 << 10, 1 << 20],
        Mode::Lat => &[8, 4 << 10],
        Mode::Rate | Mode::Connect => &[8],
    }
}

/// `64k`, `1m`, `4096`: 1 octet to 2^32 - 1, the longest that a message can be.
fn parse_size(text: &str) -> Result<u32, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 1u64 << 10),
        Some(b'm') => (&lower[..lower.len() - 1], 1 << 20),
        Some(b'g') => (&lower[..lower.len() - 1], 1 << 30),
        _ => (&lower[..], 1),
    };
    let number: u64 =
        digits.parse().map_err(|_| "not a number with suffix k, m or g".to_owned())?;
    match number.checked_mul(factor) {
        Some(octets) if (1..=u64::from(LONGEST)).contains(&octets) => Ok(octets as u32),
        _ => Err("a message is 1 octet to 4294967295, so at most 4095m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        what: WhatArgs,
    }

    fn cases(line: &str) -> CliResult<Vec<Case>> {
        let line = Line::try_parse_from(format!("perf {line}").split_whitespace()).unwrap();
        line.what.cases()
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64k"), Ok(65536));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        assert_eq!(parse_size("4294967295"), Ok(u32::MAX));
        for bad in ["0", "", "k", "4g", "-1", "99999999999999999999", "1kk"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_combination_once() {
        assert_eq!(cases("--op write,read --mode bw --size 4k,64k --poll").unwrap().len(), 8);
        assert_eq!(cases("--op fetch-add --mode lat --poll --crc on").unwrap().len(), 1);
        assert_eq!(cases("--mode connect --poll --crc on").unwrap().len(), 1);
        assert_eq!(cases("--mode connect --poll --crc on --local both").unwrap().len(), 2);
        let one = cases("--op send --mode rate --size 8 --list 4 --depth 32 --crc off --spin 0");
        let one = one.unwrap();
        assert_eq!(
            (one[0].list, one[0].depth, one[0].wait, one[0].spin_us),
            (4, 32, true, Some(0))
        );
        assert_eq!(one.len(), 1);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["--list 65 --mode rate", "--depth 0", "--conns 0", "--threads 3 --conns 2"] {
            assert_eq!(cases(bad).unwrap_err().exit(), Exit::Usage, "{bad}");
        }
    }

    #[test]
    fn an_option_without_effect_is_refused() {
        for (option, line) in [
            ("--op", "--mode connect --op send"),
            ("--size", "--mode connect --size 64k"),
            ("--threads", "--mode connect --threads 2 --conns 2"),
            ("--srq", "--mode connect --srq"),
            ("--depth", "--mode connect --depth 4"),
            ("--list", "--mode connect --depth 1 --list 2"),
            ("--depth", "--mode lat --depth 4"),
            ("--list", "--mode lat --list 4"),
            ("--size", "--op fetch-add --size 64k --mode bw"),
            ("--depth", "--mode lat,connect --depth 4"),
            ("--spin", "--mode lat --wait fd --spin 5"),
            ("--spin", "--mode lat --op write --wait memory --spin 5"),
        ] {
            let why = cases(line).unwrap_err();
            assert_eq!(why.exit(), Exit::Usage, "{line}");
            assert!(why.to_string().contains(option), "{line}: {why}");
        }
    }

    #[test]
    fn an_option_has_its_effect_where_it_can() {
        let both =
            cases("--mode bw,connect --op send --size 64k --depth 4 --crc on --poll").unwrap();
        let shapes: Vec<_> = both.iter().map(|case| (case.op, case.size, case.depth)).collect();
        assert_eq!(shapes, [(Op::Send, 64 << 10, 4), (Op::Write, 8, 1)]);
    }

    #[test]
    fn the_matrix_has_what_its_options_name() {
        let matrix = |line: &str| {
            let line = Line::try_parse_from(format!("perf {line}").split_whitespace()).unwrap();
            assert!(line.what.is_matrix());
            super::super::matrix::cases(&line.what)
        };
        let all = matrix("");
        for (line, due) in [("--local on", Some(true)), ("--local off", Some(false))] {
            let cases = matrix(line);
            assert_eq!(cases.len(), all.len());
            assert!(cases.iter().all(|case| case.local == due), "{line}");
        }
        assert_eq!(matrix("--local both").len(), 2 * all.len());
        assert!(matrix("--wait fd").iter().all(|case| case.fd && !case.memory));
        assert!(matrix("--wait memory").iter().all(|case| case.memory && !case.wait));
        assert!(matrix("--wait call").iter().all(|case| case.wait && !case.fd));
        assert!(matrix("--poll").iter().all(|case| !case.wait && !case.memory));
        assert!(matrix("--crc off").iter().all(|case| case.crc == Some(false)));
    }
}
