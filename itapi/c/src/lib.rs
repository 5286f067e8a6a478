//! The C face: every `it_*` entry point of IT-API 2.1, the Zurich extensions (`itx_*`) and our own
//! (`itw_*`), on the access layer.
//!
//! All `unsafe` of this crate is here: reading what a C caller passes and writing what it gets.
//! Rules for every entry point:
//! - its body runs inside [`boundary::call`]: no panic crosses, the status is derived from one
//!   typed [`failure::Failure`], whose long text `itw_last_error` gives;
//! - pointers are checked for NULL and read and written unaligned; handles are looked up in
//!   [`table`] and never dereferenced, so that a stale, foreign or wrong one is a status;
//! - after `fork`, in the child, everything is refused ([`fork`]).

mod access;
mod attr;
mod boundary;
mod connect;
mod context;
mod dequeue;
mod dto;
mod ep;
mod evd;
mod event;
mod failure;
mod fork;
mod ia;
mod immediate;
mod info;
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
mod ring;
mod rmr;
mod sgl;
mod share;
mod srq;
mod stags;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod ud;
mod vendor;
mod works;
mod wrapped;
mod zrl;

use failure::{Failure, Outcome};

/// Refuses bits that are not among `known`.
fn check_bits(bits: u32, known: u32, wrong: status::Status, name: &str) -> Outcome {
    if bits & !known == 0 {
        return Ok(());
    }
    let strange = bits & !known;
    Err(Failure::new(wrong, format!("{name} {bits:#x} has bits that mean nothing: {strange:#x}")))
}

/// Refuses a mask of parameters with bits that are not among `known`.
fn check_mask(mask: u32, known: u32) -> Outcome {
    check_bits(mask, known, status::IT_ERR_INVALID_MASK, "the mask")
}
