//! GUIDs: what verbs programs tell devices apart by. Read anew each time.

use std::net::IpAddr;

use vp_api::{PortInfo, Transport};

use crate::gid::Gids;

/// The GUID of the device with this index in the list, which has these interfaces: the EUI-64 of the first one with a
/// hardware address (RFC 4291 appendix A), of its main address if there is none.
pub fn of(ports: &[PortInfo], index: u32) -> u64 {
    let mac = ports.iter().find_map(|port| hardware_address(&port.interface));
    let octets = match (mac, address_octets(ports)) {
        (Some([a, b, c, d, e, f]), _) => [a ^ 2, b, c, 0xff, 0xfe, d, e, f],
        (None, [a, b, c, d]) => [2, 0, 0x5e, 0xfe, a, b, c, d],
    };
    u64::from_be_bytes(octets) ^ u64::from(index)
}

/// The last octets of the main address.
fn address_octets(ports: &[PortInfo]) -> [u8; 4] {
    match Gids::of(ports, Transport::Iwarp).address() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            [a, b, c, d]
        }
    }
}

/// The hardware address of an interface, as sysfs has it; none for loopback.
fn hardware_address(interface: &str) -> Option<[u8; 6]> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/address")).ok()?;
    let octets = text.trim().split(':').map(|octet| u8::from_str_radix(octet, 16));
    let octets: Vec<u8> = octets.collect::<Result<_, _>>().ok()?;
    octets.try_into().ok().filter(|octets| *octets != [0; 6])
}
