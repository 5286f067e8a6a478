//! The wrapped provider. Owns the layer and has no other state. Any thread.

use std::sync::Arc;

use vp_api::{DeviceInfo, Provider, Rnic, Services, Unavailable, VpResult};

use crate::hook::{Call, Hook, Layer, Names};
use crate::rnic::HookedRnic;
use crate::verb::{Object, Verb};

/// A provider in a layer.
pub(crate) struct Wrapped<L> {
    inner: Arc<dyn Provider>,
    layer: L,
}

impl<L: Layer> Wrapped<L> {
    pub(crate) fn create(inner: Arc<dyn Provider>, layer: L) -> Arc<dyn Provider> {
        Arc::new(Self { inner, layer })
    }
}

impl<L: Layer> Provider for Wrapped<L> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn version(&self) -> &str {
        self.inner.version()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        self.inner.devices()
    }

    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        let names = Names { provider: self.inner.name(), device };
        let hook = Arc::new(self.layer.hook(names, services.clone())?);
        let per_object = hook.per_object(Object::RNIC);
        let open = || self.inner.open(device, services);
        let rnic = hook.call(
            &per_object,
            &Call::new(Verb::Open, Object::RNIC, format_args!("{device}")),
            open,
        )?;
        Ok(HookedRnic::create(hook, per_object, rnic))
    }
}
