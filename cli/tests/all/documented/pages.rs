//! The commands of the README and of the site's pages.

use std::path::Path;

/// A command in a block of a page, with the output that follows it there.
pub(super) struct Shown {
    pub(super) page: String,
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

/// Commands of all pages: of the README, with those of its first table, and of the chapters of the site.
pub(super) fn every_command(root: &Path) -> Vec<Shown> {
    let summary = std::fs::read_to_string(root.join("docs/site/SUMMARY.md")).unwrap();
    let mut pages = vec!["README.md".to_owned()];
    for part in summary.split("](").skip(1) {
        let name = part.split(')').next().unwrap();
        let places = ["docs/site", "docs", "spec"].map(|folder| format!("{folder}/{name}"));
        // Others are made by `scripts/site`.
        pages.extend(places.into_iter().find(|place| root.join(place).exists()));
    }
    pages
        .iter()
        .flat_map(|page| commands(page, &std::fs::read_to_string(root.join(page)).unwrap()))
        .collect()
}

/// Commands of a page: lines of `sh`, lines with `$ ` of other blocks, and the last column of a table of "you have".
fn commands(page: &str, text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let (mut block, mut table) = (None, false);
    let found = |line: usize, command: &str| {
        let command = command.split(" # ").next().unwrap_or(command).trim();
        let command = command.strip_suffix(" &").unwrap_or(command).trim().to_owned();
        Shown { page: page.to_owned(), line, command, output: Vec::new() }
    };
    for (n, line) in text.lines().enumerate() {
        match (block, line.strip_prefix("```")) {
            (None, Some(language)) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (Some("sh"), None) if !line.is_empty() && !line.starts_with('#') => {
                all.push(found(n + 1, line))
            }
            (Some(_), None) => match (line.strip_prefix("$ "), all.last_mut()) {
                (Some(command), _) => all.push(found(n + 1, command)),
                (None, Some(last))
                    if last.page == page && block != Some("sh") && is_output(block) =>
                {
                    last.output.push(line.to_owned());
                }
                _ => {}
            },
            (None, None) => {
                table = line.starts_with("| you have |") && line.contains("one line")
                    || table && line.starts_with('|');
                let last =
                    line.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
                if table && last.starts_with('`') {
                    all.extend(
                        last.split('`').skip(1).step_by(2).map(|command| found(n + 1, command)),
                    );
                }
            }
        }
    }
    all
}

/// Whether a block of this language has output of the commands in it.
fn is_output(language: Option<&str>) -> bool {
    matches!(language, Some("console" | "text"))
}

#[test]
fn blocks_and_tables_have_commands() {
    let text = "```sh\na b   # why\n# no\nserve &\n```\n```console\n$ c\nout 1\n$ d\n```\n\
                | you have | one line that runs |\n|---|---|\n| a | `e f`, then `g` |\n\n| x | `y` |\n";
    let found = commands("page", text);
    let names: Vec<_> = found.iter().map(|shown| &*shown.command).collect();
    assert_eq!(names, ["a b", "serve", "c", "d", "e f", "g"]);
    assert_eq!((found[2].output.len(), found[3].output.len()), (1, 0));
}
