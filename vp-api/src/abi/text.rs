//! Strings and errors across the C interface. No state.

use std::ffi::{CStr, c_char};

use super::{codes, grow, types as c};
use crate::{Unavailable, VpError, VpResult, VpStatus};

/// The longest string that is accepted, in octets.
const LONGEST: usize = 1 << 20;

/// `text` in its C form, valid as long as `text` is.
pub(super) fn lend(text: &str) -> c::String {
    c::String { data: text.as_ptr().cast(), len: text.len() }
}

/// Copies a text for messages into one line, whatever the other side put into it.
///
/// # Safety
///
/// As for [`copy`].
pub(super) unsafe fn line(text: c::String) -> String {
    // SAFETY: the caller's promise.
    printable(&unsafe { copy(text) })
}

/// Replaces control characters by blanks, because a terminal would interpret them.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A copy, with invalid UTF-8 replaced.
///
/// # Safety
///
/// `text` names readable octets, or is empty.
pub(super) unsafe fn copy(text: c::String) -> String {
    // SAFETY: the caller's promise.
    let octets = unsafe { octets(text.data.cast(), text.len.min(LONGEST) as u64) };
    String::from_utf8_lossy(&octets).into_owned()
}

/// A copy of `len` octets.
///
/// # Safety
///
/// `len` octets at `data` are readable, or `len` is 0.
pub(super) unsafe fn octets(data: *const u8, len: u64) -> Vec<u8> {
    if data.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise; the borrow ends with the copy.
    unsafe { std::slice::from_raw_parts(data, len as usize) }.to_vec()
}

/// The text in a fixed array, up to its first zero octet.
fn fixed(array: &[c_char]) -> String {
    let octets = array.iter().take_while(|&&o| o != 0).map(|&o| o as u8);
    printable(&String::from_utf8_lossy(&octets.collect::<Vec<u8>>()))
}

/// Copies `text` to the array, cut between characters so that a final zero fits.
fn fit(array: &mut [c_char], text: &str) {
    let most = text.len().min(array.len() - 1);
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    for (to, from) in array.iter_mut().zip(text.as_bytes()[..end].iter()) {
        *to = *from as c_char;
    }
}

/// Fills the host's error and returns the status.
///
/// # Safety
///
/// `to` is null, or points to an `ri_error` with its size.
pub(super) unsafe fn refuse(to: *mut c::Error, error: &VpError) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { fill(to, &error.detail, "") };
    codes::status_code(error.status)
}

/// Fills the host's error.
///
/// # Safety
///
/// As for [`refuse`].
pub(super) unsafe fn fill(to: *mut c::Error, detail: &str, remedy: &str) {
    if to.is_null() {
        return;
    }
    let mut out = <c::Error as c::Sized32>::blank();
    fit(&mut out.detail, detail);
    fit(&mut out.remedy, remedy);
    // SAFETY: the caller's promise.
    unsafe { grow::write(to, &out) };
}

/// The result of a provider's function.
pub(super) fn outcome(code: u32, error: &c::Error) -> VpResult<()> {
    if code == codes::OK {
        return Ok(());
    }
    let detail = fixed(&error.detail);
    let Some(status) = codes::status(code) else {
        let detail = if detail.is_empty() { "it gives no detail".to_owned() } else { detail };
        return Err(VpError::new(VpStatus::NoStatus(code), detail));
    };
    let detail = if detail.is_empty() { "the provider gives no detail".to_owned() } else { detail };
    Err(VpError::new(status, detail))
}

/// Why a provider lists no device.
pub(super) fn unavailable(code: u32, error: &c::Error) -> Unavailable {
    let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
    let detail = fixed(&error.detail);
    let reason = match codes::status(code) {
        None if code != codes::OK => {
            let status = VpStatus::NoStatus(code).to_string();
            let reason = if detail.is_empty() { status } else { format!("{status}: {detail}") };
            return Unavailable { reason, remedy: Unavailable::DEFECT.to_owned() };
        }
        status => or(detail, &status.map_or_else(String::new, |status| status.to_string())),
    };
    Unavailable { reason, remedy: or(fixed(&error.remedy), Unavailable::UNKNOWN) }
}

/// A static string of a descriptor.
///
/// # Safety
///
/// `text` is null, or NUL-terminated and good for ever.
pub(super) unsafe fn constant(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}
