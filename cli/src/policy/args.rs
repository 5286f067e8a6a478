//! Arguments of `warpline policy`. No state.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Subcommand, Debug)]
pub(crate) enum PolicyArgs {
    /// Read a configuration file, and print its rules in their order
    Check {
        /// The file; without it the one in force
        file: Option<PathBuf>,
    },
    /// Say which rule a connection would meet, why those before it do not match, and what follows
    Why(WhyArgs),
}

#[derive(Args, Debug)]
pub(crate) struct WhyArgs {
    /// Address of the peer
    #[arg(long)]
    pub(crate) peer: IpAddr,
    /// Port of the listener, at either end
    #[arg(long)]
    pub(crate) port: u16,
    /// Which end the program is
    #[arg(long, value_enum, default_value_t = RoleArg::Connect)]
    pub(crate) role: RoleArg,
    /// Number of the program's user; without it this user
    #[arg(long)]
    pub(crate) uid: Option<u32>,
    /// Path of the program
    #[arg(long, default_value = "")]
    pub(crate) exe: String,
    /// What the program says of itself in $WARPLINE_CLASS
    #[arg(long, default_value = "")]
    pub(crate) class: String,
    /// The configuration file; without it the one in force
    #[arg(long)]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RoleArg {
    Connect,
    Accept,
}
