//! `warpline doctor -- CMD`: what a program looked for and did not get, by the record that the verbs libraries and the view
//! write while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::children::{self, Run};
use super::{DoctorArgs, Finding, State};
use crate::error::{CliError, CliResult};
use crate::run;
use crate::verbs::Libraries;

/// The variable that names the record.
const RECORD: &str = "WARPLINE_VERBS_RECORD";
/// Beginnings of names of the libraries that a program uses devices by.
const VERBS: [&str; 2] = ["libibverbs", "librdmacm"];
/// Those of vendors' libraries.
const VENDORS: [&str; 3] = ["libmlx4", "libmlx5", "libefa"];

/// The record, removed in the end.
struct Kept(PathBuf);

/// What the libraries wrote: the texts of each kind, each once, with the number of times.
#[derive(Default)]
struct Record(BTreeMap<String, BTreeMap<String, u32>>);

impl Record {
    fn read(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines() {
            let mut words = line.splitn(3, ' ').skip(1);
            if let (Some(kind), Some(text)) = (words.next(), words.next()) {
                let kind = all.0.entry(kind.to_owned()).or_default();
                *kind.entry(text.to_owned()).or_default() += 1;
            }
        }
        all
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = (&str, u32)> {
        let all = self.0.get(kind).into_iter().flatten();
        all.map(|(text, times)| (text.as_str(), *times))
    }

    fn list(&self, kind: &str) -> String {
        self.of(kind).map(|(text, _)| text).collect::<Vec<_>>().join(", ")
    }

    fn has(&self, kind: &str) -> bool {
        self.0.contains_key(kind)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It is in a directory for temporary files.
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs the program and explains.
pub(super) fn findings(args: &DoctorArgs) -> CliResult<Vec<Finding>> {
    let libraries = Libraries::find()?;
    let prepared = run::prepare(&args.command)?;
    let path = env::temp_dir().join(format!("warpline-doctor-{}", std::process::id()));
    let made = File::options().write(true).create_new(true).open(&path);
    made.map_err(|e| CliError::input(format!("cannot write {}: {e}", path.display())))?;
    let file = Kept(path);
    let mut command = Command::new(&prepared.program);
    command.args(args.command.iter().skip(1)).envs(prepared.environment.iter().cloned());
    command.env(RECORD, &file.0);
    let ran = children::run(command, args.seconds)?;
    let record = Record::read(&String::from_utf8_lossy(&fs::read(&file.0).unwrap_or_default()));
    let view = prepared.environment.iter().find(|(name, _)| *name == run::VIEW);
    let view = view.map(|(_, directory)| PathBuf::from(directory));
    let mut all = vec![ending(args, &ran)];
    all.extend(
        prepared.obstacles.iter().map(|note| Finding::fail("start", note.brief(), remedy(note))),
    );
    all.extend(
        prepared.notes.iter().map(|note| Finding::warn("start", note.brief(), remedy(note))),
    );
    all.extend(loaded(&record, prepared.obstacles.is_empty()));
    let copies = copies(&record, &ran, libraries.directory());
    let has_copy = copies.iter().any(|copy| copy.state == State::Fail);
    all.extend(copies);
    all.extend(devices(&record).filter(|_| !has_copy));
    all.extend(missed(&record, view.as_deref()));
    all.extend(refused(&record));
    Ok(all)
}

fn ending(args: &DoctorArgs, ran: &Run) -> Finding {
    let name = args.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    match ran.status {
        Some(status) => {
            let says = format!("{name} {}", children::ending(status));
            match status.success() {
                true => Finding::ok("program", says),
                false => {
                    Finding::warn("program", says, "read what it printed, and the findings below")
                }
            }
        }
        None => {
            let seconds = args.seconds.as_secs_f64();
            Finding::ok(
                "program",
                format!("{name} was ended after {seconds} s, with what it started"),
            )
        }
    }
}

fn remedy(note: &CliError) -> &str {
    note.remedy().unwrap_or("see docs/verbs.md")
}

/// Whether a process loaded the libraries.
fn loaded(record: &Record, is_unexplained: bool) -> Option<Finding> {
    let programs = record.of("loaded").map(|(program, times)| format!("{program} ({times})"));
    let programs: Vec<_> = programs.collect();
    match programs.is_empty() {
        false => Some(Finding::ok("libraries", format!("loaded by {}", programs.join(", ")))),
        true if is_unexplained => {
            let says = "no process loaded Warpline's libibverbs";
            let remedy = "do not clear LD_LIBRARY_PATH and LD_PRELOAD, or start the program itself by `warpline run`";
            Some(Finding::fail("libraries", says, remedy))
        }
        true => None,
    }
}

/// Other files of the libraries' names.
fn copies(record: &Record, ran: &Run, own: &Path) -> Vec<Finding> {
    let at_end = ran.mapped.values().flatten().map(String::as_str);
    let files: BTreeSet<&str> = record.of("mapped").map(|(path, _)| path).chain(at_end).collect();
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let is_own =
        |path: &str| Path::new(path).starts_with(own) || name(path).starts_with("libwarpline_");
    let is_copy =
        |path: &&str| VERBS.iter().any(|begin| name(path).starts_with(begin)) && !is_own(path);
    let used = record.has("foreign") || !record.has("listed");
    let copies = files.iter().filter(|path| is_copy(path)).map(|path| match used {
        true => Finding::fail(
            "second copy",
            format!("{path} is loaded, and not Warpline's is asked for devices"),
            "make the program use the system's libibverbs.so.1, by its name",
        ),
        false => Finding::ok(
            "second copy",
            format!("{path} is loaded; Warpline's functions replace its own"),
        ),
    });
    let vendors =
        files.iter().filter(|path| VENDORS.iter().any(|begin| name(path).starts_with(begin)));
    let vendors = vendors.filter(|_| !record.has("queue-pair")).map(|path| {
        Finding::ok(
            "vendor's calls",
            format!("{path} is loaded: its own calls (mlx5dv_*, efadv_*) find no device of theirs"),
        )
    });
    copies.chain(vendors).collect()
}

/// Which devices it listed, opened and used.
fn devices(record: &Record) -> Option<Finding> {
    if !record.has("loaded") {
        return None;
    }
    let (listed, opened) = (record.list("listed"), record.list("opened"));
    Some(match (record.has("listed"), record.has("opened"), record.has("queue-pair")) {
        (false, ..) => Finding::warn(
            "devices",
            "no process asked Warpline's libraries for devices",
            "choose RDMA in the program: an option, a variable, or how it was built; do not clear its environment",
        ),
        (true, false, _) => Finding::warn(
            "devices",
            format!("listed {listed}, and opened none"),
            format!("name one of them where the program takes the name of a device: {listed}"),
        ),
        (_, true, false) => Finding::warn(
            "devices",
            format!("opened {opened}, and made no queue pair"),
            "see what is not there or refused below; a program that only lists devices needs no queue pair",
        ),
        (_, true, true) => Finding::ok(
            "devices",
            format!("opened {opened}; queue pairs on {}", record.list("queue-pair")),
        ),
    })
}

/// Paths of devices that are not there.
fn missed(record: &Record, view: Option<&Path>) -> Vec<Finding> {
    let Some(view) = view else { return Vec::new() };
    let is_there = |path: &str| view.join(path.trim_start_matches('/')).exists();
    let missed = record.of("looked").filter(|(path, _)| !is_there(path));
    let warn = |(path, times): (&str, u32)| {
        let says = format!("{path} is not there, and was looked for {times} times");
        Finding::warn(
            "files",
            says,
            "no adapter's counters or settings are shown: see docs/verbs.md",
        )
    };
    missed.map(warn).collect()
}

/// Refused calls, with the reason, and advice.
fn refused(record: &Record) -> Vec<Finding> {
    let times = |times: u32| if times > 1 { format!(" ({times} times)") } else { String::new() };
    let refused = record.of("refused").map(|(text, number)| {
        Finding::warn("refused", format!("{text}{}", times(number)), "mend the cause that it names")
    });
    let advice = record.of("advice").map(|(text, _)| {
        let (says, remedy) = text.split_once(": ").unwrap_or((text, "see docs/verbs.md"));
        Finding::fail("advice", says, remedy)
    });
    refused.chain(advice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_counted_by_kind_and_text() {
        let record = Record::read("7 opened roce0\n8 opened roce0\n7 refused listen: no\n7\n\n");
        assert_eq!(record.of("opened").collect::<Vec<_>>(), [("roce0", 2)]);
        assert_eq!(record.list("refused"), "listen: no");
        assert!(!record.has("loaded"));
    }
}
