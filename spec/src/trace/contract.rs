//! The promises of the provider interface: marks such as `[RI-41]` in the header and in the guide for
//! vendors, the cases of the provider suite that test each, and the seeded faults that show
//! that a case sees it. Text only, no state.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::Error;

/// Where promises stand.
const PROMISES: &[&str] = &[
    "vp-api/include/rnicpi.h",
    "vp-api/include/rnicpi_qp.h",
    "vp-api/include/rnicpi_cm.h",
    "vp-api/include/rnicpi_ud.h",
    "vp-api/include/rnicpi_path.h",
    "spec/provider-guide.md",
];

/// The cases of the suite.
const CASES: &str = "vp-api/suite/src";

/// The list of seeded faults.
const FAULTS: &str = "vp-api/suite/seeded/src/faults.rs";

/// One promise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Promise {
    /// Where it stands.
    at: Vec<String>,
    /// Names of cases.
    cases: Vec<String>,
    /// Names of faults.
    faults: Vec<String>,
}

/// All promises by number.
#[derive(Debug, Clone, Default)]
pub struct PromiseTable(BTreeMap<u32, Promise>);

impl PromiseTable {
    /// Reads the header, the guide, the suite and the list of faults.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn load(root: &Path) -> Result<Self, Error> {
        let read = |path: &str| {
            let path = root.join(path);
            std::fs::read_to_string(&path).map_err(Error::read(&path))
        };
        let mut table = Self::default();
        for path in PROMISES {
            table.promises(path, &read(path)?);
        }
        table.faults(&read(FAULTS)?);
        let mut files = Vec::new();
        collect(&root.join(CASES), &mut files)?;
        for path in files {
            table.cases(&std::fs::read_to_string(&path).map_err(Error::read(&path))?);
        }
        Ok(table)
    }

    fn promise(&mut self, id: u32) -> &mut Promise {
        self.0.entry(id).or_default()
    }

    fn promises(&mut self, path: &str, text: &str) {
        for (n, line) in text.lines().enumerate() {
            // The mark of the rule about marks, and of this page about them, is no promise.
            for id in ids(line).filter(|_| !line.contains("mark such as")) {
                self.promise(id).at.push(format!("{path}:{}", n + 1));
            }
        }
    }

    /// `Case::new("name", play).keeps("RI-41 RI-42")`, on one line or several.
    fn cases(&mut self, text: &str) {
        for case in text.split("Case::new(").skip(1) {
            let Some((name, rest)) = quoted(case) else { continue };
            let Some((_, kept)) = rest.split_once(".keeps(") else { continue };
            // Of this case, and not of the next one.
            let kept = quoted(kept).map(|(kept, _)| kept).unwrap_or_default();
            for id in ids(kept) {
                self.promise(id).cases.push(name.to_owned());
            }
        }
        for line in text.lines().filter(|line| line.contains("const LISTING_KEEPS")) {
            for id in ids(line) {
                self.promise(id).cases.push("listing".to_owned());
            }
        }
    }

    /// `Name "RI-41" Base`
    fn faults(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if let (Some(name), Some(id), Some(_), None) =
                (words.next(), words.next(), words.next(), words.next())
                && id.starts_with("\"RI-")
                && let Some(id) = ids(id).next()
            {
                self.promise(id).faults.push(name.to_owned());
            }
        }
    }

    /// One line per promise that lacks a case or a fault, and per id that is no promise.
    pub fn findings(&self) -> Vec<String> {
        let wrong = self.0.iter().filter_map(|(id, promise)| {
            let what = match promise {
                Promise { at, .. } if at.is_empty() => "no promise of header or guide has this id",
                Promise { cases, .. } if cases.is_empty() => "no case of the suite looks after it",
                Promise { faults, .. } if faults.is_empty() => "no seeded fault breaks it",
                _ => return None,
            };
            Some(format!("RI-{id:02}: {what}"))
        });
        wrong.collect()
    }

    /// How many there are of each kind, in one line.
    pub fn summary(&self) -> String {
        let faults: usize = self.0.values().map(|promise| promise.faults.len()).sum();
        format!("{} promises to hosts, {faults} seeded faults", self.0.len())
    }

    /// The table for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (id, promise) in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "RI-{id:02}  {}", promise.at.join(", "));
            let _ = writeln!(out, "       cases   {}", promise.cases.join("; "));
            let _ = writeln!(out, "       faults  {}", promise.faults.join(", "));
        }
        out
    }
}

/// All Rust files below a directory.
fn collect(dir: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<(), Error> {
    for entry in std::fs::read_dir(dir).map_err(Error::read(dir))? {
        let path = entry.map_err(Error::read(dir))?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// The first string of a text, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once('"')?;
    rest.split_once('"')
}

/// The numbers of all `RI-nn`.
fn ids(text: &str) -> impl Iterator<Item = u32> {
    text.split("RI-").skip(1).filter_map(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[..digits].parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(header: &str, cases: &str, faults: &str) -> PromiseTable {
        let mut table = PromiseTable::default();
        table.promises("rnicpi.h", header);
        table.cases(cases);
        table.faults(faults);
        table
    }

    const CASES: &str = "Case::new(\"one\", one).keeps(\"RI-1 RI-2\"),\nCase::new(\"two\", two),";

    #[test]
    fn a_promise_needs_a_case_and_a_fault() {
        let all = table("once [RI-1], twice\n [RI-2].", CASES, "A \"RI-1\" X\nB \"RI-2\" X");
        assert!(all.findings().is_empty(), "{:?}", all.findings());
        let none = table("[RI-1] [RI-2] [RI-3]", CASES, "    A \"RI-1\" X\n    C \"RI-4\" X");
        let found = none.findings();
        assert_eq!(found[0], "RI-02: no seeded fault breaks it");
        assert_eq!(found[1], "RI-03: no case of the suite looks after it");
        assert_eq!(found[2], "RI-04: no promise of header or guide has this id");
    }

    #[test]
    fn a_table_names_cases_and_faults() {
        let text = table("[RI-1]", CASES, "A \"RI-1\" X").text();
        assert!(
            text.contains("RI-01  rnicpi.h:1\n       cases   one\n       faults  A\n"),
            "{text}"
        );
    }
}
