//! The verbs provider: lists and opens the devices of rdma-core.
//!
//! Owner: the access layer. The first call that needs the libraries loads them, once.

use std::io;
use std::sync::{Arc, OnceLock};

use vp_api::{
    DeviceInfo, Provider, Rnic, Services, Transport, Unavailable, VpError, VpResult, VpStatus,
    no_settings,
};

use crate::cm::id::EventChannel;
use crate::device::{self, Context, Listed};
use crate::dl::{Api, Libraries};
use crate::machine::{Machine, check_limits};
use crate::ports;
use crate::rnic::VerbsRnic;

/// Name of the provider. Devices have the kernel's names.
pub const NAME: &str = "vp_verbs";

/// The provider over rdma-core.
#[derive(Default)]
pub struct Verbs {
    libraries: Libraries,
    machine: Machine,
    api: OnceLock<Result<Arc<Api>, Unavailable>>,
}

impl Verbs {
    /// With other libraries, or with other directories for the kernel's devices: for tests.
    pub fn with(libraries: Libraries, machine: Machine) -> Self {
        Self { libraries, machine, api: OnceLock::new() }
    }

    fn api(&self) -> Result<&Arc<Api>, Unavailable> {
        let api = self.api.get_or_init(|| Api::load(&self.libraries).map(Arc::new));
        api.as_ref().map_err(Clone::clone)
    }
}

/// Opens a device as far as listing needs it; `None` if it no longer exists.
fn try_out(api: &Arc<Api>, device: &Listed) -> io::Result<Option<Arc<Context>>> {
    let Some(context) = Context::open(api, &device.name)? else { return Ok(None) };
    // Connections need another device file.
    EventChannel::new(&context)?;
    Ok(Some(context))
}

impl Provider for Verbs {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        let api = self.api()?;
        let (mut usable, mut why) = (Vec::new(), None);
        // Without the kernel's modules the library returns an error or an empty list.
        for device in device::list(api).unwrap_or_default() {
            match try_out(api, &device) {
                Ok(Some(context)) => {
                    let transport =
                        if context.iwarp { Transport::Iwarp } else { Transport::InfiniBand };
                    let ports = ports::list(&context);
                    usable.push(DeviceInfo { name: device.name, transport, ports });
                }
                Ok(None) => {}
                Err(error) => why = Some(self.machine.why_not(&device, &error)),
            }
        }
        if usable.is_empty() {
            return Err(why.unwrap_or_else(|| self.machine.why_no_device()));
        }
        check_limits()?;
        Ok(usable)
    }

    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        let unavailable = |why: Unavailable| VpError::new(VpStatus::Unsupported, why.to_string());
        no_settings(NAME, &*services)?;
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
