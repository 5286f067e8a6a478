//! Listeners. Each accepted channel has its own dispatcher, so that a thread or a task can own it.

use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use itapi::{AccessError, Ia, Listen};

use crate::channel::Channel;
use crate::core::completions;
use crate::door::Door;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::options::Options;
use crate::tuning::END_CHECK;

/// Accepts channels. See [`Server`](crate::Server) for many clients in one thread.
#[derive(Debug)]
pub struct Listener {
    pub(crate) ia: Ia,
    pub(crate) entry: Entry,
    pub(crate) options: Options,
}

/// Where requests come from.
#[derive(Debug)]
pub(crate) enum Entry {
    Listen(Listen),
    /// Of sessions that can be resumed.
    Door(Arc<Door>),
}

impl Entry {
    pub(crate) fn listen(&self) -> &Listen {
        match self {
            Self::Listen(listen) => listen,
            Self::Door(door) => &door.listen,
        }
    }

    pub(crate) fn door(&self) -> Option<&Arc<Door>> {
        match self {
            Self::Listen(_) => None,
            Self::Door(door) => Some(door),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Self::Door(door) = self {
            door.close();
        }
    }
}

impl Listener {
    /// Listens at an address; port 0: any free port.
    pub fn bind(ia: &Ia, address: impl ToSocketAddrs + Debug) -> Result<Self> {
        Self::bind_with(ia, address, Options::default())
    }

    /// Listens for channels with the given limits.
    pub fn bind_with(
        ia: &Ia,
        address: impl ToSocketAddrs + Debug,
        options: Options,
    ) -> Result<Self> {
        let (ours, listen) = (options.greeting()?, ia.listen(address)?);
        let entry = match options.resume {
            Some(_) => Entry::Door(Door::open(ia, listen, ours)?),
            None => Entry::Listen(listen),
        };
        Ok(Self { ia: ia.clone(), entry, options })
    }

    /// The address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.entry.listen().address()
    }

    /// Waits for the next channel. Callers that are no channel of this version, or have already ended,
    /// are rejected and skipped. Any number of threads may accept. Errors: [`Error::Device`], about a second after the device was lost.
    pub fn accept(&self) -> Result<Channel> {
        loop {
            let request = match &self.entry {
                Entry::Listen(listen) => listen.wait(END_CHECK)?,
                Entry::Door(door) => door.request(END_CHECK),
            };
            let Some(request) = request else {
                if self.ia.is_lost() {
                    return Err(Error::Device(self.ia.device().into()));
                }
                continue;
            };
            let hub = Hub::new(&self.ia, false, completions(&self.options)?)?;
            let core = match Channel::admit(&hub, request, self.options, self.entry.door()) {
                Ok(core) => core,
                Err(error) if is_callers(&error) => continue,
                Err(error) => return Err(error),
            };
            let channel = Channel { core, patience: self.options.patience };
            if channel.established().is_ok() {
                return Ok(channel);
            }
        }
    }
}

/// The caller is no channel of this version, or has ended: not an error of the listener.
pub(crate) fn is_callers(error: &Error) -> bool {
    let gone = |error: &AccessError| matches!(error, AccessError::Closed(_));
    match error {
        Error::Greeting(_) => true,
        Error::Rdma(itapi::Error::Access(error)) => gone(error),
        _ => false,
    }
}
