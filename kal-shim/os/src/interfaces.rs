//! Network interfaces: names, link state, MTU and addresses, read from the kernel by route netlink
//! (rtnetlink(7)), in the network namespace of the caller.
//!
//! No state; runs on the caller's thread. Each call asks the kernel again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

// linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const REQUEST_DUMP: u16 = 0x301;
const HEADER: usize = 16;
const IFINFOMSG: usize = 16;
const IFADDRMSG: usize = 8;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Tentative, or its duplicate check failed.
const IFA_UNUSABLE: u8 = 0x48;
/// `IFF_UP` and `IFF_RUNNING`.
const IFF_ONLINE: u32 = 0x41;

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Name, e.g. `eth0`.
    pub name: String,
    /// Its link is up.
    pub online: bool,
    /// Link MTU in octets; 0 if the system does not report it.
    pub mtu: u32,
    /// Its usable IPv4 and IPv6 addresses: not those whose duplicate address detection is not finished
    /// or failed.
    pub addresses: Vec<IpAddr>,
}

/// All interfaces, in the kernel's order.
///
/// # Errors
/// Those of socket(2), send(2) and recv(2), most likely because no descriptor is left; or the kernel's
/// refusal.
pub fn interfaces() -> std::io::Result<Vec<Interface>> {
    let mut found = Vec::new();
    dump(RTM_GETLINK, |message| found.extend(link(message)))?;
    dump(RTM_GETADDR, |message| {
        if let Some((index, address)) = address(message)
            && let Some((_, interface)) = found.iter_mut().find(|(i, _)| *i == index)
        {
            interface.addresses.push(address);
        }
    })?;
    Ok(found.into_iter().map(|(_, interface)| interface).collect())
}

/// An address of this machine with a port, and for a link-local IPv6 address with the scope without which it cannot be
/// used (RFC 4007 section 6): its interface; the first one if several have it.
pub fn socket_address(own: IpAddr, port: u16) -> SocketAddr {
    match own {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, scope_of(own)).into()
        }
        _ => SocketAddr::new(own, port),
    }
}

/// The index of the interface with an address; 0: there is none.
fn scope_of(own: IpAddr) -> u32 {
    let mut scope = 0;
    let asked = dump(RTM_GETADDR, |message| {
        if let Some((index, _)) = address(message).filter(|(_, one)| *one == own && scope == 0) {
            scope = index;
        }
    });
    asked.map_or(0, |()| scope)
}

/// Requests all objects of a kind and passes the body of each reply to `each`.
fn dump(kind: u16, mut each: impl FnMut(&[u8])) -> std::io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None, // NETLINK_ROUTE
    )?;
    let mut request = [0u8; HEADER + IFINFOMSG];
    request[..4].copy_from_slice(&((HEADER + IFINFOMSG) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut answer = vec![0u8; 32 << 10];
    loop {
        let receive = || rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty());
        let (received, _) = rustix::io::retry_on_intr(receive)?;
        let messages = answer.get(..received).unwrap_or(&[]);
        if messages.is_empty() || take(messages, &mut each)? {
            return Ok(());
        }
    }
}

/// Calls `each` with the body of each message in one datagram; returns true if no datagram follows.
fn take(mut messages: &[u8], each: &mut impl FnMut(&[u8])) -> std::io::Result<bool> {
    while let Some((kind, body, behind)) = split_message(messages) {
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => return Err(refusal(body)),
            _ => each(body),
        }
        messages = behind;
    }
    Ok(false)
}

/// An error message begins with the negative errno.
fn refusal(body: &[u8]) -> std::io::Error {
    let errno = u32_at(body, 0).map_or(0, |errno| (errno as i32).wrapping_neg());
    let errno = std::io::Error::from_raw_os_error(errno);
    let what = format!("the kernel refused to list network interfaces or addresses: {errno}");
    std::io::Error::new(errno.kind(), what)
}

/// Type and body of the first message, and the octets after it.
fn split_message(octets: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32_at(octets, 0)? as usize;
    let body = octets.get(HEADER..len)?;
    Some((u16_at(octets, 4)?, body, octets.get(len.next_multiple_of(4)..).unwrap_or(&[])))
}

/// Attributes (type, value) of a message.
fn attributes(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(octets, 0)?);
        let value = octets.get(4..len)?;
        let kind = u16_at(octets, 2)?;
        octets = octets.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn link(message: &[u8]) -> Option<(u32, Interface)> {
    let index = u32_at(message, 4)?;
    let online = u32_at(message, 8)? & IFF_ONLINE == IFF_ONLINE;
    let mut interface = Interface { name: String::new(), online, mtu: 0, addresses: Vec::new() };
    for (kind, value) in attributes(message.get(IFINFOMSG..)?) {
        match kind {
            IFLA_IFNAME => {
                let name = value.strip_suffix(&[0]).unwrap_or(value);
                interface.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_MTU => interface.mtu = u32_at(value, 0)?,
            _ => (),
        }
    }
    Some((index, interface))
}

/// Interface and address.
fn address(message: &[u8]) -> Option<(u32, IpAddr)> {
    if message.get(2)? & IFA_UNUSABLE != 0 {
        return None;
    }
    let index = u32_at(message, 4)?;
    let values = || attributes(message.get(IFADDRMSG..).unwrap_or(&[]));
    // On a point-to-point link IFA_ADDRESS is the other end's.
    let value = |wanted| values().find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let octets = value(IFA_LOCAL).or_else(|| value(IFA_ADDRESS))?;
    let address = match octets.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)),
        _ => return None,
    };
    Some((index, address))
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|chunk| u16::from_ne_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|one| one.name == "lo").expect("an interface lo");
        assert!(lo.mtu >= 1280 && lo.online);
        assert!(lo.addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    /// A message of this kind.
    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let len = (HEADER + body.len()) as u32;
        [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], body].concat()
    }

    #[test]
    fn responses_continue_until_the_last_one() {
        let answers = [message(RTM_GETLINK, &[1; 4]), message(RTM_GETLINK, &[2; 4])].concat();
        let mut bodies = Vec::new();
        let mut each = |body: &[u8]| bodies.push(body.to_vec());
        assert!(!take(&answers, &mut each).unwrap());
        let end = [message(NLMSG_DONE, &[0; 4]), answers.clone()].concat();
        assert!(take(&[answers, end].concat(), &mut each).unwrap());
        assert_eq!(bodies, [[1; 4], [2; 4], [1; 4], [2; 4]]);
    }

    #[test]
    fn an_error_message_says_why_there_is_no_list() {
        let answers = [
            message(RTM_GETLINK, &[1; 4]),
            message(NLMSG_ERROR, &(-1i32).to_ne_bytes()),
            message(RTM_GETLINK, &[2; 4]),
        ];
        let mut bodies = 0;
        let error = take(&answers.concat(), &mut |_| bodies += 1).unwrap_err();
        assert_eq!((error.kind(), bodies), (std::io::ErrorKind::PermissionDenied, 1));
        assert!(error.to_string().contains("not permitted"), "{error}");
        take(&message(NLMSG_ERROR, &[]), &mut |_| ()).unwrap_err();
    }

    // The kernel has no messages of this kind.
    #[test]
    fn a_dump_that_the_kernel_refuses_is_an_error() {
        dump(u16::MAX, |_| unreachable!("there is nothing to list")).unwrap_err();
    }

    #[test]
    fn truncated_messages_are_no_interfaces() {
        for len in 0..IFINFOMSG {
            assert_eq!(link(&vec![0; len]), None);
            assert!(split_message(&vec![0xff; len]).is_none());
        }
        assert_eq!(address(&[2, 8, 0, 0, 1, 0, 0, 0, 5, 0, 2, 0, 127]), None);
    }
}
