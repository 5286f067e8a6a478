//! Connection management: from addresses to connected queue pairs and back.
//!
//! One thread per Ia (`warpline-cm`) owns every socket and machine of connections that are not
//! established yet. Callers send it commands and never wait for it; it never waits for a peer: a
//! slow or hostile one costs a table entry until its timer fires. When a connection is established
//! its socket belongs to the provider, and the thread only hears of its end.

mod active;
mod adopt;
mod counters;
mod ending;
mod message;
mod native;
mod passive;
mod thread;
mod types;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use kal_shim::{Notifier, Reactor, sock};
use vp_api::{
    AsyncEvent, AsyncHandler, ConnectionModel, EventSource, NativeCm, NativeEvent, QpId, Rnic,
};

pub use counters::CmCounters;
pub use types::{
    AcceptParams, BrokenCause, ConnEvent, ConnRequest, ConnectError, ConnectParams, Disconnect,
    Established, FailReason, ListenerId, Lost, RequestId,
};

use crate::error::{Error, Object, Result};
use crate::event::Evd;
use crate::handle::HandleTable;
use crate::policy::{Policies, Policy};
use crate::resource::{Directory, Ep};
use counters::Counters;
use thread::{Shared, Thread};

/// Connections that the kernel may hold for us before the thread accepts them.
const BACKLOG: u32 = 1024;

/// What callers and the provider tell the thread.
enum Command {
    Connect { ep: Weak<Ep>, params: Box<ConnectParams>, policy: Policy },
    Accept { token: u64, ep: Weak<Ep>, params: AcceptParams },
    Reject { token: u64, private_data: Vec<u8> },
    Listen { token: u64, sockets: Vec<sock::Listener>, evd: Weak<Evd>, policies: Policies },
    Unlisten { token: u64 },
    Cancel { qp: QpId },
    Disconnecting { ep: Weak<Ep>, how: Disconnect },
    Forget { qp: QpId },
    Async { source: EventSource, event: AsyncEvent },
    ListenNative { token: u64, ids: Vec<(u64, SocketAddr)>, evd: Weak<Evd>, policies: Policies },
    Native(NativeEvent),
    Stop,
}

/// Requests that wait for the application's answer: who removes one from the table may answer it.
type Requests = Mutex<HandleTable<WaitingRequest>>;

/// A request as the callers see it.
#[derive(Clone, Copy)]
struct WaitingRequest {
    /// The thread's entry.
    token: u64,
    max_private_data: usize,
}

/// Sends commands to the thread.
#[derive(Clone)]
struct Mailbox {
    commands: Sender<Command>,
    waker: Arc<Notifier>,
}

impl Mailbox {
    fn send(&self, command: Command) {
        // The thread has gone only when the Ia is closed; then nothing is left to be told.
        if self.commands.send(command).is_ok() {
            self.waker.signal();
        }
    }
}

impl AsyncHandler for Mailbox {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        self.send(Command::Async { source, event });
    }
}

/// The callers' side of the connection thread.
pub(crate) struct Cm {
    mailbox: Mailbox,
    requests: Arc<Requests>,
    counters: Arc<Counters>,
    listeners: AtomicU64,
    /// The provider's own connection manager, if that is its model.
    native: Option<Arc<dyn NativeCm>>,
    ended: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Cm {
    pub(crate) fn start(rnic: &Arc<dyn Rnic>, directory: Arc<Directory>) -> Result<Self> {
        let reactor = Reactor::new().map_err(Error::os("start connection management"))?;
        let (sender, commands) = crossbeam_channel::unbounded();
        let mailbox = Mailbox { commands: sender, waker: reactor.waker() };
        rnic.set_async_handler(Some(Arc::new(mailbox.clone())));
        let requests = Arc::new(Requests::default());
        let native = match rnic.attrs().connection_model {
            ConnectionModel::LlpStream => None,
            ConnectionModel::Native => rnic.native_cm(),
        };
        let counters = Arc::new(Counters::default());
        let shared = Shared { requests: requests.clone(), counters: counters.clone(), directory };
        let body = Thread::new(reactor, commands, shared, native.clone());
        let cm = Self {
            mailbox,
            requests,
            counters,
            listeners: AtomicU64::new(0),
            native,
            ended: Arc::default(),
            threads: Mutex::default(),
        };
        cm.spawn("warpline-cm", move || body.run())?;
        if let Some(native) = cm.native.clone() {
            let (mailbox, ended) = (cm.mailbox.clone(), cm.ended.clone());
            cm.spawn("warpline-native-cm", move || native::carry(&*native, &mailbox, &ended))?;
        }
        Ok(cm)
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(body)
            .map_err(Error::os(format!("start the thread {name}")))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The provider's own connection manager, if that is its model.
    pub(crate) fn native(&self) -> Option<&dyn NativeCm> {
        self.native.as_deref()
    }

    fn requests(&self) -> MutexGuard<'_, HandleTable<WaitingRequest>> {
        lock(&self.requests)
    }

    /// Refuses what cannot work before anything changes.
    pub(crate) fn check_connect(params: &ConnectParams, policy: &Policy) -> Result<()> {
        check_length(params.private_data.len(), policy.max_private_data())?;
        if params.remote.port() == 0 {
            return Err(Error::InvalidArgument(format!(
                "cannot connect to {}: port 0 is not a port",
                params.remote
            )));
        }
        match params.local {
            Some(ip) if ip.is_ipv4() != params.remote.is_ipv4() => {
                Err(Error::InvalidArgument(format!(
                    "cannot connect from {ip} to {}: one is IPv4, the other IPv6",
                    params.remote
                )))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn connect(&self, ep: &Arc<Ep>, params: ConnectParams, policy: Policy) {
        let (ep, params) = (Arc::downgrade(ep), Box::new(params));
        self.mailbox.send(Command::Connect { ep, params, policy });
    }

    pub(crate) fn accept(&self, ep: &Arc<Ep>, id: RequestId, params: AcceptParams) -> Result<()> {
        let token = self.claim(id, params.private_data.len())?;
        self.mailbox.send(Command::Accept { token, ep: Arc::downgrade(ep), params });
        Ok(())
    }

    pub(crate) fn reject(&self, id: RequestId, private_data: &[u8]) -> Result<()> {
        let token = self.claim(id, private_data.len())?;
        self.mailbox.send(Command::Reject { token, private_data: private_data.to_vec() });
        Ok(())
    }

    /// Takes a request out of the table, so that it is answered once.
    fn claim(&self, id: RequestId, private_data: usize) -> Result<u64> {
        let mut requests = self.requests();
        let waiting = *requests.get(id.0).ok_or(Error::Closed(Object::Request))?;
        check_length(private_data, waiting.max_private_data)?;
        requests.remove(id.0);
        Ok(waiting.token)
    }

    /// Gives up a pending connect or accept.
    pub(crate) fn cancel(&self, ep: &Arc<Ep>) {
        self.mailbox.send(Command::Cancel { qp: ep.id() });
    }

    /// The endpoint has begun to disconnect.
    pub(crate) fn disconnecting(&self, ep: &Arc<Ep>, how: Disconnect) {
        self.mailbox.send(Command::Disconnecting { ep: Arc::downgrade(ep), how });
    }

    /// The endpoint is gone.
    pub(crate) fn forget(&self, qp: QpId) {
        self.mailbox.send(Command::Forget { qp });
    }

    pub(crate) fn listen(
        &self,
        addresses: &[SocketAddr],
        evd: &Arc<Evd>,
        policies: Policies,
    ) -> Result<(ListenerId, Vec<SocketAddr>)> {
        // Odd tokens are listeners; the thread gives the even ones to connections.
        let token = self.listeners.fetch_add(1, Ordering::Relaxed) * 2 + 1;
        let evd = Arc::downgrade(evd);
        if let Some(native) = &self.native {
            let ids = listen_native(&**native, addresses)?;
            let real = ids.iter().map(|(_, address)| *address).collect();
            self.mailbox.send(Command::ListenNative { token, ids, evd, policies });
            return Ok((ListenerId(token), real));
        }
        let list: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        let sockets = sock::listen_all(addresses, BACKLOG)
            .map_err(Error::os(format!("listen on {}", list.join(", "))))?;
        let real = sockets.iter().map(|listener| listener.address).collect();
        self.mailbox.send(Command::Listen { token, sockets, evd, policies });
        Ok((ListenerId(token), real))
    }

    pub(crate) fn unlisten(&self, id: ListenerId) {
        self.mailbox.send(Command::Unlisten { token: id.0 });
    }

    /// Ends the thread, and waits for its end unless called by it.
    pub(crate) fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        self.mailbox.send(Command::Stop);
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

/// Listens at all addresses through the provider, or at none.
fn listen_native(
    native: &dyn NativeCm,
    addresses: &[SocketAddr],
) -> Result<Vec<(u64, SocketAddr)>> {
    let mut ids = Vec::new();
    let mut port = addresses.first().map_or(0, SocketAddr::port);
    for address in addresses {
        match native.listen(SocketAddr::new(address.ip(), port), BACKLOG) {
            Ok((id, real)) => {
                port = real.port();
                ids.push((id, real));
            }
            Err(error) => {
                for (id, _) in ids {
                    // What was begun is undone as far as it goes.
                    let _ = native.unlisten(id);
                }
                return Err(Error::verb("listen")(error));
            }
        }
    }
    Ok(ids)
}

fn lock(requests: &Requests) -> MutexGuard<'_, HandleTable<WaitingRequest>> {
    // Nothing panics while the lock is held.
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_length(len: usize, max: usize) -> Result<()> {
    if len <= max { Ok(()) } else { Err(Error::PrivateDataTooLong { len, max }) }
}
