//! Connection management: from addresses to connected queue pairs and back.
//!
//! One table per Ia owns every socket and machine of connections that are not established yet. One
//! thread (`warpline-cm`) serves it; callers who connect, accept or wait for news do so themselves
//! when it is free (`desk`). Nobody waits for a peer: a slow or hostile one costs a table entry
//! until its timer fires. When a connection is established its socket belongs to the provider, and
//! only its end is heard of.
//!
//! Two short lists are the process's, so that requests can change hands: the requests that wait for
//! an answer (`requests`), and where is listened (`places`).

mod active;
mod adopt;
mod convert;
mod counters;
mod crowd;
mod desk;
mod ending;
mod late;
mod listening;
mod message;
mod native;
mod offenders;
mod passive;
mod places;
mod private;
mod requests;
mod service;
mod start;
mod table;
mod types;
mod vigil;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use kal_shim::reactor::Sleeper;
use kal_shim::{Notifier, Reactor};
use vp_api::{
    AsyncEvent, AsyncHandler, ConnectionModel, Datagrams, EventSource, NativeCm, NativeEvent, QpId,
    Rnic, ServiceEvent, VpError, VpStatus,
};

pub use convert::{ConvertError, ConvertParams};
pub use counters::CmCounters;
pub use private::PrivateData;
pub use requests::{handoff, reject};
pub use service::{ServiceReply, ServiceRequest, reply};
pub use types::{
    AcceptParams, BrokenCause, ConnEvent, ConnRequest, ConnectError, ConnectParams, ConnectionEnd,
    Disconnect, Established, FailReason, Handoff, ListenerId, Lost, RequestId,
};

use crate::error::{Error, Result};
use crate::policy::Policy;
use crate::resource::{Directory, Ep, Sequence};
pub(crate) use convert::Conversion;
use counters::Counters;
pub(crate) use desk::Asleep;
use desk::Desk;
use listening::{Bound, Service};
use native::Carrier;
use passive::Passive;
use places::Place;
use service::Services;
use start::Started;
pub(crate) use start::check_connect;
use table::{Shared, Table};
use vigil::Vigil;

#[cfg(all(test, not(loom)))]
mod earlier_tests;
#[cfg(all(test, not(loom)))]
mod watch_tests;

/// What callers and the provider have to say.
enum Command {
    Connect {
        ep: Weak<Ep>,
        params: Box<ConnectParams>,
        policy: Policy,
        started: Started,
    },
    Convert {
        ep: Weak<Ep>,
        conversion: Box<Conversion>,
    },
    Accept {
        token: u64,
        ep: Weak<Ep>,
        params: AcceptParams,
    },
    Reject {
        token: u64,
        private_data: Vec<u8>,
    },
    /// Give a request to a listener.
    Handoff {
        token: u64,
        to: Place,
    },
    /// A request that was given to a listener of this thread.
    Adopt {
        listener: u64,
        passive: Box<Passive>,
    },
    Listen {
        bound: Bound,
        service: Box<Service>,
    },
    Unlisten {
        token: u64,
    },
    /// Give up what this stream of an endpoint is to be.
    Cancel {
        qp: QpId,
        stream: u64,
    },
    Disconnecting {
        ep: Weak<Ep>,
        stream: u64,
        how: Disconnect,
    },
    Forget {
        qp: QpId,
    },
    /// `told`: its number in the [`Sequence`].
    Async {
        told: u64,
        source: EventSource,
        event: AsyncEvent,
    },
    /// As `Async`.
    Native {
        told: u64,
        event: NativeEvent,
    },
    Service(ServiceEvent),
    /// A service request was answered.
    Answered {
        token: u64,
    },
}

/// Sends commands to the thread.
#[derive(Clone)]
struct Mailbox {
    commands: Sender<Command>,
    waker: Arc<Notifier>,
    vigil: Arc<Vigil>,
    sequence: Sequence,
}

impl Mailbox {
    fn send(&self, command: Command) {
        // The thread has gone only when the Ia is closed; then nothing is left to be told.
        if self.commands.send(command).is_ok() && self.vigil.rouse() {
            self.waker.signal();
        }
    }

    /// Whether both reach the same thread.
    fn is(&self, other: &Self) -> bool {
        self.id() == other.id()
    }

    /// Which thread it reaches; another's only when all mailboxes of this one are gone.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.waker).addr()
    }
}

impl AsyncHandler for Mailbox {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        // Known here, and of every connection.
        if event != AsyncEvent::Established {
            // Before the handler returns: what the provider begins behind that has a larger number.
            let told = self.sequence.next();
            self.send(Command::Async { told, source, event });
        }
    }
}

/// The callers' side of connection management.
pub(crate) struct Cm {
    mailbox: Mailbox,
    desk: Arc<Desk>,
    /// Where the thread sleeps: listeners are watched before their creation succeeds.
    sleeper: Sleeper,
    counters: Arc<Counters>,
    listeners: AtomicU64,
    /// The provider's own connection manager, if that is its model.
    native: Option<Arc<Carrier>>,
    services: Arc<Services>,
    ended: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Cm {
    pub(crate) fn start(
        rnic: &Arc<dyn Rnic>,
        datagrams: Option<Arc<dyn Datagrams>>,
        directory: Arc<Directory>,
    ) -> Result<Self> {
        let reactor = Reactor::new().map_err(Error::os("start connection management"))?;
        let (sender, commands) = crossbeam_channel::unbounded();
        let (waker, vigil) = (reactor.waker(), Arc::default());
        let sequence = directory.sequence().clone();
        let mailbox = Mailbox { commands: sender, waker, vigil, sequence };
        rnic.set_async_handler(Some(Arc::new(mailbox.clone())));
        let native = match rnic.attrs().connection_model {
            ConnectionModel::LlpStream => None,
            ConnectionModel::Native => rnic.native_cm(),
        };
        if let Some(datagrams) = &datagrams {
            datagrams.set_service_handler(Some(Arc::new(mailbox.clone())));
        }
        let counters = Arc::new(Counters::default());
        let services = Arc::new(Services::default());
        let shared = Shared {
            mailbox: mailbox.clone(),
            counters: counters.clone(),
            directory,
            attrs: rnic.attrs().clone(),
            datagrams,
            services: services.clone(),
        };
        let sleeper = reactor.sleeper();
        let table = Table::new(reactor, shared, native.clone());
        let desk = Arc::new(Desk::new(table, mailbox.clone(), commands.clone()));
        let cm = Self {
            mailbox: mailbox.clone(),
            desk: desk.clone(),
            sleeper: sleeper.clone(),
            counters,
            listeners: AtomicU64::new(0),
            native: native.map(|native| Arc::new(Carrier::new(native, mailbox))),
            services,
            ended: Arc::default(),
            threads: Mutex::default(),
        };
        cm.spawn("warpline-cm", move || desk.run(&sleeper, commands))?;
        if let Some(native) = cm.native.clone() {
            let ended = cm.ended.clone();
            cm.spawn("warpline-native-cm", move || native.carry(&ended))?;
        }
        Ok(cm)
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread =
            kal_os::spawn(name, body).map_err(Error::os(format!("start the thread {name}")))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The provider's own connection manager, if that is its model.
    pub(crate) fn native(&self) -> Option<&dyn NativeCm> {
        self.native.as_deref().map(Carrier::native)
    }

    /// The number of a stream that an endpoint may begin from now on. What its queue pair was told of
    /// earlier streams has smaller ones: a queue pair that became Idle is told no more of them.
    pub(crate) fn new_stream(&self) -> u64 {
        // What waits to be taken was told already.
        self.native.iter().for_each(|native| native.take());
        self.mailbox.sequence.next()
    }

    /// False if the provider takes no sockets, so its endpoints cannot be converted ones.
    pub(crate) fn takes_sockets(&self) -> bool {
        self.native.is_none()
    }

    /// Starts to connect. Errors of the local end's making are the caller's; the others arrive as
    /// an event.
    pub(crate) fn connect(
        &self,
        ep: &Arc<Ep>,
        params: ConnectParams,
        policy: Policy,
    ) -> Result<()> {
        let started = match self.native {
            None => start::start(&params, &policy)?,
            // Its connection manager makes its own.
            Some(_) if params.local_port == 0 => Started::Native,
            Some(_) => return Err(unsupported("connect from a given port")),
        };
        let (ep, params) = (Arc::downgrade(ep), Box::new(params));
        self.carry_out(Command::Connect { ep, params, policy, started });
        Ok(())
    }

    pub(crate) fn convert(&self, ep: &Arc<Ep>, conversion: Conversion) {
        let (ep, conversion) = (Arc::downgrade(ep), Box::new(conversion));
        self.mailbox.send(Command::Convert { ep, conversion });
    }

    pub(crate) fn accept(&self, ep: &Arc<Ep>, id: RequestId, params: AcceptParams) -> Result<()> {
        let len = params.private_data.len();
        let token = requests::claim_to_accept(id, len, &self.mailbox)?.token;
        self.carry_out(Command::Accept { token, ep: Arc::downgrade(ep), params });
        Ok(())
    }

    /// Here and now, if that is possible. A provider's connection manager may take its time.
    fn carry_out(&self, command: Command) {
        match self.native {
            None => self.desk.carry_out(command),
            Some(_) => self.mailbox.send(command),
        }
    }

    /// Before a caller sleeps until `done`, which is news of connections: looks for them in its thread
    /// for at most `spin`. While it sleeps it keeps what this answers. A provider's connection
    /// manager has a thread that brings its own.
    pub(crate) fn attend(&self, spin: Duration, done: impl Fn() -> bool) -> Option<Asleep<'_>> {
        match self.native {
            None => self.desk.attend(spin, done),
            Some(_) => None,
        }
    }

    /// Gives up a pending connect or accept.
    pub(crate) fn cancel(&self, ep: &Arc<Ep>, stream: u64) {
        self.mailbox.send(Command::Cancel { qp: ep.id(), stream });
    }

    /// The endpoint has begun to disconnect.
    pub(crate) fn disconnecting(&self, ep: &Arc<Ep>, stream: u64, how: Disconnect) {
        self.carry_out(Command::Disconnecting { ep: Arc::downgrade(ep), stream, how });
    }

    /// The endpoint is gone.
    pub(crate) fn forget(&self, qp: QpId) {
        self.carry_out(Command::Forget { qp });
    }

    /// Ends the thread, and waits for its end unless called by it.
    pub(crate) fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        self.desk.close();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.thread().id() != std::thread::current().id() {
                // A panic of the thread was reported where it happened.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Cm {
    fn drop(&mut self) {
        self.stop();
    }
}

/// For devices that make their connections themselves.
fn unsupported(attempt: &'static str) -> Error {
    let why = "this device makes its connections itself and has no such choice";
    Error::verb(attempt)(VpError::new(VpStatus::Unsupported, why))
}

/// Tells a port in use from the rest.
fn busy_or_os(attempt: String) -> impl FnOnce(io::Error) -> Error {
    |error| match error.kind() {
        io::ErrorKind::AddrInUse => Error::AddressInUse(attempt),
        _ => Error::os(attempt)(error),
    }
}

/// The same for a provider's refusal; `what`: what was attempted, with the address.
fn busy_or_verb(attempt: &'static str, what: String, error: VpError) -> Error {
    match error.status {
        VpStatus::InUse => Error::AddressInUse(what),
        _ => Error::verb(attempt)(error),
    }
}

fn check_length(len: usize, max: usize) -> Result<()> {
    if len <= max { Ok(()) } else { Err(Error::PrivateDataTooLong { len, max }) }
}
