//! The options of `warpline conform`. No state.

use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::values::{parse_bound, parse_seconds};

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("side").required(true).args(["peer", "listen", "serve", "list"])))]
pub(crate) struct ConformArgs {
    /// Peer to connect to and test, HOST:PORT; an IPv6 address in brackets
    #[arg(value_name = "HOST:PORT")]
    pub(crate) peer: Option<String>,
    /// Test the peer that connects to this address; it must connect once for each case
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<String>,
    /// Be the target of another tester: accept, echo, grant memory, execute its commands
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) serve: Option<String>,
    /// Test a RoCE v2 peer instead of an iWARP peer; with --serve, serve RoCE
    #[arg(long)]
    pub(crate) roce: bool,
    /// Our address, with --roce; by default that of the way to the peer, or a free one of 127.0.0.0/8
    #[arg(long, value_name = "ADDR", requires = "roce", conflicts_with_all = ["listen", "serve", "list"])]
    pub(crate) from: Option<std::net::IpAddr>,
    /// Connect by path: the peer is ibv_rc_pingpong, which exchanges queue pair numbers over TCP
    #[arg(long, requires_all = ["roce", "peer"], conflicts_with_all = ["listen", "serve", "list"])]
    pub(crate) pingpong: bool,
    /// Memory of the peer's that may be read and written, with --roce
    #[arg(long, value_name = "ADDR,RKEY,OCTETS", requires = "roce", value_parser = parse_memory)]
    pub(crate) memory: Option<(u64, u32, u64)>,
    /// The device that serves, with --serve --roce: vp_roce, or vp_verbs for an adapter
    #[arg(long, value_name = "NAME", requires = "roce", default_value = "vp_roce")]
    pub(crate) device: String,
    /// List the cases, and the requirements that the wire cannot show
    #[arg(long)]
    pub(crate) list: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Only the cases of these requirements
    #[arg(long, value_name = "ID", value_delimiter = ',', conflicts_with_all = ["serve", "list"])]
    pub(crate) only: Vec<String>,
    /// Only the case of this name; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with_all = ["serve", "list"])]
    pub(crate) case: Vec<String>,
    /// Not the cases of these names; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with_all = ["serve", "list"])]
    pub(crate) skip: Vec<String>,
    /// Seconds that a response may take
    #[arg(short = 'W', long, default_value = "5", value_parser = parse_bound)]
    pub(crate) timeout: Duration,
    /// Seconds that the peer may take to connect, with --listen
    #[arg(long, default_value = "30", value_parser = parse_seconds, requires = "listen")]
    pub(crate) wait: Duration,
    /// Milliseconds between a peer's MPA Reply and our first FPDU: some peers lose one that arrives
    /// at once, which has its own case
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(..=10_000))]
    pub(crate) settle: u64,
}

/// Address, key and length, decimal or hexadecimal.
fn parse_memory(text: &str) -> Result<(u64, u32, u64), String> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let all: Option<Vec<u64>> = text.split(',').map(number).collect();
    match all.as_deref() {
        Some(&[address, key, octets]) if key <= u64::from(u32::MAX) && octets >= 64 => {
            Ok((address, key as u32, octets))
        }
        _ => Err("address, key and at least 64 octets, as 0x7f00,0x1234,4096".to_owned()),
    }
}
