//! Log output of verbs programs: to standard error, or to the file in `WARPLINE_LOG_FILE`.
//!
//! Set up once, when the configuration is read, without a lock that a child made by fork(2) could find
//! held; any thread writes lines. What is logged is chosen by `WARPLINE_LOG`, else by `[log]` of the
//! configuration file; by default warnings. Never in colour: standard error is often a file. Totals of
//! the wrapper `stats` are also written when the process ends, because programs often end with their
//! device open.

use std::fs::File;
use std::io::{Write, stderr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use kal_os::fork::PerProcess;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use ual::config::{Log, LogFormat};
use ual::vp_hooks::stats;

use crate::fork::Here;

const FILTER: &str = "WARPLINE_LOG";
const FILE: &str = "WARPLINE_LOG_FILE";

/// Sets up where log lines go, the first time.
pub(crate) fn init(log: &Log) {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if !BEGUN.swap(true, Ordering::Relaxed) {
        set_up(log);
    }
}

fn set_up(log: &Log) {
    let asked = std::env::var(FILTER).ok().filter(|text| !text.is_empty());
    let text = asked.or_else(|| log.filter.clone()).unwrap_or_else(|| "warn".into());
    let filter = EnvFilter::try_new(&text).unwrap_or_else(|error| {
        complain(&format!("the log filter `{text:.100}` is ignored: {error}"));
        EnvFilter::new("warn")
    });
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer());
    // Refused if the process has a subscriber already, which then gets the lines.
    let _ = match log.format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    if !kal_os::at_exit(at_exit) {
        tracing::warn!("no totals when the process ends: atexit failed");
    }
}

/// The file, if one is named and can be written. Several processes may append to it.
fn file() -> Option<&'static File> {
    static NAMED: PerProcess<OnceLock<Option<File>>> = PerProcess::new();
    let open = || {
        let path = std::env::var_os(FILE).filter(|path| !path.is_empty())?;
        let open = File::options().create(true).append(true).open(&path);
        open.map_err(|e| complain(&format!("cannot write to {} ({FILE}): {e}", path.display())))
            .ok()
    };
    NAMED.get::<Here>().get_or_init(open).as_ref()
}

fn writer() -> BoxMakeWriter {
    match file() {
        Some(file) => BoxMakeWriter::new(move || file),
        None => BoxMakeWriter::new(stderr),
    }
}

fn complain(what: &str) {
    // Without standard error the message is lost.
    let _ = writeln!(stderr(), "warpline: {what}");
}

/// Written directly: the thread-local state of logging no longer exists.
extern "C" fn at_exit() {
    let line = |device: &str, verb| format!("{}: {device}: {verb}\n", stats::TARGET);
    let all = stats::snapshots().into_iter();
    let text: String =
        all.flat_map(|s| s.verbs.into_iter().map(move |v| line(&s.device, v))).collect();
    // As above.
    let _ = match file() {
        Some(mut file) => file.write_all(text.as_bytes()),
        None => stderr().write_all(text.as_bytes()),
    };
}
