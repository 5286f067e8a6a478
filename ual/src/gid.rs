//! GIDs: how programs name addresses, IPv4 mapped into IPv6 (RFC 4291 section 2.5.5.2).
//!
//! A device of iWARP has a table of two, both for its main address: a link-local GID that contains the IPv4
//! address (RFC 5214 section 6.1), and the address itself. More entries make some programs read sysfs. A
//! device of RoCE has one entry for each address, because on its wire a GID is an address; a link-local one is that of
//! its interface. Plain values; the
//! addresses are read anew each time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vp_api::{PortInfo, Transport};

/// The table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gids {
    table: Vec<[u8; 16]>,
    address: IpAddr,
}

impl Gids {
    /// The table of a device of this transport with these interfaces.
    pub fn of(ports: &[PortInfo], transport: Transport) -> Self {
        match transport {
            Transport::InfiniBand => Self::of_each(ports),
            _ => Self::of_address(main_address(ports)),
        }
    }

    /// The main address first. Loopback only if there is no other: programs choose any entry, and tell peers.
    fn of_each(ports: &[PortInfo]) -> Self {
        let mut all: Vec<IpAddr> = usable(ports).copied().collect();
        all.sort_by_key(rank);
        if !all.first().is_none_or(IpAddr::is_loopback) {
            all.retain(|address| !address.is_loopback());
        }
        let table = all.iter().map(|address| gid(*address)).collect();
        Self { table, address: main_address(ports) }
    }

    fn of_address(address: IpAddr) -> Self {
        let table = match address {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                let mut link_local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xfe, a, b, c, d];
                // RFC 5214 6.1: the universal bit of a globally unique address.
                link_local[8] = if ip.is_private() || ip.is_loopback() { 0 } else { 2 };
                vec![link_local, gid(address)]
            }
            IpAddr::V6(ip) => {
                let mut link_local = ip.octets();
                link_local[..8].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
                vec![link_local, gid(address)]
            }
        };
        Self { table, address }
    }

    /// The whole table.
    pub fn table(&self) -> &[[u8; 16]] {
        &self.table
    }

    /// The index of the GID of a local address, and the peer's GID, for a path between them. Loopback, which is not
    /// in the table, leads from the main address to itself, as with adapters.
    pub fn path(&self, local: IpAddr, remote: IpAddr) -> Option<(usize, [u8; 16])> {
        let found = self.table.iter().position(|own| *own == gid(local));
        let here =
            || local.to_canonical().is_loopback().then(|| self.table.first().map(|own| (0, *own)));
        found.map(|index| (index, gid(remote))).or_else(|| here().flatten())
    }

    /// The address that peers use unless they choose another.
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

/// The address by which peers reach a device: IPv4 before IPv6, of this a link-local one last, and loopback only if
/// there is no other.
fn main_address(ports: &[PortInfo]) -> IpAddr {
    // The first of the best.
    usable(ports).min_by_key(|address| rank(address)).copied().unwrap_or(Ipv4Addr::LOCALHOST.into())
}

fn usable(ports: &[PortInfo]) -> impl Iterator<Item = &IpAddr> {
    ports.iter().filter(|port| port.online).flat_map(|port| &port.addresses)
}

fn rank(address: &IpAddr) -> u8 {
    match address {
        IpAddr::V4(ip) if ip.is_loopback() => 3,
        IpAddr::V4(_) => 0,
        IpAddr::V6(ip) if ip.is_loopback() => 4,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => 2,
        IpAddr::V6(_) => 1,
    }
}

/// The GID of an address.
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The address that a GID of a peer names.
pub fn address_of(gid: [u8; 16]) -> IpAddr {
    let ip = Ipv6Addr::from(gid);
    match gid {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0 | 2, 0, 0x5e, 0xfe, a, b, c, d] => {
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => ip.to_ipv4_mapped().map_or(ip.into(), Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(online: bool, addresses: &[&str]) -> PortInfo {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        PortInfo { interface: "x".into(), online, mtu: 1500, addresses }
    }

    #[test]
    fn both_entries_name_the_main_address() {
        let lo = port(true, &["127.0.0.1", "::1"]);
        for (ports, main) in [
            (vec![lo.clone(), port(true, &["fe80::7", "2001:db8::7", "192.0.2.7"])], "192.0.2.7"),
            (vec![lo.clone(), port(true, &["fe80::7", "2001:db8::7"])], "2001:db8::7"),
            (vec![lo.clone(), port(true, &["fe80::7"])], "fe80::7"),
            (vec![lo.clone(), port(false, &["192.0.2.7"])], "127.0.0.1"),
            (vec![], "127.0.0.1"),
        ] {
            let gids = Gids::of(&ports, Transport::Iwarp);
            assert_eq!(gids.address(), main.parse::<IpAddr>().unwrap());
            assert_eq!(address_of(gids.table()[1]), gids.address());
            if gids.address().is_ipv4() {
                assert_eq!(address_of(gids.table()[0]), gids.address());
            }
        }
    }

    #[test]
    fn on_roce_each_address_has_an_entry_and_the_main_one_is_first() {
        let ports = [
            port(true, &["127.0.0.1", "::1"]),
            port(true, &["fe80::7", "2001:db8::7", "192.0.2.7"]),
        ];
        let gids = Gids::of(&ports, Transport::InfiniBand);
        let named: Vec<_> = gids.table().iter().map(|gid| address_of(*gid).to_string()).collect();
        assert_eq!(named, ["192.0.2.7", "2001:db8::7", "fe80::7"]);
        assert_eq!(gids.address().to_string(), "192.0.2.7");
        let alone = Gids::of(&ports[..1], Transport::InfiniBand);
        assert_eq!(address_of(alone.table()[0]).to_string(), "127.0.0.1");
        assert_eq!(address_of(alone.table()[1]).to_string(), "::1");
    }
}
