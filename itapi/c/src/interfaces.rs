//! `it_interface_list`: the adapters that can be opened. No state; the caller's thread.

use std::ffi::c_char;

use ual::Ual;

use super::boundary;
use super::failure::Failure;
use super::ia::NAME_SIZE;
use super::info::transport_type;
use super::ptr::{Out, OutList, Plain};
use super::status;
use super::types::*;

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_interface_list(
    interfaces: *mut it_interface_t,
    num_interfaces: *mut usize,
    total_interfaces: *mut usize,
) {
    // SAFETY: contract of a C caller.
    let count = unsafe { Out::optional(num_interfaces) };
    // SAFETY: contract of a C caller.
    let total = unsafe { Out::optional(total_interfaces) };
    let listed = boundary::create(|| {
        let capacity = count.as_ref().map_or(0, Out::read);
        let capacity = if interfaces.is_null() { 0 } else { capacity };
        // SAFETY: contract of a C caller; the room is `num_interfaces`.
        let room = unsafe { OutList::new(interfaces, capacity, "interfaces") }?;
        let ual = Ual::new().map_err(Failure::by(status::IT_ERR_RESOURCES))?;
        let found = interfaces_of(&ual);
        count.as_ref().inspect(|count| count.write(found.len().min(room.len())));
        total.as_ref().inspect(|total| total.write(found.len()));
        found.into_iter().enumerate().for_each(|(n, interface)| room.write(n, interface));
        Ok(())
    });
    // In the standard this call returns no status: on failure it returns no interfaces, and
    // `itw_last_error` has the reason.
    if listed != status::IT_SUCCESS {
        count.inspect(|count| count.write(0));
        total.inspect(|total| total.write(0));
    }
}

fn fits(name: &str) -> bool {
    let fits = name.len() < NAME_SIZE;
    if !fits {
        tracing::warn!(
            "it_interface_list leaves out {name}: names have up to {} octets",
            NAME_SIZE - 1
        );
    }
    fits
}

fn interfaces_of(ual: &Ual) -> Vec<it_interface_t> {
    let usable = ual.providers().into_iter().filter_map(|provider| provider.devices.ok());
    // A name that is cut would open nothing.
    let named = usable.flatten().filter(|device| fits(&device.name)).map(|device| {
        let mut interface = it_interface_t {
            major_version: 2,
            minor_version: 1,
            transport_type: transport_type(device.transport),
            ..it_interface_t::zeroed()
        };
        // The last octet stays NUL.
        interface
            .name
            .iter_mut()
            .zip(device.name.bytes())
            .for_each(|(to, from)| *to = from as c_char);
        interface
    });
    named.collect()
}
