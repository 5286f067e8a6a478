//! Regions that share memory (`IT_LMR_FLAG_SHARED`): those of one adapter with the same `shared_id` and
//! the same memory become one registration under several STags (RDMAC Register Shared MR).
//!
//! One list for the process, used only when such a region is created.

use std::sync::{Arc, Mutex, Weak};

use kal_os::lock;
use ual::vp_api::{Capabilities, MemRange, MrInfo, VpStatus, room};
use ual::{Error, Lmr, LmrInit, Pz, Result};

struct Member {
    ia: u64,
    shared_id: u32,
    range: (usize, usize),
    lmr: Weak<Lmr>,
}

static MEMBERS: Mutex<Vec<Member>> = Mutex::new(Vec::new());

fn range_of(range: &MemRange) -> (usize, usize) {
    (range.addr().as_ptr().addr(), range.len())
}

/// Registers memory, together with a region of the group that has the same memory if there is one.
pub(crate) fn register(pz: &Arc<Pz>, shared_id: u32, init: LmrInit) -> Result<Arc<Lmr>> {
    let (ia, range) = (pz.ia().tag().get(), range_of(&init.range));
    let mut members = lock(&MEMBERS);
    members.retain(|member| member.lmr.strong_count() != 0);
    let group = |m: &&Member| m.ia == ia && m.shared_id == shared_id && m.range == range;
    let can = pz.ia().attrs().capabilities.contains(Capabilities::SHARED_MR);
    let others: Vec<_> =
        members.iter().filter(|_| can).filter(group).filter_map(|m| m.lmr.upgrade()).collect();
    let lmr = match others.iter().map(|other| join(other, pz, &init)).find_map(Result::transpose) {
        Some(joined) => joined?,
        None => pz.create_lmr(init)?,
    };
    let member = Member { ia, shared_id, range, lmr: Arc::downgrade(&lmr) };
    let attempt = "share a region";
    room::push(&mut members, "shared regions", member)
        .map_err(|source| Error::Verb { attempt, source })?;
    Ok(lmr)
}

/// Joins another region's memory; `None`: that one was freed or changed meanwhile.
fn join(other: &Arc<Lmr>, pz: &Arc<Pz>, init: &LmrInit) -> Result<Option<Arc<Lmr>>> {
    let (addr, len) = range_of(&init.range);
    let same = |has: MrInfo| has.valid && (has.addr, has.len) == (addr as u64, len as u64);
    if !other.query().is_ok_and(same) {
        return Ok(None);
    }
    match other.share(pz, init.addressing, init.access, init.key) {
        Ok(lmr) => Ok(Some(lmr)),
        Err(Error::Closed(_)) => Ok(None),
        Err(error) if error.verb_status() == Some(VpStatus::InvalidStag) => Ok(None),
        Err(error) => Err(error),
    }
}
