//! Checks of the processes that publish state pages: files of dead processes, versions of the library.

use super::Finding;
use crate::error::CliResult;
use crate::output::count;
use crate::stat::pages::Snapshot;

pub(super) fn findings() -> CliResult<Vec<Finding>> {
    let snapshot = Snapshot::take(None, false)?;
    let mut all =
        vec![Finding::ok("processes", count(snapshot.processes.len() as u64, "process") + " seen")];
    if snapshot.removed > 0 {
        let removed = count(snapshot.removed.into(), "state page");
        all.push(Finding::ok("dead processes", format!("{removed} of theirs removed")));
    }
    for (file, what) in &snapshot.troubles {
        all.push(Finding::warn("state page", format!("{file}: {what}"), format!("rm -r {file}")));
    }
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
