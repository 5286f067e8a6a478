//! A queue pair that is its own peer: over a TCP socket that is connected to itself (RFC 9293 section
//! 3.5, the simultaneous open), without MPA start-up, for which there is no second end.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with,
};
use vp_api::{LlpStream, Role, StreamParams};

use crate::errno::Errno;

/// Such a stream, with this many concurrent reads, in and out, and with or without Sends with Immediate.
///
/// # Errors
/// Those of socket(2) and connect(2).
pub(crate) fn stream((ird, ord): (u16, u16), send_immediates: bool) -> Result<LlpStream, Errno> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)))?;
    let own = SocketAddr::try_from(getsockname(&socket)?)?;
    connect(&socket, &own)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    // Either limit applies, because both ends are the same.
    let reads = ird.min(ord);
    let (ird, ord) = (reads, reads);
    let params = StreamParams { ird, ord, send_immediates, ..StreamParams::new(Role::Initiator) };
    Ok(LlpStream { socket, received: Vec::new(), last_message: Vec::new(), params, local: None })
}
