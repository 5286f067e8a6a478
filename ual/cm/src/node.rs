//! The two ends of a connection as messages name them: node name and address. No state.

use std::fmt;
use std::net::SocketAddr;

use kal_shim::names;

/// One end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// Node name, if known without a lookup.
    pub name: Option<String>,
    /// Address and port.
    pub address: SocketAddr,
}

impl Node {
    /// This machine, at `address`.
    pub fn local(address: SocketAddr) -> Self {
        Self { name: Some(names::node_name().to_owned()), address }
    }

    /// Another end; `name` as the user typed it, or looked up without blocking.
    pub fn remote(address: SocketAddr, name: Option<&str>) -> Self {
        let name = name.map(str::to_owned).or_else(|| names::name_of(address.ip()));
        Self { name, address }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// Both ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Ends {
    pub local: Node,
    pub remote: Node,
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <-> {}", self.local, self.remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_both_ends() {
        let remote = Node::remote("192.0.2.7:4242".parse().unwrap(), Some("alpha"));
        let unknown = Node::remote("192.0.2.7:4242".parse().unwrap(), None);
        assert_eq!(unknown.to_string(), "192.0.2.7:4242");
        let local = Node { name: Some("beta".into()), address: "[::1]:9".parse().unwrap() };
        let ends = Ends { local, remote };
        assert_eq!(ends.to_string(), "beta ([::1]:9) <-> alpha (192.0.2.7:4242)");
    }
}
