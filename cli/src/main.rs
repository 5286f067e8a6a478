//! The command `warpline`. Parses the command line, runs one command, and turns its result into a message and
//! an exit status.

#![forbid(unsafe_code)]

mod args;
mod ask;
mod capture;
mod conform;
mod decode;
mod demo;
mod device;
mod devices;
mod doctor;
mod error;
mod explain;
mod logging;
mod man;
mod output;
mod perf;
mod ping;
mod policy;
mod progress;
mod provider;
mod run;
mod second;
mod signals;
mod stat;
mod top;
mod values;
mod verbs;

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use rustix::process::Signal;
use ual::vp_api::import;

use crate::args::{Cli, Command};
use crate::error::{CliError, CliResult};

fn main() -> ExitCode {
    logging::hide_panics();
    // A write beyond `ulimit -f` is an error then, instead of the end of this process.
    let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version go to standard output, with success; so do a lone command's subcommands.
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        Err(error) => return failed(&CliError::from(error)),
    };
    logging::init(matches!(&cli.command, Command::Devices(args) if args.only.is_some()));
    if !matches!(cli.command, Command::Provider(_) | Command::Devices(_)) {
        // A provider that crashes must not end this command.
        import::probe_with(|library| provider::probe(library, provider::LOAD));
    }
    match dispatch(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.or_at(cli.command.name())),
    }
}

fn failed(error: &CliError) -> ExitCode {
    error.print();
    ExitCode::from(error.exit() as u8)
}

fn dispatch(command: &Command) -> CliResult<()> {
    let mut out = stdout();
    match command {
        Command::Demo(args) => demo::run(args, &mut out),
        Command::DemoPeer(args) => demo::run_peer(args),
        Command::Devices(args) => devices::run(args, &mut out),
        Command::Ping(args) => ping::run(args, &mut out),
        Command::Decode(args) => decode::run(args, &mut out),
        Command::Provider(args) => provider::run(args, &mut out),
        Command::Conform(args) => conform::run(args, &mut out),
        Command::Perf(args) => perf::run(args, &mut out),
        Command::Run(args) => run::run(args, &mut out),
        Command::Explain(args) => explain::run(args, &mut out),
        Command::Doctor(args) => doctor::run(args, &mut out),
        Command::Stat(args) => stat::run(args, &mut out),
        Command::Top(args) => top::run(args),
        Command::Policy(args) => policy::run(args, &mut out),
        Command::Capture(args) => capture::run(args),
        Command::Verbs(args) => verbs::run(args, &mut out),
        Command::Man { directory } => man::write(directory),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "warpline", &mut script);
            Ok(out.write_all(&script)?)
        }
    }
}
