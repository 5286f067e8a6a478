//! The devices that programs see: one of SoftRDMA, then one of RoCE, and those of the libraries in the configuration.
//! `WARPLINE_VERBS_ROCE=1` leaves only RoCE, and `0` only SoftRDMA.
//!
//! The list is made once per process and kept; listing starts no thread and opens no socket. A child made by fork(2)
//! makes its own, because another thread may have held a lock of the parent's. A device's ports and addresses
//! are read anew each time. `WARPLINE_VERBS_DEVICES="a=eth0,b=roce:eth1"` lists devices of one interface each instead.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use kal_os::fork::PerProcess;
use kal_os::lock;
use ual::Ual;
use vp_api::{PortInfo, Provider, Transport};
use vp_roce::Roce;
use vp_softrdma::SoftRdma;

use crate::adapter::Adapter;
use crate::errno::{EINVAL, Errno};
use crate::fork::Here;
use crate::{advice, log, record};
use ual::gid::Gids;
use ual::guid;

const SPLIT: &str = "WARPLINE_VERBS_DEVICES";
/// Shows only RoCE, or only SoftRDMA.
const ROCE: &str = "WARPLINE_VERBS_ROCE";
/// Octets of a name in C, without the NUL.
const MAX_NAME: usize = 63;

/// A device as programs see it.
pub struct Device {
    name: String,
    index: u32,
    provider: String,
    /// Its provider's index in the access layer's list, and its name there.
    place: usize,
    inner: String,
    transport: Transport,
    /// The only interface that it shows.
    interface: Option<String>,
    opened: Mutex<Weak<Adapter>>,
    /// Contexts that the program has opened and not closed.
    contexts: AtomicU32,
}

struct Devices {
    ual: Arc<Ual>,
    list: Vec<Device>,
}

/// All devices.
///
/// # Errors
/// EINVAL: the configuration or the environment cannot be used; the reason is written to standard error.
pub fn all() -> Result<&'static [Device], Errno> {
    devices().map(|devices| &devices.list[..])
}

/// Whether a device has datagrams.
pub(crate) fn have_datagrams() -> Result<bool, Errno> {
    Ok(all()?.iter().any(Device::has_datagrams))
}

fn devices() -> Result<&'static Devices, Errno> {
    static DEVICES: PerProcess<OnceLock<Result<Devices, Errno>>> = PerProcess::new();
    DEVICES.get::<Here>().get_or_init(find).as_ref().map_err(|error| *error)
}

fn find() -> Result<Devices, Errno> {
    let refuse = |why: &dyn std::fmt::Display| {
        eprintln!("warpline: no verbs devices: {why}");
        EINVAL
    };
    let config = ual::Config::load().map_err(|error| refuse(&error))?;
    log::init(&config.log);
    // Not the bridge to rdma-core, which would find this library.
    let own = own().map_err(|why| refuse(&why))?;
    let asked = std::env::var(SPLIT).unwrap_or_default();
    let split = parse(&asked, &own).map_err(|why| refuse(&why))?;
    let providers = own.iter().map(|own| own.provider.clone()).collect();
    let ual = Ual::with_providers(providers, config);
    let mut list: Vec<Device> = Vec::new();
    for (place, listing) in ual.providers().into_iter().enumerate() {
        let own = own.iter().find(|own| own.provider.name() == listing.name);
        let devices = listing.devices.unwrap_or_else(|why| {
            // The configuration may leave out one of two.
            match ual.config().providers.disabled.contains(&listing.name) {
                true => tracing::info!("provider {} has no devices: {why}", listing.name),
                false => tracing::warn!("provider {} has no devices: {why}", listing.name),
            }
            Vec::new()
        });
        for device in devices {
            let names = match own {
                Some(own) if split.is_empty() => vec![(own.usual.to_owned(), None)],
                Some(own) => split
                    .iter()
                    .filter(|one| one.protocol == own.protocol)
                    .map(Split::pair)
                    .collect(),
                None => vec![(device.name.clone(), None)],
            };
            for (mut name, interface) in names {
                if name.len() > MAX_NAME {
                    tracing::warn!("a name in C has up to {MAX_NAME} octets; {name} is cut");
                }
                while name.len() > MAX_NAME {
                    name.pop();
                }
                let index = list.len() as u32;
                let (inner, opened) = (device.name.clone(), Mutex::default());
                let (provider, transport) = (listing.name.clone(), device.transport);
                list.push(Device {
                    name,
                    index,
                    provider,
                    place,
                    inner,
                    transport,
                    interface,
                    opened,
                    contexts: AtomicU32::new(0),
                });
            }
        }
    }
    list.iter().for_each(|device| record::line("listed", &device.name));
    Ok(Devices { ual, list })
}

/// A provider of this project.
struct Own {
    provider: Arc<dyn Provider>,
    /// The name of its device, if it has one for all interfaces.
    usual: &'static str,
    /// Its name in `WARPLINE_VERBS_DEVICES`.
    protocol: &'static str,
}

/// Those that programs see, in the order of their devices.
fn own() -> Result<Vec<Own>, String> {
    let iwarp = Own { provider: Arc::new(SoftRdma), usual: "softrdma0", protocol: "iwarp" };
    let roce = Own { provider: Arc::new(Roce), usual: "roce0", protocol: "roce" };
    match std::env::var(ROCE).as_deref().map(str::trim) {
        Err(_) | Ok("") => Ok(vec![iwarp, roce]),
        Ok("0") => Ok(vec![iwarp]),
        Ok("1") => Ok(vec![roce]),
        Ok(other) => Err(format!("{ROCE}: `{other:.100}` is neither 0 nor 1")),
    }
}

/// A device with one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Split {
    name: String,
    interface: String,
    protocol: &'static str,
}

impl Split {
    fn pair(&self) -> (String, Option<String>) {
        (self.name.clone(), Some(self.interface.clone()))
    }
}

/// Names of devices, each with its interface, before which its protocol may be; by default the first.
fn parse(text: &str, own: &[Own]) -> Result<Vec<Split>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let one = |part: &str| {
        let wrong = |why: &str| Err(format!("{SPLIT}: `{part:.100}` {why}"));
        let (name, rest) = part.split_once('=').unwrap_or_default();
        if name.len() > MAX_NAME {
            return wrong(&format!("has a name of more than {MAX_NAME} octets"));
        }
        // No interface has a colon in its name.
        let (protocol, interface) = match rest.split_once(':') {
            Some((protocol, interface)) => (Some(protocol), interface),
            None => (None, rest),
        };
        let is_it = |own: &&Own| protocol.is_none_or(|protocol| protocol == own.protocol);
        match own.iter().find(is_it) {
            _ if name.is_empty() || interface.is_empty() => {
                wrong("is not NAME=INTERFACE, NAME=iwarp:INTERFACE or NAME=roce:INTERFACE")
            }
            None => wrong(&format!(
                "names another protocol than iwarp and roce, or one that {ROCE} leaves out"
            )),
            Some(own) => Ok(Split {
                name: name.to_owned(),
                interface: interface.to_owned(),
                protocol: own.protocol,
            }),
        }
    };
    parts.map(one).collect()
}

impl Device {
    /// Its name, e.g. `softrdma0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its provider.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// Its transport, which decides what programs expect of it.
    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    pub(crate) fn has_datagrams(&self) -> bool {
        self.transport == Transport::InfiniBand
    }

    /// Its index in the list.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its interfaces as they are now.
    pub fn ports(&self) -> Result<Vec<PortInfo>, Errno> {
        let provider = devices()?.ual.provider_at(self.place).map_err(|_| Errno(libc::ENODEV))?;
        let devices = provider.devices().map_err(|_| Errno(libc::ENODEV))?;
        let own = devices.into_iter().find(|device| device.name == self.inner);
        let mut ports = own.ok_or(Errno(libc::ENODEV))?.ports;
        if let Some(interface) = &self.interface {
            ports.retain(|port| port.interface == *interface);
        }
        Ok(ports)
    }

    /// The GIDs of its addresses.
    pub fn gids(&self) -> Result<Gids, Errno> {
        Ok(Gids::of(&self.ports()?, self.transport))
    }

    /// Its GUID.
    pub fn guid(&self) -> u64 {
        guid::of(&self.ports().unwrap_or_default(), self.index)
    }

    /// Whether it has this address.
    pub fn has(&self, address: IpAddr) -> bool {
        let own = |port: &PortInfo| port.addresses.contains(&address);
        self.ports().is_ok_and(|ports| ports.iter().any(own))
    }

    /// The index of the interface with an address; 0: none has it, or there is no sysfs.
    pub(crate) fn interface_of(&self, address: IpAddr) -> u32 {
        let ports = self.ports().unwrap_or_default();
        let own = ports.iter().find(|port| port.addresses.contains(&address));
        let text = own.and_then(|port| sysfs(&port.interface, "ifindex"));
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// The program opens a context of it by ibv_open_device(3).
    pub(crate) fn count_context(&self) {
        self.contexts.fetch_add(1, Ordering::Relaxed);
    }

    /// The program closes such a context.
    pub(crate) fn discount_context(&self) {
        self.contexts.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the program itself has it open.
    pub(crate) fn has_context(&self) -> bool {
        self.contexts.load(Ordering::Relaxed) != 0
    }

    /// Whether this process has opened it.
    pub(crate) fn was_opened(&self) -> bool {
        !Weak::ptr_eq(&lock(&self.opened), &Weak::new())
    }

    /// Opens it, or returns the adapter that is open already.
    pub fn open(&'static self) -> Result<Arc<Adapter>, Errno> {
        let mut opened = lock(&self.opened);
        if let Some(adapter) = opened.upgrade().filter(|adapter| adapter.is_ours()) {
            return Ok(adapter);
        }
        let ual = &devices()?.ual;
        let rnic = ual.open_rnic(self.place, &self.inner)?;
        let adapter = Adapter::start(self, rnic, ual.config())?;
        *opened = Arc::downgrade(&adapter);
        drop(opened);
        record::line("opened", &self.name);
        advice::opened();
        Ok(adapter)
    }
}

/// The state of an interface in sysfs.
fn sysfs(interface: &str, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/{file}")).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_split_by_interface_and_protocol() {
        let both = own().unwrap();
        let split = |name: &str, protocol, interface: &str| Split {
            name: name.to_owned(),
            interface: interface.to_owned(),
            protocol,
        };
        assert_eq!(parse("", &both), Ok(vec![]));
        let two = vec![split("a", "iwarp", "eth0"), split("b", "roce", "lo")];
        assert_eq!(parse("a=eth0, b=roce:lo", &both), Ok(two));
        assert_eq!(parse("a=eth0", &both[1..]), Ok(vec![split("a", "roce", "eth0")]));
        let long = "a".repeat(MAX_NAME + 1) + "=lo";
        for (text, why) in [
            ("a", "is not NAME=INTERFACE"),
            ("=eth0", "is not NAME=INTERFACE"),
            ("a=roce:", "is not NAME=INTERFACE"),
            ("a=ib:eth0", "another protocol"),
            (&long, "more than 63 octets"),
        ] {
            assert!(parse(text, &both).unwrap_err().contains(why), "{text}");
        }
        assert!(parse("a=iwarp:eth0", &both[1..]).unwrap_err().contains("leaves out"));
    }
}
