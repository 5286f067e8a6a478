//! The smallest provider: steps 1 and 2 of spec/provider-guide.md. It has no device yet, and says so. Replace "acme" by your
//! name, and go on with step 3 in `open`.

use std::sync::Arc;

use vp_api::*;

export_provider!("acme", Capabilities::empty(), Acme);

struct Acme;

impl Provider for Acme {
    fn name(&self) -> &str {
        "acme"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// The devices that can be used.
    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        Err(Unavailable {
            reason: "there is no ACME adapter in this machine".into(),
            remedy: "insert one, and load its driver".into(),
        })
    }

    fn open(&self, device: &str, _: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        Err(VpError::new(VpStatus::Unsupported, format!("{device} cannot be opened yet: step 3 of the guide")))
    }
}
