//! Arguments of `warpline run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  warpline run -- ib_write_bw -R               a server; the client: … ib_write_bw -R HOST
  warpline run --roce -- ibv_devinfo -v
  warpline run --trace verbs.log -- rping -c -a HOST -C 3
  warpline run --fault 'post_send@5=QueueFull' -- ./my_test
  warpline run --sockets --log tcp.log -- redis-server

Exit status: the program's; 127 if it does not exist, 126 if it cannot be started.";

/// What to run, and what to watch or disturb.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// Write every verb with its arguments and result to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Refuse calls, lose or delay completions: rules of the wrapper `fault`, e.g.
    /// `post_send@3=QueueFull`
    #[arg(long, value_name = "SPEC")]
    pub(crate) fault: Option<String>,
    /// Print at the end the number of calls of each verb and their duration
    #[arg(long)]
    pub(crate) stats: bool,
    /// Run the program on RoCE v2 over UDP sockets instead of iWARP over TCP
    #[arg(long)]
    pub(crate) roce: bool,
    /// Preload the libraries: for programs that find others by RPATH; also applies to all programs
    /// that they start
    #[arg(long)]
    pub(crate) preload: bool,
    /// Show the devices below /sys/class/infiniband and /dev/infiniband to programs that read
    /// these: by a preloaded library, which also applies to all programs that they start
    #[arg(long)]
    pub(crate) view: bool,
    /// Follow the TCP connections of the program and of all programs that it starts, by a preloaded
    /// library, and write a line about each to the file of --log
    #[arg(long, requires = "log")]
    pub(crate) sockets: bool,
    /// The record of --sockets
    #[arg(long, value_name = "FILE", requires = "sockets")]
    pub(crate) log: Option<PathBuf>,
    /// Do not start a program that will not load the libraries: exit status 2
    #[arg(long)]
    pub(crate) require: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
