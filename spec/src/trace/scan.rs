//! Scans comments for requirement ids: `[MPA-09]`, `[MPA-13, CONN-03]`.

use std::collections::BTreeMap;

use crate::source::Source;

/// A line that names a requirement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Relative to the root.
    pub path: String,
    /// From 1.
    pub line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}

/// Where one requirement is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Citations {
    /// Code that obeys it.
    pub code: Vec<Place>,
    /// Tests of it.
    pub tests: Vec<Place>,
}

/// Ids that must not end up in the table: this crate talks about ids.
const OWN: &str = "spec/src/";

/// All ids of the tree with their places.
pub fn scan(sources: &[Source]) -> BTreeMap<String, Citations> {
    let mut found: BTreeMap<String, Citations> = BTreeMap::new();
    for source in sources.iter().filter(|s| !s.path.starts_with(OWN)) {
        let tests = source.test_lines();
        for (n, &in_test) in tests.iter().enumerate() {
            for id in ids(source.split(n).1) {
                let places = found.entry(id.to_owned()).or_default();
                let list = if in_test { &mut places.tests } else { &mut places.code };
                list.push(Place { path: source.path.clone(), line: n + 1 });
            }
        }
    }
    found
}

/// The ids inside square brackets of a comment.
fn ids(comment: &str) -> impl Iterator<Item = &str> {
    let inside = comment.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
    inside.flat_map(|(list, _)| list.split(',')).map(str::trim).filter(|id| is_id(id))
}

/// Two to six capitals, a hyphen, two digits.
fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(group, number)| {
        // Promises to vendors are a list of their own, see `contract`.
        group != "RI"
            && (2..=6).contains(&group.len())
            && group.bytes().all(|b| b.is_ascii_uppercase())
            && number.len() == 2
            && number.bytes().all(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Language;

    #[test]
    fn ids_stand_in_brackets() {
        let all = |c| ids(c).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(all("// RFC 5044 4.4 [MPA-09]"), ["MPA-09"]);
        assert_eq!(all("// [MPA-13, CONN-03] and [ERR-02]"), ["MPA-13", "CONN-03", "ERR-02"]);
        assert!(all("// MPA-09, [UTF-8], [RI-41], [RFC-5044], [`Ab-01`], [open").is_empty());
    }

    #[test]
    fn code_and_tests_are_distinguished() {
        let text =
            "// [DDP-01]\nfn a() {}\n#[cfg(test)]\nmod tests {\n    // [DDP-01]\n    fn b() {}\n}";
        let found = scan(&[Source::new("x/src/a.rs", Language::Rust, text)]);
        let places = &found["DDP-01"];
        assert_eq!(places.code[0].to_string(), "x/src/a.rs:1");
        assert_eq!(places.tests[0].to_string(), "x/src/a.rs:5");
    }

    #[test]
    fn an_id_in_a_string_does_not_count() {
        let found = scan(&[Source::new("x/a.rs", Language::Rust, "let a = \"[DDP-01]\";")]);
        assert!(found.is_empty());
    }
}
