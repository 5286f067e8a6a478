//! Arguments of `warpline run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  warpline run -- ib_write_bw -R               a server; the client: … ib_write_bw -R HOST
  warpline run -- mpirun -n 2 ./my_mpi_program
  warpline run --print -- ib_write_bw -R       what it sets, for `eval`
  warpline run --trace verbs.log -- rping -c -a HOST -C 3
  warpline run --fault 'post_send@5=QueueFull' -- ./my_test
  warpline run --sockets --log tcp.log -- redis-server

Exit status: the program's; 127 if it does not exist, 126 if it cannot be started.";

/// Which devices a program sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// SoftRDMA, and RoCE.
    Both,
    Iwarp,
    Roce,
}

/// What to run, and what to watch or disturb.
#[derive(Args, Debug, Default)]
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
    /// Show the program only roce0: RoCE v2 over UDP sockets
    #[arg(long, conflicts_with = "iwarp")]
    pub(crate) roce: bool,
    /// Show the program only softrdma0: iWARP over TCP
    #[arg(long)]
    pub(crate) iwarp: bool,
    /// Do not preload the libraries, only put their directory into LD_LIBRARY_PATH: programs that
    /// find others by RPATH, or have a copy of their own, use those
    #[arg(long)]
    pub(crate) no_preload: bool,
    /// Do not show the devices below /sys/class/infiniband and /dev/infiniband
    #[arg(long)]
    pub(crate) no_view: bool,
    /// Has no effect: it is the default
    #[arg(long, hide = true)]
    pub(crate) preload: bool,
    /// Has no effect: it is the default
    #[arg(long, hide = true)]
    pub(crate) view: bool,
    /// Print the variables that would be set, as lines for a shell, and start nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Follow the TCP connections of the program and of all programs that it starts, by a preloaded
    /// library, and write a line about each to the file of --log
    #[arg(long, requires = "log")]
    pub(crate) sockets: bool,
    /// The record of --sockets
    #[arg(long, value_name = "FILE", requires = "sockets")]
    pub(crate) log: Option<PathBuf>,
    /// Carry connections of --sockets by shared memory where the peer, on this host, is run so, too. For
    /// trials: a program may hang (docs/sockets.md)
    #[arg(long, requires = "sockets")]
    pub(crate) shared_memory: bool,
    /// How long a wait looks at the shared memory before it sleeps; 0: not at all [default: 50]
    #[arg(long, value_name = "MICROSECONDS", requires = "shared_memory")]
    pub(crate) spin: Option<u32>,
    /// Do not start a program that will not load the libraries: exit status 2
    #[arg(long)]
    pub(crate) require: bool,
    /// The program and its arguments
    #[arg(required_unless_present = "print", trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    pub(super) fn shown(&self) -> Shown {
        match (self.iwarp, self.roce) {
            (true, _) => Shown::Iwarp,
            (_, true) => Shown::Roce,
            _ => Shown::Both,
        }
    }
}
