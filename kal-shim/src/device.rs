//! Network interfaces: addresses, MTU, link state. Read afresh at every call; no state.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Name, e.g. `eth0`.
    pub name: String,
    /// Up and with a carrier.
    pub online: bool,
    /// A loopback interface.
    pub loopback: bool,
    /// Link MTU in octets; 0 if the system does not say.
    pub mtu: u32,
    /// Its IPv4 and IPv6 addresses.
    pub addresses: Vec<IpAddr>,
}

/// All interfaces, in the kernel's order.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let list = List::read()?;
    let mut found: Vec<Interface> = Vec::new();
    for (name, flags, address) in list.entries() {
        let index = found.iter().position(|i| i.name == name).unwrap_or_else(|| {
            found.push(describe(name, flags));
            found.len() - 1
        });
        found[index].addresses.extend(address);
    }
    Ok(found)
}

fn describe(name: String, flags: u32) -> Interface {
    let has = |flag: libc::c_int| flags & flag as u32 != 0;
    let mtu = fs::read_to_string(format!("/sys/class/net/{name}/mtu"));
    Interface {
        online: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
        loopback: has(libc::IFF_LOOPBACK),
        mtu: mtu.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0),
        addresses: Vec::new(),
        name,
    }
}

/// What `getifaddrs` gave, until drop.
struct List(*mut libc::ifaddrs);

impl List {
    fn read() -> io::Result<Self> {
        let mut head = std::ptr::null_mut();
        // SAFETY: `head` is a valid place for the result.
        match unsafe { libc::getifaddrs(&mut head) } {
            0 => Ok(Self(head)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Name, flags and address, if it is an IP one, of each entry.
    fn entries(&self) -> impl Iterator<Item = (String, u32, Option<IpAddr>)> + '_ {
        let mut next = NonNull::new(self.0);
        std::iter::from_fn(move || {
            // SAFETY: entries of the list stay valid and unchanged until `freeifaddrs` in drop.
            let entry = unsafe { next?.as_ref() };
            next = NonNull::new(entry.ifa_next);
            // SAFETY: every entry has a NUL-terminated name.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            let address = NonNull::new(entry.ifa_addr).and_then(ip_of);
            Some((name.to_string_lossy().into_owned(), entry.ifa_flags, address))
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from `getifaddrs` and is freed once.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

/// The IP address in a socket address of `getifaddrs`.
fn ip_of(address: NonNull<libc::sockaddr>) -> Option<IpAddr> {
    // SAFETY: `getifaddrs` gives valid socket addresses; the family says which struct it is.
    let family = unsafe { address.as_ref() }.sa_family;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: an AF_INET address is a `sockaddr_in`.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an AF_INET6 address is a `sockaddr_in6`.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|i| i.loopback && !i.addresses.is_empty()).unwrap();
        assert!(lo.online);
        assert!(lo.mtu > 0);
        assert!(lo.addresses.contains(&IpAddr::from([127, 0, 0, 1])));
    }
}
