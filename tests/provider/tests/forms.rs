//! The suite over every provider in every form that can be had here.
#![allow(clippy::unwrap_used)] // a test fails loudly

mod build;

use std::sync::Arc;

use vp_api::abi::export::{Exported, descriptor};
use vp_api::abi::types::{ProviderDescriptor, ProviderOps};
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

/// The header as it was in its first version is kept; what was built with it must still work.
#[test]
fn a_library_built_with_the_first_header() {
    let dir = build::scratch("first-header");
    let library = dir.join("libvendor_loop.so");
    let headers = build::root().join("tests/provider/fixtures/1.0");
    let Some(()) = build::c(&build::vendor_c(), &headers, &library) else {
        return warpline_skip::skip("a_library_built_with_the_first_header", "no C compiler");
    };
    assert!(passes(import::load(&library).unwrap()).passed > 35);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn an_out_of_tree_crate() {
    let manifest = build::root().join("examples/vendor-provider-rust/Cargo.toml");
    let target = build::target().parent().unwrap().join("vendor-provider-rust");
    let mut command = std::process::Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--offline", "--manifest-path"]).arg(manifest);
    assert!(command.arg("--target-dir").arg(&target).status().unwrap().success());
    let library = target.join("debug/libvendor_mirror.so");
    let summary = passes(import::load(&library).unwrap());
    assert!(summary.passed > 35, "{summary:?}");
}

/// Exported and imported again within this process: the border without a library.
#[test]
fn softrdma_through_the_tables() {
    static EXPORTED: Exported = Exported::new();
    static DESCRIPTOR: ProviderDescriptor =
        descriptor("vp_softrdma\0", "1\0", vp_api::Capabilities::all());
    extern "C" fn get_ops(_: u32) -> *const ProviderOps {
        EXPORTED.table(|| Arc::new(SoftRdma))
    }
    // SAFETY: both are this crate's own, made by the exporter, and static.
    let provider = unsafe { import::from_descriptor(&raw const DESCRIPTOR, get_ops) };
    passes(provider.unwrap());
}

#[test]
fn a_layer_of_c_around_softrdma() {
    let dir = build::scratch("layer");
    let library = dir.join("liblayer.so");
    let sources = build::root().join("tests/provider/fixtures/layer");
    let Some(()) = build::c(&sources, &build::headers(), &library) else {
        return warpline_skip::skip("a_layer_of_c_around_softrdma", "no C compiler");
    };
    let layer = import::Layer::load(&library).unwrap();
    let refused = layer.wrap(Arc::new(SoftRdma), "refuse").err().unwrap();
    assert_eq!(refused.fault, import::Fault::Refused("as it was told".into()));
    let wrapped = layer.wrap(Arc::new(SoftRdma), "").unwrap();
    assert_eq!(wrapped.name(), "vp_softrdma");
    passes(wrapped);
    // A layer is no provider.
    let fault = import::load(&library).err().unwrap().fault;
    assert_eq!(fault, import::Fault::MissingSymbol("warpline_provider_get_ops".into()));
    std::fs::remove_dir_all(dir).unwrap();
}

/// The suite over it needs devices or their stand-in; here it must say the same as the built-in one.
#[test]
fn the_bridge_to_hardware_as_a_library() {
    let provider = import::load(&build::cargo("vp-verbs-dylib", "vp_verbs")).unwrap();
    assert_eq!(provider.name(), "vp_verbs");
    assert_eq!(provider.devices(), vp_verbs::Verbs::default().devices());
}
