//! Playing the suite: failures fail the test, and skipped cases are reported once per form.

use std::collections::BTreeMap;
use std::sync::Arc;

use vp_api::Provider;
use warpline_provider::{Reporter, Suite, Summary, Verdict};

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
    played(form, &Suite::on(device), provider)
}

/// The same through shared memory.
pub(crate) fn by_local_streams(form: &str, provider: &Arc<dyn Provider>) -> Summary {
    played(&format!("{form}, local streams"), &Suite::default().by_local_streams(), provider)
}

fn played(form: &str, suite: &Suite<'_>, provider: &Arc<dyn Provider>) -> Summary {
    let mut verdicts = Verdicts::default();
    let summary = suite.run(provider, &mut verdicts);
    assert!(verdicts.failed.is_empty(), "{form}: {:#?}", verdicts.failed);
    let reasons = verdicts.skipped.iter().map(|(why, cases)| format!("{cases} x {why}"));
    let reasons: Vec<_> = reasons.collect();
    if !reasons.is_empty() {
        warpline_skip::skip(&format!("provider suite, {form}"), &reasons.join("; "));
    }
    eprintln!("{form}: {summary:?}");
    summary
}
