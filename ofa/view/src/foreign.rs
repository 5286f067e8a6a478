//! What the paths say of a program: the record that `warpline doctor` reads, and a line on standard error where another
//! libibverbs than Warpline's looks for devices, and where libmlx5 refuses a device. Nothing is allocated, no lock is
//! taken, and `errno` stays.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file of the record.
const RECORD: &CStr = c"WARPLINE_VERBS_RECORD";
/// Octets of a line: its path may be as long.
const LINE: usize = libc::PATH_MAX as usize + 128;
/// What rdma-core's libibverbs reads when it is asked for devices, and Warpline's never.
const READ_BY_OTHERS: &[u8] = b"_verbs";

/// A path below a shown directory is used.
///
/// # Safety
/// A string.
pub(crate) unsafe fn noticed(shown: &CStr, rest: *const c_char) {
    // SAFETY: the caller's string.
    let rest = unsafe { CStr::from_ptr(rest) }.to_bytes();
    keeping_errno(|| {
        record(b"looked", &[shown.to_bytes(), rest]);
        static SAID: AtomicBool = AtomicBool::new(false);
        if rest == READ_BY_OTHERS && !SAID.swap(true, Ordering::Relaxed) {
            say();
        }
    });
}

fn keeping_errno(act: impl FnOnce()) {
    // SAFETY: no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library's own variable of this thread.
    let errno = unsafe { place.read() };
    act();
    // SAFETY: as above.
    unsafe { place.write(errno) };
}

/// The program was told that there is no mlx5dv. The verbs library says nothing more then.
#[unsafe(no_mangle)]
static warpline_view_told: AtomicBool = AtomicBool::new(false);

/// libmlx5 has refused to open a device.
pub(crate) fn refused_by_mlx5() {
    const TEXT: &[u8] = b"the program opens a device by mlx5dv_open_device, which is for NVIDIA's adapters only, and these \
        devices have no mlx5dv: make it use ibv_open_device";
    if !warpline_view_told.swap(true, Ordering::Relaxed) {
        keeping_errno(|| {
            record(b"advice", &[TEXT]);
            write(2, &[b"warpline: ", TEXT, b"\n"]);
        });
    }
}

/// Says which file it is; nothing if there is none, as in a shell.
fn say() {
    let mut name = [0; libc::PATH_MAX as usize];
    // SAFETY: the callback is of the type that it expects, and the array outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut name).cast()) };
    let name = name.split(|octet| *octet == 0).next().unwrap_or_default();
    if name.is_empty() {
        return;
    }
    record(b"foreign", &[name]);
    write(
        2,
        &[
            b"warpline: the program asks a libibverbs of its own for devices (",
            name,
            b"), which has none: make it use the system's libibverbs.so.1, by its name\n",
        ],
    );
}

/// Takes the name of a loaded file that is another libibverbs.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
    // SAFETY: the loader's structure.
    let path = unsafe { (*info).dlpi_name };
    if path.is_null() {
        return 0;
    }
    // SAFETY: a string of the loader's.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let has = |part: &[u8]| path.windows(part.len()).any(|seen| seen == part);
    // The directories of Warpline's end with `verbs`.
    let is_other = has(b"/libibverbs") && !has(b"/verbs/libibverbs.so");
    if is_other {
        // SAFETY: the caller's array, of one octet more at least.
        let to =
            unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), libc::PATH_MAX as usize - 1) };
        let length = path.len().min(to.len());
        to[..length].copy_from_slice(&path[..length]);
    }
    c_int::from(is_other)
}

/// Appends `PID KIND PARTS`.
fn record(kind: &[u8], parts: &[&[u8]]) {
    // SAFETY: a string.
    let file = unsafe { libc::getenv(RECORD.as_ptr()) };
    if file.is_null() {
        return;
    }
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC;
    // Not `open`, which is this library's.
    // SAFETY: a string.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, file, flags) } as c_int;
    if fd < 0 {
        return;
    }
    let mut number = [0; 16];
    let mut left = &mut number[..];
    // A number fits.
    let _ = write!(left, "{} ", std::process::id());
    let length = 16 - left.len();
    let parts: [&[u8]; 6] = [
        &number[..length],
        kind,
        b" ",
        parts.first().copied().unwrap_or_default(),
        parts.get(1).copied().unwrap_or_default(),
        b"\n",
    ];
    write(fd, &parts);
    // SAFETY: opened here.
    unsafe { libc::close(fd) };
}

/// Writes all parts by one call.
fn write(fd: c_int, parts: &[&[u8]]) {
    let mut line = [0; LINE];
    let mut length = 0;
    for part in parts {
        let fits = part.len().min(LINE - length);
        line[length..length + fits].copy_from_slice(&part[..fits]);
        length += fits;
    }
    let line = if length == 0 { null_mut() } else { line.as_mut_ptr() };
    // SAFETY: as many octets of the array. What cannot be written is lost.
    unsafe { libc::write(fd, line.cast(), length) };
}
