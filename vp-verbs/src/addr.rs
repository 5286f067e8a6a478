//! Conversion of socket addresses between Rust and C. No state.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// Converts to a C socket address.
pub(crate) fn to_c(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all zeros is a valid `sockaddr_storage` (AF_UNSPEC).
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let at: *mut sockaddr_storage = &mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let sin = sockaddr_in {
                sin_family: AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is large enough and aligned for every kind of address.
            unsafe { at.cast::<sockaddr_in>().write(sin) };
        }
        SocketAddr::V6(v6) => {
            let sin6 = sockaddr_in6 {
                sin6_family: AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { at.cast::<sockaddr_in6>().write(sin6) };
        }
    }
    storage
}

/// Converts to a Rust socket address; `None` if it is not an IP address.
pub(crate) fn from_c(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let at: *const sockaddr_storage = storage;
    match i32::from(storage.ss_family) {
        AF_INET => {
            // SAFETY: the family says which kind is stored; the storage is large enough and aligned, as above.
            let sin = unsafe { at.cast::<sockaddr_in>().read() };
            let ip = sin.sin_addr.s_addr.to_ne_bytes();
            Some(SocketAddrV4::new(ip.into(), u16::from_be(sin.sin_port)).into())
        }
        AF_INET6 => {
            // SAFETY: as above.
            let sin6 = unsafe { at.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            let port = u16::from_be(sin6.sin6_port);
            Some(SocketAddrV6::new(ip, port, sin6.sin6_flowinfo, sin6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// The addresses of all interfaces, each with its interface, as getifaddrs(3) lists them.
pub(crate) fn local() -> Vec<(String, IpAddr)> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `head` may be written.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        return Vec::new();
    }
    let mut out = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: an element of the list, which lives until it is freed below.
        let entry = unsafe { &*next };
        if !entry.ifa_addr.is_null() {
            // SAFETY: every entry's name is a C string.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            // SAFETY: not null, and at least a `sockaddr`.
            let family = i32::from(unsafe { (*entry.ifa_addr).sa_family });
            if let Some(ip) = ip(entry.ifa_addr, family) {
                out.push((name.to_string_lossy().into_owned(), ip));
            }
        }
        next = entry.ifa_next;
    }
    // SAFETY: it came from getifaddrs and is not used afterwards.
    unsafe { libc::freeifaddrs(head) };
    out
}

fn ip(address: *const libc::sockaddr, family: i32) -> Option<IpAddr> {
    match family {
        AF_INET => {
            // SAFETY: the kernel's address of this family.
            let sin = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(sin.sin_addr.s_addr.to_ne_bytes().into()))
        }
        AF_INET6 => {
            // SAFETY: as above.
            let sin6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            // A link-local address alone does not identify the interface.
            (!ip.is_unicast_link_local()).then_some(IpAddr::V6(ip))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_convert_to_c_and_back() {
        for text in ["127.0.0.1:80", "0.0.0.0:0", "[::1]:65535", "[fe80::1%3]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_c(&to_c(address)), Some(address));
        }
        assert!(local().iter().any(|(_, ip)| ip.is_loopback()));
    }
}
