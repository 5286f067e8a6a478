//! Exported symbols of a shared library, read by `readelf` of binutils.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use warpline_skip::Reason;

/// An exported symbol.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// Its version node; none: it has no version.
    pub node: Option<String>,
    /// Whether it is the default version.
    pub is_default: bool,
}

/// All defined dynamic symbols of a library except those of version nodes; `Err`: why they cannot be read.
pub fn of(library: &Path) -> Result<BTreeSet<Export>, Reason> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--dyn-syms", "--wide"]).arg(library);
    let read = readelf.output().map_err(|_| warpline_skip::missing("binutils"))?;
    assert!(read.status.success(), "{readelf:?}: {}", String::from_utf8_lossy(&read.stderr));
    let text = String::from_utf8_lossy(&read.stdout).into_owned();
    Ok(text.lines().filter_map(line).collect())
}

/// `NUMBER: VALUE SIZE TYPE BIND VISIBILITY SECTION NAME@@NODE`
fn line(line: &str) -> Option<Export> {
    // readelf has two words and a number for a type that it does not know: functions that the loader chooses.
    let line = line.replace("<OS specific>: ", "OS-specific-");
    let words: Vec<_> = line.split_whitespace().collect();
    let [number, _, _, _, bind, _, section, name, ..] = words.as_slice() else { return None };
    // A version node is an absolute symbol with some linkers.
    let is_defined = *section != "UND" && *section != "ABS";
    if !number.ends_with(':') || !is_defined || *bind == "LOCAL" || *bind == "Bind" {
        return None;
    }
    let (name, node, is_default) = match (name.split_once("@@"), name.split_once('@')) {
        (Some((name, node)), _) => (name, Some(node), true),
        (None, Some((name, node))) => (name, Some(node), false),
        (None, None) => (*name, None, true),
    };
    Some(Export { name: name.to_owned(), node: node.map(str::to_owned), is_default })
}
