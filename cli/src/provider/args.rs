//! Arguments of `warpline provider`, and of its second process. No state.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::values::parse_bound;

#[derive(Args, Debug)]
pub(crate) struct ProviderArgs {
    #[command(subcommand)]
    pub(crate) command: ProviderCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ProviderCommand {
    /// Load the library, validate its descriptor and tables, run the provider suite, print a report
    Check(CheckArgs),
    /// The second process of `check`
    #[command(hide = true)]
    Play(PlayArgs),
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The library, e.g. libacme.so; a layer is tested around a provider
    pub(crate) library: PathBuf,
    /// Device to test [default: the provider's first one]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Provider around which a layer is tested: a library, or the name of one that is built in or
    /// configured [default: vp_softrdma]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) over: Option<String>,
    /// Run only the cases whose names contain this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) case: Vec<String>,
    /// Seconds that each wait of a case may take; less once two cases have waited in vain
    #[arg(long, default_value = "4", value_parser = parse_bound)]
    pub(crate) wait: Duration,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Seconds that the whole check may take
    #[arg(long, default_value = "120", value_parser = parse_bound)]
    pub(crate) limit: Duration,
    /// Print JSON, at the end
    #[arg(long)]
    pub(crate) json: bool,
}

/// The random programs of the suite.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct ProgramArgs {
    /// Seconds in which new random programs are begun, within --limit
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = parse_bound)]
    pub(crate) random: Duration,
    /// Of the random programs play only that of this seed, which a failure names
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct PlayArgs {
    /// The library
    pub(crate) library: PathBuf,
    /// Device to test
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Provider around which a layer is tested
    #[arg(long)]
    pub(crate) over: Option<String>,
    /// Run only the cases whose names contain this text
    #[arg(long)]
    pub(crate) case: Vec<String>,
    /// Seconds that each wait of a case may take
    #[arg(long, default_value = "4", value_parser = parse_bound)]
    pub(crate) wait: Duration,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// The file for the verbs that are under way
    #[arg(long)]
    pub(crate) journal: Option<String>,
    /// Only load the library
    #[arg(long)]
    pub(crate) load_only: bool,
}
