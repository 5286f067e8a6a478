//! The symbols and version nodes that the libraries `libibverbs.so.1` and `librdmacm.so.1` export, and
//! the files generated from them: version scripts, trampolines, a stub to link with.
//!
//! `symbols.toml` is the only list. The build scripts of the two libraries and tests use this crate;
//! none of it is in a program.

#![forbid(unsafe_code)]

mod build;
mod generate;
mod table;

pub use build::{BuildError, build, offer};
pub use table::{Kind, Library, Symbol, SymbolTable, TableError};

/// `symbols.toml` as text.
pub const TEXT: &str = include_str!("../symbols.toml");
