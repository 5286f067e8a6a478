//! `warpline provider check`: loads a provider's library, validates what it exports, runs the provider suite on
//! it, and prints a report. A library may crash or hang, so a child process does all of it and announces each
//! step to the parent.

mod args;
mod child;
mod journal;
mod report;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::error::{CliError, CliResult, Exit};
use crate::second::{self, Bounds};
use crate::signals;
pub(crate) use args::ProviderArgs;
use args::{CheckArgs, ProviderCommand};
use journal::Journal;
use report::Report;

/// A step of the child, as the report names it.
const LOADING: &str = "loading the library";
/// The next step.
const STARTING: &str = "making the provider";
/// How much longer than a wait a case may take, as a multiple of it, until its process hangs: the suite gives a case up
/// after four.
const HANG: u32 = 6;
/// The least of such times.
const LEAST: Duration = Duration::from_secs(20);
/// The same while loading; shorter, because a user waits for the listing.
pub(crate) const LOAD: Duration = Duration::from_secs(20);

pub(crate) fn run(args: &ProviderArgs, out: &mut dyn Write) -> CliResult<()> {
    match &args.command {
        ProviderCommand::Check(args) => check(args, out),
        ProviderCommand::Play(args) => child::play(args, out),
    }
}

fn check(args: &CheckArgs, out: &mut dyn Write) -> CliResult<()> {
    let CheckArgs { library, device, over, case, wait, programs, limit, json } = args;
    let missing = |e| {
        CliError::input(format!("cannot read {}: {e}", library.display()))
            .at("provider check")
            .hint("name the library of a provider; examples/vendor-provider-c is one to start from")
    };
    let library = library.canonicalize().map_err(missing)?;
    let mut words: Vec<OsString> = Vec::new();
    for (option, value) in [("--device", device), ("--over", over)] {
        words.extend(value.iter().flat_map(|value| [option.into(), value.into()]));
    }
    words.extend(case.iter().flat_map(|text| ["--case".into(), text.into()]));
    words.extend(["--wait".into(), wait.as_secs_f64().to_string().into()]);
    words.extend(["--random".into(), programs.random.as_secs_f64().to_string().into()]);
    words.extend(programs.seed.iter().flat_map(|seed| ["--seed".into(), seed.to_string().into()]));
    signals::catch()?;
    let mut report = Report::new(&library);
    show(out, *json, &report.head())?;
    let silence = wait.saturating_mul(HANG).max(LEAST) + programs.random;
    play(&library, words, silence, Some(*limit), &mut report, &mut |text| show(out, *json, text))?;
    show(out, *json, &report.foot())?;
    if *json {
        out.write_all(report.json().as_bytes())?;
    }
    let error = match (&report.refusal, report.is_good()) {
        (None, true) => return Ok(()),
        (Some(why), _) => CliError::new(Exit::Input, format!("{}: {why}", library.display())),
        (None, false) => CliError::new(Exit::Failed, "the provider does not pass"),
    };
    Err(error.at("provider check").hint("see spec/provider-guide.md"))
}

/// Prints text as soon as it is known, unless the output is JSON.
fn show(out: &mut dyn Write, json: bool, text: &str) -> CliResult<()> {
    if !json {
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

/// Tries whether a library can be loaded within `bound`, without loading it into this process.
pub(crate) fn probe(library: &Path, bound: Duration) -> Result<(), String> {
    let mut report = Report::new(library);
    let words = vec!["--load-only".into()];
    let played = play(library, words, bound, None, &mut report, &mut |_| Ok(()));
    played.map_err(|e| e.to_string())?;
    report.refusal.map_or(Ok(()), Err)
}

fn play(
    library: &Path,
    words: Vec<OsString>,
    silence: Duration,
    whole: Option<Duration>,
    report: &mut Report,
    show: &mut dyn FnMut(&str) -> CliResult<()>,
) -> CliResult<()> {
    let first = ["provider".into(), "play".into(), library.into()];
    let step = |step: &str| if step == LOADING { LOAD.min(silence) } else { silence };
    let bounds = Bounds { step: &step, whole, shows_stderr: false };
    // Without it the report lacks the verb of a crash.
    let journal = Journal::new().ok();
    let words = words.into_iter();
    let words = words.chain(journal.iter().flat_map(|of| ["--journal".into(), of.path().into()]));
    let mut render = |line: &serde_json::Value| show(&report.render(line));
    if let Some(broken) = second::run(first.into_iter().chain(words), &bounds, &mut render)? {
        let verbs = journal.map(|journal| journal.verbs()).unwrap_or_default();
        show(&report.breaks(broken, &verbs))?;
    }
    Ok(())
}
