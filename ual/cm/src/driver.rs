//! Drives the connection table: in the connection thread, or in a caller's thread.
//!
//! The table is under one lock. The connection thread sleeps without it, and takes it while there is
//! work. Callers only try the lock. A caller with a command that gets the lock executes the command. A
//! caller that waits for events serves the sockets for a while before it sleeps. Everything else is the
//! thread's work. So a connection needs no other thread to wake up, and no caller waits for another. The
//! thread that releases the lock delivers the events ([`crate::deliveries`]). A peer that dies has
//! no state here.
//!
//! While callers serve the sockets and none sleeps, the thread backs off ([`WakeState`]): otherwise
//! sockets would wake it for work that a caller already does. A command, or a caller that goes to sleep,
//! ends the back-off.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crossbeam_channel::Receiver;
use kal_os::Spinner;
use kal_os::progress::{Mode, WakeState};
use kal_shim::reactor::{Fired, Interest, Ready, Sleeper, ready_within};

use crate::deliveries::Deliveries;
use crate::mailbox::{Command, Mailbox};
use crate::table::ConnectionTable;
use crate::tuning::{BACK_OFF, PAUSE};

/// The connection table, its lock, and its thread's commands.
pub(crate) struct Driver {
    /// `None` when the thread has ended.
    work: Mutex<Option<Work>>,
    mailbox: Mailbox,
    deliveries: Arc<Deliveries>,
    closed: AtomicBool,
    spinner: Spinner,
}

/// The part under the lock. Commands that will not be executed are dropped with it.
pub(crate) struct Work {
    pub(crate) table: ConnectionTable,
    commands: Receiver<Command>,
}

/// A caller that sleeps until there is an event: while this exists the thread watches the sockets.
pub struct Asleep<'a>(&'a WakeState);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

impl Driver {
    pub(crate) fn new(
        table: ConnectionTable,
        mailbox: Mailbox,
        commands: Receiver<Command>,
    ) -> Self {
        let deliveries = table.deliveries.clone();
        let work = Mutex::new(Some(Work { table, commands }));
        let closed = AtomicBool::new(false);
        Self { work, mailbox, deliveries, closed, spinner: Spinner::default() }
    }

    /// The connection thread.
    pub(crate) fn run(&self, sleeper: &Sleeper, commands: Receiver<Command>) {
        let mut fired = Fired::default();
        let wake = &self.mailbox.wake;
        loop {
            // Read before the work, so that commands sent before the end are executed.
            let closed = self.is_closed();
            self.serve(&mut fired);
            if closed {
                break;
            }
            // The thread already handles signals that came since it woke.
            if let Some(mode) = wake.begin_wait(|| self.is_closed() || !commands.is_empty())
                && let Err(error) = self.sleep(mode, sleeper, &mut fired)
            {
                // Only a broken descriptor table leads here; without this pause the thread would spin.
                tracing::error!("connection management cannot wait: {error}");
                std::thread::sleep(PAUSE);
            }
            wake.end_wait();
        }
        let work = self.lock().take();
        // Sockets are closed and handlers dropped without the lock.
        drop((work, commands));
    }

    fn sleep(&self, mode: Mode, sleeper: &Sleeper, fired: &mut Fired) -> std::io::Result<()> {
        match mode {
            Mode::Watch | Mode::Sleep => sleeper.sleep(fired),
            Mode::BackOff => {
                ready_within(self.mailbox.waker.as_fd(), Interest::READ, BACK_OFF);
                sleeper.poll(fired)
            }
        }
    }

    /// Ends the thread, after the commands that were sent before.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // As for a command: a signal alone could be taken for one that was handled already.
        if self.mailbox.wake.request_wake() {
            self.mailbox.waker.signal();
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Executes the commands and handles what woke the thread.
    fn serve(&self, fired: &mut Fired) {
        if let Some(work) = &mut *self.lock() {
            let mut ready = Vec::new();
            work.table.reactor.take(fired, &mut ready);
            work.handle(ready);
        }
        self.deliver();
    }

    /// Whether no event is queued or being delivered.
    #[cfg(feature = "testing")]
    pub(crate) fn has_delivered(&self) -> bool {
        self.deliveries.is_done()
    }

    /// Delivers events; without the lock.
    pub(crate) fn deliver(&self) {
        self.deliveries.deliver(&self.mailbox);
    }

    /// Executes a command in the caller's thread if the table is free and no other command was sent
    /// before; otherwise the connection thread executes it.
    pub(crate) fn execute(&self, command: Command) {
        match self.try_execute(command) {
            None => self.deliver(),
            Some(command) => self.mailbox.send(command),
        }
    }

    /// Executes a command in the caller's thread, after those that were sent before.
    pub(crate) fn execute_in_order(&self, command: Command) {
        if let Some(work) = &mut *self.lock() {
            work.handle(Vec::new());
            work.table.on_command(command);
            work.arm();
        }
        self.deliver();
    }

    /// `Some`: another thread has the table, or other commands come first.
    fn try_execute(&self, command: Command) -> Option<Command> {
        let Some(mut work) = self.try_lock() else { return Some(command) };
        match &mut *work {
            Some(work) if work.commands.is_empty() => {
                work.table.on_command(command);
                work.arm();
                None
            }
            _ => Some(command),
        }
    }

    /// Before a caller sleeps until `done`: serves the connections in its thread for at most `spin`, and
    /// then relies on the connection thread.
    pub(crate) fn attend(&self, spin: Duration, done: impl Fn() -> bool) -> Option<Asleep<'_>> {
        let mut spin = self.spinner.begin(spin);
        loop {
            if done() {
                return None;
            }
            self.mailbox.wake.mark_polled();
            self.handle_ready();
            if !spin.again() {
                break;
            }
        }
        Some(self.fall_asleep())
    }

    fn fall_asleep(&self) -> Asleep<'_> {
        if self.mailbox.wake.rely() {
            self.mailbox.waker.signal();
        }
        Asleep(&self.mailbox.wake)
    }

    /// Handles what is ready, unless another thread has the table.
    fn handle_ready(&self) {
        if let Some(mut work) = self.try_lock()
            && let Some(work) = &mut *work
        {
            let mut ready = Vec::new();
            // The thread will get the same error, and logs it.
            if work.table.reactor.poll(&mut ready).is_ok() {
                work.handle(ready);
            }
        }
        self.deliver();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Work>>> {
        match self.work.try_lock() {
            Ok(work) => Some(work),
            Err(TryLockError::Poisoned(work)) => Some(work.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Work {
    /// Handles what is ready now; later events are the thread's, so that no caller stays without end.
    fn handle(&mut self, ready: Vec<Ready>) {
        for command in self.commands.try_iter().take(self.commands.len()) {
            self.table.on_command(command);
        }
        for ready in ready {
            self.table.on_ready(ready);
        }
        self.arm();
    }

    /// The thread may be asleep: its timer must be right.
    pub(crate) fn arm(&mut self) {
        if let Err(error) = self.table.reactor.arm() {
            tracing::error!("connection management cannot set its timer: {error}");
        }
    }
}
