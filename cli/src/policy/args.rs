//! Arguments of `warpline policy`. No state.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Subcommand, Debug)]
pub(crate) enum PolicyArgs {
    /// Read a configuration file and print its rules in order
    Check {
        /// The file [default: the one in force]
        file: Option<PathBuf>,
    },
    /// Print which rule applies to a connection, why those before it do not match, and the result
    Why(WhyArgs),
}

#[derive(Args, Debug)]
pub(crate) struct WhyArgs {
    /// Address of the peer
    #[arg(long)]
    pub(crate) peer: IpAddr,
    /// Port of the listener, which may be either end
    #[arg(long)]
    pub(crate) port: u16,
    /// Role of the program
    #[arg(long, value_enum, default_value_t = RoleArg::Connect)]
    pub(crate) role: RoleArg,
    /// User id of the program [default: this user]
    #[arg(long)]
    pub(crate) uid: Option<u32>,
    /// Path of the program [default: none]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) exe: String,
    /// Class that the program declares in $WARPLINE_CLASS [default: none]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) class: String,
    /// The configuration file [default: the one in force]
    #[arg(long)]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RoleArg {
    Connect,
    Accept,
}
