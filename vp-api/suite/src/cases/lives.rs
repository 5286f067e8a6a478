//! Cases about lifetimes: what is held and for how long, ids, the order of destruction, closing a device.

use std::sync::Arc;

use kal_shim::Region;
use vp_api::*;

use super::queues::Bell;
use crate::fail::{refused, same};
use crate::rig::{End, Events, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("open: a name that is none is refused", unknown_name).keeps("RI-128"),
    Case::new("close: services are released", services_end).keeps("RI-26"),
    Case::new("close: what was not destroyed is freed", freed).keeps("RI-122"),
    Case::new("async: a handler that is replaced is released", handler_ends).keeps("RI-41"),
    Case::new("async: the last handler counts", handler_counts)
        .keeps("RI-33 RI-42")
        .only(ConnectionModel::LlpStream),
    Case::new("async: the handler may call the provider", handler_calls)
        .keeps("RI-08")
        .only(ConnectionModel::LlpStream),
    Case::new("cq: its handler is released with it", cq_handler_ends).keeps("RI-82"),
    Case::new("cq: its handler is released with it, having been called", cq_handler_called_ends)
        .keeps("RI-82"),
    Case::new("cq: the handler may call the provider", cq_handler_calls).keeps("RI-08"),
    Case::new("cq: a destroyed one refuses", destroyed_cq).keeps("RI-06"),
    Case::new("cq: is destroyed while its handler is called", destroyed_in_call).keeps("RI-200"),
    Case::new("mr: the owner is held while the region is there", owner_held).keeps("RI-24"),
    Case::new("mr: the owner is released with the region", owner_ends).keeps("RI-25"),
    Case::new("mr: the owner of what was refused is released", owner_refused).keeps("RI-25"),
    Case::new("mr: what is pinned is unpinned", pins).keeps("RI-27 RI-46"),
    Case::new("ids: are not soon used again", ids).keeps("RI-04"),
    Case::new("destroy: a QP releases its PD and CQs", lets_go).keeps("RI-130"),
    Case::new("destroy: an SRQ that QPs use stays", srq_in_use)
        .keeps("RI-10")
        .with(Capabilities::SRQ),
    Case::new("destroy: a QP with a narrow window stays", window_on_qp)
        .keeps("RI-10")
        .with(Capabilities::NARROW_MW),
    Case::new("destroy: in any order, with the peer first", peer_first).keeps("RI-10 RI-132"),
    Case::new("lists: a queue of a CQ of its own", own_cqs).keeps("RI-140"),
];

fn unknown_name(rig: &Rig) -> Result<(), Fail> {
    match rig.provider.open("no such device", rig.host.clone()) {
        Err(_) => Ok(()),
        Ok(_) => Err("open: a device that is not listed was opened: compare the name".into()),
    }
}

fn services_end(rig: &Rig) -> Result<(), Fail> {
    let other = rig.another()?;
    let host = other.host.clone();
    drop(other);
    same("uses of the services after close, release each", Arc::strong_count(&host), 1)
}

fn freed(rig: &Rig) -> Result<(), Fail> {
    let (other, region) = (rig.another()?, Region::new(4096)?);
    let used = Arc::new(Bell::default());
    let (near, _far) = (other.end_with(Some(used.clone()), |_| {})?, other.end()?);
    other.connect(&near, &_far)?;
    other.rnic.register_mr(&mr(near.pd, &region, Access::LOCAL))?;
    let bell = Arc::new(Bell::default());
    drop(other.rnic.create_cq(&CqInit { depth: 4, handler: Some(bell.clone()) })?);
    drop((near, _far));
    drop(other);
    same("uses of memory that was registered, after close", region.uses(), 1)?;
    same("uses of the handler of a CQ, after close", Arc::strong_count(&bell), 1)?;
    same("uses of the handler of a CQ with a QP, after close", Arc::strong_count(&used), 1)
}

fn mr(pd: PdId, region: &Region, access: Access) -> MrInit {
    let (range, addressing) = (region.mem_range(), Addressing::Absolute);
    MrInit { pd, range, addressing, access, key: 1, pin: false }
}

fn handler_ends(rig: &Rig) -> Result<(), Fail> {
    let first = Arc::new(Events::new(rig.wait));
    rig.rnic.set_async_handler(Some(first.clone()));
    rig.rnic.set_async_handler(Some(rig.events.clone()));
    same("uses of the handler that was replaced", Arc::strong_count(&first), 1)
}

fn handler_counts(rig: &Rig) -> Result<(), Fail> {
    let second = Arc::new(Events::new(rig.wait));
    rig.rnic.set_async_handler(Some(second.clone()));
    let (near, far) = (rig.end()?, rig.end()?);
    rig.link(&near, &far)?;
    same("event", second.next(EventSource::Qp(near.qp.id()))?, AsyncEvent::Established)
}

/// Calls back into the provider, as a host does.
struct Caller {
    rnic: std::sync::Weak<dyn Rnic>,
    seen: Events,
    cq: std::sync::OnceLock<std::sync::Weak<dyn Cq>>,
}

impl Caller {
    fn new(rig: &Rig) -> Arc<Self> {
        let (rnic, seen) = (Arc::downgrade(&rig.rnic), Events::new(rig.wait));
        Arc::new(Self { rnic, seen, cq: std::sync::OnceLock::new() })
    }

    fn call(&self) {
        let Some(rnic) = self.rnic.upgrade() else { return };
        if let Some(cq) = self.cq.get().and_then(std::sync::Weak::upgrade) {
            // Completions polled here are lost: the case does not need them.
            let _ = cq.poll(&mut [WorkCompletion::BLANK]);
            let _ = cq.arm(false);
        }
        if let Ok(pd) = rnic.alloc_pd() {
            let _ = rnic.dealloc_pd(pd);
        }
    }
}

impl AsyncHandler for Caller {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        self.call();
        self.seen.on_event(source, event);
    }
}

impl CqHandler for Caller {
    fn on_completion(&self, cq: CqId) {
        self.call();
        self.seen.on_event(EventSource::Cq(cq), AsyncEvent::Established);
    }
}

fn handler_calls(rig: &Rig) -> Result<(), Fail> {
    let caller = Caller::new(rig);
    let (near, far) = (rig.end()?, rig.end()?);
    let _ = caller.cq.set(Arc::downgrade(&near.cq));
    rig.rnic.set_async_handler(Some(caller.clone()));
    rig.link(&near, &far)?;
    let reported = caller.seen.next(EventSource::Qp(near.qp.id()));
    reported.map(|_| ()).map_err(|Fail(why)| {
        Fail(why + ", with a handler that polls, arms and allocates: call it without locks held")
    })
}

fn cq_handler_ends(rig: &Rig) -> Result<(), Fail> {
    let bell = Arc::new(Bell::default());
    let init = CqInit { depth: 4, handler: Some(bell.clone()) };
    let cq = rig.rnic.create_cq(&init)?;
    drop(init);
    rig.rnic.destroy_cq(cq.id())?;
    drop(cq);
    same("uses of the handler of a CQ that is gone", Arc::strong_count(&bell), 1)
}

fn cq_handler_called_ends(rig: &Rig) -> Result<(), Fail> {
    let bell = Arc::new(Bell::default());
    let (near, far) = (rig.end()?, rig.end_with(Some(bell.clone()), |_| {})?);
    rig.connect(&near, &far)?;
    for round in 1..=3 {
        far.cq.arm(false)?;
        far.recv(1, &[])?;
        near.post(2, SEND, &[])?;
        near.done(2, WcOpcode::Send)?;
        bell.wait(round, rig.wait)?;
        far.done(1, WcOpcode::Recv)?;
    }
    rig.rnic.destroy_qp(far.qp.id())?;
    rig.rnic.destroy_cq(far.cq.id())?;
    drop(far);
    rig.until("the release of a handler that was called", || Ok(Arc::strong_count(&bell) == 1))
}

fn cq_handler_calls(rig: &Rig) -> Result<(), Fail> {
    let caller = Caller::new(rig);
    let (near, far) = (rig.end()?, rig.end_with(Some(caller.clone()), |_| {})?);
    let _ = caller.cq.set(Arc::downgrade(&far.cq));
    rig.connect(&near, &far)?;
    far.cq.arm(false)?;
    far.recv(1, &[])?;
    near.post(2, SEND, &[])?;
    let reported = caller.seen.next(EventSource::Cq(far.cq.id()));
    reported.map(|_| ()).map_err(|_| {
        let wait = rig.wait;
        let why = "notification did not return, or never came, with a handler that polls, arms and";
        Fail(format!("{why} allocates, within {wait:?}: call it without locks held"))
    })
}

/// A handler that does not return before it is released.
#[derive(Default)]
struct Slow {
    state: std::sync::Mutex<(bool, bool)>,
    bell: std::sync::Condvar,
}

impl Slow {
    fn lock(&self) -> std::sync::MutexGuard<'_, (bool, bool)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn called(&self) -> bool {
        self.lock().0
    }

    fn let_go(&self) {
        self.lock().1 = true;
        self.bell.notify_all();
    }
}

impl CqHandler for Slow {
    fn on_completion(&self, _: CqId) {
        let mut state = self.lock();
        state.0 = true;
        while !state.1 {
            state = self.bell.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

fn destroyed_in_call(rig: &Rig) -> Result<(), Fail> {
    let slow = Arc::new(Slow::default());
    let (near, far) = (rig.end()?, rig.end_with(Some(slow.clone()), |_| {})?);
    rig.connect(&near, &far)?;
    far.cq.arm(false)?;
    far.recv(1, &[])?;
    // Some providers notify in the thread that posts.
    let (done, is_done) = std::sync::mpsc::channel();
    let (rnic, qp, cq) = (rig.rnic.clone(), far.qp.id(), far.cq.id());
    std::thread::scope(|scope| {
        scope.spawn(|| near.post(2, SEND, &[]));
        let called = rig.until("the notification", || Ok(slow.called()));
        scope.spawn(move || {
            let destroyed = rnic.destroy_qp(qp).and_then(|()| rnic.destroy_cq(cq));
            // The case has failed and no longer waits.
            let _ = done.send(destroyed);
        });
        let destroyed = called.and_then(|()| {
            let late = |_| Fail("destroy waits for a notification in another thread".into());
            Ok(is_done.recv_timeout(rig.wait).map_err(late)??)
        });
        slow.let_go();
        destroyed
    })
}

fn destroyed_cq(rig: &Rig) -> Result<(), Fail> {
    let cq = rig.rnic.create_cq(&CqInit { depth: 8, handler: None })?;
    rig.rnic.destroy_cq(cq.id())?;
    let mut out = [WorkCompletion::BLANK];
    refused("poll it", cq.poll(&mut out), VpStatus::InvalidHandle)?;
    refused("arm it", cq.arm(false), VpStatus::InvalidHandle)
}

fn owner_held(rig: &Rig) -> Result<(), Fail> {
    let (pd, region) = (rig.rnic.alloc_pd()?, Region::new(4096)?);
    let stag = rig.rnic.register_mr(&mr(pd, &region, Access::LOCAL))?;
    if region.uses() == 1 {
        return Err("a region holds no use of its memory's owner: retain it in register_mr".into());
    }
    Ok(rig.rnic.dealloc_stag(stag)?)
}

fn owner_ends(rig: &Rig) -> Result<(), Fail> {
    let (pd, region) = (rig.rnic.alloc_pd()?, Region::new(4096)?);
    let stag = rig.rnic.register_mr(&mr(pd, &region, Access::LOCAL))?;
    rig.rnic.dealloc_stag(stag)?;
    same("uses of the memory when dealloc_stag has returned", region.uses(), 1)
}

fn owner_refused(rig: &Rig) -> Result<(), Fail> {
    let (pd, region) = (rig.rnic.alloc_pd()?, Region::new(4096)?);
    if rig.rnic.register_mr(&mr(pd, &region, Access::REMOTE_WRITE)).is_ok() {
        return Err("remote write without local write was granted".into());
    }
    same("uses of memory whose registration was refused", region.uses(), 1)
}

fn pins(rig: &Rig) -> Result<(), Fail> {
    let (pd, region) = (rig.rnic.alloc_pd()?, Region::new(8192)?);
    let init = MrInit { pin: true, ..mr(pd, &region, Access::LOCAL) };
    let stag = match rig.rnic.register_mr(&init) {
        Ok(stag) => stag,
        // The process may not pin memory.
        Err(why) if why.status == VpStatus::Os => return Ok(()),
        Err(why) => return Err(why.into()),
    };
    let pinned = rig.host.pinned();
    rig.rnic.dealloc_stag(stag)?;
    same("pins of the host's that were not undone, by the same range", rig.host.pinned(), 0)?;
    match rig.attrs.connection_model {
        // An adapter's driver pins memory by itself.
        ConnectionModel::Native => Ok(()),
        ConnectionModel::LlpStream => same("pins of the host's while registered", pinned, 1),
    }
}

/// Allocates and frees objects; fails if an id is reused.
fn distinct(what: &str, mut next: impl FnMut() -> Result<u32, Fail>) -> Result<(), Fail> {
    let mut seen = Vec::new();
    for _ in 0..4 {
        let id = next()?;
        if seen.contains(&id) {
            return Err(
                format!("the id {id} of a {what} that ended is used again: count up").into()
            );
        }
        seen.push(id);
    }
    Ok(())
}

fn ids(rig: &Rig) -> Result<(), Fail> {
    let rnic = &rig.rnic;
    distinct("PD", || {
        let pd = rnic.alloc_pd()?;
        rnic.dealloc_pd(pd)?;
        Ok(pd.0)
    })?;
    distinct("CQ", || {
        let cq = rnic.create_cq(&CqInit { depth: 4, handler: None })?;
        rnic.destroy_cq(cq.id())?;
        Ok(cq.id().0)
    })?;
    let end = rig.end()?;
    distinct("QP", || {
        let qp = rnic.create_qp(&rig.qp_init(end.pd, end.cq.id()))?;
        rnic.destroy_qp(qp.id())?;
        Ok(qp.id().0)
    })
}

fn lets_go(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    for end in [&near, &far] {
        end.recv(1, &[])?;
        rig.rnic.destroy_qp(end.qp.id())?;
    }
    for end in [near, far] {
        rig.rnic.destroy_cq(end.cq.id())?;
        rig.rnic.dealloc_pd(end.pd)?;
    }
    Ok(())
}

fn srq_in_use(rig: &Rig) -> Result<(), Fail> {
    let pd = rig.rnic.alloc_pd()?;
    let init = SrqInit { pd, depth: 4, max_sge: 1, limit: 0 };
    let srq = rig.rnic.create_srq(&init)?;
    let end = rig.end_with(None, |init| (init.pd, init.srq) = (pd, Some(srq.id())))?;
    srq.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }])?;
    refused("destroy the SRQ", rig.rnic.destroy_srq(srq.id()), VpStatus::InUse)?;
    same("receives waiting, after the refusal", srq.query()?.posted, 1)?;
    rig.rnic.destroy_qp(end.qp.id())?;
    rig.rnic.destroy_srq(srq.id())?;
    refused("query the SRQ", srq.query(), VpStatus::InvalidHandle)
}

fn window_on_qp(rig: &Rig) -> Result<(), Fail> {
    let (_near, far) = rig.pair()?;
    let memory = far.memory(64)?;
    let window = rig.rnic.alloc_mw(far.pd, MwKind::Narrow)?;
    super::windows::bind(&far, window, &memory, 3)?;
    match rig.rnic.destroy_qp(far.qp.id()).map_err(|why| why.status) {
        Err(VpStatus::InUse) => {
            same("state, after the refusal", far.qp.query()?.state, QpState::Rts)?;
            rig.rnic.dealloc_mw(window)?;
            Ok(rig.rnic.destroy_qp(far.qp.id())?)
        }
        // Some devices unbind the window.
        Ok(()) => {
            refused("query the QP", far.qp.query(), VpStatus::InvalidHandle)?;
            Ok(rig.rnic.dealloc_mw(window)?)
        }
        Err(other) => Err(format!("destroy a QP that a window is bound to: {other:?}").into()),
    }
}

fn peer_first(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = far.memory(64)?;
    far.recv(1, &[memory.all()])?;
    rig.rnic.destroy_qp(near.qp.id())?;
    same("the peer's receive", far.completion()?.status, WcStatus::Flushed)?;
    refused("the peer's PD", rig.rnic.dealloc_pd(far.pd), VpStatus::InUse)?;
    rig.rnic.destroy_qp(far.qp.id())?;
    refused("the PD of a region", rig.rnic.dealloc_pd(far.pd), VpStatus::InUse)?;
    rig.rnic.dealloc_stag(memory.stag)?;
    rig.rnic.dealloc_pd(far.pd)?;
    rig.rnic.destroy_cq(far.cq.id())?;
    rig.rnic.destroy_cq(near.cq.id())?;
    Ok(rig.rnic.dealloc_pd(near.pd)?)
}

fn own_cqs(rig: &Rig) -> Result<(), Fail> {
    let receives = rig.rnic.create_cq(&CqInit { depth: 64, handler: None })?;
    let near = rig.end()?;
    let far: End<'_> = rig.end_with(None, |init| init.recv_cq = receives.id())?;
    rig.connect(&near, &far)?;
    far.recv(1, &[])?;
    near.post(2, SEND, &[])?;
    near.done(2, WcOpcode::Send)?;
    let wc = crate::rig::next(&*receives, rig.wait)?;
    same("the receive, in the CQ of receives", (wc.wr_id, wc.opcode), (1, WcOpcode::Recv))?;
    refused("destroy that CQ", rig.rnic.destroy_cq(receives.id()), VpStatus::InUse)
}
