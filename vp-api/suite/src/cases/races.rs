//! Cases in which two threads use one object at the same time.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("threads: two post to one QP", posting).keeps("RI-07"),
    Case::new("threads: two poll one CQ", polling).keeps("RI-07"),
    Case::new("threads: two make objects", making).keeps("RI-07"),
    Case::new("threads: two register and deregister", registering).keeps("RI-07"),
    Case::new("threads: one arms while the CQ is destroyed", arming).keeps("RI-06"),
    Case::new("threads: closed by another one while connections end", closing)
        .keeps("RI-122 RI-26"),
    Case::new("threads: one waits while the CQ is destroyed", destroyed).keeps("RI-06"),
    Case::new("model: random programs of connected queue pairs", crate::model::play).keeps(
        "RI-07 RI-13 RI-54 RI-57 RI-63 RI-64 RI-73 RI-74 RI-109 RI-132 RI-143 RI-150 RI-151 RI-155 RI-186 RI-187 \
         RI-192 RI-193 RI-210 RI-244 RI-248",
    ),
];

const EACH: u64 = 100;

fn both<'a>(one: impl Fn(u64) -> Result<(), Fail> + Sync + 'a) -> Result<(), Fail> {
    let one = &one;
    std::thread::scope(|scope| {
        let threads = [scope.spawn(move || one(0)), scope.spawn(move || one(1))];
        let panicked = |_| Err("a thread panicked".into());
        let ended = threads.map(|thread| thread.join().unwrap_or_else(panicked));
        ended.into_iter().collect()
    })
}

/// Receives, each of one octet.
fn receives(far: &End<'_>, count: u64) -> Result<(), Fail> {
    (0..count).try_for_each(|n| far.recv(n, &[]))
}

fn posting(rig: &Rig) -> Result<(), Fail> {
    let depths = |init: &mut QpInit| (init.send_depth, init.recv_depth) = (256, 256);
    let (near, far) = (rig.end_with(None, depths)?, rig.end_with(None, depths)?);
    rig.connect(&near, &far)?;
    receives(&far, 2 * EACH)?;
    both(|thread| (0..EACH).try_for_each(|n| near.post(1000 * thread + n, SEND, &[])))?;
    let mut seen = Vec::new();
    for _ in 0..2 * EACH {
        seen.push(near.completion()?.wr_id);
    }
    for thread in 0..2 {
        let of = |id: &&u64| **id / 1000 == thread;
        let ids: Vec<u64> = seen.iter().filter(of).map(|id| id % 1000).collect();
        same("requests of one thread, in its order", ids, (0..EACH).collect())?;
    }
    Ok(())
}

fn polling(rig: &Rig) -> Result<(), Fail> {
    let depths = |init: &mut QpInit| (init.send_depth, init.recv_depth) = (256, 256);
    let (near, far) = (rig.end_with(None, depths)?, rig.end_with(None, depths)?);
    rig.connect(&near, &far)?;
    receives(&far, 2 * EACH)?;
    (0..2 * EACH).try_for_each(|n| near.post(n, SEND, &[]))?;
    let seen = Mutex::new(Vec::new());
    both(|_| {
        rig.until("completions for two threads", || {
            let mut out = [WorkCompletion::BLANK; 4];
            let n = far.cq.poll(&mut out)?;
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.extend(out[..n].iter().map(|wc| wc.wr_id));
            Ok(seen.len() as u64 >= 2 * EACH)
        })
    })?;
    let mut seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Each polls once more: what arrives now was there before.
    let mut out = [WorkCompletion::BLANK; 4];
    let n = far.cq.poll(&mut out)?;
    seen.extend(out[..n].iter().map(|wc| wc.wr_id));
    seen.sort_unstable();
    same("completions, each once", seen, (0..2 * EACH).collect())
}

fn making(rig: &Rig) -> Result<(), Fail> {
    let made = Mutex::new(Vec::new());
    both(|_| {
        for _ in 0..20 {
            let end = rig.end()?;
            let memory = end.memory(64)?;
            let ids = (end.qp.id(), memory.stag);
            made.lock().unwrap_or_else(PoisonError::into_inner).push(ids);
            rig.rnic.dealloc_stag(memory.stag)?;
            rig.rnic.destroy_qp(end.qp.id())?;
            rig.rnic.destroy_cq(end.cq.id())?;
            rig.rnic.dealloc_pd(end.pd)?;
        }
        Ok(())
    })
}

fn registering(rig: &Rig) -> Result<(), Fail> {
    both(|_| {
        let end = rig.end()?;
        for _ in 0..50 {
            let memory = end.memory(64)?;
            match rig.rnic.query_mr(memory.stag) {
                Ok(info) => same("address of the region", info.addr, memory.region.addr())?,
                Err(why) if why.status == VpStatus::Unsupported => {}
                Err(why) => return Err(why.into()),
            }
            rig.rnic.dealloc_stag(memory.stag)?;
        }
        Ok(())
    })
}

fn arming(rig: &Rig) -> Result<(), Fail> {
    let cq = rig.rnic.create_cq(&CqInit { depth: 8, handler: None })?;
    std::thread::scope(|scope| {
        let armed = scope.spawn(|| {
            let mut last = Ok(());
            rig.until("an arm of a destroyed CQ is refused", || {
                last = cq.arm(false);
                Ok(last.is_err())
            })?;
            refused("the arm", last, VpStatus::InvalidHandle)
        });
        rig.rnic.destroy_cq(cq.id())?;
        armed.join().unwrap_or_else(|_| Err("a thread panicked".into()))
    })
}

fn closing(rig: &Rig) -> Result<(), Fail> {
    let (other, region) = (rig.another()?, kal_shim::Region::new(4096)?);
    let host = other.host.clone();
    {
        let (near, far) = other.pair()?;
        let (range, addressing) = (region.mem_range(), Addressing::Absolute);
        let (pd, access) = (near.pd, Access::LOCAL);
        other.rnic.register_mr(&MrInit { pd, range, addressing, access, key: 0, pin: false })?;
        (0..4).try_for_each(|n| far.recv(n, &[]))?;
        // The end of both is reported while the device is closed.
        near.qp.modify(QpChange::Error)?;
    }
    let closed = std::thread::spawn(move || drop(other)).join();
    closed.map_err(|_| "a thread panicked")?;
    rig.until("memory and services are released", || {
        Ok(region.uses() == 1 && std::sync::Arc::strong_count(&host) == 1)
    })
}

/// Number of repetitions; in each, both calls begin at the same time.
const ROUNDS: u32 = 500;

fn destroyed(rig: &Rig) -> Result<(), Fail> {
    (0..ROUNDS).try_for_each(|round| destroyed_once(rig, round % 100))
}

/// `later`: iterations of a loop after the wait has begun.
fn destroyed_once(rig: &Rig, later: u32) -> Result<(), Fail> {
    let cq = rig.rnic.create_cq(&CqInit { depth: 8, handler: None })?;
    let (to, ended) = std::sync::mpsc::channel();
    let (waiter, most) = (cq.clone(), rig.wait * 10);
    let begun = std::sync::Arc::new(AtomicBool::new(false));
    let begins = begun.clone();
    std::thread::spawn(move || {
        begins.store(true, Ordering::Release);
        to.send(waiter.wait(std::time::Duration::ZERO, Some(most)))
    });
    rig.until("a thread", || Ok(begun.load(Ordering::Acquire)))?;
    (0..later).for_each(|_| std::hint::spin_loop());
    rig.rnic.destroy_cq(cq.id())?;
    match ended.recv_timeout(rig.wait) {
        Ok(waited) => refused("the wait", waited, VpStatus::InvalidHandle),
        Err(_) => Err(format!("a wait goes on {:?} after its CQ was destroyed", rig.wait).into()),
    }
}
