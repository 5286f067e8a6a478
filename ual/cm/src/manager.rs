//! The connection manager of one adapter: its parts, its threads, and how it starts and stops.
//!
//! The parts are shared by callers and threads; all state of connections is in the table, behind the
//! driver's lock. Threads end with [`Cm::stop`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kal_shim::Reactor;
use kal_shim::reactor::{Interest, Sleeper};
use vp_api::{ConnectionModel, Datagrams, NativeCm, QpId, Rnic, RnicAttrs};

use crate::connection::Connection;
use crate::counters::{CmCounters, Counters};
use crate::driver::{Asleep, Driver};
use crate::error::{Error, Result};
use crate::face::Face;
use crate::mailbox::{Command, Mailbox};
use crate::native_events::NativeEvents;
use crate::observed::{EXTRA_DESCRIPTOR, Observed};
use crate::policy::{Policies, Policy};
use crate::private::PrivateData;
use crate::ruled::AdapterRules;
use crate::sequence::Sequence;
use crate::service_queries::ServiceQueries;
use crate::table::{ConnectionTable, Shared};

/// A connection manager.
pub struct Cm {
    pub(crate) mailbox: Mailbox,
    pub(crate) driver: Arc<Driver>,
    /// Where the thread sleeps; here so that listeners are watched before their creation returns.
    pub(crate) sleeper: Sleeper,
    pub(crate) listeners: AtomicU64,
    pub(crate) service_queries: Arc<ServiceQueries>,
    pub(crate) datagrams: Option<Arc<dyn Datagrams>>,
    policies: Arc<Policies>,
    rules: Arc<AdapterRules>,
    attrs: RnicAttrs,
    counters: Arc<Counters>,
    /// The provider's own connection manager, if it has one.
    native: Option<Arc<NativeEvents>>,
    ended: Arc<AtomicBool>,
    threads: Mutex<Vec<kal_os::Thread>>,
}

impl Cm {
    /// Starts the manager of an adapter for the layer above. `policies`: for connections without one of
    /// their own. `sequence`: the numbers by which `face` distinguishes present objects from earlier ones.
    pub fn start(
        rnic: &Arc<dyn Rnic>,
        policies: Policies,
        face: Arc<dyn Face>,
        sequence: Sequence,
    ) -> Result<Self> {
        let rules = AdapterRules::default();
        Self::start_observed(rnic, policies, rules, face, sequence, Observed::default())
    }

    /// As [`Cm::start`]; `rules` change the policy of every connection, and it counts where `observed` says, and
    /// watches what is in it.
    pub fn start_observed(
        rnic: &Arc<dyn Rnic>,
        policies: Policies,
        rules: AdapterRules,
        face: Arc<dyn Face>,
        sequence: Sequence,
        observed: Observed,
    ) -> Result<Self> {
        let reactor = Reactor::new().map_err(Error::os("start connection management"))?;
        if let Some(extra) = &observed.extra {
            reactor
                .add(extra.descriptor(), EXTRA_DESCRIPTOR, Interest::READ)
                .map_err(Error::os("watch the socket for questions"))?;
        }
        let (sender, commands) = crossbeam_channel::unbounded();
        let (waker, wake) = (reactor.waker(), Arc::default());
        let mailbox = Mailbox { commands: sender, waker, wake, sequence };
        rnic.set_async_handler(Some(Arc::new(mailbox.clone())));
        let native = match rnic.attrs().connection_model {
            ConnectionModel::LlpStream => None,
            ConnectionModel::Native => rnic.native_cm(),
        };
        let datagrams = rnic.datagrams();
        if let Some(datagrams) = &datagrams {
            datagrams.set_service_handler(Some(Arc::new(mailbox.clone())));
        }
        let shared = Shared {
            mailbox: mailbox.clone(),
            counters: Arc::new(Counters::of(&observed.record)),
            extra: observed.extra,
            observer: observed.observer,
            face,
            attrs: rnic.attrs().clone(),
            policies: Arc::new(policies),
            rules: Arc::new(rules),
            datagrams: datagrams.clone(),
            service_queries: Arc::default(),
        };
        let sleeper = reactor.sleeper();
        let (counters, policies) = (shared.counters.clone(), shared.policies.clone());
        let rules = shared.rules.clone();
        let (attrs, service_queries) = (shared.attrs.clone(), shared.service_queries.clone());
        let table = ConnectionTable::new(reactor, shared, native.clone());
        let driver = Arc::new(Driver::new(table, mailbox.clone(), commands.clone()));
        let cm = Self {
            mailbox: mailbox.clone(),
            driver: driver.clone(),
            sleeper: sleeper.clone(),
            listeners: AtomicU64::new(0),
            service_queries,
            datagrams,
            policies,
            rules,
            attrs,
            counters,
            native: native.map(|native| Arc::new(NativeEvents::new(native, mailbox))),
            ended: Arc::default(),
            threads: Mutex::default(),
        };
        cm.spawn("warpline-cm", move || driver.run(&sleeper, commands))?;
        if let Some(native) = cm.native.clone() {
            let ended = cm.ended.clone();
            cm.spawn("warpline-native-cm", move || native.forward(&ended))?;
        }
        Ok(cm)
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread =
            kal_os::spawn(name, body).map_err(Error::os(format!("start the thread {name}")))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// The counters.
    pub fn counters(&self) -> CmCounters {
        self.counters.read()
    }

    /// The policies for connections without one of their own, by peer.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    pub(crate) fn rules(&self) -> &AdapterRules {
        &self.rules
    }

    /// Octets of private data that connections under `policy` can carry.
    pub fn private_data(&self, policy: &Policy) -> PrivateData {
        PrivateData::of(&self.attrs, policy)
    }

    /// For a new endpoint whose queue pair has these limits of reads.
    pub fn connection(&self, ird: u16, ord: u16) -> Connection {
        Connection::new(self.new_stream(), ird, ord)
    }

    /// The number of a stream that an endpoint may begin from now on. Events about earlier streams of
    /// its queue pair have smaller ones: a queue pair that became Idle gets no more of them.
    pub(crate) fn new_stream(&self) -> u64 {
        // Events that wait to be taken belong to earlier streams.
        self.native.iter().for_each(|native| native.take());
        self.mailbox.sequence.next()
    }

    /// The provider's own connection manager, if it has one.
    pub(crate) fn native(&self) -> Option<&Arc<dyn NativeCm>> {
        self.native.as_deref().map(NativeEvents::native)
    }

    /// Executes a command in this thread if possible. A provider's connection manager may take its time.
    pub(crate) fn execute(&self, command: Command) {
        match self.native {
            None => self.driver.execute(command),
            Some(_) => self.mailbox.send(command),
        }
    }

    /// Before a caller sleeps until `done`, which some connection event makes true: serves the
    /// connections in its thread for at most `spin`. The caller keeps what this returns while it sleeps.
    /// A provider's own connection manager has a thread for its events.
    pub fn attend(&self, spin: Duration, done: impl Fn() -> bool) -> Option<Asleep<'_>> {
        match self.native {
            None => self.driver.attend(spin, done),
            Some(_) => None,
        }
    }

    /// The endpoint of this queue pair was closed.
    pub fn forget(&self, qp: QpId) {
        self.execute(Command::Forget { qp });
    }

    /// Ends the threads, and waits for them unless it is called by one of them.
    pub fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        self.driver.close();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.drain(..).for_each(kal_os::Thread::join);
    }
}

impl Drop for Cm {
    fn drop(&mut self) {
        self.stop();
    }
}
