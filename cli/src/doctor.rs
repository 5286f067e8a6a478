//! `warpline doctor`: checks this machine, a peer, or a program, for causes of failure or low speed, and names the command
//! that mends each. It changes nothing, except that it removes state pages of dead processes.

mod args;
mod children;
mod host;
mod peer;
mod processes;
mod program;

use std::io::Write;

use serde_json::json;

pub(crate) use args::DoctorArgs;

use crate::error::{CliError, CliResult, Exit};

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    Ok,
    Warn,
    Fail,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Finding {
    /// The name of the check.
    check: String,
    state: State,
    says: String,
    /// The command that mends it, or other advice.
    remedy: Option<String>,
}

impl Finding {
    fn ok(check: &str, says: impl Into<String>) -> Self {
        Self { check: check.to_owned(), state: State::Ok, says: says.into(), remedy: None }
    }

    fn warn(check: &str, says: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { check: check.to_owned(), state: State::Warn, says: says.into(), remedy }
    }

    fn fail(check: &str, says: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Fail, ..Self::warn(check, says, remedy) }
    }
}

/// Runs all checks; fails if one of them does.
pub(crate) fn run(args: &DoctorArgs, out: &mut dyn Write) -> CliResult<()> {
    let findings = match &args.peer {
        _ if !args.command.is_empty() => program::findings(args)?,
        Some(peer) => peer::findings(peer, args.limit)?,
        None => host::findings().into_iter().chain(processes::findings()?).collect(),
    };
    let worst = findings.iter().map(|finding| finding.state).max().unwrap_or(State::Ok);
    match args.json {
        true => {
            let all: Vec<_> = findings.iter().map(machine_readable).collect();
            writeln!(out, "{:#}", json!({ "findings": all, "worst": worst.name() }))?;
        }
        false => findings.iter().try_for_each(|finding| out.write_all(text(finding).as_bytes()))?,
    }
    if worst < State::Fail {
        return Ok(());
    }
    let failed = findings.iter().filter(|finding| finding.state == State::Fail).count();
    Err(CliError::new(Exit::Failed, format!("{failed} of {} checks failed", findings.len()))
        .at("doctor")
        .hint("do what is said above behind `try`"))
}

fn text(finding: &Finding) -> String {
    let Finding { check, state, says, remedy } = finding;
    let mut text = format!("{:<4}  {check}: {says}\n", state.name());
    if let Some(remedy) = remedy {
        text += &format!("      try {remedy}\n");
    }
    text
}

fn machine_readable(finding: &Finding) -> serde_json::Value {
    json!({
        "check": finding.check,
        "state": finding.state.name(),
        "says": finding.says,
        "remedy": finding.remedy,
    })
}
