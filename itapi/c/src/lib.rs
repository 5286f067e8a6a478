//! The C face: every `it_*` entry point of IT-API 2.1, the Zurich extensions (`itx_*`) and our own
//! (`itw_*`), on the access layer.
//!
//! `unsafe` in this crate reads what a C caller passes and writes what it gets.
//! Rules for every entry point:
//! - its body runs inside [`boundary::call`]: no panic crosses, the status is derived from one
//!   typed [`failure::Failure`], whose long text `itw_last_error` gives;
//! - pointers are checked for NULL and read and written unaligned; handles are looked up in
//!   [`handle_table`] and never dereferenced, so that a stale, foreign or wrong one is a status;
//! - after `fork`, in the child, everything is refused ([`fork`]).
//!
//! # Design
//!
//! This crate uses the access layer, not the Rust face: C buffers have no owner that could be moved.
//! `itapi` forbids `unsafe`; the `unsafe` for C callers is in this crate.
//!
//! - A handle is a number, never an address: generation and slot of a table that is read through
//!   one atomic pointer, without a lock (`handle_table`). NULL, stale, foreign and wrong handles are a
//!   status, and an object lives until the last call that uses it has returned. All of
//!   `it_get_handle_type`, lookup and check, takes 15 ns (`cargo build --release -p itapi-c &&
//!   cargo run --release -p warpline-benches --bin micro`).
//! - A work request's id holds the slot of its endpoint and a sequence number; cookie, kind and
//!   flags are in a ring of the endpoint. A completion therefore finds its endpoint and cookie
//!   without a map. Posting and dequeuing allocate nothing (a test counts) and take no lock that
//!   endpoints share.
//! - Both layouts, the standard's and the Zurich stack's, are in one library: the header renames
//!   the calls that differ. The header is authoritative; tests compare sizes, offsets, symbols
//!   and the table of functions with it.
//! - When memory is short a call returns `IT_ERR_RESOURCES`, and nothing ends the process. Allocations whose size a
//!   caller decides are fallible in all layers (`room`); what is small and fixed comes from
//!   a reserve of 0.3 MiB if the system has none (`reserve`), which calls that create objects
//!   fill first. Tables that peers and callers grow are B-trees, which grow in small pieces; a listener
//!   accepts no connection while there is no memory for a start-up.
//! - No panic crosses; `itw_last_error` explains the calling thread's last failure. After `fork`,
//!   every call in the child is refused: it has no threads of the library.

mod access;
mod address;
mod any_ep;
mod attr;
mod boundary;
mod completion;
mod connect;
mod context;
mod dequeue;
mod dto;
mod ep;
mod evd;
mod event;
mod failure;
mod fork;
mod handle_table;
mod ia;
mod immediate;
mod info;
mod interfaces;
mod iobl;
mod link;
mod listen;
mod lmr;
mod log;
mod mapping;
mod object;
#[cfg(test)]
mod pair_tests;
mod path;
mod post;
mod ptr;
mod pz;
mod region;
mod reserve;
mod resolve;
mod ring;
mod rmr;
mod sgl;
mod share;
mod srq;
mod stags;
mod status;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod ud;
mod vendor;
mod wr_id;
mod wrapped;
mod zrl;

use failure::{Failure, Outcome};

/// Refuses bits that are not among `known`.
fn check_bits(bits: u32, known: u32, wrong: status::Status, name: &str) -> Outcome {
    if bits & !known == 0 {
        return Ok(());
    }
    let strange = bits & !known;
    Err(Failure::new(wrong, format!("{name} {bits:#x} has unknown bits: {strange:#x}")))
}

/// Refuses a mask of parameters with bits that are not among `known`.
fn check_mask(mask: u32, known: u32) -> Outcome {
    check_bits(mask, known, status::IT_ERR_INVALID_MASK, "the mask")
}
