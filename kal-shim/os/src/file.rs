//! Allocation of a file's octets, for memory that processes share. No state.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

/// Allocates `octets` from offset `at` on; the file grows if it is shorter. `EFBIG` beyond the process's limit of file
/// sizes (`ulimit -f`): from the kernel that would be a signal, SIGXFSZ, which ends a process.
pub fn allocate(file: impl AsFd, at: u64, octets: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| at.saturating_add(octets) > limit) {
        return Err(Errno::FBIG.into());
    }
    Ok(retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), at, octets))?)
}
