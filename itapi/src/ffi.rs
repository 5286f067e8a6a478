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

mod boundary;
mod ep;
mod evd;
mod failure;
mod fork;
mod ia;
mod listen;
mod lmr;
mod object;
mod path;
mod ptr;
mod pz;
mod rmr;
mod srq;
mod status;
mod table;
mod types;
