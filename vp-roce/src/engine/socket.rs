//! A UDP socket at port 4791 of one local address.
//!
//! Owner: the engine; connections keep references. Processes of one user share the port: see `neighbours`. Any thread sends, one thread receives. A socket is never
//! connected. It is bound to one address, with path MTU discovery: then the kernel sends the packets of each call with the IPv4
//! identifications 0, 1, 2 and so on and with DF set, as the invariant CRC requires. Full: if the receive buffer has no room, the
//! kernel drops the packet; if the send buffer has none, the packet is dropped here. The transport repeats it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kal_os::fork::{Descriptors, Ours};
use kal_os::udp::segments::{self, MAX_SEGMENTS, Received};
use roce_proto::cm::mad::{self, Mad};
use roce_proto::cm::{QKEY, QPN};
use roce_proto::icrc::{self, Envelope, Front, Ip};
use roce_proto::psn::Psn;
use roce_proto::ud::{self, GRH_LEN, Outgoing};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, netdevice};
use vp_api::{PortInfo, VpError, VpResult, VpStatus};

use super::RoceFds;
use super::holder::{Holder, holder};
use super::neighbours::{Share, Slot};
use super::steering::{self, SLOTS};
use crate::tuning::RECEIVE_BUFFER;

/// The UDP port of RoCE v2 (InfiniBand annex A17).
pub(crate) const PORT: u16 = 4791;

/// Hop limit in the headers that precede received datagrams: the real one is not reported.
pub(crate) const HOPS: u8 = 64;

/// How long the sockets of a neighbour that ends may outlive its slot. The lock of the port is held meanwhile, for which
/// others wait longer.
const REMAINS: Duration = Duration::from_millis(300);

/// Codepoints in the TOS or traffic class (RFC 3168): routers may mark the packet instead of dropping it; one has.
pub(crate) const ECN_CAPABLE: u8 = 0b10;
const CONGESTION_EXPERIENCED: u8 = 0b11;

/// The socket.
pub(crate) struct Socket {
    /// The address's sockets, by slot; none of a multicast group's address.
    group: Vec<Ours<RoceFds, OwnedFd>>,
    /// That of this process's slot.
    udp: UdpSocket,
    local: IpAddr,
    /// Of a link-local address, its interface.
    scope: u32,
    /// The PSN of the next message of the connection manager; receivers ignore it.
    sequence: AtomicU32,
    /// Drops of the kernel that were counted, modulo 2^32.
    overruns: AtomicU32,
    /// The kernel did not cut what was sent.
    refuses: AtomicBool,
}

/// A datagram that arrived.
pub(crate) struct Arrived<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) datagram: &'a [u8],
    /// TOS or traffic class.
    pub(crate) class: u8,
    /// It waited in a receive buffer that is more than half full.
    crowded: bool,
    /// Its place among those that arrived together.
    index: u16,
    /// Of those that have the length of the first; `None`: addresses of two families.
    front: Option<Front>,
}

impl Arrived<'_> {
    /// A router on its way was congested (RFC 3168), or the receive buffer here.
    pub(crate) fn is_marked(&self) -> bool {
        self.crowded || self.class & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED
    }
}

/// Datagrams that arrived together.
pub(crate) struct Together<'a> {
    received: Received,
    octets: &'a [u8],
    front: Option<Front>,
}

impl<'a> Together<'a> {
    /// Octets of all.
    pub(crate) fn len(&self) -> usize {
        self.octets.len()
    }

    /// How many; an empty one is one.
    pub(crate) fn packets(&self) -> usize {
        self.octets.len().div_ceil(self.received.segment.max(1)).max(1)
    }

    /// Each of them. `crowded`: they waited in a receive buffer that is more than half full.
    pub(crate) fn each(&self, crowded: bool) -> impl Iterator<Item = Arrived<'a>> {
        let (Received { from, class, segment, .. }, front) = (self.received, self.front);
        let datagrams = self.octets.chunks(segment.max(1));
        let arrived =
            move |(index, datagram)| Arrived { from, datagram, class, crowded, index, front };
        (0..).zip(datagrams).map(arrived)
    }
}

/// The state of a receive buffer.
#[derive(Default)]
pub(super) struct Pressure {
    /// It is more than half full: more than one connection may fill.
    pub(super) crowded: bool,
    /// Packets that the kernel has dropped since the last look, which had no room.
    pub(super) overruns: u32,
}

/// A packet is too long for the path.
pub(crate) struct TooLong;

fn taken(local: IpAddr, holder: Holder) -> VpError {
    let detail = format!(
        "UDP port {PORT} of {local} is taken by {holder}: use another local address (any of 127.0.0.0/8, or an alias), \
         or a network namespace of your own"
    );
    VpError::new(VpStatus::Os, detail)
}

fn crc32(crc: u32, octets: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(octets);
    hasher.finalize()
}

impl Socket {
    /// Joins the sockets of a local address, or makes them. Returns what the neighbours have there, too. Called under
    /// [`super::neighbours::Lock`].
    pub(super) fn open(local: IpAddr, slot: &Slot) -> VpResult<(Self, Vec<Share>)> {
        let attempt = format!("joining UDP port {PORT} of {local}");
        let os = |error: io::Error| VpError::os(&attempt, &error);
        let begun = Instant::now();
        loop {
            let mut shares = slot.ask(local).map_err(os)?;
            let whole = |share: &&mut Share| share.sockets.len() == usize::from(SLOTS);
            let shared =
                shares.iter_mut().find(whole).map(|share| std::mem::take(&mut share.sockets));
            let made = match shared {
                Some(group) => Ok(group),
                None => Self::make(local),
            };
            match made {
                Ok(group) => {
                    let socket = Self::of(group, local, slot).map_err(os)?;
                    return Ok((socket, shares));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    let holder = holder(local);
                    // A neighbour that ends has left its slot, and its sockets in a moment.
                    if holder != Holder::Own || begun.elapsed() > REMAINS {
                        return Err(taken(local, holder));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(os(error)),
            }
        }
    }

    /// Makes the sockets of a local address that nobody has.
    fn make(local: IpAddr) -> io::Result<Vec<Ours<RoceFds, OwnedFd>>> {
        // Sockets that share the port can be bound beside those of an unknown process of this user; this one cannot.
        drop(Descriptors::make::<RoceFds, _>(|| {
            UdpSocket::bind(kal_os::socket_address(local, PORT))
        })?);
        (0..SLOTS).map(|_| Ours::make(|| Self::bind(local))).collect()
    }

    fn bind(local: IpAddr) -> io::Result<OwnedFd> {
        Self::bind_with(local, |udp| Ok(sockopt::set_socket_reuseport(udp, true)?))
    }

    /// `share` lets other sockets have the address, too.
    fn bind_with(
        local: IpAddr,
        share: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<OwnedFd> {
        let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let udp = net::socket_with(family, SocketType::DGRAM, flags, None)?;
        share(&udp)?;
        net::bind(&udp, &kal_os::socket_address(local, PORT))?;
        sockopt::set_socket_recv_buffer_size(&udp, RECEIVE_BUFFER)?;
        segments::prepare(&udp, local.is_ipv6())?;
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

    /// A socket of this process alone for what is sent to a multicast group, which it joins on all interfaces.
    pub(super) fn of_group(group: IpAddr, ports: &[PortInfo]) -> VpResult<Self> {
        let os = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => taken(group, holder(group)),
            _ => VpError::os(&format!("joining the multicast group {group}"), &error),
        };
        let udp = Descriptors::make::<RoceFds, _>(|| {
            Ok(UdpSocket::from(Self::bind_with(group, |udp| {
                // Several processes, also of several users, have it.
                Ok(sockopt::set_socket_reuseaddr(udp, true)?)
            })?))
        });
        let udp = udp.map_err(os)?;
        let same = |one: &IpAddr| one.is_ipv4() == group.is_ipv4();
        let all = ports.iter().filter(|port| port.online && port.addresses.iter().any(same));
        let mut joined = Err(io::ErrorKind::NetworkUnreachable.into());
        for port in all {
            // One is enough: the kernel limits how many interfaces a socket joins on.
            joined = join(&udp, group, &port.interface).or_else(|error| joined.map_err(|_| error));
        }
        joined.map_err(os)?;
        let (sequence, overruns) = (AtomicU32::new(0), AtomicU32::new(0));
        let (scope, refuses) = (0, AtomicBool::new(false));
        Ok(Self { group: Vec::new(), udp, local: group, scope, sequence, overruns, refuses })
    }

    /// Whether it is for what is sent to a multicast group.
    pub(crate) fn is_group(&self) -> bool {
        self.group.is_empty()
    }

    /// What is sent to multicast groups leaves by the interface of this socket's address, with so many hops.
    ///
    /// # Errors
    /// `InvalidAddress`: there is no way to this group from that interface.
    pub(crate) fn lead_to(&self, group: IpAddr, port: &PortInfo, hops: u8) -> VpResult<()> {
        let way = || {
            let index = netdevice::name_to_index(&self.udp, &port.interface)?;
            // The kernel chooses the interface of an IPv4 address by itself.
            let probe = UdpSocket::bind(self.on_link(self.local, 0))?;
            match group {
                IpAddr::V4(_) => sockopt::set_ip_multicast_ttl(&self.udp, hops.into())?,
                IpAddr::V6(_) => {
                    sockopt::set_ipv6_multicast_hops(&self.udp, hops.into())?;
                    sockopt::set_ipv6_multicast_if(&self.udp, index)?;
                    sockopt::set_ipv6_multicast_if(&probe, index)?;
                }
            }
            probe.connect((group, PORT))
        };
        way().map_err(|error| {
            let interface = &port.interface;
            let detail = format!("datagrams for {group} cannot leave by {interface}: {error}");
            VpError::new(VpStatus::InvalidAddress, detail)
        })
    }

    fn of(group: Vec<Ours<RoceFds, OwnedFd>>, local: IpAddr, slot: &Slot) -> io::Result<Self> {
        let own = &group[usize::from(slot.index)];
        let udp = Descriptors::make::<RoceFds, _>(|| Ok(UdpSocket::from(own.try_clone()?)))?;
        let overruns = AtomicU32::new(kal_os::udp::buffered(&udp).map_or(0, |it| it.dropped));
        let bound = udp.local_addr()?;
        let scope = if let SocketAddr::V6(v6) = bound { v6.scope_id() } else { 0 };
        let (sequence, refuses) = (AtomicU32::new(0), AtomicBool::new(false));
        let socket = Self { group, udp, local, scope, sequence, overruns, refuses };
        // Packets for the slot's earlier owner.
        let mut octets = [0; 1];
        while socket.receive(&mut octets).is_some() {}
        Ok(socket)
    }

    /// Has requests for these services go to the slots that listen for them, and others to this process.
    pub(super) fn steer(&self, services: &[(u32, u8)], slot: &Slot) -> VpResult<()> {
        let program = steering::program(services, slot.index)?;
        kal_os::udp::steer(&self.udp, &program).map_err(|error| {
            VpError::os(
                &format!("steering the packets of UDP port {PORT} of {}", self.local),
                &error,
            )
        })
    }

    /// Copies of the address's sockets, for a neighbour.
    pub(super) fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        self.group.iter().map(|one| one.try_clone()).collect()
    }

    /// An address on its link, its own or a peer's, with a port and with the scope that a link-local one has.
    pub(crate) fn on_link(&self, ip: IpAddr, port: u16) -> SocketAddr {
        match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                SocketAddrV6::new(v6, port, 0, self.scope).into()
            }
            _ => SocketAddr::new(ip, port),
        }
    }

    /// The local address.
    pub(crate) fn local(&self) -> IpAddr {
        self.local
    }

    /// Sends packets of `segment` octets, of which the last may be shorter, with a TOS or traffic class, and writes the
    /// invariant CRC into the last four octets of each. Packets that the kernel does not take now are lost.
    pub(crate) fn send(
        &self,
        to: IpAddr,
        packets: &mut [u8],
        segment: usize,
        class: u8,
    ) -> Result<(), TooLong> {
        self.seal(to, packets, segment);
        let sent = segments::send(&self.udp, (to, PORT).into(), packets, segment as u16, class);
        let Err(error) = sent else { return Ok(()) };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(()),
            // The kernel or the interface does not cut: one by one.
            _ if packets.len() > segment => {
                self.refuses.store(true, Ordering::Relaxed);
                let mut each = packets.chunks_mut(segment);
                each.try_for_each(|packet| self.send(to, packet, segment, class))
            }
            Some(Errno::MSGSIZE) => Err(TooLong),
            _ => Ok(()),
        }
    }

    /// Whether the packets of a call arrive together at a receiver on this host.
    pub(crate) fn joins(&self) -> bool {
        !self.refuses.load(Ordering::Relaxed)
    }

    /// Whether an address is one of this host.
    pub(crate) fn is_near(&self, to: IpAddr) -> bool {
        to == self.local || UdpSocket::bind(self.on_link(to, 0)).is_ok()
    }

    fn seal(&self, to: IpAddr, packets: &mut [u8], segment: usize) {
        let Some(envelope) = envelope(self.local, to, PORT, 0) else { return };
        let mut front = Front::new(crc32, &envelope, segment);
        // The kernel numbers the packets of a call from 0.
        for (id, packet) in (0..).zip(packets.chunks_mut(segment)) {
            if packet.len() != segment {
                front = Front::new(crc32, &envelope, packet.len());
            }
            if let Some(crc) = front.of(id, packet)
                && let Some(last) = packet.last_chunk_mut()
            {
                *last = crc;
            }
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
        let len = datagram.len();
        // It is shorter than any path MTU. If it is lost, it is repeated.
        let _ = self.send(to, &mut datagram, len, 0);
    }

    /// The state of the receive buffer. One thread at a time calls it.
    pub(super) fn pressure(&self) -> Pressure {
        // Linux before 4.12 does not say.
        let Ok(now) = kal_os::udp::buffered(&self.udp) else { return Pressure::default() };
        let before = self.overruns.swap(now.dropped, Ordering::Relaxed);
        Pressure { crowded: now.taken > now.most / 2, overruns: now.dropped.wrapping_sub(before) }
    }

    /// Whether queue pair `number` at an address has room for packets: half of the receive buffer, if it is of this
    /// address, whose sockets this process has. Elsewhere it is not known.
    pub(crate) fn has_room(&self, to: IpAddr, number: u32) -> bool {
        let theirs = self.group.get(usize::from(steering::slot(number)));
        let full = |socket: &Ours<RoceFds, OwnedFd>| {
            kal_os::udp::buffered(&**socket).is_ok_and(|now| now.taken > now.most / 2)
        };
        to != self.local || !theirs.is_some_and(full)
    }

    /// The next datagrams, if any have arrived.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<Together<'a>> {
        loop {
            match segments::receive(&self.udp, buffer) {
                Ok(received) => {
                    let Received { from, len, segment, .. } = received;
                    let front = envelope(from.ip(), self.local, from.port(), 0)
                        .map(|envelope| Front::new(crc32, &envelope, segment));
                    return Some(Together { received, octets: &buffer[..len], front });
                }
                // An ICMP error caused by an earlier packet: that connection ends by its timer.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => return None,
            }
        }
    }

    /// The octets that precede a datagram in its receive.
    pub(crate) fn header(&self, arrived: &Arrived<'_>) -> Option<[u8; GRH_LEN]> {
        let envelope = envelope(arrived.from.ip(), self.local, arrived.from.port(), 0)?;
        Some(ud::grh(&envelope, arrived.datagram.len(), arrived.class, HOPS))
    }

    /// Whether the invariant CRC is correct. `ours`: the sender is this provider, whose IPv4 identifications count the
    /// packets of one call. The identification of other senders over IPv4 is unknown.
    pub(crate) fn is_whole(&self, arrived: &Arrived<'_>, ours: bool) -> bool {
        let Arrived { from, datagram, index, front, .. } = *arrived;
        let found = datagram.last_chunk::<4>();
        let is = |crc: Option<[u8; 4]>| crc.is_some() && crc.as_ref() == found;
        if is(front.and_then(|front| front.of(index, datagram))) {
            return true;
        }
        // The last may be shorter.
        let Some(envelope) = envelope(from.ip(), self.local, from.port(), index) else {
            return false;
        };
        if is(icrc::of_datagram(crc32, &envelope, datagram)) {
            return true;
        }
        let id = icrc::identify(crc32, &envelope, datagram);
        id.is_some_and(|id| !ours || usize::from(id) < MAX_SEGMENTS)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// Joins a multicast group on an interface.
fn join(udp: &UdpSocket, group: IpAddr, interface: &str) -> io::Result<()> {
    let index = netdevice::name_to_index(udp, interface)?;
    match group {
        IpAddr::V4(v4) => {
            let any = Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_add_membership_with_ifindex(udp, &v4, &any, index)?;
        }
        IpAddr::V6(v6) => sockopt::set_ipv6_add_membership(udp, &v6, index)?,
    }
    Ok(())
}

/// `None` if the two addresses are of different families.
fn envelope(source: IpAddr, destination: IpAddr, source_port: u16, id: u16) -> Option<Envelope> {
    let ip = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ip::V4 {
            source: source.octets(),
            destination: destination.octets(),
            id,
            dont_fragment: true,
        },
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Ip::V6 { source: source.octets(), destination: destination.octets() }
        }
        _ => return None,
    };
    Some(Envelope { ip, source_port, destination_port: PORT })
}
