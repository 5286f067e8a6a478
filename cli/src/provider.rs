//! `warpline provider check`: loads a provider's library, validates what it exports, runs the
//! provider suite on it, and prints a report. A library may crash or hang, so all of it happens in
//! a child process; the parent knows what the child was about to do.

mod child;
mod report;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::args::{ProviderArgs, ProviderCommand};
use crate::error::{CliError, CliResult, Exit};
use report::Report;

/// A child that says nothing for so long hangs: every wait of the suite is shorter.
const HANG: Duration = Duration::from_secs(90);
/// Loading hangs sooner: somebody waits for a listing.
const LOAD: Duration = Duration::from_secs(20);

pub(crate) fn run(args: &ProviderArgs, out: &mut dyn Write) -> CliResult<()> {
    match &args.command {
        ProviderCommand::Check { library, device, json } => {
            check(library, device.as_deref(), *json, out)
        }
        ProviderCommand::Play { library, device, load_only } => {
            child::play(library, device.as_deref(), *load_only, out)
        }
    }
}

fn check(library: &Path, device: Option<&str>, json: bool, out: &mut dyn Write) -> CliResult<()> {
    let missing = |e| CliError::input(format!("cannot read {}: {e}", library.display()));
    let library = library.canonicalize().map_err(missing)?;
    let report = play(&library, device, false)?;
    out.write_all(if json { report.json() } else { report.text() }.as_bytes())?;
    let error = match (&report.refusal, report.is_good()) {
        (None, true) => return Ok(()),
        (Some(why), _) => CliError::new(Exit::Input, format!("{}: {why}", library.display())),
        (None, false) => CliError::new(Exit::Failed, "the provider does not pass"),
    };
    Err(error.at("provider check").hint("see spec/provider-guide.md"))
}

/// Tries whether a library can be loaded, without loading it into this process.
pub(crate) fn probe(library: &Path) -> Result<(), String> {
    let report = play(library, None, true).map_err(|e| e.to_string())?;
    report.refusal.map_or(Ok(()), Err)
}

fn play(library: &Path, device: Option<&str>, load_only: bool) -> CliResult<Report> {
    let failed = |e| CliError::new(Exit::Internal, format!("cannot run a second process: {e}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["provider", "play"]).arg(library);
    if let Some(device) = device {
        command.args(["--device", device]);
    }
    if load_only {
        command.arg("--load-only");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let mut report = Report::new(library);
    let hung = listen(&mut child, &mut report);
    if hung {
        // It may be gone meanwhile.
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    report.ends(status, hung);
    Ok(report)
}

/// Reads what the child says; true if it fell silent.
fn listen(child: &mut Child, report: &mut Report) -> bool {
    let (to, lines) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Who listens no more has seen enough.
            lines.map(|line| to.send(line)).take_while(Result::is_ok).for_each(drop);
        });
    }
    hears_to_the_end(&lines, report)
}

fn hears_to_the_end(lines: &Receiver<String>, report: &mut Report) -> bool {
    loop {
        match lines.recv_timeout(if report.is_loading() { LOAD } else { HANG }) {
            Ok(line) => report.hears(&line),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => return true,
        }
    }
}
