//! Errors for the user: what went wrong, where, the probable cause, and what to do.
//!
//! Owns nothing; used by every command on the main thread. A dead peer becomes one of these.

use std::io;

use thiserror::Error;

/// Exit statuses; `--help` lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The operation ran and did not succeed: loss, mismatch, a lost peer.
    Failed = 1,
    /// The command line makes no sense (clap uses the same number).
    Usage = 2,
    /// A file, capture or hex string cannot be read or is malformed.
    Input = 3,
    /// No usable device, or no connection.
    Network = 4,
    /// A bug in warpline.
    Internal = 70,
    /// A program to run that cannot be started (env(1) has the same number).
    NotStarted = 126,
    /// A program to run that is not there, likewise.
    NoProgram = 127,
}

/// A failure to be shown to the user.
#[derive(Debug, Error)]
#[error("{what}")]
pub(crate) struct CliError {
    exit: Exit,
    what: String,
    place: Option<String>,
    cause: Option<String>,
    remedy: Option<String>,
    /// The reader of our output went away: nothing to say, nobody to say it to.
    quiet: bool,
}

pub(crate) type CliResult<T> = Result<T, CliError>;

impl CliError {
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), place: None, cause: None, remedy: None, quiet: false }
    }

    /// The same with another exit status.
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Where it happened: command, step, address, offset.
    pub(crate) fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// The probable cause.
    pub(crate) fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// What to do about it.
    pub(crate) fn hint(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Input that cannot be read.
    pub(crate) fn input(what: impl Into<String>) -> Self {
        Self::new(Exit::Input, what)
    }

    /// Exit status for the shell.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The whole message, one fact per line; empty if there is nobody to read it.
    pub(crate) fn render(&self) -> String {
        if self.quiet {
            return String::new();
        }
        let mut text = format!("warpline: {}\n", self.what);
        let facts = [("where", &self.place), ("cause", &self.cause), ("try", &self.remedy)];
        for (name, fact) in facts {
            if let Some(fact) = fact {
                text.push_str(&format!("  {name:<6} {fact}\n"));
            }
        }
        text
    }
}

/// Writing our own output failed.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        let mut this = Self::new(Exit::Failed, format!("cannot write the output: {error}"));
        this.quiet = quiet;
        this
    }
}

/// The access layer's messages are complete sentences already; they name both ends.
impl From<itapi::Error> for CliError {
    fn from(error: itapi::Error) -> Self {
        let exit = match &error {
            itapi::Error::Access(itapi::AccessError::Config(_)) => Exit::Usage,
            _ => Exit::Network,
        };
        Self::new(exit, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_its_line() {
        let error = CliError::input("cannot read x")
            .at("demo")
            .because("it is a folder")
            .hint("name a file");
        assert_eq!(
            error.render(),
            "warpline: cannot read x\n  where  demo\n  cause  it is a folder\n  try    name a file\n"
        );
    }

    #[test]
    fn a_closed_pipe_is_not_worth_a_word() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.render(), "");
    }
}
