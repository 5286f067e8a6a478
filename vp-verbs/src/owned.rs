//! Owned pointers to objects of libibverbs and librdmacm: each is destroyed once, after everything made from it.
//!
//! Pointers of the libraries are kept in no other way. Any thread.

use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use vp_api::{VpError, VpStatus};

use crate::device::Context;

/// The C function that destroys an object.
type Destroy<T> = unsafe extern "C" fn(*mut T) -> c_int;

/// An object of one of the libraries.
///
/// # Invariants
///
/// `raw` is alive until this is dropped, and belongs to this value alone; `destroy` frees it. The device stays open
/// meanwhile.
pub(crate) struct Owned<T> {
    raw: NonNull<T>,
    destroy: Destroy<T>,
    _context: Arc<Context>,
}

// SAFETY: "libibverbs is thread safe" and so is librdmacm: their objects belong to no thread.
unsafe impl<T> Send for Owned<T> {}
// SAFETY: as for `Send`; the libraries lock inside.
unsafe impl<T> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Takes the result of a creating function; null is an error with its `errno`.
    ///
    /// # Safety
    ///
    /// `raw` is null or was just returned by the function whose counterpart is `destroy`.
    pub(crate) unsafe fn new(
        raw: *mut T,
        destroy: Destroy<T>,
        context: &Arc<Context>,
    ) -> io::Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, destroy, _context: context.clone() })
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// Destroys the object, or returns it with the error. Of a device that is gone the kernel has destroyed it already, and
    /// refuses: the library's part stays, because the library frees it only after the kernel.
    pub(crate) fn destroy(self) -> Result<(), (Self, io::Error)> {
        let kept = ManuallyDrop::new(self);
        // SAFETY: alive and owned by the invariant; forgotten if this succeeds.
        let code = unsafe { (kept.destroy)(kept.as_ptr()) };
        let mut kept = kept;
        match done(code) {
            Err(error) if !kept._context.has_gone() => Err((ManuallyDrop::into_inner(kept), error)),
            _ => {
                // SAFETY: the field is dropped once: `kept` is never dropped.
                unsafe { std::ptr::drop_in_place(&mut kept._context) };
                Ok(())
            }
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: alive and owned by the invariant, and not used afterwards. If the kernel refuses, it frees the
        // object when the device is closed.
        unsafe { (self.destroy)(self.as_ptr()) };
    }
}

/// The result of a C function: 0, a positive error number, or -1 with `errno`.
pub(crate) fn done(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code if code > 0 => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Converts a device's refusal to an error of the verbs.
pub(crate) fn refused(attempt: &str) -> impl FnOnce(io::Error) -> VpError + '_ {
    move |error| {
        let status = match error.raw_os_error() {
            Some(libc::ENOMEM | libc::ENOSPC | libc::EAGAIN) => VpStatus::InsufficientResources,
            Some(libc::EINVAL) => VpStatus::InvalidModifier,
            Some(libc::EBUSY | libc::EADDRINUSE) => VpStatus::InUse,
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => VpStatus::Unsupported,
            Some(libc::EPERM | libc::EACCES) => VpStatus::NotPrivileged,
            Some(libc::EFAULT) => VpStatus::InvalidAddress,
            _ => VpStatus::Os,
        };
        let hint = match error.raw_os_error() {
            Some(libc::ENOMEM) => crate::machine::memlock_hint(),
            _ => String::new(),
        };
        VpError::new(status, format!("{attempt}: {error}{hint}"))
    }
}
