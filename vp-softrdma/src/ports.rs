//! The watch on the ports: raises an event for each port that became usable, ceased to be, or has other
//! addresses.
//!
//! One per RNIC. Its netlink socket reports every change of a link or an address (rtnetlink(7)) and is
//! in the engine's set like a QP's; the thread that finds it readable compares the ports with their last
//! known state. Peers play no part: their connections end by their own time-outs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use kal_os::fork::Descriptors;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink};
use vp_api::{AsyncEvent, EventSource, PortInfo};
use vp_soft::events::EventSink;
use vp_soft::ports::ports;

use crate::engine::{Engine, Member, Ready, Timer};
use crate::fork::SoftRdmaFds;
use crate::sync::{Mutex, lock};

/// The id of the watch in the engine; no QP has it.
const ID: u32 = 0;
/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR` of linux/rtnetlink.h.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// The watch.
pub(crate) struct Ports {
    netlink: OwnedFd,
    events: Arc<EventSink>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Vec<PortInfo>,
    pending: Vec<(EventSource, AsyncEvent)>,
    /// A thread is delivering events; it also delivers those that are added meanwhile.
    delivering: bool,
}

impl Ports {
    /// Begins to watch.
    pub(crate) fn watch(engine: &Engine, events: &Arc<EventSink>) -> std::io::Result<()> {
        let ports = Arc::new(Self::new(events.clone())?);
        engine.attach(ID, ports.clone(), &ports.netlink).map(drop)
    }

    /// The watch, with its socket and the ports as they are now.
    fn new(events: Arc<EventSink>) -> std::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = rustix::net::AddressFamily::NETLINK;
        let netlink = Descriptors::make::<SoftRdmaFds, _>(|| {
            // Without a protocol: NETLINK_ROUTE.
            Ok(rustix::net::socket_with(family, SocketType::RAW, flags, None)?)
        })?;
        rustix::net::bind(&netlink, &SocketAddrNetlink::new(0, GROUPS))?;
        // From here on no change goes unnoticed.
        let state = State { known: ports()?, ..State::default() };
        Ok(Self { netlink, events, state: Mutex::new(state) })
    }

    /// Empties the socket. Its messages are not parsed: the ports are read anew.
    fn drain(&self) {
        let mut message = [0; 4096];
        loop {
            match rustix::net::recv(&self.netlink, &mut message[..], RecvFlags::TRUNC) {
                // Messages were lost for want of room; reading the ports shows what they said.
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn compare(&self, state: &mut State) {
        // On an error the next message triggers another comparison.
        let Ok(now) = ports() else { return };
        let known = std::mem::replace(&mut state.known, now);
        state.pending.extend(changes(&known, &state.known));
    }
}

/// The change of each port. A port that vanished keeps the index it had.
fn changes(
    before: &[PortInfo],
    now: &[PortInfo],
) -> impl Iterator<Item = (EventSource, AsyncEvent)> {
    let same = |a: &PortInfo, b: &PortInfo| a.interface == b.interface;
    let gone = before
        .iter()
        .enumerate()
        .filter(move |(_, port)| port.online && !now.iter().any(|other| same(other, port)));
    let changed = now.iter().enumerate().filter(move |(_, port)| {
        let old = before.iter().find(|other| same(other, port));
        let usable = |port: &PortInfo| port.online.then(|| port.addresses.clone());
        old.and_then(usable) != usable(port)
    });
    let event =
        |index: usize, online| (EventSource::Port(index as u32), AsyncEvent::PortState { online });
    let gone: Vec<_> = gone.map(|(index, _)| event(index, false)).collect();
    let changed: Vec<_> = changed.map(|(index, port)| event(index, port.online)).collect();
    gone.into_iter().chain(changed)
}

impl Member for Ports {
    fn on_ready(&self, _: Ready) {
        let mut state = lock(&self.state);
        self.drain();
        self.compare(&mut state);
        if std::mem::replace(&mut state.delivering, true) {
            return;
        }
        while !state.pending.is_empty() {
            let pending = std::mem::take(&mut state.pending);
            drop(state);
            for (source, event) in pending {
                self.events.emit(source, event);
            }
            state = lock(&self.state);
        }
        state.delivering = false;
    }

    fn on_timer(&self, _: u32, _: Timer) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(interface: &str, addresses: &[[u8; 4]]) -> PortInfo {
        PortInfo {
            interface: interface.into(),
            online: !addresses.is_empty(),
            mtu: 1500,
            addresses: addresses.iter().map(|&octets| octets.into()).collect(),
        }
    }

    fn seen(before: &[PortInfo], now: &[PortInfo]) -> Vec<(u32, bool)> {
        let index = |source| match source {
            EventSource::Port(index) => index,
            other => panic!("{other:?}"),
        };
        let online = |event| match event {
            AsyncEvent::PortState { online } => online,
            other => panic!("{other:?}"),
        };
        changes(before, now).map(|(source, event)| (index(source), online(event))).collect()
    }

    #[derive(Default)]
    struct Recorded(Mutex<Vec<(EventSource, AsyncEvent)>>);

    impl vp_api::AsyncHandler for Recorded {
        fn on_event(&self, source: EventSource, event: AsyncEvent) {
            lock(&self.0).push((source, event));
        }
    }

    /// A watch on this machine's ports, and the events that it emitted.
    #[cfg(not(miri))]
    fn watch() -> (Ports, Arc<Recorded>) {
        let (events, recorded) = (Arc::<EventSink>::default(), Arc::<Recorded>::default());
        events.set(Some(recorded.clone()));
        (Ports::new(events).unwrap(), recorded)
    }

    #[cfg(not(miri))]
    #[test]
    fn messages_without_a_change_raise_no_event_and_a_change_raises_one() {
        let (ports, recorded) = watch();
        ports.on_ready(Ready::default());
        assert_eq!(*lock(&recorded.0), []);
        // As if all ports had appeared just now.
        lock(&ports.state).known.clear();
        let online = |port: &PortInfo| port.online;
        let count = super::ports().unwrap().iter().filter(|port| online(port)).count();
        assert_ne!(count, 0, "not even a loopback");
        for _ in 0..2 {
            ports.on_ready(Ready::default());
            assert_eq!(lock(&recorded.0).len(), count);
        }
    }

    /// In order: the thread that is delivering delivers these, too.
    #[cfg(not(miri))]
    #[test]
    fn a_thread_passes_events_to_one_that_is_delivering() {
        let (ports, recorded) = watch();
        {
            let mut state = lock(&ports.state);
            state.known.clear();
            state.delivering = true;
        }
        ports.on_ready(Ready::default());
        assert_eq!(*lock(&recorded.0), []);
        lock(&ports.state).delivering = false;
        ports.on_ready(Ready::default());
        assert_ne!(*lock(&recorded.0), []);
    }

    /// A persisting change is reported once: the engine's set is edge-triggered.
    #[cfg(not(miri))]
    #[test]
    fn all_messages_are_taken() {
        let (mut ports, _) = watch();
        let (netlink, sender) = std::os::unix::net::UnixDatagram::pair().unwrap();
        netlink.set_nonblocking(true).unwrap();
        ports.netlink = netlink.into();
        (0..3).for_each(|_| assert_eq!(sender.send(b"link").unwrap(), 4));
        ports.on_ready(Ready::default());
        let mut rest = [0; 8];
        assert!(rustix::net::recv(&ports.netlink, &mut rest[..], RecvFlags::empty()).is_err());
    }

    #[test]
    fn only_what_the_consumer_can_use_counts() {
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let before = [port("lo", &[a]), port("eth0", &[]), port("eth1", &[b])];
        assert_eq!(seen(&before, &before), []);
        let offline = [port("lo", &[a]), port("eth0", &[]), port("eth1", &[])];
        assert_eq!(seen(&before, &offline), [(2, false)]);
        assert_eq!(seen(&offline, &before), [(2, true)]);
        let moved = [port("lo", &[a]), port("eth0", &[]), port("eth1", &[a, b])];
        assert_eq!(seen(&before, &moved), [(2, true)]);
        let fewer = [port("lo", &[a]), port("eth1", &[b])];
        assert_eq!(seen(&before, &fewer), []);
        assert_eq!(seen(&before, &fewer[..1]), [(2, false)]);
        assert_eq!(seen(&fewer[..1], &before), [(2, true)]);
        let mut slower = before.clone();
        slower[2].mtu = 1280;
        assert_eq!(seen(&before, &slower), []);
    }
}
