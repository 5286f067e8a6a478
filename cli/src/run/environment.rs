//! Environment variables by which a program finds the verbs libraries, and the libraries their wrappers and files. No
//! state.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, absolute};

use ual::vp_hooks::Wrapper;

use super::{RunArgs, adapters, view};
use crate::error::{CliError, CliResult, Exit};
use crate::verbs::Libraries;

/// What is right for most programs, unless the user sets it.
const DEFAULTS: [(&str, &str); 4] = [
    // Programs of InfiniBand rely on a Send that is tried again until a receive is posted (fio, qperf). An end of the stream
    // behind it is not noticed before that time is over: qperf waits 5 s for it.
    ("WARPLINE_VERBS_LATE_RECEIVES", "cm=2"),
    // Debian's configuration of Open MPI excludes UCX; lists that do not exclude it take its place. Without UCX there are no
    // windows between hosts.
    ("OMPI_MCA_pml", "^monitoring"),
    ("OMPI_MCA_osc", "^pt2pt"),
    // UCX is preferred to TCP for devices of one vendor only.
    ("OMPI_MCA_opal_common_ucx_devices", "any"),
];

/// Names the directory of the view.
pub(crate) const VIEW: &str = "WARPLINE_VERBS_VIEW";

type Variables = Vec<(&'static str, OsString)>;

/// The variables to add, and what is missing.
pub(super) fn of(args: &RunArgs, libraries: &Libraries) -> CliResult<(Variables, Vec<CliError>)> {
    let (mut all, notes) = places(args, libraries)?;
    let wrappers = wrappers(args)?;
    if wrappers.is_empty() {
        return Ok((all, notes));
    }
    all.push(("WARPLINE_WRAP", before("WARPLINE_WRAP", &wrappers.join(" "), " ")));
    // Output of the wrappers comes from the libraries' log.
    let level = if args.trace.is_some() { "trace" } else { "info" };
    let asked = env::var_os("WARPLINE_LOG").filter(|text| !text.is_empty());
    let mut filter = asked.unwrap_or_else(|| "warn".into());
    filter.push(format!(",kal_shim={level}"));
    all.push(("WARPLINE_LOG", filter));
    if let Some(file) = &args.trace {
        all.push(("WARPLINE_LOG_FILE", empty(file)?));
    }
    Ok((all, notes))
}

fn places(args: &RunArgs, libraries: &Libraries) -> CliResult<(Variables, Vec<CliError>)> {
    let libraries = by_plain_path(libraries)?;
    let text = libraries.directory().to_string_lossy();
    let mut all = vec![("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", &text, ":"))];
    let (mut preloaded, mut notes) = (Vec::new(), Vec::new());
    let shown = args.shown().or_of_variable();
    all.extend(shown.variable().map(|value| (adapters::ROCE, value.into())));
    let unset = |(name, _): &(&str, &str)| env::var_os(name).is_none_or(|value| value.is_empty());
    all.extend(DEFAULTS.into_iter().filter(unset).map(|(name, value)| (name, value.into())));
    if !args.no_view {
        // Most programs run without it.
        match libraries.view().and_then(|library| Ok((library, view::directory(shown)?))) {
            Ok((library, directory)) => {
                preloaded.push(library);
                all.push((VIEW, directory.into()));
            }
            Err(note) => notes.push(note),
        }
    }
    if !args.no_preload {
        preloaded.extend(libraries.files());
    }
    if args.sockets {
        preloaded.push(libraries.sockets()?);
        all.extend(of_sockets(args)?);
    }
    if !preloaded.is_empty() {
        let files: Vec<_> = preloaded.iter().map(|file| file.display().to_string()).collect();
        all.push(("LD_PRELOAD", before("LD_PRELOAD", &files.join(":"), ":")));
    }
    Ok((all, notes))
}

/// The libraries by a path that variables of the loader can hold (ld.so(8)): their own, or that of a link.
fn by_plain_path(libraries: &Libraries) -> CliResult<Libraries> {
    let plain =
        |path: &Path| path.to_str().is_some_and(|text| !text.contains([':', ';', ' ', '$']));
    if plain(libraries.directory()) {
        return Ok(libraries.clone());
    }
    let link = view::link(libraries.directory())?;
    if plain(&link) {
        return Ok(Libraries::at(link));
    }
    let what = format!("the loader cannot be told {}", link.display());
    let error = CliError::new(Exit::Input, what).because("a blank, `:`, `;` or `$` is in it");
    Err(error.hint("set XDG_RUNTIME_DIR to another directory of your own"))
}

/// What the library of sockets is told.
fn of_sockets(args: &RunArgs) -> CliResult<Variables> {
    let carrier = if args.shared_memory { "ring" } else { "tcp" };
    let mut all = vec![("WARPLINE_SOCKETS", carrier.into())];
    all.extend(args.spin.map(|micros| ("WARPLINE_SOCKETS_SPIN", micros.to_string().into())));
    if let Some(file) = &args.log {
        all.push(("WARPLINE_SOCKETS_LOG", empty(file)?));
    }
    Ok(all)
}

/// The wrappers, outermost first, so that the faults that the program sees are traced and counted.
fn wrappers(args: &RunArgs) -> CliResult<Vec<String>> {
    let mut texts: Vec<String> = Vec::new();
    texts.extend(args.stats.then(|| "stats".into()));
    texts.extend(args.trace.is_some().then(|| "trace".into()));
    if let Some(rules) = &args.fault {
        // Blanks separate wrappers, and are redundant in rules.
        let text = format!("fault:{rules}").split_whitespace().collect::<String>();
        let wrong = |error: ual::vp_hooks::WrapError| {
            CliError::new(Exit::Usage, format!("--fault: {error}"))
                .hint("`VERB@WHEN=STATUS`, e.g. post_send@3=QueueFull; all rules: docs/verbs.md")
        };
        text.parse::<Wrapper>().map_err(wrong)?;
        texts.push(text);
    }
    Ok(texts)
}

/// Prepends a value to a variable.
fn before(name: &str, value: &str, separator: &str) -> OsString {
    let mut all = OsString::from(value);
    if let Some(rest) = env::var_os(name).filter(|rest| !rest.is_empty()) {
        all.push(separator);
        all.push::<&OsStr>(&rest);
    }
    all
}

/// A line that sets a variable in a shell.
pub(super) fn line(name: &str, value: &OsStr) -> OsString {
    let mut line = OsString::from(format!("export {name}='"));
    for (at, part) in value.as_bytes().split(|octet| *octet == b'\'').enumerate() {
        // A quote ends the text in quotes: it is outside of them.
        line.push(if at == 0 { "" } else { r"'\''" });
        line.push(OsStr::from_bytes(part));
    }
    line.push("'\n");
    line
}

/// Truncates the file, so that nothing of an earlier run is in it; returns its absolute name.
fn empty(file: &Path) -> CliResult<OsString> {
    let failed = |e| CliError::input(format!("cannot write {}: {e}", file.display()));
    File::create(file).map_err(failed)?;
    Ok(absolute(file).map_err(failed)?.into_os_string())
}
