//! Arguments of `warpline doctor`. No state.

use std::time::Duration;

use clap::Args;

use crate::values::parse_bound;

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Check this peer instead of this machine: connect, and start up in each way
    #[arg(value_name = "HOST:PORT")]
    pub(crate) peer: Option<String>,
    /// Seconds to wait for each reply of the peer
    #[arg(long, default_value = "3", value_parser = parse_bound)]
    pub(crate) limit: Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
