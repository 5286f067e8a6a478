//! Finds a promise of the contract by its id: the text before `[RI-41]` in the header or in the guide. Text only,
//! no state.

const TEXTS: [&str; 6] = [
    include_str!("rnicpi.h"),
    include_str!("rnicpi_qp.h"),
    include_str!("rnicpi_cm.h"),
    include_str!("rnicpi_ud.h"),
    include_str!("rnicpi_path.h"),
    include_str!("provider-guide.md"),
];

/// The promise with that id, to be shown with a failure.
pub(crate) fn quote(id: &str) -> String {
    let mark = format!("[{id}]");
    let found = TEXTS.iter().find_map(|text| text.split_once(&mark));
    let promise = found.map(|(before, _)| sentence(before)).unwrap_or_default();
    format!("the contract {mark}: {promise}")
}

/// The last sentence of a text; for a comment after a declaration, behind what is declared.
fn sentence(before: &str) -> String {
    let line = before.rsplit('\n').next().unwrap_or_default();
    // A comment beside a declaration is about that declaration.
    if let Some((declaration, comment)) = line.split_once("/*") {
        return match declared(declaration) {
            "" => last(comment),
            name => format!("{name}: {}", last(comment)),
        };
    }
    let breaks =
        ["/*", "\n\n", "\n *\n"].map(|mark| before.rfind(mark).map_or(0, |at| at + mark.len()));
    last(&before[breaks.into_iter().max().unwrap_or(0)..])
}

/// What a line of C declares: the name of a constant, or the declaration without its end.
fn declared(line: &str) -> &str {
    let line = line.trim().trim_end_matches([';', ',']);
    let constant = line.strip_prefix("#define ").and_then(|rest| rest.split_whitespace().next());
    constant.unwrap_or(line)
}

/// The last sentence, without the marks of C, of other promises, and of emphasis.
fn last(text: &str) -> String {
    let text = text.lines().map(untitled).collect::<Vec<_>>().join("\n");
    let words = text.split_whitespace().filter(|word| !matches!(*word, "*" | "/*" | "*/"));
    let words = words.map(|word| match word.strip_prefix("[RI-").and_then(|w| w.split_once(']')) {
        Some((_, rest)) => rest.to_owned(),
        None => plain(word),
    });
    let mut text = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    for mark in [",", ";", ":", "."] {
        text = text.replace(&format!(" {mark}"), mark);
    }
    let begin = text.rfind(". ").map_or(0, |at| at + 2);
    text[begin..].to_owned()
}

/// A line of a comment, without a title in front of it: a word and several blanks, where a sentence begins.
fn untitled(line: &str) -> String {
    let rest = line.trim_start().strip_prefix("*  ").map(str::trim_start);
    match rest.and_then(|rest| rest.split_once("  ")) {
        Some((title, rest)) if !title.contains(' ') => format!(". {rest}"),
        _ => line.to_owned(),
    }
}

/// A word without emphasis. What begins with `*` and does not end so is an argument that the function sets.
fn plain(word: &str) -> String {
    let word = word.replace("**", "");
    match word.strip_prefix('*').and_then(|word| word.strip_suffix('*')) {
        Some(inner) => inner.to_owned(),
        None => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_at_its_mark() {
        let text = "/* First one. A second\n * one [RI-7], and ";
        assert_eq!(sentence(text), "A second one, and");
        assert_eq!(sentence("int x;\n    int y; /* so "), "int y: so");
        assert_eq!(sentence("#define RI_X 4 /* not so "), "RI_X: not so");
        assert_eq!(sentence("# Guide\n\nOne. Two **words**\nand *more* "), "Two words and more");
        assert_eq!(sentence("/* The end [RI-1].\n * Sets *n "), "Sets *n");
        assert_eq!(sentence("/* One.\n *\n * Two [RI-1], if "), "Two, if");
        assert_eq!(sentence("/* One [RI-1].\n *  Threads   Any one "), "Any one");
    }

    #[test]
    fn quotes_are_prose() {
        for id in crate::cases::all().flat_map(|case| case.keeps.split(' ')) {
            let text = quote(id);
            for noise in ["#define", "**", "/*", "*/", " .", ";:", "  "] {
                assert!(!text.contains(noise), "{text}");
            }
        }
    }

    #[test]
    fn every_case_can_be_quoted() {
        for id in crate::cases::all().flat_map(|case| case.keeps.split(' ')) {
            assert!(id.is_empty() || quote(id).len() > id.len() + 20, "{id}: {}", quote(id));
        }
    }
}
