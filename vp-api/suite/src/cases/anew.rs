//! Cases about queue pairs that are reset and reused: what remains of their earlier stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::Rig;
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("error: Idle comes behind the event of the end", behind_events)
        .keeps("RI-153")
        .only(ConnectionModel::LlpStream),
    Case::new("error: the handler of the event may itself ask for Idle", asked_by_handler)
        .keeps("RI-08 RI-153")
        .only(ConnectionModel::LlpStream),
    Case::new("idle: completions of an earlier stream are discarded", discarded)
        .keeps("RI-238")
        .with(Capabilities::DISCARD),
    Case::new("qp: changes that the device does not offer are refused", not_offered)
        .keeps("RI-246 RI-247"),
];

/// How long the handler runs, and how long a provider that does not wait for it has to show that.
const WHILE: Duration = Duration::from_millis(250);

/// A handler that runs for a while, unless the QP reaches Idle meanwhile.
struct Slow {
    idle: Mutex<Receiver<()>>,
    returned: AtomicBool,
}

impl AsyncHandler for Slow {
    fn on_event(&self, _: EventSource, _: AsyncEvent) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let early = idle.recv_timeout(WHILE).is_ok();
        self.returned.store(!early, Ordering::Release);
    }
}

fn behind_events(rig: &Rig) -> Result<(), Fail> {
    let rig = rig.another()?;
    let (near, far) = rig.pair()?;
    let (is_idle, idle) = channel();
    let slow = Arc::new(Slow { idle: Mutex::new(idle), returned: AtomicBool::new(false) });
    rig.rnic.set_async_handler(Some(slow.clone()));
    near.qp.modify(QpChange::Error)?;
    rig.until("Error at the peer", || Ok(far.qp.query()?.state == QpState::Error))?;
    far.idle()?;
    let returned = slow.returned.load(Ordering::Acquire);
    let _ = is_idle.send(());
    same("whether the handler had returned when the QP came to Idle", returned, true)
}

/// A handler that asks for Idle, and passes on the result.
struct Eager {
    qp: Mutex<Option<Arc<dyn Qp>>>,
    result: Mutex<Sender<VpResult<()>>>,
}

impl AsyncHandler for Eager {
    fn on_event(&self, _: EventSource, _: AsyncEvent) {
        // Once: another event may follow.
        let qp = self.qp.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(qp) = qp {
            let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = result.send(qp.modify(QpChange::Idle));
        }
    }
}

/// It cannot wait there for the end of the handler: it is refused, or it is Idle.
fn asked_by_handler(rig: &Rig) -> Result<(), Fail> {
    let rig = rig.another()?;
    let (near, far) = rig.pair()?;
    let (to, asked) = channel();
    let eager = Arc::new(Eager { qp: Mutex::new(Some(far.qp.clone())), result: Mutex::new(to) });
    rig.rnic.set_async_handler(Some(eager));
    near.qp.modify(QpChange::Error)?;
    // The peer learns of it, and its event calls the handler, whichever thread finds out.
    let begin = Instant::now();
    let result = loop {
        far.cq.poll(&mut [])?;
        match asked.recv_timeout(Duration::from_millis(1)) {
            Ok(result) => break result,
            Err(_) if begin.elapsed() < rig.wait => {}
            Err(_) => {
                let wait = rig.wait;
                return Err(format!("Idle, asked for by the handler: no answer in {wait:?}").into());
            }
        }
    };
    match result.map_err(|error| error.status) {
        Err(VpStatus::StillFlushing) | Ok(()) => far.idle(),
        other => same("Idle, asked for by the handler", other, Err(VpStatus::StillFlushing)),
    }
}

fn not_offered(rig: &Rig) -> Result<(), Fail> {
    let allow: fn() -> QpChange = || QpChange::Allow(Access::empty());
    let discard: fn() -> QpChange = || QpChange::Discard;
    let changes = [
        ("RI_QP_ALLOW", Capabilities::ALLOW, allow),
        ("RI_QP_DISCARD", Capabilities::DISCARD, discard),
    ];
    let (idle, (near, _far)) = (rig.end()?, rig.pair()?);
    for (what, capability, change) in changes {
        if rig.offers(capability) {
            continue;
        }
        for (state, end) in [("Idle", &idle), ("RTS", &near)] {
            let found = end.qp.modify(change());
            refused(&format!("{what} in {state}"), found, VpStatus::Unsupported)?;
        }
    }
    Ok(())
}

fn discarded(rig: &Rig) -> Result<(), Fail> {
    let (near, _far) = rig.pair()?;
    let depth = near.qp.query()?.recv_depth.into();
    (0..depth).try_for_each(|wr_id| near.recv(wr_id, &[]))?;
    let early = near.qp.modify(QpChange::Discard).map_err(|error| error.status);
    same("RI_QP_DISCARD in RTS", early, Err(VpStatus::InvalidState))?;
    let flush = || {
        near.qp.modify(QpChange::Error)?;
        rig.until("the receives to be flushed", || Ok(near.cq.queued() as u64 == depth))
    };
    flush()?;
    near.idle()?;
    near.qp.modify(QpChange::Discard)?;
    let found = near.cq.poll(&mut [WorkCompletion::BLANK])?;
    same("completions after they were discarded", found, 0)?;
    (0..depth).try_for_each(|wr_id| near.recv(wr_id, &[]))?;
    near.qp.modify(QpChange::Discard)?;
    flush()
}
