//! Lists network interfaces as ports.
//!
//! No state; any thread.

use kal_os::Interface;
use vp_api::PortInfo;

/// The present interfaces, as ports. Fails if the system does not list them.
pub fn ports() -> std::io::Result<Vec<PortInfo>> {
    Ok(kal_os::interfaces()?.into_iter().map(port).collect())
}

/// A port is online if its link is up and it has an address.
fn port(one: Interface) -> PortInfo {
    let online = one.online && !one.addresses.is_empty();
    PortInfo { interface: one.name, online, mtu: one.mtu, addresses: one.addresses }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_port_is_online_with_a_link_and_an_address() {
        let (v4, local): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), "fe80::1".parse().unwrap());
        let port = |online, addresses: &[IpAddr]| {
            let addresses = addresses.to_vec();
            port(Interface { name: "eth0".into(), online, mtu: 1500, addresses })
        };
        let usable = port(true, &[v4, local]);
        let (interface, mtu) = ("eth0".into(), 1500);
        assert_eq!(usable, PortInfo { interface, online: true, mtu, addresses: vec![v4, local] });
        assert!(port(true, &[local]).online);
        for (link, addresses) in [(true, &[][..]), (false, &[v4][..])] {
            assert!(!port(link, addresses).online, "{link} {addresses:?}");
        }
    }
}
