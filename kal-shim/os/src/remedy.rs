//! Advice for errors that a limit of the process or of the system caused. No state.

use std::io;

use rustix::io::Errno;

/// Text to append to the error's own; empty if there is no advice.
pub fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => "; raise the process's limit of descriptors (`ulimit -n`)",
        Some(Errno::NFILE) => "; raise the system's limit of descriptors (fs.file-max)",
        Some(Errno::FBIG) => "; raise the process's limit of file sizes (`ulimit -f`)",
        Some(Errno::NOMEM) => "; free memory, or raise the process's limit (`ulimit -v`)",
        _ => "",
    }
}
