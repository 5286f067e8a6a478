//! The target's datagram service: resolves to one endpoint, which replies to each datagram with its length and the first
//! octets of its receive, the 40 of the IP header included.
//!
//! Two threads: one accepts requests, one replies. A datagram that cannot be answered is lost, as datagrams are.

use std::net::SocketAddr;
use std::time::Duration;

use itapi::{Completion, Evd, GRH_OCTETS, Ia, Operation, Pz, UdAddress, UdEp, Work};

use crate::error::CliResult;

/// Receives that are posted.
const RECEIVES: usize = 32;
/// Octets of a receive after the header.
const ROOM: usize = 4096;
/// Octets of the receive that are sent back.
const SHOWN: usize = GRH_OCTETS + 64;

struct Service {
    pz: Pz,
    evd: Evd,
    ud: UdEp,
}

/// Serves datagrams at `address`, if the device has any.
pub(super) fn start(ia: &Ia, address: SocketAddr, quiet: bool) -> CliResult<()> {
    if ia.datagram_attrs().is_none() {
        return Ok(());
    }
    let (pz, evd) = (ia.pz()?, ia.evd(256)?);
    let has = |port: &itapi::PortInfo| port.addresses.contains(&address.ip());
    let port = ia.ports()?.iter().position(has).unwrap_or(0);
    let ud = pz.ud(&evd).depth(64, RECEIVES as u32).port(port as u32).build()?;
    for buffer in pz.buffers(RECEIVES, GRH_OCTETS + ROOM)? {
        ud.post_recv(buffer)?;
    }
    let (listen, to) = (ia.listen_datagrams(address)?, ud.address());
    let service = Service { pz, evd, ud };
    let named = |name: &str| std::thread::Builder::new().name(name.into());
    named("services").spawn(move || {
        // The listener fails only with its device.
        while let Ok(request) = listen.request() {
            let data: Vec<u8> = request.private_data().iter().take(16).copied().collect();
            // The tester asks again.
            let _ = request.accept(to, &data);
        }
    })?;
    named("datagrams").spawn(move || {
        loop {
            match service.evd.wait(Duration::MAX) {
                Ok(Some(completion)) => drop(service.completed(completion)),
                Ok(None) => {}
                Err(error) => {
                    if !quiet {
                        eprintln!("{error}");
                    }
                    return;
                }
            }
        }
    })?;
    Ok(())
}

impl Service {
    fn completed(&self, completion: Completion) -> itapi::Result<()> {
        if completion.operation != Operation::Recv {
            return Ok(());
        }
        let (octets, immediate) = (completion.octets, completion.immediate);
        let (arrived, source) = (completion.check().is_ok(), completion.source.clone());
        let Some(buffer) = completion.into_buffer() else { return Ok(()) };
        let mut reply = octets.to_be_bytes().to_vec();
        reply.extend(buffer.iter().take(SHOWN));
        reply.extend(immediate.map_or([0; 4], |value| (value as u32).to_be_bytes()));
        self.ud.post_recv(buffer)?;
        let Some((qpn, path)) = source.and_then(|source| Some((source.qpn, source.path?))) else {
            return Ok(());
        };
        if arrived {
            let handle = self.pz.address_handle(&path)?;
            let to = UdAddress { qpn, qkey: self.ud.address().qkey };
            let mut buffer = self.pz.buffer(reply.len())?;
            buffer.fill(&reply)?;
            self.ud.post(&handle, to, Work::send(buffer))?;
        }
        Ok(())
    }
}
