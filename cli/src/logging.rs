//! Logs and the panic hook. Set up once by `main`; the hook runs on the thread that panics, ends the
//! process and shows no Rust internals.

use std::env::VarError;
use std::io::{IsTerminal, Write, stderr};

use tracing_subscriber::EnvFilter;
use ual::config::{Log, LogFormat};

use crate::error::Exit;

/// The default filter.
const DEFAULT: &str = "warn";
/// Warnings of variables without effect.
const SAID: &str = "ual::config::variables=off";

/// Logs to standard error with the filter of `RUST_LOG`, of `[log]` in the configuration file, or else only
/// warnings. A filter that cannot be parsed is reported and replaced by the default. A second process does not repeat
/// what the first has said of the environment.
pub(crate) fn init(is_second: bool) {
    // A file that cannot be read is an error of the command, which reads it again.
    let Log { filter, format } = ual::Config::load().map_or_else(|_| Log::default(), |c| c.log);
    let (source, text) = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => ("RUST_LOG", text),
        other => {
            if !is_second && matches!(other, Err(VarError::NotUnicode(_))) {
                let _ = writeln!(stderr(), "warpline: RUST_LOG is ignored: it is not UTF-8");
            }
            ("log.filter", filter.unwrap_or_default())
        }
    };
    let filter = match text.as_str() {
        "" => EnvFilter::new(DEFAULT),
        text => EnvFilter::try_new(text).unwrap_or_else(|error| {
            let _ = writeln!(stderr(), "warpline: {source} is ignored: {error}");
            EnvFilter::new(DEFAULT)
        }),
    };
    let said = is_second.then(|| SAID.parse().ok()).flatten();
    let filter = said.into_iter().fold(filter, EnvFilter::add_directive);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    match format {
        LogFormat::Text => lines.with_ansi(stderr().is_terminal()).init(),
        LogFormat::Json => lines.json().init(),
    }
}

/// Reports a panic, which is a bug, in one line and exits with its own status.
pub(crate) fn hide_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place =
            info.location().map_or_else(String::new, |l| format!(" at {}:{}", l.file(), l.line()));
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let what = text.unwrap_or("no details");
        let _ = writeln!(
            stderr(),
            "warpline: internal error{place}: {what}\n  try    report it with the command line that led here"
        );
        std::process::exit(i32::from(Exit::Internal as u8));
    }));
}
