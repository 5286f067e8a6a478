//! The provider suite over every RDMA device of this machine.
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::sync::Arc;

use vp_api::Provider;
use vp_verbs::Verbs;
use warpline_provider::{Reporter, Verdict, run};

/// What devices are known to do otherwise: model, case, and what they do.
const KNOWN: &[(&str, &str, &str)] = &[
    // Linux 6.1, as the source says too.
    ("siw", "mr: a read without the right is refused", "it answers reads without the right"),
    ("siw", "cq: solicited only means it", "it loses solicited events, so every one notifies"),
    (
        "siw",
        "mr: what a peer may not do through the QP",
        "it keeps the rights of a QP and never asks for them",
    ),
    // Its library in rdma-core 44: a program of verbs alone gets NULL for its 72nd QP, after the kernel
    // has made it.
    ("siw", "limits: as many QPs as it says", "its library makes no more than 71 or so"),
    ("rxe", "mw: a bound window can be written", "it checks the region's bounds, not the window's"),
];

/// Prints verdicts, and keeps the names of failed cases.
#[derive(Default)]
struct Verdicts {
    failed: Vec<String>,
}

impl Reporter for Verdicts {
    fn begins(&mut self, _: &str) {}
    fn ended(&mut self, case: &str, verdict: &Verdict) {
        eprintln!("{verdict:?} {case}");
        if matches!(verdict, Verdict::Failed(_)) {
            self.failed.push(case.to_owned());
        }
    }
}

/// Failures that are not known ones of the device; says why those that are.
fn new_failures(device: &str, failed: Vec<String>) -> Vec<String> {
    let is_known = |case: &String| {
        let mut of = KNOWN.iter().filter(|(model, ..)| device.starts_with(model));
        let known = of.find(|(_, known, _)| known == case);
        if let Some((_, _, why)) = known {
            eprintln!("known: {device}: {case}: {why}");
        }
        known.is_some()
    };
    failed.into_iter().filter(|case| !is_known(case)).collect()
}

#[test]
fn every_device_passes_the_suite() {
    let provider: Arc<dyn Provider> = Arc::new(Verbs::default());
    let devices = match provider.devices() {
        Ok(devices) => devices,
        Err(why) => {
            eprintln!("{why}");
            return warpline_skip::skip("the suite over RDMA devices", "no RDMA device");
        }
    };
    let mut failed = Vec::new();
    for device in devices {
        eprintln!("{}", device.name);
        let mut verdicts = Verdicts::default();
        run(&provider, Some(&device.name), &mut verdicts);
        failed.extend(new_failures(&device.name, verdicts.failed));
    }
    assert!(failed.is_empty(), "{failed:?}");
}
