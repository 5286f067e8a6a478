//! Tests that each verb crosses the C interface unchanged. A provider is exported and imported again within this
//! process, so that Miri can check it: there is no library, no thread and no other process.

mod datagrams;
mod echo;
mod layers;
mod paths;
mod samples;

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::export::{Exported, descriptor};
use super::import::from_descriptor;
use super::types::{Plain, ProviderDescriptor, ProviderOps, RnicAttrs as CAttrs, Sized32};
use super::{codes, grow};
use crate::*;
use samples::params;

static EXPORTED: Exported = Exported::new();
static DESCRIPTOR: ProviderDescriptor = descriptor("echo\0", "7\0", Capabilities::all());

extern "C" fn get_ops(_: u32) -> *const ProviderOps {
    EXPORTED.table(|| Arc::new(echo::Echo))
}

fn provider() -> Arc<dyn Provider> {
    // SAFETY: both are made by the exporter, and static.
    unsafe { from_descriptor(&raw const DESCRIPTOR, get_ops) }.unwrap()
}

/// Services that record the log.
#[derive(Default)]
struct Host(Mutex<Vec<String>>);

impl Services for Host {
    fn log(&self, level: LogLevel, target: &str, message: &str) {
        assert_eq!((level, target), (LogLevel::Debug, "echo"));
        self.0.lock().unwrap().push(message.to_owned());
    }
    fn now_ns(&self) -> u64 {
        1 << 50
    }
    fn pin(&self, _: usize, len: usize) -> std::io::Result<()> {
        Err(std::io::Error::other(format!("{len} octets are too many")))
    }
    fn unpin(&self, _: usize, len: usize) {
        self.0.lock().unwrap().push(format!("unpin {len}"));
    }
    fn settings(&self) -> &[(String, String)] {
        static ALL: std::sync::LazyLock<Vec<(String, String)>> =
            std::sync::LazyLock::new(|| vec![("a".into(), "1".into()), ("b".into(), "".into())]);
        &ALL
    }
}

struct Side {
    rnic: Arc<dyn Rnic>,
    host: Arc<Host>,
}

impl Side {
    fn new() -> Self {
        let host = Arc::new(Host::default());
        let rnic = provider().open("one", host.clone()).unwrap();
        let side = Self { rnic, host };
        side.logged("open \"one\"");
        side
    }

    /// The oldest log line that has not been checked yet.
    fn logged(&self, expected: &str) {
        assert_eq!(self.host.0.lock().unwrap().remove(0), expected);
    }
}

/// Memory that shows whether it is still owned.
fn memory() -> (Arc<[u64; 8]>, MemRange) {
    let owner = Arc::new([0u64; 8]);
    let addr = NonNull::new(Arc::as_ptr(&owner).cast_mut().cast()).unwrap();
    // SAFETY: the owner keeps the allocation; nothing is read or written.
    let range = unsafe { MemRange::owned(addr, 64, owner.clone()) };
    (owner, range)
}

#[test]
fn attributes_of_a_provider_cross_the_interface() {
    let provider = provider();
    assert_eq!((provider.name(), provider.version()), ("echo", "7"));
    assert_eq!(provider.devices().unwrap(), samples::devices());
    let side = Side::new();
    assert_eq!(*side.rnic.attrs(), samples::attrs());
    assert_eq!(side.rnic.ports().unwrap(), samples::ports());
}

#[test]
fn every_refusal_crosses_with_its_text() {
    for (code, status) in (1..=100).filter_map(|code| Some((code, codes::status(code)?))) {
        let device = format!("refuse {code}");
        let error = provider().open(&device, Arc::new(Host::default())).err().unwrap();
        assert_eq!(error, VpError::new(status, format!("{device}: as it was told")));
    }
}

#[test]
fn services_cross() {
    let side = Side::new();
    assert_eq!(side.rnic.alloc_pd().unwrap(), PdId(11));
    side.logged("unpin 8");
    side.logged("alloc_pd (1125899906842624, Err(\"8 octets are too many\"))");
    let kept = Arc::downgrade(&side.host);
    drop(side);
    assert!(kept.upgrade().is_none(), "the services are still held");
}

#[test]
fn memory_verbs_cross() {
    let side = Side::new();
    let (owner, range) = memory();
    let (pd, addressing, access) =
        (PdId(11), Addressing::Based(1 << 63), Access::LOCAL | Access::BIND);
    let init = MrInit { pd, range, addressing, access, key: 0x5a, pin: true };
    let stag = side.rnic.register_mr(&init).unwrap();
    assert_eq!(stag, Stag::new(0x1234, 0x5a));
    side.logged(&format!("register_mr {init:?}"));
    let stag = side.rnic.reregister_mr(stag, &init).unwrap();
    side.logged(&format!("reregister_mr {:?}", (stag, &init)));
    drop(init);
    assert_eq!(Arc::strong_count(&owner), 2, "the region does not hold the memory");
    assert_eq!(side.rnic.query_mr(stag).unwrap(), samples::mr_info());
    side.logged(&format!("query_mr {stag:?}"));
    let shared = side.rnic.register_shared_mr(stag, pd, addressing, access, 3).unwrap();
    assert_eq!(shared, Stag::new(0x1235, 3));
    side.logged(&format!("register_shared_mr {:?}", (stag, pd, addressing, access, 3)));
    assert_eq!(side.rnic.alloc_stag(pd, true).unwrap(), Stag::new(0x1236, 0));
    side.logged(&format!("alloc_stag {:?}", (pd, true)));
    side.rnic.dealloc_stag(stag).unwrap();
    side.logged(&format!("dealloc_stag {stag:?}"));
    assert_eq!(Arc::strong_count(&owner), 1, "the memory is held after deregistration");
}

#[test]
fn window_verbs_cross() {
    let side = Side::new();
    for kind in [MwKind::Wide, MwKind::Narrow] {
        assert_eq!(side.rnic.alloc_mw(PdId(11), kind).unwrap(), MwId(0x77));
        side.logged(&format!("alloc_mw {:?}", (PdId(11), kind)));
    }
    for window in [MwId(0x77), MwId(1)] {
        assert_eq!(side.rnic.query_mw(window).unwrap(), samples::mw_info(window));
        side.logged(&format!("query_mw {window:?}"));
    }
    side.rnic.dealloc_mw(MwId(0x77)).unwrap();
    side.logged(&format!("dealloc_mw {:?}", MwId(0x77)));
}

#[derive(Default)]
struct Ears {
    events: Mutex<Vec<(EventSource, AsyncEvent)>>,
    completions: Mutex<u32>,
}

impl AsyncHandler for Ears {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        self.events.lock().unwrap().push((source, event));
    }
}

impl CqHandler for Ears {
    fn on_completion(&self, cq: CqId) {
        assert_eq!(cq, CqId(9));
        *self.completions.lock().unwrap() += 1;
    }
}

#[test]
fn events_cross_and_handlers_are_released() {
    let side = Side::new();
    let ears = Arc::new(Ears::default());
    side.rnic.set_async_handler(Some(ears.clone()));
    assert_eq!(*ears.events.lock().unwrap(), samples::events());
    assert_eq!(Arc::strong_count(&ears), 2);
    side.rnic.set_async_handler(None);
    assert_eq!(Arc::strong_count(&ears), 1);
}

#[test]
fn completion_queues_cross() {
    let side = Side::new();
    let ears = Arc::new(Ears::default());
    let init = CqInit { depth: 7, handler: Some(ears.clone()) };
    let cq = side.rnic.create_cq(&init).unwrap();
    drop(init);
    side.logged("create_cq 7");
    assert_eq!((cq.id(), cq.depth(), cq.queued()), (CqId(9), 8, 3));
    let all = samples::completions();
    for room in [0, 1, all.len(), all.len() + 70] {
        let cq = side.rnic.create_cq(&CqInit { depth: 7, handler: None }).unwrap();
        side.logged("create_cq 7");
        let mut out = vec![WorkCompletion::BLANK; room];
        let count = cq.poll(&mut out).unwrap();
        assert_eq!(out[..count], all[..room.min(all.len())]);
    }
    cq.arm(true).unwrap();
    side.logged("arm true");
    assert_eq!(*ears.completions.lock().unwrap(), 1);
    let spin = Duration::from_nanos(5);
    for (spin, timeout, expected) in [
        (spin, None, Ok(true)),
        (spin, Some(Duration::from_secs(3)), Ok(false)),
        (Duration::ZERO, None, Err(VpStatus::Interrupted)),
    ] {
        assert_eq!(cq.wait(spin, timeout), expected);
        side.logged(&format!("wait {:?}", (spin, timeout)));
    }
    cq.interrupt();
    side.logged("interrupt ()");
    assert_eq!(cq.resize(20).unwrap(), 40);
    side.logged("resize 20");
    let error = side.rnic.destroy_cq(cq.id()).unwrap_err();
    assert_eq!(error, VpError::new(VpStatus::InUse, "a QP uses it"));
    drop(cq);
    assert_eq!(Arc::strong_count(&ears), 1);
}

fn recvs(sgl: &[Sge]) -> Vec<RecvWr<'_>> {
    (0..=sgl.len()).map(|n| RecvWr { wr_id: n as u64, sgl: &sgl[..n] }).collect()
}

fn sges() -> Vec<Sge> {
    (0..6).map(|n| Sge { stag: Stag(n), len: 10 + n, to: 1 << 40 | u64::from(n) }).collect()
}

#[test]
fn shared_receive_queues_cross() {
    let side = Side::new();
    let init = SrqInit { pd: PdId(11), depth: 1, max_sge: 2, limit: 3 };
    let srq = side.rnic.create_srq(&init).unwrap();
    side.logged(&format!("create_srq {init:?}"));
    assert_eq!((srq.id(), srq.query().unwrap()), (SrqId(12), samples::srq_info()));
    let sges = sges();
    let refused = srq.post_recv(&recvs(&sges)).unwrap_err();
    assert_eq!(refused, PostFailure { posted: 1, status: VpStatus::TooManyWrs });
    recvs(&sges).iter().for_each(|wr| side.logged(&format!("srq post_recv {wr:?}")));
    for change in [(None, None), (Some(4), None), (None, Some(0)), (Some(5), Some(6))] {
        assert_eq!(srq.modify(change.0, change.1).unwrap(), samples::srq_info());
        side.logged(&format!("srq modify {change:?}"));
    }
}

/// The device does not know the number, and may take it for another.
#[test]
fn a_device_without_bases_gets_no_request_for_one() {
    let host = Arc::new(Host::default());
    let rnic = provider().open("without bases", host.clone()).unwrap();
    let (_, range) = memory();
    let (pd, addressing, access) = (PdId(11), Addressing::Based(0), Access::LOCAL);
    let init = MrInit { pd, range: range.clone(), addressing, access, key: 1, pin: false };
    let asked = [
        rnic.register_mr(&init),
        rnic.reregister_mr(Stag(1), &init),
        rnic.register_shared_mr(Stag(1), pd, addressing, access, 1),
    ];
    for refused in asked {
        let error = refused.unwrap_err();
        assert_eq!(error.status, VpStatus::Unsupported);
        assert!(error.detail.contains("RI_CAP_BASED"), "{}", error.detail);
    }
    let qp = rnic.create_qp(&QpInit::new(pd, CqId(9), CqId(8))).unwrap();
    host.0.lock().unwrap().clear();
    let (window, region, remote) = (MwId(1), Stag(1), Access::REMOTE_READ);
    let bind = BindMw { window, key: 1, region, to: 0, len: 1, addressing, access: remote };
    let fast = FastRegister { stag: Stag(1), range, addressing, access };
    for op in [SendOp::BindMw(bind), SendOp::FastRegister(fast.into())] {
        let wr = SendWr { wr_id: 1, op, data: Data::Sgl(&[]), flags: SendFlags::SIGNALED };
        let refused = qp.post_send(&[wr]).unwrap_err();
        assert_eq!(refused, PostFailure { posted: 0, status: VpStatus::Unsupported });
    }
    assert_eq!(*host.0.lock().unwrap(), [""; 0], "the provider was asked");
}

/// Every operation.
fn operations() -> Vec<SendOp> {
    let (remote, data) = (Remote { stag: Stag(0x55aa), to: 1 << 42 }, 0x0102_0304_0506_0708);
    let (_, range) = memory();
    let (addressing, access) = (Addressing::Based(u64::MAX - 99), Access::REMOTE_READ);
    vec![
        SendOp::Send { solicited: false, invalidate: None },
        SendOp::Send { solicited: true, invalidate: Some(Stag(6)) },
        SendOp::Write { remote },
        SendOp::WriteImmediate { remote, data, solicited: true },
        SendOp::Immediate { data, solicited: false },
        SendOp::SendImmediate { data: 0x8765_4321, solicited: true },
        SendOp::Read { remote, invalidate_sink: false },
        SendOp::Read { remote, invalidate_sink: true },
        SendOp::Atomic { remote, op: AtomicOp::FetchAdd { add: 1, mask: 2 } },
        SendOp::Atomic {
            remote,
            op: AtomicOp::CmpSwap { compare: 3, compare_mask: 4, swap: 5, swap_mask: 6 },
        },
        SendOp::BindMw(BindMw {
            window: MwId(7),
            key: 8,
            region: Stag(9),
            to: 10,
            len: 11,
            addressing,
            access,
        }),
        SendOp::FastRegister(Box::new(FastRegister { stag: Stag(12), range, addressing, access })),
        SendOp::InvalidateLocal { stag: Stag(13) },
    ]
}

#[test]
fn work_requests_cross() {
    let side = Side::new();
    let init =
        QpInit { srq: Some(SrqId(12)), recv_limit: 3, ..QpInit::new(PdId(11), CqId(9), CqId(8)) };
    let qp = side.rnic.create_qp(&init).unwrap();
    side.logged(&format!("create_qp {init:?}"));
    // No value is lost, nor turned into a default.
    for (octets, ns) in [(1 << 18, 1 << 40), (0, 0)] {
        let unready = Unready::Hold { octets, time: Duration::from_nanos(ns) };
        let init = QpInit { unready, ..init.clone() };
        side.rnic.create_qp(&init).unwrap();
        side.logged(&format!("create_qp {init:?}"));
    }
    let (sges, octets) = (sges(), *b"octets that go inline");
    let flags = [SendFlags::SIGNALED, SendFlags::READ_FENCE, SendFlags::LOCAL_FENCE];
    let wrs: Vec<_> = operations()
        .into_iter()
        .enumerate()
        .map(|(n, op)| SendWr {
            wr_id: u64::MAX - n as u64,
            op,
            data: match n % 3 {
                0 => Data::Inline(&octets[..n]),
                _ => Data::Sgl(&sges[..n % 6]),
            },
            flags: flags[n % 3],
        })
        .collect();
    for count in [0, 1, wrs.len()] {
        qp.post_send(&wrs[..count]).unwrap();
        wrs[..count].iter().for_each(|wr| side.logged(&format!("post_send {wr:?}")));
    }
    let mut recvs = recvs(&sges);
    qp.post_recv(&recvs).unwrap();
    recvs.iter().for_each(|wr| side.logged(&format!("post_recv {wr:?}")));
    recvs[3].wr_id = u64::MAX;
    let refused = qp.post_recv(&recvs).unwrap_err();
    assert_eq!(refused, PostFailure { posted: 3, status: VpStatus::InvalidWr });
}

#[test]
fn changes_of_a_qp_cross() {
    let side = Side::new();
    let qp = side.rnic.create_qp(&QpInit::new(PdId(11), CqId(9), CqId(9))).unwrap();
    assert_eq!((qp.id(), qp.query().unwrap()), (QpId(13), samples::qp_info()));
    side.host.0.lock().unwrap().clear();
    let limits = |ord, recv_limit| QpChange::Limits {
        ord,
        ird: Some(2),
        send_depth: None,
        recv_depth: Some(3),
        recv_limit,
    };
    // Any descriptors will do: they are only passed on.
    let null = || std::fs::File::open("/dev/null").unwrap().into();
    let local =
        |side| Some(LocalStream { memory: null(), side, doorbell: null(), peer_doorbell: null() });
    let stream = |local| LlpStream {
        socket: null(),
        received: vec![1, 2, 3],
        last_message: vec![4, 5],
        local,
        params: StreamParams {
            markers_tx: true,
            rtr: Some(Rtr::Read),
            fpdu: FpduSize::Octets(1000),
            probe_after: None,
            ..StreamParams::new(Role::Responder)
        },
    };
    for change in [
        QpChange::Rts(Box::new(stream(None))),
        QpChange::Rts(Box::new(stream(local(LocalSide::Maker)))),
        QpChange::Rts(Box::new(stream(local(LocalSide::Other)))),
        QpChange::Closing,
        QpChange::Allow(Access::REMOTE_READ | Access::REMOTE_ATOMIC),
        QpChange::Terminate,
        QpChange::Error,
        QpChange::Idle,
        QpChange::Discard,
        limits(Some(1), None),
        limits(None, Some(0)),
    ] {
        let expected = format!("modify {change:?}");
        qp.modify(change).unwrap();
        side.logged(&expected);
    }
}

#[test]
fn connection_managers_cross() {
    let side = Side::new();
    let cm = side.rnic.native_cm().unwrap();
    let peer = "[2001:db8::2]:7".parse().unwrap();
    let (listener, bound) = cm.listen("192.0.2.1:0".parse().unwrap(), 5).unwrap();
    assert_eq!((listener, bound), (1 << 40, "192.0.2.1:4791".parse().unwrap()));
    side.logged("listen (192.0.2.1:0, 5)");
    cm.unlisten(listener).unwrap();
    side.logged("unlisten 1099511627776");
    cm.connect(QpId(13), peer, params(b"hello")).unwrap();
    side.logged(&format!("connect {:?}", (QpId(13), peer, params(b"hello"))));
    let error = cm.accept(6, QpId(13), params(b"")).unwrap_err();
    assert_eq!(error, VpError::new(VpStatus::InvalidModifier, "too long"));
    side.logged(&format!("accept {:?}", (6, QpId(13), params(b""))));
    cm.reject(6, &[0; 3]).unwrap();
    side.logged("reject (6, [0, 0, 0])");
    cm.disconnect(QpId(13)).unwrap();
    side.logged("disconnect QpId(13)");
    for timeout in [None, Some(Duration::from_millis(3))] {
        assert_eq!(cm.wait_event(timeout).unwrap(), timeout.is_none());
        side.logged(&format!("wait_event {timeout:?}"));
    }
    let events: Vec<_> = std::iter::from_fn(|| cm.poll_event()).collect();
    assert_eq!(events, samples::native_events());
}

/// Fields that a struct of an older minor version lacks are zero, or are not written.
#[test]
fn shorter_structs_are_read_and_written_as_far_as_they_go() {
    let whole = CAttrs { max_qp: 7, max_private_reject: 8, ..CAttrs::blank() };
    // As long as in the first version: without the last four fields.
    let old = std::mem::offset_of!(CAttrs, max_private_connect);
    let mut octets = [0u64; 18];
    assert_eq!(size_of_val(&octets), old);
    let place = octets.as_mut_ptr().cast::<CAttrs>();
    // SAFETY: within the octets.
    unsafe { place.cast::<u32>().write(old as u32) };
    // SAFETY: the place has its size, which is less than that of the struct.
    unsafe { grow::write(place, &whole) };
    // SAFETY: the same.
    let back = unsafe { grow::read(place.cast_const()) };
    assert_eq!((back.size, back.max_qp, back.max_private_reject), (old as u32, 7, 0));
    assert_eq!(CAttrs::zeroed().size, 0);
}

#[test]
fn a_thread_that_leads_crosses_with_its_descriptor() {
    let side = Side::new();
    let until = std::fs::File::open("/dev/null").unwrap();
    for (timeout, expected) in [
        (None, Ok(true)),
        (Some(Duration::from_secs(3)), Ok(false)),
        (Some(Duration::ZERO), Err(VpStatus::Interrupted)),
    ] {
        assert_eq!(side.rnic.lead(until.as_fd(), timeout), expected);
        side.logged(&format!("lead {:?}", (until.as_raw_fd(), timeout)));
    }
}

#[test]
fn vendor_calls_cross_by_name() {
    let side = Side::new();
    let calls = side.rnic.vendor_calls("échos/1").unwrap();
    // SAFETY: the table of this name is a number, constant.
    assert_eq!(unsafe { *calls.table.cast::<u64>().as_ref() }, 9);
    assert_eq!(calls.context.addr(), 5);
    let why = side.rnic.vendor_calls("échos/2").unwrap_err();
    assert_eq!((why.status, &*why.detail), (VpStatus::Unsupported, "not échos/2, but échos/1"));
}
