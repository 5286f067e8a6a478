//! The interface for tasks: futures for any runtime. The adapter's callback thread handles
//! completions and wakes the tasks; a dropped task leaves no state, and loses no message.

use std::fmt::Debug;
use std::future::poll_fn;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use itapi::{Disconnect, Ends, Ia, Request};

use crate::away;
use crate::channel::{Channel, no_way, up, ways_of};
use crate::core::{ChannelEnd, completions};
use crate::error::Result;
use crate::hub::Hub;
use crate::listener::{Entry, Listener, is_callers};
use crate::message::{Draft, Message, Outgoing};
use crate::options::Options;
use crate::resume::Resumption;
use crate::state::State;

/// A [`Channel`] for tasks. Any number of tasks may use it through references.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let ia = itapi::Ia::open()?;
/// use warpline_channel::{AsyncChannel, AsyncListener, Result};
///
/// async fn echo(listener: &AsyncListener) -> Result<()> {
///     let channel = listener.accept().await?;
///     while let Some(message) = channel.recv().await? {
///         channel.send(&message).await?;
///     }
///     channel.close().await
/// }
/// async fn ask(ia: &itapi::Ia, address: std::net::SocketAddr) -> Result<Vec<u8>> {
///     let channel = AsyncChannel::connect(ia, address).await?;
///     channel.send(b"hello").await?;
///     let answer = channel.recv().await?.map(|message| message.to_vec());
///     channel.close().await?;
///     Ok(answer.unwrap_or_default())
/// }
/// # use std::{future::Future, pin::pin, sync::Arc, task::{Context, Poll, Wake}};
/// # struct Unpark(std::thread::Thread);
/// # impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark(); } }
/// # fn run<T>(future: impl Future<Output = T>) -> T {
/// #     let (mut future, waker) = (pin!(future), Arc::new(Unpark(std::thread::current())).into());
/// #     loop {
/// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             Poll::Ready(done) => return done,
/// #             Poll::Pending => std::thread::park(),
/// #         }
/// #     }
/// # }
/// let listener = AsyncListener::bind(&ia, "127.0.0.1:0")?;
/// # let address = listener.address();
/// # let server = std::thread::spawn(move || run(echo(&listener)));
/// # assert_eq!(run(ask(&ia, address))?, b"hello");
/// # server.join().expect("no panic")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncChannel {
    pub(crate) core: Arc<ChannelEnd>,
}

impl Channel {
    /// The same for tasks; its calls have no time-out.
    pub fn into_async(self) -> Result<AsyncChannel> {
        self.core.hub.call()?;
        Ok(AsyncChannel { core: self.core })
    }
}

impl AsyncChannel {
    /// Connects, see [`Channel::connect`]. Dropped, the future gives up.
    pub async fn connect(ia: &Ia, peer: impl ToSocketAddrs + Debug) -> Result<Self> {
        Self::connect_with(ia, peer, Options::default()).await
    }

    /// Connects with the given limits.
    pub async fn connect_with(
        ia: &Ia,
        peer: impl ToSocketAddrs + Debug,
        options: Options,
    ) -> Result<Self> {
        Self::connect_any([(ia.clone(), peer)], options).await
    }

    /// See [`Channel::connect_any`].
    pub async fn connect_any<A: ToSocketAddrs + Debug>(
        ways: impl IntoIterator<Item = (Ia, A)>,
        options: Options,
    ) -> Result<Self> {
        let ways = ways_of(ways)?;
        options.greeting()?;
        let mut causes = Vec::new();
        for way in 0..ways.len() {
            let begun = Channel::begin(&ways, way, options).and_then(Channel::into_async);
            let connected = match begun {
                Ok(channel) => channel.established().await.map(|()| channel),
                Err(error) => Err(error),
            };
            match connected {
                Ok(channel) => return Ok(channel),
                Err(error) => causes.push(error),
            }
        }
        Err(no_way(causes))
    }

    async fn established(&self) -> Result<()> {
        poll_fn(|context| self.step(context, |state| up(state))).await
    }

    /// See [`Channel::send`]. Dropped before it is ready, the future has sent nothing.
    pub async fn send<'a>(&self, message: impl Into<Outgoing<'a>>) -> Result<()> {
        let mut message = message.into();
        message.check(&self.core)?;
        poll_fn(|context| self.poll_send(context, &mut message)).await
    }

    pub(crate) fn poll_send(
        &self,
        context: &mut Context<'_>,
        message: &mut Outgoing<'_>,
    ) -> Poll<Result<()>> {
        self.step(context, |state| Ok(self.core.offer(state, message)?.then_some(())))
    }

    /// See [`Channel::draft`].
    pub async fn draft(&self, len: usize) -> Result<Draft> {
        poll_fn(|context| self.step(context, |state| self.core.draft(state, len))).await
    }

    /// See [`Channel::recv`]. Dropped, the future has taken no message.
    pub async fn recv(&self) -> Result<Option<Message>> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    pub(crate) fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Result<Option<Message>>> {
        self.step(context, |state| self.core.take(state))
    }

    /// See [`Channel::finish`].
    pub async fn finish(&self) -> Result<()> {
        poll_fn(|context| self.poll_finish(context)).await
    }

    pub(crate) fn poll_finish(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.step(context, |state| Ok(self.core.finish(state)?.then_some(())))
    }

    /// See [`Channel::close`]; it has no time-out. Dropped, it leaves the channel open.
    pub async fn close(self) -> Result<()> {
        self.finish().await?;
        loop {
            let step = |context: &mut Context<'_>| {
                self.step(context, |state| {
                    let unwanted = self.core.unwanted(state)?;
                    let settled = ChannelEnd::is_settled(state);
                    Ok((unwanted.is_some() || settled).then_some(unwanted))
                })
            };
            // Not under the lock: a message takes it when it is dropped.
            if poll_fn(step).await?.is_none() {
                break;
            }
        }
        if self.core.state().is_done() {
            self.core.end(Disconnect::Graceful);
        } else {
            away::linger(self.core.clone());
        }
        Ok(())
    }

    /// Both ends of the connection.
    pub fn ends(&self) -> Option<Ends> {
        self.core.ends()
    }

    /// How the session has gone so far, if both ends agreed that it can be resumed.
    pub fn resumption(&self) -> Option<Resumption> {
        self.core.resumption()
    }

    /// Octets of the longest message that the peer accepts.
    pub fn longest(&self) -> u64 {
        self.core.state().session.as_ref().map_or(0, |session| session.longest())
    }

    /// Attempts a step; pending until it may be possible.
    fn step<T>(
        &self,
        context: &mut Context<'_>,
        step: impl FnOnce(&mut State) -> Result<Option<T>>,
    ) -> Poll<Result<T>> {
        let mut state = self.core.state();
        match step(&mut state).transpose() {
            Some(done) => Poll::Ready(done),
            None => {
                state.wait(context.waker());
                Poll::Pending
            }
        }
    }
}

/// A [`Listener`] for tasks.
#[derive(Debug)]
pub struct AsyncListener {
    listener: Listener,
    waiting: Arc<Mutex<Vec<Waker>>>,
}

impl Listener {
    /// The same for tasks.
    pub fn into_async(self) -> Result<AsyncListener> {
        let waiting = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let wake = waiting.clone();
        if let Entry::Listen(listen) = &self.entry {
            listen.evd().on_event(move |_| {
                // No code panics while it is held.
                let mut waiting = wake.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.drain(..).for_each(Waker::wake);
            })?;
        }
        Ok(AsyncListener { listener: self, waiting })
    }
}

impl AsyncListener {
    /// Listens at an address, see [`Listener::bind`]; a name is resolved before this returns.
    pub fn bind(ia: &Ia, address: impl ToSocketAddrs + Debug) -> Result<Self> {
        Self::bind_with(ia, address, Options::default())
    }

    /// Listens for channels with the given limits.
    pub fn bind_with(
        ia: &Ia,
        address: impl ToSocketAddrs + Debug,
        options: Options,
    ) -> Result<Self> {
        Listener::bind_with(ia, address, options)?.into_async()
    }

    /// The address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The next channel, see [`Listener::accept`]. Dropped, the future loses at most a caller that had not
    /// been accepted yet.
    pub async fn accept(&self) -> Result<AsyncChannel> {
        loop {
            let request = poll_fn(|context| self.poll_request(context)).await?;
            let (ia, options) = (&self.listener.ia, self.listener.options);
            let core = match Channel::admit(
                &Hub::new(ia, false, completions(&self.listener.options)?)?,
                request,
                options,
                self.listener.entry.door(),
            ) {
                Ok(core) => core,
                Err(error) if is_callers(&error) => continue,
                Err(error) => return Err(error),
            };
            let channel = Channel { core, patience: None }.into_async()?;
            if channel.established().await.is_ok() {
                return Ok(channel);
            }
        }
    }

    fn poll_request(&self, context: &mut Context<'_>) -> Poll<Result<Request>> {
        let listen = match &self.listener.entry {
            Entry::Listen(listen) => listen,
            Entry::Door(door) => {
                return door.poll(context.waker()).map_or(Poll::Pending, |it| Poll::Ready(Ok(it)));
            }
        };
        // Held while the queue is checked: a later request wakes the task.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match listen.evd().poll()? {
            Some(request) => Poll::Ready(Ok(request)),
            None => {
                waiting.push(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
