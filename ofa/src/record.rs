//! The record that `warpline doctor -- CMD` reads: a line for each thing that the libraries did for a program. Written
//! only if `WARPLINE_VERBS_RECORD` names a file.
//!
//! Each line is appended by one write(2), so that several processes may write at once.

use std::fs::File;
use std::io::Write;

use crate::errno::Errno;

/// The file. `warpline-view` has the variable, too.
const FILE: &str = "WARPLINE_VERBS_RECORD";

/// Names of files that programs map to use devices.
const LIBRARIES: [&str; 8] =
    ["ibverbs", "rdmacm", "libmlx", "libefa", "libuct_ib", "libfabric", "libibumad", "libnccl"];

/// Appends `PID KIND TEXT`.
pub(crate) fn line(kind: &str, text: &str) {
    let Some(path) = std::env::var_os(FILE).filter(|path| !path.is_empty()) else { return };
    let line = format!("{} {kind} {text}\n", std::process::id());
    // Without the file there is no record.
    let _ = File::options()
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
}

/// Records a call that is refused.
pub(crate) fn call<T>(name: &str, result: Result<T, Errno>) -> Result<T, Errno> {
    result.inspect_err(|error| {
        line("refused", &format!("{name}: {}", std::io::Error::from_raw_os_error(error.0)));
    })
}

/// This library is loaded into the process.
pub(crate) fn loaded() {
    if std::env::var_os(FILE).is_some() {
        let program = std::env::current_exe().unwrap_or_default();
        line("loaded", &program.display().to_string());
        // Refused without memory: the record lacks what was mapped.
        let _ = kal_os::at_exit(at_exit);
    }
}

extern "C" fn at_exit() {
    for path in mapped() {
        line("mapped", &path);
    }
}

/// Whether a file of this name, or of one that begins so, is mapped.
pub(crate) fn is_mapped(name: &str) -> bool {
    mapped().iter().any(|path| path.contains(name))
}

/// The mapped files that programs use devices by, each once.
fn mapped() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = text.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let named = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        LIBRARIES.iter().any(|part| name.contains(part))
    };
    let mut all: Vec<String> = paths.filter(named).map(str::to_owned).collect();
    all.sort();
    all.dedup();
    all
}
