//! Whatever the order, the connection thread hears of commands, and who sleeps of news: by loom. The
//! naps here have no end of their own, so nothing is mended by the time.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;
use crate::sync::lock;

/// What the thread can sleep on.
#[derive(Default)]
struct Signals {
    waker: bool,
    /// A socket is readable: one event for who reads it.
    socket: bool,
}

/// A desk of few parts.
#[derive(Default)]
struct Model {
    vigil: Vigil,
    signals: Mutex<Signals>,
    signalled: Condvar,
    /// The desk's lock; behind it the commands that were carried out.
    table: Mutex<u32>,
    commands: Mutex<u32>,
    news: Mutex<u32>,
    told: Condvar,
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
        if self.vigil.rouse() {
            self.signal();
        }
    }

    /// With the table.
    fn work(&self, done: &mut u32) {
        *done += std::mem::take(&mut *lock(&self.commands));
        if std::mem::take(&mut lock(&self.signals).socket) {
            *lock(&self.news) += 1;
            self.told.notify_all();
        }
    }

    /// The connection thread, until it has seen so much.
    fn run(&self, commands: u32, news: u32) {
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
            if (done, *lock(&self.news)) == (commands, news) {
                return;
            }
            if let Some(rest) = self.vigil.rest(|| *lock(&self.commands) != 0) {
                let mut signals = lock(&self.signals);
                while !(signals.waker || signals.socket && rest == Rest::Sleep) {
                    signals = self.signalled.wait(signals).unwrap();
                }
                fired = signals.waker;
            }
            self.vigil.rise();
        }
    }

    /// A caller looks once, if nobody is at work.
    fn look(&self) {
        self.vigil.attend();
        if let Ok(mut done) = self.table.try_lock() {
            self.work(&mut done);
        }
    }

    /// A caller waits for news: looks, and then sleeps.
    fn wait(&self) {
        self.look();
        if self.vigil.rely() {
            self.signal();
        }
        let mut news = lock(&self.news);
        while *news == 0 {
            news = self.told.wait(news).unwrap();
        }
        drop(news);
        self.vigil.withdraw();
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
fn loom_who_sleeps_hears_of_news() {
    model(|model| {
        let waiter = with(model, Model::wait);
        let peer = with(model, Model::arrive);
        // Whoever takes it, the waiter gets it. What the thread has not seen it need not wait for.
        let thread = with(model, |model| model.run(1, 1));
        waiter.join().unwrap();
        peer.join().unwrap();
        model.send();
        thread.join().unwrap();
    });
}

#[test]
fn loom_who_left_leaves_the_others_watched() {
    model(|model| {
        model.look();
        let other = with(model, |model| {
            // Its time is over at once.
            if model.vigil.rely() {
                model.signal();
            }
            model.vigil.withdraw();
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
fn loom_a_nap_ends_with_a_command() {
    model(|model| {
        let sender = with(model, Model::send);
        let thread = with(model, |model| model.run(2, 0));
        model.look();
        model.send();
        sender.join().unwrap();
        thread.join().unwrap();
    });
}
