//! Pinning pages in memory (mlock), accounted. Optional: nothing in the software provider needs it.

use std::ffi::c_void;
use std::io;

use rustix::mm::{mlock, munlock};

use crate::account::{account, limit_octets};
use crate::mem::page_size;

/// Pins the pages of `len` octets at `addr`. Pins nest: pages stay pinned until the last [`unpin`]. The
/// error has limit, need and remedy; then nothing is pinned.
pub fn pin(addr: usize, len: usize) -> io::Result<()> {
    let (first, last) = pages(addr, len)?;
    let mut account = account();
    let fresh = account.add(first, last);
    for (done, &(from, to)) in fresh.iter().enumerate() {
        // SAFETY: pinning changes neither contents nor mapping; an unmapped range is an error.
        let result = unsafe { mlock(pointer(from), (to - from) * page_size()) };
        if let Err(error) = result {
            for &(from, to) in &fresh[..done] {
                unlock(from, to);
            }
            account.remove(first, last);
            let held = (account.pages() * page_size()) as u64;
            return Err(explain(error.into(), len as u64, held, limit_octets()));
        }
    }
    Ok(())
}

/// Undoes one [`pin`] of the same octets.
pub fn unpin(addr: usize, len: usize) {
    let Ok((first, last)) = pages(addr, len) else { return };
    for (from, to) in account().remove(first, last) {
        unlock(from, to);
    }
}

fn unlock(from: usize, to: usize) {
    // SAFETY: unpinning changes neither contents nor mapping; the range may even be gone already.
    let _ = unsafe { munlock(pointer(from), (to - from) * page_size()) };
}

fn pointer(page: usize) -> *mut c_void {
    (page * page_size()) as *mut c_void
}

/// First page, and the one after the last.
fn pages(addr: usize, len: usize) -> io::Result<(usize, usize)> {
    let end = addr.checked_add(len).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the range to pin wraps around the address space",
        )
    })?;
    Ok((addr / page_size(), end.div_ceil(page_size())))
}

fn explain(error: io::Error, need: u64, held: u64, limit: Option<u64>) -> io::Error {
    let limit = limit.map_or("no limit".into(), |octets| format!("a limit of {octets}"));
    io::Error::new(
        error.kind(),
        format!(
            "cannot pin {need} octets: {error}; {held} are pinned already, with {limit}; raise it \
             with `ulimit -l` (RLIMIT_MEMLOCK), or register without pinning"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Region;

    #[test]
    fn pins_nest() {
        let region = Region::new(3 * page_size()).unwrap();
        let addr = region.addr() as usize;
        pin(addr, 3 * page_size()).unwrap();
        pin(addr + 10, 20).unwrap();
        unpin(addr, 3 * page_size());
        assert!(crate::account::pinned_octets() >= page_size() as u64);
        unpin(addr + 10, 20);
    }

    #[test]
    fn an_unmapped_range_is_refused_and_explained() {
        let unmapped = usize::MAX / 4 / page_size() * page_size();
        let error = pin(unmapped, 8192).unwrap_err().to_string();
        assert!(error.contains("8192 octets") && error.contains("ulimit -l"), "{error}");
        assert!(pin(usize::MAX - 5, 10).is_err());
    }
}
