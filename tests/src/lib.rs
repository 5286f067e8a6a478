//! Support for the end-to-end tests: visible skips, a raw iWARP peer, test vectors.

#![forbid(unsafe_code)]

pub mod c;
pub mod delay;
pub mod netns;
pub mod raw;
pub mod target;
pub mod vectors;

pub use warpline_skip::{Reason, skip};

/// Octets of this process in memory (VmRSS).
pub fn rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok()
        })
        .map_or(0, |kib: u64| kib * 1024)
}

/// Raises the soft limit of open files to the hard one, for programs with many connections.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Ignored: the first connection beyond the limit fails with the cause.
    let _ = setrlimit(Resource::Nofile, limit);
}
