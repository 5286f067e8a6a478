//! The functions of the C header: what declares them, which C program and which Rust test call
//! them, where their reference is.
//!
//! C programs count by the call itself, Rust tests by a comment such as `// [it_ep_connect]` above
//! the test, because the Rust face has other names.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::Error;
use crate::source::{Language, Source};

const HEADERS: &str = "itapi/c/include/itapi/";
const NAMES: &str = "itapi/c/include/itapi/names.h";
const VERSIONS: &str = "itapi/c/itapi.map";
const PROGRAMS: &str = "tests/c/";
/// What defines the entry points of the Zurich layout.
const ZURICH: &str = "ITAPI_ZRL_EXTENSIONS";
const SUFFIX: &str = "_zrl";

/// A function and its tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name in the header.
    pub name: String,
    /// It has an entry point of its own in the Zurich layout.
    pub zurich: bool,
    /// The reference in its header.
    pub reference: String,
    /// C programs that call it.
    pub c_tests: Vec<String>,
    /// C programs that call it in the Zurich layout.
    pub zurich_tests: Vec<String>,
    /// Files with Rust tests of it.
    pub rust_tests: Vec<String>,
}

/// The table.
#[derive(Debug)]
pub struct FunctionTable {
    functions: Vec<Function>,
    /// Names with a version that a linker will export.
    exported: BTreeSet<String>,
}

impl FunctionTable {
    /// Reads headers, programs and tests.
    ///
    /// # Errors
    /// The list of symbol versions cannot be read.
    pub fn new(root: &Path, sources: &[Source]) -> Result<Self, Error> {
        let path = root.join(VERSIONS);
        let versions = std::fs::read_to_string(&path).map_err(Error::read(&path))?;
        Ok(Self { functions: functions(sources), exported: exported(&versions) })
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut out =
            String::from("| Function | C tests | Rust tests | Reference |\n|---|---|---|---|\n");
        for function in &self.functions {
            let Function { name, reference, .. } = function;
            let zurich = function.zurich_tests.join(", ");
            let also =
                if function.zurich { format!("; `{SUFFIX}`: {zurich}") } else { String::new() };
            let (c, rust) = (function.c_tests.join(", "), function.rust_tests.join(", "));
            let _ = writeln!(out, "| `{name}` | {c}{also} | {rust} | {reference} |");
        }
        out
    }

    /// What is missing: empty cells, and names that are declared or exported but not both.
    pub fn findings(&self) -> Vec<String> {
        let mut out: Vec<_> = self.functions.iter().flat_map(gaps).collect();
        let declared: BTreeSet<_> = self.functions.iter().flat_map(symbols).collect();
        let missing = declared.difference(&self.exported);
        out.extend(missing.map(|name| format!("{name}: declared, but not in {VERSIONS}")));
        let strange = self.exported.difference(&declared);
        out.extend(strange.map(|name| format!("{name}: in {VERSIONS}, but not declared")));
        out
    }

    /// One line about its size.
    pub fn summary(&self) -> String {
        format!("{} functions, {} symbols", self.functions.len(), self.exported.len())
    }
}

/// Entry points of a function.
fn symbols(function: &Function) -> Vec<String> {
    let zurich = function.zurich.then(|| format!("{}{SUFFIX}", function.name));
    zurich.into_iter().chain([function.name.clone()]).collect()
}

fn gaps(function: &Function) -> Vec<String> {
    let name = &function.name;
    let cells = [
        (function.c_tests.is_empty(), "no C program calls it"),
        (function.zurich && function.zurich_tests.is_empty(), "no C program in the Zurich layout"),
        (function.rust_tests.is_empty(), "no Rust test names it"),
        (function.reference.is_empty(), "its header names no reference"),
    ];
    let empty = cells.into_iter().filter(|(empty, _)| *empty);
    empty.map(|(_, what)| format!("{name}: {what}")).collect()
}

fn functions(sources: &[Source]) -> Vec<Function> {
    let doubled = sources.iter().find(|s| s.path == NAMES).map(doubled).unwrap_or_default();
    let mut out = Vec::new();
    for header in sources.iter().filter(|s| s.path.starts_with(HEADERS)) {
        let reference = reference(header);
        for name in prototypes(header) {
            let (plain, zurich): (Vec<_>, Vec<_>) =
                callers(sources, &name).into_iter().partition(|source| !is_zurich(source));
            let own = header.path.ends_with("/zurich.h");
            out.push(Function {
                zurich: doubled.contains(&name),
                c_tests: paths(if own { &zurich } else { &plain }),
                zurich_tests: paths(&zurich),
                rust_tests: marked(sources, &name),
                reference: reference.clone(),
                name,
            });
        }
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    out
}

fn paths(sources: &[&Source]) -> Vec<String> {
    sources.iter().map(|source| source.path.clone()).collect()
}

/// A program for the Zurich layout names it in its first comment.
fn is_zurich(source: &Source) -> bool {
    source
        .lines
        .iter()
        .take_while(|line| !line.starts_with("#include"))
        .any(|line| line.contains("Zurich") || line.contains(ZURICH))
}

/// The text after `Reference: ` in the first comment.
fn reference(header: &Source) -> String {
    let found = header.lines.iter().find_map(|line| line.split_once("Reference: "));
    found.map_or("", |(_, text)| text.trim_end_matches('.')).to_owned()
}

/// Functions that a header declares: a line that begins with a type, followed by a name of
/// ours and a parenthesis.
fn prototypes(header: &Source) -> Vec<String> {
    let starts = header.lines.iter().filter(|line| {
        line.starts_with(|c: char| c.is_ascii_lowercase()) && !line.starts_with("typedef")
    });
    let names = starts.filter_map(|line| {
        let before = line.split_once('(')?.0;
        before.rsplit([' ', '*']).next().filter(|_| before.contains(' '))
    });
    names.filter(|name| is_ours(name)).map(str::to_owned).collect()
}

fn is_ours(name: &str) -> bool {
    ["it_", "itx_", "itw_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Names that the header maps to entry points of the Zurich layout.
fn doubled(names: &Source) -> BTreeSet<String> {
    let defined = names.lines.iter().filter_map(|line| line.strip_prefix("#define "));
    let pairs = defined.filter_map(|line| line.split_once(' '));
    pairs
        .filter(|(name, to)| to.strip_suffix(SUFFIX) == Some(name))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn callers<'a>(sources: &'a [Source], name: &str) -> Vec<&'a Source> {
    let programs = sources.iter().filter(|s| s.path.starts_with(PROGRAMS) && is_program(s));
    programs.filter(|source| calls(source, name)).collect()
}

fn is_program(source: &Source) -> bool {
    source.language == Language::C && source.lines.iter().any(|line| line.contains(" main("))
}

fn calls(source: &Source, name: &str) -> bool {
    let call = format!("{name}(");
    (0..source.lines.len()).any(|n| {
        let code = source.split(n).0;
        let found = code.match_indices(&call);
        found
            .into_iter()
            .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
    })
}

/// Rust files with a test whose comment names this function.
fn marked(sources: &[Source], name: &str) -> Vec<String> {
    let names = |source: &&Source| {
        let tests = source.test_lines();
        let lines = tests.iter().enumerate().filter(|(_, test)| **test);
        lines.into_iter().any(|(n, _)| ids(source.split(n).1).any(|id| id == name))
    };
    let rust = sources.iter().filter(|s| s.language == Language::Rust);
    rust.filter(names).map(|source| source.path.clone()).collect()
}

/// Names inside square brackets of a comment.
fn ids(comment: &str) -> impl Iterator<Item = &str> {
    let inside = comment.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
    inside.flat_map(|(list, _)| list.split(',')).map(str::trim).filter(|id| is_ours(id))
}

/// Symbols of a version script.
fn exported(versions: &str) -> BTreeSet<String> {
    let names = versions.lines().filter_map(|line| line.trim().strip_suffix(';'));
    names.filter(|name| is_ours(name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "/*\n * Part. Reference: section 8.\n */\ntypedef void (*it_f_t)(int);\n\
        it_status_t it_a(IN int a,\n                 IN int b);\nconst char *itw_b(void);\n\
        static inline void other(int);\n";

    fn tree() -> Vec<Source> {
        let c = |path: &str, text: &str| Source::new(path, Language::C, text);
        vec![
            c("itapi/c/include/itapi/evd.h", HEADER),
            c(NAMES, "#define it_a it_a_zrl\n#define it_old it_a\n"),
            c("tests/c/one.c", "/* it_a(); */\nint main(void) { my_it_a(); itw_b(); }\n"),
            c("tests/c/two.c", "/* Zurich */\nint main(void) { it_a(1, 2); }\n"),
            Source::new("x/tests/t.rs", Language::Rust, "// [it_a, other] [itw_b]\nfn t() {}\n"),
        ]
    }

    #[test]
    fn prototypes_callers_and_markers_are_found() {
        let found = functions(&tree());
        assert_eq!(found.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["it_a", "itw_b"]);
        assert!(found[0].zurich && !found[1].zurich);
        assert_eq!(found[0].reference, "section 8");
        assert!(found[0].c_tests.is_empty());
        assert_eq!(found[0].zurich_tests, ["tests/c/two.c"]);
        assert_eq!(found[1].c_tests, ["tests/c/one.c"]);
        assert_eq!(found[1].rust_tests, ["x/tests/t.rs"]);
    }

    #[test]
    fn every_gap_is_a_finding() {
        let exported = exported("ITAPI_1.0 {\n    global:\n        it_a;\n        it_c;\n};\n");
        let table = FunctionTable { functions: functions(&tree()), exported };
        assert_eq!(
            table.findings(),
            [
                "it_a: no C program calls it",
                "it_a_zrl: declared, but not in itapi/c/itapi.map",
                "itw_b: declared, but not in itapi/c/itapi.map",
                "it_c: in itapi/c/itapi.map, but not declared",
            ]
        );
        assert_eq!(table.markdown().lines().count(), 4);
    }
}
