//! The provider suite: tests what every verbs provider must do, built in or loaded, ours or a vendor's.
//!
//! [`run`] opens the device anew for every case and connects QPs of one RNIC with each other: over TCP on
//! 127.0.0.1, or by the provider's own connection manager. A case that needs what the device does not offer is
//! reported as skipped. Each case has its own thread and a time limit: a call that does not return is left behind,
//! and the case has failed. A provider that crashes ends the process, so the reporter is called before each case.
//!
//! The contract is `rnicpi.h` and the guide for vendors. Their promises have ids (`[RI-41]`); a case names the
//! promises that it tests, and its failure quotes them. Seeded faults (`vp-api/suite/seeded`) show that each case
//! finds what it is made for, and `spec --check` keeps all three consistent.
#![forbid(unsafe_code)]

mod cases;
mod contract;
mod fail;
mod host;
mod local;
mod model;
mod rig;
mod ud;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use vp_api::{Capabilities, ConnectionModel, Provider};

pub use fail::Fail;
use model::Programs;
use rig::Rig;

/// How a case ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// The device does not offer what it needs.
    Skipped(String),
    /// What was wrong.
    Failed(String),
}

/// Receives the progress.
pub trait Reporter {
    /// A case begins.
    fn begins(&mut self, case: &str);
    /// It ended.
    fn ended(&mut self, case: &str, verdict: &Verdict);
    /// Where the provider is, if that is known: the end of a sentence about a case that does not end.
    fn under_way(&self) -> String {
        String::new()
    }
}

/// How many cases ended in each way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Summary {
    pub passed: u32,
    pub skipped: u32,
    pub failed: u32,
}

/// What a case needs beyond the basic verbs: all of it.
#[derive(Clone, Copy)]
struct Needs {
    offers: Capabilities,
    model: Option<ConnectionModel>,
    /// Bring-up by path.
    paths: bool,
}

/// A case of the suite.
struct Case {
    name: &'static str,
    /// Ids of the promises that it checks, separated by blanks.
    keeps: &'static str,
    needs: Needs,
    play: fn(&Rig) -> Result<(), Fail>,
}

impl Case {
    const fn new(name: &'static str, play: fn(&Rig) -> Result<(), Fail>) -> Self {
        let needs = Needs { offers: Capabilities::empty(), model: None, paths: false };
        Self { name, keeps: "", needs, play }
    }

    const fn keeps(mut self, ids: &'static str) -> Self {
        self.keeps = ids;
        self
    }

    const fn with(mut self, capabilities: Capabilities) -> Self {
        self.needs.offers = capabilities;
        self
    }

    const fn only(mut self, model: ConnectionModel) -> Self {
        self.needs.model = Some(model);
        self
    }

    /// With bring-up by path.
    const fn by_path(mut self) -> Self {
        self.needs.paths = true;
        self
    }

    fn covers(&self, id: &str) -> bool {
        self.keeps.split(' ').any(|kept| kept == id)
    }

    /// Runs the case in its own thread, which is left behind if it does not return.
    fn verdict(
        &'static self,
        provider: &Arc<dyn Provider>,
        device: &str,
        manner: Manner,
        reporter: &dyn Reporter,
    ) -> Verdict {
        let (to, from) = channel();
        let (provider, device) = (provider.clone(), device.to_owned());
        let play = move || {
            // A failure is reported before the device is closed, because the close may show a defect, too.
            let report = |verdict| drop(to.send(verdict));
            match Rig::open(&provider, &device, manner) {
                Err(Fail(why)) => report(Verdict::Failed(self.quote(&format!("open: {why}")))),
                Ok(rig) => match self.play_on(&rig) {
                    Verdict::Failed(why) => report(Verdict::Failed(why)),
                    verdict => {
                        drop(rig);
                        report(verdict);
                    }
                },
            }
        };
        let name = self.name.chars().take(15).collect();
        if let Err(why) = std::thread::Builder::new().name(name).spawn(play) {
            return Verdict::Failed(format!("no thread for the case: {why}"));
        }
        let most = manner.wait * HUNG + manner.programs.time;
        from.recv_timeout(most).unwrap_or_else(|why| {
            let why = match why {
                RecvTimeoutError::Timeout => format!(
                    "it did not end within {most:?}: a verb, a release or the close does not return{}",
                    reporter.under_way()
                ),
                RecvTimeoutError::Disconnected => "it panicked".into(),
            };
            Verdict::Failed(self.quote(&why))
        })
    }

    fn play_on(&self, rig: &Rig) -> Verdict {
        if let Some(missing) = self.missing(rig) {
            return Verdict::Skipped(missing);
        }
        match (self.play)(rig) {
            Ok(()) => Verdict::Passed,
            Err(Fail(why)) => Verdict::Failed(self.quote(&why)),
        }
    }

    /// What was observed, and what the contract says.
    fn quote(&self, why: &str) -> String {
        let ids = self.keeps.split(' ').filter(|id| !id.is_empty());
        ids.fold(why.to_owned(), |text, id| text + "\n    " + &contract::quote(id))
    }

    fn missing(&self, rig: &Rig) -> Option<String> {
        let Needs { offers, model, paths } = self.needs;
        let missing = offers.difference(rig.attrs.capabilities);
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter_names().map(|(name, _)| name).collect();
            return Some(format!("the device does not offer {}", names.join(", ")));
        }
        let other = rig.attrs.connection_model;
        if let Some(model) = model.filter(|model| *model != other) {
            return Some(format!("for the model {model:?}; this is {other:?}"));
        }
        let none = paths && rig.rnic.paths().is_none();
        none.then(|| "the device does not bring up queue pairs by path".into())
    }
}

/// The time limit of a case, as a multiple of the longest wait.
const HUNG: u32 = 4;

/// Once so many cases have waited in vain, the others wait less.
const ENOUGH: u32 = 2;
/// How long they wait.
const SHORT: Duration = Duration::from_millis(250);

/// Which cases are run, and how long they wait.
#[derive(Clone, Debug)]
pub struct Suite<'a> {
    device: Option<&'a str>,
    id: Option<&'a str>,
    named: &'a [String],
    manner: Manner,
}

/// How cases wait and connect.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// Whatever does not happen within this time has failed.
    wait: Duration,
    /// Whether to connect by local streams, where the device takes them.
    local: bool,
    /// Random programs.
    programs: Programs,
}

impl Default for Suite<'_> {
    fn default() -> Self {
        let wait = Duration::from_secs(20);
        let manner = Manner { wait, local: false, programs: Programs::default() };
        Self { device: None, id: None, named: &[], manner }
    }
}

impl<'a> Suite<'a> {
    /// Runs every case on the device of that name, or on the provider's first one.
    pub fn on(device: Option<&'a str>) -> Self {
        Self { device, ..Self::default() }
    }

    /// Runs only the cases that check this promise of the contract, e.g. `RI-41`.
    pub fn keeping(self, id: &'a str) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Runs only the cases whose names contain one of these texts; all, if there are none.
    pub fn named(self, texts: &'a [String]) -> Self {
        Self { named: texts, ..self }
    }

    /// The names of the cases that it runs after it has listed the devices.
    pub fn names(&self) -> Vec<&'static str> {
        self.cases().map(|case| case.name).collect()
    }

    fn cases(&self) -> impl Iterator<Item = &'static Case> {
        cases::all().filter(|case| {
            let named = |text: &String| case.name.contains(text.as_str());
            self.id.is_none_or(|id| case.covers(id))
                && (self.named.is_empty() || self.named.iter().any(named))
        })
    }

    /// Whatever does not happen within this time has failed; the default is 20 s. Once two cases took longer, it is a
    /// quarter of a second.
    pub fn waiting(self, wait: Duration) -> Self {
        Self { manner: Manner { wait, ..self.manner }, ..self }
    }

    /// Connects by local streams (shared memory) where the device takes them, instead of only by TCP. Cases about
    /// TCP still use TCP.
    pub fn by_local_streams(self) -> Self {
        Self { manner: Manner { local: true, ..self.manner }, ..self }
    }

    /// Plays new random programs for this time, instead of 2 s.
    pub fn random(self, time: Duration) -> Self {
        let programs = Programs { time, ..self.manner.programs };
        Self { manner: Manner { programs, ..self.manner }, ..self }
    }

    /// Of the random programs plays only that of this seed.
    pub fn seed(self, seed: u64) -> Self {
        let programs = Programs { seed: Some(seed), ..self.manner.programs };
        Self { manner: Manner { programs, ..self.manner }, ..self }
    }

    /// Runs the cases.
    pub fn run(&self, provider: &Arc<dyn Provider>, to: &mut dyn Reporter) -> Summary {
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
        let device = match cases::listing(provider, self.device) {
            Ok(cases::Listed::Device(device)) => device,
            Ok(cases::Listed::None(why)) => {
                count(LISTING, &Verdict::Skipped(why), to);
                return summary;
            }
            Err(Fail(why)) => {
                let ids = cases::LISTING_KEEPS.iter();
                let why = ids.fold(why, |text, id| text + "\n    " + &contract::quote(id));
                count(LISTING, &Verdict::Failed(why), to);
                return summary;
            }
        };
        count(LISTING, &Verdict::Passed, to);
        let (mut manner, mut slow) = (self.manner, 0);
        for case in self.cases() {
            to.begins(case.name);
            let begun = Instant::now();
            let verdict = case.verdict(provider, &device, manner, to);
            count(case.name, &verdict, to);
            // What does not work at all would take the whole time in each case.
            slow += u32::from(begun.elapsed() >= manner.wait);
            if slow == ENOUGH {
                manner.wait = manner.wait.min(SHORT);
            }
        }
        summary
    }
}

/// Runs every case on the device of that name, or on the provider's first one.
pub fn run(provider: &Arc<dyn Provider>, device: Option<&str>, to: &mut dyn Reporter) -> Summary {
    Suite::on(device).run(provider, to)
}
