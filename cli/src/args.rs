//! The command line, as clap reads it. No state, no IO.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit status:
  0   everything asked for was done and verified
  1   it was tried and failed: octets lost or different, or the peer was lost
  2   the command line makes no sense
  3   a file, capture or hex string cannot be read or is malformed
  4   no usable device, or no connection
  70  a bug in warpline

Environment:
  RUST_LOG         what to log to standard error, e.g. `debug` or `ual=trace,warn`
  WARPLINE_CONFIG  configuration file (TOML)
  WARPLINE_PROVIDER_PATH
                   absolute paths of provider libraries (*.so), and of directories of manifests";

/// See, try and explain RDMA over standard iWARP, with no RDMA hardware and no root.
#[derive(Parser, Debug)]
#[command(name = "warpline", version, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Move a file to a second process and back by Send, RDMA Write and RDMA Read, and verify it
    Demo(DemoArgs),
    /// List providers, devices, ports, addresses, limits and capabilities
    Devices(DevicesArgs),
    /// Measure round trips to a peer that speaks rdma-core's rping protocol, or be that peer
    Ping(PingArgs),
    /// Explain MPA, DDP and RDMAP octets field by field
    Decode(DecodeArgs),
    /// Test any iWARP peer: play what the standards ask for, report each requirement
    Conform(crate::conform::ConformArgs),
    /// Measure bandwidth, latency and message rate against raw TCP in the same run
    Perf(crate::perf::PerfArgs),
    /// Check a verbs provider that comes as a library
    Provider(ProviderArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The second process of `demo`
    #[command(hide = true)]
    DemoPeer(DemoPeerArgs),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ProgressMode {
    /// A moving line if standard error is a terminal
    Auto,
    /// One line per chunk on standard error, for scripts
    Lines,
    /// Nothing
    Never,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// File to move [default: this program's own executable]
    pub(crate) file: Option<PathBuf>,
    /// CRC32c on every FPDU (RFC 5044)
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) crc: Switch,
    /// Octets per chunk, with an optional suffix k or m
    #[arg(long, default_value = "1m", value_parser = parse_chunk)]
    pub(crate) chunk: u32,
    /// How to show progress
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) progress: ProgressMode,
}

#[derive(Args, Debug)]
pub(crate) struct DemoPeerArgs {
    /// CRC policy of the other side
    #[arg(long, value_enum)]
    pub(crate) crc: Switch,
    /// Process id of the other side
    #[arg(long)]
    pub(crate) parent: u32,
}

#[derive(Args, Debug)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds that a provider may take to be loaded, to list its devices, or to open or close one
    #[arg(long, default_value = "20", value_parser = parse_bound)]
    pub(crate) limit: Duration,
    /// The second process: only the provider at this place of the order
    #[arg(long, hide = true)]
    pub(crate) only: Option<usize>,
    /// The second process: open this device of it
    #[arg(long, hide = true, requires = "only")]
    pub(crate) open: Option<String>,
}

/// Port that rping uses.
pub(crate) const PING_PORT: u16 = 7174;

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("side").required(true).args(["host", "serve"])))]
pub(crate) struct PingArgs {
    // As an attribute: in a documentation comment the brackets would be a link.
    #[arg(
        value_name = "HOST[:PORT]",
        help = "Peer to ping: HOST, HOST:PORT or [IPV6]:PORT; the port defaults to 7174"
    )]
    pub(crate) host: Option<String>,
    /// Serve pings until stopped; port 0 picks a free port and prints it
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "")]
    pub(crate) serve: Option<String>,
    /// Stop after so many round trips; 0: only when interrupted
    #[arg(short, long, default_value_t = 5, conflicts_with = "serve")]
    pub(crate) count: u64,
    /// Octets per round trip
    #[arg(short, long, default_value_t = 64, conflicts_with = "serve",
          value_parser = clap::value_parser!(u32).range(26..=65535))]
    pub(crate) size: u32,
    /// Compare what came back with what was sent
    #[arg(long, conflicts_with = "serve")]
    pub(crate) verify: bool,
    /// Seconds from one round trip to the next
    #[arg(short, long, default_value = "1", value_parser = parse_seconds, conflicts_with = "serve")]
    pub(crate) interval: Duration,
    /// Seconds to wait for an answer
    #[arg(short = 'W', long, default_value = "5", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
    /// Print only the summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Serve one connection, then stop
    #[arg(long, requires = "serve")]
    pub(crate) once: bool,
    /// Use IPv6 only
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,
    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// CRC32c on every FPDU: asked for, or not asked for (a peer may still demand it)
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) crc: Switch,
    /// MPA revision to offer
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2),
          conflicts_with = "serve")]
    pub(crate) mpa: u8,
    /// Ask for MPA's peer-to-peer model: either side may send first (needs MPA revision 2)
    #[arg(long, conflicts_with = "serve")]
    pub(crate) peer_to_peer: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ProviderArgs {
    #[command(subcommand)]
    pub(crate) command: ProviderCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ProviderCommand {
    /// Load it, validate its descriptor and tables, run the provider suite on it, print a report
    Check(CheckArgs),
    /// The second process of `check`
    #[command(hide = true)]
    Play(PlayArgs),
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The library, e.g. libacme.so; a layer is played around a provider
    pub(crate) library: PathBuf,
    /// Device to test [default: the provider's first one]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Provider that a layer is played around: a library, or the name of one that is built in or
    /// configured [default: vp_softrdma]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) over: Option<String>,
    /// Seconds that all of it may take
    #[arg(long, default_value = "120", value_parser = parse_bound)]
    pub(crate) limit: Duration,
    /// Print JSON, at the end
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PlayArgs {
    /// The library
    pub(crate) library: PathBuf,
    /// Device to test
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Provider that a layer is played around
    #[arg(long)]
    pub(crate) over: Option<String>,
    /// Only load it
    #[arg(long)]
    pub(crate) load_only: bool,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").required(true).args(["hex", "pcap"])))]
pub(crate) struct DecodeArgs {
    /// Octets as hexadecimal digits; blanks, colons and commas are skipped; `-` reads standard input
    #[arg(long, value_name = "STRING")]
    pub(crate) hex: Option<String>,
    /// Capture file, pcap or pcapng; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Print JSON, one object per frame
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one line per frame and not its fields
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) brief: bool,
    /// With --hex: whether the FPDUs carry a CRC [default: on, or as an MPA start-up frame says]
    #[arg(long, value_enum, conflicts_with = "pcap")]
    pub(crate) crc: Option<Switch>,
    /// With --hex: the FPDUs carry markers, the first at the first octet
    #[arg(long, conflicts_with = "pcap")]
    pub(crate) markers: bool,
}

/// `64k`, `1m`, `4096`: 1 octet to 64 MiB.
fn parse_chunk(text: &str) -> Result<u32, String> {
    const LARGEST: u64 = 64 << 20;
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.strip_suffix(['k', 'm']) {
        Some(digits) if lower.ends_with('k') => (digits, 1u64 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (lower.as_str(), 1),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number with suffix k or m".to_owned())?;
    match number.checked_mul(factor) {
        Some(octets @ 1..=LARGEST) => Ok(octets as u32),
        _ => Err("a chunk is 1 octet to 64m".to_owned()),
    }
}

/// Decimal seconds, up to a day.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("between 0 and 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// As [`parse_seconds`], and more than nothing.
fn parse_bound(text: &str) -> Result<Duration, String> {
    parse_seconds(text).and_then(|bound| match bound.is_zero() {
        true => Err("more than 0 seconds".to_owned()),
        false => Ok(bound),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            command.clone().debug_assert();
        }
    }

    #[test]
    fn chunks() {
        assert_eq!(parse_chunk("64k"), Ok(65536));
        assert_eq!(parse_chunk("2M"), Ok(2 << 20));
        assert_eq!(parse_chunk("7"), Ok(7));
        for bad in ["0", "", "k", "65m", "-1", "99999999999999999999", "1kk"] {
            assert!(parse_chunk(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["", "x", "-1", "NaN", "inf", "1e9"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_side_of_a_ping() {
        assert!(Cli::try_parse_from(["warpline", "ping"]).is_err());
        assert!(Cli::try_parse_from(["warpline", "ping", "h", "--serve"]).is_err());
        assert!(Cli::try_parse_from(["warpline", "ping", "--serve", "-c", "3"]).is_err());
        assert!(Cli::try_parse_from(["warpline", "ping", "--serve"]).is_ok());
        assert!(Cli::try_parse_from(["warpline", "ping", "--serve", "[::1]:0", "--once"]).is_ok());
    }
}
