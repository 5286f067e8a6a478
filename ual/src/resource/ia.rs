//! The interface adapter: an open device, from which everything else is created.
//!
//! It owns the RNIC, the directory of its objects and the connection thread, which ends with it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ual_cm::{AdapterRules, Cm, Policies, Policy, Serves};
use vp_api::{
    DatagramAttrs, Datagrams, DeviceInfo, PortInfo, Rnic, RnicAttrs, Transport, VendorCalls,
    VpError, VpStatus,
};

use super::Directory;
use crate::cm::{Bound, CmCounters, PrivateData, RequestId, reject};
use crate::config::Observe;
use crate::error::{Error, Object, Result};
use crate::event::Dispatch;
use crate::life::{Life, Living};
use crate::observe::{self, Face, Names, ObservedRnic};
use crate::tag::Tag;

/// Opens the same device of the same provider again.
pub(crate) type Opens = Box<dyn Fn() -> Result<Arc<Ia>> + Send + Sync>;

/// Interface adapter (IT-API `it_ia_create`).
pub struct Ia {
    device: String,
    transport: Transport,
    provider: String,
    rnic: Arc<dyn Rnic>,
    datagrams: Option<Arc<dyn Datagrams>>,
    directory: Arc<Directory>,
    cm: Cm,
    /// What wraps the RNIC, if others may observe it.
    observed: Option<Arc<ObservedRnic>>,
    dispatch: Dispatch,
    life: Life,
    tag: Tag,
    opens: Opens,
    /// The same device, opened again.
    again: Mutex<Weak<Self>>,
}

impl Ia {
    pub(crate) fn new(
        opens: Opens,
        device: DeviceInfo,
        provider: String,
        rnic: Arc<dyn Rnic>,
        (policies, rules): (Policies, AdapterRules),
        observe: &Observe,
    ) -> Result<Arc<Self>> {
        let names = Names { face: Face::Access, provider: &provider, device: &device.name };
        let (wrapper, observed) = observe::wrapped(observe, &names, &rnic).unzip();
        let rnic = wrapper.clone().map_or(rnic, |wrapper| wrapper as Arc<dyn Rnic>);
        let directory = Arc::new(Directory::new());
        let datagrams = rnic.datagrams();
        let sequence = directory.sequence().clone();
        let observed = observed.unwrap_or_default();
        let cm = Cm::start_observed(&rnic, policies, rules, directory.clone(), sequence, observed)?;
        Ok(Arc::new(Self {
            device: device.name,
            transport: device.transport,
            provider,
            rnic,
            datagrams,
            directory,
            cm,
            observed: wrapper,
            dispatch: Dispatch::default(),
            life: Life::new(Object::Ia),
            tag: Tag::default(),
            opens,
            again: Mutex::default(),
        }))
    }

    /// Whether its device was removed, or failed for good: connections have ended, all work is flushed, and nothing can be made of
    /// it any more.
    pub fn is_lost(&self) -> bool {
        self.directory.is_lost()
    }

    /// Opens the device of this name once it is there again, of the same provider and with the same configuration. Whoever
    /// does so, as long as one of them lives, gets the same.
    pub fn reopen(self: &Arc<Self>) -> Result<Arc<Self>> {
        let mut last = self.clone();
        loop {
            let mut again = last.again.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(next) = again.upgrade() else {
                let opened = (last.opens)()?;
                *again = Arc::downgrade(&opened);
                return Ok(opened);
            };
            drop(again);
            if !next.is_lost() {
                return Ok(next);
            }
            last = next;
        }
    }

    /// Name of the device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Its transport.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Name of its provider.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Limits and capabilities.
    pub fn attrs(&self) -> &RnicAttrs {
        self.rnic.attrs()
    }

    /// Its ports as they are now.
    pub fn ports(&self) -> Result<Vec<PortInfo>> {
        self.rnic.ports().map_err(Error::verb("list the ports"))
    }

    /// The provider's own table of functions with this name, valid until this is dropped.
    pub fn vendor_calls(&self, name: &str) -> Result<VendorCalls> {
        let named = |why: VpError| VpError::new(why.status, format!("`{name}`: {}", why.detail));
        self.rnic.vendor_calls(name).map_err(named).map_err(Error::verb("look up vendor calls"))
    }

    /// The policy for connections without one of their own, unless their peer has another.
    pub fn policy(&self) -> &Policy {
        &self.policies().default
    }

    /// The policies for connections without one of their own, by peer.
    pub fn policies(&self) -> &Policies {
        self.cm.policies()
    }

    /// Private data that connections under `policy` can carry.
    pub fn private_data(&self, policy: &Policy) -> PrivateData {
        self.cm.private_data(policy)
    }

    /// Limits of datagrams; `None`: the transport does not support them.
    pub fn datagram_attrs(&self) -> Option<&DatagramAttrs> {
        self.datagrams.as_deref().map(Datagrams::attrs)
    }

    /// Octets of the longest datagram that a port, an index into [`Ia::ports`], can carry now.
    pub fn max_datagram(&self, port: u32) -> Result<u32> {
        let attempt = "ask for the longest datagram";
        self.datagrams(attempt)?.max_payload(port).map_err(Error::verb(attempt))
    }

    /// The face's number for it.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Binds addresses, all with one port, to listen on ([`Ia::listen_on`]) or to connect from
    /// ([`crate::Ep::connect_from`]) later; no other socket gets them until it is dropped.
    pub fn bind(&self, addresses: &[SocketAddr]) -> Result<Bound> {
        if self.life.is_closed() {
            return Err(Error::Closed(Object::Ia));
        }
        Ok(self.cm.bind(addresses, Serves::Connections)?)
    }

    /// Rejects a connection request, with private data for the peer (IT-API `it_reject`).
    pub fn reject(&self, request: RequestId, private_data: &[u8]) -> Result<()> {
        reject(request, private_data)
    }

    /// The counters of connection management.
    pub fn cm_counters(&self) -> CmCounters {
        self.cm.counters()
    }

    /// Closes the adapter and ends its connection thread; refused while it has objects.
    pub fn close(&self) -> Result<()> {
        self.life.close()?;
        self.rnic.set_async_handler(None);
        if let Some(datagrams) = &self.datagrams {
            datagrams.set_service_handler(None);
        }
        self.cm.stop();
        self.dispatch.stop();
        Ok(())
    }

    pub(crate) fn rnic(&self) -> &dyn Rnic {
        &*self.rnic
    }

    /// The provider's datagrams, or the error of an attempt to use them.
    pub(crate) fn datagrams(&self, attempt: &'static str) -> Result<&Arc<dyn Datagrams>> {
        self.datagrams.as_ref().ok_or_else(|| {
            let text =
                format!("{} has no datagrams: its transport knows connections only", self.device);
            Error::verb(attempt)(VpError::new(VpStatus::Unsupported, text))
        })
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The dispatch thread.
    pub(crate) fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    pub(crate) fn cm(&self) -> &Cm {
        &self.cm
    }

    pub(crate) fn observed(&self) -> Option<&ObservedRnic> {
        self.observed.as_deref()
    }
}

impl Living for Ia {
    fn life(&self) -> &Life {
        &self.life
    }
}

impl Drop for Ia {
    fn drop(&mut self) {
        // It may be closed already; nothing can use it any more.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Ia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ia({})", self.device)
    }
}
