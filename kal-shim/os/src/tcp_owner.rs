//! Owners of TCP sockets of this network namespace, by sock_diag(7), which needs no privilege. No state, no memory of the heap.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/in.h, net/tcp_states.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const NO_COOKIE: [u8; 8] = [0xff; 8];
const ALL_STATES: u32 = u32::MAX;
const HEADER: usize = 16;
/// `struct inet_diag_req_v2`: 8 octets, then `struct inet_diag_sockid`.
const SOCKID: usize = 48;
const REQUEST: usize = HEADER + 8 + SOCKID;
/// Offsets in a response, from its header on: `struct inet_diag_msg`.
const DESTINATION_PORT: usize = HEADER + 4 + 2;
const UID: usize = HEADER + 4 + SOCKID + 12;
const INODE: usize = UID + 4;

/// The uid that the kernel shows for users that this user namespace does not know (user_namespaces(7)).
const OVERFLOW_UID: u32 = 65534;

/// A socket by which [`owner_of_tcp`] asks.
///
/// # Errors
/// Those of socket(2).
pub fn socket_for_owners() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(netlink::SOCK_DIAG);
    rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)
}

/// The user who owns the TCP socket that is bound to `local` and connected to `remote`. `None`: there is no such socket here,
/// no process owns it yet or any more, or its user is not known in this user namespace.
///
/// # Errors
/// The kernel does not report it.
pub fn owner_of_tcp(
    socket: impl AsFd,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Option<u32>> {
    rustix::net::send(&socket, &request(local, remote), SendFlags::empty())?;
    let mut answer = [0; 512];
    loop {
        // The kernel queues the response during the send call.
        match rustix::net::recv(&socket, &mut answer[..], RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok((_, len)) => return Ok(uid(answer.get(..len).unwrap_or(&[]), remote.port())),
        }
    }
}

fn request(local: SocketAddr, remote: SocketAddr) -> [u8; REQUEST] {
    let mut octets = [0; REQUEST];
    octets[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    octets[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    octets[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let body = &mut octets[HEADER..];
    body[0] = if local.is_ipv4() { AF_INET } else { AF_INET6 };
    body[1] = IPPROTO_TCP;
    body[4..8].copy_from_slice(&ALL_STATES.to_ne_bytes());
    let id = &mut body[8..];
    id[..2].copy_from_slice(&local.port().to_be_bytes());
    id[2..4].copy_from_slice(&remote.port().to_be_bytes());
    for (at, address) in [(4, local), (20, remote)] {
        match address.ip() {
            IpAddr::V4(v4) => id[at..at + 4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => id[at..at + 16].copy_from_slice(&v6.octets()),
        }
    }
    if let SocketAddr::V6(v6) = local {
        id[36..40].copy_from_slice(&v6.scope_id().to_ne_bytes());
    }
    id[40..48].copy_from_slice(&NO_COOKIE);
    octets
}

fn uid(answer: &[u8], remote_port: u16) -> Option<u32> {
    let field = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let kind = answer.get(4..).and_then(|octets| octets.first_chunk());
    if kind != Some(&SOCK_DIAG_BY_FAMILY.to_ne_bytes()) {
        return None;
    }
    // Without the connection the kernel shows a socket that listens.
    let port = answer.get(DESTINATION_PORT..).and_then(|octets| octets.first_chunk());
    let (uid, inode) = (field(UID)?, field(INODE)?);
    let known = port == Some(&remote_port.to_be_bytes()) && inode != 0 && uid != OVERFLOW_UID;
    known.then_some(uid)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn malformed_responses_have_no_owner() {
        for answer in [&[][..], &[0; 16], &[0; 512], &[0xff; 90]] {
            assert_eq!(uid(answer, 7), None);
        }
        let mut answer = [0; 512];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[DESTINATION_PORT..DESTINATION_PORT + 2].copy_from_slice(&7u16.to_be_bytes());
        answer[UID..UID + 4].copy_from_slice(&1000u32.to_ne_bytes());
        answer[INODE..INODE + 4].copy_from_slice(&5u32.to_ne_bytes());
        assert_eq!(uid(&answer, 7), Some(1000));
        assert_eq!(uid(&answer, 8), None);
        answer[UID..UID + 4].copy_from_slice(&OVERFLOW_UID.to_ne_bytes());
        assert_eq!(uid(&answer, 7), None);
    }
}
