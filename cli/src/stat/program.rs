//! The arguments of a process: they tell a server from its client. Text of another process, which may be anything.

use std::fs::File;
use std::io::Read;

use state_page::layout::printable;

/// Octets of the arguments that are read: a process may have megabytes.
const MOST: u64 = 4096;

/// The arguments of a process without its name; none if they cannot be read.
pub(crate) fn arguments(pid: u32) -> Vec<String> {
    let mut octets = Vec::new();
    // A process that is gone has none; what was read before an error is shown.
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        let _ = file.take(MOST).read_to_end(&mut octets);
    }
    of(&octets)
}

fn of(octets: &[u8]) -> Vec<String> {
    let octets = octets.strip_suffix(b"\0").unwrap_or(octets);
    let all = octets.split(|octet| *octet == 0).skip(1);
    all.map(|one| printable(&String::from_utf8_lossy(one))).collect()
}

/// `name` and its arguments, in at most `room` characters.
pub(crate) fn called(name: String, arguments: &[String], room: usize) -> String {
    let whole = [&[name], arguments].concat().join(" ");
    if whole.chars().count() <= room {
        return whole;
    }
    let cut: String = whole.chars().take(room.saturating_sub(3)).collect();
    cut + "..."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_printable_and_bounded() {
        let seen = of(b"perf\0serve\0--at\0a\x1b[2J\0");
        assert_eq!(seen, ["serve", "--at", "a?[2J"]);
        assert_eq!(called("7 perf".to_owned(), &seen, 80), "7 perf serve --at a?[2J");
        assert_eq!(called("7 perf".to_owned(), &seen, 20), "7 perf serve --at...");
        assert_eq!(called("7 perf".to_owned(), &["x".repeat(99)], 20), "7 perf xxxxxxxxxx...");
        assert!(of(b"").is_empty() && of(b"kernel").is_empty());
    }
}
