//! What the parent heard from the child, and the report that it makes of it. Plain data.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use serde_json::{Value, json};
use ual::vp_api::abi;

use super::child::LOADING;

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
    /// Begun and not ended.
    step: Option<String>,
    done: bool,
    /// Why it cannot be used as a provider at all.
    pub(super) refusal: Option<String>,
}

impl Report {
    pub(super) fn new(library: &Path) -> Self {
        let library = library.to_owned();
        Self { library, identity: None, cases: vec![], step: None, done: false, refusal: None }
    }

    /// A line of the child; the library may write to standard output too, which is passed over.
    pub(super) fn hears(&mut self, line: &str) {
        let Ok(said) = serde_json::from_str::<Value>(line) else { return };
        let text = |key: &str| said[key].as_str().map(str::to_owned);
        if let Some(step) = text("begins") {
            self.step = Some(step);
        } else if let Some(why) = text("refused") {
            self.refusal = Some(why);
            self.step = None;
        } else if let (Some(name), Some(version)) = (text("name"), text("version")) {
            self.identity = Some((name, version));
            self.step = None;
        } else if let (Some(name), Some(verdict)) = (text("ended"), text("verdict")) {
            self.step = None;
            self.cases.push(Case { name, verdict, why: text("why").unwrap_or_default() });
        } else if said["done"] == json!(true) {
            self.done = true;
        }
    }

    /// The child is gone.
    pub(super) fn ends(&mut self, status: ExitStatus, hung: bool) {
        if self.done || self.refusal.is_some() {
            return;
        }
        let why = match (hung, status.signal(), status.code()) {
            (true, ..) => "it hangs".to_owned(),
            (_, Some(signal), _) => format!("the process is killed by {}", name(signal)),
            (_, _, code) => format!("the process ends with status {}", code.unwrap_or(-1)),
        };
        let step = self.step.take().unwrap_or_else(|| "ending the process".into());
        if step == LOADING {
            self.refusal = Some(format!("{why} while {LOADING}"));
        } else {
            self.cases.push(Case { name: step, verdict: "failed".into(), why });
        }
    }

    /// The library is being loaded.
    pub(super) fn is_loading(&self) -> bool {
        self.step.as_deref() == Some(LOADING)
    }

    fn count(&self, verdict: &str) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    pub(super) fn is_good(&self) -> bool {
        self.refusal.is_none() && self.count("failed") == 0 && self.count("passed") > 0
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("library   {}\n", self.library.display());
        let (host, major, minor) = (env!("CARGO_PKG_VERSION"), abi::MAJOR, abi::MINOR);
        text += &format!("host      warpline {host}, provider ABI {major}.{minor}\n");
        if let Some((name, version)) = &self.identity {
            text += &format!("provider  {name} {version}\n");
        }
        for case in &self.cases {
            let Case { name, verdict, why } = case;
            let why = if why.is_empty() { String::new() } else { format!("\n            {why}") };
            text += &format!("  {verdict:<8}{name}{why}\n");
        }
        let [passed, skipped, failed] = ["passed", "skipped", "failed"].map(|v| self.count(v));
        if self.refusal.is_none() {
            text += &format!("{passed} passed, {skipped} skipped, {failed} failed\n");
        }
        text
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
            "good": self.is_good(),
        });
        format!("{report:#}\n")
    }
}

/// What libraries that are broken die of.
fn name(signal: i32) -> String {
    let name = match signal {
        4 => "illegal instruction",
        6 => "abort",
        7 => "bus error; is the file cut short?",
        8 => "arithmetic error",
        9 => "kill",
        11 => "segmentation fault",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_laid_to_what_was_under_way() {
        let mut report = Report::new(Path::new("/x.so"));
        report.hears(&json!({ "begins": LOADING }).to_string());
        report.hears("a library may print what it likes");
        report.ends(ExitStatus::from_raw(6), false);
        let refusal = report.refusal.as_deref();
        let expected = "the process is killed by signal 6 (abort) while loading the library";
        assert_eq!(refusal, Some(expected));
        let mut report = Report::new(Path::new("/x.so"));
        report.hears(r#"{"name":"x","version":"1"}"#);
        report.hears(r#"{"begins":"send"}"#);
        report.ends(ExitStatus::from_raw(11), true);
        assert!(!report.is_good());
        assert!(report.text().contains("failed  send\n            it hangs"), "{}", report.text());
    }
}
