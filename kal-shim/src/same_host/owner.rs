//! Finds the owner of a TCP socket of this network namespace by sock_diag(7), which needs no privilege. No
//! state.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use kal_os::fork::Descriptors;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use super::NotLocal;
use crate::fork::Host;

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

/// The user who owns the TCP socket that is bound to `local` and connected to `remote`.
///
/// # Errors
/// [`NotLocal::UnknownOwner`]: there is no such socket here, no process owns it yet or any more, its user is
/// not known in this user namespace, or the kernel does not report it.
pub fn owner(local: SocketAddr, remote: SocketAddr) -> Result<u32, NotLocal> {
    let socket: OwnedFd = Descriptors::make::<Host, _>(|| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        Ok(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?)
    })
    .map_err(unknown)?;
    let send = |octets: &[u8]| rustix::net::send(&socket, octets, SendFlags::empty());
    send(&request(local, remote)).map_err(|errno| unknown(errno.into()))?;
    let mut answer = [0; 512];
    loop {
        // The kernel queues the response during the send call.
        match rustix::net::recv(&socket, &mut answer[..], RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(unknown(errno.into())),
            Ok((_, len)) => return uid(answer.get(..len).unwrap_or(&[]), remote.port()),
        }
    }
}

/// Shortages have their own reasons.
fn unknown(error: io::Error) -> NotLocal {
    match NotLocal::from(error) {
        short @ (NotLocal::NoMemory | NotLocal::NoDescriptors) => short,
        _ => NotLocal::UnknownOwner,
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

fn uid(answer: &[u8], remote_port: u16) -> Result<u32, NotLocal> {
    let field = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let kind = answer.get(4..).and_then(|octets| octets.first_chunk());
    if kind != Some(&SOCK_DIAG_BY_FAMILY.to_ne_bytes()) {
        return Err(NotLocal::UnknownOwner);
    }
    // Without the connection the kernel shows a socket that listens.
    let port = answer.get(DESTINATION_PORT..).and_then(|octets| octets.first_chunk());
    let (Some(uid), Some(inode)) = (field(UID), field(INODE)) else {
        return Err(NotLocal::UnknownOwner);
    };
    if port != Some(&remote_port.to_be_bytes()) || inode == 0 || uid == OVERFLOW_UID {
        return Err(NotLocal::UnknownOwner);
    }
    Ok(uid)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn both_ends_of_a_connection_have_an_owner() {
        for (at, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")]
        {
            let listener = TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect((to, port)).unwrap();
            let (server, _) = listener.accept().unwrap();
            let local = crate::sock::local_addr(&client).unwrap();
            let remote = crate::sock::peer_addr(&client).unwrap();
            assert_eq!(owner(local, remote), Ok(me()), "{local} to {remote}");
            assert_eq!(owner(remote, local), Ok(me()), "{remote} to {local}");
            drop(server);
        }
    }

    #[test]
    fn a_connection_without_an_owner_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // No connection from there; the listener does not count.
        let stranger = "127.0.0.9:9".parse().unwrap();
        assert_eq!(owner(address, stranger), Err(NotLocal::UnknownOwner));
        // Not accepted.
        let client = TcpStream::connect(address).unwrap();
        assert_eq!(owner(address, client.local_addr().unwrap()), Err(NotLocal::UnknownOwner));
    }

    #[test]
    fn malformed_responses_have_no_owner() {
        for answer in [&[][..], &[0; 16], &[0; 512], &[0xff; 90]] {
            assert_eq!(uid(answer, 7), Err(NotLocal::UnknownOwner));
        }
        let mut answer = [0; 512];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[DESTINATION_PORT..DESTINATION_PORT + 2].copy_from_slice(&7u16.to_be_bytes());
        answer[UID..UID + 4].copy_from_slice(&1000u32.to_ne_bytes());
        answer[INODE..INODE + 4].copy_from_slice(&5u32.to_ne_bytes());
        assert_eq!(uid(&answer, 7), Ok(1000));
        assert_eq!(uid(&answer, 8), Err(NotLocal::UnknownOwner));
        answer[UID..UID + 4].copy_from_slice(&OVERFLOW_UID.to_ne_bytes());
        assert_eq!(uid(&answer, 7), Err(NotLocal::UnknownOwner));
    }
}
