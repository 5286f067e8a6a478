//! Who does the work of connection management: the connection thread, or a caller that is there.
//!
//! The table is behind one lock. The connection thread sleeps without it, and takes it for as long
//! as there is something to do. Callers only try the lock. A caller with a command that gets it carries
//! the command out. A caller that waits for events serves the sockets for a while before it sleeps.
//! Everything else is the thread's work. So a connection needs no other thread to wake up, and no caller
//! waits for another. When a peer dies nothing is held here.
//!
//! While callers come and look, and none sleeps, the thread naps ([`super::vigil`]): sockets would
//! wake it for what a caller does already. A command, or a caller who goes to sleep, ends a nap.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use kal_shim::reactor::{Fired, Interest, Ready, Sleeper, ready_within};

use super::table::{REST, Table};
use super::vigil::{Rest, Vigil};
use super::{Command, Mailbox};

/// A waiter lets others have the processor once in so many looks: they may be what it waits for.
const YIELD_EVERY: u32 = 8;

/// How long the thread leaves the sockets to callers that were there.
const NAP: Duration = Duration::from_millis(1);

/// See the module.
pub(super) struct Desk {
    /// Gone when the thread has ended.
    work: Mutex<Option<Work>>,
    mailbox: Mailbox,
    closed: AtomicBool,
}

/// What is behind the lock. Commands that nobody will carry out go with it.
pub(super) struct Work {
    pub(super) table: Table,
    commands: Receiver<Command>,
}

/// A caller that sleeps until there are news: the thread watches for it.
pub(crate) struct Asleep<'a>(&'a Vigil);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

impl Desk {
    pub(super) fn new(table: Table, mailbox: Mailbox, commands: Receiver<Command>) -> Self {
        let work = Mutex::new(Some(Work { table, commands }));
        Self { work, mailbox, closed: AtomicBool::new(false) }
    }

    /// The connection thread.
    pub(super) fn run(&self, sleeper: &Sleeper, commands: Receiver<Command>) {
        let mut fired = Fired::default();
        let vigil = &self.mailbox.vigil;
        loop {
            // Before the work: what was sent before the end is done.
            let closed = self.is_closed();
            self.serve(&mut fired);
            if closed {
                break;
            }
            // What came since it woke woke it for nothing more.
            if let Some(rest) = vigil.rest(|| self.is_closed() || !commands.is_empty())
                && let Err(error) = self.rest(rest, sleeper, &mut fired)
            {
                // Only a broken descriptor table gets here; without this rest it would spin.
                tracing::error!("connection management cannot wait: {error}");
                std::thread::sleep(REST);
            }
            vigil.rise();
        }
        let work = self.lock().take();
        // Sockets close and handlers go without the lock.
        drop((work, commands));
    }

    fn rest(&self, rest: Rest, sleeper: &Sleeper, fired: &mut Fired) -> std::io::Result<()> {
        match rest {
            Rest::Sleep => sleeper.sleep(fired),
            Rest::Nap => {
                ready_within(self.mailbox.waker.as_fd(), Interest::READ, NAP);
                sleeper.look(fired)
            }
        }
    }

    /// Ends the thread, after the commands that were sent before.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Like a command: a signal by itself could be taken for one that was heard already.
        if self.mailbox.vigil.rouse() {
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
    }

    /// Carries out a command in the caller's thread if nobody is at work and nothing was sent
    /// before; else it is the connection thread's.
    pub(super) fn carry_out(&self, command: Command) {
        if let Some(mut work) = self.try_lock()
            && let Some(work) = &mut *work
            && work.commands.is_empty()
        {
            work.table.on_command(command);
            return work.arm();
        }
        self.mailbox.send(command);
    }

    /// Before a caller sleeps until `done`: serves the connections in its thread for at most `spin`, and
    /// then relies on the connection thread.
    pub(super) fn attend(&self, spin: Duration, done: impl Fn() -> bool) -> Option<Asleep<'_>> {
        let begin = Instant::now();
        for turn in 1_u32.. {
            if done() {
                return None;
            }
            self.mailbox.vigil.attend();
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
        if self.mailbox.vigil.rely() {
            self.mailbox.waker.signal();
        }
        Asleep(&self.mailbox.vigil)
    }

    /// Does what there is to do, unless somebody does it already.
    fn look(&self) {
        let Some(mut work) = self.try_lock() else { return };
        let Some(work) = &mut *work else { return };
        let mut ready = Vec::new();
        // The thread will see the error, too, and says so.
        if work.table.reactor.poll(&mut ready).is_ok() {
            work.carry_on(ready);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Work>> {
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
    fn arm(&mut self) {
        if let Err(error) = self.table.reactor.arm() {
            tracing::error!("connection management cannot set its timer: {error}");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Ual;
    use crate::config::Config;

    /// A closed Ia may be held for long, and a command may hold a peer's socket.
    #[test]
    fn what_reaches_a_closed_desk_goes() {
        let ia = Ual::with_config(Config::default()).open_any().unwrap();
        let mailbox = ia.cm().mailbox.clone();
        ia.close().unwrap();
        mailbox.send(Command::Unlisten { token: 1 });
        ia.cm().carry_out(Command::Unlisten { token: 1 });
        assert!(mailbox.commands.is_empty());
    }
}
