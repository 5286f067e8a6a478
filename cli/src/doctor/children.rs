//! A program that runs for a bounded time, and all processes that it starts: these become children of this process when
//! their parents end (prctl(2), `PR_SET_CHILD_SUBREAPER`), and none outlives the command.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

use crate::error::{CliError, CliResult, Exit};
use crate::signals;

/// How often it is checked whether the program has ended.
const GLANCE: Duration = Duration::from_millis(20);
/// How long processes have to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// How the program was, and what its processes had mapped in the end.
pub(super) struct Run {
    /// `None`: it was ended.
    pub(super) status: Option<ExitStatus>,
    /// Files, by process.
    pub(super) mapped: BTreeMap<i32, BTreeSet<String>>,
}

/// Runs it until it ends, for at most so long, and ends what is left.
pub(super) fn run(mut command: Command, within: Duration) -> CliResult<Run> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        CliError::new(Exit::NotStarted, format!("{what}: {error}"))
    };
    signals::catch()?;
    set_child_subreaper(Some(getpid())).map_err(|e| failed("cannot keep its children", &e))?;
    let what = format!("cannot start {}", command.get_program().display());
    let mut child = command.stdin(Stdio::null()).spawn().map_err(|error| failed(&what, &error))?;
    let since = Instant::now();
    let mut status = None;
    while status.is_none() && since.elapsed() < within && !signals::caught() {
        std::thread::sleep(GLANCE);
        status = child.try_wait().map_err(|error| failed("waiting", &error))?;
    }
    let mapped =
        descendants().into_iter().map(|process| (process.as_raw_nonzero().get(), maps(process)));
    let mapped = mapped.collect();
    end(&mut child, status.is_some());
    Ok(Run { status, mapped })
}

/// Ends all processes below this one: at first they are asked to.
fn end(child: &mut Child, mut ended: bool) {
    let since = Instant::now();
    loop {
        ended = ended || !matches!(child.try_wait(), Ok(None));
        if ended {
            // Those whose parents have ended.
            while matches!(waitpid(None, WaitOptions::NOHANG), Ok(Some(_))) {}
        }
        let all = descendants();
        if all.is_empty() {
            return;
        }
        let signal = if since.elapsed() < GRACE { Signal::TERM } else { Signal::KILL };
        for process in all {
            // It may have ended meanwhile.
            let _ = kill_process(process, signal);
        }
        std::thread::sleep(GLANCE);
    }
}

/// The processes below this one.
fn descendants() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let parents: Vec<(i32, i32)> = entries
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // Behind the name, which may contain anything: the state, and the parent.
            let mut fields = stat.rsplit_once(") ")?.1.split(' ');
            let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
            (state != "Z").then_some((process, parent))
        })
        .collect();
    let mut found = vec![getpid().as_raw_nonzero().get()];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(process, _)| process));
        at += 1;
    }
    found.into_iter().skip(1).filter_map(Pid::from_raw).collect()
}

/// The files that a process has mapped.
fn maps(process: Pid) -> BTreeSet<String> {
    let file = format!("/proc/{}/maps", process.as_raw_nonzero());
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.find('/').map(|at| line[at..].to_owned())).collect()
}

/// How a program ended, in words.
pub(super) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        _ => "ended".to_owned(),
    }
}
