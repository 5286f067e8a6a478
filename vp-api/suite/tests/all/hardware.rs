//! The suite over the bridge to hardware in every form, with the stand-in for rdma-core below.
//!
//! The bridge asks the loader for `libibverbs.so.1` and `librdmacm.so.1`. The loader looks where
//! the environment said when the process began, so each test runs itself again, with the stand-in
//! under both names.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use vp_api::abi::export::{Exported, descriptor};
use vp_api::abi::types::{ProviderDescriptor, ProviderOps};
use vp_api::{Provider, import};
use vp_hooks::{Wrapper, stack};
use vp_verbs::Verbs;

use crate::build;
use crate::play::suite;

/// Set in the child: where the library of the bridge is.
const CHILD: &str = "WARPLINE_TEST_BRIDGE";

const DEVICES: [&str; 2] = ["fakeib0", "fakeiw0"];

/// A directory with the stand-in under the names of rdma-core.
fn stand_in(name: &str) -> PathBuf {
    let dir = build::scratch(name);
    let fake = std::env::current_exe().unwrap().with_file_name("libfake_verbs.so");
    for soname in ["libibverbs.so.1", "librdmacm.so.1"] {
        symlink(&fake, dir.join(soname)).unwrap();
    }
    dir
}

/// Runs `test` of this program again over the stand-in.
fn again(test: &str) {
    let library = build::cargo("vp-verbs-dylib", "vp_verbs");
    let dir = stand_in(test);
    let test = format!("hardware::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &test, "--nocapture"]).env("LD_LIBRARY_PATH", &dir);
    command.env(CHILD, library);
    let output = command.output().unwrap();
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    std::fs::remove_dir_all(dir).unwrap();
}

/// The devices that can be reached; an iWARP device needs an address of its own.
fn devices(provider: &Arc<dyn Provider>) -> Vec<&'static str> {
    let listed = provider.devices().unwrap();
    assert_eq!(listed.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), DEVICES);
    let online = listed.iter().map(|d| d.ports.iter().any(|port| !port.addresses.is_empty()));
    let (there, missing): (Vec<_>, Vec<_>) =
        DEVICES.into_iter().zip(online).partition(|(_, online)| *online);
    for (device, _) in missing {
        warpline_skip::skip(&format!("provider suite over {device}"), "the host has no IPv6");
    }
    there.into_iter().map(|(device, _)| device).collect()
}

/// No case less than built in.
fn same_as_built_in(form: &str, provider: &Arc<dyn Provider>) {
    let built_in: Arc<dyn Provider> = Arc::new(Verbs::default());
    for device in devices(provider) {
        let bare = suite(&format!("vp_verbs built in, {device}"), &built_in, Some(device));
        assert!(bare.passed > 45, "{bare:?}");
        let found = suite(&format!("vp_verbs {form}, {device}"), provider, Some(device));
        assert_eq!(found, bare);
    }
}

#[test]
fn as_a_library() {
    let Some(library) = std::env::var_os(CHILD) else { return again("as_a_library") };
    let provider = import::load(library.as_ref()).unwrap();
    assert_eq!((provider.name(), provider.version()), ("vp_verbs", env!("CARGO_PKG_VERSION")));
    same_as_built_in("as a library", &provider);
}

#[test]
fn through_the_tables() {
    static EXPORTED: Exported = Exported::new();
    static DESCRIPTOR: ProviderDescriptor =
        descriptor("vp_verbs\0", "1\0", vp_api::Capabilities::all());
    extern "C" fn get_ops(_: u32) -> *const ProviderOps {
        EXPORTED.table(|| Arc::new(Verbs::default()))
    }
    if std::env::var_os(CHILD).is_none() {
        return again("through_the_tables");
    }
    // SAFETY: both are this crate's own, made by the exporter, and static.
    let provider = unsafe { import::from_descriptor(&raw const DESCRIPTOR, get_ops) }.unwrap();
    same_as_built_in("through the tables", &provider);
}

#[test]
fn in_wrappers() {
    let Some(library) = std::env::var_os(CHILD) else { return again("in_wrappers") };
    let idle = "fault:drop-completion@1000000000000";
    let texts = ["trace", idle, "stats:every=1"];
    let wrappers: Vec<Wrapper> = texts.iter().map(|text| text.parse().unwrap()).collect();
    same_as_built_in("in wrappers", &stack(Arc::new(Verbs::default()), &wrappers));
    let library = import::load(library.as_ref()).unwrap();
    same_as_built_in("as a library in wrappers", &stack(library, &wrappers));
}

/// Without rdma-core or a device it must say the same as the built-in one.
#[test]
fn without_devices_the_library_reports_why() {
    let provider = import::load(&build::cargo("vp-verbs-dylib", "vp_verbs")).unwrap();
    assert_eq!(provider.devices(), Verbs::default().devices());
}
