//! Tests of `itapi` when memory is short: if an allocation whose size the caller chose is refused, an error
//! names it, and later calls succeed. The allocator of this program refuses large allocations of a thread on
//! request; only callers cause lists of that size.

#![allow(clippy::unwrap_used)] // a test fails loudly

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use itapi::{Access, Completion, Ep, Error, Evd, Ia, Lmr, MwKind, Pz, Rmr, Work};

/// Larger allocations are lists.
const LARGE: usize = 2048;
const HANG: Duration = Duration::from_secs(60);

thread_local! {
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn refuses(octets: usize) -> bool {
    octets > LARGE && REFUSES.try_with(Cell::get).unwrap_or(false)
}

// SAFETY: every call is the system allocator's, or returns null, which means that there is no memory.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: same contract, and all memory is the system allocator's.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if refuses(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: same contract, and all memory is the system allocator's.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Runs `run` while large allocations of this thread are refused.
fn short<R>(run: impl FnOnce() -> R) -> R {
    REFUSES.set(true);
    let result = run();
    REFUSES.set(false);
    result
}

/// Asserts that the error names what there was no memory for.
fn names(error: &Error, what: &str) {
    let text = error.to_string();
    assert!(text.contains("no memory for ") && text.contains(what), "{text}");
}

/// Two connected endpoints with one dispatcher.
fn pair(depth: u32) -> (Ia, Pz, Evd, [Ep; 2]) {
    let ia = Ia::open().unwrap();
    let (pz, evd) = (ia.pz().unwrap(), ia.evd(4 * depth).unwrap());
    let ep = || pz.ep(&evd).depth(depth, depth).build().unwrap();
    let [near, far] = [ep(), ep()];
    let listen = ia.listen("127.0.0.1:0").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| listen.request().unwrap().accept(&far, b"").unwrap());
        near.connect(listen.address(), b"").unwrap();
    });
    // Its queue has allocated its memory now.
    near.post(Work::write(b"", board(&pz).remote())).unwrap();
    evd.wait_success(HANG).unwrap();
    (ia, pz, evd, [near, far])
}

/// Memory that the peer, in the same zone, may write.
fn board(pz: &Pz) -> Lmr {
    pz.lmr(64).remote_write().register().unwrap()
}

#[test]
fn endpoints_of_a_dispatcher() {
    let ia = Ia::open().unwrap();
    let (pz, evd) = (ia.pz().unwrap(), ia.evd(16).unwrap());
    let make = || pz.ep(&evd).depth(1, 1).build();
    // The dispatcher's 16 lists of them are large now.
    let mut eps: Vec<_> =
        (0..16 * (LARGE / size_of::<(u64, u64)>() + 1)).map(|_| make().unwrap()).collect();
    for _ in 0..16 {
        names(&short(make).unwrap_err(), "endpoints of an event dispatcher");
    }
    eps.push(make().unwrap());
    // Objects that cannot be removed from the lists are not reused.
    short(|| eps.drain(..100).for_each(drop));
    let [near, far] = [make().unwrap(), make().unwrap()];
    let listen = ia.listen("127.0.0.1:0").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| listen.request().unwrap().accept(&far, b"").unwrap());
        near.connect(listen.address(), b"").unwrap();
    });
    let id = near.post(Work::write(b"", board(&pz).remote())).unwrap();
    let done = evd.wait_success(HANG).unwrap();
    assert_eq!((done.ep, done.id), (near.id(), id));
}

#[test]
fn memory_of_unsignalled_requests() {
    const MANY: usize = 200;
    let (_ia, pz, evd, [near, _far]) = pair(512);
    let board = board(&pz);
    let remote = board.remote();
    let mut buffers = pz.buffers(MANY, 1).unwrap().into_iter();
    let quiet = |buffer| near.try_post(Work::write(buffer, remote).unsignalled());
    let refused = short(|| buffers.by_ref().find_map(|buffer| quiet(buffer).err()));
    let refused = refused.expect("a list that grows with the requests");
    names(&refused.error, "posted requests of an endpoint");
    near.post(refused.given).unwrap();
    buffers.for_each(|buffer| _ = quiet(buffer).unwrap());
    let signalled = || near.post(Work::write(b"", remote)).unwrap();
    signalled();
    let last = pz.buffer(1).unwrap();
    quiet(last).unwrap();
    signalled();
    // There is no memory for the list with the first completion, so it comes with the second.
    let earlier = || short(|| evd.wait_success(HANG)).unwrap().earlier.len();
    assert_eq!([earlier(), earlier()], [0, MANY + 1]);
}

#[test]
fn windows_and_their_regions() {
    const MANY: usize = LARGE / size_of::<usize>() + 1;
    let (_ia, pz, evd, [near, _far]) = pair(512);
    let region = || pz.lmr(8).bindable().remote_read().register().unwrap();
    let wide = pz.rmr(MwKind::Wide).unwrap();
    let link = |rmr: &Rmr, region: &Lmr| {
        let work = Work::link(rmr, region.whole(), Access::REMOTE_READ);
        near.post(work)
    };
    let regions: Vec<_> = (0..MANY).map(|_| region()).collect();
    let settle = || {
        warpline_patience::until("all links to complete", || {
            while evd.poll().unwrap().is_some() {}
            near.query().unwrap().qp.sends_outstanding == 0
        });
        while evd.poll().unwrap().is_some() {}
    };
    // The provider has allocated its memory for so many now.
    let first = pz.rmr(MwKind::Wide).unwrap();
    regions.iter().for_each(|region| _ = link(&first, region).unwrap());
    settle();
    let refused = short(|| regions.iter().find_map(|region| link(&wide, region).err()));
    names(&refused.expect("a list that grows with the links"), "regions of a window");
    // Completing the links needs no memory.
    short(settle);
    let narrow: Vec<_> = (0..MANY).map(|_| pz.rmr(MwKind::Narrow).unwrap()).collect();
    let refused = short(|| narrow.iter().find_map(|rmr| link(rmr, &regions[0]).err()));
    names(&refused.expect("a list that grows with the windows"), "windows of an endpoint");
}

#[test]
fn completions_that_are_taken_at_once() {
    let (_ia, pz, evd, [near, _far]) = pair(64);
    let board = board(&pz);
    let remote = board.remote();
    let mut out: Vec<Completion> = Vec::new();
    let write = || near.post(Work::write(b"", remote)).unwrap();
    for taken in 1..=LARGE / size_of::<Completion>() {
        write();
        warpline_patience::until("a completion", || {
            evd.poll_into(&mut out).unwrap();
            out.len() == taken
        });
    }
    out.shrink_to_fit();
    write();
    names(&short(|| evd.poll_into(&mut out)).unwrap_err(), "completions");
    // The completion is still queued.
    warpline_patience::until("a completion", || evd.poll_into(&mut out).unwrap() == 1);
}

#[test]
fn private_data() {
    let ia = Ia::open().unwrap();
    let (pz, evd) = (ia.pz().unwrap(), ia.evd(16).unwrap());
    let (ep, long) = (pz.ep(&evd).build().unwrap(), vec![0; LARGE + 1]);
    let error = short(|| ep.connect("127.0.0.1:1", &long)).unwrap_err();
    names(&error, "octets of private data");
}
