//! The post and dequeue path of the C library allocates nothing: two endpoints in one process send,
//! write and read through the C entry points while an allocator counts; alone, and while others keep
//! the processors busy, so that the engine's thread comes in between.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

// Links the C entry points.
extern crate itapi as _;

type Handle = *mut c_void;
type Status = u32;

#[repr(C)]
#[derive(Clone, Copy)]
struct Triplet {
    lmr: Handle,
    addr: *mut u8,
    length: u64,
}

/// `it_event_t` of the standard ABI: 456 octets.
#[repr(C)]
struct Event([u64; 57]);

impl Event {
    fn new() -> Self {
        Self([0; 57])
    }
    fn number(&self) -> u32 {
        self.0[0] as u32
    }
    /// Of a DTO completion.
    fn dto_status(&self) -> u32 {
        self.0[4] as u32
    }
    /// Of a connection request: right behind event number and dispatcher.
    fn cn_est_id(&self) -> u64 {
        self.0[2]
    }
}

unsafe extern "C" {
    fn it_ia_create(name: *const c_char, major: u32, minor: u32, ia: *mut Handle) -> Status;
    fn it_ia_free(ia: Handle) -> Status;
    fn it_pz_create(ia: Handle, pz: *mut Handle) -> Status;
    fn it_evd_create(
        ia: Handle,
        stream: u32,
        flags: u32,
        depth: usize,
        threshold: usize,
        aevd: Handle,
        evd: *mut Handle,
        fd: *mut c_int,
    ) -> Status;
    fn it_evd_dequeue(evd: Handle, event: *mut Event) -> Status;
    fn it_evd_wait(evd: Handle, timeout: u64, event: *mut Event, more: *mut usize) -> Status;
    fn it_ep_rc_create(
        pz: Handle,
        request: Handle,
        recv: Handle,
        connect: Handle,
        flags: u32,
        attributes: *const [u64; 14],
        ep: *mut Handle,
    ) -> Status;
    fn it_listen_create(
        ia: Handle,
        spigot: usize,
        evd: Handle,
        flags: u32,
        qualifier: *mut [u64; 10],
        listen: *mut Handle,
    ) -> Status;
    fn it_ep_connect(
        ep: Handle,
        path: *const [u64; 11],
        attributes: *const c_void,
        qualifier: *const [u64; 10],
        flags: u32,
        private_data: *const u8,
        length: usize,
    ) -> Status;
    fn it_ep_accept(ep: Handle, id: u64, private_data: *const u8, length: usize) -> Status;
    fn it_lmr_create21(
        pz: Handle,
        addr: *mut u8,
        iobl: *const c_void,
        length: u64,
        mode: u32,
        privileges: u32,
        flags: u32,
        shared_id: u32,
        lmr: *mut Handle,
        context: *mut u64,
    ) -> Status;
    fn it_post_send(ep: Handle, s: *const Triplet, n: usize, cookie: u64, flags: u32) -> Status;
    fn it_post_recv(ep: Handle, s: *const Triplet, n: usize, cookie: u64, flags: u32) -> Status;
    fn it_post_rdma_write(
        ep: Handle,
        segments: *const Triplet,
        count: usize,
        cookie: u64,
        flags: u32,
        addr: u64,
        context: u64,
    ) -> Status;
    fn it_post_rdma_read(
        ep: Handle,
        segments: *const Triplet,
        count: usize,
        cookie: u64,
        flags: u32,
        addr: u64,
        context: u64,
    ) -> Status;
}

const COMPLETION: u32 = 1;
const NOTIFY: u32 = 2;
const MESSAGE: usize = 4096;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts what each thread asks for.
struct Counting;

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout` is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, that is, from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn ok(status: Status) {
    assert_eq!(status, 0);
}

/// One end: its endpoint, dispatchers and memory.
struct End {
    ep: Handle,
    dto: Handle,
    connection: Handle,
    memory: Triplet,
    context: u64,
}

fn evd(ia: Handle, stream: u32) -> Handle {
    let mut evd = ptr::null_mut();
    // SAFETY: plain values, and a place for the handle.
    ok(unsafe { it_evd_create(ia, stream, 0, 64, 1, ptr::null_mut(), &mut evd, ptr::null_mut()) });
    evd
}

impl End {
    fn new(ia: Handle, pz: Handle) -> Self {
        let (dto, connection) = (evd(ia, 0), evd(ia, 0x2000));
        let addr = Box::leak(vec![0; 2 * MESSAGE].into_boxed_slice()).as_mut_ptr();
        let (mut lmr, mut context, mut ep) = (ptr::null_mut(), 0, ptr::null_mut());
        let length = 2 * MESSAGE as u64;
        // SAFETY: the memory is leaked: it lives as long as the region.
        ok(unsafe {
            it_lmr_create21(pz, addr, ptr::null(), length, 0, 0xF, 1, 0, &mut lmr, &mut context)
        });
        let mut attributes = [0u64; 14];
        // Payload, requests, receives, send and receive segments.
        attributes[..5].copy_from_slice(&[MESSAGE as u64, 16, 16, 1, 1]);
        // RDMA Read and Write enabled; segments; 4 reads each way; watermarks off.
        attributes[5..9].copy_from_slice(&[1 << 32 | 1, 1, 1, 4 << 32 | 4]);
        attributes[11] = u64::MAX;
        // SAFETY: live handles, attributes of the standard's layout, and a place for the handle.
        ok(unsafe { it_ep_rc_create(pz, dto, dto, connection, 0, &attributes, &mut ep) });
        let memory = Triplet { lmr, addr, length: MESSAGE as u64 };
        Self { ep, dto, connection, memory, context }
    }

    /// The half of the memory that peers write to and read from.
    fn target(&self) -> u64 {
        self.memory.addr.wrapping_add(MESSAGE).addr() as u64
    }

    fn post_recv(&self) {
        // SAFETY: a live endpoint and one segment.
        ok(unsafe { it_post_recv(self.ep, &self.memory, 1, 7, COMPLETION | NOTIFY) });
    }

    /// The next completion, polled and waited for in turn.
    fn complete(&self, polled: bool) {
        let mut event = Event::new();
        let mut more = 0;
        if polled {
            // SAFETY: a live dispatcher and room for an event.
            while unsafe { it_evd_dequeue(self.dto, &mut event) } != 0 {
                std::hint::spin_loop();
            }
        } else {
            // SAFETY: a live dispatcher and room for an event and a number.
            ok(unsafe { it_evd_wait(self.dto, u64::MAX, &mut event, &mut more) });
        }
        assert_eq!(event.dto_status(), 0, "{:#x}", event.number());
    }

    fn established(&self) {
        let (mut event, mut more) = (Event::new(), 0);
        // SAFETY: a live dispatcher and room for an event and a number.
        ok(unsafe { it_evd_wait(self.connection, u64::MAX, &mut event, &mut more) });
        assert_eq!(event.number(), 0x2002);
    }
}

fn connected(ia: Handle) -> (End, End) {
    let (mut pz, mut listen) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live adapter and a place for the handle.
    ok(unsafe { it_pz_create(ia, &mut pz) });
    let (client, server) = (End::new(ia, pz), End::new(ia, pz));
    let requests = evd(ia, 0x1000);
    let mut port = [0u64; 10];
    port[0] = 1;
    // SAFETY: live handles, a qualifier of the standard's layout, a place for the handle.
    ok(unsafe { it_listen_create(ia, 0, requests, 0, &mut port, &mut listen) });
    let mut path = [0u64; 11];
    // IPv4; no local address; the peer is 127.0.0.1: octets 36 to 39.
    path[2] = 1;
    path[4] = u64::from(u32::from_ne_bytes([127, 0, 0, 1])) << 32;
    // SAFETY: live handles, path and qualifier of the standard's layout, no private data.
    ok(unsafe { it_ep_connect(client.ep, &path, ptr::null(), &port, 1, ptr::null(), 0) });
    let (mut event, mut more) = (Event::new(), 0);
    // SAFETY: a live dispatcher and room for an event and a number.
    ok(unsafe { it_evd_wait(requests, u64::MAX, &mut event, &mut more) });
    // SAFETY: a live endpoint, a request's id, no private data.
    ok(unsafe { it_ep_accept(server.ep, event.cn_est_id(), ptr::null(), 0) });
    client.established();
    server.established();
    (client, server)
}

/// One Send each way, an RDMA Write and an RDMA Read.
fn round(client: &End, server: &End, polled: bool) {
    let flags = COMPLETION | NOTIFY;
    for (from, to) in [(client, server), (server, client)] {
        to.post_recv();
        // SAFETY: a live endpoint and one segment.
        ok(unsafe { it_post_send(from.ep, &from.memory, 1, 1, flags) });
        from.complete(polled);
        to.complete(polled);
    }
    let (ep, memory) = (client.ep, &client.memory);
    let (addr, context) = (server.target(), server.context);
    // SAFETY: a live endpoint and one segment.
    ok(unsafe { it_post_rdma_write(ep, memory, 1, 2, flags, addr, context) });
    client.complete(polled);
    // SAFETY: a live endpoint and one segment.
    ok(unsafe { it_post_rdma_read(ep, memory, 1, 3, flags, addr, context) });
    client.complete(polled);
}

/// Rounds of both kinds; what the calling thread asked the allocator for.
fn rounds(client: &End, server: &End, number: u32) -> [u64; 2] {
    [true, false].map(|polled| {
        let before = COUNT.get();
        (0..number).for_each(|_| round(client, server, polled));
        COUNT.get() - before
    })
}

/// Ends the threads that spin, however the rounds end.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// As `rounds`, while as many threads spin as there are processors.
fn rounds_while_busy(client: &End, server: &End, number: u32) -> [u64; 2] {
    let over = AtomicBool::new(false);
    let spin = || {
        while !over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        let _over = Over(&over);
        let busy = thread::available_parallelism().map_or(1, Into::into);
        (0..busy).for_each(|_| _ = scope.spawn(spin));
        rounds(client, server, number)
    })
}

#[test]
fn posting_and_dequeuing_allocate_nothing() {
    let mut ia = ptr::null_mut();
    // SAFETY: a C string and a place for the handle.
    ok(unsafe { it_ia_create(c"vp_softrdma".as_ptr(), 2, 1, &mut ia) });
    let (client, server) = connected(ia);
    // Queues and buffers grow to their sizes.
    rounds(&client, &server, 200);
    assert_eq!(rounds(&client, &server, 1000), [0, 0], "polled, waited for");
    assert_eq!(rounds_while_busy(&client, &server, 300), [0, 0], "busy; polled, waited for");
    // SAFETY: a live adapter; everything of it goes with it.
    ok(unsafe { it_ia_free(ia) });
}
