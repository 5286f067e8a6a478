//! The table of refusals: what each call of libibverbs returns that is not allowed, and each completion that is no success,
//! on SoftRDMA and on RoCE. Error numbers are those of the manual pages, and where these name none, those of the kernel's
//! siw and rxe (Linux 6.2 and later) below rdma-core. A row is a test: all that fail are named.

mod completions;
mod devices;
mod memory;
mod posts;
mod queue_pairs;
mod queues;

use ibv_sys::*;

use crate::lab::*;
use crate::on_roce::on_both;

/// The page of the manual, what is wrong, the results on SoftRDMA and on RoCE, and the call.
type Row = (&'static str, &'static str, [i64; 2], fn(&Lab) -> i64);

const INVALID: [i64; 2] = [libc::EINVAL as i64; 2];
const UNSUPPORTED: [i64; 2] = [libc::EOPNOTSUPP as i64; 2];
const BUSY: [i64; 2] = [libc::EBUSY as i64; 2];
const NO_ROOM: [i64; 2] = [libc::ENOMEM as i64; 2];
const AGAIN: [i64; 2] = [libc::EAGAIN as i64; 2];
const FAULT: [i64; 2] = [libc::EFAULT as i64; 2];
const DONE: [i64; 2] = [0; 2];
/// Only on RoCE.
const ROCE: [i64; 2] = [libc::EOPNOTSUPP as i64, 0];

/// The error number of a call that returns NULL when it is refused.
fn none<T>(made: *mut T) -> i64 {
    if made.is_null() { errno().into() } else { 0 }
}

/// The same of a call that returns -1.
fn minus(result: i32) -> i64 {
    if result == -1 { errno().into() } else { 0 }
}

/// All rows in one application: what is refused changes nothing.
fn check(rows: &[Row]) {
    let lab = Lab::new();
    let wrong = rows.iter().filter_map(|(page, what, expected, call)| {
        let (result, expected) = (call(&lab), expected[usize::from(lab.is_roce())]);
        (result != expected).then(|| format!("{page}(3), {what}: {result}, not {expected}"))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn of_devices() {
    on_both("refusals::of_devices", || check(devices::ROWS));
}

#[test]
fn of_memory() {
    on_both("refusals::of_memory", || check(memory::ROWS));
}

#[test]
fn of_queues() {
    on_both("refusals::of_queues", || check(queues::ROWS));
}

#[test]
fn of_queue_pairs() {
    on_both("refusals::of_queue_pairs", || check(queue_pairs::ROWS));
}

#[test]
fn of_posts() {
    on_both("refusals::of_posts", || check(posts::ROWS));
}

#[test]
fn by_completions() {
    on_both("refusals::by_completions", || check(completions::ROWS));
}
