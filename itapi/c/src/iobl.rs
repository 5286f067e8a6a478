//! I/O buffer lists. In user space an I/O address is a virtual one (`it_mem_map`) and memory is
//! contiguous there, so a list is accepted if its elements are adjacent, in order. No state.

use std::borrow::Cow;

use super::failure::{Failure, Outcome};
use super::ptr::{self, List};
use super::status;
use super::types::*;

/// The memory of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// Its first octet.
    pub(crate) first: *mut u8,
    /// Octets in all elements from there on.
    pub(crate) room: u64,
    pub(crate) elements: usize,
    pub(crate) kind: it_iobl_type_t,
}

fn wrong(text: impl Into<Cow<'static, str>>) -> Failure {
    Failure::new(status::IT_ERR_INVALID_IOBL, text)
}

/// Reads a list.
///
/// # Safety
/// `iobl` and the array in it obey the contract of a C caller (see `ptr`).
pub(crate) unsafe fn read(iobl: *const it_iobl_t) -> Outcome<Buffer> {
    // SAFETY: same contract.
    let iobl = unsafe { ptr::read(iobl, "iobl") }?;
    let mut first = None;
    let mut total = 0u64;
    let mut add = |at: it_io_addr_t, len: u64| {
        let start = *first.get_or_insert(at);
        let expected = (start.addr() as u64).checked_add(total);
        if expected != Some(at.addr() as u64) {
            return Err(wrong("the elements of the list are not adjacent in memory"));
        }
        total = total.checked_add(len).ok_or_else(|| wrong("the list is larger than memory"))?;
        Ok(())
    };
    match iobl.iobl_type {
        IT_IOBL_PAGE_LIST | IT_IOBL_BLOCK_LIST => {
            // SAFETY: plain data: every pattern of bits is a list.
            let list = unsafe { iobl.list.ce_list };
            // SAFETY: an array of the caller, as `iobl` is.
            let elements =
                unsafe { List::new(list.list_elt.cast_const(), iobl.num_elts, "list_elt") }?;
            let pages = iobl.iobl_type == IT_IOBL_PAGE_LIST;
            if pages && !list.elt_len.is_power_of_two() {
                return Err(wrong(format!("elt_len {} is not a page size", list.elt_len)));
            }
            for at in elements.iter() {
                if pages && !(at.addr() as u64).is_multiple_of(list.elt_len) {
                    return Err(wrong(format!("the page {at:?} is not page-aligned")));
                }
                add(at, list.elt_len)?;
            }
        }
        IT_IOBL_VE_PAGE_LIST => {
            // SAFETY: plain data: every pattern of bits is a list.
            let list = unsafe { iobl.list.ve_list };
            // SAFETY: an array of the caller, as `iobl` is.
            let elements =
                unsafe { List::new(list.list_elt.cast_const(), iobl.num_elts, "list_elt") }?;
            for element in elements.iter() {
                add(element.io_addr, element.elt_len)?;
            }
        }
        other => return Err(wrong(format!("iobl_type is {other}, which is not a list type"))),
    }
    let first = first.ok_or_else(|| wrong("the list has no elements"))?;
    let room = total.checked_sub(iobl.fbo).ok_or_else(|| wrong("fbo is outside the list"))?;
    Ok(Buffer {
        first: first.cast::<u8>().wrapping_add(iobl.fbo as usize),
        room,
        elements: iobl.num_elts,
        kind: iobl.iobl_type,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object;

    fn pages(addresses: &mut [it_io_addr_t], elt_len: u64, fbo: u64) -> it_iobl_t {
        let ce_list = it_iobl_ce_list { list_elt: addresses.as_mut_ptr(), elt_len };
        it_iobl_t {
            iobl_type: IT_IOBL_PAGE_LIST,
            list: it_iobl_list { ce_list },
            num_elts: addresses.len(),
            fbo,
        }
    }

    fn try_read(iobl: &it_iobl_t) -> Outcome<Buffer> {
        // SAFETY: a list on the stack whose array is, too.
        unsafe { read(iobl) }
    }

    #[test]
    fn adjacent_elements_are_one_range() {
        let mut addresses = [0x10000, 0x11000, 0x12000].map(object::handle);
        let found = try_read(&pages(&mut addresses, 0x1000, 16)).unwrap();
        assert_eq!((found.first.addr(), found.room, found.elements), (0x10010, 0x3000 - 16, 3));
        let mut elements = [(0x10001, 7), (0x10008, 1)]
            .map(|(at, elt_len)| it_iobl_ve_elt_t { io_addr: object::handle(at), elt_len });
        let ve_list = it_iobl_ve_list { list_elt: elements.as_mut_ptr() };
        let list = it_iobl_list { ve_list };
        let iobl = it_iobl_t { iobl_type: IT_IOBL_VE_PAGE_LIST, list, num_elts: 2, fbo: 0 };
        assert_eq!(try_read(&iobl).unwrap().room, 8);
    }

    #[test]
    fn other_lists_are_refused() {
        let mut gap = [0x10000, 0x12000].map(object::handle);
        let mut odd = [0x10001, 0x11001].map(object::handle);
        let mut end = [u64::MAX - 0xfff, 0].map(object::handle);
        let good = &mut [object::handle(0x10000)];
        let unknown = it_iobl_t { iobl_type: 3, ..pages(good, 0x1000, 0) };
        for iobl in [
            pages(&mut gap, 0x1000, 0),
            pages(&mut odd, 0x1000, 0),
            pages(&mut end, 0x1000, 0),
            pages(&mut [], 0x1000, 0),
            pages(good, 0x1001, 0),
            pages(good, 0, 0),
            pages(good, 0x1000, 0x1001),
            unknown,
        ] {
            assert_eq!(try_read(&iobl).unwrap_err().status, status::IT_ERR_INVALID_IOBL);
        }
    }
}
