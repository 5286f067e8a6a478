//! The suite over every provider that needs no hardware, in every form that can be had here: built
//! in, through the tables within the process, as a library, in wrappers, and in a layer.

use std::path::PathBuf;
use std::sync::Arc;

use vp_api::abi::export::{Exported, descriptor};
use vp_api::abi::types::{ProviderDescriptor, ProviderOps};
use vp_api::{Provider, import};
use vp_hooks::{Wrapper, stack};
use vp_softrdma::SoftRdma;
use warpline_provider::Summary;

use crate::build;
use crate::play::{by_local_streams, suite};

/// A rule whose time never comes, so that every completion goes by way of it.
const IDLE: &str = "fault:drop-completion@1000000000000";

fn wrapped(provider: Arc<dyn Provider>, texts: &[&str]) -> Arc<dyn Provider> {
    let wrappers: Result<Vec<Wrapper>, _> = texts.iter().map(|text| text.parse()).collect();
    stack(provider, &wrappers.unwrap())
}

fn softrdma() -> Arc<dyn Provider> {
    Arc::new(SoftRdma)
}

fn built_in() -> Summary {
    suite("vp_softrdma built in", &softrdma(), None)
}

#[test]
fn softrdma_built_in() {
    assert!(built_in().passed > 50);
}

#[test]
fn softrdma_by_local_streams() {
    assert_eq!(by_local_streams("vp_softrdma built in", &softrdma()), built_in());
}

#[test]
fn softrdma_as_a_library() {
    let library = build::cargo("vp-softrdma-dylib", "vp_softrdma");
    let provider = import::load(&library).unwrap();
    assert_eq!((provider.name(), provider.version()), ("vp_softrdma", env!("CARGO_PKG_VERSION")));
    // In both forms at once, in one process, and no case less.
    assert_eq!(suite("vp_softrdma as a library", &provider, None), built_in());
    assert_eq!(by_local_streams("vp_softrdma as a library", &provider), built_in());
}

/// Exported and imported again within this process: the border without a library.
#[test]
fn softrdma_through_the_tables() {
    static EXPORTED: Exported = Exported::new();
    static DESCRIPTOR: ProviderDescriptor =
        descriptor("vp_softrdma\0", "1\0", vp_api::Capabilities::all());
    extern "C" fn get_ops(_: u32) -> *const ProviderOps {
        EXPORTED.table(softrdma)
    }
    // SAFETY: both are this crate's own, made by the exporter, and static.
    let provider = unsafe { import::from_descriptor(&raw const DESCRIPTOR, get_ops) }.unwrap();
    assert_eq!(suite("vp_softrdma through the tables", &provider, None), built_in());
}

/// What watches must not disturb: each wrapper alone, and all at once.
#[test]
fn softrdma_in_wrappers() {
    let bare = built_in();
    for texts in [&["trace"][..], &["stats"], &[IDLE], &["trace", IDLE, "stats:every=1"]] {
        let provider = wrapped(softrdma(), texts);
        assert_eq!(suite(&format!("vp_softrdma in {texts:?}"), &provider, None), bare);
    }
}

/// The layer of C that passes everything on, built; `None` without a compiler.
pub(crate) fn layer(test: &str) -> Option<PathBuf> {
    layer_of(test, "layer")
}

/// The layer of C in this directory of the fixtures, built; `None` without a compiler.
pub(crate) fn layer_of(test: &str, sources: &str) -> Option<PathBuf> {
    let library = build::scratch(test).join("liblayer.so");
    let sources = build::root().join("vp-api/suite/fixtures").join(sources);
    build::c(&sources, &build::headers(), &library).map(|()| library)
}

#[test]
fn softrdma_in_a_layer_between_wrappers() {
    let Some(library) = layer("layer") else {
        return warpline_skip::skip(
            "softrdma_in_a_layer_between_wrappers",
            warpline_skip::missing("gcc"),
        );
    };
    let layer = import::Layer::load(&library).unwrap();
    let refused = layer.wrap(softrdma(), "refuse").err().unwrap();
    assert_eq!(refused.fault, import::Fault::Refused("as it was told".into()));
    // A layer is no provider.
    let why = import::load(&library).err().unwrap();
    assert_eq!(why.fault, import::Fault::MissingSymbol("warpline_provider_get_ops".into()));
    assert!(why.may_be_layer());
    let text = format!("layer:{}", library.display());
    let bare = built_in();
    for texts in [&[&*text][..], &["trace", &text, IDLE, &text, "stats"]] {
        let provider = wrapped(softrdma(), texts);
        assert_eq!(provider.name(), "vp_softrdma");
        assert_eq!(suite("vp_softrdma in a layer", &provider, None), bare);
    }
    std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
}

/// The library of a provider, and in wrappers: the native connection model goes through both.
fn library_passes(name: &str, library: &std::path::Path) {
    let provider = import::load(library).unwrap();
    let bare = suite(name, &provider, None);
    assert!(bare.passed > 35 && bare.skipped > 0, "{bare:?}");
    let provider = wrapped(provider, &["trace", IDLE, "stats:every=1"]);
    assert_eq!(suite(&format!("{name}, in wrappers"), &provider, None), bare);
}

#[test]
fn a_vendors_library_of_c() {
    let dir = build::scratch("vendor-c");
    let library = dir.join("libvendor_loop.so");
    let Some(()) = build::c(&build::vendor_c(), &build::headers(), &library) else {
        return warpline_skip::skip("a_vendors_library_of_c", warpline_skip::missing("gcc"));
    };
    library_passes("vendor_loop as a library", &library);
    std::fs::remove_dir_all(dir).unwrap();
}

/// The header as it was in its first version is kept; what was built with it must still work.
#[test]
fn a_library_built_with_the_first_header() {
    let dir = build::scratch("first-header");
    let library = dir.join("libvendor_loop.so");
    let headers = build::root().join("vp-api/suite/fixtures/1.0");
    let Some(()) = build::c(&build::vendor_c(), &headers, &library) else {
        return warpline_skip::skip(
            "a_library_built_with_the_first_header",
            warpline_skip::missing("gcc"),
        );
    };
    library_passes("vendor_loop of header 1.0", &library);
    std::fs::remove_dir_all(dir).unwrap();
}

/// Its `Cargo.lock` has versions of the workspace's only, so that all of them were downloaded before.
#[test]
fn an_out_of_tree_crate() {
    let manifest = build::root().join("examples/vendor-provider-rust/Cargo.toml");
    let target = build::directory().parent().unwrap().join("vendor-provider-rust");
    let mut command = std::process::Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--offline", "--manifest-path"]).arg(manifest);
    assert!(command.arg("--target-dir").arg(&target).status().unwrap().success());
    library_passes("vendor_mirror as a library", &target.join("debug/libvendor_mirror.so"));
}
