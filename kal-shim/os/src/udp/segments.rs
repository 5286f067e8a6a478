//! Several datagrams of one flow in one system call, each way (udp(7), `UDP_SEGMENT` and `UDP_GRO`), with the TOS or
//! traffic class of their IP header.
//!
//! No state; any thread. The kernel cuts what is sent into datagrams of one length, of which the last may be shorter,
//! and joins what arrives in the same way. Over IPv4 each datagram of a call has an identification of its own, counted
//! from 0 on a socket that is not connected. A full send buffer: the call fails, and nothing is sent.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::addr::SocketAddrArg;

/// linux/udp.h
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;

/// Most datagrams of one call (linux/udp.h, `UDP_MAX_SEGMENTS` of Linux 5 and 6.1).
pub const MAX_SEGMENTS: usize = 64;

/// Most octets of one call: those of an IPv4 packet without its headers.
pub const MAX_OCTETS: usize = 65_507;

/// Has the kernel join datagrams that arrive for [`receive`], and report their TOS or traffic class. `ipv6`: the
/// family of the socket. Needs no right.
pub fn prepare(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let report = match ipv6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
        false => (libc::IPPROTO_IP, libc::IP_RECVTOS),
    };
    for (level, option) in [(libc::SOL_UDP, UDP_GRO), report] {
        let on: libc::c_int = 1;
        let (fd, len) = (socket.as_fd().as_raw_fd(), size_of_val(&on) as libc::socklen_t);
        // SAFETY: the descriptor is open while `socket` is borrowed; `on` has `len` octets.
        let result = unsafe { libc::setsockopt(fd, level, option, (&raw const on).cast(), len) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Sends datagrams of `segment` octets each, of which the last may be shorter, with this TOS or traffic class, without
/// waiting: `O_NONBLOCK` belongs to all processes that have the socket. At most [`MAX_SEGMENTS`] and [`MAX_OCTETS`].
///
/// # Errors
/// Those of sendmsg(2). `EMSGSIZE`: a datagram is too long for the path.
pub fn send(
    socket: impl AsFd,
    to: SocketAddr,
    octets: &[u8],
    segment: u16,
    class: u8,
) -> io::Result<()> {
    let mut control = Control::default();
    if octets.len() > usize::from(segment) {
        control.put(libc::SOL_UDP, UDP_SEGMENT, &segment.to_ne_bytes());
    }
    if class != 0 {
        let (level, option) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        control.put(level, option, &libc::c_int::from(class).to_ne_bytes());
    }
    let mut pieces =
        libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    let fd = socket.as_fd().as_raw_fd();
    let call = |name: *const rustix::net::addr::SocketAddrOpaque, len| {
        // SAFETY: zeros are a valid `msghdr`: null pointers with lengths of 0.
        let mut message: libc::msghdr = unsafe { zeroed() };
        (message.msg_name, message.msg_namelen) = (name.cast_mut().cast(), len);
        (message.msg_iov, message.msg_iovlen) = (&raw mut pieces, 1);
        if control.len != 0 {
            message.msg_control = (&raw mut control.octets).cast();
            message.msg_controllen = control.len as _;
        }
        // SAFETY: the descriptor is open while `socket` is borrowed. All pointers of `message` are to objects of this
        // function with the lengths given; the kernel only reads them.
        unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT) }
    };
    // SAFETY: `call` passes the pointer and the length to one system call, which reads them.
    let sent = unsafe { to.with_sockaddr(call) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What one call of [`receive`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Octets in the buffer.
    pub len: usize,
    /// Octets of each datagram; the last may be shorter.
    pub segment: usize,
    /// The sender.
    pub from: SocketAddr,
    /// TOS or traffic class.
    pub class: u8,
}

/// Receives the next datagrams of one flow, without waiting. What does not fit `buffer` is lost.
///
/// # Errors
/// Those of recvmsg(2). `EAGAIN`: none has arrived.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = Control::default();
    // SAFETY: zeros are a valid address of no family.
    let mut name: libc::sockaddr_storage = unsafe { zeroed() };
    let mut pieces = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: zeros are a valid `msghdr`: null pointers with lengths of 0.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
    (message.msg_iov, message.msg_iovlen) = (&raw mut pieces, 1);
    message.msg_control = (&raw mut control.octets).cast();
    message.msg_controllen = CONTROL as _;
    let (fd, flags) = (socket.as_fd().as_raw_fd(), libc::MSG_DONTWAIT);
    // SAFETY: the descriptor is open while `socket` is borrowed. All pointers of `message` are to objects of this
    // function, or to `buffer`, with the lengths given; nothing else refers to them during the call.
    let len = unsafe { libc::recvmsg(fd, &raw mut message, flags) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    control.len = message.msg_controllen as usize;
    let mut received = Received { len, segment: len, from: address(&name), class: 0 };
    control.each(|level, option, data| match (level, option, data) {
        (libc::SOL_UDP, UDP_GRO, data) => {
            if let Some(segment) = data.first_chunk().map(|data| libc::c_int::from_ne_bytes(*data))
            {
                received.segment = usize::try_from(segment).unwrap_or(len).clamp(1, len.max(1));
            }
        }
        (libc::IPPROTO_IP, libc::IP_TOS, [class, ..]) => received.class = *class,
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, data) => {
            let class = data.first_chunk().map(|data| libc::c_int::from_ne_bytes(*data));
            received.class = class.unwrap_or_default() as u8;
        }
        _ => {}
    });
    Ok(received)
}

fn address(name: &libc::sockaddr_storage) -> SocketAddr {
    let place: *const libc::sockaddr_storage = name;
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET6 => {
            // SAFETY: the kernel wrote an address of this family; `sockaddr_storage` is large enough, and aligned, for
            // every family.
            let v6 = unsafe { &*place.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            SocketAddr::V6(std::net::SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id))
        }
        libc::AF_INET => {
            // SAFETY: as above.
            let v4 = unsafe { &*place.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            (IpAddr::V4(ip), u16::from_be(v4.sin_port)).into()
        }
        _ => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0).into(),
    }
}

/// Room for three ancillary messages of four octets.
const CONTROL: usize = 96;

/// Ancillary messages (cmsg(3)).
#[repr(align(8))]
struct Control {
    octets: [u8; CONTROL],
    len: usize,
}

impl Default for Control {
    fn default() -> Self {
        Self { octets: [0; CONTROL], len: 0 }
    }
}

/// Octets of a `cmsghdr`: its length, then level and type.
const HEADER: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();

impl Control {
    fn put(&mut self, level: libc::c_int, option: libc::c_int, data: &[u8]) {
        let (at, len) = (self.len, HEADER + data.len());
        let message = &mut self.octets[at..at + len];
        message[..WORD].copy_from_slice(&len.to_ne_bytes());
        message[HEADER - 8..HEADER - 4].copy_from_slice(&level.to_ne_bytes());
        message[HEADER - 4..HEADER].copy_from_slice(&option.to_ne_bytes());
        message[HEADER..].copy_from_slice(data);
        self.len += len.next_multiple_of(WORD);
    }

    /// Calls `f` with level, type and data of each.
    fn each(&self, mut f: impl FnMut(libc::c_int, libc::c_int, &[u8])) {
        let int = |octets: &[u8]| {
            octets.first_chunk().map_or(0, |octets| libc::c_int::from_ne_bytes(*octets))
        };
        let mut rest = &self.octets[..self.len.min(CONTROL)];
        while let Some(header) = rest.get(..HEADER) {
            let len = header.first_chunk().map_or(0, |octets| usize::from_ne_bytes(*octets));
            let Some(data) = rest.get(HEADER..len) else { return };
            f(int(&header[HEADER - 8..]), int(&header[HEADER - 4..]), data);
            rest = rest.get(len.next_multiple_of(WORD)..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn pair(address: &str) -> (UdpSocket, UdpSocket) {
        let socket = || UdpSocket::bind((address, 0)).unwrap();
        let (near, far) = (socket(), socket());
        let ipv6 = address.contains(':');
        prepare(&far, ipv6).unwrap();
        (near, far)
    }

    /// All datagrams that arrived, and the number of calls.
    fn all(far: &UdpSocket, expected: usize) -> (Vec<Vec<u8>>, usize, u8) {
        let (mut datagrams, mut calls, mut class) = (Vec::new(), 0, 0);
        let mut buffer = vec![0; MAX_OCTETS];
        while datagrams.len() < expected {
            let Ok(received) = receive(far, &mut buffer) else { continue };
            calls += 1;
            class = received.class;
            datagrams.extend(buffer[..received.len].chunks(received.segment).map(<[u8]>::to_vec));
        }
        (datagrams, calls, class)
    }

    #[test]
    fn datagrams_of_one_call_arrive_with_their_boundaries_and_class() {
        for address in ["127.0.0.1", "::1"] {
            let (near, far) = pair(address);
            let octets: Vec<u8> = (0..2_500u32).map(|at| at as u8).collect();
            send(&near, far.local_addr().unwrap(), &octets, 1_000, 0x2a).unwrap();
            let (datagrams, calls, class) = all(&far, 3);
            assert_eq!(datagrams.concat(), octets);
            assert_eq!(datagrams.iter().map(Vec::len).collect::<Vec<_>>(), [1_000, 1_000, 500]);
            assert_eq!((calls, class), (1, 0x2a), "{address}");
        }
    }

    #[test]
    fn one_datagram_and_an_empty_one_are_as_with_any_socket() {
        let (near, far) = pair("127.0.0.1");
        let to = far.local_addr().unwrap();
        send(&near, to, b"one", 1_000, 0).unwrap();
        send(&near, to, b"", 1_000, 0).unwrap();
        let mut buffer = [0; 16];
        let one = receive(&far, &mut buffer).unwrap();
        assert_eq!((&buffer[..one.len], one.from), (&b"one"[..], near.local_addr().unwrap()));
        let none = receive(&far, &mut buffer).unwrap();
        assert_eq!((none.len, none.segment), (0, 0));
        let empty = receive(&far, &mut buffer).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }
}
