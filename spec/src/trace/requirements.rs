//! The two lists: `requirements.toml` (what is required) and `exceptions.toml` (what is not done,
//! and why).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::Error;

/// How binding a requirement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// Needs a test or an exception.
    Must,
    /// Needs a place in the source, a test or an exception.
    Should,
    /// Allowed, not required.
    May,
    /// The source is silent; this is our decision.
    Rec,
    /// A note: other implementations, open points.
    Note,
}

impl Level {
    /// The word as it stands in the list.
    pub fn word(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
            Self::Rec => "REC",
            Self::Note => "NOTE",
        }
    }
}

/// One testable sentence.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// For example `MPA-09`. Never reused, never renumbered.
    pub id: String,
    /// Document and section.
    pub section: String,
    /// How binding it is.
    pub level: Level,
    /// The sentence, in our words.
    pub text: String,
}

/// A requirement that is not met or not tested here, and why.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// Id of a requirement.
    pub id: String,
    /// The reason.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequirementFile {
    requirement: Vec<Requirement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExceptionFile {
    #[serde(default)]
    exception: Vec<Exception>,
}

/// Both lists, checked against each other.
#[derive(Debug, Clone)]
pub struct RequirementLists {
    /// In the order of the file.
    pub requirements: Vec<Requirement>,
    /// Reason by id.
    pub exceptions: BTreeMap<String, String>,
}

impl RequirementLists {
    /// Reads both files of the directory `spec`.
    ///
    /// # Errors
    /// An unreadable or malformed file, an id that appears twice, an exception that names no
    /// requirement or gives no reason.
    pub fn load(spec: &Path) -> Result<Self, Error> {
        let (must, may_not) = (spec.join("requirements.toml"), spec.join("exceptions.toml"));
        let lists = Self::parse(&read(&must)?, &read(&may_not)?);
        lists.map_err(|(first, e)| e.into_error(if first { &must } else { &may_not }))
    }

    /// As [`Lists::load`], from text. The flag in the error says whether the first text is meant.
    fn parse(requirements: &str, exceptions: &str) -> Result<Self, (bool, Bad)> {
        let file: RequirementFile =
            toml::from_str(requirements).map_err(|e| (true, Bad::Toml(Box::new(e))))?;
        let mut ids = BTreeSet::new();
        for r in &file.requirement {
            if !ids.insert(r.id.clone()) {
                return Err((true, Bad::What(format!("{} appears twice", r.id))));
            }
        }
        let waived: ExceptionFile =
            toml::from_str(exceptions).map_err(|e| (false, Bad::Toml(Box::new(e))))?;
        let mut map = BTreeMap::new();
        for e in waived.exception {
            let bad = |what: &str| Err((false, Bad::What(format!("{} {what}", e.id))));
            if !ids.contains(&e.id) {
                return bad("is not a requirement");
            }
            if e.reason.trim().is_empty() {
                return bad("has no reason");
            }
            if map.insert(e.id.clone(), e.reason.clone()).is_some() {
                return bad("appears twice");
            }
        }
        Ok(Self { requirements: file.requirement, exceptions: map })
    }
}

#[derive(Debug)]
enum Bad {
    Toml(Box<toml::de::Error>),
    What(String),
}

impl Bad {
    fn into_error(self, path: &Path) -> Error {
        let path = path.to_path_buf();
        match self {
            Self::Toml(source) => Error::Toml { path, source },
            Self::What(what) => Error::List { path, what },
        }
    }
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(Error::read(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "[[requirement]]\nid='MPA-01'\nsection='RFC 5044 4.1'\nlevel='MUST'\ntext='x'";

    fn why(requirements: &str, exceptions: &str) -> (bool, String) {
        match RequirementLists::parse(requirements, exceptions).unwrap_err() {
            (first, Bad::What(what)) => (first, what),
            (first, Bad::Toml(e)) => (first, e.to_string()),
        }
    }

    #[test]
    fn the_lists_of_this_tree_load() {
        let lists = RequirementLists::load(&crate::workspace_root().join("spec")).unwrap();
        assert!(lists.requirements.len() > 250);
    }

    #[test]
    fn an_id_appears_once() {
        assert_eq!(why(&format!("{ONE}\n{ONE}"), ""), (true, "MPA-01 appears twice".into()));
    }

    #[test]
    fn an_exception_names_a_requirement_and_a_reason() {
        let unknown = "[[exception]]\nid='MPA-99'\nreason='r'";
        assert_eq!(why(ONE, unknown), (false, "MPA-99 is not a requirement".into()));
        let silent = "[[exception]]\nid='MPA-01'\nreason=' '";
        assert_eq!(why(ONE, silent), (false, "MPA-01 has no reason".into()));
    }

    #[test]
    fn a_level_outside_the_list_is_refused() {
        let (first, what) = why(&ONE.replace("MUST", "PERHAPS"), "");
        assert!(first && what.contains("PERHAPS"), "{what}");
    }
}
