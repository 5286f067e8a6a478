//! Which functions the library stands in for: of each, every public name that the C library has for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use warpline_skip::skip;

use crate::support::library;

/// Public symbols of a library, by address.
fn symbols(file: &Path) -> Option<BTreeMap<String, String>> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(file).output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
        let (name, version) = name.split_once('@').unwrap_or((name, ""));
        (!version.contains("PRIVATE")).then(|| (name.to_owned(), address.to_owned()))
    });
    Some(lines.collect())
}

/// Where this process has the C library.
fn c_library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.find(|path| path.contains("libc.so.6")).unwrap().to_owned()
}

#[test]
fn no_name_of_a_function_is_forgotten() {
    let Some(of_c) = symbols(Path::new(&c_library())) else {
        return skip("no_name_of_a_function_is_forgotten", "nm is missing; see scripts/setup");
    };
    let own = symbols(&library()).unwrap();
    let own: BTreeMap<_, _> = own.iter().filter(|(name, _)| of_c.contains_key(*name)).collect();
    assert!(own.len() > 60, "{own:?}");
    for name in own.keys() {
        let address = &of_c[*name];
        let twins = of_c.iter().filter(|(_, at)| *at == address).map(|(twin, _)| twin);
        let forgotten: Vec<_> = twins.filter(|twin| !own.contains_key(twin)).collect();
        assert!(forgotten.is_empty(), "{forgotten:?} are other names of {name}");
    }
}
