//! State of the test double: devices, objects, events and faults.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ibv_sys::*;

/// Attributes of the devices.
pub const DEVICES: [(&str, c_int); 2] = [("fakeib0", 0), ("fakeiw0", IBV_TRANSPORT_IWARP)];

/// A posted receive.
pub struct Recv {
    pub wr_id: u64,
    pub sges: Vec<ibv_sge>,
}

/// Private state of a queue pair.
pub struct QpState {
    pub raw: usize,
    pub recvs: VecDeque<Recv>,
    pub peer: Option<u32>,
    pub broken: bool,
    /// Rights of peers.
    pub allows: u32,
    /// Q_Key of a queue pair for datagrams.
    pub qkey: Option<u32>,
}

/// Private state of a completion queue.
#[derive(Default)]
pub struct CqState {
    pub completions: VecDeque<ibv_wc>,
    /// 0: not armed, 1: for all, 2: for solicited ones.
    pub armed: u8,
}

/// A region, or a window.
#[derive(Clone, Copy)]
pub struct Keyed {
    pub addr: u64,
    /// Offset from an address to the octet in memory.
    pub shift: u64,
    pub len: u64,
    pub access: u32,
    pub window: bool,
    /// The queue pair that bound a window of type 2; 0: any of the domain.
    pub qp: u32,
    pub pd: usize,
}

/// Private state of an id of the connection manager.
#[derive(Default)]
pub struct IdState {
    pub port: u16,
    pub listening: bool,
    /// A datagram service, or a request to one.
    pub datagrams: bool,
    pub iwarp: bool,
    pub qp_num: u32,
    pub peer: Option<usize>,
    pub up: bool,
}

#[derive(Default)]
pub struct World {
    pub hidden: bool,
    /// Behaves as the kernel's siw: see `fake_play_siw`.
    pub siw: bool,
    pub faults: HashMap<String, (u32, c_int)>,
    /// Statuses for the next sends.
    pub statuses: VecDeque<u32>,
    pub serial: u32,
    pub contexts: Vec<usize>,
    pub keys: HashMap<u32, Keyed>,
    pub qps: HashMap<u32, QpState>,
    pub srqs: HashMap<usize, (VecDeque<Recv>, u32)>,
    pub cqs: HashMap<usize, CqState>,
    /// CQs with an event, by channel.
    pub notices: HashMap<usize, VecDeque<usize>>,
    /// By context: kind, and the member of the union.
    pub asynchronous: HashMap<usize, VecDeque<(u32, u64)>>,
    pub ahs: HashMap<usize, ibv_ah_attr>,
    pub ids: HashMap<usize, IdState>,
    /// Events by channel.
    pub pending: HashMap<usize, VecDeque<usize>>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// The locked state, for one call.
pub struct Locked(MutexGuard<'static, Option<World>>);

impl std::ops::Deref for Locked {
    type Target = World;
    fn deref(&self) -> &World {
        self.0.as_ref().unwrap_or_else(|| unreachable!("made by `world`"))
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut World {
        self.0.get_or_insert_with(World::default)
    }
}

pub fn world() -> Locked {
    let mut guard = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_with(World::default);
    Locked(guard)
}

impl World {
    pub fn number(&mut self) -> u32 {
        self.serial += 1;
        self.serial
    }

    /// Applies an injected fault of a function, if it is due: sets `errno`.
    pub fn fault(&mut self, function: &str) -> Option<c_int> {
        let (left, errno) = self.faults.get_mut(function)?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let errno = *errno;
        set_errno(errno);
        Some(errno)
    }

    /// Adds a completion, and its notification if armed for it.
    pub unsafe fn complete(&mut self, cq: *mut ibv_cq, wc: ibv_wc, solicited: bool) {
        let Some(state) = self.cqs.get_mut(&(cq as usize)) else { return };
        if state.completions.len() >= (*cq).cqe as usize {
            return self.raise((*cq).context as usize, IBV_EVENT_CQ_ERR, cq as u64);
        }
        state.completions.push_back(wc);
        let important = solicited || wc.status != IBV_WC_SUCCESS;
        if state.armed == 1 || (state.armed == 2 && important) {
            state.armed = 0;
            let channel = (*cq).channel;
            if !channel.is_null() {
                self.notices.entry(channel as usize).or_default().push_back(cq as usize);
                ring((*channel).fd);
            }
        }
    }

    /// Adds an asynchronous event to every open device.
    pub unsafe fn raise(&mut self, context: usize, kind: u32, object: u64) {
        self.asynchronous.entry(context).or_default().push_back((kind, object));
        ring((*(context as *mut ibv_context)).async_fd);
    }

    /// Flushes the posted requests of a queue pair.
    pub unsafe fn flush(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.broken = true;
        let raw = qp.raw as *mut ibv_qp;
        let recvs = std::mem::take(&mut qp.recvs);
        for recv in recvs {
            let status = IBV_WC_WR_FLUSH_ERR;
            let wc = ibv_wc { wr_id: recv.wr_id, status, qp_num: number, ..ibv_wc::default() };
            self.complete((*raw).recv_cq, wc, false);
        }
    }
}

pub fn set_errno(errno: c_int) {
    // SAFETY: `errno` belongs to the thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { place.write(errno) };
}

/// An eventfd that counts.
pub fn bell() -> c_int {
    // SAFETY: no memory is involved.
    unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) }
}

pub fn ring(fd: c_int) {
    // SAFETY: the buffer is alive.
    unsafe { libc::write(fd, (&raw const ONE).cast(), 8) };
}

/// Takes one count; waits if the descriptor blocks.
pub fn answer(fd: c_int) -> bool {
    let mut count = 0u64;
    // SAFETY: the buffer is alive.
    unsafe { libc::read(fd, (&raw mut count).cast(), 8) == 8 }
}

static ONE: u64 = 1;
