//! Errors of reading the source tree.

use std::path::PathBuf;

/// A file or a tool that could not be read. Findings about the tree are never errors of this
/// type: they are lines for the reader.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// What was read.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A list of requirements or exceptions is not well formed.
    #[error("{}: {source}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// Line and column, from the parser.
        source: Box<toml::de::Error>,
    },
    /// An entry of a list contradicts another one.
    #[error("{}: {what}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// Which entry, and what is wrong with it.
        what: String,
    },
    /// `cargo metadata` failed.
    #[error("cargo metadata: {0}")]
    Metadata(String),
}

impl Error {
    pub(crate) fn read(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Read { path, source }
    }
}
