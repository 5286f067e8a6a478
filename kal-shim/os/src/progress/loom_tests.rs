//! The model of both threads at once: an engine, a connection manager, a peer, and an application's thread
//! that connects, receives a message, and waits for the end of the connection.
//!
//! No timer expires by itself, and the back-off of the connection manager never ends by time, so no time-out
//! repairs anything: a lost wake-up is a deadlock, which loom reports. The engine's back-off is over at once: no
//! thread here relies on the engine, which is what else would end it.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;
use crate::Slept;
use crate::sync::lock;

/// What is readable.
#[derive(Default)]
struct Descriptors {
    /// The engine's epoll set: octets of an established stream, and what wakes the leader.
    message: bool,
    end: bool,
    leader: bool,
    /// The engine's timer.
    alarm: bool,
    /// The connection manager's epoll set: the reply of a start-up, and what wakes its thread.
    reply: bool,
    waker: bool,
    /// The stream is in the engine's set: its connection is established.
    attached: bool,
}

impl Descriptors {
    fn stream(&self) -> bool {
        self.attached && (self.message || self.end)
    }
}

#[derive(Default)]
struct Kernel {
    descriptors: Mutex<Descriptors>,
    changed: Condvar,
}

impl Kernel {
    fn change(&self, change: impl FnOnce(&mut Descriptors)) {
        change(&mut lock(&self.descriptors));
        self.changed.notify_all();
    }

    fn sleep(&self, ends: impl Fn(&Descriptors) -> bool) {
        let mut descriptors = lock(&self.descriptors);
        while !ends(&descriptors) {
            descriptors = self.changed.wait(descriptors).unwrap();
        }
    }
}

struct Eventfd(Arc<Kernel>);

impl Waker for Eventfd {
    fn wake(&self) {
        self.0.change(|descriptors| descriptors.leader = true);
    }
}

/// A CQ.
#[derive(Default)]
struct Queue {
    announced: AtomicU32,
    entries: AtomicU32,
}

impl Waited for Queue {
    fn id(&self) -> u32 {
        1
    }
    fn announce(&self) {
        self.announced.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }
    fn withdraw(&self) {
        self.announced.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What the connection manager delivers.
#[derive(Default)]
struct Events {
    connected: bool,
    disconnected: bool,
}

struct Model {
    kernel: Arc<Kernel>,
    // The engine.
    progress: Progress,
    leadership: Leadership<Eventfd>,
    queue: Queue,
    // The connection manager.
    wake: WakeState,
    /// The engine reported an end.
    commands: AtomicU32,
    /// Its lock.
    table: Mutex<()>,
    events: Mutex<Events>,
    delivered: Condvar,
    stopping: AtomicBool,
}

impl Model {
    fn new() -> Self {
        let kernel = Arc::<Kernel>::default();
        Self {
            kernel: kernel.clone(),
            progress: Progress::new(),
            leadership: Leadership::new(Eventfd(kernel)),
            queue: Queue::default(),
            wake: WakeState::default(),
            commands: AtomicU32::new(0),
            table: Mutex::default(),
            events: Mutex::default(),
            delivered: Condvar::new(),
            stopping: AtomicBool::new(false),
        }
    }

    fn stops(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Any thread at the engine's sockets: completes the message, and reports the end to the connection manager.
    fn serve_streams(&self) {
        let (message, end) = {
            let mut descriptors = lock(&self.kernel.descriptors);
            if !descriptors.attached {
                return;
            }
            (std::mem::take(&mut descriptors.message), std::mem::take(&mut descriptors.end))
        };
        if message {
            self.queue.entries.fetch_add(1, Ordering::Release);
            fence(Ordering::SeqCst);
            if self.queue.announced.load(Ordering::Relaxed) != 0 {
                self.leadership.wake(&self.queue);
            }
        }
        if end {
            self.commands.fetch_add(1, Ordering::Release);
            self.request_wake();
        }
    }

    fn request_wake(&self) {
        if self.wake.request_wake() {
            self.kernel.change(|descriptors| descriptors.waker = true);
        }
    }

    fn run_engine(&self) {
        while !self.stops() {
            let mode = self.progress.decide(|| self.leadership.has_leader());
            if mode != Mode::Sleep {
                self.serve_streams();
            }
            if mode != Mode::BackOff {
                self.kernel.sleep(|ready| ready.alarm || mode == Mode::Watch && ready.stream());
                self.kernel.change(|descriptors| descriptors.alarm = false);
            }
        }
    }

    /// Any thread at the connection manager's sockets.
    fn serve_start_ups(&self) {
        let reply = std::mem::take(&mut lock(&self.kernel.descriptors).reply);
        if reply {
            self.kernel.change(|descriptors| descriptors.attached = true);
            lock(&self.events).connected = true;
        }
        let ended = self.commands.swap(0, Ordering::AcqRel) != 0;
        if ended {
            lock(&self.events).disconnected = true;
        }
        if reply || ended {
            self.delivered.notify_all();
        }
    }

    fn run_manager(&self) {
        loop {
            let stops = self.stops();
            {
                let _table = lock(&self.table);
                self.serve_start_ups();
            }
            if stops {
                return;
            }
            let is_busy = || self.stops() || self.commands.load(Ordering::Acquire) != 0;
            if let Some(mode) = self.wake.begin_wait(is_busy) {
                self.kernel.sleep(|ready| ready.waker || mode == Mode::Watch && ready.reply);
                self.kernel.change(|descriptors| descriptors.waker = false);
            }
            self.wake.end_wait();
        }
    }

    /// The application waits at a dispatcher of connection events.
    fn await_event(&self, came: impl Fn(&Events) -> bool) {
        self.wake.mark_polled();
        if let Ok(_table) = self.table.try_lock() {
            self.serve_start_ups();
        }
        if self.wake.rely() {
            self.kernel.change(|descriptors| descriptors.waker = true);
        }
        let mut events = lock(&self.events);
        while !came(&events) {
            events = self.delivered.wait(events).unwrap();
        }
        drop(events);
        self.wake.withdraw();
    }

    /// The application waits for a completion: after a poll, as the leader.
    fn await_completion(&self) {
        self.progress.mark_polled();
        self.serve_streams();
        let (left, _) = self.leadership.wait(
            &self.queue,
            || self.queue.entries.load(Ordering::Acquire) != 0,
            || None,
            |_, awake| {
                self.kernel.sleep(|ready| ready.leader || ready.stream());
                awake();
                self.kernel.change(|descriptors| descriptors.leader = false);
                self.serve_streams();
                Slept::Woken
            },
        );
        if left == Departure::Unwatched && self.progress.is_unwatched() {
            self.kernel.change(|descriptors| descriptors.alarm = true);
        }
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.kernel.change(|descriptors| descriptors.alarm = true);
        self.request_wake();
    }
}

#[test]
fn loom_an_engine_and_a_connection_manager() {
    let mut builder = loom::model::Builder::new();
    // Seconds; with two preemptions, minutes.
    builder.preemption_bound = Some(1);
    builder.check(|| {
        let model = Arc::new(Model::new());
        let run = |body: fn(&Model)| {
            let model = model.clone();
            thread::spawn(move || body(&model))
        };
        // The peer's reply is there when the application begins to wait for it.
        model.kernel.change(|descriptors| descriptors.reply = true);
        let threads = [
            run(Model::run_engine),
            run(Model::run_manager),
            run(|model| {
                model.kernel.change(|descriptors| descriptors.message = true);
                model.kernel.change(|descriptors| descriptors.end = true);
            }),
        ];
        model.await_event(|events| events.connected);
        model.await_completion();
        model.await_event(|events| events.disconnected);
        model.stop();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
