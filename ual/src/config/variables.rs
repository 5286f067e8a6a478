//! The variables of the environment that this project's libraries and commands read, and a warning of those that
//! have no effect. No state.

use std::sync::Once;

/// All names. [`Config::load`](super::Config::load) reads those of the configuration; the command, the C library and
/// the verbs libraries read `LOG` (the command `RUST_LOG`); the verbs libraries the others, of which `warpline run` sets some.
const NAMES: [&str; 14] = [
    "WARPLINE_CLASS",
    "WARPLINE_CONFIG",
    "WARPLINE_LOCAL",
    "WARPLINE_LOG",
    "WARPLINE_LOG_FILE",
    "WARPLINE_PROVIDER_PATH",
    "WARPLINE_VERBS_DEVICES",
    "WARPLINE_VERBS_LATE_RECEIVES",
    "WARPLINE_VERBS_MEET_ANY",
    "WARPLINE_VERBS_PORT_OFFSET",
    "WARPLINE_VERBS_RECORD",
    "WARPLINE_VERBS_ROCE",
    "WARPLINE_VERBS_VIEW",
    "WARPLINE_WRAP",
];

/// Those whose values are paths, which may be any octets.
const PATHS: [&str; 5] = [
    "WARPLINE_CONFIG",
    "WARPLINE_LOG_FILE",
    "WARPLINE_PROVIDER_PATH",
    "WARPLINE_VERBS_RECORD",
    "WARPLINE_VERBS_VIEW",
];

/// Warns once in a process, of the variables that it was started with.
pub(crate) fn warn_of_mistakes() {
    static ONCE: Once = Once::new();
    // Not `std::env::vars_os`, which copies all of them, and ends a process without memory.
    ONCE.call_once(|| {
        let all = std::fs::read("/proc/self/environ").unwrap_or_default();
        let pairs = all.split(|octet| *octet == 0).filter_map(pair);
        pairs
            .filter_map(|(name, value)| mistake(name, value))
            .for_each(|text| tracing::warn!("{text}"));
    });
}

/// The name and the value of a variable; `None`: its name is none of ours.
fn pair(variable: &[u8]) -> Option<(&str, &[u8])> {
    let at = variable.iter().position(|octet| *octet == b'=')?;
    Some((str::from_utf8(&variable[..at]).ok()?, &variable[at + 1..]))
}

fn mistake(name: &str, value: &[u8]) -> Option<String> {
    let own = name.strip_prefix("WARPLINE_")?;
    if NAMES.contains(&name) {
        let wrong = !PATHS.contains(&name) && str::from_utf8(value).is_err();
        return wrong.then(|| format!("${name} has no effect: its value is not UTF-8"));
    }
    let meant = NAMES.into_iter().find(|known| is_near(own, &known["WARPLINE_".len()..]))?;
    Some(format!("${name} has no effect; is ${meant} meant?"))
}

/// Whether `name` is the end of `known`, or differs from it by an octet or two.
fn is_near(name: &str, known: &str) -> bool {
    let most = if known.len() > 4 { 2 } else { 1 };
    known.ends_with(&format!("_{name}")) || distance(name.as_bytes(), known.as_bytes()) <= most
}

/// The fewest insertions, deletions and replacements of an octet (Levenshtein distance).
fn distance(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, a) in from.iter().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (at, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_without_effect_are_named() {
        let of = |name: &str, value: &[u8]| mistake(name, value);
        for name in NAMES {
            assert_eq!(of(name, b"1"), None, "{name}");
            assert_eq!(of(name, b"\xff").is_none(), PATHS.contains(&name), "{name}");
        }
        for (wrong, meant) in [
            ("WARPLINE_LOACL", "$WARPLINE_LOCAL meant"),
            ("WARPLINE_ROCE", "$WARPLINE_VERBS_ROCE meant"),
            ("WARPLINE_VERB_ROCE", "$WARPLINE_VERBS_ROCE meant"),
            ("WARPLINE_LOGS", "$WARPLINE_LOG meant"),
        ] {
            assert!(of(wrong, b"1").unwrap().contains(meant), "{wrong}");
        }
        // Of others, or of tests.
        for other in ["WARPLINE_SERVICE_HOST", "WARPLINE_SKIPS", "WARPLINE_LOCAL_RUNS", "PATH"] {
            assert_eq!(of(other, b"\xff"), None, "{other}");
        }
    }
}
