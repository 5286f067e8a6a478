//! Loom tests of the wake-ups: in any order, the connection thread sees commands, and a sleeping caller
//! gets its events. The back-off here never ends by time, so nothing is repaired by a time-out.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;
use crate::sync::lock;

/// What wakes the thread.
#[derive(Default)]
struct Signals {
    waker: bool,
    /// A socket is readable: one event for the thread that reads it.
    socket: bool,
}

/// A driver reduced to a few parts.
#[derive(Default)]
struct Model {
    wake: WakeState,
    signals: Mutex<Signals>,
    signalled: Condvar,
    /// The manager's lock, with the number of executed commands.
    table: Mutex<u32>,
    commands: Mutex<u32>,
    events: Mutex<u32>,
    came: Condvar,
}

impl Model {
    fn signal(&self) {
        lock(&self.signals).waker = true;
        self.signalled.notify_one();
    }

    /// A peer sends.
    fn arrive(&self) {
        lock(&self.signals).socket = true;
        self.signalled.notify_one();
    }

    fn send(&self) {
        *lock(&self.commands) += 1;
        if self.wake.request_wake() {
            self.signal();
        }
    }

    /// With the table locked.
    fn work(&self, done: &mut u32) {
        *done += std::mem::take(&mut *lock(&self.commands));
        if std::mem::take(&mut lock(&self.signals).socket) {
            *lock(&self.events) += 1;
            self.came.notify_all();
        }
    }

    /// The connection thread, until it has seen this many.
    fn run(&self, commands: u32, events: u32) {
        let mut fired = false;
        loop {
            let done = {
                let mut done = lock(&self.table);
                if std::mem::take(&mut fired) {
                    lock(&self.signals).waker = false;
                }
                self.work(&mut done);
                *done
            };
            if (done, *lock(&self.events)) == (commands, events) {
                return;
            }
            if let Some(mode) = self.wake.begin_wait(|| *lock(&self.commands) != 0) {
                let mut signals = lock(&self.signals);
                while !(signals.waker || signals.socket && mode == Mode::Watch) {
                    signals = self.signalled.wait(signals).unwrap();
                }
                fired = signals.waker;
            }
            self.wake.end_wait();
        }
    }

    /// A caller looks once, if the table is free.
    fn check_and_sleep(&self) {
        self.wake.mark_polled();
        if let Ok(mut done) = self.table.try_lock() {
            self.work(&mut done);
        }
    }

    /// A caller waits for events: looks, and then sleeps.
    fn wait(&self) {
        self.check_and_sleep();
        if self.wake.rely() {
            self.signal();
        }
        let mut events = lock(&self.events);
        while *events == 0 {
            events = self.came.wait(events).unwrap();
        }
        drop(events);
        self.wake.withdraw();
    }
}

fn model(body: impl Fn(&Arc<Model>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || body(&Arc::default()));
}

fn with(model: &Arc<Model>, body: impl FnOnce(&Model) + 'static) -> thread::JoinHandle<()> {
    let model = model.clone();
    thread::spawn(move || body(&model))
}

#[test]
fn loom_a_sleeping_caller_gets_events() {
    model(|model| {
        let waiter = with(model, Model::wait);
        let peer = with(model, Model::arrive);
        // Whichever thread reads it, the waiter gets it. The thread need not wait for events that others
        // took.
        let thread = with(model, |model| model.run(1, 1));
        waiter.join().unwrap();
        peer.join().unwrap();
        model.send();
        thread.join().unwrap();
    });
}

#[test]
fn loom_sockets_stay_watched_when_one_caller_leaves() {
    model(|model| {
        model.check_and_sleep();
        let other = with(model, |model| {
            // Its time-out has passed at once.
            if model.wake.rely() {
                model.signal();
            }
            model.wake.withdraw();
        });
        let thread = with(model, |model| model.run(1, 1));
        model.arrive();
        model.wait();
        other.join().unwrap();
        model.send();
        thread.join().unwrap();
    });
}

#[test]
fn loom_back_off_ends_with_a_command() {
    model(|model| {
        let sender = with(model, Model::send);
        let thread = with(model, |model| model.run(2, 0));
        model.check_and_sleep();
        model.send();
        sender.join().unwrap();
        thread.join().unwrap();
    });
}
