//! The tables of programs and symbols in docs/verbs.md: written by the command, checked by a test.

use std::fs;
use std::path::PathBuf;

use ofa_symbols::{Kind, Library, SymbolTable};

use crate::libraries::root;
use crate::programs::Program;

/// Beginning of a result that is a failure.
pub const FAILED: &str = "fails";

/// Text of the marker lines around a table, with its name.
const COMMAND: &str = "made by `cargo run --release -p verbs-programs -- --write`";

fn file() -> PathBuf {
    root().join("docs/verbs.md")
}

/// Writes results into the table; programs that were not run keep theirs.
pub fn write(seen: &[(Program, String)]) {
    let text = fs::read_to_string(file()).unwrap();
    let text = replace(&text, "programs", |old| programs(old, seen));
    fs::write(file(), replace(&text, "symbols", |_| symbols())).unwrap();
}

/// Replaces the table of a name by one made of the old.
fn replace(text: &str, name: &str, new: impl FnOnce(&str) -> String) -> String {
    let (begin, end) =
        (format!("<!-- {name}: {COMMAND} -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) = text.split_once(&begin).unwrap();
    let (old, behind) = rest.split_once(&end).unwrap();
    format!("{before}{begin}{}{end}{behind}", new(old))
}

fn programs(old: &str, seen: &[(Program, String)]) -> String {
    let mut table = "| | program | package | command | seen |\n|---|---|---|---|---|\n".to_owned();
    for program in crate::programs::all() {
        let head = head(&program);
        let is_it = |(other, _): &&(Program, String)| self::head(other) == head;
        let new = seen.iter().find(is_it).map(|(_, result)| result.as_str());
        let kept = || old.lines().find_map(|line| line.strip_prefix(&head)?.strip_suffix(" |"));
        table += &format!("{head}{} |\n", new.or_else(kept).unwrap_or("not tried"));
    }
    format!("{table}\n{}\n", count())
}

/// How many programs need no more than `warpline run --` at either end.
fn count() -> String {
    let all = crate::programs::all();
    let needs = |program: &&Program| program.needs.is_none() && program.server_needs.is_none();
    let free = all.iter().filter(needs).count();
    format!(
        "{free} of {} run without an option of `warpline run`, and all without a variable.",
        all.len()
    )
}

/// For each version node that applications use, how many symbols work, and which do not.
fn symbols() -> String {
    let all = SymbolTable::own().unwrap();
    let mut table = "| node | work | return EOPNOTSUPP |\n|---|---|---|\n".to_owned();
    for library in Library::ALL {
        let mut nodes = all.nodes(library);
        nodes.retain(|node| !node.contains("PRIVATE"));
        nodes.sort_by_key(|node| {
            node.split('.').map(|n| n.parse().unwrap_or(0)).collect::<Vec<u32>>()
        });
        for node in nodes {
            let (work, not): (Vec<_>, Vec<_>) =
                all.of(library).filter(|s| s.node == node).partition(|s| s.kind == Kind::Works);
            let not: Vec<_> = not.iter().map(|symbol| format!("`{}`", symbol.name)).collect();
            table += &format!("| {node} | {} | {} |\n", work.len(), not.join(", "));
        }
    }
    table
}

/// The cells of a program that do not depend on the result.
fn head(program: &Program) -> String {
    let Program { row, name, package, client, .. } = program;
    let needs = program.needs.iter().map(|option| format!("warpline run {option} -- "));
    let client = needs.collect::<String>() + client;
    let inserted = [
        ("{port}", "N"),
        ("{own}", "ADDRESS"),
        ("{program}", "PROGRAM"),
        ("{wheel}/bin/", ""),
        ("{root}/", ""),
    ];
    let client = inserted.iter().fold(client, |client, (from, to)| client.replace(from, to));
    format!("| {row} | {name} | {package} | `{client}` | ")
}

/// Entries of the tables that are out of date.
pub fn missing() -> Vec<String> {
    let text = fs::read_to_string(file()).unwrap();
    if replace(&text, "symbols", |_| symbols()) != text {
        return vec!["the table of symbols".to_owned()];
    }
    let programs = crate::programs::all();
    let heads = programs.iter().map(head);
    heads.chain([count()]).filter(|part| !text.contains(part.as_str())).collect()
}
