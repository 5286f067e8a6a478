//! Host names: resolving them, and naming addresses in messages without blocking.
//!
//! [`resolve`] may block (the resolver decides how long) and is only for the calling user. [`name_of`]
//! never blocks: it uses only this machine's name and the hosts file.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use kal_os::fork::Once;

/// This machine's node name, as `uname -n` prints it.
pub fn node_name() -> &'static str {
    static NAME: Once<String> = Once::new();
    NAME.get_or_init(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

/// Addresses for `HOST`, `HOST:PORT`, `ADDR`, `ADDR:PORT`, `[V6]` or `[V6]:PORT`; without a port,
/// `default_port`. At least one address, in the resolver's order. Blocks while the resolver works.
pub fn resolve(target: &str, default_port: u16) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = split(target, default_port)
        .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, format!("`{target}`: {why}")))?;
    let found: Vec<_> = (host, port)
        .to_socket_addrs()
        .map_err(|e| io::Error::new(e.kind(), format!("no address for `{host}`: {e}")))?
        .collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("no address for `{host}`")));
    }
    Ok(found)
}

/// Host and port of a target, see [`resolve`].
fn split(target: &str, default_port: u16) -> Result<(&str, u16), &'static str> {
    let port = |text: &str| text.parse().map_err(|_| "the port is not a number from 0 to 65535");
    let (host, port) = if let Some(rest) = target.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("`[` without `]`")?;
        match rest.strip_prefix(':') {
            Some(text) => (host, port(text)?),
            None if rest.is_empty() => (host, default_port),
            None => return Err("only `:PORT` may follow `]`"),
        }
    } else {
        match target.split_once(':') {
            // More than one colon: a bare IPv6 address.
            Some((_, rest)) if rest.contains(':') => (target, default_port),
            Some((host, text)) => (host, port(text)?),
            None => (target, default_port),
        }
    };
    if host.is_empty() { Err("the host is missing") } else { Ok((host, port)) }
}

/// The name of an address, if it is known without a query: this machine's own, or one from `/etc/hosts`
/// (read once).
pub fn name_of(address: IpAddr) -> Option<String> {
    static HOSTS: Once<Vec<(IpAddr, String)>> = Once::new();
    let address = address.to_canonical();
    if address.is_loopback() || is_own(address) {
        return Some(node_name().to_owned());
    }
    let hosts =
        HOSTS.get_or_init(|| parse_hosts(&fs::read_to_string("/etc/hosts").unwrap_or_default()));
    hosts.iter().find(|(known, _)| *known == address).map(|(_, name)| name.clone())
}

fn is_own(address: IpAddr) -> bool {
    kal_os::interfaces().is_ok_and(|all| all.iter().any(|i| i.addresses.contains(&address)))
}

/// Address and first name of each line of a hosts file.
fn parse_hosts(text: &str) -> Vec<(IpAddr, String)> {
    let entry = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_every_form() {
        for (target, host, port) in [
            ("alpha", "alpha", 7),
            ("alpha:80", "alpha", 80),
            ("10.0.0.1:0", "10.0.0.1", 0),
            ("::1", "::1", 7),
            ("[::1]", "::1", 7),
            ("[fe80::1%2]:99", "fe80::1%2", 99),
        ] {
            assert_eq!(split(target, 7), Ok((host, port)), "{target}");
        }
        for bad in ["", ":80", "a:b", "a:65536", "[::1", "[::1]x", "[]:1"] {
            assert!(split(bad, 7).is_err(), "{bad}");
        }
    }

    #[test]
    fn numeric_targets_resolve_without_a_resolver() {
        assert_eq!(resolve("127.0.0.1:5", 7).unwrap(), ["127.0.0.1:5".parse().unwrap()]);
        assert_eq!(resolve("[::1]", 7).unwrap(), ["[::1]:7".parse().unwrap()]);
        assert!(resolve("[::1", 7).unwrap_err().to_string().contains("`[::1`"));
    }

    #[test]
    fn hosts_files_are_read_with_comments_and_aliases() {
        let hosts = parse_hosts("# x\n10.1.2.3 alpha a # y\n\nnonsense beta\n::9\tgamma\n");
        assert_eq!(
            hosts,
            [
                ("10.1.2.3".parse().unwrap(), "alpha".into()),
                ("::9".parse().unwrap(), "gamma".into())
            ]
        );
    }

    #[test]
    fn addresses_of_this_machine_are_recognised() {
        assert_eq!(name_of("127.0.0.1".parse().unwrap()).as_deref(), Some(node_name()));
        assert_eq!(name_of("::ffff:127.0.0.1".parse().unwrap()).as_deref(), Some(node_name()));
    }
}
