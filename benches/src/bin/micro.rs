//! Measures nanoseconds per step of SoftRDMA's data path, of wrappers, and of the C interface's checks, inside
//! one process: no sockets, no protocol.
//!
//! `cargo build --release -p itapi-c && cargo run --release -p warpline-benches --bin micro` prints
//! medians over many short runs, so a preempted run does not count. The second thread of the contended
//! rows belongs to this program.

use std::alloc::Layout;
use std::error::Error;
use std::ffi::{c_char, c_int, c_void};
use std::hint::black_box;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use libloading::{Library, Symbol};
use vp_api::{
    Access, Addressing, CqInit, LogLevel, MemRange, MrInit, PdId, Provider, QpId, QpInit, Services,
    Stag, WcOpcode, WcStatus, WorkCompletion,
};
use vp_soft::memory::place;
use vp_soft::memory::stag_table::{Caller, Need, StagTable};
use vp_soft::queue::cq_ring::CqRing;
use vp_softrdma::{NAME, SoftRdma, bench};

const RUNS: usize = 301;
const STEPS: u32 = 2_000;
const REGION: usize = 1 << 20;
const PD: PdId = PdId(1);
const ME: Caller = Caller { pd: PD, qp: QpId(1), allow: Access::all(), privileged: false };

struct Host;

impl Services for Host {
    fn log(&self, _: LogLevel, _: &str, _: &str) {}
    fn now_ns(&self) -> u64 {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
    fn pin(&self, _: usize, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let range = leak_memory(REGION)?;
    let to = range.addr().as_ptr().addr() as u64;
    println!("{:<44} {:>10}", "step", "median ns");
    for regions in [1, 100_000] {
        let (table, stags) = bench::table(Arc::new(Host), &region(&range), regions)?;
        let mut turn = stags.iter().cycle();
        report(&format!("resolve and release, {regions} regions in turn"), || {
            if let Some(&stag) = turn.next() {
                _ = black_box(resolve(&table, stag, to, 64));
            }
        });
    }
    let (table, stags) = bench::table(Arc::new(Host), &region(&range), 1)?;
    let stag = stags[0];
    report("refuse a wrong key", || _ = black_box(resolve(&table, Stag(stag.0 ^ 1), to, 64)));
    for len in [64, 1440, 65_000] {
        let octets = vec![1; len];
        report(&format!("resolve and place {len} octets"), || {
            if let Ok(target) = table.resolve(stag, Need::RemoteWrite, &ME, to, len as u32) {
                _ = black_box(place::copy_in(&target, 0, &octets));
            }
        });
    }
    contended("resolve, another thread on the same region", || {
        _ = black_box(resolve(&table, stag, to, 64));
    });
    rings()?;
    registration(&range)?;
    wrappers()?;
    c_face()
}

/// A handle of the C interface, of any kind.
type Handle = *mut c_void;

/// The C functions that are measured, called through pointers as a C program calls them.
struct CFace<'l> {
    ia_create: Symbol<'l, unsafe extern "C" fn(*const c_char, u32, u32, *mut Handle) -> u32>,
    ia_free: Symbol<'l, unsafe extern "C" fn(Handle) -> u32>,
    get_handle_type: Symbol<'l, unsafe extern "C" fn(Handle, *mut u32) -> u32>,
    evd_create: Symbol<'l, EvdCreate>,
    evd_dequeue: Symbol<'l, unsafe extern "C" fn(Handle, *mut [u64; 57]) -> u32>,
}

type EvdCreate =
    unsafe extern "C" fn(Handle, u32, u32, usize, usize, Handle, *mut Handle, *mut c_int) -> u32;

impl<'l> CFace<'l> {
    fn new(library: &'l Library) -> Result<Self, libloading::Error> {
        Ok(Self {
            // SAFETY: the types are those of it_api.h.
            ia_create: unsafe { library.get(c"it_ia_create") }?,
            // SAFETY: as above.
            ia_free: unsafe { library.get(c"it_ia_free") }?,
            // SAFETY: as above.
            get_handle_type: unsafe { library.get(c"it_get_handle_type") }?,
            // SAFETY: as above.
            evd_create: unsafe { library.get(c"it_evd_create") }?,
            // SAFETY: as above.
            evd_dequeue: unsafe { library.get(c"it_evd_dequeue") }?,
        })
    }
}

/// The fixed cost of a C call: looking the handle up and returning a status.
fn c_face() -> Result<(), Box<dyn Error>> {
    const DTO_EVENT_STREAM: u32 = 0;
    let path = std::env::current_exe()?.with_file_name("libitapi.so");
    // SAFETY: our own library, without load-time code.
    let library = unsafe { Library::new(&path) }
        .map_err(|e| format!("{e}; cargo build --release -p itapi-c makes it"))?;
    let c = CFace::new(&library)?;
    let (mut ia, mut evd, mut kind, mut event) = (null_mut(), null_mut(), 0, [0; 57]);
    // SAFETY: a constant string, and room for a handle.
    let opened = unsafe { (c.ia_create)(c"vp_softrdma".as_ptr(), 2, 1, &raw mut ia) };
    let (none, out) = (null_mut(), &raw mut evd);
    // SAFETY: room for a handle; without a flag no descriptor is asked for.
    let made = unsafe { (c.evd_create)(ia, DTO_EVENT_STREAM, 0, 64, 1, none, out, null_mut()) };
    if (opened, made) != (0, 0) {
        return Err(format!("cannot open the adapter: status {opened}, {made}").into());
    }
    let check = |handle: Handle, kind: &mut u32| {
        // SAFETY: room for a number; a handle may be anything.
        black_box(unsafe { (c.get_handle_type)(black_box(handle), kind) })
    };
    report("C: check a handle", || _ = check(evd, &mut kind));
    let shared = evd.expose_provenance();
    contended("C: check a handle, another thread too", || {
        _ = check(std::ptr::with_exposed_provenance_mut(shared), &mut 0);
    });
    report("C: refuse a stale handle, with its text", || {
        _ = check(evd.map_addr(|handle| handle ^ 1 << 40), &mut kind);
    });
    // SAFETY: room for an event.
    report("C: find no event", || _ = black_box(unsafe { (c.evd_dequeue)(evd, &raw mut event) }));
    // SAFETY: any handle may be freed; it is not used afterwards.
    unsafe { (c.ia_free)(ia) };
    Ok(())
}

fn rings() -> Result<(), Box<dyn Error>> {
    let ring = CqRing::new(1024)?;
    let completion = completion();
    let mut out = [completion; 64];
    report("cq push and pop", || {
        _ = black_box(ring.push(&completion));
        _ = black_box(ring.pop(&mut out[..1]));
    });
    report("cq push 64 and pop 64, per completion", || {
        // One step in 64 does the work of 64.
        if out[0].wr_id.is_multiple_of(64) {
            for _ in 0..64 {
                _ = black_box(ring.push(&completion));
            }
            _ = black_box(ring.pop(&mut out));
        }
        out[0].wr_id = out[0].wr_id.wrapping_add(1);
    });
    report("cq poll, empty", || _ = black_box(ring.pop(&mut out)));
    report("cq push and pop, armed", || {
        ring.arm(false);
        _ = black_box(ring.push(&completion));
        _ = black_box(ring.pop(&mut out[..1]));
    });
    contended("cq push and pop, another thread too", || {
        _ = black_box(ring.push(&completion));
        _ = black_box(ring.pop(&mut [completion]));
    });
    Ok(())
}

fn registration(range: &MemRange) -> Result<(), Box<dyn Error>> {
    let rnic = SoftRdma.open(NAME, Arc::new(Host))?;
    let pd = rnic.alloc_pd()?;
    for (owner, len) in [(true, 4096), (true, REGION), (false, 4096), (false, REGION)] {
        let part = if owner {
            // SAFETY: a part of the leaked, never referenced allocation.
            unsafe { MemRange::owned(range.addr(), len, Arc::new(())) }
        } else {
            // SAFETY: as above.
            unsafe { MemRange::unowned(range.addr(), len) }
        };
        let init = MrInit { pd, ..region(&part) };
        let whose = if owner { "owned" } else { "bare" };
        report(&format!("register and deallocate {len} {whose} octets"), || {
            if let Ok(stag) = rnic.register_mr(&init) {
                _ = black_box(rnic.dealloc_stag(stag));
            }
        });
    }
    Ok(())
}

/// The cost that a wrapper adds to a post. An empty list is posted, to keep the rest small.
fn wrappers() -> Result<(), Box<dyn Error>> {
    for (name, texts) in [
        ("without wrapper", &[][..]),
        ("stats", &["stats"]),
        ("stats, each post timed", &["stats:every=1"]),
        ("trace, data path not logged", &["trace:every=0"]),
        ("fault, other verbs", &["fault:create_qp@9=InUse"]),
    ] {
        let mut provider: Arc<dyn Provider> = Arc::new(SoftRdma);
        for text in texts {
            provider = vp_hooks::wrap(provider, text)?;
        }
        let rnic = provider.open(NAME, Arc::new(Host))?;
        let cq = rnic.create_cq(&CqInit { depth: 64, handler: None })?;
        let qp = rnic.create_qp(&QpInit::new(rnic.alloc_pd()?, cq.id(), cq.id()))?;
        // An SQ takes posts from RTS on; an RQ does in every state.
        report(&format!("empty post, {name}"), || _ = black_box(qp.post_recv(black_box(&[]))));
    }
    Ok(())
}

fn resolve(table: &StagTable, stag: Stag, to: u64, len: u32) -> bool {
    table.resolve(stag, Need::RemoteWrite, &ME, to, len).is_ok()
}

fn region(range: &MemRange) -> MrInit {
    MrInit {
        pd: PD,
        range: range.clone(),
        addressing: Addressing::Absolute,
        access: Access::all(),
        key: 7,
        pin: false,
    }
}

fn completion() -> WorkCompletion {
    WorkCompletion {
        wr_id: 0,
        qp: QpId(1),
        opcode: WcOpcode::Send,
        status: WcStatus::Success,
        solicited: false,
        octets: 64,
        invalidated: None,
        immediate: None,
    }
}

/// Zeroed memory that lives as long as the program.
fn leak_memory(len: usize) -> Result<MemRange, Box<dyn Error>> {
    let layout = Layout::from_size_align(len, 4096)?;
    // SAFETY: the layout is not of size 0.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    let memory = NonNull::new(memory).ok_or("out of memory")?;
    // SAFETY: a live allocation of `len` octets that is never freed and never referenced.
    Ok(unsafe { MemRange::unowned(memory, len) })
}

fn report(name: &str, step: impl FnMut()) {
    println!("{name:<44} {:>10.1}", median(step));
}

fn median(mut step: impl FnMut()) -> f64 {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begin = Instant::now();
            (0..STEPS).for_each(|_| step());
            begin.elapsed().as_nanos() as f64 / f64::from(STEPS)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

/// As `report`, while another thread does the same.
fn contended(name: &str, step: impl Fn() + Sync) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                step();
            }
        });
        report(name, &step);
        stop.store(true, Ordering::Relaxed);
    });
}
