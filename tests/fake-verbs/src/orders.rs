//! Orders to the double that this process has loaded under a name of rdma-core, for tests that do not load it themselves.

use std::ffi::{CString, c_char, c_int, c_void};

use ibv_sys::{IBV_EVENT_DEVICE_FATAL, IBV_WC_RETRY_EXC_ERR, RDMA_CM_EVENT_DISCONNECTED};

/// A function of [`crate::control`] in the loaded library. Panics if there is none: the test is wrong.
fn find(name: &str) -> *mut c_void {
    let name = CString::new(name).expect("a name");
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
    // SAFETY: a string that ends; the library stays loaded, because a provider has it.
    let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), flags) };
    assert!(!library.is_null(), "the double is not loaded");
    // SAFETY: as above.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "not the double: {name:?}");
    found
}

/// Every connection ends, as its peer's close is reported.
pub fn disconnect() {
    // SAFETY: its type in `control`.
    let order: extern "C" fn(u32, c_int) = unsafe { std::mem::transmute(find("fake_cm_event")) };
    order(RDMA_CM_EVENT_DISCONNECTED, 0);
}

/// The next send is not acknowledged: its completion says that the retries are exhausted.
pub fn lose_the_next_send() {
    // SAFETY: its type in `control`.
    let order: extern "C" fn(u32) = unsafe { std::mem::transmute(find("fake_status")) };
    order(IBV_WC_RETRY_EXC_ERR);
}

/// The device is removed.
pub fn remove() {
    // SAFETY: its type in `control`.
    let order: extern "C" fn(u32) = unsafe { std::mem::transmute(find("fake_async")) };
    order(IBV_EVENT_DEVICE_FATAL);
}

/// A function fails with `errno` from its next call on; 0 ends that.
pub fn fail(function: &str, errno: c_int) {
    let name = CString::new(function).expect("a name");
    // SAFETY: its type in `control`.
    let order: extern "C" fn(*const c_char, u32, c_int) =
        unsafe { std::mem::transmute(find("fake_fail")) };
    order(name.as_ptr(), 0, errno);
}
