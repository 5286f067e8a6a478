//! The table of symbols and version nodes that the libraries `libibverbs.so.1` and `librdmacm.so.1` export,
//! and what is made of it: version scripts, trampolines, a stand-in to link with, build steps.
//!
//! `symbols.toml` is the only list. Build scripts of the two libraries and tests use this crate; nothing of
//! it runs in a program.

#![forbid(unsafe_code)]

mod build;
mod generate;
mod table;

pub use build::{BuildError, build};
pub use table::{Kind, Library, Symbol, Table, TableError};

/// `symbols.toml` as text.
pub const TEXT: &str = include_str!("../symbols.toml");
