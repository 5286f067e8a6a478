//! Paths of InfiniBand, between C's bit fields and the provider's. No state; the caller's thread.

use std::net::{IpAddr, Ipv6Addr};

use ual::Ia;
use ual::vp_api::DatagramPath;

use crate::failure::{Failure, Outcome};
use crate::path::{self, check_spigot};
use crate::ptr::Plain;
use crate::status;
use crate::types::*;

const FOUR_BITS: u8 = 0xf;
const SIX_BITS: u8 = 0x3f;
/// Behind the service level.
const SUBNET_LOCAL: u8 = 1 << 4;
const FLOW_LABEL: u32 = (1 << 20) - 1;

fn gid(octets: [u8; 16]) -> it_ib_gid_t {
    libc::in6_addr { s6_addr: octets }
}

/// A path for C.
pub(crate) fn to_c(path: &DatagramPath) -> it_path_t {
    let [low, middle, high, _] = (path.flow_label & FLOW_LABEL).to_le_bytes();
    let local = if path.subnet_local { SUBNET_LOCAL } else { 0 };
    let ib = it_ib_net_endpoint_t {
        partition_key: path.partition_key,
        path_mtu: path.mtu_code & FOUR_BITS,
        packet_lifetime: path.packet_lifetime & SIX_BITS,
        local_port_lid: path.local_lid,
        remote_port_lid: path.remote_lid,
        local_port_gid: gid(path.local_gid),
        remote_port_gid: gid(path.remote_gid),
        packet_rate: path.rate & SIX_BITS,
        sl_subnet_local: path.service_level & FOUR_BITS | local,
        flow_label: [low, middle, high],
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        ..it_ib_net_endpoint_t::zeroed()
    };
    it_path_t { spigot_id: path.port as usize, timeout: 0, u: it_path_u { ib } }
}

fn ib_of(path: &it_path_t) -> it_ib_net_endpoint_t {
    // SAFETY: plain data: every pattern of bits is an endpoint pair.
    unsafe { path.u.ib }
}

/// A path of C. One between IP addresses is refused: only a service resolves those.
pub(crate) fn from_c(ia: &Ia, path: &it_path_t) -> Outcome<DatagramPath> {
    check_spigot(ia, path.spigot_id)?;
    if path::ends_of(path).is_ok() && ib_of(path).path_mtu == 0 {
        let text = "the path holds IP addresses (u.iwarp); an address handle needs those of \
                    InfiniBand (u.ib): of a service's reply, or of a datagram that came";
        return Err(Failure::new(status::IT_ERR_INVALID_ADDRESS, text));
    }
    let ib = ib_of(path);
    let [low, middle, high] = ib.flow_label;
    Ok(DatagramPath {
        port: path.spigot_id as u32,
        local_gid: ib.local_port_gid.s6_addr,
        remote_gid: ib.remote_port_gid.s6_addr,
        local_lid: ib.local_port_lid,
        remote_lid: ib.remote_port_lid,
        partition_key: ib.partition_key,
        mtu_code: ib.path_mtu & FOUR_BITS,
        rate: ib.packet_rate & SIX_BITS,
        packet_lifetime: ib.packet_lifetime & SIX_BITS,
        service_level: ib.sl_subnet_local & FOUR_BITS,
        subnet_local: ib.sl_subnet_local & SUBNET_LOCAL != 0,
        flow_label: u32::from_le_bytes([low, middle, high, 0]) & FLOW_LABEL,
        traffic_class: ib.traffic_class,
        hop_limit: ib.hop_limit,
    })
}

/// Where a service is: the IP address of the path, or the one that is its GID (RoCE).
pub(crate) fn peer_of(path: &it_path_t) -> Outcome<IpAddr> {
    let ip = match path::ends_of(path) {
        Ok((_, remote)) => remote,
        Err(_) => Ipv6Addr::from(ib_of(path).remote_port_gid.s6_addr).to_canonical(),
    };
    if ip.is_unspecified() {
        let text = format!("the remote address {ip} of the path is not usable");
        return Err(Failure::new(status::IT_ERR_INVALID_SOURCE_PATH, text));
    }
    Ok(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> DatagramPath {
        DatagramPath {
            port: 0,
            local_gid: [1; 16],
            remote_gid: [2; 16],
            local_lid: 0x1234,
            remote_lid: 0x5678,
            partition_key: 0xffff,
            mtu_code: 5,
            rate: 63,
            packet_lifetime: 62,
            service_level: 15,
            subnet_local: true,
            flow_label: 0xabcde,
            traffic_class: 7,
            hop_limit: 64,
        }
    }

    #[test]
    fn a_path_converts_to_c_and_back() {
        let ia = ual::Ual::new().unwrap().open("vp_softrdma").unwrap();
        for path in [path(), DatagramPath { subnet_local: false, flow_label: 1, ..path() }] {
            assert_eq!(from_c(&ia, &to_c(&path)).unwrap(), path);
        }
        let nowhere = DatagramPath { port: 4711, ..path() };
        let refused = from_c(&ia, &to_c(&nowhere)).unwrap_err();
        assert_eq!(refused.status, status::IT_ERR_INVALID_SPIGOT);
        // IP addresses; a partition key of 1 is no version of IP, since a path has an MTU.
        let mut ip = it_path_t::zeroed();
        ip.u.iwarp.ip_vers = IT_IP_VERS_IPV4;
        assert_eq!(from_c(&ia, &ip).unwrap_err().status, status::IT_ERR_INVALID_ADDRESS);
        let keyed = DatagramPath { partition_key: 1, ..path() };
        assert_eq!(from_c(&ia, &to_c(&keyed)).unwrap(), keyed);
    }

    #[test]
    fn a_service_is_where_the_path_leads() {
        let mapped = DatagramPath {
            remote_gid: "::ffff:192.0.2.7".parse::<Ipv6Addr>().unwrap().octets(),
            ..path()
        };
        assert_eq!(peer_of(&to_c(&mapped)).unwrap().to_string(), "192.0.2.7");
        let nobody = peer_of(&it_path_t::zeroed()).unwrap_err();
        assert_eq!(nobody.status, status::IT_ERR_INVALID_SOURCE_PATH);
    }
}
