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
    let found = match hints {
        Some(hints) if node.is_null() && service.is_null() => {
            // SAFETY: the caller's hints.
            unsafe { from_hints(hints) }
        }
        // SAFETY: the caller's strings.
        _ => unsafe { resolve(node, service, hints) },
    };
    match found {
        Ok(list) => {
            // SAFETY: the caller's variable.
            unsafe { res.write(list.into_raw()) };
            0
        }
        Err(code) => code,
    }
}

/// For a program that has addresses already: the same ones.
unsafe fn from_hints(hints: &rdma_addrinfo) -> Result<List, c_int> {
    let mut list = List::default();
    let entry = list.push()?;
    entry.ai_flags = hints.ai_flags;
    entry.ai_family = hints.ai_family;
    entry.ai_qp_type = hints.ai_qp_type;
    entry.ai_port_space = hints.ai_port_space;
    // SAFETY: the caller's addresses.
    (entry.ai_dst_addr, entry.ai_dst_len) = unsafe { copy(hints.ai_dst_addr, hints.ai_dst_len)? };
    // SAFETY: as above.
    (entry.ai_src_addr, entry.ai_src_len) = unsafe { copy(hints.ai_src_addr, hints.ai_src_len)? };
    Ok(list)
}

/// A list that is being made; freed unless it is passed on.
struct List {
    head: *mut rdma_addrinfo,
    tail: *mut rdma_addrinfo,
}

impl Default for List {
    fn default() -> Self {
        Self { head: null_mut(), tail: null_mut() }
    }
}

impl List {
    /// Adds a blank entry. Errors: no memory.
    fn push(&mut self) -> Result<&mut rdma_addrinfo, c_int> {
        let at = memory::take(size_of::<rdma_addrinfo>())?.cast::<rdma_addrinfo>();
        // SAFETY: allocated just now, and aligned for everything.
        unsafe { at.write(blank()) };
        // SAFETY: NULL, or the last entry of this list.
        match unsafe { self.tail.as_mut() } {
            Some(last) => last.ai_next = at,
            None => self.head = at,
        }
        self.tail = at;
        // SAFETY: written just now; borrowed as long as the list.
        Ok(unsafe { &mut *at })
    }

    /// Passes it on.
    fn into_raw(self) -> *mut rdma_addrinfo {
        std::mem::ManuallyDrop::new(self).head
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: its own entries, which nobody else has.
        unsafe { free(self.head) };
    }
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
) -> Result<List, c_int> {
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
    // SAFETY: the resolver's list, which lives until it is freed below; the caller's hints.
    let list = unsafe { entries(found, passive, hints) };
    // SAFETY: the resolver's list, given back once.
    unsafe { libc::freeaddrinfo(found) };
    list
}

/// A list like the resolver's, with the source that the hints have.
unsafe fn entries(
    found: *const libc::addrinfo,
    passive: bool,
    hints: Option<&rdma_addrinfo>,
) -> Result<List, c_int> {
    let hinted = |field: fn(&rdma_addrinfo) -> c_int| hints.map(field).filter(|value| *value != 0);
    let mut list = List::default();
    let mut at = found;
    // SAFETY: the resolver's list ends with NULL.
    while let Some(one) = unsafe { at.as_ref() } {
        let entry = list.push()?;
        let datagram = one.ai_socktype == libc::SOCK_DGRAM;
        let (kind, space) =
            if datagram { (IBV_QPT_UD, RDMA_PS_UDP) } else { (IBV_QPT_RC, RDMA_PS_TCP) };
        entry.ai_flags = hinted(|hints| hints.ai_flags).unwrap_or(0);
        entry.ai_family = one.ai_family;
        entry.ai_qp_type = hinted(|hints| hints.ai_qp_type).unwrap_or(kind as c_int);
        entry.ai_port_space = hinted(|hints| hints.ai_port_space).unwrap_or(space as c_int);
        // SAFETY: its address.
        let address = unsafe { copy(one.ai_addr, one.ai_addrlen)? };
        if passive {
            (entry.ai_src_addr, entry.ai_src_len) = address;
        } else {
            (entry.ai_dst_addr, entry.ai_dst_len) = address;
        }
        let name = if passive { &mut entry.ai_src_canonname } else { &mut entry.ai_dst_canonname };
        // SAFETY: NULL, or a string.
        *name = unsafe { copy_name(one.ai_canonname)? };
        // SAFETY: the caller's hints.
        unsafe { add_source(entry, hints)? };
        at = one.ai_next;
    }
    Ok(list)
}

/// The source that the hints have, for an entry without one.
unsafe fn add_source(
    entry: &mut rdma_addrinfo,
    hints: Option<&rdma_addrinfo>,
) -> Result<(), c_int> {
    let Some(hints) = hints else { return Ok(()) };
    if entry.ai_src_addr.is_null() && entry.ai_family == family_of(hints) {
        // SAFETY: the caller's address.
        let source = unsafe { copy(hints.ai_src_addr, hints.ai_src_len)? };
        (entry.ai_src_addr, entry.ai_src_len) = source;
    }
    Ok(())
}

/// The family of the hints' source.
fn family_of(hints: &rdma_addrinfo) -> c_int {
    // SAFETY: NULL, or the caller's address.
    unsafe { hints.ai_src_addr.as_ref() }.map_or(libc::AF_UNSPEC, |head| head.sa_family.into())
}

/// Owned octets of an address, and their number; NULL for none.
unsafe fn copy(
    address: *const libc::sockaddr,
    len: libc::socklen_t,
) -> Result<(*mut libc::sockaddr, libc::socklen_t), c_int> {
    if address.is_null() || len == 0 || len as usize > size_of::<libc::sockaddr_storage>() {
        return Ok((null_mut(), 0));
    }
    // SAFETY: the caller's octets.
    Ok((unsafe { memory::copy(address.cast(), len as usize)? }.cast(), len))
}

unsafe fn copy_name(name: *const c_char) -> Result<*mut c_char, c_int> {
    if name.is_null() {
        return Ok(null_mut());
    }
    // SAFETY: the caller's string.
    let octets = unsafe { libc::strlen(name) } + 1;
    // SAFETY: the same, with its end.
    Ok(unsafe { memory::copy(name.cast(), octets)? }.cast())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_rdma_freeaddrinfo(list: *mut rdma_addrinfo) {
    // SAFETY: NULL, or the caller's list.
    unsafe { free(list) }
}

/// # Safety
/// `list` is NULL or a list of [`List`], used no more.
unsafe fn free(list: *mut rdma_addrinfo) {
    let mut at = list;
    // SAFETY: NULL, or an entry of the list.
    while let Some(entry) = unsafe { at.as_ref() } {
        let next = entry.ai_next;
        let names = [entry.ai_src_canonname, entry.ai_dst_canonname].map(|name| name.cast());
        let addresses = [entry.ai_src_addr, entry.ai_dst_addr].map(|address| address.cast());
        let rest = [entry.ai_route, entry.ai_connect, at.cast()];
        for owned in names.into_iter().chain(addresses).chain(rest) {
            // SAFETY: NULL, or the C library's memory that the entry owns; the entry itself is last.
            unsafe { memory::give_back(owned) };
        }
        at = next;
    }
}

/// The C library's memory.
mod memory {
    use std::ffi::{c_int, c_void};

    /// So many octets. Errors: `EAI_MEMORY`.
    pub(super) fn take(octets: usize) -> Result<*mut c_void, c_int> {
        #[cfg(test)]
        if !super::tests::may_take() {
            return Err(libc::EAI_MEMORY);
        }
        // SAFETY: no preconditions.
        let at = unsafe { libc::malloc(octets) };
        if at.is_null() { Err(libc::EAI_MEMORY) } else { Ok(at) }
    }

    /// A copy of so many octets.
    ///
    /// # Safety
    /// `from` has as many.
    pub(super) unsafe fn copy(from: *const u8, octets: usize) -> Result<*mut c_void, c_int> {
        let to = take(octets)?;
        // SAFETY: the caller's octets, and as many allocated just now.
        unsafe { std::ptr::copy_nonoverlapping(from, to.cast(), octets) };
        Ok(to)
    }

    /// # Safety
    /// `at` is NULL or memory of the C library, used no more.
    pub(super) unsafe fn give_back(at: *mut c_void) {
        #[cfg(test)]
        super::tests::gave_back(at);
        // SAFETY: the caller's promise.
        unsafe { libc::free(at) };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ffi::c_void;

    use super::*;

    thread_local! {
        /// Allocations that still succeed, and those that were not given back.
        static MEMORY: Cell<(usize, isize)> = const { Cell::new((usize::MAX, 0)) };
    }

    pub(super) fn may_take() -> bool {
        let (left, taken) = MEMORY.get();
        MEMORY.set((left.saturating_sub(1), taken + isize::from(left > 0)));
        left > 0
    }

    pub(super) fn gave_back(at: *mut c_void) {
        let (left, taken) = MEMORY.get();
        MEMORY.set((left, taken - isize::from(!at.is_null())));
    }

    #[test]
    fn short_memory_is_an_error_that_leaves_nothing_behind() {
        // SAFETY: zeroes are an address.
        let mut source: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        source.sin_family = libc::AF_INET as u16;
        let hints = rdma_addrinfo {
            ai_flags: RAI_NUMERICHOST,
            ai_src_addr: (&raw mut source).cast(),
            ai_src_len: size_of_val(&source) as u32,
            ..blank()
        };
        for node in [c"127.0.0.1".as_ptr(), std::ptr::null()] {
            let mut failures = 0;
            let list = loop {
                MEMORY.set((failures, 0));
                let mut list = null_mut();
                // SAFETY: a string or NULL, hints and a variable of this test.
                let status = unsafe {
                    warpline_rdma_getaddrinfo(node, std::ptr::null(), &hints, &raw mut list)
                };
                if status == 0 {
                    break list;
                }
                assert_eq!((status, MEMORY.get().1), (libc::EAI_MEMORY, 0));
                failures += 1;
            };
            // The entry, and one address or two.
            assert_eq!(failures, if node.is_null() { 2 } else { 3 });
            // SAFETY: made above.
            unsafe { warpline_rdma_freeaddrinfo(list) };
            assert_eq!(MEMORY.get().1, 0);
        }
    }
}
