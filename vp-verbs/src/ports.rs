//! The ports of a device, and their addresses.
//!
//! The kernel knows which device an address belongs to: an rdma_cm id that is bound to the address identifies the
//! device, for all transports. No state; runs on the caller's thread.

use std::net::SocketAddr;
use std::sync::Arc;

use vp_api::PortInfo;

use crate::addr;
use crate::cm::id::{CmId, EventChannel};
use crate::device::Context;
use crate::map;
use ibv_sys::{IBV_PORT_ACTIVE, RDMA_PS_TCP};

/// A port, and its number on the device.
struct Port {
    number: u8,
    info: PortInfo,
}

/// The ports: one for each network interface with addresses, one for each port without any.
pub(crate) fn list(context: &Arc<Context>) -> Vec<PortInfo> {
    gather(context).into_iter().map(|port| port.info).collect()
}

/// The position in the list of the port with this number.
pub(crate) fn index(context: &Arc<Context>, number: u32) -> u32 {
    let ports = gather(context);
    ports.iter().position(|port| u32::from(port.number) == number).unwrap_or(0) as u32
}

/// The number of the port at this position in the list.
pub(crate) fn number(context: &Arc<Context>, index: u32) -> Option<u8> {
    gather(context).get(index as usize).map(|port| port.number)
}

fn gather(context: &Arc<Context>) -> Vec<Port> {
    let mut out: Vec<Port> = Vec::new();
    for (interface, ip) in addr::local() {
        let Some(number) = port_of(context, SocketAddr::new(ip, 0)) else { continue };
        match out.iter_mut().find(|p| p.number == number && p.info.interface == interface) {
            Some(port) => port.info.addresses.push(ip),
            None => {
                let info = PortInfo { addresses: vec![ip], ..bare(context, number, interface) };
                out.push(Port { number, info });
            }
        }
    }
    let numbers = context.query().map_or(1, |attr| attr.phys_port_cnt.max(1));
    for number in 1..=numbers {
        if !out.iter().any(|port| port.number == number) {
            let name = format!("{}/{number}", context.name);
            let info = PortInfo { online: false, ..bare(context, number, name) };
            out.push(Port { number, info });
        }
    }
    out
}

fn bare(context: &Context, number: u8, interface: String) -> PortInfo {
    let attr = context.query_port(number).ok();
    PortInfo {
        interface,
        online: attr.is_some_and(|attr| attr.state == IBV_PORT_ACTIVE),
        mtu: attr.map_or(0, |attr| map::mtu(attr.active_mtu)),
        addresses: Vec::new(),
    }
}

/// The port of this device that an address leads to.
fn port_of(context: &Arc<Context>, address: SocketAddr) -> Option<u8> {
    let channel = EventChannel::new(context).ok()?;
    let id = CmId::new(context, &channel, 0, RDMA_PS_TCP).ok()?;
    id.bind(address).ok()?;
    id.is_here().then(|| id.port())
}
