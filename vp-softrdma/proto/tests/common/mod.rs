//! The test vectors: one file, or the one that the environment variable `IWARP_VECTORS` names.
//!
//! Owner of the state: none. Each test thread loads its own copy. No peer.

use serde_json::Value;

const VECTORS: &str = include_str!("../vectors/iwarp-vectors.json");

/// The whole file: `contexts` and `vectors`.
pub(crate) fn load() -> Value {
    let text = match std::env::var_os("IWARP_VECTORS") {
        Some(path) => std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("IWARP_VECTORS={}: {e}", path.display())),
        None => VECTORS.to_owned(),
    };
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("test vectors: {e}"))
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
