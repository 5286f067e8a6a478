//! Ports, GIDs and path MTUs.
//!
//! No state; any thread. A port is a network interface, named by its index in the list of ports. A GID is an IP
//! address; IPv4 is mapped into IPv6.

use std::net::{IpAddr, Ipv6Addr};

use roce_proto::rc::Mtu;
use vp_api::{PortInfo, VpError, VpResult, VpStatus};

use crate::tuning::MTU;

/// The present ports.
pub(crate) fn ports() -> VpResult<Vec<PortInfo>> {
    vp_soft::ports::ports().map_err(|error| VpError::os("listing the network interfaces", &error))
}

/// The GID of an address.
pub(crate) fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address of a GID.
pub(crate) fn address(gid: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(gid)).to_canonical()
}

/// The largest path MTU on a link that carries this many octets; `whose` names it.
pub(crate) fn mtu_of(link: u32, whose: &str) -> VpResult<Mtu> {
    let fits = Mtu::of_link(link).ok_or_else(|| {
        let detail = format!("{whose} carries {link} octets; RoCE needs 340");
        VpError::new(VpStatus::Unsupported, detail)
    })?;
    Ok(Mtu::from_code(fits.code().min(MTU.code())).unwrap_or(MTU))
}

/// The largest path MTU on the link of a local address.
pub(crate) fn mtu_of_local(local: IpAddr) -> VpResult<Mtu> {
    const USUAL_LINK: u32 = 1500;
    match Port::of(local)? {
        Some(port) => port.mtu(),
        None => mtu_of(USUAL_LINK, "its interface"),
    }
}

/// A port.
pub(crate) struct Port {
    pub(crate) index: u32,
    pub(crate) info: PortInfo,
}

impl Port {
    /// The port with this index.
    pub(crate) fn at(index: u32) -> VpResult<Self> {
        let found = ports()?.into_iter().nth(index as usize);
        let info = found.ok_or_else(|| {
            VpError::new(VpStatus::InvalidModifier, format!("this device has no port {index}"))
        })?;
        Ok(Self { index, info })
    }

    /// The port of a local address.
    pub(crate) fn of(local: IpAddr) -> VpResult<Option<Self>> {
        let mut all = (0..).zip(ports()?).map(|(index, info)| Self { index, info });
        Ok(all.find(|port| port.has(local)))
    }

    /// Whether an address belongs to it. Those of 127.0.0.0/8 that are not listed belong to the loopback.
    pub(crate) fn has(&self, local: IpAddr) -> bool {
        let loopback = |one: &IpAddr| one.is_loopback() && local.is_loopback();
        self.info.addresses.iter().any(|one| *one == local || loopback(one))
    }

    /// The largest path MTU of its link.
    pub(crate) fn mtu(&self) -> VpResult<Mtu> {
        mtu_of(self.info.mtu, &format!("the interface {}", self.info.interface))
    }
}
