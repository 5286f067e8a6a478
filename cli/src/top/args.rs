//! Arguments of `warpline top`. No state.

use std::time::Duration;

use clap::Args;

use super::rows::Sort;
use crate::values::parse_bound;

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Show only this process
    pub(crate) pid: Option<u32>,
    /// Show processes of all users, as far as this user may
    #[arg(long)]
    pub(crate) all: bool,
    /// Seconds between two snapshots
    #[arg(long, default_value = "1", value_parser = parse_bound, value_name = "SECONDS")]
    pub(crate) interval: Duration,
    /// What to sort by, the largest first; the keys `s` and `r` change it
    #[arg(long, value_enum, default_value = "traffic", value_name = "COLUMN")]
    pub(crate) sort: Sort,
    /// Show only what contains this text: process, program, addresses, state; the key `/` changes it
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) filter: String,
}
