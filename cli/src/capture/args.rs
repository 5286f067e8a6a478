//! Arguments of `warpline capture`. No state.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ual::Network;

use crate::values::parse_bound;

#[derive(Args, Debug)]
pub(crate) struct CaptureArgs {
    /// The process
    pub(crate) pid: u32,
    /// File to write, which is replaced; `-`: standard output
    #[arg(short, long, default_value = "-")]
    pub(crate) output: PathBuf,
    /// Also capture up to this many octets of the payload of each FPDU; 0: headers only
    #[arg(long, value_name = "OCTETS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    pub(crate) payload: u32,
    /// Write zeros for the payload that is not captured of all FPDUs: dissectors then show the headers of large ones,
    /// too, and the file grows as fast as the traffic
    #[arg(long)]
    pub(crate) fill: bool,
    /// Only connections with peers of this address, or range of addresses
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    pub(crate) peer: Option<Network>,
    /// Only connections of this queue pair
    #[arg(long)]
    pub(crate) qp: Option<u32>,
    /// End after this many FPDUs
    #[arg(long, value_name = "FPDUS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after this many seconds [default: when interrupted, or when the process ends]
    #[arg(long, visible_alias = "duration", value_parser = parse_bound)]
    pub(crate) seconds: Option<Duration>,
}
