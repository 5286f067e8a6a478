//! The suite over SoftRDMA in wrappers: what watches must not disturb.

use std::sync::Arc;

use vp_api::Provider;
use vp_hooks::{Wrapper, stack};
use vp_softrdma::SoftRdma;
use warpline_provider::{Reporter, Verdict, run};

struct Failures;

impl Reporter for Failures {
    fn begins(&mut self, _: &str) {}
    fn ended(&mut self, case: &str, verdict: &Verdict) {
        if let Verdict::Failed(why) = verdict {
            eprintln!("{case}: {why}");
        }
    }
}

/// No wrapper, each wrapper alone, and all at once: the same cases pass.
#[test]
fn wrappers_that_watch_disturb_nothing() {
    let wrapped = |texts: &[&str]| -> Arc<dyn Provider> {
        let wrappers: Result<Vec<Wrapper>, _> = texts.iter().map(|text| text.parse()).collect();
        stack(Arc::new(SoftRdma), &wrappers.unwrap_or_else(|error| panic!("{error}")))
    };
    let bare = run(&wrapped(&[]), None, &mut Failures);
    // A rule whose time never comes, so that every completion goes by way of it.
    let idle = "fault:drop-completion@1000000000000";
    for texts in [&["trace"][..], &["stats"], &[idle], &["trace", idle, "stats:every=1"]] {
        assert_eq!(run(&wrapped(texts), None, &mut Failures), bare, "{texts:?}");
    }
}
