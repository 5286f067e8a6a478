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

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

pub(crate) use args::RunArgs;
pub(crate) use environment::VIEW;

use crate::error::{CliError, CliResult, Exit};
use crate::verbs::Libraries;

/// What a program needs to be started.
pub(crate) struct Prepared {
    pub(crate) program: PathBuf,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// Why it would not load the libraries.
    pub(crate) obstacles: Vec<CliError>,
    /// What else it will not see.
    pub(crate) notes: Vec<CliError>,
}

/// For a program without options of `run`.
pub(crate) fn prepare(command: &[OsString]) -> CliResult<Prepared> {
    prepare_with(&RunArgs { command: command.to_vec(), ..RunArgs::default() })
}

fn prepare_with(args: &RunArgs) -> CliResult<Prepared> {
    let libraries = Libraries::find()?;
    let Some(name) = args.command.first() else {
        return Err(CliError::new(Exit::Usage, "no program to run").at("run"));
    };
    let program = program::find(name)?;
    let (environment, mut notes) = environment::of(args, &libraries)?;
    let obstacles = obstacles::of(&program, &libraries, !args.no_preload);
    notes.extend(adapters::hidden(args.shown().or_of_variable()));
    Ok(Prepared { program, environment, obstacles, notes })
}

/// Starts the program, and then returns only if it cannot be started; or prints what is set for it.
pub(crate) fn run(args: &RunArgs, out: &mut dyn Write) -> CliResult<()> {
    if args.print {
        let (environment, _) = environment::of(args, &Libraries::find()?)?;
        let mut lines = environment.iter().map(|(name, value)| environment::line(name, value));
        return Ok(lines.try_for_each(|line| out.write_all(line.as_bytes()))?);
    }
    let Prepared { program, environment, mut obstacles, notes } = prepare_with(args)?;
    if args.require
        && let Some(first) = obstacles.pop()
    {
        return Err(first.with_exit(Exit::Usage).at("run"));
    }
    for note in obstacles.into_iter().chain(notes) {
        note.at("run").print();
    }
    let mut command = Command::new(&program);
    if let [name, arguments @ ..] = &args.command[..] {
        command.arg0(name).args(arguments);
    }
    let error = command.envs(environment).exec();
    let exit = match error.kind() {
        ErrorKind::NotFound => Exit::NoProgram,
        _ => Exit::NotStarted,
    };
    let what = format!("cannot start {}: {error}", program.display());
    Err(CliError::new(exit, what).at("run").hint("see whether it starts without `warpline run`"))
}
