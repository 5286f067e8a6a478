//! The RoCE provider: one device, with a port for every network interface.
//!
//! It has no state but its name. Each caller that opens the device gets its own RNIC.

use std::sync::Arc;

use vp_api::{
    DeviceInfo, Provider, Rnic, Services, Transport, Unavailable, VpError, VpResult, VpStatus,
};
use vp_soft::ports::ports;

use crate::rnic::RoceRnic;
use crate::settings::Settings;

/// Name of the provider and of its device.
pub const NAME: &str = "vp_roce";

/// The RoCE provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roce;

impl Provider for Roce {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        let ports = ports().map_err(|error| Unavailable {
            reason: format!("network interfaces cannot be listed: {error}"),
            remedy: "check that the process may use netlink sockets".into(),
        })?;
        if ports.is_empty() {
            return Err(Unavailable {
                reason: "there is no network interface".into(),
                remedy: "bring one up, e.g. `ip link set lo up`".into(),
            });
        }
        Ok(vec![DeviceInfo { name: NAME.into(), transport: Transport::InfiniBand, ports }])
    }

    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        if device != NAME {
            let detail =
                format!("there is no device {device}; this provider's only device is {NAME}");
            return Err(VpError::new(VpStatus::InvalidHandle, detail));
        }
        let settings = Settings::read(NAME, &*services)?;
        self.devices().map_err(|why| VpError::new(VpStatus::Unsupported, why.to_string()))?;
        Ok(Arc::new(RoceRnic::open(services, settings)?))
    }
}
