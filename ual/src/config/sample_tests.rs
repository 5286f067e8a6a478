//! The sample of a configuration file has every key that the code knows, with the default that it has there.
//!
//! The keys come from the parser, whose error for a wrong key lists them: a new key that is not in the sample
//! fails here.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Config, SAMPLE};

/// The keys that the parser accepts where one does not exist.
fn keys_of(text: &str) -> BTreeSet<String> {
    let refused = Config::parse(text, Path::new("w.toml")).unwrap_err().to_string();
    let listed = refused.split_once("expected").map_or(refused.as_str(), |(_, listed)| listed);
    let keys: BTreeSet<_> = listed.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(!keys.is_empty(), "{refused}");
    keys
}

/// Lines of the sample, those that are comments only because they have no default included.
fn lines() -> impl Iterator<Item = &'static str> {
    let code = |line: &'static str| match line.strip_prefix('#') {
        Some(rest) => Some(rest).filter(|rest| !rest.is_empty() && !rest.starts_with(' ')),
        None => Some(line).filter(|line| !line.is_empty()),
    };
    SAMPLE.lines().filter_map(code)
}

/// Name of a section, without the part that a user chooses.
fn section(line: &str) -> Option<&str> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    Some(inner.trim_start_matches('[').trim_end_matches(']'))
}

#[test]
fn it_is_the_default() {
    assert_eq!(Config::parse(SAMPLE, Path::new("warpline.toml")).unwrap(), Config::default());
}

#[test]
fn what_is_a_comment_is_right_too() {
    // A directory must be there and belong to the user.
    let chosen = lines().filter(|line| !line.starts_with("local_dir"));
    let all = chosen.collect::<Vec<_>>().join("\n");
    let config = Config::parse(&all, Path::new("warpline.toml")).unwrap();
    assert_ne!(config, Config::default());
}

#[test]
fn every_key_is_there() {
    let mut missing = Vec::new();
    for table in keys_of("[no-such-section]\n") {
        let mut keys = match table.as_str() {
            // Any table is accepted; only other values are refused.
            "providers" => keys_of("[providers]\nno-such-key = 1\n"),
            table if is_list(table) => keys_of(&format!("[[{table}]]\nno-such-key = 1\n")),
            table => keys_of(&format!("[{table}]\nno-such-key = 1\n")),
        };
        // Sections of their own, in the sample as comments.
        keys.remove("peers");
        let mut within = false;
        for line in lines() {
            match section(line) {
                Some(name) => within = name == table,
                None if within => drop(keys.remove(line.split(" =").next().unwrap_or_default())),
                None => {}
            }
        }
        missing.extend(keys.into_iter().map(|key| format!("[{table}] {key}")));
    }
    assert_eq!(missing, [""; 0], "not in ual/src/config/warpline.toml");
    assert!(SAMPLE.contains("[policy.peers."));
}

/// Whether a section may be there several times.
fn is_list(table: &str) -> bool {
    Config::parse(&format!("[[{table}]]\nno-such-key = 1\n"), Path::new("w.toml"))
        .is_err_and(|error| error.to_string().contains("no-such-key"))
}

#[test]
fn the_parser_lists_its_keys() {
    assert!(keys_of("[no-such-section]\n").contains("softrdma"));
    assert!(keys_of("[policy]\nno-such-key = 1\n").contains("revision"));
    assert!(keys_of("[providers]\nno-such-key = 1\n").contains("wrap"));
}
