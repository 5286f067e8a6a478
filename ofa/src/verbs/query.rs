//! Queries of a device: ibv_query_device(3), ibv_query_device_ex(3), ibv_query_port(3),
//! ibv_query_gid(3), ibv_query_gid_ex(3), ibv_query_pkey(3).

use std::ffi::c_int;
use std::mem::{offset_of, size_of};

use ibv_sys::*;

use crate::adapter::Adapter;
use crate::caps;
use crate::device::Device;
use crate::errno::{self, EINVAL, EOPNOTSUPP, Errno};
use crate::verbs::context::{PORT, context_of};
use crate::verbs::cq_ex::{CLOCK_KHZ, ticks};
use crate::verbs::device::text;
use ual::gid::{self, Gids};

/// The size that programs of rdma-core 44 and before have room for.
const PLAIN_PORT: usize = offset_of!(ibv_port_attr, port_cap_flags2);

fn device_attr(adapter: &Adapter) -> ibv_device_attr {
    let attrs = adapter.attrs();
    ibv_device_attr { fw_ver: text(&attrs.firmware), ..caps::device(adapter) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the caller's context.
    let context = unsafe { context_of(context) };
    errno::code(context.and_then(|context| {
        let known = device_attr(context.adapter()?);
        // SAFETY: the caller's structure.
        unsafe { attr.write(known) };
        Ok(())
    }))
}

/// # Safety
/// The module's.
pub(super) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: NULL, or the caller's structure.
    if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0)
        || size < size_of::<ibv_device_attr>()
    {
        return libc::EINVAL;
    }
    // SAFETY: the caller's context.
    let context = unsafe { context_of(context) };
    errno::code(context.and_then(|context| {
        let known = ibv_device_attr_ex {
            orig_attr: device_attr(context.adapter()?),
            comp_mask: 0,
            odp_caps: [0; 3],
            completion_timestamp_mask: u64::MAX,
            hca_core_clock: CLOCK_KHZ,
            device_cap_flags_ex: caps::FLAGS.into(),
            unserved: [0; 12],
            // Of 8 octets.
            pci_atomic_caps: [0; 3],
            xrc_odp_caps: 0,
            phys_port_cnt_ex: 1,
        };
        // SAFETY: the caller has room for `size` octets; later fields than it or we know stay zeroes.
        unsafe { copy_out(&known, attr.cast(), size) };
        Ok(())
    }))
}

/// The device's clock, by which completions get time stamps (ibv_query_rt_values_ex(3)): as of adapters, its ticks are
/// where nanoseconds would be.
///
/// # Safety
/// The module's.
pub(super) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    // SAFETY: the caller's context.
    let context = unsafe { context_of(context) };
    // SAFETY: NULL, or the caller's structure.
    let values = unsafe { values.as_mut() }.ok_or(EINVAL);
    errno::code(context.and_then(|context| {
        let values = values?;
        context.adapter()?;
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(EINVAL);
        }
        if values.comp_mask != 0 {
            values.raw_clock = [0, ticks()];
        }
        Ok(())
    }))
}

/// Copies as much as fits, and fills the rest with zeroes.
///
/// # Safety
/// `size` octets at `to` may be written.
unsafe fn copy_out<T: Copy>(known: &T, to: *mut u8, size: usize) {
    let octets = size.min(size_of::<T>());
    // SAFETY: the caller's promise, and `known` has at least as many.
    unsafe { std::ptr::copy_nonoverlapping((&raw const *known).cast(), to, octets) };
    // SAFETY: as above; what is left of `size`.
    unsafe { to.wrapping_add(octets).write_bytes(0, size - octets) };
}

unsafe fn port_attr(context: *mut ibv_context, port: u8) -> Result<ibv_port_attr, Errno> {
    if port != PORT {
        return Err(EINVAL);
    }
    // SAFETY: the caller's context.
    let context = unsafe { context_of(context) }?;
    let adapter = context.adapter()?;
    Ok(caps::port(adapter, &adapter.device().ports()?))
}

/// Writes the fields that binaries of every version have room for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's context and structure, which is at least so long.
    unsafe { query_port_sized(context, port, attr, PLAIN_PORT) }
}

/// # Safety
/// The module's; `size` octets at `attr` may be written.
pub(super) unsafe extern "C" fn query_port_sized(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: the caller's context.
    let known = unsafe { port_attr(context, port) };
    errno::code(known.map(|known| {
        // SAFETY: the caller's promise.
        unsafe { copy_out(&known, attr.cast(), size) }
    }))
}

/// The GIDs of a port.
unsafe fn gids(context: *mut ibv_context, port: u32) -> Result<Gids, Errno> {
    // SAFETY: the caller's context.
    unsafe { gid_table(context, port) }.map(|(gids, _)| gids)
}

/// The same, and the device.
unsafe fn gid_table(
    context: *mut ibv_context,
    port: u32,
) -> Result<(Gids, &'static Device), Errno> {
    // SAFETY: the caller's context.
    let context = unsafe { context_of(context) }?;
    if port != u32::from(PORT) {
        return Err(EINVAL);
    }
    let device = context.adapter()?.device();
    Ok((device.gids()?, device))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: the caller's context.
    let gids = unsafe { gids(context, port.into()) };
    errno::minus(gids.and_then(|gids| {
        let at = usize::try_from(index).map_err(|_| EINVAL)?;
        let raw = *gids.table().get(at).ok_or(EINVAL)?;
        // SAFETY: the caller's structure.
        unsafe { gid.write_unaligned(ibv_gid { raw }) };
        Ok(())
    }))
}

fn entries<'a>(
    gids: &'a Gids,
    device: &'static Device,
) -> impl Iterator<Item = ibv_gid_entry> + 'a {
    gids.table().iter().enumerate().map(move |(index, raw)| ibv_gid_entry {
        gid: ibv_gid { raw: *raw },
        gid_index: index as u32,
        port_num: PORT.into(),
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: device.interface_of(gid::address_of(*raw)),
    })
}

/// Copies an entry for a caller whose structure has `size` octets.
unsafe fn write_entry(entry: &ibv_gid_entry, to: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_out(entry, to, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline__ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 {
        return errno::code(Err(EOPNOTSUPP));
    }
    // SAFETY: the caller's context.
    let table = unsafe { gid_table(context, port) };
    errno::code(table.and_then(|(gids, device)| {
        let known = entries(&gids, device).nth(index as usize).ok_or(EINVAL)?;
        // SAFETY: the caller's structure of `size` octets.
        unsafe { write_entry(&known, entry.cast(), size) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline__ibv_query_gid_table(
    context: *mut ibv_context,
    table: *mut ibv_gid_entry,
    most: usize,
    flags: u32,
    size: usize,
) -> isize {
    let refuse = |error: Errno| {
        errno::set(error);
        -(error.0 as isize)
    };
    if flags != 0 || size == 0 {
        return refuse(EOPNOTSUPP);
    }
    // SAFETY: the caller's context.
    let (gids, device) = match unsafe { gid_table(context, PORT.into()) } {
        Ok((gids, device)) if most >= gids.table().len() => (gids, device),
        Ok(_) => return refuse(EINVAL),
        Err(error) => return refuse(error),
    };
    for (at, known) in entries(&gids, device).enumerate() {
        let to = table.cast::<u8>().wrapping_add(at * size);
        // SAFETY: the caller's array of `most` structures of `size` octets.
        unsafe { write_entry(&known, to, size) };
    }
    gids.table().len() as isize
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    kind: *mut u32,
) -> c_int {
    // SAFETY: the caller's context.
    let gids = unsafe { gids(context, port.into()) };
    errno::minus(gids.and_then(|gids| {
        gids.table().get(index as usize).ok_or(EINVAL)?;
        // SAFETY: the caller's number.
        unsafe { kind.write(IBV_GID_TYPE_SYSFS_ROCE_V2) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: the caller's context.
    let gids = unsafe { gids(context, port.into()) };
    errno::minus(gids.and_then(|_| {
        if index != 0 {
            return Err(EINVAL);
        }
        // SAFETY: the caller's number.
        unsafe { pkey.write(u16::MAX) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_get_pkey_index(
    context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    // SAFETY: the caller's context.
    let known = unsafe { gids(context, port.into()) };
    errno::minus(known.and(if pkey == u16::MAX { Ok(()) } else { Err(EINVAL) }))
}
