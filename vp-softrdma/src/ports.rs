//! Watches the ports: an event for each one that became usable, stopped being it, or has other
//! addresses.
//!
//! One per RNIC. Its socket hears of every change of a link or an address (rtnetlink(7)) and is in
//! the engine's set like a QP's; whichever thread finds it readable compares the ports with what
//! they were. Peers have no part in it: theirs end by their own time-outs.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use kal_os::Interface;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink};
use vp_api::{AsyncEvent, EventSource, PortInfo};

use crate::engine::{Engine, Member, Ready, Timer};
use crate::events::EventSink;
use crate::sync::{Mutex, lock};

/// The engine's name for it; no QP has it.
const ID: u32 = 0;
/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR` of linux/rtnetlink.h.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// The watch.
pub(crate) struct Ports {
    news: OwnedFd,
    events: Arc<EventSink>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Vec<PortInfo>,
    untold: Vec<(EventSource, AsyncEvent)>,
    /// A thread is telling events; it tells the ones that come meanwhile, too.
    telling: bool,
}

impl Ports {
    /// Begins to watch.
    pub(crate) fn watch(engine: &Engine, events: &Arc<EventSink>) -> std::io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let news = rustix::net::socket_with(
            rustix::net::AddressFamily::NETLINK,
            SocketType::RAW,
            flags,
            None, // NETLINK_ROUTE
        )?;
        rustix::net::bind(&news, &SocketAddrNetlink::new(0, GROUPS))?;
        // After that nothing goes unnoticed.
        let state = State { known: ports()?, ..State::default() };
        let ports = Arc::new(Self { news, events: events.clone(), state: Mutex::new(state) });
        engine.attach(ID, ports.clone(), &ports.news).map(drop)
    }

    /// Empties the socket, whose messages say less than a look at the ports.
    fn drain(&self) {
        let mut message = [0; 4096];
        loop {
            match rustix::net::recv(&self.news, &mut message[..], RecvFlags::TRUNC) {
                // Messages were lost for want of room; a look finds what they said.
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn look(&self, state: &mut State) {
        // Without an answer the next news brings the difference.
        let Ok(now) = ports() else { return };
        let known = std::mem::replace(&mut state.known, now);
        state.untold.extend(changes(&known, &state.known));
    }
}

/// The interfaces as ports. Online are those whose link is up and that have an address. Link-local
/// IPv6 is left out: without its scope it leads nowhere.
pub(crate) fn ports() -> std::io::Result<Vec<PortInfo>> {
    let leads = |address: &IpAddr| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let port = |mut one: Interface| {
        one.addresses.retain(leads);
        let online = one.online && !one.addresses.is_empty();
        PortInfo { interface: one.name, online, mtu: one.mtu, addresses: one.addresses }
    };
    Ok(kal_os::interfaces()?.into_iter().map(port).collect())
}

/// What became of each port. One that vanished has the index it had.
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
        self.look(&mut state);
        if std::mem::replace(&mut state.telling, true) {
            return;
        }
        while !state.untold.is_empty() {
            let untold = std::mem::take(&mut state.untold);
            drop(state);
            for (source, event) in untold {
                self.events.emit(source, event);
            }
            state = lock(&self.state);
        }
        state.telling = false;
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
