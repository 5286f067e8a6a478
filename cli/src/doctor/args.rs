//! Arguments of `warpline doctor`. No state.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use crate::values::parse_bound;

const EXAMPLES: &str = "\
Examples:
  warpline doctor
  warpline doctor 192.0.2.1:7471
  warpline doctor -- ucx_info -d               what the program looks for and does not get";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Check this peer instead of this machine: connect, and start up in each way
    #[arg(value_name = "HOST:PORT")]
    pub(crate) peer: Option<String>,
    /// Seconds to wait for each reply of the peer
    #[arg(long, default_value = "3", value_parser = parse_bound)]
    pub(crate) limit: Duration,
    /// Seconds for which the program runs at most; it and what it started are then ended
    #[arg(long, visible_alias = "duration", default_value = "5", value_parser = parse_bound)]
    pub(crate) seconds: Duration,
    /// Run this program as `warpline run` does, and explain what it looked for and did not get
    #[arg(last = true, value_name = "CMD", conflicts_with = "peer")]
    pub(crate) command: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
