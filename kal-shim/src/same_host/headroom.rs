//! Memory left in the process's memory cgroup (cgroups(7), both versions).
//!
//! At a cgroup's limit the kernel kills a process instead of refusing memory, so optional users of memory check
//! first. One reading takes some fifty system calls, about as long as ten start-ups, so it counts for
//! [`VALID_NS`], for a small part of what was left. Owned by the process; any thread asks, under a lock.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use kal_os::fork::PerProcess;
use kal_os::lock;

use crate::clock::now_ns;
use crate::fork::Host;

/// How long a reading counts: the program itself may use up in this time what was left.
const VALID_NS: u64 = 100_000_000;
/// The part of what was left that may be taken without another reading: one in so many octets.
const PART: u64 = 16;

/// What the last reading allows.
#[derive(Default)]
struct Allowance {
    octets: u64,
    until: u64,
}

static ALLOWANCE: PerProcess<Mutex<Allowance>> = PerProcess::new();

/// Whether the memory cgroups of this process have room for `octets` more. True if they have no limit, or it is
/// not known.
pub fn has_headroom(octets: u64) -> bool {
    lock(ALLOWANCE.get::<Host>()).take(octets, now_ns(), headroom)
}

impl Allowance {
    fn take(&mut self, octets: u64, now: u64, read: impl Fn() -> Option<u64>) -> bool {
        if now < self.until && octets <= self.octets {
            self.octets -= octets;
            return true;
        }
        let left = read().unwrap_or(u64::MAX);
        *self = Self { octets: left / PART, until: now + VALID_NS };
        octets <= left
    }
}

/// Paths and file names of the hierarchies.
struct Files {
    root: &'static str,
    most: &'static str,
    used: &'static str,
    /// Keys of `memory.stat`: pages of files, which the kernel reclaims first.
    files: [&'static str; 2],
}

const V1: Files = Files {
    root: "/sys/fs/cgroup/memory",
    most: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    files: ["total_inactive_file", "total_active_file"],
};
const V2: Files = Files {
    root: "/sys/fs/cgroup",
    most: "memory.max",
    used: "memory.current",
    files: ["inactive_file", "active_file"],
};

/// Octets left in the cgroup of this process and those above it; `None`: no limit, or not known.
fn headroom() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(of_line).min()
}

/// Of a line `ID:CONTROLLERS:PATH`.
fn of_line(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let files = match controllers {
        "" => V2,
        some if some.split(',').any(|one| one == "memory") => V1,
        _ => return None,
    };
    let group = PathBuf::from(path.trim_start_matches('/'));
    // A container may see its own group as the root.
    group.ancestors().filter_map(|group| of_group(&files, &Path::new(files.root).join(group))).min()
}

fn of_group(files: &Files, group: &Path) -> Option<u64> {
    let number = |name: &str| read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // `max`, or no such file: no limit.
    let most = number(files.most)?;
    let used = number(files.used)?;
    let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
    Some(most.saturating_sub(used.saturating_sub(file_pages(&stat, files.files))))
}

fn file_pages(stat: &str, keys: [&str; 2]) -> u64 {
    let value = |line: &str| {
        let (key, value) = line.split_once(' ')?;
        keys.contains(&key).then(|| value.parse::<u64>().ok())?
    };
    stat.lines().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_counts_for_a_moment_and_a_part_of_what_was_left() {
        let readings = std::cell::Cell::new(0);
        let read = |left| {
            readings.set(readings.get() + 1);
            left
        };
        let mut allowance = Allowance::default();
        let mut take = |octets, now, left| {
            let taken = allowance.take(octets, now, || read(left));
            (taken, readings.get())
        };
        assert_eq!(take(100, 0, Some(99)), (false, 1));
        assert_eq!(take(100, 0, Some(100)), (true, 2));
        assert_eq!(take(100, 1, Some(200 * PART)), (true, 3));
        assert_eq!([take(100, 1, None), take(100, 1, None)], [(true, 3); 2]);
        assert_eq!(take(1, 1, Some(0)), (false, 4), "the part is used up");
        assert_eq!(take(1, 1, None), (true, 5));
        assert_eq!(take(1, VALID_NS, None), (true, 5));
        assert_eq!(take(1, 1 + VALID_NS, None), (true, 6), "the reading is old");
    }

    #[test]
    fn pages_of_files_can_be_taken_back() {
        let stat = "anon 7\ninactive_file 4096\nactive_file 8192\ninactive_anon 5\n";
        assert_eq!(file_pages(stat, V2.files), 12_288);
        assert_eq!(file_pages(stat, V1.files), 0);
        assert_eq!(file_pages("", V2.files), 0);
    }

    #[test]
    fn only_memory_groups_count() {
        for line in ["", "1:cpu:/", "2:cpuacct,cpu:/x", "1:name=systemd:/", "x"] {
            assert_eq!(of_line(line), None, "{line}");
        }
    }

    #[test]
    fn a_group_reports_what_is_left_of_its_limit() {
        let group = std::env::temp_dir().join(format!("headroom-{}", std::process::id()));
        std::fs::create_dir(&group).unwrap();
        let say = |name: &str, text: &str| std::fs::write(group.join(name), text).unwrap();
        assert_eq!(of_group(&V2, &group), None);
        say("memory.max", "max\n");
        say("memory.current", "900\n");
        assert_eq!(of_group(&V2, &group), None);
        say("memory.max", "1000\n");
        assert_eq!(of_group(&V2, &group), Some(100));
        say("memory.stat", "anon 5\ninactive_file 30\nactive_file 20\n");
        assert_eq!(of_group(&V2, &group), Some(150));
        say("memory.current", "2000\n");
        assert_eq!(of_group(&V2, &group), Some(0));
        std::fs::remove_dir_all(&group).unwrap();
    }
}
