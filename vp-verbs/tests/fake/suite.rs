//! The provider suite on both kinds of device, and no device.

use std::net::IpAddr;
use std::sync::Arc;

use vp_api::Provider;
use warpline_provider::{Reporter, Suite, Verdict};

use crate::common::Fake;

#[derive(Default)]
struct Verdicts(Vec<String>);

impl Reporter for Verdicts {
    fn begins(&mut self, _: &str) {}
    fn ended(&mut self, case: &str, verdict: &Verdict) {
        if let Verdict::Failed(why) = verdict {
            self.0.push(format!("{case}: {why}"));
        }
    }
}

fn passes(device: &str) {
    let fake = Fake::new();
    let provider: Arc<dyn Provider> = Arc::new(fake.provider());
    let before = fake.alive();
    let mut verdicts = Verdicts::default();
    let summary = Suite::on(Some(device)).run(&provider, &mut verdicts);
    assert!(verdicts.0.is_empty(), "{:#?}", verdicts.0);
    assert!(summary.passed > 45, "{summary:?}");
    assert_eq!(fake.alive(), before, "objects were left behind");
}

#[test]
fn the_suite_passes_over_infiniband() {
    passes("fakeib0");
}

#[test]
fn the_suite_passes_over_iwarp() {
    let provider = Fake::new().provider();
    let devices = provider.devices().unwrap();
    if devices.iter().all(|d| d.ports.iter().all(|p| !p.addresses.iter().any(IpAddr::is_ipv6))) {
        return warpline_skip::skip("the suite over fakeiw0", "the host has no IPv6");
    }
    drop(provider);
    passes("fakeiw0");
}

#[test]
fn a_missing_library_is_named() {
    let libraries =
        vp_verbs::Libraries { verbs: "libno-such.so.1".into(), ..vp_verbs::Libraries::default() };
    let why = vp_verbs::Verbs::with(libraries, vp_verbs::Machine::default()).devices().unwrap_err();
    assert!(why.reason.contains("libno-such.so.1"), "{why}");
    assert!(why.remedy.contains("libibverbs1"), "{why}");
}

#[test]
fn a_system_without_devices_has_an_empty_list() {
    let fake = Fake::new();
    fake.hide(true);
    let why = fake.provider().devices().unwrap_err();
    assert!(why.reason.contains("no RDMA"), "{why}");
    fake.hide(false);
    assert_eq!(fake.provider().devices().unwrap().len(), 2);
}
