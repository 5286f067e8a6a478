//! Arguments of `warpline devices`. No state.

use std::time::Duration;

use clap::Args;

use crate::values::parse_bound;

#[derive(Args, Debug)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds that a provider may take to be loaded, to list its devices, or to open or close one
    #[arg(long, default_value = "20", value_parser = parse_bound)]
    pub(crate) limit: Duration,
    /// The second process: only the provider with this index
    #[arg(long, hide = true)]
    pub(crate) only: Option<usize>,
    /// The second process: open this device of it
    #[arg(long, hide = true, requires = "only")]
    pub(crate) open: Option<String>,
}
