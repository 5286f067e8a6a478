//! `it_mem_map`: in user space an I/O address is the virtual address. The adapter's object
//! lists the mappings, so that unmapping anything else is refused. Any thread.

use std::ffi::c_void;
use std::sync::PoisonError;

use ual::vp_api::room;

use super::boundary;
use super::failure::{Failure, Outcome};
use super::ia::IaObject;
use super::object;
use super::ptr::Out;
use super::status::{self, Status};
use super::types::*;

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`); `vaddr` may be anything.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_mem_map(
    ia_handle: it_ia_handle_t,
    vaddr: *mut c_void,
    aspace_id: u64,
    len: usize,
    io_addr: *mut it_io_addr_t,
    mapped_len: *mut usize,
) -> Status {
    boundary::create(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?;
        // SAFETY: contract of a C caller.
        let address = unsafe { Out::new(io_addr, "io_addr") }?;
        // SAFETY: contract of a C caller.
        let length = unsafe { Out::new(mapped_len, "mapped_len") }?;
        check_space(aspace_id)?;
        check_pages(vaddr.addr(), len)?;
        let mut mappings = ia.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        room::push(&mut mappings, "mapped ranges", (vaddr.addr(), len))
            .map_err(Failure::of_verb(status::IT_ERR_RESOURCES))?;
        address.write(vaddr.cast());
        length.write(len);
        Ok(())
    })
}

/// 0 or this process's id: user space cannot reach other address spaces.
fn check_space(aspace_id: u64) -> Outcome {
    if aspace_id == 0 || aspace_id == u64::from(std::process::id()) {
        return Ok(());
    }
    let text = format!("address space {aspace_id} is not this process; pass 0");
    Err(Failure::new(status::IT_ERR_NO_PERMISSION, text))
}

/// Refuses a range that is not mapped memory of this process.
fn check_pages(first: usize, len: usize) -> Outcome {
    let Some(end) = first.checked_add(len).filter(|_| len != 0) else {
        let text = format!("{len} octets from {first:#x} on are not a range of memory");
        return Err(Failure::new(status::IT_ERR_INVALID_LENGTH, text));
    };
    // SAFETY: a query that touches no memory.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
    // One octet for each page of a part; a large range is checked in parts.
    let mut present = [0u8; 1024];
    let mut from = first - first % page;
    while from < end {
        let part = (end - from).min(present.len() * page);
        let at = std::ptr::without_provenance_mut(from);
        // SAFETY: mincore only reads the page table, and writes one octet for each page of
        // `part`: at most `present.len()`.
        if unsafe { libc::mincore(at, part, present.as_mut_ptr().cast()) } != 0 {
            let text = format!("not all of the {len} octets from {first:#x} on are mapped memory");
            return Err(Failure::new(status::IT_ERR_INVALID_ADDRESS, text));
        }
        from += part;
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_mem_unmap(
    ia_handle: it_ia_handle_t,
    io_addr: it_io_addr_t,
    mapped_len: usize,
) -> Status {
    boundary::call(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?;
        let mut mappings = ia.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        let range = (io_addr.addr(), mapped_len);
        if let Some(found) = mappings.iter().position(|mapped| *mapped == range) {
            mappings.swap_remove(found);
            return Ok(());
        }
        let text = format!("it_mem_map did not map {mapped_len} octets at {io_addr:?}");
        Err(Failure::new(status::IT_ERR_INVALID_ADDRESS, text))
    })
}
