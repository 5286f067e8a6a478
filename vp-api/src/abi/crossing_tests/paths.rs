//! Tests that bring-up by path crosses the C interface, and that mistakes of a caller in C and defects of a provider in
//! C are reported with their cause.

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use super::super::types::{self as c, Sized32};
use super::super::{codes, text};
use super::echo::Log;
use super::{EXPORTED, Host, Side, echo, get_ops};
use crate::import::from_descriptor;
use crate::*;

/// The bring-up by path of the echo.
pub(super) struct Echo(pub(super) Log);

/// What the echo takes to be a queue pair with a number that no packet has.
const BROKEN: QpId = QpId(99);

impl Paths for Echo {
    fn number(&self, qp: QpId) -> VpResult<u32> {
        self.0.record("number", &qp);
        Ok(if qp == BROKEN { 1 << 24 } else { 0x00ff_fffe })
    }
    fn receive(&self, qp: QpId, peer: &PeerPath) -> VpResult<()> {
        self.0.record("receive", &(qp, peer));
        peer.check()
    }
    fn send(&self, qp: QpId, sender: &PathSender) -> VpResult<()> {
        self.0.record("send", &(qp, sender));
        Err(VpError::new(VpStatus::InvalidState, "it does not receive"))
    }
}

const PEER: PeerPath = PeerPath {
    local_gid: [1; 16],
    remote_gid: [2; 16],
    qpn: 3,
    psn: 4,
    mtu_code: 5,
    ird: 600,
    min_rnr_timer: 7,
};

const SENDER: PathSender =
    PathSender { psn: 1, ack_timeout: 2, retry_count: 3, rnr_retry: 4, ord: 500 };

#[test]
fn bring_up_by_path_crosses() {
    let side = Side::new();
    let paths = side.rnic.paths().unwrap();
    assert_eq!(paths.number(QpId(13)), Ok(0x00ff_fffe));
    side.logged("number QpId(13)");
    assert_eq!(paths.receive(QpId(13), &PEER), Ok(()));
    side.logged(&format!("receive {:?}", (QpId(13), PEER)));
    let why = paths.receive(QpId(13), &PeerPath { mtu_code: 6, ..PEER }).unwrap_err();
    let detail = "the code of the path MTU is 6, not within 1 to 5";
    assert_eq!(why, VpError::new(VpStatus::InvalidModifier, detail));
    side.host.0.lock().unwrap().clear();
    let why = paths.send(QpId(13), &SENDER).unwrap_err();
    assert_eq!(why, VpError::new(VpStatus::InvalidState, "it does not receive"));
    side.logged(&format!("send {:?}", (QpId(13), SENDER)));
    let why = paths.number(BROKEN).unwrap_err();
    let detail = "number of a QP is 0x1000000, and has 24 bits";
    assert_eq!(why, VpError::new(VpStatus::Defect, detail));
}

#[test]
fn every_number_of_a_path_has_its_range() {
    let most = PeerPath { qpn: 0x00ff_ffff, psn: 0x00ff_ffff, min_rnr_timer: 31, ..PEER };
    assert_eq!(most.check(), Ok(()));
    for (wrong, part) in [
        (PeerPath { qpn: 1 << 24, ..PEER }, "queue pair is 16777216"),
        (PeerPath { psn: 1 << 24, ..PEER }, "PSN"),
        (PeerPath { mtu_code: 0, ..PEER }, "MTU is 0, not within 1 to 5"),
        (PeerPath { min_rnr_timer: 32, ..PEER }, "RNR timer is 32"),
    ] {
        let why = wrong.check().unwrap_err();
        assert_eq!(why.status, VpStatus::InvalidModifier);
        assert!(why.detail.contains(part), "{}", why.detail);
    }
    let most =
        PathSender { psn: 0x00ff_ffff, ack_timeout: 31, retry_count: 7, rnr_retry: 7, ..SENDER };
    assert_eq!(most.check(), Ok(()));
    for (wrong, part) in [
        (PathSender { psn: 1 << 24, ..SENDER }, "PSN"),
        (PathSender { ack_timeout: 32, ..SENDER }, "timeout is 32"),
        (PathSender { retry_count: 8, ..SENDER }, "the retry count is 8"),
        (PathSender { rnr_retry: 8, ..SENDER }, "RNR retry count is 8"),
    ] {
        let why = wrong.check().unwrap_err();
        assert_eq!(why.status, VpStatus::InvalidModifier);
        assert!(why.detail.contains(part), "{}", why.detail);
    }
}

/// Opens the echo as a program in C does: by its tables.
fn raw() -> c::RnicMade {
    let settings = [("a", "1"), ("b", "")]
        .map(|(key, value)| c::Setting { key: text::lend(key), value: text::lend(value) });
    let services =
        c::Services { settings: settings.as_ptr(), setting_count: 2, ..c::Services::blank() };
    // SAFETY: the exporter's table, which is static.
    let ops = unsafe { *get_ops(0) };
    let (mut made, mut error) = (c::RnicMade::blank(), c::Error::blank());
    let (out, why) = (&raw mut made, &raw mut error);
    // SAFETY: arguments as the header demands.
    let code = unsafe { ops.open.unwrap()(ops.context, text::lend("one"), &services, out, why) };
    assert_eq!(code, codes::OK);
    made
}

/// What a call of a table returned.
fn outcome(call: impl FnOnce(*mut c::Error) -> u32) -> VpResult<()> {
    let mut error = c::Error::blank();
    let code = call(&raw mut error);
    text::outcome(code, &error)
}

fn refused(part: &str, call: impl FnOnce(*mut c::Error) -> u32) {
    let why = outcome(call).unwrap_err();
    assert_eq!(why.status, VpStatus::InvalidModifier, "{part}");
    assert!(why.detail.contains(part), "{part}: {}", why.detail);
}

#[test]
fn mistakes_of_a_caller_in_c_are_named() {
    let rnic = raw();
    // SAFETY: the exporter's table, which is static.
    let ops = unsafe { *rnic.ops };
    let mut made = c::PathsMade::blank();
    let open = ops.paths.unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: a place that is missing, which is checked.
    refused("result is NULL", |error| unsafe { open(rnic.rnic, null, error) });
    made.size = 8;
    let out = &raw mut made;
    // SAFETY: the place has at least the size that it says.
    refused("size is 8, and at least 24", |error| unsafe { open(rnic.rnic, out, error) });
    made.size = c::PathsMade::SIZE;
    // SAFETY: a place as the header demands.
    assert_eq!(outcome(|error| unsafe { open(rnic.rnic, &raw mut made, error) }), Ok(()));
    // SAFETY: the exporter's table, which is static.
    let paths = unsafe { *made.ops };
    let receive = |peer: *const c::PeerPath, part: &str| {
        // SAFETY: a struct, or null, which is checked.
        let call = |error| unsafe { paths.receive.unwrap()(made.paths, 13, peer, error) };
        refused(part, call);
    };
    let good = super::super::path::peer_to(&PEER);
    receive(std::ptr::null(), "peer is NULL");
    receive(&c::PeerPath { size: 0, ..good }, "peer->size is 0, and at least 56");
    receive(&c::PeerPath { size: 55, ..good }, "peer->size is 55");
    receive(&c::PeerPath { mtu_code: 257, ..good }, "mtu_code is 257");
    receive(&c::PeerPath { ird: 65536, ..good }, "ird is 65536");
    receive(&c::PeerPath { min_rnr_timer: 256, ..good }, "min_rnr_timer is 256");
    receive(&c::PeerPath { psn: 1 << 24, ..good }, "PSN of the peer's first request is 16777216");
    let send = |sender: *const c::PathSender, part: &str| {
        // SAFETY: a struct, or null, which is checked.
        let call = |error| unsafe { paths.send.unwrap()(made.paths, 13, sender, error) };
        refused(part, call);
    };
    let good = super::super::path::sender_to(&SENDER);
    send(std::ptr::null(), "sender is NULL");
    send(&c::PathSender { size: 4, ..good }, "sender->size is 4, and at least 24");
    send(&c::PathSender { ack_timeout: 256, ..good }, "ack_timeout is 256");
    send(&c::PathSender { retry_count: 263, ..good }, "retry_count is 263");
    send(&c::PathSender { rnr_retry: 256, ..good }, "rnr_retry is 256");
    send(&c::PathSender { ord: 1 << 20, ..good }, "ord is 1048576");
    // SAFETY: a place that is missing, which is checked.
    let number = |error| unsafe { paths.number.unwrap()(made.paths, 13, null.cast(), error) };
    refused("result is NULL", number);
    // SAFETY: a handle that is missing, which is checked.
    let send_none = |error| unsafe { paths.send.unwrap()(null.cast(), 13, &good, error) };
    refused("paths is NULL", send_none);
    // SAFETY: without an error to fill, which the header allows.
    let code = unsafe { paths.send.unwrap()(made.paths, 13, std::ptr::null(), null.cast()) };
    assert_eq!(code, codes::status_code(VpStatus::InvalidModifier));
    // SAFETY: the last use of the handle.
    unsafe { paths.release.unwrap()(made.paths) };
    // SAFETY: the same.
    unsafe { ops.close.unwrap()(rnic.rnic) };
}

/// Every other table says the same of what is missing.
#[test]
fn a_struct_that_is_missing_is_named_by_every_table() {
    let rnic = raw();
    // SAFETY: the exporter's table, which is static.
    let ops = unsafe { *rnic.ops };
    let (mut stag, mut cq) = (0, c::CqMade::blank());
    let call = ops.register_mr.unwrap();
    let (init, out) = (std::ptr::null(), &raw mut stag);
    // SAFETY: a struct that is missing, which is checked.
    refused("init is NULL", |error| unsafe { call(rnic.rnic, init, out, error) });
    let init = c::CqInit { size: 0, ..c::CqInit::blank() };
    let call = ops.create_cq.unwrap();
    let out = &raw mut cq;
    // SAFETY: a struct without a size, which is checked.
    refused("init->size is 0", |error| unsafe { call(rnic.rnic, &raw const init, out, error) });
    // SAFETY: the last use of the handle.
    unsafe { ops.close.unwrap()(rnic.rnic) };
}

/// A table for ever, which Miri takes for no leak.
fn kept<T: Any + Sync>(table: T) -> &'static T {
    static ALL: Mutex<Vec<&'static (dyn Any + Sync)>> = Mutex::new(Vec::new());
    let table: &'static T = Box::leak(Box::new(table));
    ALL.lock().unwrap().push(table);
    table
}

/// The table of a provider; its context is one, which any thread may use.
struct Table(c::ProviderOps);

// SAFETY: constant data.
unsafe impl Send for Table {}
// SAFETY: the same.
unsafe impl Sync for Table {}

/// How the bring-up by path of a provider in C is broken.
#[derive(Clone, Copy)]
enum Kind {
    NoEntry,
    Refuses,
    Fails,
    NoTable,
    NoHandle,
    NoSend,
    Reserved,
    UnknownStatus,
    OldTable,
}

/// The echo with a broken bring-up by path, in the place of the first device.
fn broken<const KIND: u32>() -> VpResult<Arc<dyn Rnic>> {
    static DESCRIPTOR: c::ProviderDescriptor =
        super::descriptor("broken\0", "1\0", Capabilities::all());
    extern "C" fn ops<const KIND: u32>(_: u32) -> *const c::ProviderOps {
        // SAFETY: the exporter's table, which is static.
        let mut ops = unsafe { *EXPORTED.table(|| Arc::new(echo::Echo)) };
        ops.open = Some(open::<KIND>);
        &raw const kept(Table(ops)).0
    }
    // SAFETY: both are static, or leaked.
    let provider = unsafe { from_descriptor(&raw const DESCRIPTOR, ops::<KIND>) }.unwrap();
    provider.open("one", Arc::new(Host::default()))
}

unsafe extern "C" fn open<const KIND: u32>(
    context: *mut c_void,
    device: c::String,
    services: *const c::Services,
    made: *mut c::RnicMade,
    error: *mut c::Error,
) -> u32 {
    // SAFETY: the exporter's table, which is static.
    let exported = unsafe { *EXPORTED.table(|| Arc::new(echo::Echo)) };
    // SAFETY: the host's arguments, passed on.
    let code = unsafe { exported.open.unwrap()(context, device, services, made, error) };
    // SAFETY: filled by the exporter.
    let made = unsafe { &mut *made };
    // SAFETY: the exporter's table, which is static.
    let mut ops = unsafe { *made.ops };
    ops.paths = Some(paths::<KIND>);
    match KIND {
        k if k == Kind::NoEntry as u32 => ops.paths = None,
        k if k == Kind::OldTable as u32 => {
            ops.size = std::mem::offset_of!(c::RnicOps, paths) as u32;
        }
        _ => {}
    }
    made.ops = kept(ops);
    code
}

unsafe extern "C" fn release(_: *mut c_void) {}
unsafe extern "C" fn number(_: *mut c_void, _: u32, _: *mut u32, _: *mut c::Error) -> u32 {
    // Says that it has stored the number.
    codes::OK
}
unsafe extern "C" fn receive(
    _: *mut c_void,
    _: u32,
    _: *const c::PeerPath,
    _: *mut c::Error,
) -> u32 {
    4711
}
unsafe extern "C" fn send(
    _: *mut c_void,
    _: u32,
    _: *const c::PathSender,
    _: *mut c::Error,
) -> u32 {
    codes::OK
}

unsafe extern "C" fn paths<const KIND: u32>(
    rnic: *mut c_void,
    made: *mut c::PathsMade,
    _: *mut c::Error,
) -> u32 {
    let mut ops = c::PathOps {
        release: Some(release),
        number: Some(number),
        receive: Some(receive),
        send: Some(send),
        ..c::PathOps::blank()
    };
    let mut out = c::PathsMade { paths: rnic, ..c::PathsMade::blank() };
    match KIND {
        k if k == Kind::Refuses as u32 => return codes::status_code(VpStatus::Unsupported),
        k if k == Kind::Fails as u32 => return codes::status_code(VpStatus::Os),
        k if k == Kind::NoHandle as u32 => out.paths = std::ptr::null_mut(),
        k if k == Kind::NoSend as u32 => ops.send = None,
        k if k == Kind::Reserved as u32 => ops.reserved = 1,
        _ => {}
    }
    if KIND != Kind::NoTable as u32 {
        out.ops = kept(ops);
    }
    // SAFETY: the host's place.
    unsafe { made.write(out) };
    codes::OK
}

#[test]
fn a_provider_without_bring_up_by_path_opens() {
    let without = [
        broken::<{ Kind::NoEntry as u32 }>(),
        broken::<{ Kind::Refuses as u32 }>(),
        broken::<{ Kind::OldTable as u32 }>(),
    ];
    for opened in without {
        assert!(opened.unwrap().paths().is_none());
    }
}

#[test]
fn defects_of_a_table_are_found_when_it_is_opened() {
    for (opened, status, part) in [
        (broken::<{ Kind::Fails as u32 }>(), VpStatus::Os, "gives no detail"),
        (broken::<{ Kind::NoTable as u32 }>(), VpStatus::Defect, "returned no ri_path_ops"),
        (broken::<{ Kind::NoHandle as u32 }>(), VpStatus::Defect, "no handle with its ri_path_ops"),
        (broken::<{ Kind::NoSend as u32 }>(), VpStatus::Defect, "ri_path_ops lacks send"),
        (broken::<{ Kind::Reserved as u32 }>(), VpStatus::Defect, "reserved field"),
    ] {
        let why = opened.err().unwrap();
        assert_eq!(why.status, status, "{}", why.detail);
        assert!(why.detail.contains(part), "{}", why.detail);
    }
}

#[test]
fn defects_of_entries_are_found_when_they_are_called() {
    let rnic = broken::<{ Kind::UnknownStatus as u32 }>().unwrap();
    let paths = rnic.paths().unwrap();
    let why = paths.number(QpId(1)).unwrap_err();
    assert_eq!(why.status, VpStatus::Defect);
    assert!(why.detail.contains("number of a QP is 0xffffffff"), "{}", why.detail);
    let why = paths.receive(QpId(1), &PEER).unwrap_err();
    assert_eq!(why.status, VpStatus::NoStatus(4711));
}
