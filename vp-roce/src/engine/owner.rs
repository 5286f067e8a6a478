//! Whose an abstract Unix socket is that cannot be connected to: the kernel lists sockets with their users (sock_diag(7)).
//!
//! No state. Linux before 5.3 does not tell.

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use vp_api::room;

/// `SOCK_DIAG_BY_FAMILY`, of requests and of replies (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP` (linux/netlink.h).
const DUMP: u16 = 0x301;
/// States of sockets that are bound and not connected: `TCP_CLOSE`, `TCP_LISTEN`.
const STATES: u32 = 1 << 7 | 1 << 10;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_UID` (linux/unix_diag.h).
const SHOW: u32 = 0x41;
/// `UNIX_DIAG_NAME`, `UNIX_DIAG_UID`.
const NAME: u16 = 0;
const USER: u16 = 7;
/// A `nlmsghdr`; a `nlmsghdr` and a `unix_diag_msg`.
const HEADER: usize = 16;
const FIXED: usize = HEADER + 16;
/// Most octets of a reply.
const REPLY: usize = 32 << 10;

/// The user of the socket that is bound to this abstract name; `None`: not known.
pub(super) fn owner(name: &str) -> Option<u32> {
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let protocol = Some(netlink::SOCK_DIAG);
    let kernel = net::socket_with(AddressFamily::NETLINK, kind, flags, protocol).ok()?;
    net::send(&kernel, &request(), SendFlags::empty()).ok()?;
    let mut octets = room::try_filled(REPLY, 0)?;
    loop {
        let (len, _) = net::recv(&kernel, &mut octets[..], RecvFlags::DONTWAIT).ok()?;
        let mut rest = octets.get(..len)?;
        while let Some((message, behind)) = cut(rest) {
            if u16_at(message, 4) != Some(BY_FAMILY) {
                return None;
            }
            if let Some(user) = user_of(message.get(FIXED..)?, name) {
                return Some(user);
            }
            rest = behind;
        }
    }
}

/// A request for all such sockets of the network namespace.
fn request() -> Vec<u8> {
    const LEN: u32 = (HEADER + 24) as u32;
    let family = [AddressFamily::UNIX.as_raw() as u8, 0, 0, 0];
    let parts: [&[u8]; 9] = [
        &LEN.to_ne_bytes(),
        &BY_FAMILY.to_ne_bytes(),
        &DUMP.to_ne_bytes(),
        &[0; 8],
        &family,
        &STATES.to_ne_bytes(),
        &[0; 4],
        &SHOW.to_ne_bytes(),
        &[0xff; 8],
    ];
    parts.concat()
}

/// The user, if the attributes of a socket have this name.
fn user_of(attributes: &[u8], name: &str) -> Option<u32> {
    let (mut rest, mut found, mut user) = (attributes, false, None);
    while let Some(len) = u16_at(rest, 0).map(usize::from).filter(|len| *len >= 4) {
        let value = rest.get(4..len)?;
        match u16_at(rest, 2)? {
            // An abstract name begins with a zero.
            NAME => found = value.split_first() == Some((&0, name.as_bytes())),
            USER => user = value.first_chunk().map(|word| u32::from_ne_bytes(*word)),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    user.filter(|_| found)
}

/// The first message, and what is behind it.
fn cut(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = octets.first_chunk().map(|word| u32::from_ne_bytes(*word) as usize)?;
    let message = octets.get(..len).filter(|_| len >= HEADER)?;
    Some((message, octets.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|half| u16::from_ne_bytes(*half))
}

#[cfg(test)]
mod tests {
    use rustix::net::SocketAddrUnix;

    use super::*;

    #[test]
    fn a_name_that_is_bound_has_its_user() {
        let name = format!("warpline-roce-test-{}", std::process::id());
        assert_eq!(owner(&name), None);
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let socket = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        net::bind(&socket, &address).unwrap();
        let own = Some(rustix::process::geteuid().as_raw());
        assert_eq!(owner(&name), own);
        net::listen(&socket, 1).unwrap();
        assert_eq!(owner(&name), own);
        assert_eq!(owner(&name[1..]), None);
    }
}
