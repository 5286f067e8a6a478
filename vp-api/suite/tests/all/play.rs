//! Playing the suite: failures fail the test. Cases of what the provider does not offer are only counted.

use std::sync::Arc;

use vp_api::Provider;
use warpline_provider::{Reporter, Suite, Summary, Verdict};

#[derive(Default)]
struct Verdicts {
    failed: Vec<String>,
}

impl Reporter for Verdicts {
    fn begins(&mut self, _: &str) {}
    fn ended(&mut self, case: &str, verdict: &Verdict) {
        if let Verdict::Failed(why) = verdict {
            self.failed.push(format!("{case}: {why}"));
        }
    }
}

/// Every case passes, or is of what the provider does not offer; `form` says what is played.
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
    eprintln!("{form}: {summary:?}");
    summary
}
