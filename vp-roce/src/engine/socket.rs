//! A UDP socket at port 4791 of one local address.
//!
//! Owner: the engine; connections keep references. Any thread sends, one thread receives. A socket is never
//! connected. It is bound to one address, with path MTU discovery: then the kernel sends each packet with the IPv4
//! identification 0 and with DF set, as the invariant CRC requires. Full: if the receive buffer has no room, the
//! kernel drops the packet; if the send buffer has none, the packet is dropped here. The transport repeats it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use kal_os::fork::Descriptors;
use roce_proto::cm::mad::{self, Mad};
use roce_proto::cm::{QKEY, QPN};
use roce_proto::icrc::{self, Envelope, Ip};
use roce_proto::psn::Psn;
use roce_proto::ud::{self, GRH_LEN, Outgoing};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use vp_api::{VpError, VpResult, VpStatus};

use super::RoceFds;
use crate::tuning::RECEIVE_BUFFER;

/// The UDP port of RoCE v2 (InfiniBand annex A17).
pub(crate) const PORT: u16 = 4791;

/// Hop limit in the headers that precede received datagrams: the real one is not reported.
pub(crate) const HOPS: u8 = 64;

/// The socket.
pub(crate) struct Socket {
    udp: UdpSocket,
    local: IpAddr,
    /// The PSN of the next message of the connection manager; receivers ignore it.
    sequence: AtomicU32,
}

/// A datagram that arrived.
pub(crate) struct Arrived<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) datagram: &'a [u8],
}

/// A packet is too long for the path.
pub(crate) struct TooLong;

fn crc32(crc: u32, octets: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(octets);
    hasher.finalize()
}

impl Socket {
    /// Opens the socket of a local address.
    pub(crate) fn open(local: IpAddr) -> VpResult<Self> {
        let udp = Self::bind(local).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => VpError::new(
                VpStatus::Os,
                format!(
                    "UDP port {PORT} of {local} is taken by another process, or by the kernel's rxe, which takes it \
                     of all addresses: use another local address (any of 127.0.0.0/8, or an alias), or a network \
                     namespace of your own"
                ),
            ),
            _ => VpError::os(&format!("opening UDP port {PORT} of {local}"), &error),
        })?;
        Ok(Self { udp, local, sequence: AtomicU32::new(0) })
    }

    fn bind(local: IpAddr) -> io::Result<UdpSocket> {
        let udp = Descriptors::make::<RoceFds, _>(|| UdpSocket::bind((local, PORT)))?;
        udp.set_nonblocking(true)?;
        sockopt::set_socket_recv_buffer_size(&udp, RECEIVE_BUFFER)?;
        match local {
            IpAddr::V4(_) => sockopt::set_ip_mtu_discover(&udp, Ipv4PathMtuDiscovery::DO)?,
            IpAddr::V6(_) => {
                sockopt::set_ipv6_mtu_discover(&udp, Ipv6PathMtuDiscovery::DO)?;
                // The kernel's rxe sends it. [ROCE-11]
                kal_os::udp::accept_zero_checksum(&udp)?;
            }
        }
        Ok(udp)
    }

    /// The local address.
    pub(crate) fn local(&self) -> IpAddr {
        self.local
    }

    /// Sends a packet, and writes the invariant CRC into its last four octets. A packet that the kernel does not
    /// take now is lost.
    pub(crate) fn send(&self, to: IpAddr, datagram: &mut [u8]) -> Result<(), TooLong> {
        let Some(envelope) = envelope(self.local, to, PORT) else { return Ok(()) };
        if let Some(crc) = icrc::of_datagram(crc32, &envelope, datagram)
            && let Some(last) = datagram.last_chunk_mut()
        {
            *last = crc;
        }
        match self.udp.send_to(datagram, (to, PORT)) {
            Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                Err(TooLong)
            }
            _ => Ok(()),
        }
    }

    /// Sends a message of the connection manager.
    pub(crate) fn send_message(&self, to: IpAddr, mad: &Mad) {
        let outgoing = Outgoing {
            destination: QPN,
            source: QPN,
            qkey: QKEY,
            psn: Psn::new(self.sequence.fetch_add(1, Ordering::Relaxed)),
            immediate: None,
            solicited: false,
            len: mad::LEN as u32,
        };
        let mut datagram = outgoing.headers().emit().as_slice().to_vec();
        datagram.extend(mad.emit());
        datagram.extend([0; 4]);
        // It is shorter than any path MTU. If it is lost, it is repeated.
        let _ = self.send(to, &mut datagram);
    }

    /// The next datagram, if one has arrived.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<Arrived<'a>> {
        loop {
            match self.udp.recv_from(buffer) {
                Ok((len, from)) => return Some(Arrived { from, datagram: &buffer[..len] }),
                // An ICMP error caused by an earlier packet: that connection ends by its timer.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => return None,
            }
        }
    }

    /// The octets that precede a datagram in its receive.
    pub(crate) fn header(&self, arrived: &Arrived<'_>) -> Option<[u8; GRH_LEN]> {
        let envelope = envelope(arrived.from.ip(), self.local, arrived.from.port())?;
        Some(ud::grh(&envelope, arrived.datagram.len(), 0, HOPS))
    }

    /// Whether the invariant CRC is correct. `ours`: the sender is this provider, which sends the IPv4
    /// identification 0. The identification of other senders over IPv4 is unknown.
    pub(crate) fn is_whole(&self, arrived: &Arrived<'_>, ours: bool) -> bool {
        let Some(envelope) = envelope(arrived.from.ip(), self.local, arrived.from.port()) else {
            return false;
        };
        let datagram = arrived.datagram;
        let found = datagram.last_chunk::<4>();
        icrc::of_datagram(crc32, &envelope, datagram).as_ref() == found
            || (!ours && icrc::identify(crc32, &envelope, datagram).is_some())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// `None` if the two addresses are of different families.
fn envelope(source: IpAddr, destination: IpAddr, source_port: u16) -> Option<Envelope> {
    let ip = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ip::V4 {
            source: source.octets(),
            destination: destination.octets(),
            id: 0,
            dont_fragment: true,
        },
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Ip::V6 { source: source.octets(), destination: destination.octets() }
        }
        _ => return None,
    };
    Some(Envelope { ip, source_port, destination_port: PORT })
}
