//! The SoftRDMA provider: one device, every network interface a port.
//!
//! No state but its name; each caller that opens the device gets an RNIC of its own.

use std::sync::Arc;

use vp_api::{
    DeviceInfo, Provider, Rnic, Services, Transport, Unavailable, VpError, VpResult, VpStatus,
    no_settings,
};

use crate::rnic::SoftRnic;
use crate::stream::crc;
use vp_soft::ports;

/// Name of the provider and of its device.
pub const NAME: &str = "vp_softrdma";

/// The SoftRDMA provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftRdma;

impl Provider for SoftRdma {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        if !crc::is_right() {
            return Err(Unavailable {
                reason: "the CRC32c code gives wrong results on this processor".into(),
                remedy: "report the processor's model; iWARP cannot work without CRC32c".into(),
            });
        }
        let ports = ports::ports().map_err(|error| Unavailable {
            reason: format!("network interfaces cannot be listed: {error}"),
            remedy: "allow sockets of the family AF_NETLINK, and enough descriptors (`ulimit -n`)"
                .into(),
        })?;
        if ports.is_empty() {
            return Err(Unavailable {
                reason: "there is no network interface".into(),
                remedy: "bring one up, e.g. `ip link set lo up`".into(),
            });
        }
        Ok(vec![DeviceInfo { name: NAME.into(), transport: Transport::Iwarp, ports }])
    }

    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        if device != NAME {
            let detail =
                format!("there is no device {device}; this provider's only device is {NAME}");
            return Err(VpError::new(VpStatus::InvalidHandle, detail));
        }
        no_settings(NAME, &*services)?;
        self.devices().map_err(|why| VpError::new(VpStatus::Unsupported, why.to_string()))?;
        Ok(Arc::new(SoftRnic::open(services)?))
    }
}
