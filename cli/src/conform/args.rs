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
