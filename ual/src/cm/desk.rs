//! Who does the work of connection management: the connection thread, or a caller that is there.
//!
//! The table is behind one lock. The connection thread sleeps without it, and takes it for as long
//! as there is something to do. Callers only try it: one who has a command and finds nobody at work
//! carries it out himself, one who waits for news looks for them a while before he sleeps; else the
//! work is the thread's. So a connection and its answer need no other thread to wake up, and no
//! caller waits for another. When a peer dies nothing is held here.
//!
//! While callers come and look, the thread naps: sockets would wake it for what a caller does
//! already. A command, or a caller who goes to sleep, ends a nap.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use kal_shim::reactor::{Fired, Interest, Ready, Sleeper, ready_within};

use super::table::{REST, Table};
use super::{Command, Mailbox};

/// A waiter lets others have the processor once in so many looks: they may be what it waits for.
const YIELD_EVERY: u32 = 8;

/// How long the thread leaves the sockets to callers that were there.
const NAP: Duration = Duration::from_millis(1);

/// See the module.
pub(super) struct Desk {
    /// Gone when the thread has ended.
    table: Mutex<Option<Table>>,
    mailbox: Mailbox,
    commands: Receiver<Command>,
    /// A caller has looked since the thread last asked.
    attended: AtomicBool,
    /// Callers that sleep, and rely on the thread.
    asleep: AtomicUsize,
    /// The thread does not watch the sockets, or is about to leave them.
    napping: AtomicBool,
    closed: AtomicBool,
}

/// A caller that sleeps until there are news: the thread watches for it.
pub(crate) struct Asleep<'a>(&'a AtomicUsize);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Desk {
    pub(super) fn new(table: Table, mailbox: Mailbox, commands: Receiver<Command>) -> Self {
        Self {
            table: Mutex::new(Some(table)),
            mailbox,
            commands,
            attended: AtomicBool::new(false),
            asleep: AtomicUsize::new(0),
            napping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// The connection thread.
    pub(super) fn run(&self, sleeper: &Sleeper) {
        let mut fired = Fired::default();
        loop {
            // Before the work: what was sent before the end is done.
            let closed = self.closed.load(Ordering::Acquire);
            self.serve(&mut fired);
            if closed {
                break;
            }
            // What came since it woke woke it for nothing more.
            if self.mailbox.is_busy_at_bedtime(&self.commands) {
                continue;
            }
            if let Err(error) = self.rest(sleeper, &mut fired) {
                // Only a broken descriptor table gets here; without this rest it would spin.
                tracing::error!("connection management cannot wait: {error}");
                std::thread::sleep(REST);
            }
            self.mailbox.wake_up();
        }
        let table = self.lock().take();
        // Sockets close and handlers go without the lock.
        drop(table);
    }

    /// Sleeps, or naps while callers come and look.
    fn rest(&self, sleeper: &Sleeper, fired: &mut Fired) -> std::io::Result<()> {
        if !self.attended.swap(false, Ordering::Relaxed) {
            return sleeper.sleep(fired);
        }
        self.napping.store(true, Ordering::Relaxed);
        // Against `fall_asleep`: one of us sees the other.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) == 0 {
            ready_within(self.mailbox.waker.as_fd(), Interest::READ, NAP);
        }
        self.napping.store(false, Ordering::Relaxed);
        sleeper.look(fired)
    }

    /// Ends the thread, after the commands that were sent before.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.mailbox.waker.signal();
    }

    /// Does what was asked and what the thread's sleep found.
    fn serve(&self, fired: &mut Fired) {
        let mut table = self.lock();
        if let Some(table) = &mut *table {
            let mut ready = Vec::new();
            table.reactor.take(fired, &mut ready);
            self.work(table, ready);
        }
    }

    /// Carries out a command in the caller's thread if nobody is at work and nothing was sent
    /// before; else it is the connection thread's.
    pub(super) fn carry_out(&self, command: Command) {
        if let Some(mut table) = self.try_lock()
            && let Some(table) = &mut *table
            && self.commands.is_empty()
        {
            table.on_command(command);
            arm(table);
            return;
        }
        self.mailbox.send(command);
    }

    /// Before a caller sleeps until `done`: looks after the connections for at most `spin` himself,
    /// and then relies on the thread.
    pub(super) fn attend(&self, spin: Duration, done: impl Fn() -> bool) -> Option<Asleep<'_>> {
        let begin = Instant::now();
        for turn in 1_u32.. {
            if done() {
                return None;
            }
            self.attended.store(true, Ordering::Relaxed);
            self.look();
            if begin.elapsed() >= spin {
                break;
            }
            if turn.is_multiple_of(YIELD_EVERY) {
                std::thread::yield_now();
            }
        }
        Some(self.fall_asleep())
    }

    fn fall_asleep(&self) -> Asleep<'_> {
        self.asleep.fetch_add(1, Ordering::Relaxed);
        // Against `rest`: one of us sees the other.
        fence(Ordering::SeqCst);
        if self.napping.load(Ordering::Relaxed) {
            self.mailbox.waker.signal();
        }
        Asleep(&self.asleep)
    }

    /// Does what there is to do, unless somebody does it already.
    fn look(&self) {
        let Some(mut table) = self.try_lock() else { return };
        let Some(table) = &mut *table else { return };
        let mut ready = Vec::new();
        // The thread will see the error, too, and says so.
        if table.reactor.poll(&mut ready).is_ok() {
            self.work(table, ready);
        }
    }

    fn work(&self, table: &mut Table, ready: Vec<Ready>) {
        for command in self.commands.try_iter() {
            table.on_command(command);
        }
        for ready in ready {
            table.on_ready(ready);
        }
        arm(table);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Table>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Table>>> {
        match self.table.try_lock() {
            Ok(table) => Some(table),
            Err(TryLockError::Poisoned(table)) => Some(table.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The thread may be asleep: its timer must be right.
fn arm(table: &mut Table) {
    if let Err(error) = table.reactor.arm() {
        tracing::error!("connection management cannot set its timer: {error}");
    }
}
