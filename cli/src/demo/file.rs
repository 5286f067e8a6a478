//! The file that the demo moves. Owned by the parent's main thread, read chunk by chunk, so its size does not
//! matter. A file whose size changes meanwhile is an error.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::proto::Plan;
use crate::error::{CliError, CliResult, Exit};

/// An open file and its chunk size.
pub(super) struct Source {
    file: File,
    path: PathBuf,
    plan: Plan,
}

impl Source {
    /// Opens `path`, or this program's own executable.
    pub(super) fn open(path: Option<&Path>, chunk: u32) -> CliResult<Self> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => std::env::current_exe().map_err(|e| {
                CliError::input(format!("cannot find this program's own executable: {e}"))
                    .hint("name a file: `warpline demo FILE`")
            })?,
        };
        let refuse = |why: String| {
            CliError::input(format!("cannot move {}: {why}", path.display()))
                .at("demo, opening the file")
                .hint("name a regular file that you may read")
        };
        let file = File::open(&path).map_err(|e| refuse(e.to_string()))?;
        let about = file.metadata().map_err(|e| refuse(e.to_string()))?;
        if !about.is_file() {
            return Err(refuse("it is not a regular file".into()));
        }
        let octets = about.len();
        // A small file needs no large buffers; an empty one needs a chunk size other than 0.
        let chunk = u64::from(chunk).min(octets.max(1)) as u32;
        Ok(Self { file, path, plan: Plan { octets, chunk } })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan
    }

    /// Reads chunk `index` into `chunk`.
    pub(super) fn read(&self, index: u64, chunk: &mut Vec<u8>) -> CliResult<()> {
        chunk.resize(self.plan.len_of(index) as usize, 0);
        let offset = index * u64::from(self.plan.chunk);
        self.file.read_exact_at(chunk, offset).map_err(|e| {
            CliError::new(Exit::Input, format!("cannot read {}: {e}", self.path.display()))
                .at(format!("demo, file offset {offset}"))
                .because("the file became shorter while it was moved, or its disk fails")
                .hint("move a copy that no program writes to")
        })
    }
}
