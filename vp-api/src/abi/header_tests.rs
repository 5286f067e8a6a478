//! Tests that the C header has not drifted. Sizes, offsets, types and order of all fields, signatures and constants
//! must be the same in this crate, in the header as the C compiler sees it, and in the committed list `abi.txt`.
//!
//! `frozen` has the list of every released minor version. The header must still have everything in each list,
//! unchanged. It may grow only at the end of structs and tables, with a new minor version.

mod compiler;
mod header;
mod numbers;
mod rust;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{MAGIC, MAJOR, MINOR, types};
use header::Header;

const COMMITTED: &str = include_str!("abi.txt");
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
const FROZEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/abi/frozen");

fn header() -> Header {
    let read = |name| std::fs::read_to_string(format!("{HEADERS}/{name}")).unwrap();
    // The parts are included in the middle; the order of structs does not matter.
    let parts = ["rnicpi.h", "rnicpi_qp.h", "rnicpi_cm.h", "rnicpi_ud.h", "rnicpi_path.h"];
    Header::read(&parts.map(read).concat())
}

/// The names in the header, and the values that the compiler prints for them; `None`: no compiler.
fn listing(name: &str, header: &Header, headers: &Path) -> Option<String> {
    let printed = compiler::run(name, &compiler::program(header), headers)?;
    Some(header.text() + &printed)
}

#[test]
fn the_header_matches_the_committed_list() {
    let Some(now) = listing("held", &header(), Path::new(HEADERS)) else {
        return warpline_skip::skip(
            "the_header_matches_the_committed_list",
            warpline_skip::missing("gcc"),
        );
    };
    if now != COMMITTED {
        let place = std::env::temp_dir().join("abi.txt");
        std::fs::write(&place, &now).unwrap();
        let differs = now.lines().zip(COMMITTED.lines()).find(|(now, held)| now != held);
        panic!(
            "the header is not what abi.txt holds, first in {differs:?} (now, held). If this is a \
             new minor version: {} is the new list",
            place.display()
        );
    }
}

/// Needs no compiler.
#[test]
fn the_committed_list_has_the_names_of_the_header() {
    assert!(COMMITTED.starts_with(&header().text()), "see the_header_matches_the_committed_list");
}

/// Splits a list by its lines: what each line names, with the rest of the line.
struct List<'a> {
    fields: BTreeMap<&'a str, Vec<(&'a str, &'a str)>>,
    numbers: BTreeMap<&'a str, &'a str>,
}

fn list(text: &str) -> List<'_> {
    let (mut fields, mut numbers) = (BTreeMap::<&str, Vec<_>>::new(), BTreeMap::new());
    let mut current = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("struct ") {
            current = name;
            fields.insert(name, Vec::new());
        } else if let Some((name, of)) = line.strip_prefix("  ").and_then(|l| l.split_once(": ")) {
            fields.get_mut(current).unwrap().push((name, of));
        } else {
            let at = line.find(' ').and_then(|kind| Some(kind + 1 + line[kind + 1..].find(' ')?));
            let (name, value) = line.split_at(at.unwrap());
            numbers.insert(name, value.trim());
        }
    }
    List { fields, numbers }
}

/// The changes in `now` that break programs built with `then`.
fn broken(then: &str, now: &str) -> Vec<String> {
    let (then, now) = (list(then), list(now));
    let mut faults = Vec::new();
    for (name, fields) in &then.fields {
        match now.fields.get(name) {
            Some(found) if found.starts_with(fields) => {}
            found => faults.push(format!("{name} does not begin with what it had: {found:?}")),
        }
    }
    let grows = |name: &str| name.strip_prefix("size ").is_some_and(is_growing);
    for (name, value) in &then.numbers {
        let found = now.numbers.get(name).copied().unwrap_or("gone");
        let fits = match (value.parse::<u64>(), found.parse::<u64>()) {
            (Ok(then), Ok(now)) if grows(name) => then <= now,
            _ => *name == "constant RI_MINOR" || *value == found,
        };
        if !fits {
            faults.push(format!("{name} was {value} and is {found}"));
        }
    }
    faults
}

/// Whether a struct begins with its size.
fn is_growing(name: &str) -> bool {
    types::growing::layout().iter().any(|(growing, ..)| *growing == name)
}

/// The released versions, with their lists.
fn frozen() -> Vec<(u16, String)> {
    let files = std::fs::read_dir(FROZEN).unwrap().map(|file| file.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let minor = path.file_stem()?.to_str()?.strip_prefix("1.")?.parse().ok()?;
        Some((minor, std::fs::read_to_string(path).unwrap()))
    };
    let mut all: Vec<_> = files.filter_map(read).collect();
    all.sort();
    all
}

#[test]
fn what_was_released_has_not_changed() {
    let all = frozen();
    let minors: Vec<u16> = all.iter().map(|(minor, _)| *minor).collect();
    let last = *minors.last().unwrap();
    assert_eq!(minors, (0..=last).collect::<Vec<_>>(), "a released version is not frozen");
    assert!(MINOR == last || MINOR == last + 1, "release 1.{}: freeze it", last + 1);
    for (minor, then) in &all {
        let faults = broken(then, COMMITTED);
        assert!(faults.is_empty(), "since 1.{minor}: {faults:#?}");
    }
    if MINOR == last {
        let new = broken(COMMITTED, &all.last().unwrap().1);
        assert!(new.is_empty(), "1.{last} is released, what is new needs 1.{}: {new:#?}", last + 1);
    }
}

/// The check finds the changes that it is made for.
#[test]
fn a_change_that_breaks_older_builds_is_found() {
    let (_, then) = frozen().pop().unwrap();
    let change = |from: &str, to: &str| {
        assert!(then.contains(from), "{from}");
        broken(&then, &then.replacen(from, to, 1)).len()
    };
    assert_eq!(broken(&then, &then), Vec::<String>::new());
    assert_eq!(
        change("(ri_rnic *rnic, uint32_t cq, ri_error", "(uint32_t cq, ri_rnic *rnic, ri_error"),
        1
    );
    assert_eq!(change("uint32_t depth, uint32_t limit", "uint32_t limit, uint32_t depth"), 1);
    assert_eq!(change("constant RI_OP_READ 5", "constant RI_OP_READ 6"), 1);
    assert_eq!(change("constant RI_OP_READ 5\n", ""), 1);
    assert_eq!(change("  stag: uint32_t\n", "  stag: uint64_t\n"), 1);
    assert_eq!(change("offset ri_wc.status 20", "offset ri_wc.status 24"), 1);
    assert_eq!(change("size ri_wc 48", "size ri_wc 40"), 1);
    // A fixed-size struct may not grow; other structs may, at their end.
    assert_eq!(change("size ri_sge 16", "size ri_sge 24"), 1);
    assert_eq!(change("size ri_wc 48", "size ri_wc 56"), 0);
    assert_eq!(change("  size: uint32_t\n", "  size: uint32_t\n  new: uint32_t\n"), 1);
}

/// Removes blanks, whose positions the compiler chooses.
fn solid(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn rust_lays_out_the_same() {
    let held = list(COMMITTED);
    let ours = types::fixed::layout().into_iter().chain(types::growing::layout());
    let mut count = 0;
    for (name, size, fields) in ours {
        let of = |key: String| held.numbers.get(key.as_str()).map(|n| n.parse::<usize>().unwrap());
        assert_eq!(of(format!("size {name}")), Some(size), "{name}");
        let names: Vec<_> = fields.iter().map(|(field, ..)| *field).collect();
        let theirs: Vec<_> = held.fields[name].iter().map(|(field, _)| *field).collect();
        assert_eq!(names, theirs, "{name}");
        for ((field, offset, ours), (_, theirs)) in fields.iter().zip(&held.fields[name]) {
            assert_eq!(of(format!("offset {name}.{field}")), Some(*offset), "{name}.{field}");
            assert_eq!(solid(ours), solid(&rust::of(theirs)), "{name}.{field}: {theirs}");
        }
        count += 1;
    }
    assert_eq!(count, held.fields.len(), "a struct of the header is not in types.rs");
    let number = |name: &str| held.numbers[name].parse::<u32>().unwrap();
    assert_eq!(number("constant RI_MAGIC"), MAGIC);
    assert_eq!(number("constant RI_MAJOR"), MAJOR.into());
    assert_eq!(number("constant RI_MINOR"), MINOR.into());
}

#[test]
fn the_header_is_clean_as_old_cpp_and_c() {
    let compilers = [("c++", "g++", "c++", "c++98"), ("cc", "gcc", "c", "c99")];
    for (compiler, package, language, standard) in compilers {
        let mut command = Command::new(compiler);
        command.args(["-x", language, &format!("-std={standard}"), "-Wall", "-Wextra", "-Werror"]);
        command.args(["-pedantic", "-Wno-long-long", "-fsyntax-only", "-I", HEADERS, "-"]);
        match command.stdin(Stdio::piped()).spawn() {
            Err(_) => warpline_skip::skip(language, warpline_skip::missing(package)),
            Ok(mut child) => {
                let text = b"#define RI_BUILDING_PROVIDER\n#include \"rnicpi.h\"\n";
                child.stdin.take().unwrap().write_all(text).unwrap();
                assert!(child.wait().unwrap().success(), "{standard}");
            }
        }
    }
}
