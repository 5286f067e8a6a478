//! Processor time of a process's threads, as /proc reports it (proc(5), schedstat). Plain numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Nanoseconds of each thread so far: running, and waiting for a processor.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads(BTreeMap<u32, (u64, u64)>);

/// Processor time between two moments, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Processor {
    /// The busiest thread.
    pub(crate) thread: u32,
    /// What it ran.
    pub(crate) ran: f64,
    /// How long that thread was ready to run and waited for a processor.
    pub(crate) waited: f64,
}

impl Threads {
    /// `None`: the kernel does not report it.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let times = |path: PathBuf| {
            let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
            let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().ok());
            Some((numbers.next()??, numbers.next()??))
        };
        let of_task = |task: std::fs::DirEntry| {
            let id = task.file_name().to_str()?.parse().ok()?;
            Some((id, times(task.path())?))
        };
        let all: BTreeMap<_, _> = tasks.flatten().filter_map(of_task).collect();
        (!all.is_empty()).then_some(Self(all))
    }

    /// Of the thread that ran or waited most since `before`.
    pub(super) fn since(&self, before: &Self) -> Processor {
        let since = |(id, (ran, waited)): (&u32, &(u64, u64))| {
            let (ran_before, waited_before) = before.0.get(id).copied().unwrap_or_default();
            let seconds = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1e9;
            let (ran, waited) = (seconds(*ran, ran_before), seconds(*waited, waited_before));
            Processor { thread: *id, ran, waited }
        };
        let busy = |of: &Processor| of.ran + of.waited;
        let all = self.0.iter().map(since);
        all.max_by(|a, b| busy(a).total_cmp(&busy(b))).unwrap_or_default()
    }
}
