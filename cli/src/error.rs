//! Errors for the user: what went wrong, where, the probable cause, and what to do.
//!
//! Owns nothing; used by every command on the main thread. A dead peer is such an error, too.

use std::io::{self, Write};
use std::net::SocketAddr;

use clap::error::ErrorKind;
use itapi::{ConnEvent, ConnectionEnd};
use kal_os::Use;
use thiserror::Error;

use crate::{output, values};

/// Exit statuses; `--help` lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The operation failed: loss, mismatch, a lost peer.
    Failed = 1,
    /// The command line is invalid (clap uses the same number).
    Usage = 2,
    /// A file, capture or hex string cannot be read or is malformed.
    Input = 3,
    /// No usable device, or no connection.
    Network = 4,
    /// A bug in warpline.
    Internal = 70,
    /// The program to run cannot be started (env(1) has the same number).
    NotStarted = 126,
    /// The program to run does not exist, likewise.
    NoProgram = 127,
}

/// Columns before a fact.
const INDENT: usize = 9;

/// A failure to show to the user.
#[derive(Debug, Error)]
#[error("{what}")]
pub(crate) struct CliError {
    exit: Exit,
    what: String,
    place: Option<String>,
    cause: Option<String>,
    remedy: Option<String>,
    /// The reader of the output closed the pipe: no message.
    quiet: bool,
}

pub(crate) type CliResult<T> = Result<T, CliError>;

impl CliError {
    /// An error with nothing but what happened.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { exit, what, place: None, cause: None, remedy: None, quiet: false }
    }

    /// The error of a failed or broken connection.
    pub(crate) fn connection(exit: Exit, event: &ConnEvent) -> Self {
        match event {
            ConnEvent::Failed(error) => {
                let (ends, reason) = (&error.ends, &error.reason);
                let what = format!("no RDMA connection from {} to {}", ends.local, ends.remote);
                Self::new(exit, what)
                    .because(format!("{}: {reason}", reason.code()))
                    .hint(reason.remedy())
            }
            ConnEvent::Broken { ends, cause, lost } => {
                let what = format!("the connection of {} with {} broke", ends.local, ends.remote);
                Self::new(exit, what).because(format!("{}: {cause}; {lost}", cause.code()))
            }
            ConnEvent::Rejected { ends, .. } => {
                let by = format!("the application at {} rejected the connection", ends.remote);
                Self::new(exit, format!("cm-rejected: {by} from {}", ends.local))
                    .or_hint(event.remedy())
            }
            other => Self::new(exit, other.to_string()),
        }
    }

    /// Adds where it happened, unless that is known.
    pub(crate) fn or_at(mut self, place: &str) -> Self {
        self.place.get_or_insert_with(|| place.to_owned());
        self
    }

    /// Replaces the exit status.
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

    /// The probable cause, unless it is known.
    pub(crate) fn or_because(mut self, cause: &str) -> Self {
        self.cause.get_or_insert_with(|| cause.to_owned());
        self
    }

    /// What to do about it.
    pub(crate) fn hint(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// What to do about it, unless that is known.
    pub(crate) fn or_hint<'a>(mut self, remedy: impl Into<Option<&'a str>>) -> Self {
        if self.remedy.is_none() {
            self.remedy = remedy.into().map(str::to_owned);
        }
        self
    }

    /// What to do if this host refuses the address.
    pub(crate) fn hint_at(self, error: &io::Error, address: &SocketAddr, purpose: Use) -> Self {
        let remedy = kal_os::address_remedy(error, address, purpose);
        self.or_hint(remedy.or(kal_os::remedy(error)))
    }

    /// Input that cannot be read.
    pub(crate) fn input(what: impl Into<String>) -> Self {
        Self::new(Exit::Input, what)
    }

    /// The error of a peer's name or address that gives no address.
    pub(crate) fn unresolved(error: &io::Error) -> Self {
        let (exit, remedy) = match error.kind() {
            io::ErrorKind::InvalidInput => (Exit::Usage, "write HOST, HOST:PORT or [IPV6]:PORT"),
            _ => (
                Exit::Network,
                "see whether the name is right, and known here: `getent hosts NAME`",
            ),
        };
        Self::new(exit, error.to_string()).hint(remedy)
    }

    /// What happened and its cause, for an error that contains this one.
    pub(crate) fn brief(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.what),
            None => self.what.clone(),
        }
    }

    /// What to do about it, if that is known.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    /// Exit status for the shell.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The whole message, one fact per line; empty if the output was closed. Lines longer than
    /// `width` are wrapped between words.
    pub(crate) fn render(&self, width: usize) -> String {
        if self.quiet {
            return String::new();
        }
        let mut text = output::folded(&format!("warpline: {}", self.what), width, 2);
        let facts = [("where", &self.place), ("cause", &self.cause), ("try", &self.remedy)];
        for (name, fact) in facts {
            if let Some(fact) = fact {
                text += &output::folded(&format!("  {name:<6} {fact}"), width, INDENT);
            }
        }
        text
    }

    /// Writes the message to standard error: as wide as the terminal, and with unbroken lines for a file.
    pub(crate) fn print(&self) {
        let width = rustix::termios::tcgetwinsize(io::stderr()).map(|size| size.ws_col.into());
        let width = width.ok().filter(|&width| width > 0).unwrap_or(usize::MAX);
        // With standard error gone too, the exit status is all that is left to say.
        let _ = io::stderr().write_all(self.render(width).as_bytes());
    }
}

/// The error of writing the output.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        let mut this = Self::new(Exit::Failed, format!("cannot write the output: {error}"));
        this.quiet = quiet;
        this
    }
}

/// The access layer's messages are complete and name both ends.
impl From<itapi::Error> for CliError {
    fn from(error: itapi::Error) -> Self {
        match &error {
            itapi::Error::Access(itapi::AccessError::Config(why)) => {
                Self::new(Exit::Usage, why.to_string())
                    .hint("see warpline.toml(5) for each key and its default")
            }
            itapi::Error::Access(error) => {
                Self::new(Exit::Network, error.what()).or_hint(error.remedy())
            }
            itapi::Error::Connection(event) => Self::connection(Exit::Network, event),
            itapi::Error::Incomplete { end: Some(end), .. } => match &**end {
                ConnectionEnd::Refused(event) => Self::connection(Exit::Network, event),
                _ => Self::new(Exit::Network, error.to_string()),
            },
            _ => Self::new(Exit::Network, error.to_string()),
        }
    }
}

/// Converts clap's error to the form of all other errors.
impl From<clap::Error> for CliError {
    fn from(error: clap::Error) -> Self {
        let text = error.to_string();
        let mut parts = text.trim_start_matches("error: ").split("\n\n").map(str::trim);
        let mut what = parts.next().unwrap_or_default().to_owned();
        if let Some(source) = std::error::Error::source(&error) {
            what = what.replace(&source.to_string(), &values::in_words(source));
        }
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut this = Self::new(Exit::Usage, words(&what));
        let mut remedy = Vec::new();
        for part in parts {
            if let Some(tip) = part.strip_prefix("tip: ") {
                remedy.push(words(tip));
            } else if let Some(usage) = part.strip_prefix("Usage: ") {
                this = this.at(words(usage));
            }
        }
        remedy.push(match error.kind() {
            ErrorKind::InvalidSubcommand => "--help lists the commands".to_owned(),
            _ => "--help explains all options".to_owned(),
        });
        this.hint(remedy.join("; "))
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
            error.render(80),
            "warpline: cannot read x\n  where  demo\n  cause  it is a folder\n  try    name a file\n"
        );
    }

    #[test]
    fn lines_break_between_words() {
        let error =
            CliError::input("cannot read a file of a long name").because("there is no such file");
        assert_eq!(
            error.render(22),
            "warpline: cannot read\n  a file of a long\n  name\n  cause  there is no\n         such file\n"
        );
        assert_eq!(error.render(usize::MAX).lines().count(), 2);
    }

    #[test]
    fn the_remedy_of_the_layer_below_is_a_fact_of_its_own() {
        let attempt = || "bind to [fe80::1]:7".to_owned();
        let source = || io::Error::from_raw_os_error(22);
        let below =
            itapi::AccessError::Address { attempt: attempt(), source: source(), remedy: "do" };
        let whole = below.to_string();
        let error =
            CliError::from(itapi::Error::from(below)).or_at("ping").or_at("y").or_hint("no");
        let (what, remedy) = whole.rsplit_once("; ").unwrap();
        let wanted = format!("warpline: {what}\n  where  ping\n  try    {remedy}\n");
        assert_eq!(error.render(usize::MAX), wanted);
    }

    #[test]
    fn a_closed_pipe_has_no_message() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.render(80), "");
    }
}
