//! The command line for clap: all commands; each has its arguments in its own folder. No state, no IO.

use clap::{Parser, Subcommand};

use crate::capture::CaptureArgs;
use crate::conform::ConformArgs;
use crate::decode::DecodeArgs;
use crate::demo::{DemoArgs, DemoPeerArgs};
use crate::devices::DevicesArgs;
use crate::doctor::DoctorArgs;
use crate::explain::ExplainArgs;
use crate::perf::PerfArgs;
use crate::ping::PingArgs;
use crate::policy::PolicyArgs;
use crate::provider::ProviderArgs;
use crate::run::RunArgs;
use crate::stat::StatArgs;
use crate::top::TopArgs;
use crate::verbs::VerbsArgs;

const EXIT_CODES: &str = "\
Exit status:
  0   everything requested was done and verified
  1   the operation failed: octets lost or different, or the peer was lost
  2   the command line is invalid
  3   a file, capture or hex string cannot be read or is malformed
  4   no usable device, or no connection
  70  a bug in warpline
  126 `run`: the program cannot be started; 127: it does not exist

Environment:
  RUST_LOG         what to log to standard error, e.g. `debug` or `ual=trace,warn`
  WARPLINE_CONFIG  configuration file (TOML)
  WARPLINE_PROVIDER_PATH
                   absolute paths of provider libraries (*.so), and of directories of manifests";

/// Inspect, try and measure RDMA over iWARP and RoCE v2, without RDMA hardware or root
#[derive(Parser, Debug)]
#[command(name = "warpline", version, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Move a file to a second process and back by Send, RDMA Write and RDMA Read, and verify it
    Demo(DemoArgs),
    /// List providers, devices, ports, addresses, limits and capabilities
    Devices(DevicesArgs),
    /// Measure round trips to a peer that implements rdma-core's rping protocol, or be that peer
    Ping(PingArgs),
    /// Explain octets of iWARP (MPA, DDP, RDMAP) and RoCE v2 field by field
    Decode(DecodeArgs),
    /// Test any iWARP peer against the standards, with a result for each requirement
    Conform(ConformArgs),
    /// Measure bandwidth, latency and message rate against raw TCP in the same run
    Perf(PerfArgs),
    /// Show what each process that uses Warpline does, and each of its connections
    Stat(StatArgs),
    /// Show processes and connections on the terminal, with a page that explains a connection
    Top(TopArgs),
    /// Report why a connection is not faster: causes, the figures that show them, and what to do
    Explain(ExplainArgs),
    /// Find what makes programs fail or slow, on this machine or at a peer
    Doctor(DoctorArgs),
    /// Write the FPDUs of a running process as pcapng, for Wireshark and tshark
    Capture(CaptureArgs),
    /// Check the rules of a configuration, and which of them applies to a connection
    #[command(subcommand)]
    Policy(PolicyArgs),
    /// Run an unmodified verbs program (libibverbs, librdmacm) on SoftRDMA
    Run(RunArgs),
    /// Print the directory of the verbs libraries that `run` makes a program load
    Verbs(VerbsArgs),
    /// Check a verbs provider in a library
    Provider(ProviderArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages, one file for each command, into a directory
    #[command(hide = true)]
    Man {
        /// The directory, which must exist
        directory: std::path::PathBuf,
    },
    /// The second process of `demo`
    #[command(hide = true)]
    DemoPeer(DemoPeerArgs),
}

impl Command {
    /// The command's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Demo(_) => "demo",
            Self::Devices(_) => "devices",
            Self::Ping(_) => "ping",
            Self::Decode(_) => "decode",
            Self::Conform(_) => "conform",
            Self::Perf(_) => "perf",
            Self::Stat(_) => "stat",
            Self::Top(_) => "top",
            Self::Explain(_) => "explain",
            Self::Doctor(_) => "doctor",
            Self::Capture(_) => "capture",
            Self::Policy(_) => "policy",
            Self::Run(_) => "run",
            Self::Verbs(_) => "verbs",
            Self::Provider(_) => "provider",
            Self::Completions { .. } => "completions",
            Self::Man { .. } => "man",
            Self::DemoPeer(_) => "demo, second process",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use clap::{Command, CommandFactory};

    use super::*;
    use crate::error::CliError;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            command.clone().debug_assert();
        }
    }

    /// All commands without further ones, with their names from the first on.
    fn leaves(command: &Command, names: &[String]) -> Vec<(Vec<String>, Command)> {
        let mut all = Vec::new();
        for sub in command.get_subcommands() {
            let names = [names, &[sub.get_name().to_owned()]].concat();
            match sub.has_subcommands() {
                true => all.extend(leaves(sub, &names)),
                false => all.push((names, sub.clone())),
            }
        }
        all
    }

    #[test]
    fn a_wrong_value_of_any_option_is_refused_in_words() {
        let mut refused = 0;
        for (names, command) in leaves(&Cli::command(), &["warpline".to_owned()]) {
            for argument in command.get_arguments() {
                for value in ["x", "-1", "1e99", "99999999999999999999999", "0", "70000"] {
                    let value = match argument.get_long() {
                        Some(long) => format!("--{long}={value}"),
                        None => value.to_owned(),
                    };
                    let line = [&names[..], &[value]].concat();
                    let Err(error) = Cli::try_parse_from(&line) else { continue };
                    if error.kind() != ErrorKind::ValueValidation {
                        continue;
                    }
                    refused += 1;
                    let text = CliError::from(error).to_string();
                    for raw in ["in string", "syntax", "fit in", "literal", "..", "not in"] {
                        assert!(!text.contains(raw), "{line:?}: {text}");
                    }
                }
            }
        }
        assert!(refused > 50, "{refused}");
    }

    #[test]
    fn a_default_is_shown_once() {
        for (names, command) in leaves(&Cli::command(), &[]) {
            let help = command.clone().render_long_help().to_string();
            assert!(!help.contains("[default: \"\"]"), "{names:?}: {help}");
            for argument in
                command.get_arguments().filter(|argument| !argument.is_hide_default_value_set())
            {
                let says =
                    argument.get_help().is_some_and(|text| text.to_string().contains("[default"));
                let twice = says && !argument.get_default_values().is_empty();
                assert!(!twice, "{names:?} {}", argument.get_id());
            }
        }
    }

    /// How long a command observes or measures has one name.
    #[test]
    fn seconds_and_duration_mean_the_same() {
        let mut found = 0;
        for (names, command) in leaves(&Cli::command(), &[]) {
            for argument in command.get_arguments() {
                let aliases = argument.get_visible_aliases().unwrap_or_default();
                if argument.get_long() == Some("seconds") {
                    assert!(aliases.contains(&"duration"), "{names:?}");
                    found += 1;
                }
                assert_ne!(argument.get_long(), Some("duration"), "{names:?}");
            }
        }
        // capture, explain and four of perf
        assert!(found >= 5, "{found}");
    }

    #[test]
    fn one_side_of_a_ping() {
        assert!(Cli::try_parse_from(["warpline", "ping"]).is_err());
        assert!(Cli::try_parse_from(["warpline", "ping", "h", "--serve"]).is_err());
        assert!(Cli::try_parse_from(["warpline", "ping", "--serve", "-c", "3"]).is_err());
        assert!(Cli::try_parse_from(["warpline", "ping", "--serve"]).is_ok());
        assert!(Cli::try_parse_from(["warpline", "ping", "--serve", "[::1]:0", "--once"]).is_ok());
    }
}
