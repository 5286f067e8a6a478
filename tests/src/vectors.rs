//! The test vectors of `iwarp-proto`, to send to live peers.

use serde::Deserialize;

/// A Terminate's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Code {
    pub layer: u8,
    #[serde(rename = "type")]
    pub etype: u8,
    pub code: u8,
}

/// The Terminate that a receiver should send.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Expected {
    #[serde(flatten)]
    pub code: Code,
    #[serde(default)]
    pub also_acceptable: Vec<Code>,
}

/// One vector; see the `schema` entry of the file.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Vector {
    pub name: String,
    pub kind: String,
    pub hex: String,
    pub valid: bool,
    pub expected_error: Option<Expected>,
    pub expected_action: String,
    pub context: serde_json::Value,
}

impl Vector {
    /// The octets.
    pub fn octets(&self) -> Vec<u8> {
        (0..self.hex.len() / 2)
            .map(|i| {
                u8::from_str_radix(&self.hex[2 * i..2 * i + 2], 16).expect("hex in the vector file")
            })
            .collect()
    }
}

/// All vectors: the committed file, or the one that `IWARP_VECTORS` names.
pub fn load() -> Vec<Vector> {
    #[derive(Deserialize)]
    struct File {
        vectors: Vec<Vector>,
    }
    let path = std::env::var("IWARP_VECTORS").unwrap_or_else(|_| {
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../vp-softrdma/proto/tests/vectors/iwarp-vectors.json"
        )
        .into()
    });
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("vectors {path}: {e}"));
    serde_json::from_str::<File>(&text).unwrap_or_else(|e| panic!("vectors {path}: {e}")).vectors
}
