//! `itw_strerror`, `itw_last_error`, `itw_version`: texts for C. No state of its own
//! (`boundary` keeps the last failure of each thread); any thread, also in a forked child.

use std::ffi::{CStr, c_char};

use super::boundary;
use super::ptr;
use super::status::{self, Status};

const VERSION: &CStr = status::c_text(concat!(env!("CARGO_PKG_VERSION"), "\0"));

#[unsafe(no_mangle)]
pub(crate) extern "C" fn itw_version() -> *const c_char {
    VERSION.as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn itw_strerror(status: Status) -> *const c_char {
    status::describe(status).unwrap_or(c"no status of IT-API").as_ptr()
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn itw_last_error(buf: *mut c_char, len: usize) -> usize {
    let give = |text: &str| {
        // SAFETY: contract of a C caller.
        unsafe { ptr::write_text(buf, len, text) }
    };
    // A thread that is ending has no last failure any more.
    boundary::with_last(give).unwrap_or_else(|| give(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object;

    fn last_error() -> String {
        let mut buf = [0; 200];
        // SAFETY: room for 200 octets.
        unsafe { itw_last_error(buf.as_mut_ptr(), buf.len()) };
        // SAFETY: the buffer holds a NUL.
        unsafe { ptr::text(buf.as_ptr(), buf.len(), "buf") }.unwrap()
    }

    // [itw_last_error]
    #[test]
    fn each_thread_has_its_own_last_failure() {
        let forget = || boundary::call(|| object::context(std::ptr::null_mut()).map(drop));
        assert_eq!(forget(), status::IT_ERR_INVALID_HANDLE);
        assert_eq!(last_error(), "the object handle is IT_NULL_HANDLE");
        std::thread::spawn(|| assert_eq!(last_error(), "")).join().unwrap();
        assert_eq!(boundary::call(|| Ok(())), status::IT_SUCCESS);
        assert_eq!(last_error(), "the object handle is IT_NULL_HANDLE");
    }

    // [itw_strerror] [itw_version]
    #[test]
    fn texts_are_constant_strings() {
        // SAFETY: a constant string.
        let text = |status| unsafe { CStr::from_ptr(itw_strerror(status)) }.to_str().unwrap();
        assert_eq!(text(0), "IT_SUCCESS: done");
        assert_eq!(text(87), "IT_ERR_QUEUE_EMPTY: there is no event");
        assert_eq!(text(9999), "no status of IT-API");
        // SAFETY: a constant string.
        assert!(unsafe { CStr::from_ptr(itw_version()) }.to_str().unwrap().contains('.'));
    }
}
