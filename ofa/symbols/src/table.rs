//! Parser of the table of exported symbols: names, versions, and implementations.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

/// One of the two libraries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// `libibverbs.so.1`, which holds all state and all functions.
    Ibverbs,
    /// `librdmacm.so.1`, which jumps into the other.
    Rdmacm,
}

impl Library {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ibverbs, Self::Rdmacm];

    /// The name by which the loader knows it.
    pub fn soname(self) -> &'static str {
        match self {
            Self::Ibverbs => "libibverbs.so.1",
            Self::Rdmacm => "librdmacm.so.1",
        }
    }

    /// The file that cargo makes of its crate.
    pub fn artifact(self) -> &'static str {
        match self {
            Self::Ibverbs => "libwarpline_ibverbs.so",
            Self::Rdmacm => "libwarpline_rdmacm.so",
        }
    }
}

/// How a symbol is implemented.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// By a function of the crate `ofa`: `warpline_` and its name.
    Works,
    /// Not supported: sets `errno` to `EOPNOTSUPP` and returns it.
    Errno,
    /// Not supported: sets `errno` to `EOPNOTSUPP` and returns -1.
    Minus,
    /// Not supported: sets `errno` to `EOPNOTSUPP` and returns NULL.
    Null,
    /// Not supported: has no result, and does nothing.
    Nothing,
    /// An octet that is 0.
    Data,
}

impl Kind {
    /// Kinds that one function implements, whatever the symbol.
    pub const UNSUPPORTED: [Self; 4] = [Self::Errno, Self::Minus, Self::Null, Self::Nothing];

    /// The last part of the name of the function that implements it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Errno => "errno",
            Self::Minus => "minus",
            Self::Null => "null",
            Self::Nothing => "nothing",
            Self::Data => "data",
        }
    }
}

/// An exported name with a version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Symbol {
    /// Where it is exported.
    pub library: Library,
    /// E.g. `ibv_reg_mr`.
    pub name: String,
    /// E.g. `IBVERBS_1.1`.
    pub node: String,
    /// Whether it is the default version.
    pub is_default: bool,
    /// Its implementation.
    pub kind: Kind,
}

/// All exported symbols.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolTable(Vec<Symbol>);

/// Why a table cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TableError {
    /// Not the syntax.
    #[error("symbols: {0}")]
    Syntax(String),
    /// A name with a node twice.
    #[error("symbols: {name} is in {node} twice")]
    Twice {
        /// The name.
        name: String,
        /// The node.
        node: String,
    },
}

type Nodes = BTreeMap<String, BTreeMap<String, Kind>>;

impl SymbolTable {
    /// The table of this crate.
    ///
    /// # Errors
    ///
    /// `symbols.toml` is malformed.
    pub fn own() -> Result<Self, TableError> {
        Self::parse(crate::TEXT)
    }

    /// Reads a table in the form of `symbols.toml`.
    ///
    /// # Errors
    ///
    /// It is not TOML, names an unknown library or kind, or has a name with a node twice.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let libraries: BTreeMap<Library, Nodes> =
            toml::from_str(text).map_err(|e| TableError::Syntax(e.to_string()))?;
        let mut symbols = Vec::new();
        for (library, nodes) in libraries {
            for (written, names) in nodes {
                for (place, node) in expand(&written).into_iter().enumerate() {
                    symbols.extend(names.iter().map(|(name, kind)| Symbol {
                        library,
                        name: name.clone(),
                        node: node.clone(),
                        is_default: place == 0,
                        kind: *kind,
                    }));
                }
            }
        }
        symbols.sort();
        let same = |pair: &[Symbol]| pair[0].name == pair[1].name && pair[0].node == pair[1].node;
        match symbols.windows(2).find(|pair| same(pair)) {
            Some(pair) => {
                let Symbol { name, node, .. } = pair[0].clone();
                Err(TableError::Twice { name, node })
            }
            None => Ok(Self(symbols)),
        }
    }

    /// Symbols of a library, by name.
    pub fn of(&self, library: Library) -> impl Iterator<Item = &Symbol> {
        self.0.iter().filter(move |symbol| symbol.library == library)
    }

    /// Version nodes of a library.
    pub fn nodes(&self, library: Library) -> Vec<&str> {
        let mut nodes: Vec<_> = self.of(library).map(|symbol| symbol.node.as_str()).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }
}

/// `X_{1,2}` is `X_1` and `X_2`.
fn expand(written: &str) -> Vec<String> {
    match written.strip_suffix('}').and_then(|rest| rest.split_once('{')) {
        Some((stem, numbers)) => {
            numbers.split(',').map(|number| format!("{stem}{}", number.trim())).collect()
        }
        None => vec![written.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test fails loudly

    use super::*;

    #[test]
    fn a_node_in_braces_is_several_and_the_first_is_the_default() {
        let text = "[ibverbs.\"P_{34,57}\"]\nf = \"errno\"\n[rdmacm.\"R_1.0\"]\ng = \"works\"\n";
        let table = SymbolTable::parse(text).unwrap();
        let seen: Vec<_> = table
            .of(Library::Ibverbs)
            .map(|s| (s.name.as_str(), s.node.as_str(), s.is_default, s.kind))
            .collect();
        assert_eq!(seen, [("f", "P_34", true, Kind::Errno), ("f", "P_57", false, Kind::Errno)]);
        assert_eq!(table.nodes(Library::Rdmacm), ["R_1.0"]);
    }

    #[test]
    fn mistakes_are_named() {
        let parse_error = |text: &str| SymbolTable::parse(text).unwrap_err().to_string();
        assert!(parse_error("[ibverbs.\"A\"]\nf = \"erno\"\n").contains("erno"));
        assert!(parse_error("[ibverb.\"A\"]\nf = \"errno\"\n").contains("ibverb"));
        let twice = "[ibverbs.\"A_{1,2}\"]\nf = \"errno\"\n[ibverbs.\"A_2\"]\nf = \"null\"\n";
        assert_eq!(parse_error(twice), "symbols: f is in A_2 twice");
    }

    #[test]
    fn a_name_has_one_default_version() {
        let table = SymbolTable::own().unwrap();
        for library in Library::ALL {
            let mut defaults: Vec<_> = table.of(library).filter(|s| s.is_default).collect();
            defaults.dedup_by_key(|s| s.name.as_str());
            let names: std::collections::BTreeSet<_> = table.of(library).map(|s| &s.name).collect();
            assert_eq!(defaults.len(), names.len(), "{library:?}");
            let all = table.of(library).filter(|s| s.is_default).count();
            assert_eq!(defaults.len(), all, "{library:?}");
        }
    }
}
