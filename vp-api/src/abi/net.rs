//! Conversion of addresses, ports, devices and an RNIC's limits between Rust and C. No state.

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::types::Sized32;
use super::{codes, grow, text, types as c};
use crate::{DeviceInfo, PortInfo, RnicAttrs};

/// The longest list of ports or addresses that is accepted.
const MOST: u32 = 4096;

const NONE: c::Address = c::Address { family: 0, port: 0, scope: 0, octets: [0; 16] };

pub(super) fn address_to(address: Option<SocketAddr>) -> c::Address {
    match address {
        None => NONE,
        Some(SocketAddr::V4(v4)) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&v4.ip().octets());
            c::Address { family: 4, port: v4.port(), scope: 0, octets }
        }
        Some(SocketAddr::V6(v6)) => c::Address {
            family: 6,
            port: v6.port(),
            scope: v6.scope_id(),
            octets: v6.ip().octets(),
        },
    }
}

pub(super) fn address_from(address: &c::Address) -> Option<SocketAddr> {
    let [a, b, c, d, ..] = address.octets;
    match address.family {
        4 => Some((Ipv4Addr::new(a, b, c, d), address.port).into()),
        6 => {
            let ip = Ipv6Addr::from(address.octets);
            Some(SocketAddrV6::new(ip, address.port, 0, address.scope).into())
        }
        _ => None,
    }
}

/// Calls `with` with the port in its C form.
pub(super) fn lend_port<R>(port: &PortInfo, with: impl FnOnce(&c::Port) -> R) -> R {
    let addresses: Vec<c::Address> =
        port.addresses.iter().map(|ip| address_to(Some((*ip, 0).into()))).collect();
    with(&c::Port {
        online: port.online.into(),
        mtu: port.mtu,
        address_count: addresses.len() as u32,
        addresses: addresses.as_ptr(),
        interface_name: text::lend(&port.interface),
        ..c::Port::blank()
    })
}

/// # Safety
///
/// `port` points to a port as the header demands.
pub(super) unsafe fn port(port: *const c::Port) -> PortInfo {
    // SAFETY: the caller's promise.
    let port = unsafe { grow::read(port) };
    // SAFETY: the same; addresses are of a fixed size.
    let addresses = unsafe { list(port.addresses, port.address_count) };
    let ips = addresses.iter().filter_map(address_from).map(|a: SocketAddr| -> IpAddr { a.ip() });
    PortInfo {
        // SAFETY: the same.
        interface: unsafe { text::line(port.interface_name) },
        online: port.online != 0,
        mtu: port.mtu,
        addresses: ips.collect(),
    }
}

/// # Safety
///
/// `count` elements at `first` are readable, or `first` is null.
unsafe fn list<T: Copy>(first: *const T, count: u32) -> Vec<T> {
    if first.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise; the borrow ends with the copy.
    unsafe { std::slice::from_raw_parts(first, count.min(MOST) as usize) }.to_vec()
}

/// Calls `with` with the device in its C form.
pub(super) fn lend_device(device: &DeviceInfo, with: &mut dyn FnMut(&c::Device)) {
    lend_ports(device, &device.ports, &mut Vec::new(), with);
}

fn lend_ports(
    device: &DeviceInfo,
    left: &[PortInfo],
    lent: &mut Vec<*const c::Port>,
    with: &mut dyn FnMut(&c::Device),
) {
    if let Some((first, rest)) = left.split_first() {
        return lend_port(first, |port| {
            lent.push(port);
            lend_ports(device, rest, lent, with);
        });
    }
    with(&c::Device {
        port_count: lent.len() as u32,
        ports: lent.as_ptr(),
        name: text::lend(&device.name),
        transport: codes::transport_code(device.transport),
        ..c::Device::blank()
    });
}

/// Callback that receives devices: `receiver` is a `Vec<DeviceInfo>`.
pub(super) unsafe extern "C" fn take_device(receiver: *mut c_void, device: *const c::Device) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the provider passes on the receiver that it was called with, while that call
        // lasts, and no other reference to the list exists meanwhile.
        let devices = unsafe { &mut *receiver.cast::<Vec<DeviceInfo>>() };
        // SAFETY: a device as the header demands.
        let device = unsafe { grow::read(device) };
        // SAFETY: the device has this number of pointers.
        let ports = unsafe { list(device.ports, device.port_count) };
        devices.push(DeviceInfo {
            // SAFETY: a string as the header demands.
            name: unsafe { text::copy(device.name) },
            transport: codes::transport(device.transport),
            // SAFETY: ports as the header demands.
            ports: ports.into_iter().map(|p| unsafe { port(p) }).collect(),
        });
    }));
}

/// Callback that receives ports: `receiver` is a `Vec<PortInfo>`.
pub(super) unsafe extern "C" fn take_port(receiver: *mut c_void, from: *const c::Port) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as in `take_device`.
        let ports = unsafe { &mut *receiver.cast::<Vec<PortInfo>>() };
        // SAFETY: a port as the header demands.
        ports.push(unsafe { port(from) });
    }));
}

macro_rules! limits {
    ($($name:ident)+) => {
        /// The attributes, valid as long as `attrs` is.
        pub(super) fn attrs_to(attrs: &RnicAttrs) -> c::RnicAttrs {
            c::RnicAttrs {
                connection_model: codes::model_code(attrs.connection_model),
                capabilities: attrs.capabilities.bits(),
                vendor: text::lend(&attrs.vendor),
                model: text::lend(&attrs.model),
                firmware: text::lend(&attrs.firmware),
                max_mr_octets: attrs.max_mr_octets,
                max_ird: attrs.max_ird.into(),
                max_ord: attrs.max_ord.into(),
                $($name: attrs.$name,)+
                ..c::RnicAttrs::blank()
            }
        }

        /// Copies the attributes of a provider whose header has this minor version; `None` if the connection model
        /// is unknown.
        ///
        /// # Safety
        ///
        /// The strings are as the header demands.
        pub(super) unsafe fn attrs_from(from: &c::RnicAttrs, minor: u16) -> Option<RnicAttrs> {
            // SAFETY: the caller's promise.
            let vendor = unsafe { text::line(from.vendor) };
            // SAFETY: the same.
            let model = unsafe { text::line(from.model) };
            let small = |limit: u32| limit.min(u16::MAX.into()) as u16;
            Some(RnicAttrs {
                // SAFETY: the same.
                firmware: unsafe { text::line(from.firmware) },
                capabilities: codes::capabilities(from.capabilities, minor),
                max_mr_octets: from.max_mr_octets,
                max_ird: small(from.max_ird),
                max_ord: small(from.max_ord),
                $($name: from.$name,)+
                ..RnicAttrs::new(&vendor, &model, codes::model(from.connection_model)?)
            })
        }
    };
}

limits! {
    max_qp max_wr_per_qp max_wr_per_srq max_sge_send max_sge_recv max_sge_write max_sge_read
    max_inline max_cq max_cqe max_srq max_pd max_mr max_mw max_message
    max_private_connect max_private_accept max_private_reject
}
