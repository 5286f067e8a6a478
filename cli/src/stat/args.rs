//! Arguments of `warpline stat`. No state.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

use crate::values::parse_bound;

#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// Show only this process
    pub(crate) pid: Option<u32>,
    /// Show processes of all users, as far as this user may
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print OpenMetrics, for the textfile collector of node_exporter
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    pub(crate) openmetrics: bool,
    /// A time series per connection, not per process and peer address: there may be many
    #[arg(long)]
    pub(crate) per_connection: bool,
    /// Repeat at this interval, in seconds, until stopped
    #[arg(long, value_name = "SECONDS", value_parser = parse_bound)]
    pub(crate) watch: Option<Duration>,
    /// Serve OpenMetrics over HTTP at this address until stopped; port 0 picks a free port and
    /// prints it
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["json", "watch", "openmetrics"])]
    pub(crate) listen: Option<SocketAddr>,
}
