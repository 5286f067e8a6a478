//! Listeners. Each accepted channel has its own dispatcher, so that a thread or a task can own it.

use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};

use itapi::{AccessError, Ia, Listen};

use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::options::Options;

/// Accepts channels. See [`Server`](crate::Server) for many clients in one thread.
#[derive(Debug)]
pub struct Listener {
    pub(crate) ia: Ia,
    pub(crate) listen: Listen,
    pub(crate) options: Options,
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
        options.greeting()?;
        Ok(Self { ia: ia.clone(), listen: ia.listen(address)?, options })
    }

    /// The address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.listen.address()
    }

    /// Waits for the next channel. Callers that are no channel of this version, or have already ended,
    /// are rejected and skipped. Any number of threads may accept.
    pub fn accept(&self) -> Result<Channel> {
        loop {
            let request = self.listen.request()?;
            let hub = Hub::new(&self.ia, false)?;
            let core = match Channel::admit(&hub, request, self.options) {
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
