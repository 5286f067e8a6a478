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

/// Inspect, try and measure RDMA over standard iWARP, without RDMA hardware or root
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
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            command.clone().debug_assert();
        }
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
