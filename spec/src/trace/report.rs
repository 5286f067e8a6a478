//! The table of requirements, and its findings.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::requirements::{Level, Requirement, RequirementLists};
use super::scan::{Citations, Place};

/// The lists and the places joined.
#[derive(Debug, Clone)]
pub struct Report {
    lists: RequirementLists,
    found: BTreeMap<String, Citations>,
}

/// How the table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// For a terminal.
    Plain,
    /// For a page.
    Markdown,
}

impl Report {
    /// Joins the lists with what [`super::scan::scan`] found.
    pub fn new(lists: RequirementLists, found: BTreeMap<String, Citations>) -> Self {
        Self { lists, found }
    }

    /// One line per finding; empty when all is well.
    pub fn findings(&self) -> Vec<String> {
        let unknown = self.found.iter().filter(|(id, _)| !self.known(id)).map(|(id, p)| {
            let at = p.code.iter().chain(&p.tests).next();
            let at = at.map(Place::to_string).unwrap_or_default();
            format!("{at}: {id} is not a requirement")
        });
        let unmet = self.lists.requirements.iter().filter_map(|r| self.finding(r));
        unknown.chain(unmet).collect()
    }

    fn known(&self, id: &str) -> bool {
        self.lists.requirements.iter().any(|r| r.id == id)
    }

    fn finding(&self, r: &Requirement) -> Option<String> {
        let places = self.places(&r.id);
        let excused = self.lists.exceptions.contains_key(&r.id);
        match r.level {
            Level::Must if places.tests.is_empty() && !excused => {
                Some(format!("{}: a MUST without a test or an exception: {}", r.id, r.text))
            }
            Level::Should if places == Citations::default() && !excused => {
                Some(format!("{}: a SHOULD that nothing names: {}", r.id, r.text))
            }
            _ if excused && !places.tests.is_empty() => {
                Some(format!("{}: tested, so its exception is out of date", r.id))
            }
            _ => None,
        }
    }

    fn places(&self, id: &str) -> Citations {
        self.found.get(id).cloned().unwrap_or_default()
    }

    /// How many there are of each kind, in one line.
    pub fn summary(&self) -> String {
        let all = self.lists.requirements.len();
        let must = self.lists.requirements.iter().filter(|r| r.level == Level::Must);
        let (mut musts, mut tested, mut excused) = (0, 0, 0);
        for r in must {
            musts += 1;
            tested += usize::from(!self.places(&r.id).tests.is_empty());
            excused += usize::from(self.lists.exceptions.contains_key(&r.id));
        }
        format!("{all} requirements; of {musts} MUST {tested} are tested, {excused} are exceptions")
    }

    /// The table: requirement, level, source lines, tests; an exception's reason instead.
    pub fn table(&self, style: Style) -> String {
        let mut out = String::new();
        if style == Style::Markdown {
            out.push_str("| id | level | section | source | tests |\n|---|---|---|---|---|\n");
        }
        for r in &self.lists.requirements {
            // Writing to a string cannot fail.
            let _ = match style {
                Style::Markdown => self.markdown_row(r, &mut out),
                Style::Plain => self.plain_row(r, &mut out),
            };
        }
        out
    }

    fn markdown_row(&self, r: &Requirement, out: &mut String) -> std::fmt::Result {
        let p = self.places(&r.id);
        let tests = match self.lists.exceptions.get(&r.id) {
            Some(reason) => format!("*exception:* {}", reason.replace('|', "\\|")),
            None => join(&p.tests),
        };
        let (id, level, section) = (&r.id, r.level.word(), &r.section);
        writeln!(out, "| {id} | {level} | {section} | {} | {tests} |", join(&p.code))
    }

    fn plain_row(&self, r: &Requirement, out: &mut String) -> std::fmt::Result {
        let p = self.places(&r.id);
        writeln!(out, "{:9} {:6} {} ({})", r.id, r.level.word(), r.text, r.section)?;
        if !p.code.is_empty() {
            writeln!(out, "{:17}source {}", "", join(&p.code))?;
        }
        if !p.tests.is_empty() {
            writeln!(out, "{:17}tests  {}", "", join(&p.tests))?;
        }
        if let Some(reason) = self.lists.exceptions.get(&r.id) {
            writeln!(out, "{:17}exception: {reason}", "")?;
        }
        Ok(())
    }
}

fn join(places: &[Place]) -> String {
    places.iter().map(Place::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(id: &str, level: Level) -> Requirement {
        let (section, text) = ("RFC 0 1".to_owned(), "do it".to_owned());
        Requirement { id: id.to_owned(), section, level, text }
    }

    fn report(excused: &[&str], code: &[&str], tests: &[&str]) -> Report {
        let lists = RequirementLists {
            requirements: vec![
                requirement("MPA-01", Level::Must),
                requirement("MPA-02", Level::Should),
            ],
            exceptions: excused.iter().map(|&id| (id.to_owned(), "no need".to_owned())).collect(),
        };
        let place = |id: &str| Place { path: format!("{id}.rs"), line: 7 };
        let mut found: BTreeMap<String, Citations> = BTreeMap::new();
        for &id in code {
            found.entry(id.to_owned()).or_default().code.push(place(id));
        }
        for &id in tests {
            found.entry(id.to_owned()).or_default().tests.push(place(id));
        }
        Report::new(lists, found)
    }

    #[test]
    fn a_must_needs_a_test_and_a_should_a_place() {
        assert!(report(&[], &["MPA-02"], &["MPA-01"]).findings().is_empty());
        assert_eq!(report(&[], &["MPA-01", "MPA-02"], &[]).findings().len(), 1);
        assert_eq!(report(&[], &[], &["MPA-01"]).findings().len(), 1);
        assert!(report(&["MPA-01", "MPA-02"], &[], &[]).findings().is_empty());
    }

    #[test]
    fn unknown_ids_and_stale_exceptions_are_found() {
        let found = report(&["MPA-01"], &["MPA-02", "MPA-99"], &["MPA-01"]).findings();
        assert_eq!(found[0], "MPA-99.rs:7: MPA-99 is not a requirement");
        assert!(found[1].contains("out of date"));
    }

    #[test]
    fn both_tables_show_places_and_reasons() {
        let r = report(&["MPA-02"], &["MPA-01"], &["MPA-01"]);
        let page = r.table(Style::Markdown);
        assert!(page.contains("| MPA-01 | MUST | RFC 0 1 | MPA-01.rs:7 | MPA-01.rs:7 |"), "{page}");
        assert!(page.contains("*exception:* no need"));
        assert!(r.table(Style::Plain).contains("exception: no need"));
        assert!(r.summary().contains("of 1 MUST 1 are tested, 0 are exceptions"));
    }
}
