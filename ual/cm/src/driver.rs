//! Drives the table of connection management: in the connection thread, or in a caller that is there.
//!
//! The table is behind one lock. The connection thread sleeps without it, and takes it for as long
//! as there is something to do. Callers only try the lock. A caller with a command that gets it carries
//! the command out. A caller that waits for events serves the sockets for a while before it sleeps.
//! Everything else is the thread's work. So a connection needs no other thread to wake up, and no caller
//! waits for another. Whoever releases the lock delivers the events ([`crate::deliveries`]). When a peer
//! dies nothing is held here.
//!
//! While callers serve the sockets, and none sleeps, the thread backs off ([`crate::wake`]): sockets would
//! wake it for what a caller does already. A command, or a caller who goes to sleep, ends that.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crossbeam_channel::Receiver;
use kal_os::Spinner;
use kal_os::progress::Mode;
use kal_shim::reactor::{Fired, Interest, Ready, Sleeper, ready_within};

use crate::deliveries::Deliveries;
use crate::mailbox::{Command, Mailbox};
use crate::table::{PAUSE, Table};
use crate::wake::WakeState;

/// How long the thread leaves the sockets to callers that served them.
const BACK_OFF: Duration = Duration::from_millis(1);

/// See the module.
pub(crate) struct Driver {
    /// Gone when the thread has ended.
    work: Mutex<Option<Work>>,
    mailbox: Mailbox,
    deliveries: Arc<Deliveries>,
    closed: AtomicBool,
    spinner: Spinner,
}

/// What is behind the lock. Commands that nobody will carry out go with it.
pub(crate) struct Work {
    pub(crate) table: Table,
    commands: Receiver<Command>,
}

/// A caller that sleeps until there is an event: the thread watches for it.
pub struct Asleep<'a>(&'a WakeState);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

impl Driver {
    pub(crate) fn new(table: Table, mailbox: Mailbox, commands: Receiver<Command>) -> Self {
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
            // Before the work: what was sent before the end is done.
            let closed = self.is_closed();
            self.serve(&mut fired);
            if closed {
                break;
            }
            // What came since it woke woke it for nothing more.
            if let Some(rest) = wake.rest(|| self.is_closed() || !commands.is_empty())
                && let Err(error) = self.rest(rest, sleeper, &mut fired)
            {
                // Only a broken descriptor table gets here; without this rest it would spin.
                tracing::error!("connection management cannot wait: {error}");
                std::thread::sleep(PAUSE);
            }
            wake.rise();
        }
        let work = self.lock().take();
        // Sockets close and handlers go without the lock.
        drop((work, commands));
    }

    fn rest(&self, rest: Mode, sleeper: &Sleeper, fired: &mut Fired) -> std::io::Result<()> {
        match rest {
            Mode::Watch | Mode::Rest => sleeper.sleep(fired),
            Mode::BackOff => {
                ready_within(self.mailbox.waker.as_fd(), Interest::READ, BACK_OFF);
                sleeper.look(fired)
            }
        }
    }

    /// Ends the thread, after the commands that were sent before.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Like a command: a signal by itself could be taken for one that was heard already.
        if self.mailbox.wake.rouse() {
            self.mailbox.waker.signal();
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Does what was asked and what the thread's sleep found.
    fn serve(&self, fired: &mut Fired) {
        if let Some(work) = &mut *self.lock() {
            let mut ready = Vec::new();
            work.table.reactor.take(fired, &mut ready);
            work.carry_on(ready);
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

    /// Carries out a command in the caller's thread if nobody is at work and nothing was sent
    /// before; else it is the connection thread's.
    pub(crate) fn carry_out(&self, command: Command) {
        match self.try_carry_out(command) {
            None => self.deliver(),
            Some(command) => self.mailbox.send(command),
        }
    }

    /// Carries out a command in the caller's thread, behind those that were sent before.
    pub(crate) fn carry_out_now(&self, command: Command) {
        if let Some(work) = &mut *self.lock() {
            work.carry_on(Vec::new());
            work.table.on_command(command);
            work.arm();
        }
        self.deliver();
    }

    /// `Some`: somebody is at work, or others come first.
    fn try_carry_out(&self, command: Command) -> Option<Command> {
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
            self.mailbox.wake.attend();
            self.look();
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

    /// Does what there is to do, unless somebody does it already.
    fn look(&self) {
        if let Some(mut work) = self.try_lock()
            && let Some(work) = &mut *work
        {
            let mut ready = Vec::new();
            // The thread will see the error, too, and says so.
            if work.table.reactor.poll(&mut ready).is_ok() {
                work.carry_on(ready);
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
    /// What has come is done; what comes meanwhile is the thread's, so that no caller stays for ever.
    fn carry_on(&mut self, ready: Vec<Ready>) {
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
