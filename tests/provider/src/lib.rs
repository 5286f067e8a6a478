//! The provider suite: what every verbs provider must do, built in or loaded, ours or a vendor's.
//!
//! [`run`] opens the device anew for every case and connects QPs of one RNIC with each other: over
//! TCP on 127.0.0.1, or by the provider's own connection manager. A case that needs what the device
//! does not offer is skipped and says so. Everything happens in the caller's thread, bounded in
//! time; a provider that crashes takes the process along, so the reporter hears of a case before it
//! begins.
#![forbid(unsafe_code)]

mod cases;
mod fail;
mod rig;
mod ud;

use std::sync::Arc;

use vp_api::{Capabilities, ConnectionModel, Provider};

pub use fail::Fail;
use rig::Rig;

/// How a case ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it must be.
    Passed,
    /// The device does not offer what it needs.
    Skipped(String),
    /// What was wrong.
    Failed(String),
}

/// Hears of the progress.
pub trait Reporter {
    /// A case begins.
    fn begins(&mut self, case: &str);
    /// It ended.
    fn ended(&mut self, case: &str, verdict: &Verdict);
}

/// How many cases ended how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Summary {
    pub passed: u32,
    pub skipped: u32,
    pub failed: u32,
}

/// What a case needs beyond the basic verbs.
#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    Offer(Capabilities),
    Model(ConnectionModel),
}

/// A case of the suite.
struct Case {
    name: &'static str,
    needs: Needs,
    play: fn(&Rig) -> Result<(), Fail>,
}

impl Case {
    const fn new(name: &'static str, play: fn(&Rig) -> Result<(), Fail>) -> Self {
        Self { name, needs: Needs::Nothing, play }
    }

    const fn with(mut self, capabilities: Capabilities) -> Self {
        self.needs = Needs::Offer(capabilities);
        self
    }

    const fn only(mut self, model: ConnectionModel) -> Self {
        self.needs = Needs::Model(model);
        self
    }

    fn verdict(&self, provider: &Arc<dyn Provider>, device: &str) -> Verdict {
        let rig = match Rig::open(provider, device) {
            Ok(rig) => rig,
            Err(Fail(why)) => return Verdict::Failed(format!("open: {why}")),
        };
        if let Some(missing) = self.missing(&rig) {
            return Verdict::Skipped(missing);
        }
        match (self.play)(&rig) {
            Ok(()) => Verdict::Passed,
            Err(Fail(why)) => Verdict::Failed(why),
        }
    }

    fn missing(&self, rig: &Rig) -> Option<String> {
        match self.needs {
            Needs::Nothing => None,
            Needs::Offer(what) => {
                let missing = what.difference(rig.attrs.capabilities);
                let names: Vec<_> = missing.iter_names().map(|(name, _)| name).collect();
                let text = || format!("the device does not offer {}", names.join(", "));
                (!missing.is_empty()).then(text)
            }
            Needs::Model(model) => {
                let other = rig.attrs.connection_model;
                (model != other).then(|| format!("for the model {model:?}; this is {other:?}"))
            }
        }
    }
}

/// Runs every case on the device of that name, or on the provider's first one.
pub fn run(provider: &Arc<dyn Provider>, device: Option<&str>, to: &mut dyn Reporter) -> Summary {
    let mut summary = Summary::default();
    let mut count = |case: &str, verdict: &Verdict, to: &mut dyn Reporter| {
        match verdict {
            Verdict::Passed => summary.passed += 1,
            Verdict::Skipped(_) => summary.skipped += 1,
            Verdict::Failed(_) => summary.failed += 1,
        }
        to.ended(case, verdict);
    };
    const LISTING: &str = "listing: devices have names and ports";
    to.begins(LISTING);
    let device = match cases::listing(provider, device) {
        Ok(device) => device,
        Err(Fail(why)) => {
            count(LISTING, &Verdict::Failed(why), to);
            return summary;
        }
    };
    count(LISTING, &Verdict::Passed, to);
    for case in cases::all() {
        to.begins(case.name);
        let verdict = case.verdict(provider, &device);
        count(case.name, &verdict, to);
    }
    summary
}
