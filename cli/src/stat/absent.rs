//! Why there is no state page: of a process, or of any. No state.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::pages::{Snapshot, uid};
use crate::error::{CliError, Exit};

/// The command that shows which processes can be named.
pub(crate) const OTHERS: &str = "`warpline stat` lists the processes that publish their state";

/// There is none of this process.
pub(crate) fn of(pid: u32, snapshot: &Snapshot) -> CliError {
    let error = |what: String| CliError::new(Exit::Failed, what).at(snapshot.places());
    let own_file = |(file, _): &&(String, String)| {
        let name = Path::new(file).file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&format!("{pid}.")))
    };
    let Ok(process) = std::fs::metadata(format!("/proc/{pid}")) else {
        return error(format!("there is no process {pid}")).hint(OTHERS);
    };
    if let Some((file, what)) = snapshot.troubles.iter().find(own_file) {
        return error(format!("the state page of process {pid} cannot be used"))
            .because(format!("{file}: {what}"))
            .hint("see `warpline doctor`");
    }
    if process.uid() != uid() && uid() != 0 {
        return error(format!("process {pid} belongs to user {}", process.uid()))
            .hint("run this command as that user, or as root");
    }
    error(format!("process {pid} publishes nothing")).because(cause(snapshot)).hint(OTHERS)
}

/// There is none at all.
pub(super) fn of_all(snapshot: &Snapshot) -> CliError {
    CliError::new(Exit::Failed, "no process publishes anything")
        .at(snapshot.places())
        .because(cause(snapshot))
        .hint("see `warpline doctor`; processes of other users: `--all`, as root")
}

fn cause(snapshot: &Snapshot) -> String {
    snapshot.complaint().unwrap_or_else(|| {
        "it does not use Warpline, its configuration says `[observe] publish = false`, or it runs with \
         more rights than its user has (setuid)"
            .into()
    })
}
