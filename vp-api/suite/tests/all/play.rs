//! Playing the suite: failures fail the test, and what was skipped is told once per form.

use std::collections::BTreeMap;
use std::sync::Arc;

use vp_api::Provider;
use warpline_provider::{Reporter, Summary, Verdict, run};

#[derive(Default)]
struct Verdicts {
    failed: Vec<String>,
    /// How many cases were skipped for each reason.
    skipped: BTreeMap<String, u32>,
}

impl Reporter for Verdicts {
    fn begins(&mut self, _: &str) {}
    fn ended(&mut self, case: &str, verdict: &Verdict) {
        match verdict {
            Verdict::Passed => {}
            Verdict::Skipped(why) => *self.skipped.entry(why.clone()).or_default() += 1,
            Verdict::Failed(why) => self.failed.push(format!("{case}: {why}")),
        }
    }
}

/// Every case passes or is skipped; `form` says what is played.
pub(crate) fn suite(form: &str, provider: &Arc<dyn Provider>, device: Option<&str>) -> Summary {
    let mut verdicts = Verdicts::default();
    let summary = run(provider, device, &mut verdicts);
    assert!(verdicts.failed.is_empty(), "{form}: {:#?}", verdicts.failed);
    let reasons = verdicts.skipped.iter().map(|(why, cases)| format!("{cases} x {why}"));
    let reasons: Vec<_> = reasons.collect();
    if !reasons.is_empty() {
        warpline_skip::skip(&format!("provider suite, {form}"), &reasons.join("; "));
    }
    eprintln!("{form}: {summary:?}");
    summary
}
