//! Network addresses and paths: between C's unions and Rust's types, and the calls about them. No
//! state; the caller's thread.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ual::{Ends, Ia};

use super::boundary;
use super::failure::{Failure, Outcome};
use super::ia::IaObject;
use super::object;
use super::ptr::{self, Out, OutList, Plain};
use super::status::{self, Status};
use super::types::*;

fn ipv4(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) }
}

fn ipv6(ip: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr { s6_addr: ip.octets() }
}

/// An IP address for C; an IPv4-mapped IPv6 address becomes an IPv4 one.
pub(crate) fn net_addr(ip: IpAddr) -> it_net_addr_t {
    let mut out = it_net_addr_t::zeroed();
    match ip.to_canonical() {
        IpAddr::V4(ip) => (out.addr_type, out.addr.ipv4) = (IT_IPV4, ipv4(ip)),
        IpAddr::V6(ip) => (out.addr_type, out.addr.ipv6) = (IT_IPV6, ipv6(ip)),
    }
    out
}

/// The IP address of a network address of C.
pub(crate) fn ip_of(address: &it_net_addr_t) -> Outcome<IpAddr> {
    let octets = octets_of(&address.addr);
    match address.addr_type {
        IT_IPV4 => Ok(v4_of(&octets).into()),
        IT_IPV6 => Ok(Ipv6Addr::from(octets).into()),
        other => {
            let text = format!("the network address is of type {other}, not IT_IPV4 or IT_IPV6");
            Err(Failure::new(status::IT_ERR_INVALID_NETADDR, text))
        }
    }
}

/// The octets of an IP address or GID: IPv4's are the first four.
fn octets_of(address: &it_net_addr_u) -> [u8; 16] {
    // SAFETY: plain data: the octets are an in6_addr whatever they were written as.
    unsafe { address.ipv6 }.s6_addr
}

fn v4_of(octets: &[u8; 16]) -> Ipv4Addr {
    Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])
}

/// A path between two addresses of one family; `timeout` in microseconds.
fn path(spigot_id: usize, timeout: u64, local: IpAddr, remote: IpAddr) -> it_path_t {
    let mut path = it_path_t { spigot_id, timeout, ..it_path_t::zeroed() };
    let mut ends = it_iwarp_net_endpoint_t::zeroed();
    match (local.to_canonical(), remote.to_canonical()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            ends.ip_vers = IT_IP_VERS_IPV4;
            (ends.laddr.ipv4, ends.raddr.ipv4) = (ipv4(local), ipv4(remote));
        }
        (local, remote) => {
            ends.ip_vers = IT_IP_VERS_IPV6;
            (ends.laddr.ipv6, ends.raddr.ipv6) = (ipv6(v6_of(local)), ipv6(v6_of(remote)));
        }
    }
    path.u.iwarp = ends;
    path
}

fn v6_of(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// The path of a connection.
pub(crate) fn path_of(ia: &Ia, ends: &Ends) -> it_path_t {
    let (local, remote) = (ends.local.address.ip(), ends.remote.address.ip());
    path(spigot_of(ia, local), 0, local, remote)
}

/// The spigot that has an address; 0 if none has, or it is not known.
pub(crate) fn spigot_of(ia: &Ia, address: IpAddr) -> usize {
    let address = address.to_canonical();
    let has = |port: &vp_api::PortInfo| port.addresses.contains(&address);
    ia.ports().ok().and_then(|ports| ports.iter().position(has)).unwrap_or(0)
}

/// Local and remote address of a path of C; other members are ignored.
pub(crate) fn ends_of(path: &it_path_t) -> Outcome<(IpAddr, IpAddr)> {
    // SAFETY: plain data: every pattern of bits is an endpoint pair.
    let ends = unsafe { path.u.iwarp };
    // SAFETY: plain data, as above.
    let local = unsafe { ends.laddr.ipv6 }.s6_addr;
    // SAFETY: plain data, as above.
    let remote = unsafe { ends.raddr.ipv6 }.s6_addr;
    match ends.ip_vers {
        IT_IP_VERS_IPV4 => Ok((v4_of(&local).into(), v4_of(&remote).into())),
        IT_IP_VERS_IPV6 => Ok((Ipv6Addr::from(local).into(), Ipv6Addr::from(remote).into())),
        other => {
            let text = format!(
                "ip_vers of the path is {other}; it must be IT_IP_VERS_IPV4 (1) or \
                 IT_IP_VERS_IPV6 (2)"
            );
            Err(Failure::new(status::IT_ERR_INVALID_ADDRESS, text))
        }
    }
}

/// Checks a spigot id: the index of a port.
pub(crate) fn check_spigot(ia: &Ia, spigot_id: usize) -> Outcome<vp_api::PortInfo> {
    let mut ports = ia.ports().map_err(Failure::by(status::IT_ERR_RESOURCES))?;
    if spigot_id < ports.len() {
        return Ok(ports.swap_remove(spigot_id));
    }
    let text = format!("there is no spigot {spigot_id}: {} has {}", ia.device(), ports.len());
    Err(Failure::new(status::IT_ERR_INVALID_SPIGOT, text))
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_get_pathinfo(
    ia_handle: it_ia_handle_t,
    spigot_id: usize,
    net_addr: *const it_net_addr_t,
    num_paths: *mut usize,
    total_paths: *mut usize,
    paths: *mut it_path_t,
) -> Status {
    boundary::create(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?;
        // SAFETY: contract of a C caller.
        let remote = unsafe { ptr::read(net_addr, "net_addr") }?;
        // SAFETY: contract of a C caller.
        let count = unsafe { Out::new(num_paths, "num_paths") }?;
        // SAFETY: contract of a C caller.
        let total = unsafe { Out::optional(total_paths) };
        // SAFETY: contract of a C caller; the room is `num_paths`.
        let room = unsafe { OutList::new(paths, count.read(), "paths") }?;
        let found = paths_to(&ia.inner, spigot_id, ip_of(&remote)?)?;
        if let Some(total) = total {
            total.write(found.len());
        }
        count.write(found.len().min(room.len()));
        found.into_iter().enumerate().for_each(|(n, path)| room.write(n, path));
        Ok(())
    })
}

/// Usable only together with an interface, which IT-API's addresses and paths have no member for.
pub(crate) fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// One path for each address of the spigot that can reach `remote`.
fn paths_to(ia: &Ia, spigot_id: usize, remote: IpAddr) -> Outcome<Vec<it_path_t>> {
    let port = check_spigot(ia, spigot_id)?;
    let remote = remote.to_canonical();
    let broadcast = remote == IpAddr::V4(Ipv4Addr::BROADCAST);
    if remote.is_unspecified() || remote.is_multicast() || broadcast {
        let text = format!("{remote} is not the address of one machine");
        return Err(Failure::new(status::IT_ERR_ADDRESS, text));
    }
    // A loopback address reaches this machine only.
    let is_here = |port: &vp_api::PortInfo| port.addresses.contains(&remote);
    let here = || ia.ports().is_ok_and(|ports| ports.iter().any(is_here));
    let reaches = |local: &IpAddr| {
        local.is_ipv4() == remote.is_ipv4()
            && !is_link_local(local)
            && (!local.is_loopback() || remote.is_loopback() || here())
    };
    let timeout = ia.policies().of(remote).connect_timeout;
    let timeout = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
    let local = port.addresses.into_iter().filter(reaches);
    Ok(local.map(|local| path(spigot_id, timeout, local, remote)).collect())
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_convert_net_addr(
    source_addr: *const it_net_addr_t,
    addr_type: it_net_addr_type_t,
    destination_addr: *mut it_net_addr_t,
) -> Status {
    boundary::call(|| {
        // SAFETY: contract of a C caller.
        let source = unsafe { ptr::read(source_addr, "source_addr") }?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(destination_addr, "destination_addr") }?;
        out.write(convert(source, addr_type)?);
        Ok(())
    })
}

/// GIDs and IPv6 addresses are the same octets; IPv4 is converted as v4-mapped (RFC 4291 2.5.5.2).
fn convert(source: it_net_addr_t, wanted: it_net_addr_type_t) -> Outcome<it_net_addr_t> {
    let from = source.addr_type;
    if !(IT_IPV4..=IT_VIA_HOSTADDR).contains(&from) {
        let text = format!("{from} is not a type of network address (it_net_addr_type_t)");
        return Err(Failure::new(status::IT_ERR_INVALID_NETADDR, text));
    }
    if from == wanted {
        return Ok(source);
    }
    let octets = octets_of(&source.addr);
    let wide = match from {
        IT_IPV4 => v4_of(&octets).to_ipv6_mapped(),
        _ => Ipv6Addr::from(octets),
    };
    let mut out = it_net_addr_t { addr_type: wanted, ..it_net_addr_t::zeroed() };
    match (wanted, wide.to_ipv4_mapped()) {
        _ if from == IT_VIA_HOSTADDR => return Err(no_conversion(from, wanted)),
        (IT_IPV4, Some(ip)) => out.addr.ipv4 = ipv4(ip),
        (IT_IPV6 | IT_IB_GID, _) => out.addr.ipv6 = ipv6(wide),
        _ => return Err(no_conversion(from, wanted)),
    }
    Ok(out)
}

fn no_conversion(from: it_net_addr_type_t, wanted: it_net_addr_type_t) -> Failure {
    let text = format!(
        "an address of type {from} cannot be made one of type {wanted} (it_net_addr_type_t); IPv4 \
         comes out of v4-mapped addresses only"
    );
    Failure::new(status::IT_ERR_INVALID_CONVERSION, text)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_make_rdma_addr_absolute(addr: *mut std::ffi::c_void) -> it_rdma_addr_t {
    addr.addr() as it_rdma_addr_t
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_make_rdma_addr_relative(offset: it_length_t) -> it_rdma_addr_t {
    offset
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_hton64(hostint: u64) -> u64 {
    hostint.to_be()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_ntoh64(netint: u64) -> u64 {
    u64::from_be(netint)
}

#[cfg(test)]
mod tests {
    use super::*;

    // [it_convert_net_addr]
    #[test]
    fn addresses_convert_where_nothing_is_lost() {
        let v4 = net_addr("192.0.2.1".parse().unwrap());
        let mapped = convert(v4, IT_IPV6).unwrap();
        assert_eq!(Ipv6Addr::from(octets_of(&mapped.addr)).to_string(), "::ffff:192.0.2.1");
        assert_eq!(ip_of(&convert(mapped, IT_IPV4).unwrap()).unwrap().to_string(), "192.0.2.1");
        let gid = convert(v4, IT_IB_GID).unwrap();
        assert_eq!(ip_of(&convert(gid, IT_IPV4).unwrap()).unwrap().to_string(), "192.0.2.1");
        assert_eq!(ip_of(&gid).unwrap_err().status, status::IT_ERR_INVALID_NETADDR);
        let v6 = net_addr("2001:db8::7".parse().unwrap());
        assert_eq!(convert(v6, IT_IPV4).err().unwrap().status, status::IT_ERR_INVALID_CONVERSION);
        assert_eq!(convert(v6, 77).err().unwrap().status, status::IT_ERR_INVALID_CONVERSION);
        let strange = it_net_addr_t { addr_type: 77, ..v6 };
        assert_eq!(convert(strange, 77).err().unwrap().status, status::IT_ERR_INVALID_NETADDR);
        // SAFETY: NULL is allowed by the contract.
        let null = unsafe { it_convert_net_addr(std::ptr::null(), IT_IPV4, std::ptr::null_mut()) };
        assert_eq!(null, status::IT_ERR_FAULT);
    }

    #[test]
    fn only_the_addresses_of_a_path_are_read() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let v4 = path(usize::MAX, 7, ip("::ffff:10.0.0.1"), ip("10.0.0.2"));
        assert_eq!(ends_of(&v4).unwrap(), (ip("10.0.0.1"), ip("10.0.0.2")));
        let v6 = path(0, 7, ip("::1"), ip("2001:db8::7"));
        assert_eq!(ends_of(&v6).unwrap(), (ip("::1"), ip("2001:db8::7")));
        let garbage = it_path_t::zeroed();
        assert_eq!(ends_of(&garbage).unwrap_err().status, status::IT_ERR_INVALID_ADDRESS);
    }

    // [it_make_rdma_addr_absolute] [it_make_rdma_addr_relative] [it_hton64] [it_ntoh64]
    #[test]
    fn numbers_for_the_wire() {
        let at = std::ptr::without_provenance_mut(0x1234);
        assert_eq!(it_make_rdma_addr_absolute(at), 0x1234);
        assert_eq!(it_make_rdma_addr_relative(99), 99);
        assert_eq!(it_hton64(1).to_ne_bytes(), 1u64.to_be_bytes());
        assert_eq!(it_ntoh64(it_hton64(0x0102_0304_0506_0708)), 0x0102_0304_0506_0708);
    }
}
