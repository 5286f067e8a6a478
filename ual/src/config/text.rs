//! Texts of files and messages, of bounded length. No state.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Octets of a configuration file or manifest; 100,000 rules need less.
const MAX_FILE: u64 = 16 << 20;

/// Octets of a message that are shown.
const MAX_MESSAGE: usize = 1200;

/// The text of a regular file; else why there is none.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    // Before it is opened: that would wait for the writer of a pipe.
    let found = std::fs::metadata(path).map_err(text)?;
    if found.is_dir() {
        return Err("it is a directory".into());
    }
    if !found.is_file() {
        return Err("it is no regular file".into());
    }
    let mut octets = Vec::new();
    File::open(path).map_err(text)?.take(MAX_FILE + 1).read_to_end(&mut octets).map_err(text)?;
    if octets.len() as u64 > MAX_FILE {
        return Err(format!("it has more than {} MiB", MAX_FILE >> 20));
    }
    String::from_utf8(octets).map_err(|_| "it is not UTF-8".into())
}

/// A message with both of its ends, if it is too long: values that it repeats have any length.
pub(crate) fn shortened(message: &str) -> String {
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    let (head, tail) = (MAX_MESSAGE / 4, message.len() - MAX_MESSAGE / 2);
    let boundary = |at: &usize| message.is_char_boundary(*at);
    let head = (0..=head).rev().find(boundary).unwrap_or(0);
    let tail = (tail..message.len()).find(boundary).unwrap_or(message.len());
    format!("{} … {} octets more … {}", &message[..head], tail - head, &message[tail..])
}

/// Places in a text.
pub(crate) struct Places<'a> {
    text: &'a str,
    /// Offsets at which lines begin.
    lines: Vec<usize>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, lines: std::iter::once(0).chain(ends).collect() }
    }

    /// Line, and column in characters, of an offset; both from 1.
    pub(crate) fn at(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|begin| *begin <= offset).max(1);
        let before = self.text.get(self.lines[line - 1]..offset).unwrap_or_default();
        (line, before.chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_line_and_column() {
        let places = Places::new("ab\n\näc\n");
        let all: Vec<_> = [0, 2, 3, 4, 6, 8, 99].iter().map(|at| places.at(*at)).collect();
        assert_eq!(all, [(1, 1), (1, 3), (2, 1), (3, 1), (3, 2), (4, 1), (4, 1)]);
        assert_eq!(Places::new("").at(0), (1, 1));
    }

    #[test]
    fn long_messages_keep_both_ends() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&format!("unknown `{}`, expected `ä`", "ü".repeat(1 << 20)));
        assert!(long.starts_with("unknown `ü") && long.ends_with("expected `ä`"), "{long}");
        assert!(long.len() < MAX_MESSAGE, "{long}");
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let dir = std::env::temp_dir().join(format!("ual-text-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let pipe = dir.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let big = dir.join("big");
        File::create(&big).unwrap().set_len(MAX_FILE + 1).unwrap();
        for (path, why) in [
            (&*pipe, "it is no regular file"),
            (Path::new("/dev/zero"), "it is no regular file"),
            (&*dir, "it is a directory"),
            (&*big, "it has more than 16 MiB"),
        ] {
            assert_eq!(read(path).unwrap_err(), why, "{}", path.display());
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
