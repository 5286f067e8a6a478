//! The suite over every provider in every form that can be had here.
#![allow(clippy::unwrap_used)] // a test fails loudly

mod build;

use std::sync::Arc;

use vp_api::{Provider, import};
use vp_softrdma::SoftRdma;
use warpline_provider::{Reporter, Summary, Verdict, run};

struct Stderr;

impl Reporter for Stderr {
    fn begins(&mut self, _: &str) {}
    fn ended(&mut self, case: &str, verdict: &Verdict) {
        eprintln!("{verdict:?} {case}");
    }
}

fn passes(provider: Arc<dyn Provider>) -> Summary {
    let summary = run(&provider, None, &mut Stderr);
    assert_eq!(summary.failed, 0);
    summary
}

#[test]
fn softrdma_built_in() {
    assert!(passes(Arc::new(SoftRdma)).passed > 50);
}

#[test]
fn softrdma_as_a_library() {
    let library = build::cargo("vp-softrdma-dylib", "vp_softrdma");
    let provider = import::load(&library).unwrap();
    assert_eq!((provider.name(), provider.version()), ("vp_softrdma", env!("CARGO_PKG_VERSION")));
    // In both forms at once, in one process, and no case less.
    assert_eq!(passes(provider), passes(Arc::new(SoftRdma)));
}

#[test]
fn a_vendors_library_of_c() {
    let dir = build::scratch("vendor-c");
    let library = dir.join("libvendor_loop.so");
    let Some(()) = build::c(&build::vendor_c(), &build::headers(), &library) else {
        return warpline_skip::skip("a_vendors_library_of_c", "no C compiler");
    };
    let summary = passes(import::load(&library).unwrap());
    assert!(summary.passed > 35 && summary.skipped > 0, "{summary:?}");
    std::fs::remove_dir_all(dir).unwrap();
}
