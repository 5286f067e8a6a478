//! Bodies of the fuzz targets. A body panics where the protocol core breaks a promise.
//!
//! The functions are plain: the fuzzer calls them through `fuzz/fuzz_targets`, and a test runs them
//! over the committed corpus. The first octets of an input choose the set-up, the rest is what the
//! peer sends.
//!
//! Owner of the state: each call its own. One thread. The peer is the input; it dies where it ends.
#![deny(unsafe_code)]

pub mod channel;
pub mod fpdu_stream;
pub mod ring_peer;
pub mod roce_qp;
pub mod startup;
pub mod state_page;
pub mod whole_qp;

/// What a target does with one input.
pub type Body = fn(&[u8]);

/// Every target: its name, which is its corpus' folder, and its body.
pub const TARGETS: &[(&str, Body)] = &[
    ("state_page", state_page::run),
    ("startup", startup::run),
    ("fpdu_stream", fpdu_stream::run),
    ("whole_qp", whole_qp::run),
    ("roce_qp", roce_qp::run),
    ("channel", channel::run),
    ("ring_peer", ring_peer::run),
];

/// The CRC kernel of the targets.
fn crc32c(crc: u32, octets: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, octets)
}

/// Splits the set-up off; a short input has zeros there.
fn set_up<const N: usize>(input: &[u8]) -> ([u8; N], &[u8]) {
    let (front, octets) = input.split_at(input.len().min(N));
    let mut bits = [0; N];
    bits[..front.len()].copy_from_slice(front);
    (bits, octets)
}
