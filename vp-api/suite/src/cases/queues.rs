//! Cases about queues: completions and their notification, full queues, lists that are refused in part.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{End, Rig, SEND, next};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("cq: an empty one gives nothing", empty),
    Case::new("cq: depth is at least what was asked for", depth).keeps("RI-79"),
    Case::new("cq: a wait ends with its time", wait_times_out).keeps("RI-90"),
    Case::new("cq: an interrupt ends a wait", interrupted).keeps("RI-91"),
    Case::new("rnic: a thread that leads has handlers called", leads).keeps("RI-213 RI-215"),
    Case::new("rnic: a thread leads until its time is over", leads_so_long).keeps("RI-214"),
    Case::new("cq: an armed notification fires once", notified).keeps("RI-80 RI-87 RI-144"),
    Case::new("cq: an armed one notifies, also of what a poll takes first", notified_polling)
        .keeps("RI-80 RI-87"),
    Case::new("cq: solicited only means it", notified_solicited).keeps("RI-88"),
    Case::new("cq: can be resized, keeping completions", resized)
        .keeps("RI-92")
        .with(Capabilities::CQ_RESIZE),
    Case::new("sq: unsignaled requests complete silently", unsignaled).keeps("RI-63"),
    Case::new("sq: a full queue refuses, and says how far it came", full).keeps("RI-13"),
    Case::new("rq: a full queue refuses", full_receives).keeps("RI-13"),
    Case::new("sq: a list stops at its first bad request", broken_list).keeps("RI-14 RI-113"),
    Case::new("rq: a limit is reported once", own_limit)
        .keeps("RI-40 RI-101")
        .with(Capabilities::RECV_LIMIT),
    Case::new("rq: without a limit event a limit is refused", no_limit),
    Case::new("srq: receives serve every QP on it", shared).keeps("RI-97").with(Capabilities::SRQ),
    Case::new("srq: a limit is reported once", limit).keeps("RI-39 RI-94").with(Capabilities::SRQ),
    Case::new("srq: a QP on it takes no receives", not_its_own)
        .keeps("RI-21 RI-99")
        .with(Capabilities::SRQ),
];

fn empty(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let mut out = [WorkCompletion::BLANK; 4];
    same("completions", end.cq.poll(&mut out)?, 0)
}

fn depth(rig: &Rig) -> Result<(), Fail> {
    for wanted in [1, 16, rig.attrs.max_cqe.min(1000)] {
        let cq = rig.rnic.create_cq(&CqInit { depth: wanted, handler: None })?;
        if cq.depth() < wanted {
            return Err(format!("{wanted} asked for, {} given", cq.depth()).into());
        }
        rig.rnic.destroy_cq(cq.id())?;
    }
    Ok(())
}

fn wait_times_out(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    // Some waits end before the time-out and return true; a poll then finds out.
    let mut out = [WorkCompletion::BLANK];
    for time in [1, 30].map(Duration::from_millis) {
        let begun = Instant::now();
        let waited = end.cq.wait(Duration::ZERO, Some(time))?;
        let took = begun.elapsed();
        same("completions", end.cq.poll(&mut out)?, 0)?;
        same("something to poll", waited, false)?;
        if took < time {
            return Err(format!("a wait of {time:?} ended after {took:?}").into());
        }
    }
    Ok(())
}

/// Two waits must both be interrupted; if they are not, their threads are left behind.
fn interrupted(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let (to, ended) = channel();
    for _ in 0..2 {
        let (cq, to) = (end.cq.clone(), to.clone());
        // Longer than the suite waits: a time-out does not count as an interrupt.
        let most = rig.wait * 10;
        std::thread::spawn(move || to.send(cq.wait(Duration::ZERO, Some(most))));
    }
    let (begin, mut left) = (Instant::now(), 2);
    // Only waits in progress are interrupted, so this is repeated until both were.
    while left > 0 {
        end.cq.interrupt();
        match ended.recv_timeout(Duration::from_millis(1)) {
            Ok(waited) => same("something to poll", waited?, false)?,
            Err(_) if begin.elapsed() < rig.wait => continue,
            Err(_) => {
                let wait = rig.wait;
                return Err(format!("{left} of 2 waits go on {wait:?} after interrupts").into());
            }
        }
        left -= 1;
    }
    Ok(())
}

/// Makes a descriptor readable once this many CQs have notified.
struct Channel {
    open: Mutex<(Vec<CqId>, std::io::PipeWriter)>,
    cqs: usize,
}

impl CqHandler for Channel {
    fn on_completion(&self, cq: CqId) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.0.push(cq);
        if open.0.len() == self.cqs {
            let _ = open.1.write_all(&[1]);
        }
    }
}

/// Messages for two armed CQs, sent while this thread serves the device, or before.
fn leads(rig: &Rig) -> Result<(), Fail> {
    let (until, write) = std::io::pipe()?;
    let channel = Arc::new(Channel { open: Mutex::new((Vec::new(), write)), cqs: 2 });
    let ends = || Ok::<_, Fail>((rig.end()?, rig.end_with(Some(channel.clone()), |_| {})?));
    let pairs = [ends()?, ends()?];
    for (near, far) in &pairs {
        rig.connect(near, far)?;
        far.cq.arm(false)?;
    }
    let (led, sent) = std::thread::scope(|scope| {
        let mut all = pairs.iter();
        let sender = scope.spawn(move || all.try_for_each(|(near, far)| message(near, far, false)));
        let led = rig.rnic.lead(until.as_fd(), Some(rig.wait));
        (led, sender.join())
    });
    sent.map_err(|_| Fail::from("the sender panicked"))??;
    match led {
        Err(VpStatus::Unsupported) => Ok(()),
        led => same("a descriptor is readable", led?, true),
    }
}

fn leads_so_long(rig: &Rig) -> Result<(), Fail> {
    let (until, _write) = std::io::pipe()?;
    let (rnic, (to, ended)) = (rig.rnic.clone(), channel());
    // Left behind if it does not end.
    std::thread::spawn(move || to.send(rnic.lead(until.as_fd(), Some(Duration::from_millis(20)))));
    match ended.recv_timeout(rig.wait) {
        Ok(Err(VpStatus::Unsupported)) => Ok(()),
        Ok(led) => same("a descriptor is readable", led?, false),
        Err(_) => Err(format!("a thread leads for more than {:?}, not 20 ms", rig.wait).into()),
    }
}

/// Counts notifications.
#[derive(Default)]
pub(super) struct Bell {
    rings: Mutex<Vec<CqId>>,
    rung: Condvar,
}

impl CqHandler for Bell {
    fn on_completion(&self, cq: CqId) {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(cq);
        self.rung.notify_all();
    }
}

impl Bell {
    pub(super) fn rings(&self) -> usize {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Fails if a notification named another CQ.
    pub(super) fn all_of(&self, cq: CqId) -> Result<(), Fail> {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.iter().try_for_each(|named| same("CQ of the notification", *named, cq))
    }

    pub(super) fn wait(&self, count: usize, most: Duration) -> Result<(), Fail> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        while rings.len() < count {
            let waited = self.rung.wait_timeout(rings, most);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            rings = guard;
            if timeout.timed_out() {
                return Err(format!("{} notifications, not {count}", rings.len()).into());
            }
        }
        Ok(())
    }
}

/// Fails if there were more notifications than `count`. One that is on its way is not seen at once, so one that is due is
/// waited for first: a provider calls a handler in order.
pub(super) fn no_more(
    near: &End<'_>,
    far: &End<'_>,
    bell: &Bell,
    count: usize,
) -> Result<(), Fail> {
    far.cq.arm(false)?;
    message(near, far, true)?;
    bell.wait(count + 1, near.rig.wait)?;
    far.done(1, WcOpcode::Recv)?;
    same("notifications, and one that was due", bell.rings(), count + 1)
}

fn message(near: &End<'_>, far: &End<'_>, solicited: bool) -> Result<(), Fail> {
    far.recv(1, &[])?;
    near.post(2, SendOp::Send { solicited, invalidate: None }, &[])?;
    near.done(2, WcOpcode::Send).map(|_| ())
}

fn notified(rig: &Rig) -> Result<(), Fail> {
    let bell = Arc::new(Bell::default());
    let (near, far) = (rig.end()?, rig.end_with(Some(bell.clone()), |_| {})?);
    rig.connect(&near, &far)?;
    message(&near, &far, false)?;
    far.done(1, WcOpcode::Recv)?;
    same("notifications before arming", bell.rings(), 0)?;
    far.cq.arm(false)?;
    message(&near, &far, false)?;
    bell.wait(1, rig.wait)?;
    bell.all_of(far.cq.id())?;
    far.done(1, WcOpcode::Recv)?;
    message(&near, &far, false)?;
    far.done(1, WcOpcode::Recv)?;
    no_more(&near, &far, &bell, 1)
}

fn notified_polling(rig: &Rig) -> Result<(), Fail> {
    let bell = Arc::new(Bell::default());
    let (near, far) = (rig.end()?, rig.end_with(Some(bell.clone()), |_| {})?);
    rig.connect(&near, &far)?;
    for n in 0..20 {
        far.recv(1, &[])?;
        far.cq.arm(false)?;
        near.post(2, SEND, &[])?;
        let mut out = [WorkCompletion::BLANK];
        rig.until("the completion", || Ok(far.cq.poll(&mut out)? == 1))?;
        bell.wait(n + 1, rig.wait)?;
        near.done(2, WcOpcode::Send)?;
    }
    same("notifications", bell.rings(), 20)
}

fn notified_solicited(rig: &Rig) -> Result<(), Fail> {
    let bell = Arc::new(Bell::default());
    let (near, far) = (rig.end()?, rig.end_with(Some(bell.clone()), |_| {})?);
    rig.connect(&near, &far)?;
    far.cq.arm(true)?;
    message(&near, &far, false)?;
    far.done(1, WcOpcode::Recv)?;
    same("notifications of what was not solicited", bell.rings(), 0)?;
    message(&near, &far, true)?;
    bell.wait(1, rig.wait)?;
    far.done(1, WcOpcode::Recv)?;
    no_more(&near, &far, &bell, 1)
}

fn resized(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    for n in 0..5 {
        far.recv(n, &[])?;
        near.post(n, SEND, &[])?;
        near.done(n, WcOpcode::Send)?;
    }
    let larger = far.cq.depth() + 100;
    if far.cq.resize(larger)? < larger {
        return Err("smaller than asked for".into());
    }
    (0..5).try_for_each(|n| far.done(n, WcOpcode::Recv).map(|_| ()))
}

fn unsignaled(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let rounds = u64::from(near.qp.query()?.send_depth) * 3;
    for n in 0..rounds {
        far.recv(n, &[])?;
        let signaled = n % 4 == 3;
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        near.qp.post_send(&[SendWr { wr_id: n, op: SEND, data: Data::Sgl(&[]), flags }])?;
        if signaled {
            near.done(n, WcOpcode::Send)?;
        }
        far.done(n, WcOpcode::Recv)?;
    }
    Ok(())
}

fn full(rig: &Rig) -> Result<(), Fail> {
    // In Idle no request is processed, so the queue fills up.
    let end = rig.end()?;
    let depth = end.qp.query()?.send_depth as usize;
    let wr = SendWr { wr_id: 1, op: SEND, data: Data::Sgl(&[]), flags: SendFlags::SIGNALED };
    let mut taken = 0;
    let failure = loop {
        match end.qp.post_send(std::slice::from_ref(&wr)) {
            Ok(()) => taken += 1,
            Err(failure) => break failure,
        }
        if taken > depth {
            return Err(format!("{taken} requests fit into a queue of {depth}").into());
        }
    };
    if failure.status == VpStatus::InvalidState && taken == 0 {
        return Ok(()); // Not every RNIC takes requests before it is connected.
    }
    same("refusal", failure.status, VpStatus::TooManyWrs)?;
    same("requests taken", taken, depth)
}

fn full_receives(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let depth = end.qp.query()?.recv_depth as usize;
    let list = vec![RecvWr { wr_id: 1, sgl: &[] }; depth + 1];
    let failure = match end.qp.post_recv(&list) {
        Ok(()) => return Err("a list longer than the queue was taken".into()),
        Err(failure) => failure,
    };
    same("refusal", failure.status, VpStatus::TooManyWrs)?;
    if failure.posted > depth {
        return Err(format!("{} of a queue of {depth}", failure.posted).into());
    }
    Ok(())
}

fn broken_list(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let source = near.memory(8)?;
    let long = vec![source.sge(0, 1); near.rig.attrs.max_sge_send as usize + 1];
    for n in 0..3 {
        far.recv(n, &[])?;
    }
    let wr = |wr_id, sgl| {
        let (data, flags) = (Data::Sgl(sgl), SendFlags::SIGNALED);
        SendWr { wr_id, op: SEND, data, flags }
    };
    let list = [wr(1, &[]), wr(2, &[]), wr(3, &long[..]), wr(4, &[])];
    let failure = near.qp.post_send(&list).err();
    let failure = failure.ok_or_else(|| Fail("a list of too many elements was taken".into()))?;
    same("requests taken before", failure.posted, 2)?;
    same("refusal", failure.status, VpStatus::InvalidSgl)?;
    // Nothing after the refused request is posted: the next one is the third.
    near.post(5, SEND, &[])?;
    for (id, recv) in [(1, 0), (2, 1), (5, 2)] {
        near.done(id, WcOpcode::Send)?;
        far.done(recv, WcOpcode::Recv)?;
    }
    Ok(())
}

fn srq(rig: &Rig, pd: PdId, limit: u32) -> Result<Arc<dyn Srq>, Fail> {
    let (depth, max_sge) = (rig.attrs.max_wr_per_srq.min(16), rig.attrs.max_sge_recv.min(2));
    Ok(rig.rnic.create_srq(&SrqInit { pd, depth, max_sge, limit })?)
}

fn shared(rig: &Rig) -> Result<(), Fail> {
    let pd = rig.rnic.alloc_pd()?;
    let srq = srq(rig, pd, 0)?;
    let on_srq = |init: &mut QpInit| (init.pd, init.srq) = (pd, Some(srq.id()));
    let ends = [rig.end_with(None, on_srq)?, rig.end_with(None, on_srq)?];
    let peers = [rig.end()?, rig.end()?];
    for (peer, end) in peers.iter().zip(&ends) {
        rig.connect(peer, end)?;
    }
    srq.post_recv(&[RecvWr { wr_id: 5, sgl: &[] }, RecvWr { wr_id: 6, sgl: &[] }])?;
    same("receives waiting", srq.query()?.posted, 2)?;
    let mut ids = Vec::new();
    for (peer, end) in peers.iter().zip(&ends) {
        peer.post(1, SEND, &[])?;
        peer.done(1, WcOpcode::Send)?;
        let wc = next(&*end.cq, rig.wait)?;
        same("QP of the receive", (wc.qp, wc.status), (end.qp.id(), WcStatus::Success))?;
        ids.push(wc.wr_id);
    }
    ids.sort_unstable();
    same("receives used", ids, vec![5, 6])?;
    refused("destroy it in use", rig.rnic.destroy_srq(srq.id()), VpStatus::InUse)
}

fn limit(rig: &Rig) -> Result<(), Fail> {
    let pd = rig.rnic.alloc_pd()?;
    let srq = srq(rig, pd, 0)?;
    let end = rig.end_with(None, |init| (init.pd, init.srq) = (pd, Some(srq.id())))?;
    let peer = rig.end()?;
    rig.connect(&peer, &end)?;
    srq.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }; 3])?;
    srq.modify(None, Some(3))?;
    peer.post(1, SEND, &[])?;
    next(&*end.cq, rig.wait)?;
    let event = rig.events.next(EventSource::Srq(srq.id()))?;
    same("event", event, AsyncEvent::SrqLimit)
}

fn own_limit(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end()?, rig.end_with(None, |init| init.recv_limit = 1)?);
    rig.connect(&near, &far)?;
    let source = EventSource::Qp(far.qp.id());
    let message = |n| {
        far.recv(n, &[])?;
        near.post(n, SEND, &[])?;
        near.done(n, WcOpcode::Send).map(drop)
    };
    // Each is polled before the next: never more than the limit of one.
    for n in 0..3 {
        message(n)?;
        far.done(n, WcOpcode::Recv)?;
    }
    same("events at the limit", rig.events.waiting(source), 0)?;
    // Two are taken and not polled: more than the limit, which is reported once.
    (0..2).try_for_each(message)?;
    same("event", far.event()?, AsyncEvent::RecvLimit)?;
    message(2)?;
    (0..3).try_for_each(|n| far.done(n, WcOpcode::Recv).map(drop))?;
    same("events after the one", rig.events.waiting(source), 0)
}

fn no_limit(rig: &Rig) -> Result<(), Fail> {
    if rig.offers(Capabilities::RECV_LIMIT) {
        return Ok(());
    }
    match rig.end_with(None, |init| init.recv_limit = 1) {
        Err(_) => Ok(()),
        Ok(_) => Err("it was granted".into()),
    }
}

fn not_its_own(rig: &Rig) -> Result<(), Fail> {
    let pd = rig.rnic.alloc_pd()?;
    let srq = srq(rig, pd, 0)?;
    let end = rig.end_with(None, |init| (init.pd, init.srq) = (pd, Some(srq.id())))?;
    let posted = end.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]);
    refused("post a receive", posted, VpStatus::InvalidWr)
}
