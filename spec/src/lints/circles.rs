//! Files of one crate that import one another in a circle: none of them can be read, tested or moved
//! without the others, so a circle has four files at most.
//!
//! An import is a `use` or a path in code, followed through re-exports to the file that has the name. Two
//! kinds of imports make no circle: those of what the crate root declares, for every file, and those
//! between a file and the folder of its name, which are one module. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::arrows::Workspace;
use crate::source::{Language, Source};

/// Files in a circle at most.
const LARGEST: usize = 4;

/// Names between `::`.
type Names = Vec<String>;

/// What a file takes from others.
struct File<'a> {
    path: &'a str,
    /// Of a `use`: the name in this file, and what it stands for, from the crate root.
    imports: Vec<(String, Names)>,
    /// Paths in code, from the crate root.
    mentions: Vec<Names>,
}

/// The files of a crate by module.
type Files<'a> = BTreeMap<Names, File<'a>>;

/// One line per circle that is too large.
pub fn findings(root: &Path, workspace: &Workspace, sources: &[Source]) -> Vec<String> {
    let mut out = Vec::new();
    for (name, place) in &workspace.places {
        let folder = place.folder.strip_prefix(root).unwrap_or(&place.folder);
        let files = read(&format!("{}/src/", folder.display()), sources);
        out.extend(circles(&files).iter().map(|circle| message(name, circle)));
    }
    out
}

fn message(name: &str, circle: &[&str]) -> String {
    let (count, files) = (circle.len(), circle.join(", "));
    format!("{name}: {count} files import one another in a circle, {LARGEST} may: {files}")
}

fn read<'a>(folder: &str, sources: &'a [Source]) -> Files<'a> {
    let of_crate = |source: &'a Source| {
        let inside = source.path.strip_prefix(folder)?.strip_suffix(".rs")?;
        let ours = source.language == Language::Rust && !source.whole_test;
        ours.then(|| (module_of(inside), source))
    };
    let found: BTreeMap<Names, &Source> = sources.iter().filter_map(of_crate).collect();
    let modules: BTreeSet<&Names> = found.keys().collect();
    found.iter().map(|(module, source)| (module.clone(), scan(module, source, &modules))).collect()
}

/// The module in a file, from the crate root.
fn module_of(inside: &str) -> Names {
    let mut names: Names = inside.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| matches!(last.as_str(), "lib" | "main" | "mod")) {
        names.pop();
    }
    names
}

/// Reads the code of a file. Formatted code closes a module at the indentation that it started with.
fn scan<'a>(module: &Names, source: &'a Source, modules: &BTreeSet<&Names>) -> File<'a> {
    let mut file = File { path: &source.path, imports: Vec::new(), mentions: Vec::new() };
    let (mut here, mut open, mut statement) = (module.clone(), Vec::new(), String::new());
    let tests = source.test_lines();
    for n in (0..source.lines.len()).filter(|n| !tests[*n]) {
        let line = source.split(n).0;
        let (code, indent) = (line.trim(), line.len() - line.trim_start().len());
        if open.last() == Some(&indent) && code.starts_with('}') {
            open.pop();
            here.pop();
        }
        let item = without_visibility(code);
        if let Some(name) = item.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            open.push(indent);
            here.push(name.to_owned());
        } else if !statement.is_empty() || item.starts_with("use ") {
            statement += item;
            if let Some(tree) = statement.strip_suffix(';') {
                let tree = tree.strip_prefix("use ").unwrap_or(tree);
                let local = |(name, path)| Some((name, from_root(path, &here, modules, &[])?));
                file.imports.extend(expand(tree).into_iter().filter_map(local));
                statement.clear();
            }
        } else {
            let local = |path| from_root(path, &here, modules, &file.imports);
            file.mentions.extend(paths(code).filter_map(local));
        }
    }
    file
}

fn without_visibility(code: &str) -> &str {
    let Some(rest) = code.strip_prefix("pub") else { return code };
    let rest = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => rest,
        None => rest,
    };
    rest.strip_prefix(' ').unwrap_or(code)
}

/// The names of a `use`, with what each stands for; of `a::*` it is `*`.
fn expand(tree: &str) -> Vec<(String, Names)> {
    if let Some((before, list)) = tree.split_once('{') {
        let list = list.trim_end().strip_suffix('}').unwrap_or(list);
        return pieces(list).iter().flat_map(|piece| expand(&format!("{before}{piece}"))).collect();
    }
    let (path, name) = tree.trim().split_once(" as ").unwrap_or((tree.trim(), ""));
    let mut path: Names = path.split("::").map(|name| name.trim().to_owned()).collect();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let last = path.last().cloned().unwrap_or_default();
    vec![(if name.is_empty() { last } else { name.to_owned() }, path)]
}

/// A list at its commas, but for those of lists inside.
fn pieces(list: &str) -> Vec<&str> {
    let (mut out, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                out.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(&list[start..]);
    out.into_iter().map(str::trim).filter(|piece| !piece.is_empty()).collect()
}

/// The paths of more than one name in a line of code.
fn paths(code: &str) -> impl Iterator<Item = Names> {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let path = |word: &str| -> Names {
        word.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    words.filter(|word| word.contains("::")).map(path).filter(|path| path.len() > 1)
}

/// A path that is used in the module `here`, from the crate root; `None`: it leads out of the crate.
fn from_root(
    path: Names,
    here: &[String],
    modules: &BTreeSet<&Names>,
    imports: &[(String, Names)],
) -> Option<Names> {
    let (first, rest) = path.split_first()?;
    let below = |base: &[String], rest: &[String]| [base, rest].concat();
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => from_root_or_here(rest, here),
        "super" => from_root_or_here(&path, here),
        name if modules.contains(&below(here, &[name.to_owned()])) => Some(below(here, &path)),
        name => {
            let (_, stands_for) = imports.iter().find(|(import, _)| import == name)?;
            Some(below(stands_for, rest))
        }
    }
}

/// A path from `here` on, which may go up first.
fn from_root_or_here(path: &[String], here: &[String]) -> Option<Names> {
    let up = path.iter().take_while(|name| *name == "super").count();
    let base = here.get(..here.len().checked_sub(up)?)?;
    Some([base, &path[up..]].concat())
}

/// The module of the file that a path leads to, through re-exports.
fn target(path: &[String], files: &Files<'_>, left: usize) -> Names {
    let depth = (0..=path.len()).rev().find(|n| files.contains_key(&path[..*n])).unwrap_or(0);
    let (module, rest) = path.split_at(depth);
    let export = rest.split_first().and_then(|(name, rest)| {
        let imports = &files.get(module)?.imports;
        let (_, stands_for) = imports.iter().find(|(import, _)| import == name)?;
        Some([stands_for, rest].concat())
    });
    match export {
        Some(path) if left > 0 => target(&path, files, left - 1),
        _ => module.to_vec(),
    }
}

/// Re-exports of re-exports at most, so that two that name each other end.
const REEXPORTS: usize = 8;

fn circles<'a>(files: &Files<'a>) -> Vec<Vec<&'a str>> {
    let arrows: BTreeMap<&Names, BTreeSet<Names>> =
        files.iter().map(|(module, file)| (module, arrows(module, file, files))).collect();
    let reach: BTreeMap<&Names, BTreeSet<&Names>> =
        files.keys().map(|module| (module, reachable(module, &arrows))).collect();
    let circle = |module: &&Names| -> Vec<&Names> {
        let back = |other: &&&Names| reach.get(*other).is_some_and(|far| far.contains(module));
        reach[module].iter().filter(back).copied().collect()
    };
    let all: BTreeSet<Vec<&Names>> = reach.keys().map(circle).collect();
    let large = all.into_iter().filter(|circle| circle.len() > LARGEST);
    large.map(|circle| circle.into_iter().map(|module| files[module].path).collect()).collect()
}

/// The files that a file imports from, and that count.
fn arrows(module: &Names, file: &File<'_>, files: &Files<'_>) -> BTreeSet<Names> {
    let named = file.imports.iter().map(|(_, path)| path).chain(&file.mentions);
    let to = named.map(|path| target(path, files, REEXPORTS));
    // The crate root is above all.
    to.filter(|to| !to.starts_with(module) && !module.starts_with(to)).collect()
}

fn reachable<'a>(
    from: &'a Names,
    arrows: &'a BTreeMap<&Names, BTreeSet<Names>>,
) -> BTreeSet<&'a Names> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(arrows.get(module).into_iter().flatten().filter(|to| seen.insert(*to)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::super::arrows::Place;
    use super::*;

    /// What is found in a crate of these files, the first of which is the root.
    fn found(name: &str, files: &[(&str, &str)]) -> Vec<String> {
        let place = Place { folder: "/w/a".into(), description: None };
        let places = [(name.to_owned(), place)].into();
        let source = |(path, text): &(&str, &str)| Source::new(path, Language::Rust, text);
        let sources: Vec<_> = files.iter().map(source).collect();
        let workspace = Workspace { places, ..Workspace::default() };
        findings(Path::new("/w"), &workspace, &sources)
    }

    const FIVE: [(&str, &str); 6] = [
        ("a/src/lib.rs", "mod b;\nmod c;\nmod d;\nmod e;\nmod f;\n"),
        ("a/src/b.rs", "use crate::c::X;"),
        ("a/src/c.rs", "use super::{\n    d::{self, Y as Z},\n    f,\n};"),
        ("a/src/d.rs", "fn d() -> crate::e::V {}"),
        ("a/src/e/mod.rs", "pub(crate) use super::f::X;"),
        ("a/src/f.rs", "use crate::b;"),
    ];

    #[test]
    fn a_circle_of_five_files_is_one_finding() {
        assert_eq!(
            found("a", &FIVE),
            ["a: 5 files import one another in a circle, 4 may: a/src/b.rs, a/src/c.rs, \
              a/src/d.rs, a/src/e/mod.rs, a/src/f.rs"]
        );
    }

    #[test]
    fn four_files_may() {
        let mut files = FIVE;
        files[3].1 = "fn d() -> crate::f::X {}";
        assert!(found("a", &files).is_empty());
    }

    #[test]
    fn an_import_leads_to_the_file_behind_the_re_exports() {
        let mut files = FIVE;
        files[0].1 = "mod f;\npub use f::X as W;";
        // Not to `e`, which hands `X` on, nor to the root.
        files[3].1 = "fn d() -> crate::e::X {}\nfn w() -> crate::W {}";
        assert!(found("a", &files).is_empty());
        (files[3].1, files[4].1) = ("use crate::e;", "use crate::W;");
        assert_eq!(found("a", &files).len(), 1);
    }

    #[test]
    fn a_name_of_an_imported_module_leads_there() {
        let mut files = FIVE;
        files[3].1 = "use crate::g;\nfn d() -> g::X {}";
        let g = [("a/src/g.rs", "mod x;\npub use x::X;"), ("a/src/g/x.rs", "use crate::e::V;")];
        let found = found("a", &[&files[..], &g].concat());
        assert!(found[0].contains("6 files") && found[0].contains("a/src/g/x.rs"), "{found:?}");
    }

    #[test]
    fn the_root_a_folder_and_tests_make_no_circle() {
        let mut files = FIVE;
        files[1].1 = "#[cfg(test)]\nmod tests {\n    use crate::c::X;\n}\n";
        assert!(found("a", &files).is_empty());
        files[1].1 = "use crate::Root;";
        files[0].1 = "use c::X;\nmod b;\nstruct Root;";
        assert!(found("a", &files).is_empty());
        files[1] = ("a/src/f/b.rs", "use super::c::X;");
        assert!(found("a", &files).is_empty());
        files[1] = ("a/src/b/tests.rs", "use crate::c::X;");
        assert!(found("a", &files).is_empty());
    }

    #[test]
    fn a_module_inside_a_file_is_that_file() {
        let mut files = FIVE;
        files[1].1 = "mod inner {\n    use super::super::c::X;\n    use super::Y;\n}\n";
        assert_eq!(found("a", &files).len(), 1);
        files[1].1 = "mod inner {\n    use super::c::X;\n}\n";
        assert!(found("a", &files).is_empty());
    }
}
