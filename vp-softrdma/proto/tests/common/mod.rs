//! The test vectors: those of the project, or of the file that the environment variable
//! `IWARP_VECTORS` names.
//!
//! Owner of the state: none. Each test thread loads its own copy. No peer.

use serde_json::Value;

/// The project's own.
pub(crate) const VECTORS: &str = include_str!("../vectors/iwarp-vectors.json");

/// The whole file: `contexts` and `vectors`.
pub(crate) fn load() -> Value {
    let text = match std::env::var_os("IWARP_VECTORS") {
        Some(path) => std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("IWARP_VECTORS={}: {e}", path.display())),
        None => VECTORS.to_owned(),
    };
    parse(&text)
}

/// A file of vectors.
pub(crate) fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("test vectors: {e}"))
}

/// The vector that another refers to: from the file in use, else from the project's.
#[allow(dead_code, reason = "of the test programs that share this, one follows references")]
pub(crate) fn named(file: &Value, wanted: &str) -> Value {
    let find = |file: &Value| {
        let all = file["vectors"].as_array().expect("a list of vectors");
        all.iter().find(|vector| vector["name"] == wanted).cloned()
    };
    find(file)
        .or_else(|| find(&parse(VECTORS)))
        .unwrap_or_else(|| panic!("no vector is named {wanted}, here or in the project's file"))
}

/// Checks each vector, also after a failure; then fails with all failures. Returns how many
/// there were.
pub(crate) fn check_each<'a>(
    vectors: impl IntoIterator<Item = &'a Value>,
    check: impl Fn(&Value),
) -> usize {
    let (mut count, mut failed) = (0, Vec::new());
    for vector in vectors {
        count += 1;
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(vector)));
        if let Err(panic) = checked {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
            failed.push(format!("{}: {text}", vector["name"].as_str().unwrap_or("?")));
        }
    }
    assert!(failed.is_empty(), "{} of {count} vectors fail:\n{}", failed.len(), failed.join("\n"));
    count
}

/// The octets of a hex string in a vector's `field`.
pub(crate) fn octets(vector: &Value, field: &str) -> Vec<u8> {
    let hex = vector[field].as_str().unwrap_or_default();
    assert!(hex.len().is_multiple_of(2), "odd number of hex digits in {field}");
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("a hex digit"))
        .collect()
}

/// A number that a vector gives as a number or as a hex string; `None` if it is absent.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(n) => n.as_u64(),
        Value::String(s) => {
            Some(u64::from_str_radix(s.trim_start_matches("0x"), 16).expect("a hex number"))
        }
        _ => None,
    }
}

/// The CRC kernel of the tests.
pub(crate) fn crc32c(crc: u32, octets: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, octets)
}
