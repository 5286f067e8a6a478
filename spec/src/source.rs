//! The files of the tree, and what a line of them is: code, comment, test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::Error;

/// Languages we write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `//` comments; tests by attribute.
    Rust,
    /// `//` and `/* */` comments.
    C,
    /// `#` comments.
    Shell,
}

/// One text file of the tree.
#[derive(Debug, Clone)]
pub struct Source {
    /// Relative to the root, with `/`.
    pub path: String,
    /// How to read it.
    pub language: Language,
    /// Its lines.
    pub lines: Vec<String>,
    /// The whole file is compiled for tests only.
    pub whole_test: bool,
}

impl Source {
    /// A file from its text; `whole_test` comes from the path alone.
    pub fn new(path: &str, language: Language, text: &str) -> Self {
        let whole_test = is_test_path(path);
        let lines = text.lines().map(str::to_owned).collect();
        Self { path: path.to_owned(), language, lines, whole_test }
    }

    /// The code of a line without its comment, and the comment. A `//` inside a string counts as
    /// a comment unless a colon stands before it (`https://`).
    pub fn split(&self, line: usize) -> (&str, &str) {
        let text = self.lines[line].as_str();
        let marks: &[&str] = match self.language {
            Language::Rust => &["//"],
            Language::C => &["//", "/*", " * "],
            Language::Shell => &["#"],
        };
        let start = marks.iter().filter_map(|mark| comment_start(text, mark)).min();
        start.map_or((text, ""), |at| text.split_at(at))
    }

    /// For each line, whether it belongs to a test.
    pub fn test_lines(&self) -> Vec<bool> {
        if self.whole_test || self.language != Language::Rust {
            return vec![self.whole_test; self.lines.len()];
        }
        let mut out = vec![false; self.lines.len()];
        for (first, last) in self.test_items() {
            out[first..=last].fill(true);
        }
        out
    }

    /// First and last line of each item that exists for tests only, with the comments above it.
    fn test_items(&self) -> Vec<(usize, usize)> {
        let is_mark = |l: &String| {
            let l = l.trim_start();
            l.starts_with("#[test]") || is_test_cfg(l)
        };
        let marks = self.lines.iter().enumerate().filter(|(_, l)| is_mark(l));
        marks.map(|(at, _)| (self.lead(at), self.item_end(at))).collect()
    }

    /// The first line of the comments and attributes directly above line `at`.
    fn lead(&self, at: usize) -> usize {
        let above = self.lines[..at].iter().rev().take_while(|l| {
            let l = l.trim_start();
            l.starts_with("//") || l.starts_with("#[")
        });
        at - above.count()
    }

    /// The last line of the item whose attribute is on line `at`: formatted code closes an item
    /// at the indentation that it started with.
    fn item_end(&self, at: usize) -> usize {
        let indent = |l: &str| l.len() - l.trim_start().len();
        let depth = indent(&self.lines[at]);
        let body = self.lines.iter().enumerate().skip(at + 1);
        let mut opened = false;
        for (n, l) in body {
            let t = l.trim_start();
            if t.is_empty() || t.starts_with("#[") || t.starts_with("//") || indent(l) > depth {
                continue;
            }
            if !opened && (t.ends_with(';') || t.ends_with('}')) {
                return n;
            }
            if opened && t.starts_with('}') {
                return n;
            }
            opened = true;
        }
        self.lines.len() - 1
    }

    /// Where the modules live that this file declares for tests only, without `.rs`:
    /// `#[cfg(test)] mod name;`, with `#[path = "file.rs"]` or without.
    fn test_modules(&self) -> Vec<String> {
        let marks = self.lines.iter().enumerate().filter(|(_, l)| is_test_cfg(l.trim_start()));
        marks.filter_map(|(at, _)| self.declared_module(at + 1)).collect()
    }

    fn declared_module(&self, from: usize) -> Option<String> {
        let mut path = None;
        for line in self.lines[from..].iter().map(|l| l.trim()) {
            if let Some(rest) = line.strip_prefix("#[path = \"") {
                path = rest.strip_suffix(".rs\"]");
            } else if !line.starts_with("#[") {
                let item = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
                let name = item.strip_prefix("mod ")?.strip_suffix(';')?;
                let beside = self.path.rsplit_once('/').map_or("", |(dir, _)| dir);
                return Some(match path {
                    Some(path) => format!("{beside}/{path}"),
                    None => format!("{}/{name}", module_dir(&self.path)),
                });
            }
        }
        None
    }
}

fn comment_start(text: &str, mark: &str) -> Option<usize> {
    let found = text.match_indices(mark).map(|(at, _)| at);
    let mut real = found.filter(|&at| match mark {
        " * " => text[..at].trim().is_empty(),
        "#" => at == 0 || text[..at].ends_with(' '),
        _ => !text[..at].ends_with(':'),
    });
    real.next()
}

/// An attribute that keeps an item for tests or model checking: `#[cfg(test)]`,
/// `#[cfg(all(test, loom))]`; not `#[cfg(not(test))]` and not `#[cfg(loom)]`, which also guards
/// the primitives that replace those of the standard library.
fn is_test_cfg(line: &str) -> bool {
    line.strip_prefix("#[cfg(").is_some_and(|c| {
        !c.contains("not(test") && c.split(|c: char| !c.is_alphanumeric()).any(|w| w == "test")
    })
}

fn is_test_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "tests.rs" || format!("/{path}").contains("/tests/")
}

/// Every source file under `root` in a stable order, without build output.
///
/// # Errors
/// A file or directory that cannot be read.
pub fn read_tree(root: &Path) -> Result<Vec<Source>, Error> {
    let mut files = Vec::new();
    walk(root, &mut files)?;
    files.sort();
    let mut sources = Vec::new();
    for path in files {
        sources.extend(read_source(root, &path)?);
    }
    mark_test_modules(&mut sources);
    Ok(sources)
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    for entry in std::fs::read_dir(dir).map_err(Error::read(dir))? {
        let entry = entry.map_err(Error::read(dir))?;
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().map_err(Error::read(&path))?;
        if kind.is_dir() && !matches!(name.to_str(), Some("target" | ".git" | "corpus")) {
            walk(&path, files)?;
        } else if kind.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

fn read_source(root: &Path, path: &Path) -> Result<Option<Source>, Error> {
    let extension = path.extension().and_then(|e| e.to_str());
    let by_name = match extension {
        Some("rs") => Some(Language::Rust),
        Some("c" | "h" | "cpp") => Some(Language::C),
        Some("sh") | None => Some(Language::Shell),
        Some(_) => None,
    };
    let Some(language) = by_name else { return Ok(None) };
    let octets = std::fs::read(path).map_err(Error::read(path))?;
    if extension.is_none() && !octets.starts_with(b"#!") {
        return Ok(None);
    }
    let Ok(text) = String::from_utf8(octets) else { return Ok(None) };
    let relative = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    Ok(Some(Source::new(&relative, language, &text)))
}

/// Marks the files behind `#[cfg(test)] mod name;`, and everything in their directories.
fn mark_test_modules(sources: &mut [Source]) {
    let mut roots = BTreeSet::new();
    for source in sources.iter().filter(|s| s.language == Language::Rust) {
        roots.extend(source.test_modules());
    }
    for source in sources.iter_mut() {
        let below = |root: &String| {
            source.path == format!("{root}.rs") || source.path.starts_with(&format!("{root}/"))
        };
        source.whole_test |= roots.iter().any(below);
    }
}

/// The directory in which the child modules of the file `path` live.
fn module_dir(path: &str) -> &str {
    let own = path.strip_suffix(".rs").unwrap_or(path);
    match own.rsplit_once('/') {
        Some((dir, "lib" | "main" | "mod")) => dir,
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> Source {
        Source::new("a/src/lib.rs", Language::Rust, text)
    }

    #[test]
    fn comments_are_found_and_urls_are_not() {
        let s = rust("let a = 1; // why\nlet u = \"https://x\";\n//! top");
        assert_eq!(s.split(0), ("let a = 1; ", "// why"));
        assert_eq!(s.split(1).1, "");
        assert_eq!(s.split(2).1, "//! top");
        let c = Source::new("a.c", Language::C, "/* one\n * two\nint a = b * c;");
        assert_eq!((c.split(0).1, c.split(1).1, c.split(2).1), ("/* one", " * two", ""));
        let sh = Source::new("a.sh", Language::Shell, "echo $# # note");
        assert_eq!(sh.split(0).1, "# note");
    }

    #[test]
    fn a_test_module_ends_where_it_closes() {
        let s = rust("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}");
        assert_eq!(s.test_lines(), [false, true, true, true, true, false]);
    }

    #[test]
    fn a_lone_test_takes_the_comments_above_it() {
        let s = rust("fn a() {}\n// why\n#[test]\nfn b() {\n    one();\n}\nfn c() {}");
        assert_eq!(s.test_lines(), [false, true, true, true, true, true, false]);
    }

    #[test]
    fn a_declared_test_module_marks_its_file() {
        let mut all = vec![
            rust(
                "mod live;\n#[cfg(test)]\nmod probe;\n#[cfg(not(test))]\nmod other;\n\
                  #[cfg(test)]\n#[path = \"far_tests.rs\"]\nmod tests;",
            ),
            Source::new("a/src/far_tests.rs", Language::Rust, ""),
            Source::new("a/src/live.rs", Language::Rust, ""),
            Source::new("a/src/probe.rs", Language::Rust, ""),
            Source::new("a/src/probe/deep.rs", Language::Rust, ""),
            Source::new("a/src/other.rs", Language::Rust, ""),
        ];
        mark_test_modules(&mut all);
        let marked: Vec<_> = all.iter().map(|s| s.whole_test).collect();
        assert_eq!(marked, [false, true, false, true, true, false]);
    }

    #[test]
    fn paths_identify_tests() {
        assert!(is_test_path("cli/tests/demo.rs"));
        assert!(is_test_path("a/src/qp/tests.rs"));
        assert!(!is_test_path("a/src/latests.rs"));
        assert_eq!(module_dir("a/src/qp.rs"), "a/src/qp");
        assert_eq!(module_dir("a/src/wire/mod.rs"), "a/src/wire");
    }
}
