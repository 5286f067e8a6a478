//! Vendor calls of a built-in provider: alone, and in wrappers.

use std::sync::Arc;

use ual::vp_api::{VendorCalls, VpStatus};
use ual::{Config, Ia};

use crate::fake::{self, ADDING, Adding, Behaviour};

fn open(wrap: &[&str]) -> Arc<Ia> {
    let mut config = Config::default();
    config.providers.wrap = wrap.iter().map(|text| text.parse().unwrap()).collect();
    fake::configured(Behaviour::LoseMemory, config).open("fake").unwrap()
}

fn add(calls: &VendorCalls, number: u32) -> usize {
    // SAFETY: the table of this name is an `Adding`, and the adapter is open.
    let table = unsafe { calls.table.cast::<Adding>().as_ref() };
    // SAFETY: the context came with the table.
    unsafe { (table.add)(calls.context, number) }
}

#[test]
fn a_built_in_provider_has_vendor_calls_in_any_wrapper() {
    let watching = ["trace", "stats:every=1", "fault:post_send@1000000=InvalidWr"];
    for wrap in [&[][..], &watching] {
        let ia = open(wrap);
        let calls = ia.vendor_calls(ADDING).unwrap();
        let sums = std::thread::scope(|scope| {
            let other = scope.spawn(|| add(&calls, 3));
            [add(&calls, 2), other.join().unwrap()]
        });
        assert_eq!(sums, [42, 43]);
        let why = ia.vendor_calls("acme.telemetry/1").unwrap_err();
        assert_eq!(why.verb_status(), Some(VpStatus::Unsupported));
        let text = why.to_string();
        assert!(text.contains("`acme.telemetry/1`") && text.contains(ADDING), "{text}");
    }
}

#[test]
fn a_wrapper_can_refuse_them() {
    let ia = open(&["fault:vendor_calls@1=Os"]);
    assert_eq!(ia.vendor_calls(ADDING).unwrap_err().verb_status(), Some(VpStatus::Os));
    assert_eq!(add(&ia.vendor_calls(ADDING).unwrap(), 1), 41);
}
