//! The table of crates in `ARCHITECTURE.md`: made from what [`super::arrows`] checks, so that it
//! cannot differ. Crates of tests, measurements and examples are not in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::arrows::{ANY, ARROWS, CONFINED, Workspace, read};
use crate::Error;

const FILE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- crates: made by `cargo run -p warpline-spec -- arrows --write` -->\n";
const END: &str = "<!-- end of crates -->\n";

/// Folders of crates that are not shipped.
const SKIPPED: &[&str] = &["benches", "examples", "fuzz", "spec", "tests"];

/// What is wrong with the table, or with what it is made from.
///
/// # Errors
/// `ARCHITECTURE.md` cannot be read.
pub fn findings(root: &Path, workspace: &Workspace) -> Result<Vec<String>, Error> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).map_err(Error::read(&path))?;
    Ok(compare(&text, root, workspace))
}

/// Writes the table into `ARCHITECTURE.md`.
///
/// # Errors
/// Cargo, reading or writing fails, or the file has no place for the table.
pub fn write(root: &Path) -> Result<(), Error> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).map_err(Error::read(&path))?;
    let Some((before, _, behind)) = parts(&text) else {
        return Err(Error::List { path, what: format!("no lines {BEGIN:?} and {END:?}") });
    };
    let table = table(root, &read(root)?);
    let whole = format!("{before}{BEGIN}{table}{END}{behind}");
    fs::write(&path, whole).map_err(Error::read(&path))
}

fn compare(text: &str, root: &Path, workspace: &Workspace) -> Vec<String> {
    let mut out: Vec<_> = shipped(root, workspace)
        .filter(|row| row.description.is_empty())
        .map(|row| format!("{}: its manifest has no description", row.name))
        .collect();
    match parts(text) {
        Some((_, found, _)) if found == table(root, workspace) => {}
        Some(_) => out.push(format!("{FILE}: the table of crates is not what is checked: --write")),
        None => out.push(format!("{FILE}: no table of crates between {BEGIN:?} and {END:?}")),
    }
    out
}

/// What is before the table, the table, and what is behind it.
fn parts(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (table, behind) = rest.split_once(END)?;
    Some((before, table, behind))
}

struct Row<'a> {
    name: &'a str,
    folder: String,
    description: &'a str,
    to: &'a [&'a str],
}

fn shipped<'a>(root: &'a Path, workspace: &'a Workspace) -> impl Iterator<Item = Row<'a>> {
    ARROWS.iter().filter_map(move |(name, to)| {
        let place = workspace.places.get(*name)?;
        let folder = place.folder.strip_prefix(root).ok()?.display().to_string();
        let first = folder.split('/').next().unwrap_or_default();
        let description = place.description.as_deref().unwrap_or_default();
        (!SKIPPED.contains(&first)).then_some(Row { name, folder, description, to })
    })
}

fn table(root: &Path, workspace: &Workspace) -> String {
    let mut out = String::from("| folder (crate) | what it is | may depend on |\n|---|---|---|\n");
    for row in shipped(root, workspace) {
        let Row { name, folder, description, .. } = &row;
        let other = if folder == name { String::new() } else { format!(" (`{name}`)") };
        out += &format!("| `{folder}`{other} | {description} | {} |\n", to(&row));
    }
    let homes: BTreeSet<_> = CONFINED.iter().map(|(_, _, home)| format!("`{home}`")).collect();
    out += &format!("\n\\* Only in {}.\n", homes.into_iter().collect::<Vec<_>>().join(", "));
    out
}

fn to(row: &Row<'_>) -> String {
    if row.to == ANY {
        return "any".into();
    }
    let only = |to: &str| {
        let of = |(dir, name, _): &&(&str, &str, &str)| {
            dir.starts_with(&row.folder) && *name == to.replace('-', "_")
        };
        let mark = if CONFINED.iter().any(|one| of(&one)) { "\\*" } else { "" };
        format!("`{to}`{mark}")
    };
    let all: Vec<_> = row.to.iter().map(|to| only(to)).collect();
    if all.is_empty() { "nothing of ours".into() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::super::arrows::Place;
    use super::*;

    fn workspace() -> Workspace {
        let mut workspace = Workspace::default();
        for (name, folder, description) in [
            ("state-page", "/r/state-page", Some("page")),
            ("vp-api", "/r/vp-api", Some("verbs")),
            ("ual", "/r/ual", Some("access layer")),
            ("warpline-tests", "/r/tests", None),
        ] {
            let place =
                Place { folder: folder.into(), description: description.map(str::to_owned) };
            workspace.places.insert(name.into(), place);
        }
        workspace
    }

    #[test]
    fn the_table_is_what_is_checked() {
        let (root, workspace) = (Path::new("/r"), workspace());
        let table = table(root, &workspace);
        assert!(table.contains("| `state-page` | page | nothing of ours |"), "{table}");
        assert!(table.contains("| `vp-api` | verbs | `state-page` |"), "{table}");
        assert!(table.contains("`vp-softrdma`\\*"), "{table}");
        assert!(!table.contains("warpline-tests"), "{table}");
        let right = format!("a\n{BEGIN}{table}{END}b\n");
        assert_eq!(compare(&right, root, &workspace), Vec::<String>::new());
    }

    #[test]
    fn drift_is_found() {
        let (root, mut workspace) = (Path::new("/r"), workspace());
        let old = format!("{BEGIN}{}{END}", table(root, &workspace));
        workspace
            .places
            .insert("itapi".into(), Place { folder: "/r/itapi".into(), description: None });
        let found = compare(&old, root, &workspace);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "itapi: its manifest has no description");
        assert_eq!(compare("", root, &workspace).len(), 2);
    }
}
