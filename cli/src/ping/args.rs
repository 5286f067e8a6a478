//! Arguments of `warpline ping`. No state.

use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::values::{Switch, parse_bound, parse_seconds};

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
    /// Stop after this many round trips; 0: only when interrupted
    #[arg(short, long, default_value_t = 5, conflicts_with = "serve")]
    pub(crate) count: u64,
    /// Octets per round trip
    #[arg(short, long, default_value_t = 64, conflicts_with = "serve",
          value_parser = clap::value_parser!(u32).range(26..=65535))]
    pub(crate) size: u32,
    /// Compare the octets returned with those sent
    #[arg(long, conflicts_with = "serve")]
    pub(crate) verify: bool,
    /// Seconds from one round trip to the next
    #[arg(short, long, default_value = "1", value_parser = parse_seconds, conflicts_with = "serve")]
    pub(crate) interval: Duration,
    /// Seconds to wait for a reply
    #[arg(short = 'W', long, default_value = "5", value_parser = parse_bound)]
    pub(crate) timeout: Duration,
    /// Print JSON: an object with the summary; with --serve, one with the address, then one per
    /// client
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only the summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Serve one connection, then stop
    #[arg(long, requires = "serve")]
    pub(crate) once: bool,
    /// Device, or provider, by name [default: the first usable one]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Use IPv6 only
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,
    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// CRC32c on every FPDU: requested, or not requested (a peer may still require it)
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) crc: Switch,
    /// MPA revision to offer
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2),
          conflicts_with = "serve")]
    pub(crate) mpa: u8,
    /// Request MPA's peer-to-peer model: either side may send first (needs MPA revision 2)
    #[arg(long, conflicts_with = "serve")]
    pub(crate) peer_to_peer: bool,
}
