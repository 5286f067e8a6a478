//! Pages as a forge shows them: chapters of the documentation without what only rustdoc understands, and
//! links that lead somewhere.
//!
//! A chapter is part of `cargo doc`, with links to items, and with lines that are hidden there. The page of the
//! same name in `docs` is made from it: neither stands in it. No state.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// Chapters, and the pages made from them.
const CHAPTERS: &[(&str, &str)] = &[
    ("itapi/doc/from-sockets-to-rdma.md", "docs/from-sockets-to-rdma.md"),
    ("itapi/doc/c-to-rust.md", "docs/c-to-rust.md"),
    ("channel/doc/guide.md", "docs/channels.md"),
];

/// Folders without pages of ours, and those of the site, whose links `scripts/site` checks.
const SKIPPED: &[&str] = &["target", ".git", "corpus", "doc", "site"];

/// Pages that are not what they are made from, and links that lead nowhere.
///
/// # Errors
/// A file cannot be read.
pub fn findings(root: &Path) -> Result<Vec<String>, Error> {
    let mut out = Vec::new();
    for (chapter, path) in CHAPTERS {
        let made = page(chapter, &read(&root.join(chapter))?);
        if fs::read_to_string(root.join(path)).unwrap_or_default() != made {
            out.push(format!("{path}: not what is made from {chapter}: arrows --write"));
        }
    }
    for path in pages(root)? {
        let text = read(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        for (line, link) in links(&text) {
            if let Some(what) = broken(&path, &text, &link)? {
                out.push(format!("{name}:{line}: {what}"));
            }
        }
    }
    Ok(out)
}

/// Writes the pages that are made from chapters.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(root: &Path) -> Result<(), Error> {
    for (chapter, path) in CHAPTERS {
        let made = page(chapter, &read(&root.join(chapter))?);
        let path = root.join(path);
        fs::write(&path, made).map_err(Error::read(&path))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::read(path))
}

/// A chapter as a forge shows it.
fn page(chapter: &str, text: &str) -> String {
    let mut out = format!(
        "<!-- made from {chapter} by `cargo run -p warpline-spec -- arrows --write` -->\n\n"
    );
    // Of a block of code: whether it is Rust.
    let mut code = None;
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            code = if code.is_none() { Some(kind.is_empty()) } else { None };
            out += if code == Some(true) { "```rust" } else { line };
        } else if let Some(rust) = code {
            let hidden = line.trim_start();
            if rust && (hidden == "#" || hidden.starts_with("# ")) {
                continue;
            }
            out += line;
        } else {
            out += &plain(line);
        }
        out.push('\n');
    }
    out
}

/// A piece of a line: text and code as they are, or a link.
enum Piece<'a> {
    Text(&'a str),
    /// What is shown, and where it leads; `None`: rustdoc finds out.
    Link(&'a str, Option<&'a str>),
}

fn pieces(line: &str) -> Vec<Piece<'_>> {
    let (mut out, mut rest) = (Vec::new(), line);
    while let Some(at) = rest.find(['`', '[']) {
        let (before, found) = rest.split_at(at);
        out.push(Piece::Text(before));
        let (piece, len) = match found.strip_prefix('`') {
            Some(code) => {
                let len = code.find('`').map_or(found.len(), |end| end + 2);
                (Piece::Text(&found[..len]), len)
            }
            None => link(found).unwrap_or((Piece::Text("["), 1)),
        };
        out.push(piece);
        rest = &found[len..];
    }
    out.push(Piece::Text(rest));
    out
}

/// The link at the beginning of the text, and its length.
fn link(text: &str) -> Option<(Piece<'_>, usize)> {
    let end = text.find(']')?;
    let (shown, behind) = (&text[1..end], &text[end + 1..]);
    if let Some(target) = behind.strip_prefix('(') {
        let close = target.find(')')?;
        return Some((Piece::Link(shown, Some(&target[..close])), end + close + 3));
    }
    let is_code = shown.len() > 2 && shown.starts_with('`') && shown.ends_with('`');
    is_code.then_some((Piece::Link(shown, None), end + 1))
}

/// Only rustdoc knows where it leads.
fn is_item(target: &str) -> bool {
    target.contains("::") || target.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn plain(line: &str) -> String {
    let show = |piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Link(shown, Some(target)) if !is_item(target) => format!("[{shown}]({target})"),
        Piece::Link(shown, _) => shown.to_owned(),
    };
    pieces(line).into_iter().map(show).collect()
}

/// Line and target of each link outside of code; an empty target is one for rustdoc.
fn links(text: &str) -> Vec<(usize, String)> {
    let (mut out, mut code) = (Vec::new(), false);
    for (n, line) in text.lines().enumerate() {
        code ^= line.trim_start().starts_with("```");
        if code || line.starts_with("    ") {
            continue;
        }
        for piece in pieces(line) {
            if let Piece::Link(_, target) = piece {
                out.push((n + 1, target.unwrap_or_default().to_owned()));
            }
        }
    }
    out
}

/// What is wrong with a link of a page.
fn broken(page: &Path, text: &str, link: &str) -> Result<Option<String>, Error> {
    if link.is_empty() || is_item(link) {
        return Ok(Some(format!("a link that only rustdoc understands: {link}")));
    }
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(None);
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = page.parent().unwrap_or(page).join(file);
    if !file.is_empty() && !target.exists() {
        return Ok(Some(format!("leads nowhere: {link}")));
    }
    let other = if file.is_empty() { text.to_owned() } else { text_of(&target)? };
    let known = anchor.is_empty() || other.lines().any(|line| heading(line) == anchor);
    Ok((!known).then(|| format!("no heading for {link}")))
}

/// The text of a page; none of what is no page.
fn text_of(path: &Path) -> Result<String, Error> {
    if path.extension().is_some_and(|kind| kind == "md") { read(path) } else { Ok(String::new()) }
}

/// The anchor of a line that is a heading.
fn heading(line: &str) -> String {
    let Some(title) = line.strip_prefix('#') else { return String::new() };
    let title = title.trim_start_matches('#').trim().to_lowercase();
    let keep = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    };
    title.chars().filter_map(keep).collect()
}

fn pages(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let (mut out, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::read(&folder))? {
            let path = entry.map_err(Error::read(&folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_symlink() {
                // The page is checked where it is.
                continue;
            }
            if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
                folders.push(path);
            } else if name.ends_with(".md") {
                out.push(path);
            }
        }
    }
    out.sort();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_nothing_that_only_rustdoc_understands() {
        let chapter = "See [`Ia`](crate::Ia), [`Pz`] and [there](there.md): `[policy]`, [a](Evd).\n\
                       ```\n# use hidden;\nlet a = [0];\n#\n    # also\n#[cfg]\n```\n```sh\n# shown\n```\n";
        let made = page("c.md", chapter);
        let (_, made) = made.split_once("\n\n").unwrap();
        let sh = "```sh\n# shown\n```\n";
        let code = "```rust\nlet a = [0];\n#[cfg]\n```\n";
        assert_eq!(
            made,
            format!("See `Ia`, `Pz` and [there](there.md): `[policy]`, a.\n{code}{sh}")
        );
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "[a](b.md) `[c](d)` [x]\n```\n[e](f)\n```\n[g](#h-i)\n";
        let found: Vec<_> = links(text);
        assert_eq!(found, [(1, "b.md".to_owned()), (5, "#h-i".to_owned())]);
        let page = Path::new("/nowhere/page.md");
        assert!(broken(page, "# H, i\n", "#h-i").unwrap().is_none());
        assert!(broken(page, "# H\n", "#h-i").unwrap().unwrap().contains("no heading"));
        assert!(broken(page, "", "b.md").unwrap().unwrap().contains("nowhere"));
        assert!(broken(page, "", "crate::Ia").unwrap().is_some());
        assert!(broken(page, "", "https://docs.rs").unwrap().is_none());
    }
}
