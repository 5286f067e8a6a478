//! `warpline perf`: measures, always against raw TCP in the same run.
//!
//! The client controls the server over a plain TCP connection ([`control`]): it sends the cases to measure, one
//! by one, and queries the processor time. Each side owns its end of a measurement; when the other dies, its
//! connections break, which ends the measurement with an error.

mod args;
mod by_path;
mod case;
mod client;
mod control;
mod costs;
mod line;
mod local;
mod machine;
mod matrix;
mod meter;
mod paths;
mod plot;
mod raw;
mod report;
mod rounds;
mod scale;
mod serve;
mod targets;
mod traffic;
mod worker;

pub(crate) use args::PerfArgs;
use args::PerfCommand;

use std::io::Write;

use crate::error::CliResult;

/// Runs the subcommand.
pub(crate) fn run(args: &PerfArgs, out: &mut dyn Write) -> CliResult<()> {
    ual::raise_descriptors()?;
    match &args.command {
        PerfCommand::Serve(args) => serve::run(args, out),
        PerfCommand::Run(args) => local::run(args, out),
        PerfCommand::Local(args) if args.paths => paths::run(args, out),
        PerfCommand::Local(args) => local::local(args, out),
        PerfCommand::Costs(args) => costs::run(args, out),
        PerfCommand::Scale(args) => scale::run(args, out),
    }
}
