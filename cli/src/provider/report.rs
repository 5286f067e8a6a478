//! Results of the child process, and the report made of them. Plain data.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use ual::vp_api::abi;

use super::LOADING;
use super::journal::under_way;
use crate::second::Broken;

/// One case: name, verdict, and why.
struct Case {
    name: String,
    verdict: String,
    why: String,
}

/// The report on one library.
pub(super) struct Report {
    library: PathBuf,
    identity: Option<(String, String)>,
    cases: Vec<Case>,
    /// How many cases are to run.
    planned: usize,
    /// Why it cannot be used as a provider at all.
    pub(super) refusal: Option<String>,
}

impl Report {
    pub(super) fn new(library: &Path) -> Self {
        let library = library.to_owned();
        Self { library, identity: None, cases: vec![], planned: 0, refusal: None }
    }

    /// Records a line of the child; returns the text to show at once.
    pub(super) fn render(&mut self, line: &Value) -> String {
        let text = |key: &str| line[key].as_str().map(str::to_owned);
        if let Some(why) = text("refused") {
            self.refusal = Some(why);
        } else if let Some(planned) = line["cases"].as_u64() {
            self.planned = planned as usize;
        } else if let (Some(name), Some(version)) = (text("name"), text("version")) {
            let line = format!("provider  {name} {version}\n");
            self.identity = Some((name, version));
            return line;
        } else if let (Some(name), Some(verdict)) = (text("ended"), text("verdict")) {
            return self.add(Case { name, verdict, why: text("why").unwrap_or_default() });
        }
        String::new()
    }

    fn add(&mut self, case: Case) -> String {
        let Case { name, verdict, why } = &case;
        let lines = why.lines().map(|line| format!("\n            {}", line.trim_start()));
        let why: String = lines.collect();
        let line = format!("  {verdict:<8}{name}{why}\n");
        self.cases.push(case);
        line
    }

    /// Records that the child broke off in these verbs; returns the text to show.
    pub(super) fn breaks(&mut self, Broken { step, why }: Broken, verbs: &[String]) -> String {
        if self.refusal.is_some() {
            return String::new();
        }
        if step == LOADING {
            self.refusal = Some(format!("{why} while {LOADING}"));
            return String::new();
        }
        let none = || "; no verb of the provider was under way".into();
        let why = why + &under_way(verbs).unwrap_or_else(none);
        self.add(Case { name: step, verdict: "failed".into(), why })
    }

    fn count(&self, verdict: &str) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    /// Cases that were to run after one at which the process broke off.
    fn not_run(&self) -> usize {
        self.planned.saturating_sub(self.cases.len())
    }

    /// No case failed; and one passed, or there is no device.
    pub(super) fn is_good(&self) -> bool {
        let ran = self.count("passed") > 0 || self.count("skipped") == self.cases.len();
        self.refusal.is_none() && self.count("failed") == 0 && ran && !self.cases.is_empty()
    }

    /// The first lines, before anything is tried.
    pub(super) fn head(&self) -> String {
        let (host, major, minor) = (env!("CARGO_PKG_VERSION"), abi::MAJOR, abi::MINOR);
        let library = self.library.display();
        format!("library   {library}\nhost      warpline {host}, provider ABI {major}.{minor}\n")
    }

    /// The last line, with the counts.
    pub(super) fn foot(&self) -> String {
        let [passed, skipped, failed] = ["passed", "skipped", "failed"].map(|v| self.count(v));
        match self.refusal {
            Some(_) => String::new(),
            None => {
                let not_run = match self.not_run() {
                    0 => String::new(),
                    count => format!(", {count} not run"),
                };
                format!("{passed} passed, {skipped} skipped, {failed} failed{not_run}\n")
            }
        }
    }

    pub(super) fn json(&self) -> String {
        let case = |c: &Case| json!({ "case": c.name, "verdict": c.verdict, "why": c.why });
        let report = json!({
            "library": self.library.display().to_string(),
            "host": { "version": env!("CARGO_PKG_VERSION"), "abi": [abi::MAJOR, abi::MINOR] },
            "name": self.identity.as_ref().map(|i| &i.0),
            "version": self.identity.as_ref().map(|i| &i.1),
            "refused": self.refusal,
            "cases": self.cases.iter().map(case).collect::<Vec<_>>(),
            "not_run": self.not_run(),
            "good": self.is_good(),
        });
        format!("{report:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_attributed_to_the_present_step() {
        let broken = |step: &str| Broken { step: step.into(), why: "it hangs".into() };
        let mut report = Report::new(Path::new("/x.so"));
        assert_eq!(report.breaks(broken(LOADING), &[]), "");
        assert_eq!(report.refusal.as_deref(), Some("it hangs while loading the library"));
        let mut report = Report::new(Path::new("/x.so"));
        assert_eq!(report.render(&json!({"name": "x", "version": "1"})), "provider  x 1\n");
        let verbs = ["wait".to_owned()];
        let shown = "  failed  send\n            it hangs; under way in the provider: wait\n";
        assert_eq!(report.breaks(broken("send"), &verbs), shown);
        assert!(!report.is_good());
        assert_eq!(report.foot(), "0 passed, 0 skipped, 1 failed\n");
        report.render(&json!({"cases": 9}));
        assert_eq!(report.foot(), "0 passed, 0 skipped, 1 failed, 8 not run\n");
    }
}
