//! An open device of libibverbs: its context, which every object made from it keeps open.
//!
//! Owner: shared by everything made from it; closed with the last reference. Any thread.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use vp_api::{VpError, VpResult, VpStatus};

use crate::dl::{Api, text};
use crate::owned::done;
use crate::tuning::{END_CHECK, REMOVAL};
use ibv_sys::*;

/// An open device.
///
/// # Invariants
///
/// `raw` is open until this is dropped.
pub(crate) struct Context {
    pub(crate) api: Arc<Api>,
    raw: NonNull<ibv_context>,
    pub(crate) name: String,
    /// Connections are MPA over TCP; otherwise they are InfiniBand's.
    pub(crate) iwarp: bool,
    /// A CQ armed for solicited completions never notifies of its receives: siw does not pass on the message's flag
    /// (`siw_rqe_complete`, Linux 6.1). So the CQ is armed for all completions, and notifies more often.
    pub(crate) forgets_solicited: bool,
    /// Requests posted in Error stay in the queues without a completion: siw flushes them only when it enters Error
    /// (`siw_post_send`, Linux 6.1).
    pub(crate) keeps_late: bool,
    /// It registers every region under its address, and ignores the requested base (`siw_reg_user_mr`, Linux 6.1).
    ignores_bases: bool,
    /// The device is gone, see [`Context::is_gone`].
    gone: AtomicBool,
    /// The consumer was told that the device is lost.
    told: AtomicBool,
}

// SAFETY: libibverbs is thread safe: a context belongs to no thread.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

/// `ibv_reg_mr_iova2`.
pub(crate) type RegisterBased =
    unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;

/// Vendor of siw: "bmt".
const SIW: u32 = 0x62_6d74;

/// A device in the library's list.
pub(crate) struct Listed {
    pub(crate) name: String,
    /// Name of its file below `/dev/infiniband`.
    pub(crate) uverbs: String,
}

/// Calls a function for every device of the library.
fn each(
    api: &Arc<Api>,
    mut see: impl FnMut(*mut ibv_device, &str) -> io::Result<()>,
) -> io::Result<()> {
    let mut number: c_int = 0;
    // SAFETY: the number may be written; null is an error with `errno`.
    let list = unsafe { (api.ibv.ibv_get_device_list)(&mut number) };
    let list = NonNull::new(list).ok_or_else(io::Error::last_os_error)?;
    let mut result = Ok(());
    for n in 0..usize::try_from(number).unwrap_or(0) {
        // SAFETY: the list has `number` elements.
        let element = unsafe { list.as_ptr().add(n) };
        // SAFETY: in the list, see above.
        let device = unsafe { element.read() };
        // SAFETY: a device of the list lives until the list is freed below.
        let name = text(unsafe { &(*device).name });
        result = result.and_then(|()| see(device, &name));
    }
    // SAFETY: the list came from the library and is not used afterwards; open devices stay.
    unsafe { (api.ibv.ibv_free_device_list)(list.as_ptr()) };
    result
}

/// The names of the devices.
pub(crate) fn list(api: &Arc<Api>) -> io::Result<Vec<Listed>> {
    let mut out = Vec::new();
    each(api, |device, name| {
        // `dev_name` follows `name` in the public structure.
        // SAFETY: 64 octets after `name`, within the library's own 664.
        let behind = unsafe { device.add(1) };
        // SAFETY: as above; any octets are a valid array.
        let uverbs = text(unsafe { &*behind.cast::<[std::ffi::c_char; 64]>() });
        out.push(Listed { name: name.to_owned(), uverbs });
        Ok(())
    })?;
    Ok(out)
}

impl Context {
    /// Opens the device with this name; `None` if there is none.
    pub(crate) fn open(api: &Arc<Api>, wanted: &str) -> io::Result<Option<Arc<Self>>> {
        let mut found = None;
        each(api, |device, name| {
            if name == wanted && found.is_none() {
                // SAFETY: a device of the list.
                let raw = unsafe { (api.ibv.ibv_open_device)(device) };
                let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
                // SAFETY: a device of the list.
                let transport = unsafe { (*device).transport_type };
                let (name, iwarp) = (name.to_owned(), transport == IBV_TRANSPORT_IWARP);
                let api = api.clone();
                let mut context = Self {
                    api,
                    raw,
                    name,
                    iwarp,
                    forgets_solicited: false,
                    keeps_late: false,
                    ignores_bases: false,
                    gone: AtomicBool::new(false),
                    told: AtomicBool::new(false),
                };
                if context.query().is_ok_and(|attr| attr.vendor_id == SIW) {
                    context.forgets_solicited = true;
                    context.keeps_late = true;
                    context.ignores_bases = true;
                }
                found = Some(Arc::new(context));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Registers a region under a base; `None` if the library or the device cannot.
    pub(crate) fn register_based(&self) -> Option<RegisterBased> {
        self.api.ibv.ibv_reg_mr_iova2.filter(|_| !self.ignores_bases)
    }

    /// The device was removed, or failed for good: the kernel has destroyed its objects, and refuses all commands. What was
    /// posted is flushed here ([`crate::lost`]).
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Returns false if it was gone before.
    pub(crate) fn is_gone_now(&self) -> bool {
        !self.gone.swap(true, Ordering::AcqRel)
    }

    /// Whether the consumer is to be told that the device is lost: once.
    pub(crate) fn is_to_be_told(&self) -> bool {
        !self.told.swap(true, Ordering::AcqRel)
    }

    /// The error of a call that needs the device, if it is gone.
    pub(crate) fn alive(&self, attempt: &str) -> VpResult<()> {
        if !self.is_gone() {
            return Ok(());
        }
        let name = &self.name;
        let detail =
            format!("{attempt}: the device {name} was removed; once it is back, open it again");
        Err(VpError::new(VpStatus::Os, detail))
    }

    /// Whether it is being removed: the kernel refuses commands before it says so.
    pub(crate) fn is_going(&self) -> bool {
        let refused = |error: io::Error| error.raw_os_error() == Some(libc::EIO);
        self.is_gone() || self.query().err().is_some_and(refused)
    }

    /// Whether it is gone after a call failed. If it is being removed, waits until the kernel has destroyed its objects: before
    /// that it may use memory.
    pub(crate) fn has_gone(&self) -> bool {
        let begun = Instant::now();
        while self.is_going() {
            if self.is_gone() || begun.elapsed() > REMOVAL {
                return true;
            }
            std::thread::sleep(END_CHECK);
        }
        false
    }

    /// Requests posted in Error have no completion of the device.
    pub(crate) fn flushes_no_more(&self) -> bool {
        self.keeps_late || self.is_gone()
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// The functions that the headers call inline.
    pub(crate) fn ops(&self) -> &ibv_context_ops {
        // SAFETY: open by the invariant; the library sets the table before it returns the context.
        unsafe { &self.raw.as_ref().ops }
    }

    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open by the invariant.
        let fd = unsafe { self.raw.as_ref().async_fd };
        // SAFETY: the context keeps the descriptor open.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    pub(crate) fn query(&self) -> io::Result<ibv_device_attr> {
        // SAFETY: plain numbers; all zeros is valid.
        let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, the structure may be written.
        done(unsafe { (self.api.ibv.ibv_query_device)(self.as_ptr(), &mut attr) })?;
        Ok(attr)
    }

    pub(crate) fn query_port(&self, port: u8) -> io::Result<ibv_port_attr> {
        // SAFETY: plain numbers; all zeros is valid.
        let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: as for the device.
        done(unsafe { (self.api.ibv.ibv_query_port)(self.as_ptr(), port, &mut attr) })?;
        Ok(attr)
    }

    /// Whether a context of librdmacm, which opens devices itself, is on this device.
    pub(crate) fn is(&self, other: *mut ibv_context) -> bool {
        let Some(other) = NonNull::new(other) else { return false };
        // SAFETY: librdmacm never closes its contexts.
        let device = unsafe { other.as_ref().device };
        // SAFETY: an open context's device is alive.
        text(unsafe { &(*device).name }) == self.name
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the last user has dropped it; an error cannot be reported.
        unsafe { (self.api.ibv.ibv_close_device)(self.as_ptr()) };
    }
}
