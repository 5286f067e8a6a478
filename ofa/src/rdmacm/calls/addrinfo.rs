//! Names to addresses: rdma_getaddrinfo(3), rdma_freeaddrinfo(3). Uses only the system's resolver; ports
//! are those that programs see, not those on the wire.
//!
//! A list belongs to the application until it is freed; each entry owns its addresses and names. They are the
//! C library's memory, because programs put addresses of their own into a list, as rdma-core lets them.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use ibv_sys::*;

use crate::errno::{self, EINVAL};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: NULL, or the caller's hints.
    let hints = unsafe { hints.as_ref() };
    if res.is_null() || (node.is_null() && service.is_null() && hints.is_none()) {
        return errno::minus(Err(EINVAL));
    }
    let found = if node.is_null() && service.is_null() {
        Ok(hints.map_or_else(null_mut, |hints| {
            // SAFETY: the caller's hints.
            unsafe { from_hints(hints) }
        }))
    } else {
        // SAFETY: the caller's strings.
        unsafe { resolve(node, service, hints) }
    };
    match found {
        Ok(list) => {
            // SAFETY: the caller's variable.
            unsafe { res.write(list) };
            0
        }
        Err(code) => code,
    }
}

/// For a program that has addresses already: the same ones.
unsafe fn from_hints(hints: &rdma_addrinfo) -> *mut rdma_addrinfo {
    // SAFETY: the caller's address.
    let destination = unsafe { copy(hints.ai_dst_addr, hints.ai_dst_len) };
    // SAFETY: as above.
    let source = unsafe { copy(hints.ai_src_addr, hints.ai_src_len) };
    allocate(rdma_addrinfo {
        ai_flags: hints.ai_flags,
        ai_family: hints.ai_family,
        ai_qp_type: hints.ai_qp_type,
        ai_port_space: hints.ai_port_space,
        ai_dst_len: if destination.is_null() { 0 } else { hints.ai_dst_len },
        ai_dst_addr: destination,
        ai_src_len: if source.is_null() { 0 } else { hints.ai_src_len },
        ai_src_addr: source,
        ..blank()
    })
}

/// An entry in memory of its own.
fn allocate(entry: rdma_addrinfo) -> *mut rdma_addrinfo {
    // SAFETY: no preconditions.
    let at = unsafe { libc::malloc(size_of::<rdma_addrinfo>()) }.cast::<rdma_addrinfo>();
    assert!(!at.is_null(), "no memory for an address");
    // SAFETY: allocated just now, and aligned for everything.
    unsafe { at.write(entry) };
    at
}

fn blank() -> rdma_addrinfo {
    rdma_addrinfo {
        ai_flags: 0,
        ai_family: 0,
        ai_qp_type: IBV_QPT_RC as c_int,
        ai_port_space: RDMA_PS_TCP as c_int,
        ai_src_len: 0,
        ai_dst_len: 0,
        ai_src_addr: null_mut(),
        ai_dst_addr: null_mut(),
        ai_src_canonname: null_mut(),
        ai_dst_canonname: null_mut(),
        ai_route_len: 0,
        ai_route: null_mut(),
        ai_connect_len: 0,
        ai_connect: null_mut(),
        ai_next: null_mut(),
    }
}

/// Calls the resolver; the error is its code.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<*mut rdma_addrinfo, c_int> {
    let asked = hints.map_or(0, |hints| hints.ai_flags);
    let passive = asked & RAI_PASSIVE != 0;
    // SAFETY: zeroes ask for nothing.
    let mut wanted: libc::addrinfo = unsafe { std::mem::zeroed() };
    wanted.ai_socktype = libc::SOCK_STREAM;
    let flag = |asked_for, flag| if asked & asked_for != 0 { flag } else { 0 };
    wanted.ai_flags =
        flag(RAI_PASSIVE, libc::AI_PASSIVE) | flag(RAI_NUMERICHOST, libc::AI_NUMERICHOST);
    wanted.ai_family = match hints {
        Some(hints) if asked & RAI_FAMILY != 0 => hints.ai_family,
        _ => libc::AF_UNSPEC,
    };
    if let Some(hints) = hints
        && hints.ai_qp_type == IBV_QPT_UD as c_int
    {
        wanted.ai_socktype = libc::SOCK_DGRAM;
    }
    let mut found = null_mut();
    // SAFETY: the caller's strings, and variables of this function.
    let code = unsafe { libc::getaddrinfo(node, service, &raw const wanted, &raw mut found) };
    if code != 0 {
        return Err(code);
    }
    // SAFETY: the resolver's list, which lives until it is freed below.
    let list = unsafe { entries(found, passive, hints) };
    // SAFETY: the resolver's list, given back once.
    unsafe { libc::freeaddrinfo(found) };
    // SAFETY: made just now; the caller's hints.
    unsafe { add_source(list, hints) };
    Ok(list)
}

/// A list like the resolver's.
unsafe fn entries(
    found: *const libc::addrinfo,
    passive: bool,
    hints: Option<&rdma_addrinfo>,
) -> *mut rdma_addrinfo {
    let hinted = |field: fn(&rdma_addrinfo) -> c_int| hints.map(field).filter(|value| *value != 0);
    let mut all = Vec::new();
    let mut at = found;
    // SAFETY: the resolver's list ends with NULL.
    while let Some(one) = unsafe { at.as_ref() } {
        // SAFETY: its address.
        let address = unsafe { copy(one.ai_addr, one.ai_addrlen) };
        // SAFETY: NULL, or a string.
        let name = unsafe { copy_name(one.ai_canonname) };
        let datagram = one.ai_socktype == libc::SOCK_DGRAM;
        let (kind, space) =
            if datagram { (IBV_QPT_UD, RDMA_PS_UDP) } else { (IBV_QPT_RC, RDMA_PS_TCP) };
        let mut entry = blank();
        entry.ai_flags = hinted(|hints| hints.ai_flags).unwrap_or(0);
        entry.ai_family = one.ai_family;
        entry.ai_qp_type = hinted(|hints| hints.ai_qp_type).unwrap_or(kind as c_int);
        entry.ai_port_space = hinted(|hints| hints.ai_port_space).unwrap_or(space as c_int);
        if passive {
            (entry.ai_src_addr, entry.ai_src_len) = (address, one.ai_addrlen);
            entry.ai_src_canonname = name;
        } else {
            (entry.ai_dst_addr, entry.ai_dst_len) = (address, one.ai_addrlen);
            entry.ai_dst_canonname = name;
        }
        all.push(entry);
        at = one.ai_next;
    }
    all.into_iter().rev().fold(null_mut(), |next, mut entry| {
        entry.ai_next = next;
        allocate(entry)
    })
}

/// The source that the hints have, for entries without one.
unsafe fn add_source(list: *mut rdma_addrinfo, hints: Option<&rdma_addrinfo>) {
    let Some(hints) = hints else { return };
    let mut at = list;
    // SAFETY: a list of `entries`, not shared yet.
    while let Some(entry) = unsafe { at.as_mut() } {
        if entry.ai_src_addr.is_null() && entry.ai_family == family_of(hints) {
            // SAFETY: the caller's address.
            entry.ai_src_addr = unsafe { copy(hints.ai_src_addr, hints.ai_src_len) };
            entry.ai_src_len = if entry.ai_src_addr.is_null() { 0 } else { hints.ai_src_len };
        }
        at = entry.ai_next;
    }
}

/// The family of the hints' source.
fn family_of(hints: &rdma_addrinfo) -> c_int {
    // SAFETY: NULL, or the caller's address.
    unsafe { hints.ai_src_addr.as_ref() }.map_or(libc::AF_UNSPEC, |head| head.sa_family.into())
}

/// Owned octets of an address; NULL for none.
unsafe fn copy(address: *const libc::sockaddr, len: libc::socklen_t) -> *mut libc::sockaddr {
    if address.is_null() || len == 0 || len as usize > size_of::<libc::sockaddr_storage>() {
        return null_mut();
    }
    // SAFETY: no preconditions.
    let to = unsafe { libc::malloc(len as usize) }.cast::<u8>();
    if !to.is_null() {
        // SAFETY: the caller's octets, and as many allocated just now.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), to, len as usize) };
    }
    to.cast()
}

unsafe fn copy_name(name: *const c_char) -> *mut c_char {
    if name.is_null() {
        return null_mut();
    }
    // SAFETY: the caller's string.
    unsafe { libc::strdup(name) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_freeaddrinfo(list: *mut rdma_addrinfo) {
    let mut at = list;
    // SAFETY: NULL, or an entry of the caller's list.
    while let Some(entry) = unsafe { at.as_ref() } {
        let next = entry.ai_next;
        let names = [entry.ai_src_canonname, entry.ai_dst_canonname].map(|name| name.cast());
        let addresses = [entry.ai_src_addr, entry.ai_dst_addr].map(|address| address.cast());
        let rest = [entry.ai_route, entry.ai_connect, at.cast()];
        for owned in names.into_iter().chain(addresses).chain(rest) {
            // SAFETY: NULL, or the C library's memory that the entry owns; the entry itself is last.
            unsafe { libc::free(owned) };
        }
        at = next;
    }
}
