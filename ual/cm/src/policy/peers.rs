//! Policies for peers by their addresses. Plain data.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::Deserialize;

use super::Policy;

/// A range of addresses: `ADDRESS` or `ADDRESS/BITS`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// True if the address is in the range. IPv4 in IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same(own.to_bits().into(), other.to_bits().into(), 32 - self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                same(own.to_bits(), other.to_bits(), 128 - self.bits)
            }
            _ => false,
        }
    }
}

/// True if two addresses agree except in the lowest bits.
fn same(one: u128, other: u128, ignored: u8) -> bool {
    (one ^ other).checked_shr(ignored.into()).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no `ADDRESS` or `ADDRESS/BITS`");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong()))?;
        if bits > most { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// The policies for all peers: one by default, others for some.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policies {
    /// For peers in none of the ranges.
    pub default: Policy,
    /// For peers in these ranges; the narrowest that contains the peer counts.
    pub peers: Vec<(Network, Policy)>,
}

impl Policies {
    /// The policy for a peer.
    pub fn of(&self, peer: IpAddr) -> &Policy {
        let matching = self.peers.iter().filter(|(network, _)| network.contains(peer));
        matching.max_by_key(|(network, _)| network.bits).map_or(&self.default, |(_, p)| p)
    }
}

impl From<Policy> for Policies {
    fn from(default: Policy) -> Self {
        Self { default, peers: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_contain_their_addresses() {
        let network: Network = "10.1.0.0/16".parse().unwrap();
        assert!(network.contains(ip("10.1.255.3")) && network.contains(ip("::ffff:10.1.0.1")));
        assert!(!network.contains(ip("10.2.0.0")) && !network.contains(ip("::1")));
        let one: Network = "fe80::1".parse().unwrap();
        assert!(one.contains(ip("fe80::1")) && !one.contains(ip("fe80::2")));
        let all: Network = "::/0".parse().unwrap();
        assert!(all.contains(ip("2001:db8::1")) && !all.contains(ip("1.2.3.4")));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains(ip("1.2.3.4")));
        for wrong in ["", "x", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        assert_eq!(network.to_string(), "10.1.0.0/16");
    }

    #[test]
    fn one_policy_is_that_of_every_peer() {
        let policies = Policies::from(Policy { dscp: 7, ..Policy::default() });
        assert_eq!((policies.of(ip("192.0.2.1")).dscp, policies.of(ip("::1")).dscp), (7, 7));
    }

    #[test]
    fn the_narrowest_network_counts() {
        let with = |dscp| Policy { dscp, ..Policy::default() };
        let peer = |text: &str, dscp| (text.parse().unwrap(), with(dscp));
        let policies = Policies {
            default: with(0),
            peers: vec![peer("10.0.0.0/8", 1), peer("10.1.0.0/16", 2), peer("10.0.0.0/9", 3)],
        };
        for (address, dscp) in [("10.1.2.3", 2), ("10.2.0.1", 3), ("10.200.0.1", 1), ("::1", 0)] {
            assert_eq!(policies.of(ip(address)).dscp, dscp, "{address}");
        }
    }
}
