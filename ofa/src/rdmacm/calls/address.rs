//! Addresses: rdma_bind_addr(3), rdma_resolve_addr(3), rdma_resolve_route(3), rdma_get_src_port(3),
//! rdma_get_dst_port(3).

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use ibv_sys::*;

use super::id::{complete, id_of, show};
use crate::errno::{self, EINVAL, Errno};
use crate::record;

/// An address of C's; `None` for NULL. EINVAL: neither IPv4 nor IPv6.
pub(super) unsafe fn read(address: *const libc::sockaddr) -> Result<Option<SocketAddr>, Errno> {
    // SAFETY: NULL, or the caller's address.
    let Some(head) = (unsafe { address.as_ref() }) else { return Ok(None) };
    match i32::from(head.sa_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one of these; it may be less aligned.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Ok(Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Ok(Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into()))
        }
        _ => Err(EINVAL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_bind_addr(
    id: *mut rdma_cm_id,
    address: *mut libc::sockaddr,
) -> c_int {
    // SAFETY: the caller's identifier and address.
    errno::minus(record::call("rdma_bind_addr", unsafe { bind(id, address) }))
}

pub(super) unsafe fn bind(
    id: *mut rdma_cm_id,
    address: *const libc::sockaddr,
) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) }?;
    // SAFETY: the caller's address.
    let address = unsafe { read(address) }?.ok_or(EINVAL)?;
    private.bind(address)?;
    // SAFETY: as above.
    unsafe { show(id) };
    Ok(())
}

/// There is nothing to wait for, so the time-out does not matter.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_resolve_addr(
    id: *mut rdma_cm_id,
    local: *mut libc::sockaddr,
    remote: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's identifier and addresses.
    errno::minus(record::call("rdma_resolve_addr", unsafe { resolve_address(id, local, remote) }))
}

pub(super) unsafe fn resolve_address(
    id: *mut rdma_cm_id,
    local: *const libc::sockaddr,
    remote: *const libc::sockaddr,
) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    let private = unsafe { id_of(id) }?;
    // SAFETY: the caller's addresses.
    let local = unsafe { read(local) }?;
    // SAFETY: as above.
    let remote = unsafe { read(remote) }?.ok_or(EINVAL)?;
    private.resolve_address(local, remote)?;
    // SAFETY: as above.
    unsafe { show(id) };
    // SAFETY: as above.
    unsafe { complete(id) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn warpline_rdma_resolve_route(
    id: *mut rdma_cm_id,
    timeout_ms: c_int,
) -> c_int {
    if timeout_ms == 0 {
        return errno::minus(Err(EINVAL));
    }
    // SAFETY: the caller's identifier.
    errno::minus(unsafe { resolve_route(id) })
}

pub(super) unsafe fn resolve_route(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller's identifier.
    unsafe { id_of(id) }?.resolve_route()?;
    // SAFETY: as above.
    unsafe { show(id) };
    // SAFETY: as above.
    unsafe { complete(id) }
}

/// In network order; 0 without an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's identifier.
    let address = unsafe { id_of(id) }.ok().and_then(|private| private.view().local);
    address.map_or(0, |address| address.port().to_be())
}

/// In network order; 0 without an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's identifier.
    let address = unsafe { id_of(id) }.ok().and_then(|private| private.view().remote);
    address.map_or(0, |address| address.port().to_be())
}
