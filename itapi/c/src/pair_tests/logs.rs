//! Tests of log lines passed to a C program.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;

use super::*;
use crate::log::itw_log_callback;

static LINES: Mutex<Vec<(c_int, String, usize)>> = Mutex::new(Vec::new());

unsafe extern "C" fn keep(level: c_int, text: *const c_char, context: *mut c_void) {
    // SAFETY: the library passes a string that lives until this returns.
    let text = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    LINES.lock().unwrap().push((level, text, context.addr()));
}

/// One test at a time is told of lines.
static TOLD: Mutex<()> = Mutex::new(());

// An event has no length: that octets of the peer are missing is logged.
#[test]
fn private_data_that_is_cut_is_logged() {
    let _told = TOLD.lock().unwrap();
    let side = Side::new();
    let (_listen, port) = side.listen();
    assert_eq!(c!(itw_log_callback(Some(keep), null_mut())), IT_SUCCESS);
    let mut peer = TcpStream::connect(("127.0.0.1", u16::from_be(port))).unwrap();
    let request = [&b"MPA ID Req Frame\x40\x01\x01\x2c"[..], &[7; 300]].concat();
    peer.write_all(&request).unwrap();
    // SAFETY: plain data.
    let event = unsafe { wait(side.requests).conn_req };
    assert_eq!(event.private_data, [7; 256]);
    assert_eq!(c!(itw_log_callback(None, null_mut())), IT_SUCCESS);
    let lines = LINES.lock().unwrap();
    let cut = "private data is cut: the peer sent 300 octets, an event has room for 256";
    assert!(lines.iter().any(|line| line.0 == 2 && line.1.contains(cut)), "{lines:?}");
    assert_eq!(c!(it_reject(event.cn_est_id, null(), 0)), IT_SUCCESS);
}

// [itw_log_callback]
#[test]
fn a_program_gets_the_lines_that_it_asks_for() {
    let _told = TOLD.lock().unwrap();
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
