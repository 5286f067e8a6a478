//! The child of `provider check`: the library is loaded here, and only here. What happens goes to
//! standard output as lines of JSON, each before the next step begins.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use ual::vp_api::import;
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
    let provider = match import::load(library) {
        Ok(provider) => provider,
        Err(why) => {
            say(out, &json!({ "refused": why.fault.to_string() }))?;
            return Err(CliError::input(why.to_string()));
        }
    };
    say(out, &json!({ "name": provider.name(), "version": provider.version() }))?;
    if !load_only {
        let mut lines = Lines { out, broken: false };
        run(&provider, device, &mut lines);
    }
    say(out, &json!({ "done": true }))
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
