//! Tests of log lines passed to a C program.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

use super::*;
use crate::log::itw_log_callback;

static LINES: Mutex<Vec<(c_int, String, usize)>> = Mutex::new(Vec::new());

unsafe extern "C" fn keep(level: c_int, text: *const c_char, context: *mut c_void) {
    // SAFETY: the library passes a string that lives until this returns.
    let text = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    LINES.lock().unwrap().push((level, text, context.addr()));
}

// [itw_log_callback]
#[test]
fn a_program_gets_the_lines_that_it_asks_for() {
    let context = std::ptr::without_provenance_mut(0x77);
    assert_eq!(c!(itw_log_callback(Some(keep), context)), IT_SUCCESS);
    tracing::warn!("mind the gap");
    tracing::debug!("below the chosen level");
    assert_eq!(c!(itw_log_callback(None, null_mut())), IT_SUCCESS);
    tracing::warn!("to standard error");
    // Other tests may have logged lines, too.
    let lines = LINES.lock().unwrap();
    let with = |part| lines.iter().filter(move |line| line.1.contains(part));
    let logged = with("mind the gap").next().unwrap();
    assert!((logged.0, logged.2) == (2, 0x77) && logged.1.contains("WARN"), "{logged:?}");
    assert!(!logged.1.contains('\x1b') && !logged.1.ends_with('\n'), "{logged:?}");
    assert_eq!(with("below the chosen level").count() + with("to standard error").count(), 0);
}
