//! Check of the dependencies between crates, the table of ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::Error;
use crate::source::Source;

/// May depend on any crate of ours.
pub(super) const ANY: &[&str] = &["*"];

/// Crate, and the crates of ours that it may depend on outside of its tests; in the order of the table
/// of `ARCHITECTURE.md`.
pub(super) const ARROWS: &[(&str, &[&str])] = &[
    ("state-page", &[]),
    ("vp-api", &["state-page"]),
    ("kal-os", &[]),
    ("shm-ring", &["kal-os"]),
    ("vp-hooks", &["vp-api", "kal-os"]),
    ("iwarp-proto", &[]),
    ("kal-shim", &["vp-api", "kal-os", "state-page"]),
    ("vp-soft", &["vp-api", "kal-os"]),
    ("vp-softrdma", &["vp-api", "kal-os", "vp-soft", "shm-ring", "iwarp-proto"]),
    ("vp-softrdma-dylib", &["vp-api", "vp-softrdma"]),
    ("vp-roce", &["vp-api", "kal-os", "vp-soft", "roce-proto"]),
    ("roce-proto", &[]),
    ("vp-roce-dylib", &["vp-api", "vp-roce"]),
    ("ibv-sys", &[]),
    ("vp-verbs", &["vp-api", "kal-os", "roce-proto", "ibv-sys"]),
    ("vp-verbs-dylib", &["vp-api", "vp-verbs"]),
    (
        "ual",
        &[
            "vp-api",
            "kal-os",
            "kal-shim",
            "ual-cm",
            "vp-hooks",
            "vp-softrdma",
            "vp-roce",
            "vp-verbs",
            "state-page",
        ],
    ),
    ("ual-cm", &["vp-api", "kal-os", "kal-shim", "shm-ring", "iwarp-proto"]),
    ("itapi", &["ual", "vp-api", "kal-os"]),
    ("warpline-channel", &["itapi"]),
    ("itapi-c", &["ual", "vp-api", "kal-os"]),
    ("ofa", &["ual", "ual-cm", "vp-api", "kal-os", "ibv-sys", "vp-softrdma", "vp-roce"]),
    ("ofa-symbols", &[]),
    ("ofa-ibverbs", &["ofa", "ofa-symbols"]),
    ("ofa-rdmacm", &["ofa-symbols"]),
    ("ofa-view", &["ofa-symbols"]),
    ("warpline-sockets", &["kal-os", "ofa-symbols", "shm-ring"]),
    ("verbs-programs", ANY),
    (
        "warpline",
        &[
            "itapi",
            "kal-os",
            "ual",
            "iwarp-proto",
            "roce-proto",
            "warpline-provider",
            "state-page",
            "shm-ring",
        ],
    ),
    ("warpline-examples", &["itapi", "warpline-channel"]),
    ("warpline-provider", &["vp-api", "kal-shim", "shm-ring"]),
    ("warpline-seeded", &["vp-api", "kal-os"]),
    ("warpline-artifacts", &[]),
    ("warpline-skip", &[]),
    ("warpline-patience", &[]),
    ("warpline-spec", &[]),
    (
        "warpline-fuzz-bodies",
        &["iwarp-proto", "roce-proto", "shm-ring", "state-page", "warpline-channel"],
    ),
    ("fake-verbs", &["ibv-sys"]),
    ("warpline-tests", ANY),
    ("warpline-benches", ANY),
    ("warpline-pictures", ANY),
];

/// A crate and the directory of its sources, the name that only some files may use, and those.
pub(super) const CONFINED: &[(&str, &str, &str)] = &[
    ("ual/src/", "vp_softrdma", "ual/src/registry"),
    ("ual/src/", "vp_roce", "ual/src/registry"),
    ("ual/src/", "vp_verbs", "ual/src/registry"),
];

/// One dependency between two crates of ours.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    /// Depends…
    pub from: String,
    /// …on this one.
    pub to: String,
}

/// A crate's folder and description.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// Its folder.
    pub folder: PathBuf,
    /// The `description` of its manifest, if it has one.
    pub description: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    description: Option<String>,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    doctest: bool,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

/// What cargo knows about the workspace.
#[derive(Debug, Clone, Default)]
pub struct Workspace {
    /// Its crates.
    pub crates: BTreeSet<String>,
    /// Who depends on whom, without the dependencies of tests.
    pub arrows: BTreeSet<Arrow>,
    /// Crates whose documentation cargo would run as tests.
    pub doctests: BTreeSet<String>,
    /// The folder and description of each crate, from its manifest.
    pub places: BTreeMap<String, Place>,
}

/// Asks cargo about the workspace at `root`.
///
/// # Errors
/// Cargo cannot be run, or returns something unexpected.
pub fn read(root: &Path) -> Result<Workspace, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).current_dir(root);
    let output = command.output().map_err(|e| Error::Metadata(e.to_string()))?;
    if !output.status.success() {
        return Err(Error::Metadata(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    parse(&output.stdout)
}

fn parse(json: &[u8]) -> Result<Workspace, Error> {
    let metadata: Metadata =
        serde_json::from_slice(json).map_err(|e| Error::Metadata(e.to_string()))?;
    let mut out = Workspace::default();
    for package in metadata.packages {
        let ours = |d: &&Dependency| d.path.is_some() && d.kind.as_deref() != Some("dev");
        for d in package.dependencies.iter().filter(ours) {
            out.arrows.insert(Arrow { from: package.name.clone(), to: d.name.clone() });
        }
        if package.targets.iter().any(|t| t.doctest) {
            out.doctests.insert(package.name.clone());
        }
        let folder = package.manifest_path.parent().map(PathBuf::from).unwrap_or_default();
        out.places.insert(package.name.clone(), Place { folder, description: package.description });
        out.crates.insert(package.name);
    }
    Ok(out)
}

/// The crate whose last test prints what was skipped. Cargo runs tests by the name of the crate.
const LAST: &str = "warpline-tests";

/// One line per arrow that must not be, per crate that the design does not know, and per crate
/// that would hide the list of skipped tests, the end of a test run: by its name, or by doctests,
/// which cargo runs last (a test of `warpline-tests` runs them instead).
pub fn findings(workspace: &Workspace) -> Vec<String> {
    let allowed = |name: &str| ARROWS.iter().find(|(from, _)| *from == name).map(|(_, to)| *to);
    let unknown = workspace.crates.iter().filter(|name| allowed(name).is_none());
    let unknown = unknown.map(|name| format!("{name}: the design does not say what it may use"));
    let wrong = workspace.arrows.iter().filter(|a| {
        let to = allowed(&a.from).unwrap_or(ANY);
        to != ANY && !to.contains(&a.to.as_str())
    });
    let wrong = wrong.map(|a| format!("{} must not depend on {}", a.from, a.to));
    let doctests = workspace.doctests.iter();
    let doctests = doctests.map(|name| format!("{name}: needs doctest = false in its [lib]"));
    let late = workspace.crates.iter().filter(|name| name.as_str() > LAST);
    let late = late.map(|name| format!("{name}: its tests would run after those of {LAST}"));
    unknown.chain(wrong).chain(doctests).chain(late).collect()
}

/// One line per file that names a crate outside of the one place that may.
pub fn confined(sources: &[Source]) -> Vec<String> {
    let mut out = Vec::new();
    for (dir, name, home) in CONFINED {
        let others = |s: &&Source| s.path.starts_with(dir) && !s.path.starts_with(home);
        for source in sources.iter().filter(others) {
            let tests = source.test_lines();
            let named = |n: &usize| !tests[*n] && source.split(*n).0.contains(name);
            out.extend(
                (0..source.lines.len())
                    .filter(named)
                    .map(|n| format!("{}:{}: only {home} may name {name}", source.path, n + 1)),
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Language;

    const JSON: &str = r#"{"packages":[
        {"name":"vp-api","description":"d","manifest_path":"/x/a/Cargo.toml","dependencies":[{"name":"ual","kind":null,"path":"/x/ual"},
                                         {"name":"vp-softrdma","kind":"dev","path":"/x/s"},
                                         {"name":"serde","kind":null,"path":null}],
         "targets":[{"doctest":true},{"doctest":false}]},
        {"name":"ual","description":null,"manifest_path":"/x/u/Cargo.toml","dependencies":[{"name":"vp-api","kind":"build","path":"/x/a"}],"targets":[]},
        {"name":"zeta","description":null,"manifest_path":"/x/z/Cargo.toml","dependencies":[],"targets":[]}]}"#;

    #[test]
    fn forbidden_arrows_and_unknown_crates_are_found() {
        let found = findings(&parse(JSON.as_bytes()).unwrap());
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].starts_with("zeta:"));
        assert_eq!(found[1], "vp-api must not depend on ual");
        assert!(found[2].starts_with("vp-api: needs doctest"));
        assert!(found[3].starts_with("zeta: its tests would run after"));
    }

    #[test]
    fn a_provider_is_named_in_the_registry_only() {
        let file = |path, text| Source::new(path, Language::Rust, text);
        let all = [
            file("ual/src/cm.rs", "use vp_softrdma::x;\n// as vp_softrdma does"),
            file("ual/src/registry/builtin.rs", "use vp_softrdma::x;"),
            file("ual/tests/t.rs", "use vp_softrdma::x;"),
        ];
        assert_eq!(confined(&all), ["ual/src/cm.rs:1: only ual/src/registry may name vp_softrdma"]);
    }
}
