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

/// The last sentence of a text; for a comment after a declaration, with the declaration.
fn sentence(before: &str) -> String {
    let line = before.rsplit('\n').next().unwrap_or_default();
    // A comment beside a declaration is about that declaration.
    let begin = match line.find("/*") {
        Some(_) => before.len() - line.len(),
        None => before.rfind("/*").map_or(0, |at| at + 2).max(before.rfind("\n\n").unwrap_or(0)),
    };
    let text = &before[begin..];
    let begin = text.rfind(". ").map_or(0, |at| at + 2);
    let words = text[begin..].split_whitespace().filter(|word| !matches!(*word, "*" | "/*" | "*/"));
    // Other ids in the sentence are removed.
    let words = words.map(|word| match word.strip_prefix("[RI-").and_then(|w| w.split_once(']')) {
        Some((_, rest)) => rest,
        None => word,
    });
    words.collect::<Vec<_>>().join(" ").replace(" ,", ",").replace(" ;", ";").replace(" :", ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_at_its_mark() {
        let text = "/* First one. A second\n * one [RI-7], and ";
        assert_eq!(sentence(text), "A second one, and");
        assert_eq!(sentence("int x;\n    int y; /* so "), "int y; so");
        assert_eq!(sentence("# Guide\n\nOne. Two **words**\nmore "), "Two **words** more");
    }

    #[test]
    fn every_case_can_be_quoted() {
        for id in crate::cases::all().flat_map(|case| case.keeps.split(' ')) {
            assert!(id.is_empty() || quote(id).len() > id.len() + 20, "{id}: {}", quote(id));
        }
    }
}
