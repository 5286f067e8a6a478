//! What the wrappers of one RNIC share: which fault it is, and what that fault has to remember. Any
//! thread.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;

pub(crate) use kal_os::lock;
use vp_api::*;

use crate::cq::Cq;
use crate::faults::Fault;

/// The fault of an RNIC.
pub(crate) struct Seed {
    fault: Option<Fault>,
    services: Arc<dyn Services>,
    /// The STag that is valid, by its index.
    pub(crate) stags: Mutex<HashMap<u32, Stag>>,
    /// Regions with a base, by STag index: the address of the first octet, and the base.
    pub(crate) based: Mutex<HashMap<u32, (u64, u64)>>,
    /// Requests of faults that are signaled although their poster did not want it.
    pub(crate) unsignaled: Mutex<HashSet<(QpId, u64)>>,
    /// PDs by their number here: the lowest that is free.
    pub(crate) pds: Mutex<Vec<Option<PdId>>>,
    pub(crate) cqs: Mutex<HashMap<CqId, Weak<Cq>>>,
    /// Held during callbacks.
    pub(crate) held: Mutex<()>,
    /// Keys of queue pairs for datagrams, by number.
    pub(crate) qkeys: Mutex<HashMap<u32, u32>>,
    /// An address handle was destroyed, and a fault loses what was sent with it.
    pub(crate) handle_gone: AtomicBool,
    /// A poll has said that completions were lost.
    pub(crate) overran: AtomicBool,
    /// Services have a handler.
    pub(crate) serves: AtomicBool,
    /// The CQ that notified first.
    pub(crate) notified: Mutex<Option<CqId>>,
    /// A thread has led.
    pub(crate) led: AtomicBool,
    /// The last region, and its registration.
    pub(crate) registered: Mutex<Option<(ThreadId, Stag)>>,
    count: AtomicU32,
}

impl Seed {
    pub(crate) fn new(fault: Option<Fault>, services: Arc<dyn Services>) -> Self {
        let (stags, pds, cqs) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self {
            fault,
            services,
            stags,
            based: Mutex::default(),
            unsignaled: Mutex::default(),
            pds,
            cqs,
            held: Mutex::default(),
            qkeys: Mutex::default(),
            handle_gone: AtomicBool::new(false),
            overran: AtomicBool::new(false),
            serves: AtomicBool::new(false),
            notified: Mutex::default(),
            led: AtomicBool::new(false),
            registered: Mutex::default(),
            count: AtomicU32::new(0),
        }
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// The offset that a provider knows which takes those of a based region for addresses.
    pub(crate) fn by_address(&self, stag: Stag, to: u64) -> u64 {
        match lock(&self.based).get(&stag.index()) {
            Some((addr, base)) => to.wrapping_sub(*addr).wrapping_add(*base),
            None => to,
        }
    }

    /// Counts on, and returns what was there before.
    pub(crate) fn next(&self) -> u32 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a fault keeps the notification of this CQ to itself: another one was first.
    pub(crate) fn keeps_notification(&self, cq: CqId) -> bool {
        self.has(Fault::LeadForOneCq)
            && *lock(&self.notified).get_or_insert(cq) != cq
            && !self.led.load(Ordering::Acquire)
    }

    /// Posts; if all slots are taken, again when all that completed has been taken from `cqs`.
    pub(crate) fn post_again(
        &self,
        cqs: impl Iterator<Item = CqId>,
        post: impl Fn() -> Result<(), PostFailure>,
    ) -> Result<(), PostFailure> {
        match post() {
            Err(PostFailure { status: VpStatus::TooManyWrs, .. }) => {
                cqs.filter_map(|cq| self.cq(cq)).for_each(|cq| cq.drain());
                post()
            }
            other => other,
        }
    }

    /// The wrapped CQ of that id.
    pub(crate) fn cq(&self, id: CqId) -> Option<Arc<Cq>> {
        lock(&self.cqs).get(&id).and_then(Weak::upgrade)
    }

    /// All CQs.
    pub(crate) fn cq_ids(&self) -> Vec<CqId> {
        lock(&self.cqs).keys().copied().collect()
    }

    /// What a fault makes of a refusal.
    pub(crate) fn refusal<T>(&self, result: VpResult<T>) -> VpResult<T> {
        let wrong = |right, wrong| match &result {
            Err(why) if why.status == right => Some(wrong),
            _ => None,
        };
        let other = match self.fault {
            Some(Fault::StaleIsModifier) => {
                wrong(VpStatus::InvalidHandle, VpStatus::InvalidModifier)
            }
            Some(Fault::NoPdIsModifier) => wrong(VpStatus::InvalidPd, VpStatus::InvalidModifier),
            Some(Fault::ReadDepthIsModifier) => {
                wrong(VpStatus::InvalidIrdOrd, VpStatus::InvalidModifier)
            }
            Some(Fault::InUseIsState) => wrong(VpStatus::InUse, VpStatus::InvalidState),
            Some(Fault::NoStagIsHandle) => wrong(VpStatus::InvalidStag, VpStatus::InvalidHandle),
            Some(Fault::WindowIsInUse) => wrong(VpStatus::StagInUse, VpStatus::InUse),
            Some(Fault::RightsAreModifier) => {
                wrong(VpStatus::InvalidAccess, VpStatus::InvalidModifier)
            }
            Some(Fault::StateIsModifier) => {
                wrong(VpStatus::InvalidState, VpStatus::InvalidModifier)
            }
            Some(Fault::UnsupportedIsModifier) => {
                wrong(VpStatus::Unsupported, VpStatus::InvalidModifier)
            }
            _ => None,
        };
        match other {
            Some(status) => Err(VpError::new(status, "seeded")),
            None => result,
        }
    }
}

impl Services for Seed {
    fn log(&self, level: LogLevel, target: &str, message: &str) {
        self.services.log(level, target, message);
    }

    fn now_ns(&self) -> u64 {
        self.services.now_ns()
    }

    fn pin(&self, addr: usize, len: usize) -> io::Result<()> {
        match self.has(Fault::PinIgnored) {
            true => Ok(()),
            false => self.services.pin(addr, len),
        }
    }

    fn settings(&self) -> &[(String, String)] {
        match self.has(Fault::SettingsIgnored) {
            true => &[],
            false => self.services.settings(),
        }
    }

    fn unpin(&self, addr: usize, len: usize) {
        match self.fault {
            Some(Fault::UnpinForgotten | Fault::PinIgnored) => {}
            Some(Fault::UnpinOther) => self.services.unpin(addr, len / 2),
            _ => self.services.unpin(addr, len),
        }
    }
}
