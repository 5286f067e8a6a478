//! The child of `provider check`, the only process that loads the library. It reports on standard output by
//! lines of JSON, each before the next step begins.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use ual::Ual;
use ual::vp_api::Provider;
use ual::vp_api::import::{self, Fault, Layer, LoadError};
use ual::vp_hooks::watch::watch;
use warpline_provider::{Reporter, Suite, Verdict};

use super::args::PlayArgs;
use super::journal::{Journal, under_way};
use super::{LOADING, STARTING};
use crate::error::CliResult;
use crate::second::{begin, die_with_the_parent, done, report};

pub(super) fn play(args: &PlayArgs, out: &mut dyn Write) -> CliResult<()> {
    let PlayArgs { library, device, over, case, wait, programs, journal, load_only } = args;
    let suite = Suite::on(device.as_deref()).named(case).waiting(*wait).random(programs.random);
    let suite = programs.seed.map_or(suite.clone(), |seed| suite.seed(seed));
    die_with_the_parent();
    begin(out, LOADING)?;
    let played = Loaded::new(library).and_then(|loaded| {
        let (name, version) = loaded.identity(library)?;
        Ok((loaded, name, version))
    });
    let (loaded, name, version) = match played {
        Ok(played) => played,
        Err(why) => return refuse(out, why.fault.to_string()),
    };
    report(out, &json!({ "name": name, "version": version }))?;
    if *load_only {
        return done(out);
    }
    begin(out, STARTING)?;
    match loaded.provider(over.as_deref()) {
        Ok(provider) => {
            let names = suite.names();
            if names.is_empty() {
                return refuse(out, format!("no case has `{}` in its name", case.join("` or `")));
            }
            // And the listing of the devices.
            report(out, &json!({ "cases": names.len() + 1 }))?;
            let journal =
                journal.as_deref().and_then(|path| Journal::open(path).ok()).map(Arc::new);
            let provider = match &journal {
                Some(journal) => watch(provider, journal.clone()),
                None => provider,
            };
            let mut lines = Lines { out, journal, broken: false };
            suite.run(&provider, &mut lines);
            done(out)
        }
        Err(why) => refuse(out, why),
    }
}

/// The library cannot be tested as a provider.
fn refuse(out: &mut dyn Write, why: String) -> CliResult<()> {
    report(out, &json!({ "refused": why }))?;
    done(out)
}

/// What a library turned out to be.
enum Loaded {
    Provider(Arc<dyn Provider>),
    Layer(Layer),
}

impl Loaded {
    fn new(library: &Path) -> Result<Self, LoadError> {
        let why = match import::load(library) {
            Ok(provider) => return Ok(Self::Provider(provider)),
            Err(why) => why,
        };
        if !why.may_be_layer() {
            return Err(why);
        }
        // A library that is neither lacks the function of a provider.
        Layer::load(library).map(Self::Layer).map_err(|other| match other.fault {
            Fault::MissingSymbol(_) => why,
            _ => other,
        })
    }

    fn identity(&self, library: &Path) -> Result<(String, String), LoadError> {
        match self {
            Self::Provider(provider) => Ok((provider.name().into(), provider.version().into())),
            Self::Layer(layer) => {
                let named = |fault| LoadError { path: library.to_owned(), fault };
                let (name, version) = layer.identity().map_err(named)?;
                Ok((name + " (a layer)", version.into()))
            }
        }
    }

    /// The provider to play; a layer is played around `over`, or the first that is built in.
    fn provider(self, over: Option<&str>) -> Result<Arc<dyn Provider>, String> {
        match (self, over) {
            (Self::Provider(provider), None) => Ok(provider),
            (Self::Provider(_), Some(_)) => Err("it is no layer; --over is for layers".to_owned()),
            (Self::Layer(layer), over) => {
                let inner = over.map_or_else(|| Ok(ual::builtin().swap_remove(0)), named)?;
                layer.wrap(inner, "").map_err(|why| why.to_string())
            }
        }
    }
}

/// The provider in a library, if there is a slash in its name; else the built-in one of this name, or
/// the configured one.
fn named(over: &str) -> Result<Arc<dyn Provider>, String> {
    if over.contains('/') {
        let place = Path::new(over).canonicalize().map_err(|e| format!("--over {over}: {e}"))?;
        return import::load(&place).map_err(|why| format!("--over {why}"));
    }
    if let Some(provider) = ual::builtin().into_iter().find(|p| p.name() == over) {
        return Ok(provider);
    }
    let ual = Ual::new().map_err(|why| format!("--over {over}: {why}"))?;
    let known: Vec<String> = ual.known().into_iter().map(|(name, _)| name).collect();
    match known.iter().position(|name| name == over) {
        Some(place) => ual.provider_at(place).map_err(|why| format!("--over {over}: {why}")),
        None => Err(format!("--over: there is no provider {over}; there are {}", known.join(", "))),
    }
}

struct Lines<'a> {
    out: &'a mut dyn Write,
    journal: Option<Arc<Journal>>,
    /// The parent has closed the pipe.
    broken: bool,
}

impl Lines<'_> {
    fn line(&mut self, what: &Value) {
        self.broken = self.broken || report(self.out, what).is_err();
    }
}

impl Reporter for Lines<'_> {
    fn begins(&mut self, case: &str) {
        self.broken = self.broken || begin(self.out, case).is_err();
    }

    fn ended(&mut self, case: &str, verdict: &Verdict) {
        let (word, why) = match verdict {
            Verdict::Passed => ("passed", ""),
            Verdict::Skipped(why) => ("skipped", why.as_str()),
            Verdict::Failed(why) => ("failed", why.as_str()),
        };
        self.line(&json!({ "ended": case, "verdict": word, "why": why }));
    }

    fn under_way(&self) -> String {
        let verbs = self.journal.as_ref().map(|journal| journal.verbs()).unwrap_or_default();
        under_way(&verbs).unwrap_or_default()
    }
}
