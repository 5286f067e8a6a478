//! The suite over RoCE on UDP sockets: built in, through the tables, as a library, in wrappers, and in a layer of C.
//!
//! One process of a network has RoCE's port of an address, so each test runs itself again in a network of its own.

use std::process::Command;
use std::sync::Arc;

use vp_api::Provider;
use vp_api::abi::export::{Exported, descriptor};
use vp_api::abi::types::{ProviderDescriptor, ProviderOps};
use vp_api::import;
use vp_hooks::{Wrapper, stack};
use vp_roce::Roce;
use warpline_provider::Summary;

use crate::build;
use crate::forms::layer;
use crate::play::suite;

/// Set in the child.
const CHILD: &str = "WARPLINE_TEST_ROCE";

/// Runs `test` of this program again in a network namespace with a loopback; true in the child, which plays. Where
/// there are no namespaces it plays here.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let with = ["--map-root-user", "--net", "ip", "link", "set", "lo", "up"];
    if !Command::new("unshare").args(with).output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    let script = "ip link set lo up && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env(CHILD, "1");
    let output = command.output().unwrap();
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    false
}

fn roce() -> Arc<dyn Provider> {
    Arc::new(Roce)
}

fn built_in() -> Summary {
    suite("vp_roce built in", &roce(), None)
}

#[test]
fn roce_built_in() {
    if is_alone("roce::roce_built_in") {
        assert!(built_in().passed > 200);
    }
}

/// Exported and imported again within this process: the border without a library.
#[test]
fn roce_through_the_tables() {
    static EXPORTED: Exported = Exported::new();
    static DESCRIPTOR: ProviderDescriptor =
        descriptor("vp_roce\0", "1\0", vp_api::Capabilities::all());
    extern "C" fn get_ops(_: u32) -> *const ProviderOps {
        EXPORTED.table(roce)
    }
    if !is_alone("roce::roce_through_the_tables") {
        return;
    }
    // SAFETY: both are this crate's own, made by the exporter, and static.
    let provider = unsafe { import::from_descriptor(&raw const DESCRIPTOR, get_ops) }.unwrap();
    assert_eq!(suite("vp_roce through the tables", &provider, None), built_in());
}

#[test]
fn roce_as_a_library() {
    if !is_alone("roce::roce_as_a_library") {
        return;
    }
    let provider = import::load(&build::cargo("vp-roce-dylib", "vp_roce")).unwrap();
    assert_eq!((provider.name(), provider.version()), ("vp_roce", env!("CARGO_PKG_VERSION")));
    // No case less than built in, the cases of bring-up by path included.
    assert_eq!(suite("vp_roce as a library", &provider, None), built_in());
}

/// A layer compiled from C copies the table of the provider; the RNIC and its paths stay those of Rust.
#[test]
fn roce_in_a_layer_between_wrappers() {
    if !is_alone("roce::roce_in_a_layer_between_wrappers") {
        return;
    }
    let Some(library) = layer("roce-layer") else {
        return warpline_skip::skip(
            "roce_in_a_layer_between_wrappers",
            warpline_skip::missing("gcc"),
        );
    };
    let text = format!("layer:{}", library.display());
    let provider = wrapped(&["trace", &text, "stats"]);
    assert_eq!(suite("vp_roce in a layer", &provider, None), built_in());
    std::fs::remove_dir_all(library.parent().unwrap()).unwrap();
}

fn wrapped(texts: &[&str]) -> Arc<dyn Provider> {
    let wrappers: Vec<Wrapper> = texts.iter().map(|text| text.parse().unwrap()).collect();
    stack(roce(), &wrappers)
}

#[test]
fn roce_in_wrappers() {
    if !is_alone("roce::roce_in_wrappers") {
        return;
    }
    let provider = wrapped(&["trace", "fault:drop-completion@1000000000000", "stats:every=1"]);
    assert_eq!(suite("vp_roce in wrappers", &provider, None), built_in());
}
