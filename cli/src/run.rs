//! `warpline run`: starts a program with Warpline's libibverbs and librdmacm instead of rdma-core's, so that an
//! unmodified verbs program runs on SoftRDMA, or on RoCE over UDP. No state: the program replaces this process (exec).
//!
//! It first reports on standard error why the program would not load the libraries, or which devices it will not
//! see. It starts the program nevertheless: a shell, or a static program, may start others.

mod adapters;
mod args;
mod elf;
mod environment;
mod obstacles;
mod program;
mod view;

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(crate) use args::RunArgs;

use crate::error::{CliError, CliResult, Exit};
use crate::verbs::Libraries;

/// Returns only if the program cannot be started.
pub(crate) fn run(args: &RunArgs) -> CliResult<()> {
    let libraries = Libraries::find()?;
    let mut words = args.command.iter();
    let Some(name) = words.next() else {
        return Err(CliError::new(Exit::Usage, "no program to run").at("run"));
    };
    let path = program::find(name)?;
    let environment = environment::of(args, &libraries)?;
    let mut notes = obstacles::of(&path, &libraries, args.preload);
    if args.require
        && let Some(first) = notes.pop()
    {
        return Err(first.with_exit(Exit::Usage).at("run"));
    }
    notes.extend(adapters::hidden(args.roce));
    for note in notes {
        note.at("run").print();
    }
    let error = Command::new(&path).arg0(name).args(words).envs(environment).exec();
    let exit = match error.kind() {
        ErrorKind::NotFound => Exit::NoProgram,
        _ => Exit::NotStarted,
    };
    let what = format!("cannot start {}: {error}", path.display());
    Err(CliError::new(exit, what).at("run").hint("see whether it starts without `warpline run`"))
}
