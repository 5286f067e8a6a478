//! Rows of devices, their ports and events.

use std::mem::size_of;
use std::ptr::null_mut;

use ofa::verbs::async_event::warpline_ibv_get_async_event;
use ofa::verbs::channel::*;
use ofa::verbs::device::*;
use ofa::verbs::query::*;

use super::*;
use crate::extended::front;

/// What a call that would wait for an event returns where it must not.
fn without_waiting(fd: i32, call: impl FnOnce() -> i32) -> i64 {
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }, 0);
    minus(call())
}

fn gid(lab: &Lab, port: u8, index: i32) -> i64 {
    minus(unsafe { warpline_ibv_query_gid(lab.context, port, index, &mut ibv_gid::default()) })
}

fn gid_entry(lab: &Lab, index: u32, flags: u32) -> i64 {
    let (mut entry, size) = (unsafe { std::mem::zeroed() }, size_of::<ibv_gid_entry>());
    unsafe { warpline__ibv_query_gid_ex(lab.context, 1, index, &mut entry, flags, size) }.into()
}

fn port(lab: &Lab, port: u8) -> i64 {
    let mut attr = unsafe { std::mem::zeroed() };
    unsafe { warpline_ibv_query_port(lab.context, port, &mut attr) }.into()
}

fn time(lab: &Lab, comp_mask: u32) -> i64 {
    let mut values = ibv_values_ex { comp_mask, raw_clock: [0; 2] };
    unsafe { front(lab.context).query_rt_values.unwrap()(lab.context, &mut values) }.into()
}

fn device(lab: &Lab, comp_mask: u32, size: usize) -> i64 {
    let input = ibv_query_device_ex_input { comp_mask };
    let mut attr = unsafe { std::mem::zeroed() };
    let query = front(lab.context).query_device_ex.unwrap();
    unsafe { query(lab.context, &input, &mut attr, size) }.into()
}

pub(super) const ROWS: &[Row] = &[
    ("ibv_close_device", "no device", [-1; 2], |_| {
        unsafe { warpline_ibv_close_device(null_mut()) }.into()
    }),
    ("ibv_query_device_ex", "an input of later versions", INVALID, |lab| device(lab, 1, 400)),
    ("ibv_query_device_ex", "no room for the first part", INVALID, |lab| device(lab, 0, 8)),
    ("ibv_query_port", "a port is not 0", INVALID, |lab| port(lab, 0)),
    ("ibv_query_port", "there is one", INVALID, |lab| port(lab, 2)),
    ("ibv_query_gid", "a port that there is not", INVALID, |lab| gid(lab, 2, 0)),
    ("ibv_query_gid", "an index that there is not", INVALID, |lab| gid(lab, 1, 200)),
    ("ibv_query_gid", "an index below 0", INVALID, |lab| gid(lab, 1, -1)),
    ("ibv_query_gid_ex", "an index that there is not", INVALID, |lab| gid_entry(lab, 200, 0)),
    ("ibv_query_gid_ex", "no flags are defined", UNSUPPORTED, |lab| gid_entry(lab, 0, 1)),
    ("ibv_query_gid_table", "no room: a negative number", [-INVALID[0]; 2], |lab| {
        let (mut entry, size) = (unsafe { std::mem::zeroed() }, size_of::<ibv_gid_entry>());
        unsafe { warpline__ibv_query_gid_table(lab.context, &mut entry, 1, 0, size) as i64 }
    }),
    ("ibv_query_gid_type", "an index that there is not", INVALID, |lab| {
        minus(unsafe { warpline_ibv_query_gid_type(lab.context, 1, 200, &mut 0) })
    }),
    ("ibv_query_pkey", "an index that there is not", INVALID, |lab| {
        minus(unsafe { warpline_ibv_query_pkey(lab.context, 1, 1, &mut 0) })
    }),
    ("ibv_get_pkey_index", "the index of the one key", DONE, |lab| {
        unsafe { warpline_ibv_get_pkey_index(lab.context, 1, u16::MAX) }.into()
    }),
    ("ibv_get_pkey_index", "a key that there is not", INVALID, |lab| {
        minus(unsafe { warpline_ibv_get_pkey_index(lab.context, 1, 7) })
    }),
    ("ibv_query_rt_values_ex", "a value that there is not", INVALID, |lab| time(lab, 2)),
    ("ibv_query_rt_values_ex", "no value", DONE, |lab| time(lab, 0)),
    ("ibv_get_async_event", "no event, and it must not wait", AGAIN, |lab| {
        let mut event = unsafe { std::mem::zeroed() };
        without_waiting(unsafe { (*lab.context).async_fd }, || unsafe {
            warpline_ibv_get_async_event(lab.context, &mut event)
        })
    }),
    ("ibv_get_cq_event", "no event, and it must not wait", AGAIN, |lab| {
        let (mut cq, mut context) = (null_mut(), null_mut());
        without_waiting(unsafe { (*lab.channel).fd }, || unsafe {
            warpline_ibv_get_cq_event(lab.channel, &mut cq, &mut context)
        })
    }),
    // The headers' functions return EOPNOTSUPP where a slot is empty.
    ("ibv_alloc_dm", "and all else that is not announced", DONE, |lab| {
        let calls = front(lab.context);
        let served = [calls.modify_cq.is_some(), calls.get_srq_num.is_some()];
        let lists =
            [&calls.slots0[..], &calls.slots7, &calls.slots24, &calls.slots34, &calls.slots42];
        let any = lists.into_iter().flatten().any(|slot| !slot.is_null());
        i64::from(any || served.contains(&true))
    }),
];
