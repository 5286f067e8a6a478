//! Who holds port 4791 of an address that cannot be bound: the kernel lists the owners of UDP sockets.
//!
//! No state; used for an error's text, and to tell a process of this user that ends from a stranger.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::PORT;

/// The holder of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// The kernel itself, as `rxe` does.
    Kernel,
    /// A process of this user.
    Own,
    /// A process of the user with this number.
    User(u32),
    /// The kernel does not list it.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("the kernel (its rxe takes it of all addresses)"),
            Self::Own => f.write_str("another process of this user, which does not share it"),
            Self::User(user) => write!(f, "another process, of user {user}"),
            Self::Unknown => f.write_str("another process, which the kernel does not list"),
        }
    }
}

/// The holder of port 4791 of an address, or of all addresses.
pub(super) fn holder(address: IpAddr) -> Holder {
    let own = rustix::process::geteuid().as_raw();
    let lists = ["/proc/net/udp", "/proc/net/udp6"].map(std::fs::read_to_string);
    let lines = lists.iter().flatten().flat_map(|list| list.lines().skip(1));
    let found = lines
        .filter_map(parse)
        .find(|(local, port, ..)| *port == PORT && (*local == address || local.is_unspecified()));
    match found {
        None => Holder::Unknown,
        Some((_, _, _, 0)) => Holder::Kernel,
        Some((_, _, user, _)) if user == own => Holder::Own,
        Some((_, _, user, _)) => Holder::User(user),
    }
}

/// Address, port, user and inode of a line of the list. Words of addresses are in the order of this machine.
fn parse(line: &str) -> Option<(IpAddr, u16, u32, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = address
        .as_bytes()
        .chunks(8)
        .map(|word| {
            let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
            Some(word.to_ne_bytes())
        })
        .collect();
    let octets = words?.concat();
    let address = match <[u8; 4]>::try_from(&octets[..]) {
        Ok(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&octets[..]).ok()?)),
    };
    let (port, user) = (u16::from_str_radix(port, 16).ok()?, fields.get(7)?.parse().ok()?);
    Some((address, port, user, fields.get(9)?.parse().ok()?))
}
