//! Exported function table of the bring-up by path.

use std::ffi::c_void;
use std::sync::Arc;

use super::super::types::Sized32;
use super::super::{path, types as c};
use super::{take_back, verbs};
use crate::{Paths, QpId};

const PATHS: c::PathOps = c::PathOps {
    size: c::PathOps::SIZE,
    reserved: 0,
    release: Some(release),
    number: Some(number),
    receive: Some(receive),
    send: Some(send),
};

pub(super) fn hand_out(paths: Arc<dyn Paths>) -> c::PathsMade {
    c::PathsMade { paths: super::hand_out(paths), ops: &PATHS, ..c::PathsMade::blank() }
}

unsafe extern "C" fn release(paths: *mut c_void) {
    // SAFETY: the host's last use of the handle.
    unsafe { take_back::<dyn Paths>(paths) };
}

verbs! {
    number(paths: dyn Paths, qp: u32 => *mut u32) { paths.number(QpId(qp)) }
    receive(paths: dyn Paths, qp: u32, peer: *const c::PeerPath) {
        paths.receive(QpId(qp), &path::peer_from(&peer)?)
    }
    send(paths: dyn Paths, qp: u32, sender: *const c::PathSender) {
        paths.send(QpId(qp), &path::sender_from(&sender)?)
    }
}
