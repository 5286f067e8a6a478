//! Reports tests that cannot run here.
//!
//! Such a test returns, which Rust's test harness takes for success. Cargo starts test programs by `scripts/runner`,
//! which counts these tests as ignored: it names a file, and each line of it is a test, the reason, and the remedy.
//! The test target `zz_skips` of `warpline-tests` prints all of a run and is the last that cargo runs, by package name
//! and then by target name. Documentation examples would come later, so they run as the test `doc_examples` instead;
//! `spec arrows` asserts both.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;

/// What Debian packages are installed by, and the options that include more.
const SETUP: &str = include_str!("../../../scripts/setup");

/// Why a test cannot run here. Tests with the same reason are one line of the summary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// What is missing.
    what: Cow<'static, str>,
    /// What to do about it; empty: nothing that is known.
    remedy: Cow<'static, str>,
}

/// Another user's process or a device of the machine is needed.
pub const NOT_ROOT: Reason =
    Reason { what: Cow::Borrowed("not root"), remedy: Cow::Borrowed("run as root") };

/// Hosts of a test are network namespaces.
pub const NO_NAMESPACES: Reason = Reason {
    what: Cow::Borrowed("no network namespaces can be made here"),
    remedy: Cow::Borrowed("run as root, or where user namespaces are allowed"),
};

/// Shared memory under `warpline run --sockets` is for trials.
pub const RINGS: Reason = Reason {
    what: Cow::Borrowed("--shared-memory is for trials"),
    remedy: Cow::Borrowed("set WARPLINE_TEST_RINGS=1"),
};

/// A Debian package is not installed.
pub fn missing(package: &str) -> Reason {
    let remedy = setup(package).unwrap_or_else(|| format!("apt-get install {package}"));
    Reason { what: format!("{package} is not installed").into(), remedy: remedy.into() }
}

/// The command that installs a package: its lists are `packages=(…)` and, for `--mpi`, `mpi_packages=(…)`.
fn setup(package: &str) -> Option<String> {
    let mut lists = SETUP.lines().filter_map(|line| {
        line.split_once("packages=(").or_else(|| line.split_once("packages+=("))
    });
    let (list, _) = lists.find(|(_, words)| words.split([')', ' ']).any(|word| word == package))?;
    let option = list.strip_suffix('_').map(|list| format!(" --{list}"));
    Some(format!("scripts/setup{}", option.unwrap_or_default()))
}

impl From<&str> for Reason {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

impl From<String> for Reason {
    fn from(what: String) -> Self {
        Self { what: what.into(), remedy: Cow::Borrowed("") }
    }
}

impl From<&String> for Reason {
    fn from(what: &String) -> Self {
        what.clone().into()
    }
}

impl From<&Self> for Reason {
    fn from(reason: &Self) -> Self {
        reason.clone()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, remedy } = self;
        write!(f, "{what}{}{remedy}", if remedy.is_empty() { "" } else { "; " })
    }
}

/// Reports that `what`, this test or a part of it, cannot run here and why; the caller returns right after.
pub fn skip(what: &str, reason: impl Into<Reason>) {
    let reason = reason.into();
    eprintln!("SKIPPED: {what}: {reason}");
    // Absent: the test program was not started by cargo.
    let Some(file) = std::env::var_os("WARPLINE_SKIPPED") else { return };
    // The harness names the thread of a test, unless there is only one thread: then it has written the name, and no
    // line's end.
    let thread = std::thread::current();
    let named = thread.name().filter(|name| *name != "main").map(str::to_owned);
    let test = named.unwrap_or_else(|| {
        // Past the harness, which keeps what a test prints. Ignored: only the test is not shown as ignored.
        let _ = writeln!(std::io::stdout(), "SKIPPED\t{}", field(&reason.what));
        format!("?{what}")
    });
    let fields = [test.as_str(), &reason.what, &reason.remedy].map(field);
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(file) {
        // A lost line only shortens the summary; the line above was printed.
        let _ = file.write_all((fields.join("\t") + "\n").as_bytes());
    }
}

fn field(text: &str) -> String {
    text.trim().replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_for_a_package_is_the_option_that_installs_it() {
        let of = |package| missing(package).to_string();
        assert_eq!(of("rdmacm-utils"), "rdmacm-utils is not installed; scripts/setup");
        assert_eq!(of("tshark"), "tshark is not installed; scripts/setup");
        assert_eq!(of("valgrind"), "valgrind is not installed; scripts/setup");
        assert_eq!(of("mpich"), "mpich is not installed; scripts/setup --mpi");
        assert_eq!(of("tgt"), "tgt is not installed; scripts/setup --iser");
        assert_eq!(of("no-such"), "no-such is not installed; apt-get install no-such");
    }
}
