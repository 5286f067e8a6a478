//! `warpline run`: starts a program with Warpline's libibverbs and librdmacm instead of rdma-core's, so that an
//! unmodified verbs program runs on SoftRDMA and on RoCE over UDP. No state: the program replaces this process (exec).
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

use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(crate) use args::RunArgs;

use crate::error::{CliError, CliResult, Exit};
use crate::verbs::Libraries;

/// Starts the program, and then returns only if it cannot be started; or prints what is set for it.
pub(crate) fn run(args: &RunArgs, out: &mut dyn Write) -> CliResult<()> {
    let libraries = Libraries::find()?;
    let (environment, mut notes) = environment::of(args, &libraries)?;
    if args.print {
        let mut lines = environment.iter().map(|(name, value)| environment::line(name, value));
        return Ok(lines.try_for_each(|line| out.write_all(line.as_bytes()))?);
    }
    let mut words = args.command.iter();
    let Some(name) = words.next() else {
        return Err(CliError::new(Exit::Usage, "no program to run").at("run"));
    };
    let path = program::find(name)?;
    notes.extend(obstacles::of(&path, &libraries, !args.no_preload));
    if args.require
        && let Some(first) = notes.pop()
    {
        return Err(first.with_exit(Exit::Usage).at("run"));
    }
    notes.extend(adapters::hidden(args.shown().or_of_variable()));
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
