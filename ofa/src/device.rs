//! The devices that programs see: SoftRDMA as one device or one per network interface, and those of the
//! libraries in the configuration. With `WARPLINE_VERBS_ROCE=1` RoCE takes the place of SoftRDMA.
//!
//! The list is made once per process and kept; listing starts no thread. A child made by fork(2) makes
//! its own, because another thread may have held a lock of the parent's. A device's ports and addresses
//! are read anew each time. `WARPLINE_VERBS_DEVICES="a=eth0,b=eth1"` makes several devices of SoftRDMA,
//! each with the addresses of one interface; likewise of RoCE.

use std::net::IpAddr;
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
use crate::log;
use ual::gid::Gids;
use ual::guid;

const SPLIT: &str = "WARPLINE_VERBS_DEVICES";
/// Shows RoCE in place of SoftRDMA.
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
    Ok(all()?.iter().any(|device| device.transport == Transport::InfiniBand))
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
    let (own, usual): (Arc<dyn Provider>, _) = match by_roce().map_err(|why| refuse(&why))? {
        true => (Arc::new(Roce), "roce0"),
        false => (Arc::new(SoftRdma), "softrdma0"),
    };
    let ual = Ual::with_providers(vec![own.clone()], config);
    let asked = std::env::var(SPLIT).unwrap_or_default();
    let split = parse(&asked).map_err(|why| refuse(&why))?;
    let mut list: Vec<Device> = Vec::new();
    for (place, listing) in ual.providers().into_iter().enumerate() {
        let is_own = listing.name == own.name();
        let devices = listing.devices.unwrap_or_else(|why| {
            tracing::warn!("provider {} has no devices: {why}", listing.name);
            Vec::new()
        });
        for device in devices {
            let names = match (is_own, split.is_empty()) {
                (true, true) => vec![(usual.to_owned(), None)],
                (true, false) => split.clone(),
                (false, _) => vec![(device.name.clone(), None)],
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
                });
            }
        }
    }
    Ok(Devices { ual, list })
}

/// Whether programs see RoCE.
fn by_roce() -> Result<bool, String> {
    match std::env::var(ROCE).as_deref().map(str::trim) {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(other) => Err(format!("{ROCE}: `{other:.100}` is neither 0 nor 1")),
    }
}

/// Names of devices, each with its interface.
fn parse(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| match part.split_once('=') {
        Some((name, _)) if name.len() > MAX_NAME => {
            Err(format!("{SPLIT}: `{name:.100}` has more than {MAX_NAME} octets"))
        }
        Some((name, interface)) if !name.is_empty() && !interface.is_empty() => {
            Ok((name.to_owned(), Some(interface.to_owned())))
        }
        _ => Err(format!("{SPLIT}: `{part:.100}` is not NAME=INTERFACE")),
    };
    parts.map(pair).collect()
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
    fn devices_are_split_by_interface() {
        assert_eq!(parse(""), Ok(vec![]));
        let pair = |name: &str, interface: &str| (name.to_owned(), Some(interface.to_owned()));
        assert_eq!(parse("a=eth0, b=lo"), Ok(vec![pair("a", "eth0"), pair("b", "lo")]));
        assert!(parse("a").unwrap_err().contains("`a` is not NAME=INTERFACE"));
        assert!(parse("=eth0").is_err());
        let long = "a".repeat(MAX_NAME + 1);
        assert!(parse(&format!("{long}=lo")).unwrap_err().contains("more than 63 octets"));
    }
}
