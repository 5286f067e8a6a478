//! Runs a second process of this program, for code of providers, which may crash or hang. It reports in lines
//! of JSON on its standard output each step before it begins, and the results.
//!
//! The parent owns the child and kills it if a step takes too long. The child dies with the thread that started
//! it. Two children share nothing.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use serde_json::{Value, json};

use crate::error::{CliError, CliResult, Exit};
use crate::signals;

/// How often a wait checks for a signal.
const GLANCE: Duration = Duration::from_millis(100);

/// Limits of a child.
pub(crate) struct Bounds<'a> {
    /// Time-out of a step, from its line to the next.
    pub(crate) step: &'a dyn Fn(&str) -> Duration,
    /// Time-out of the whole run.
    pub(crate) whole: Option<Duration>,
    /// Whether it inherits standard error.
    pub(crate) shows_stderr: bool,
}

/// How a child broke off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Broken {
    /// The step that it had begun.
    pub(crate) step: String,
    /// How it ended, or that it hangs.
    pub(crate) why: String,
}

/// Runs this program with `args` and passes its lines to `on_line`, except those that begin a step. `None`: it
/// completed.
pub(crate) fn run(
    args: impl IntoIterator<Item = OsString>,
    bounds: &Bounds<'_>,
    on_line: &mut dyn FnMut(&Value) -> CliResult<()>,
) -> CliResult<Option<Broken>> {
    let mut command = program()?;
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    if !bounds.shows_stderr {
        command.stderr(Stdio::null());
    }
    let mut child = command.spawn().map_err(|error| not_started(&error))?;
    let (lines, since) = (lines(&mut child), Instant::now());
    let mut listener = Listener { lines, step: None, since, done: false };
    let mut silence = listener.listen(bounds, on_line);
    if matches!(silence, Ok(None)) && !ends(&child, (bounds.step)("")) {
        silence = Ok(Some("it hangs".to_owned()));
    }
    if !matches!(silence, Ok(None)) {
        // It may have ended meanwhile.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| not_started(&error))?;
    let silence = silence?;
    if silence.is_none() && listener.done && status.code().is_some() {
        return Ok(None);
    }
    let step = listener.step.unwrap_or_else(|| "ending the process".to_owned());
    Ok(Some(Broken { step, why: silence.unwrap_or_else(|| ended(status)) }))
}

/// A command of this program. It is found in /proc.
pub(crate) fn program() -> CliResult<Command> {
    std::env::current_exe().map(Command::new).map_err(|error| not_started(&error))
}

/// The environment does not allow a second process.
pub(crate) fn not_started(error: &std::io::Error) -> CliError {
    let failed = CliError::new(Exit::Failed, format!("cannot run a second process: {error}"));
    match error.kind() {
        _ if !Path::new("/proc/self/exe").exists() => failed
            .because("/proc is not mounted, or hides this process")
            .hint("mount it: `mount -t proc proc /proc`"),
        ErrorKind::NotFound => failed
            .because("the program's file was moved or replaced")
            .hint("start this command again"),
        ErrorKind::WouldBlock => failed.hint("raise the limit of processes (`ulimit -u`)"),
        _ => failed.or_hint(kal_os::remedy(error)),
    }
}

/// Whether a child that has closed its standard output ends soon: a library may close it and go on.
fn ends(child: &Child, bound: Duration) -> bool {
    let Ok(descriptor) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return true;
    };
    let bound = Timespec { tv_sec: bound.as_secs() as i64, tv_nsec: bound.subsec_nanos().into() };
    let ended = || poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&bound));
    retry_on_intr(ended) != Ok(0)
}

/// The child's output, line by line.
fn lines(child: &mut Child) -> Receiver<String> {
    let (to, lines) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
            let text = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
            // The receiver is dropped when it needs no more.
            text.map(|line| to.send(line)).take_while(Result::is_ok).for_each(drop);
        });
    }
    lines
}

struct Listener {
    lines: Receiver<String>,
    /// The step that has begun and not ended.
    step: Option<String>,
    /// When the child wrote its last protocol line.
    since: Instant,
    done: bool,
}

impl Listener {
    /// Reads the lines to the end; returns why if it gives up.
    fn listen(
        &mut self,
        bounds: &Bounds<'_>,
        on_line: &mut dyn FnMut(&Value) -> CliResult<()>,
    ) -> CliResult<Option<String>> {
        let start = Instant::now();
        loop {
            let step = (bounds.step)(self.step.as_deref().unwrap_or_default());
            let step = step.saturating_sub(self.since.elapsed());
            let left = bounds.whole.map(|whole| whole.saturating_sub(start.elapsed()));
            let time = left.map_or(step, |left| left.min(step));
            match self.lines.recv_timeout(time.min(GLANCE)) {
                Ok(line) => self.take(&line, on_line)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if signals::caught() => {
                    return Ok(Some("it was interrupted".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) if time > GLANCE => {}
                Err(RecvTimeoutError::Timeout) => {
                    let whole = bounds.whole.filter(|whole| start.elapsed() >= *whole);
                    let hangs = || "it hangs".to_owned();
                    let over = |whole: Duration| {
                        format!("it is not done after {} s, the limit for all", whole.as_secs_f64())
                    };
                    return Ok(Some(whole.map_or_else(hangs, over)));
                }
            }
        }
    }

    /// Handles a line of the child; skips output of the library.
    fn take(
        &mut self,
        line: &str,
        on_line: &mut dyn FnMut(&Value) -> CliResult<()>,
    ) -> CliResult<()> {
        let Ok(line @ Value::Object(_)) = serde_json::from_str::<Value>(line) else {
            return Ok(());
        };
        if let Some(step) = line["begins"].as_str() {
            (self.step, self.since) = (Some(step.to_owned()), Instant::now());
            return Ok(());
        }
        (self.step, self.since) = (None, Instant::now());
        self.done = self.done || line["done"] == json!(true);
        on_line(&line)
    }
}

/// In the child: reports the step that begins.
pub(crate) fn begin(out: &mut dyn Write, step: &str) -> CliResult<()> {
    report(out, &json!({ "begins": step }))
}

/// In the child: reports a result.
pub(crate) fn report(out: &mut dyn Write, what: &Value) -> CliResult<()> {
    writeln!(out, "{what}")?;
    Ok(out.flush()?)
}

/// In the child: reports that all is done.
pub(crate) fn done(out: &mut dyn Write) -> CliResult<()> {
    report(out, &json!({ "done": true }))
}

/// In the child, first: makes the kernel kill it when its parent ends.
pub(crate) fn die_with_the_parent() {
    // Ignored: without it the child outlives a parent that is killed.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    signals::leave_to_parent();
}

fn ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("the process is killed by {}", name(signal)),
        (_, code) => format!("the process ends with status {}", code.unwrap_or(-1)),
    }
}

/// Names of signals that end a broken library.
fn name(signal: i32) -> String {
    let name = match signal {
        4 => "illegal instruction",
        6 => "abort",
        7 => "bus error; is the file cut short?",
        8 => "arithmetic error",
        9 => "kill",
        11 => "segmentation fault",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}
