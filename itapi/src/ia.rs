//! The interface adapter and its protection zones. Handles only: the access layer owns the objects and keeps
//! parents while children live.

use std::fmt::Debug;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use ual::{Config, ConnectParams, Policy, ProviderListing, Ual};
use vp_api::{DatagramAttrs, DeviceInfo, PortInfo, RnicAttrs, Transport, room};

use crate::context::context;
use crate::error::{Error, Result};

/// All providers with their devices, or with the reason why one cannot work here.
pub fn providers() -> Result<Vec<ProviderListing>> {
    Ok(Ual::new()?.providers())
}

/// A device that [`IaBuilder::device`] opens by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Interface {
    /// Its provider.
    pub provider: String,
    /// The provider's version.
    pub version: String,
    /// Its name, its protocol, and its ports.
    pub device: DeviceInfo,
}

/// All devices that can be opened (`it_interface_list`); [`providers`] has the reasons why others cannot.
///
/// ```
/// # fn main() -> itapi::Result<()> {
/// for interface in itapi::interfaces()? {
///     println!("{} of {}", interface.device.name, interface.provider);
/// }
/// # Ok(())
/// # }
/// ```
pub fn interfaces() -> Result<Vec<Interface>> {
    let usable = |listing: ProviderListing| {
        let (provider, version) = (listing.name, listing.version);
        let devices = listing.devices.unwrap_or_default().into_iter();
        devices.map(move |device| {
            let (provider, version) = (provider.clone(), version.clone());
            Interface { provider, version, device }
        })
    };
    Ok(providers()?.into_iter().flat_map(usable).collect())
}

/// Interface adapter: an open device (IT-API `it_ia_create`). Clones share it; it closes when the
/// last handle of it and of everything made from it is gone.
///
/// ```
/// # use itapi::{Capabilities, Ia};
/// # fn main() -> itapi::Result<()> {
/// let ia = Ia::builder().policy(|policy| policy.spin = std::time::Duration::ZERO).open()?;
/// println!("{} has {} ports", ia.device(), ia.ports()?.len());
/// if ia.attrs().capabilities.contains(Capabilities::ATOMICS) {
///     println!("and atomic operations, {} at once", ia.attrs().max_ord);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ia(Arc<ual::Ia>);

context!(Ia, ia => ia.0.tag());

impl Ia {
    /// Opens the first usable device with the configuration file's policy.
    pub fn open() -> Result<Self> {
        Self::builder().open()
    }

    /// Chooses device and policy.
    pub fn builder() -> IaBuilder {
        IaBuilder { device: None, config: None, changes: Vec::new() }
    }

    /// Name of the device.
    pub fn device(&self) -> &str {
        self.0.device()
    }

    /// Its protocol.
    pub fn transport(&self) -> Transport {
        self.0.transport()
    }

    /// Name of its provider.
    pub fn provider(&self) -> &str {
        self.0.provider()
    }

    /// Limits and capabilities (`it_ia_query`).
    pub fn attrs(&self) -> &RnicAttrs {
        self.0.attrs()
    }

    /// Its ports (spigots) as they are now; [`Ia::port_evd`] reports changes.
    pub fn ports(&self) -> Result<Vec<PortInfo>> {
        Ok(self.0.ports()?)
    }

    /// The policy of its connections.
    pub fn policy(&self) -> &Policy {
        self.0.policy()
    }

    /// Whether its device was removed, or failed for good: connections have ended, and all work is flushed. Nothing can be made of
    /// it any more; see [`Ia::reopen`].
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Opens the device of this name again, of the same provider and with the same configuration, once it is there again. Whoever
    /// does so gets handles of one open adapter, as long as there are any. Errors: there is no such device now.
    pub fn reopen(&self) -> Result<Self> {
        Ok(Self(self.0.reopen()?))
    }

    /// Creates a protection zone.
    pub fn pz(&self) -> Result<Pz> {
        Ok(Pz { pz: self.0.create_pz()? })
    }

    /// Limits of datagrams; `None`: the transport has none.
    pub fn datagram_attrs(&self) -> Option<&DatagramAttrs> {
        self.0.datagram_attrs()
    }

    /// Octets of the longest datagram that a port, given as an index into [`Ia::ports`], can carry now.
    pub fn max_datagram(&self, port: u32) -> Result<u32> {
        Ok(self.0.max_datagram(port)?)
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Ia> {
        &self.0
    }
}

/// The addresses that a call may take: at least one. Errors: what was given, why it is none, and what to do.
pub(crate) fn addresses(given: impl ToSocketAddrs + Debug) -> Result<Vec<SocketAddr>> {
    let remedy = |error: &std::io::Error| match error.kind() {
        std::io::ErrorKind::InvalidInput => "write HOST:PORT or [IPV6]:PORT",
        _ => "see whether the name is right, and known here: `getent hosts NAME`",
    };
    match given.to_socket_addrs().map(Iterator::collect::<Vec<_>>) {
        Ok(found) if found.is_empty() => {
            Err(Error::Argument(format!("there is no address in {given:?}; give one at least")))
        }
        Ok(found) => Ok(found),
        Err(error) => {
            Err(Error::Argument(format!("no address for {given:?}: {error}; {}", remedy(&error))))
        }
    }
}

/// Parameters to connect to `peer`: to the first of its addresses that responds. Errors: it has none.
pub fn connect_params(peer: impl ToSocketAddrs + Debug) -> Result<ConnectParams> {
    let mut found = addresses(peer)?;
    let first = found.remove(0);
    Ok(ConnectParams { alternatives: found, ..ConnectParams::new(first) })
}

/// A copy of private data. The access layer checks its length.
pub(crate) fn copy(private_data: &[u8]) -> Result<Vec<u8>> {
    let list = room::list("octets of private data", private_data.len());
    let mut copy = list.map_err(Error::no_room)?;
    copy.extend_from_slice(private_data);
    Ok(copy)
}

type Change = Box<dyn FnOnce(&mut Policy)>;

/// Opens an [`Ia`] (`it_ia_create`).
pub struct IaBuilder {
    device: Option<String>,
    config: Option<Config>,
    changes: Vec<Change>,
}

impl IaBuilder {
    /// A device, or the first device of a provider, by name.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Uses this configuration instead of the file's.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Changes the policy that the configuration gives.
    pub fn policy(mut self, change: impl FnOnce(&mut Policy) + 'static) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    /// Opens it.
    pub fn open(self) -> Result<Ia> {
        let mut config = match self.config {
            Some(config) => config,
            None => Config::load().map_err(ual::Error::from)?,
        };
        for change in self.changes {
            change(&mut config.policy);
        }
        let ual = Ual::with_config(config);
        let ia = match self.device {
            Some(name) => ual.open(&name)?,
            None => ual.open_any()?,
        };
        Ok(Ia(ia))
    }
}

/// Protection zone: memory, queues and endpoints work together only inside one
/// (IT-API `it_pz_create`). Clones share it.
///
/// ```
/// # fn main() -> itapi::Result<()> {
/// let ia = itapi::Ia::open()?;
/// let (pz, evd) = (ia.pz()?, ia.evd(64)?);
/// let ep = pz.ep(&evd).build()?;
/// let buffers = pz.buffers(32, 4096)?;
/// let shared = pz.lmr(1 << 20).remote_read().register()?;
/// # drop((ep, buffers, shared));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pz {
    pz: Arc<ual::Pz>,
}

context!(Pz, pz => pz.pz.tag());

impl Pz {
    /// Its adapter.
    pub fn ia(&self) -> Ia {
        Ia(self.pz.ia().clone())
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Pz> {
        &self.pz
    }
}

impl Debug for Pz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pz({:?})", self.pz.id())
    }
}
