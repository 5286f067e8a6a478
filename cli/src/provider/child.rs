//! The child of `provider check`: the library is loaded here, and only here. What happens goes to
//! standard output as lines of JSON, each before the next step begins.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use ual::vp_api::Provider;
use ual::vp_api::import::{self, Fault, Layer, LoadError};
use warpline_provider::{Reporter, Verdict, run};

use crate::error::{CliError, CliResult};

/// A step of the child, in the words of the report.
pub(super) const LOADING: &str = "loading the library";

pub(super) fn play(
    library: &Path,
    device: Option<&str>,
    load_only: bool,
    out: &mut dyn Write,
) -> CliResult<()> {
    say(out, &json!({ "begins": LOADING }))?;
    let played = Loaded::new(library).and_then(|loaded| {
        let (name, version) = loaded.identity(library)?;
        let provider = if load_only { None } else { Some(loaded.provider()?) };
        Ok((name, version, provider))
    });
    let (name, version, provider) = match played {
        Ok(played) => played,
        Err(why) => {
            say(out, &json!({ "refused": why.fault.to_string() }))?;
            return Err(CliError::input(why.to_string()));
        }
    };
    say(out, &json!({ "name": name, "version": version }))?;
    if let Some(provider) = provider {
        let mut lines = Lines { out, broken: false };
        run(&provider, device, &mut lines);
    }
    say(out, &json!({ "done": true }))
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
        // What is neither lacks the function of a provider.
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

    /// The provider to play; a layer is played around the first that is built in.
    fn provider(self) -> Result<Arc<dyn Provider>, LoadError> {
        match self {
            Self::Provider(provider) => Ok(provider),
            Self::Layer(layer) => layer.wrap(ual::builtin().swap_remove(0), ""),
        }
    }
}

fn say(out: &mut dyn Write, what: &Value) -> CliResult<()> {
    writeln!(out, "{what}")?;
    Ok(out.flush()?)
}

struct Lines<'a> {
    out: &'a mut dyn Write,
    /// Nobody listens any more.
    broken: bool,
}

impl Lines<'_> {
    fn line(&mut self, what: &Value) {
        self.broken = self.broken || say(self.out, what).is_err();
    }
}

impl Reporter for Lines<'_> {
    fn begins(&mut self, case: &str) {
        self.line(&json!({ "begins": case }));
    }

    fn ended(&mut self, case: &str, verdict: &Verdict) {
        let (word, why) = match verdict {
            Verdict::Passed => ("passed", ""),
            Verdict::Skipped(why) => ("skipped", why.as_str()),
            Verdict::Failed(why) => ("failed", why.as_str()),
        };
        self.line(&json!({ "ended": case, "verdict": word, "why": why }));
    }
}
