//! The provider: the devices of rdma-core.
//!
//! Owner: the access layer. The libraries are loaded by the first call that needs them, once.

use std::sync::{Arc, OnceLock};

use vp_api::{DeviceInfo, Provider, Rnic, Services, Unavailable, VpError, VpResult, VpStatus};

use crate::device::{self, Context, Listed};
use crate::dl::{Api, Libraries};
use crate::machine::Machine;
use crate::ports;
use crate::rnic::VerbsRnic;

/// Name of the provider; devices have the kernel's names.
pub const NAME: &str = "vp_verbs";

/// The provider over rdma-core.
#[derive(Default)]
pub struct Verbs {
    libraries: Libraries,
    machine: Machine,
    api: OnceLock<Result<Arc<Api>, Unavailable>>,
}

impl Verbs {
    /// With other libraries, or another place where the kernel shows its devices: for tests.
    pub fn with(libraries: Libraries, machine: Machine) -> Self {
        Self { libraries, machine, api: OnceLock::new() }
    }

    fn api(&self) -> Result<&Arc<Api>, Unavailable> {
        let api = self.api.get_or_init(|| Api::load(&self.libraries).map(Arc::new));
        api.as_ref().map_err(Clone::clone)
    }

    /// The devices that can be used; at least one.
    fn usable(&self) -> Result<Vec<Listed>, Unavailable> {
        let api = self.api()?;
        // Without the kernel's modules the library has an error or an empty list.
        let listed = device::list(api).unwrap_or_default();
        let mut why = None;
        let mut usable = Vec::new();
        for device in listed {
            match self.machine.check_access(&device.uverbs) {
                Ok(()) => usable.push(device),
                Err(reason) => why = Some(reason),
            }
        }
        if usable.is_empty() {
            return Err(why.unwrap_or_else(|| self.machine.why_no_device()));
        }
        Ok(usable)
    }
}

impl Provider for Verbs {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        let usable = self.usable()?;
        let api = self.api()?;
        let mut out = Vec::new();
        let mut why = None;
        for device in usable {
            match Context::open(api, &device.name) {
                Ok(Some(context)) => {
                    out.push(DeviceInfo { name: device.name, ports: ports::list(&context) });
                }
                Ok(None) => {}
                Err(error) => {
                    why = Some(Unavailable {
                        reason: format!("{} cannot be opened: {error}", device.name),
                        remedy: "see the kernel's log (dmesg)".into(),
                    });
                }
            }
        }
        match why {
            Some(why) if out.is_empty() => Err(why),
            _ if out.is_empty() => Err(self.machine.why_no_device()),
            _ => Ok(out),
        }
    }

    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        let unavailable = |why: Unavailable| VpError::new(VpStatus::Unsupported, why.to_string());
        let api = self.api().map_err(unavailable)?;
        let opened = Context::open(api, device)
            .map_err(|error| VpError::os(&format!("open the device {device}"), &error))?;
        let context = opened.ok_or_else(|| {
            let detail = format!("rdma-core has no device {device}");
            VpError::new(VpStatus::InvalidHandle, detail)
        })?;
        Ok(Arc::new(VerbsRnic::open(context, services)?))
    }
}
