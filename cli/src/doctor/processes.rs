//! Checks of the processes that publish state pages: files of dead processes, versions of the library.

use std::path::Path;

use state_page::place;

use super::Finding;
use super::host::is_own;
use crate::error::CliResult;
use crate::output::count;
use crate::stat::pages::{Snapshot, uid};

pub(super) fn findings() -> CliResult<Vec<Finding>> {
    let snapshot = Snapshot::take(None, false)?;
    let mut all = vec![seen(&snapshot)];
    if snapshot.removed > 0 {
        let removed = count(snapshot.removed.into(), "state page");
        all.push(Finding::ok("dead processes", format!("{removed} of theirs removed")));
    }
    all.extend(snapshot.troubles.iter().filter_map(|(file, what)| trouble(file, what)));
    let own = env!("CARGO_PKG_VERSION");
    for seen in snapshot.processes.iter().filter(|seen| seen.page.process.library != own) {
        let of = &seen.page.process;
        let says = format!("{} {} has version {}, this is {own}", of.pid, of.exe, of.library);
        all.push(Finding::warn("versions", says, "start it again with this version"));
    }
    for seen in snapshot.processes.iter().filter(|seen| seen.page.process.unpublished > 0) {
        let of = &seen.page.process;
        let says = format!("{} {}: {} have no room in its page", of.pid, of.exe, of.unpublished);
        all.push(Finding::warn(
            "state page",
            says,
            "make room in the file system of the state pages",
        ));
    }
    Ok(all)
}

/// How many processes there are, and which are stopped.
fn seen(snapshot: &Snapshot) -> Finding {
    let (check, says) = ("processes", count(snapshot.processes.len() as u64, "process") + " seen");
    let all = snapshot.processes.iter().map(|seen| &seen.page.process);
    let stopped: Vec<_> = all.filter(|of| kal_os::is_stopped(of.pid as i32)).collect();
    if stopped.is_empty() {
        return Finding::ok(check, says);
    }
    let named: Vec<_> = stopped.iter().map(|of| format!("{} {}", of.pid, of.exe)).collect();
    let pids: Vec<_> = stopped.iter().map(|of| of.pid.to_string()).collect();
    let says = format!("{says}; stopped: {}", named.join(", "));
    Finding::warn(check, says, format!("kill -CONT {}", pids.join(" ")))
}

/// A file that cannot be used. `None`: it is the directory of pages, of which another check reports.
fn trouble(file: &str, what: &str) -> Option<Finding> {
    let path = Path::new(file);
    let remedy = match path.is_dir() {
        true if place::open_directory(path, uid()).is_err() => return None,
        true => format!("remove from {file} what is not needed"),
        false if is_own(path) => format!("rm {file}"),
        false => format!("leave it, as it is not yours; its owner may remove it: ls -l {file}"),
    };
    Some(Finding::warn("state page", format!("{file}: {what}"), remedy))
}
